"""Execute the notebook in an empty folder, and store it with its outputs, which the site shows.

    python docs/execute_notebook.py

A test executes it too, and fails if a cell does.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent / "notebook.ipynb"


def executed(path: Path = NOTEBOOK) -> nbformat.NotebookNode:
    """The notebook with the outputs of a new kernel, which finds the command ``vmt`` of this environment."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        found = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": found, "XDG_CACHE_HOME": f"{folder}/.cache"}
        client = NotebookClient(
            notebook,
            timeout=600,
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env=environment)
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(), NOTEBOOK)
