"""The code in the documentation runs as it is printed."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)


@pytest.mark.parametrize("name", ["docs/adding-a-method.md"])
def test_python_blocks_run_in_order(name: str) -> None:
    found = blocks(ROOT / name)
    assert found
    namespace: dict[str, object] = {}
    for block in found:
        exec(compile(block, name, "exec"), namespace)


def test_the_example_method_is_short() -> None:
    body = blocks(ROOT / "docs" / "adding-a-method.md")[0].split("def pi_model")[1]
    assert len(body.strip().splitlines()) < 15
