"""The Python blocks on the pages run, links and names lead somewhere, and generated parts are up to date."""

import pkgutil
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vmt
from tests.docs.documented import FENCE, PAGES, PROGRAMS, ROOT, SHELL, blocks, fences, small_task
from tests.own_pictures import CLASSES, class_folders, unlabelled_folder
from vmt.evaluate.accuracy import MEASURED
from vmt.train import Config
from vmt.train.loop import train

WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]
METHODS = [*vmt.methods.METHODS, "dirt_t"]


def namespace_of_a_reader() -> dict[str, Any]:
    """Small data and a small network under the names that the pages use; files of that kind are written as well."""
    class_folders(Path("labelled"))
    unlabelled_folder(Path("unlabelled"))
    y = np.arange(60) % 3
    x = np.random.default_rng(0).standard_normal((60, 5)) + y[:, None]
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(x).float(), torch.from_numpy(y))
    dataset.classes = CLASSES  # type: ignore[attr-defined]
    data = {"xs": x, "ys": y, "xt": x + 0.3, "yt": y, "x_test": x, "y_test": y, "dataset": dataset}
    loop = {"net": torch.nn.Linear(5, 3), "x": torch.rand(8, 5), "loss": torch.zeros(()), "lambda_t": 0.1}
    loader = torch.utils.data.DataLoader(dataset, batch_size=8)
    return {"np": np, "torch": torch, "vmt": vmt, "loader": loader} | data | loop


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    """They run with fewer iterations than a reader would use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("vmt.data.tasks.load_task", small_task)
    monkeypatch.setattr("vmt.runs.recipes.LONGEST", 2)
    namespace = namespace_of_a_reader()
    for block in blocks(page, "python"):
        short = re.sub(r"\b(iterations|interval|trials)=[\d_]+", r"\1=2", block)
        exec(compile(short, str(page), "exec"), namespace)


def test_the_example_method_is_short() -> None:
    body = blocks(ROOT / "docs" / "adding-a-method.md", "python")[0].split("def pi_model")[1]
    assert len(body.strip().splitlines()) < 15


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_are_in_blocks_of_commands(page: Path) -> None:
    """The tests run the commands of `console` blocks and, in the README, of `sh` blocks. They would miss others."""
    known = {"console", SHELL} if page.name == "README.md" else {"console"}
    others = [body for language, body in fences(page) if language not in known and not language.startswith("{")]
    lines = [line for body in others for line in body.splitlines() if line.removeprefix("$ ").split(" ")[0] in PROGRAMS]
    assert not lines, f"{page.name} has commands outside of ```console"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    prose = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_names_on_a_page_exist(page: Path) -> None:
    """Names in running text that begin with ``vmt.`` can be imported."""
    prose = FENCE.sub("", page.read_text())
    for name in set(re.findall(r"`(vmt(?:\.\w+)+)(?:\([^`]*\))?`", prose)):
        assert pkgutil.resolve_name(name) is not None, f"{page.name} names {name}"


def test_reading_the_code_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "reading-the-code.md").read_text()
    named = set(re.findall(r"`([\w/-]+\.py)`", page))
    missing = [name for name in named if not any((folder / name).exists() for folder in (ROOT / "src" / "vmt", ROOT))]
    assert not missing


def test_reading_the_code_names_every_room() -> None:
    page = (ROOT / "docs" / "reading-the-code.md").read_text()
    rooms = runpy.run_path(str(ROOT / "docs" / "architecture.py"))["rooms_of"]().modules
    assert not [room for room in rooms if f"**{room}**" not in page and f"`{room}.py`" not in page]


def test_generated_parts_are_up_to_date() -> None:
    for path, text in runpy.run_path(str(ROOT / "docs" / "generate.py"))["pages"]():
        assert path.read_text() == text, f"{path.name} is out of date: run make docs"


def test_the_picture_of_the_architecture_is_up_to_date() -> None:
    drawing = runpy.run_path(str(ROOT / "docs" / "architecture.py"))
    assert drawing["is_up_to_date"](drawing["rooms_of"]()), "docs/architecture.svg is out of date: run make docs"


@pytest.mark.parametrize("name", METHODS)
def test_a_method_page_lists_what_is_logged(name: str, one_thread: None) -> None:
    """The page lists every metric in the log of two iterations, and nothing else."""
    metrics = metrics_in(ROOT / "docs" / "methods" / f"{name}.md")
    assert sorted(metrics) == sorted(set(metrics))
    assert set(metrics) == logged(name)


def metrics_in(page: Path) -> list[str]:
    """The first column of the table under "What is logged" (or, on the page for all, "What every run logs")."""
    section = re.split(r"^## What (?:is logged|every run logs)$", page.read_text(), flags=re.MULTILINE)[1]
    return re.findall(r"^\| `([^`]+)` \|", section.split("\n## ")[0], re.MULTILINE)


def logged(name: str) -> set[str]:
    y = torch.arange(24) % 3
    x = torch.randn(24, 5) + y[:, None]
    source, target = vmt.data.Domain(x, y, "source"), vmt.data.Domain(x + 0.3, y, "target")
    base = vmt.methods.vmt if name == "dirt_t" else vmt.methods.METHODS[name]
    method = base(iterations=2)
    if name == "dirt_t":
        method = vmt.methods.dirt_t(method, interval=1, iterations=2)
    task = vmt.data.make_task(source, target)
    config = Config(batch_size=8, log_every=1, device="cpu")
    outcome = train(task, method, lambda: vmt.nets.mlp((5,), 3, width=8), config)
    updates = tuple(f"{update.name}/" for update in method.updates())
    last = [record for record in outcome.records if record["phase"] == name]
    return {metric for record in last for metric in record if metric.startswith(updates)}


def test_the_page_of_all_methods_lists_what_an_evaluation_holds() -> None:
    metrics = metrics_in(ROOT / "docs" / "methods" / "index.md")
    assert metrics == list(MEASURED)
