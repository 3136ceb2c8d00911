"""Data for the runs of the paper's tables."""

from pathlib import Path

import pytest

from tests.cli.test_bad_input import official_files


@pytest.fixture(scope="session")
def official_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny MNIST and SVHN in the official formats. Tests must not write to it."""
    return official_files(tmp_path_factory.mktemp("official"))
