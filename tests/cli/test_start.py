"""Starting a command: PyTorch is imported only when it is needed, and Ctrl-C works from the beginning."""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vmt
from vmt.cli.main import build_parser

# Prints which of these packages a command imported, however it ended.
PROBE = """
import sys
from vmt.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print("imported:", *({"torch", "numpy", "scipy", "sklearn", "matplotlib"} & set(sys.modules)), file=sys.stderr)
"""


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and all below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


def helps() -> Iterator[list[str]]:
    return ([*parser.prog.split()[1:], "--help"] for parser in parsers(build_parser()))


WRONG = [["trian"], ["train", "--itrations", "5"], ["train", "--batch-size", "many"]]
LISTS = [["methods"], ["methods", "--json"], ["tasks"], ["paper", "list"]]


@pytest.mark.parametrize("arguments", [["--version"], *WRONG, *LISTS, *helps()], ids=" ".join)
def test_help_lists_and_refusals_need_no_torch(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if arguments in WRONG else 0)
    assert done.stderr.splitlines()[-1] == "imported:"


@pytest.mark.parametrize("command", [["demo"], ["train", "digits"], ["report", "run"]])
def test_the_first_line_comes_before_torch_is_imported(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import sys; sys.exit('torch')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "vmt", *command],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    first, last = done.stderr.splitlines()
    assert first.startswith(f"vmt {command[0]}: ")
    assert last == "torch"


INTERRUPTED_AT = """
import os, runpy, signal, sys

# A shell that starts the tests in the background lets them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
when, sys.argv = sys.argv[1], ["vmt", "train", "digits"]

class Interrupt:
    def find_spec(name, *_):
        if name == when:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
runpy.run_module("vmt", run_name="__main__")
"""


@pytest.mark.parametrize("when", ["argparse", "torch.version"])
def test_ctrl_c_during_imports(when: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_AT, when]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.splitlines()[-1] == "vmt: interrupted."
    assert "Traceback" not in done.stderr


def test_a_validator_finds_its_function() -> None:
    assert all(callable(validator.score) for validator in vmt.validators.VALIDATORS.values())


def test_the_package_shows_what_it_has() -> None:
    """Although most of it is imported when it is first used."""
    assert set(vmt.__all__) <= set(dir(vmt))
    for name in vmt.__all__:
        assert getattr(vmt, name) is not None
    probe = "import sys, vmt; assert 'torch' not in sys.modules; vmt.data.load_task, vmt.train.train, vmt.nets.cnn; "
    probe += "vmt.adapt, vmt.load, vmt.export, vmt.validators; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    others = {"torchvision", "timm", "scipy", "sklearn", "matplotlib", "onnx", "pandas", "optuna", "ray"}
    assert not others & set(done.stdout.split()), "not before they are used"
    with pytest.raises(AttributeError, match="has no attribute 'adopt'"):
        _ = vmt.adopt
