"""The code in the documentation runs as it is printed."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

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


def test_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small data, a small network and a few iterations in place of what a reader brings."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = random.standard_normal((60, 5)) + y[:, None]
    net = torch.nn.Linear(5, 3)
    namespace: dict[str, object] = {"torch": torch, "net": net, "x": torch.rand(8, 5), "loss": 0.0, "lambda_t": 0.1}
    namespace |= {"xs": x, "ys": y, "xt": x + 0.3, "x_test": x, "y_test": y}
    found = blocks(ROOT / "README.md")
    assert len(found) == 2
    for block in found:
        exec(compile(block.replace("iterations=5000", "iterations=2"), "README.md", "exec"), namespace)
    assert isinstance(namespace["loss"], torch.Tensor)
    assert (tmp_path / "model.safetensors").exists()


def test_the_example_method_is_short() -> None:
    body = blocks(ROOT / "docs" / "adding-a-method.md")[0].split("def pi_model")[1]
    assert len(body.strip().splitlines()) < 15
