"""How quickly a command gets to its work: torch is imported for work alone, and Ctrl-C is heard from the beginning."""

import argparse
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from vmt.cli.parsers import bench
from vmt.cli.parsers import predict as predict_flags

import vmt
from vmt import names
from vmt.cli import paper_figure, predict
from vmt.cli.main import build_parser
from vmt.engine import ENGINES
from vmt.engine.bench import WIDTHS
from vmt.paper.tables import TABLES

# Prints what the command imported of these, whatever it ended with.
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


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["trian"], ["train", "--itrations", "5"], ["train", "--batch-size", "many"], *helps()],
    ids=" ".join,
)
def test_help_and_refusals_need_no_torch(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if arguments[-1] in ("--help", "--version") else 2)
    assert done.stderr.splitlines()[-1] == "imported:"


@pytest.mark.parametrize("when", ["argparse", "torch.version"])
def test_ctrl_c_during_imports(when: str) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "vmt", "methods"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:  # one for each module, as it has been imported
            if line.split("|")[-1].strip() == when:
                break
        else:
            pytest.fail(f"{when} was not imported")
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.splitlines()[-1] == "vmt: interrupted."
    assert "Traceback" not in rest


def test_every_command_finds_its_work() -> None:
    works = [parser.get_default("run") for parser in parsers(build_parser())]
    assert sum(callable(work.load()) for work in works if work is not None) == 18


@pytest.mark.parametrize(
    ("known", "code"),
    [
        (names.TABLES, TABLES),
        (names.FIGURES, paper_figure.SAMPLES),
        (predict_flags.FORMATS, predict.WRITERS),
        (bench.NETS, WIDTHS),
        (("auto", *bench.ENGINES), ENGINES),
    ],
)
def test_names_are_those_of_the_code(known: tuple[str, ...], code: object) -> None:
    assert known == tuple(code)  # type: ignore[call-overload]


def test_the_package_shows_what_it_has() -> None:
    """Though it imports most of it when it is asked for."""
    assert set(vmt.__all__) <= set(dir(vmt))
    for name in vmt.__all__:
        assert getattr(vmt, name) is not None
    probe = "import sys, vmt; assert 'torch' not in sys.modules; vmt.data.load_task, vmt.train.train, vmt.nets.cnn; "
    probe += "vmt.adapt, vmt.load, vmt.export, vmt.validators; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    others = {"torchvision", "timm", "sklearn", "matplotlib", "onnx", "pandas"}
    assert not others & set(done.stdout.split()), "not before they are used"
    with pytest.raises(AttributeError, match="has no attribute 'adopt'"):
        _ = vmt.adopt
