"""Every command on the pages runs: on small data, with few iterations, in this process.

A command without a rule fails, and so does a rule that no command needs.
"""

import argparse
import functools
import glob
import hashlib
import io
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sklearn.manifold import TSNE
from torch.distributed.run import get_args_parser as launcher

from tests.docs.documented import PROGRAMS, ROOT, Command, all_commands, mentions, prepare, small_task
from tests.file_server import Behaviour, serving
from tests.fuzz.__main__ import build_parser as fuzz_parser
from tests.step.test_golden import VMT
from vmt.cli import data as data_command
from vmt.cli.main import build_parser, main
from vmt.data.fetch import Remote


@dataclass(frozen=True)
class Rule:
    """How commands that begin with a pattern are made fast."""

    pattern: str
    more: str = ""
    """Flags that are added behind those of the page; the last flag of a name counts."""
    swap: tuple[str, str] | None = None
    """A name on the page, and the name that the folder of the tests has for it."""
    instead: Callable[[Command], None] | None = None
    """A check that replaces running the command."""
    why: str = ""
    """Why the command is not run."""


def make_knows(command: Command) -> None:
    """A dry run of `make` fails for an unknown target."""
    done = subprocess.run(
        [*shlex.split(command.text), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def fuzzes(command: Command) -> None:
    """The command has these flags."""
    fuzz_parser().parse_args(shlex.split(command.text)[3:])


def has_these_flags(command: Command) -> None:
    build_parser().parse_args(shlex.split(command.text)[1:])


def installable(command: Command) -> None:
    """The command installs this package, with extras that it has, or one of its dependencies."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *(name for extra in extras.values() for name in extra)]
    known = {re.split(r"[<>=\[]", name)[0] for name in needed}
    for wanted in shlex.split(command.text)[2:]:
        name, _, named = wanted.rstrip("]").partition("[")
        assert name in {".", "-e", "vmt", *known}, f"{wanted} is not a dependency of this package"
        if name in {".", "-e", "vmt"}:
            assert set(filter(None, named.split(","))) <= extras.keys(), f"{wanted}: there is no such extra"


def names_recording(command: Command) -> None:
    assert (ROOT / shlex.split(command.text)[-1]).samefile(VMT)


def has_its_flags(command: Command) -> None:
    """The script has these flags."""
    _, script, *words = shlex.split(command.text)
    text = (ROOT / script).read_text()
    assert all(f'"{word}"' in text for word in words if word.startswith("--"))


def serves(command: Command) -> None:
    """The server starts on this machine and serves its page."""
    program, *arguments = shlex.split(command.text)
    script = Path(sys.executable).with_name(program)
    with subprocess.Popen(
        [script, *arguments, "--host=localhost", "--port=0"], stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            output = next((line for line in server.stderr if "http://" in line), "")
            address = re.search(r"http://localhost:\d+/", output)
            assert address, output
            with urllib.request.urlopen(address[0], timeout=60) as answer:
                assert "TensorBoard" in answer.read().decode()
        finally:
            server.kill()


def as_a_module(command: Command) -> None:
    told = subprocess.run(
        [sys.executable, *shlex.split(command.text)[1:], "--version"], capture_output=True, check=True
    )
    assert told.stdout.startswith(b"vmt ")


def launches(command: Command) -> None:
    """torchrun and the command that it starts have these flags."""
    started = launcher().parse_args(shlex.split(command.text)[1:])
    if started.module:
        assert started.training_script == "vmt"
        build_parser().parse_args(started.training_script_args)
    else:
        assert (ROOT / started.training_script).exists()


def is_shown(command: Command) -> None:
    """The page shows what is in the script."""
    assert "vmt.map_runs(" in (ROOT / command.page).read_text()


SHORT = "--iterations 2 --batch-size 4 --log-every 1 --device cpu"
DIRT_T = "--dirt-t-iterations 2 --interval 1"
SYN = "--count 100 --test-count 10 --workers 1"
# In place of a network of timm, whose weights would be downloaded.
FROZEN = "--features mine.nets:features"
RULES = (
    Rule(r"vmt train .*--features", f"{SHORT} {FROZEN}"),
    Rule(
        r"vmt train .*--net timm",
        instead=has_these_flags,
        why="its weights would be downloaded; tests/nets/test_pretrained.py trains another pretrained network",
    ),
    Rule(r"vmt export runs/photos", FROZEN),
    Rule(r"vmt demo", "--iterations 2"),
    Rule(r"vmt search .*--clean", instead=has_these_flags, why="tests/runs/test_search.py cleans a search"),
    Rule(r"vmt search", f"{SHORT} --trials 1 --jobs 1"),
    Rule(r"vmt train --resume"),
    Rule(r"vmt train digits --choose-on", f"{SHORT} --choose-on 5"),
    Rule(r"vmt train [a-z]+-[a-z]+ .*--dirt-t", f"{SHORT} {DIRT_T} --net tiny"),
    Rule(r"vmt train [a-z]+-[a-z]+", f"{SHORT} --net tiny"),
    Rule(r"vmt train .*--dirt-t", f"{SHORT} {DIRT_T}"),
    Rule(r"vmt train .*--minutes", "--minutes 0.02 --device cpu"),
    Rule(r"vmt train", SHORT),
    Rule(r"vmt (predict|evaluate) model.safetensors .*table.csv", swap=("model.safetensors", "table.safetensors")),
    Rule(r"vmt (predict|evaluate|export|methods|tasks|select|cache)"),
    Rule(r"vmt report runs/photos", FROZEN),
    Rule(r"vmt report"),
    Rule(r"(find|cut) .* \| vmt predict"),
    Rule(r"vmt data download"),
    Rule(r"vmt data build mnistm"),
    Rule(r"vmt data build syn .*--fonts", SYN, swap=("/usr/share/fonts", "fonts")),
    Rule(r"vmt data build syn", SYN),
    Rule(r"vmt paper run .*--on ray", instead=has_these_flags, why="tests/many/test_ray.py runs a queue on a cluster"),
    Rule(r"vmt paper run .*--budget 60", "--budget 0.0005 --evaluate-every 1"),
    # The others stop before their first run; tests/paper tests what they would run, and in how many processes.
    Rule(r"vmt paper run", "--budget 0 --data DATA --at-once 1"),
    Rule(r"vmt paper figure gradient-norms", "--samples 3 --seeds 0"),
    Rule(r"vmt paper figure", "--samples 3"),
    Rule(r"vmt paper (list|show|pages)"),
    Rule(r"vmt bench", "--device cpu --engines eager --batch-size 2 --precision float32 --iterations 1"),
    # tests/runs/test_search.py kills a process of a smaller search.
    Rule(r"python benchmarks/search\.py", "--tables --runs s"),
    # The folder has a copy of its runs, so none is repeated; tests/validators/test_study.py tests its tables.
    Rule(r"python benchmarks/validators\.py", "--docs nowhere --out validators.jsonl"),
    Rule(
        r"python benchmarks/validators_choice\.py",
        "--tasks wine-gain --seeds 0 --iterations 2 --candidates source_only vmt --jobs 1 --out c.jsonl",
    ),
    Rule(
        r"python benchmarks/own_data\.py --split reporting",
        "--tasks wine-gain --methods svc --seeds 1 --jobs 1 --out o.jsonl",
    ),
    # tests/test_own_data_bench.py tests that results are kept and that its page matches them.
    Rule(r"python benchmarks/own_data\.py", "--tasks iris-offset --methods svc --seeds 1 --jobs 1 --out o.jsonl"),
    Rule(
        r"python benchmarks/(pacs\.py .*--backbone|styled_pictures\.py|pacs_finetune\.py)",
        instead=has_its_flags,
        why="it draws thousands of pictures or reads them with a network that has to be installed",
    ),
    Rule(
        r"python benchmarks/(resnet50|streaming)\.py",
        instead=has_its_flags,
        why="tests/test_benchmarks.py runs them with a small network; the large one takes minutes on a CPU",
    ),
    Rule(
        r"python benchmarks/(deployed|photographs_flow|large_folder)\.py",
        instead=has_its_flags,
        why="tests/test_benchmarks.py tests its parts; it needs PACS and an installed network, or an hour",
    ),
    Rule(
        r"python benchmarks/own_data_(candidates|rules|embedded)\.py",
        instead=has_its_flags,
        why="tests/test_own_data_bench.py runs two of them on one task; on all, they take half an hour",
    ),
    Rule(
        r"python benchmarks/doubts_of_features\.py",
        instead=has_its_flags,
        why="tests/test_benchmarks.py runs it on one task; on all, it takes half an hour",
    ),
    Rule(r"python benchmarks/pacs\.py .*--table", "--page p.md"),
    Rule(r"python benchmarks/pacs\.py", "--pairs photo-sketch --methods logistic --jobs 1 --out p.jsonl"),
    Rule(r"python benchmarks/missing_classes\.py", "--seeds 1 --methods source_only"),
    Rule(r"python benchmarks/seeds\.py", "--seeds 0 --iterations 1 --device cpu"),
    Rule(r"python -m tests\.golden", instead=names_recording, why="tests/step/test_golden.py makes this comparison"),
    Rule(r"python -m tests\.fuzz", instead=fuzzes, why="tests/fuzz/test_fuzz.py reads a few hundred of its files"),
    Rule(r"python many\.py", instead=is_shown, why="tests/docs/test_pages.py runs the script that the page shows"),
    Rule(r"python -m vmt", instead=as_a_module, why="it is the same command as vmt, which the other tests run"),
    Rule(r"torchrun", instead=launches, why="tests/ranks runs it, with less data and fewer processes"),
    Rule(r"make", instead=make_knows, why="it would run these tests again, or build an environment"),
    Rule(r"tensorboard", instead=serves, why="it serves pages until it is stopped"),
    Rule(r"pip install", instead=installable, why="it would change the environment that the tests run in"),
)
COMMANDS = all_commands()


def rule_for(command: Command) -> Rule | None:
    return next((rule for rule in RULES if re.match(rule.pattern + r"(?!\w)", command.text)), None)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(tmp_path_factory.mktemp("pages"))


@pytest.fixture
def folder(prepared: Path, monkeypatch: pytest.MonkeyPatch, own_modules: None) -> Iterator[Path]:
    """The prepared folder as the current one, with the publishers' servers replaced by one on this machine."""
    content = b"a published file"
    checksum = "sha256:" + hashlib.sha256(content).hexdigest()
    monkeypatch.chdir(prepared)
    monkeypatch.setenv("VMT_CACHE", str(prepared / "cache"))  # a command that empties it is among them
    with serving(Behaviour(content)) as address:
        local = {
            name: (Remote(f"{name}/published.bin", (f"{address}/published.bin",), checksum),)
            for name in data_command.SOURCES
        }
        here = functools.partial(data_command.download_sets, sources=local)
        monkeypatch.setattr(data_command, "download_sets", here)
        monkeypatch.setattr("vmt.data.tasks.load_task", small_task)
        monkeypatch.setattr("vmt.engine.bench.BLOCKS_ON_CPU", 2)
        monkeypatch.setattr("vmt.engine.bench.WIDTHS", dict.fromkeys(("small", "large"), (8, 8, 8)))
        monkeypatch.setattr("vmt.runs.recipes.LONGEST", 20)  # for scripts without a flag for iterations
        monkeypatch.setattr("sklearn.manifold.TSNE", lambda **how: TSNE(**{**how, "max_iter": 250}))  # the least
        yield prepared


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_it_runs(command: Command, folder: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = rule_for(command)
    assert rule is not None, f"no rule says how to run this: {command}"
    if rule.instead is not None:
        rule.instead(command)
        return
    text = command.text.replace(*rule.swap) if rule.swap else command.text
    before, stage = stage_of_ours(text)
    if before:
        piped = subprocess.run(before, shell=True, capture_output=True, check=True, cwd=folder).stdout
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
    program, *arguments = shlex.split(stage)
    arguments = [name for word in arguments for name in (sorted(glob.glob(word)) or [word])]
    arguments += shlex.split(rule.more)
    if program == "python":
        run_script(arguments)
        return
    # vmt refuses to overwrite a run or a set that exists.
    if arguments[0] in ("train", "demo", "search") and "--resume" not in arguments:
        arguments += ["--out", f"out/{COMMANDS.index(command)}"]
    if arguments[:3] == ["data", "build", "syn"] and "--out" not in arguments:
        for built in (folder / "DATA" / "syn").glob("recreated_*"):
            built.unlink()
    if arguments[:3] == ["data", "build", "mnistm"]:
        shutil.rmtree(folder / "DATA" / "mnistm", ignore_errors=True)
    if arguments[:2] == ["train", "mnist-mnistm"] and not (folder / "DATA" / "mnistm").exists():
        assert main(["data", "build", "mnistm", "--data", "DATA"]) == 0  # other tests run the command before it
    assert main(arguments) == 0


def run_script(arguments: list[str]) -> None:
    """Run `python FILE …`, where the file is named from the root of the repository."""
    script = ROOT / arguments[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", arguments)
        patch.syspath_prepend(str(script.parent))
        runpy.run_path(str(script), run_name="__main__")


def stage_of_ours(text: str) -> tuple[str, str]:
    """The part of a pipe before our command, and our command. The part after it is left out."""
    stages = text.split(" | ")
    first = next(i for i, stage in enumerate(stages) if stage.split()[0] in PROGRAMS)
    return " | ".join(stages[:first]), stages[first]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.pattern)
def test_every_rule_is_needed(rule: Rule) -> None:
    assert any(rule_for(command) is rule for command in COMMANDS)
    assert bool(rule.instead) == bool(rule.why), "a command that is not run needs a reason"


@pytest.mark.parametrize("mention", mentions(), ids=str)
def test_commands_in_running_text_exist(mention: Command) -> None:
    """Often without all of their arguments, so they are only looked up: the command, and each flag."""
    if not mention.text.startswith("vmt "):
        assert rule_for(mention)
        return
    parser: argparse.ArgumentParser = build_parser()
    words = shlex.split(mention.text)[1:]
    while words and words[0].isalpha() and words[0].islower() and (inner := commands_below(parser)):
        assert words[0] in inner, f"there is no {parser.prog} {words[0]} ({mention})"
        parser = inner[words.pop(0)]
    for word in words:
        if word.startswith("--"):
            assert word in parser._option_string_actions, f"{parser.prog} has no {word} ({mention})"


def commands_below(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next((dict(action.choices) for action in actions), {})
