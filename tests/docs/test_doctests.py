"""The examples in docstrings print what they show, and every function in the API reference has an example."""

import doctest
import importlib
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import vmt

API = Path(__file__).parents[2] / "docs" / "api"
# These need published files or fill a disk; digits_task takes seconds, which the example of load_task takes already.
WITHOUT = re.compile(r"vmt\.data\.(read_(mnist|svhn|usps|mnistm|syn|recreation|cifar10|stl10)|build_\w+|digits_task)")


def with_examples() -> list[str]:
    """The modules whose text has an example. Modules without one are not imported, because kernels need Triton."""
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


def in_the_reference() -> list[str]:
    """The functions that the API pages name one by one."""
    pages = "".join(page.read_text() for page in API.glob("*.md"))
    return re.findall(r"^\.\. autofunction:: (\S+)$", pages, re.MULTILINE)


@pytest.mark.parametrize("name", in_the_reference())
def test_a_function_in_the_reference_has_an_example(name: str) -> None:
    module, _, own = name.rpartition(".")
    text = getattr(importlib.import_module(module), own).__doc__
    assert (">>> " in text) != bool(WITHOUT.fullmatch(name))
