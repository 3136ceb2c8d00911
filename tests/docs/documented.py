"""The commands and Python blocks of the pages, and a folder with the files that they use."""

import contextlib
import io
import re
import shlex
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from tests import benchmark_files as files
from tests import own_pictures as pictures
from tests.paper_runs import write_runs
from vmt.cli.main import build_parser, main
from vmt.data import Domain, Task, load_task
from vmt.paper.figures import SYSTEMS_OVER_TIME, systems_of_tsne

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
PROGRAMS = ("vmt", "make", "python", "pip", "tensorboard")
NETS = """from torch import nn


def make(classes, shape):
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(20), nn.ReLU(), nn.Dropout(), nn.Linear(20, classes))


def features():
    frozen = nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.Flatten())
    frozen.size = 12
    return frozen
"""
# Every line of such a block is a command. In a `console` block, a command begins with `$ `, and the rest is its output.
SHELL = "sh"


@dataclass(frozen=True)
class Command:
    text: str
    page: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def fences(page: Path) -> Iterator[tuple[str, str]]:
    """The language and the content of every block of a page."""
    for _, language, body in FENCE.findall(page.read_text()):
        yield language, textwrap.dedent(body)


def blocks(page: Path, *languages: str) -> list[str]:
    return [body for language, body in fences(page) if language in languages]


def commands_of(page: Path) -> Iterator[str]:
    """The commands in the blocks of a page, without prompts and comments."""
    for language, body in fences(page):
        for line in body.replace("\\\n", " ").splitlines():
            if language == "console":
                if line.startswith("$ "):
                    yield bare(line[2:])
                continue
            if language == SHELL and line.strip() and not line.startswith("#"):
                yield bare(line)


def bare(line: str) -> str:
    """A command without its comment and with single spaces."""
    return " ".join(re.split(r"\s#\s", line)[0].split())


def mentions() -> list[Command]:
    """The commands that running text mentions."""
    found: dict[str, Command] = {}
    for page in PAGES:
        prose = FENCE.sub("", page.read_text())
        for text in re.findall(rf"`((?:{'|'.join(PROGRAMS)}) [^`]*)`", prose):
            found.setdefault(text, Command(" ".join(text.split()), str(page.relative_to(ROOT))))
    return list(found.values())


def is_whole(command: Command) -> bool:
    """Whether a command in running text is complete: it has all arguments that it needs, and no placeholder."""
    program, *arguments = shlex.split(command.text)
    if program != "vmt":
        return True
    if len(arguments) < 2 or re.search(r"\b(?!DATA)[A-Z_]+\b|…", command.text):
        return False
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            build_parser().parse_args(arguments)
    except SystemExit:
        return False
    return len(arguments) > len([word for word in arguments if word.isalpha()])


def all_commands() -> list[Command]:
    """Each command once, with the first page that has it."""
    found: dict[str, Command] = {}
    for page in PAGES:
        for text in commands_of(page):
            found.setdefault(text, Command(text, str(page.relative_to(ROOT))))
    for command in mentions():
        if is_whole(command):
            found.setdefault(command.text, command)
    return list(found.values())


