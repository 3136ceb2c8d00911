"""The paper's data in a small size, as in the tests of its queue."""

from tests.paper.conftest import official_data

__all__ = ["official_data"]
