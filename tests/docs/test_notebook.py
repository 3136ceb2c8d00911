"""The notebook runs from beginning to end, in a kernel of its own, and shows progress and tables."""

import re
import runpy

import nbformat
import pytest

from tests.docs.documented import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs" / "execute_notebook.py"))
NOTEBOOK = SCRIPT["NOTEBOOK"]


def outputs(notebook: nbformat.NotebookNode, kind: str) -> list[str]:
    """All outputs of a kind, such as ``text/html``; ``text`` is what was printed."""
    every = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [each["text"] if kind == "text" else each["data"][kind] for each in every if kind in each.get("data", each)]


@pytest.fixture(scope="module")
def executed() -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = SCRIPT["executed"]()
    return notebook


def test_it_runs_and_chooses_a_run_without_labels(executed: nbformat.NotebookNode) -> None:
    (ranking,) = [text for text in outputs(executed, "text") if "ami_source" in text]
    assert "target accuracy" not in ranking, "there were no labels"
    assert all(name in ranking for name in ("source only", "vmt 0.01", "vmt 1"))


def test_it_shows_progress_a_run_a_model_and_an_evaluation(executed: nbformat.NotebookNode) -> None:
    html = outputs(executed, "text/html")
    assert sum("120 of 120 iterations" in part for part in html) == 3
    assert "<progress" not in "".join(html), "no bar stays behind"
    captions = re.findall(r"<caption[^>]*>([^<]*)", "".join(html))
    assert [caption.split()[0] for caption in captions] == ["A", "vmt.Model", "Accuracy"]


def test_its_stored_outputs_are_those_of_its_cells() -> None:
    """It is stored after it was executed in order, and without an error."""
    cells = [cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert all(cell.outputs for cell in cells)