@cache
def small_digits() -> Task:
    """The embedded task with a few of its samples."""
    task = load_task("digits")
    assert task.source_test is not None
    assert task.target_test is not None

    def few(domain: Domain) -> Domain:
        return domain.subset(torch.arange(60) * len(domain) // 60)

    return replace(
        task,
        source=few(task.source),
        source_test=few(task.source_test),
        target=few(task.target),
        target_test=few(task.target_test),
    )


def small_task(name: str, data: Path | None = None) -> Task:
    return small_digits() if name == "digits" else load_task(name, data)


def run(*arguments: object) -> None:
    assert main([str(argument) for argument in arguments]) == 0


def prepare(folder: Path) -> Path:
    """Write small files and make small runs under the names that the pages use."""
    write_files(folder)
    shutil.copy(ROOT / "results" / "validators.jsonl", folder)
    short = ("--iterations", 2, "--batch-size", 4, "--log-every", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("vmt.data.tasks.load_task", small_task)
        own = ("--source", "labelled/", "--target", "unlabelled/", "--keep-best", "im", "--tensorboard")
        run("train", *own, "--out", "runs/mine", *short)
        run(
            "train", "--source", "table.csv", "--target", "big.csv", "--label", "species", "--out", "runs/table", *short
        )
        run("train", "mnist-svhn", "--data", "DATA", "--out", "runs/m2s", "--net", "tiny", *short)
        run("train", "digits", "--out", "runs/demo/vmt", *short)
        run("export", "runs/mine")
        frozen = ("--features", "mine.nets:features")
        run("train", "--source", "labelled/", "--target", "unlabelled/", *frozen, "--out", "runs/photos", *short)
        run("export", "runs/photos", *frozen, "--out", "photos.onnx")
        run("data", "build", "syn", "--data", "DATA", "--count", 100, "--test-count", 10, "--workers", 1)
        drawn = [*systems_of_tsne(instance_norm=False), *systems_of_tsne(instance_norm=True), *SYSTEMS_OVER_TIME]
        write_runs(drawn, Path("DATA"), Path("runs/paper"), Path("results"))
    runs = folder / "runs"
    for name in ("a", "b", "c", "d", "firm", "lower", "mine-0", "mine-1", "search"):
        shutil.copytree(runs / "mine", runs / name)
    shutil.copy(runs / "m2s" / "model.safetensors", folder)
    shutil.copy(runs / "table" / "model.safetensors", folder / "table.safetensors")
    shutil.copy(runs / "mine" / "model.onnx", folder)
    shutil.copy(runs / "mine" / "model.onnx", folder / "mine.onnx")
    return folder


def write_files(folder: Path) -> None:
    data = folder / "DATA"
    for write in (files.write_mnist, files.write_svhn, files.write_cifar10, files.write_stl10, files.write_usps):
        write(data)
    files.write_syn(data)
    files.write_photographs(data)
    for name in ("labelled", "labelled-target", "checked", "held-out", "a"):
        pictures.class_folders(folder / name)
    for name in ("unlabelled", "b"):
        pictures.unlabelled_folder(folder / name)
    for name in ("folder", "new-pictures"):
        pictures.unlabelled_folder(folder / name, count=5)
    for name in ("picture.png", "seven.png", "three.jpg", "photo.jpg"):
        pictures.save(folder / name, pictures.picture(0))
    (folder / "list.csv").write_text("path\npicture.png\nphoto.jpg\n")
    colour, y = files.images(40, 32, 32, 3), files.labels(40)
    for name in ("images", "more", "mine"):
        np.savez(folder / f"{name}.npz", x=colour)
    np.savez(folder / "labelled.npz", x=colour, y=y)
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        np.savez(folder / f"{name}.npz", x=random.normal(size=(40, 5)).astype(np.float32), y=np.arange(40) % 2)
    domains = ("photo", "art_painting", "cartoon", "sketch")
    features = {f"{name}_x": random.normal(size=(40, 5)).astype(np.float16) for name in domains}
    np.savez(folder / "pacs.npz", **features, **{f"{name}_y": np.arange(40) % 7 for name in domains})  # type: ignore[arg-type]
    (folder / "mine").mkdir()
    (folder / "mine" / "nets.py").write_text(NETS)
    (folder / "ranges.json").write_text('{"lambda_t": {"low": 0.01, "high": 1, "log": true}}')
    columns = [f"c{i}" for i in range(8)]
    rows = [[f"{value:.3f}" for value in row] for row in random.normal(size=(40, 8))]
    write_csv(folder / "table.csv", [*columns, "species"], [[*row, "ab"[i % 2]] for i, row in enumerate(rows)])
    write_csv(folder / "big.csv", ["id", *columns], [[str(i), *row] for i, row in enumerate(rows)])
    (folder / "fonts").mkdir()
    shutil.copy(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", folder / "fonts")


def write_csv(path: Path, header: list[str], rows: list[list[str]]) -> None:
    path.write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
