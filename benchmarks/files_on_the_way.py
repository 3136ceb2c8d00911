"""How many source files run between ``vmt train mnist-svhn`` and the first backward pass: what a reader has to open.

    python benchmarks/files_on_the_way.py
    PYTHONPATH=elsewhere/src python benchmarks/files_on_the_way.py

Counts the files of the package of which a function runs before the first backward pass, which checks that the network
has a gradient at its input; importing a module does not count. The files are printed in the order of their first
function. The task is read from made-up data in the official formats, so that the readers run as well.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent


class FirstGradient(BaseException):
    """Ends the command at its first backward pass."""


def watched(data: Path, net: str) -> tuple[list[str], int]:
    """The files of the package in the order of the first function that runs, and how often another file is entered."""
    import torch  # noqa: F401  (before the profile starts, which would slow the import)

    import vmt
    from vmt.__main__ import main

    package = Path(vmt.__file__).parent
    paths: dict[str, str | None] = {}
    entered: list[str] = []
    importing = 0

    def path_of(file: str) -> str | None:
        """The path of a file below the package; None for other files."""
        if file not in paths:
            paths[file] = Path(file).relative_to(package).as_posix() if package in Path(file).parents else None
        return paths[file]

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal importing
        if event == "c_call" and argument.__name__ == "run_backward":
            sys.setprofile(None)
            raise FirstGradient
        if frame.f_code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not importing and (path := path_of(frame.f_code.co_filename)) is not None:
            entered.extend([path] * (path not in entered[-1:]))

    sys.argv = ["vmt", "train", "mnist-svhn", "--data", str(data), "--out", str(data / "run"), "--net", net]
    sys.argv += ["--batch-size", "8", "--device", "cpu"]
    with contextlib.redirect_stdout(io.StringIO()):
        sys.setprofile(called)
        try:
            main()
        except FirstGradient:
            return list(dict.fromkeys(entered)), len(entered)
        finally:
            sys.setprofile(None)
    raise RuntimeError("the command ended before its first backward pass")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="small", help="the network (default: small, as in the paper)")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    parser.add_argument("--within", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.within is not None:
        files, entered = watched(arguments.within, arguments.net)
        print(json.dumps({"files": files, "entered": entered}))
        return 0
    sys.path.insert(0, str(HERE.parent))
    from tests.benchmark_files import write_mnist, write_svhn

    with tempfile.TemporaryDirectory() as folder:
        write_mnist(Path(folder))
        write_svhn(Path(folder))
        command = [sys.executable, __file__, "--within", folder, "--net", arguments.net]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ, cwd=folder)
    found = json.loads(done.stdout.splitlines()[-1])
    if arguments.json:
        print(json.dumps(found))
        return 0
    for place, name in enumerate(found["files"], 1):
        print(f"{place:3}  {name}")
    count, entered = len(found["files"]), found["entered"]
    print(f"{count} files before the first backward pass; one is entered from another {entered} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
