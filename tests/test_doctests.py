"""The examples in docstrings print what they say, and everything in the API reference has one."""

import doctest
import importlib
import pkgutil
from importlib.util import find_spec
from pathlib import Path

import pytest

import vmt

API = Path(__file__).parent.parent / "docs" / "api"
# What the reference shows without an example of its own: parts of values, whose makers have one, and plain errors.
WITHOUT: set[str] = set()


def with_examples() -> list[str]:
    """Told by their text, so that nothing is imported for nothing (kernels need Triton)."""
    names = ["vmt", *(module.name for module in pkgutil.walk_packages(vmt.__path__, "vmt."))]
    specs = {name: find_spec(name) for name in names}
    return [name for name, spec in specs.items() if spec and spec.origin and ">>> " in Path(spec.origin).read_text()]


@pytest.mark.parametrize("name", with_examples())
def test_examples(name: str, one_thread: None) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder().find(module, name):
        runner.run(test)
    assert runner.tries > 0
    assert runner.failures == 0
