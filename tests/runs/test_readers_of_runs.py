"""Every way to make the folder of a run, with every command that reads one.

A command either does its work and leaves the folder as it was, or refuses the folder in one sentence.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmt
from tests.own_data import write_blobs
from tests.own_pictures import CLASSES, class_folders
from vmt.cli.main import main
from vmt.runs.folder import LOCK, MODEL, RUN, SUMMARY
from vmt.train.checkpoint import CHECKPOINTS

SAMPLES, EACH = 60, 6
SHORT = ("--batch-size", 16, "--device", "cpu")
IN_PYTHON = {"batch_size": 16, "device": "cpu", "progress": False}
OWN_FEATURES = ("--features", "tests.user_modules:frozen")
OWN_NET = ("--net", "tests.user_modules:still")


def command(*arguments: object) -> int:
    return main([str(each) for each in arguments])


def train(data: Path, out: Path, *flags: object, labelled: bool = True) -> Path:
    """A run on vectors; with ``labelled``, its target has a labelled test set."""
    files = ["--source", data / "source.npz", "--target", data / "target.npz"]
    files += ["--target-test", data / "test.npz"] if labelled else []
    assert command("train", *files, *SHORT, *flags, "--out", out) == 0
    return out


def train_on_pictures(data: Path, out: Path, *flags: object) -> Path:
    files = ("--source", data / "pictures", "--target", data / "new pictures")
    assert command("train", *files, *OWN_FEATURES, *SHORT, *flags, "--out", out) == 0
    return out


def train_from_a_model(data: Path, out: Path) -> Path:
    start = train(data, data / "start", "--method", "source_only", "--iterations", 4)
    files = ("--from", start, "--target", data / "target.npz", "--target-test", data / "test.npz")
    assert command("train", *files, *SHORT, "--iterations", 4, "--out", out) == 0
    return out


def search(data: Path, out: Path) -> Path:
    files = ("--source", data / "source.npz", "--target", data / "target.npz", "--target-test", data / "test.npz")
    flags = ("--method", "mcc", "--iterations", 4, "--trials", 2, *SHORT)
    assert command("search", *files, *flags, "--out", out) == 0
    return out


def arrays(data: Path) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    with np.load(data / "source.npz") as source, np.load(data / "target.npz") as target:
        return (source["x"], source["y"]), target["x"]


def adapt(data: Path, out: Path, method: "str | vmt.methods.nouns.Method", iterations: int | None = None) -> Path:
    vmt.adapt(*arrays(data), method, iterations=iterations, out=out, **IN_PYTHON)
    return out


def adapt_files(data: Path, out: Path, **settings: Any) -> Path:
    vmt.adapt(data / "source.npz", data / "target.npz", "mcc", iterations=4, out=out, **settings, **IN_PYTHON)
    return out


def search_arrays(data: Path, out: Path) -> Path:
    vmt.search(*arrays(data), "mcc", trials=2, iterations=4, out=out, **IN_PYTHON)
    return out


def save_classifier(data: Path, out: Path) -> Path:
    """The estimator of scikit-learn records no run; its model is a file."""
    (x, y), target = arrays(data)
    classifier = vmt.VMTClassifier(method="mcc", iterations=4, batch_size=16, device="cpu").fit(x, y, X_target=target)
    classifier.model_.save(out.with_suffix(".safetensors"))
    return out.with_suffix(".safetensors")


def interrupted(data: Path, out: Path) -> Path:
    """A run that has not ended: it has checkpoints, and no model yet."""
    train(data, out, "--method", "mcc", "--iterations", 4)
    for name in (MODEL, SUMMARY):
        (out / name).unlink()
    shutil.rmtree(sorted((out / CHECKPOINTS).iterdir())[-1])
    return out


def several(data: Path, out: Path) -> Path:
    train(data, out / "one", "--method", "mcc", "--iterations", 4)
    train(data, out / "auto", "--method", "auto", "--iterations", 2)
    adapt(data, out / "in Python", "mcc", 4)
    return out


MADE_BY: dict[str, Callable[[Path, Path], Path]] = {
    "train": lambda data, out: train(data, out, "--method", "vmt", "--dirt-t", "--iterations", 4),
    "train auto": lambda data, out: train(data, out, "--method", "auto", "--iterations", 2),
    "train --features": lambda data, out: train_on_pictures(data, out, "--method", "mcc", "--iterations", 4),
    "train auto --features": lambda data, out: train_on_pictures(data, out, "--method", "auto", "--iterations", 2),
    "train --net": lambda data, out: train(
        data, out, *OWN_NET, "--method", "source_only", "--iterations", 4, labelled=False
    ),
    "train --from": train_from_a_model,
    "search": search,
    "adapt": lambda data, out: adapt(data, out, "mcc", 4),
    "adapt auto": lambda data, out: adapt(data, out, "auto", 2),
    "adapt a Method": lambda data, out: adapt(data, out, vmt.methods.mcc(iterations=4)),
    "adapt files": adapt_files,
    "adapt a schedule": lambda data, out: adapt_files(data, out, lambda_mcc=vmt.methods.nouns.WarmUp(0.1, 0.5)),
    "vmt.search": search_arrays,
    "VMTClassifier": save_classifier,
    "interrupted": interrupted,
    "several": several,
}

NAMED_AGAIN = {
    "train --features": OWN_FEATURES,
    "train auto --features": OWN_FEATURES,
    "train --net": OWN_NET,
}
"""Functions of the user are only imported if the user names them again."""

READERS = (
    "report", "report --json", "select", "select --json", "evaluate", "evaluate --test", "predict", "export",
    "train --resume", "train --from",
)  # fmt: skip

A_MODEL = dict.fromkeys(("evaluate", "evaluate --test", "predict", "export", "train --from"), "model")
REFUSED = {
    "train --net": {"evaluate": "--test"},
    # The validator by default needs the source, which such a run has not.
    "train --from": dict.fromkeys(("select", "select --json"), "--by"),
    "search": {"train --resume": "vmt search"},
    "adapt": {"evaluate": "--test", "train --resume": "vmt.adapt"},
    "adapt auto": {"evaluate": "--test", "train --resume": "vmt.adapt"},
    "adapt a Method": {"evaluate": "--test", "train --resume": "vmt.adapt"},
    "adapt files": {"evaluate": "--test"},
    "adapt a schedule": {"evaluate": "--test", "train --resume": "lambda_mcc"},
    "vmt.search": {"evaluate": "--test", "train --resume": "vmt.search"},
    "VMTClassifier": {
        **dict.fromkeys(("report", "report --json", "select", "select --json", "train --resume"), RUN),
        "evaluate": "--test",
    },
    "interrupted": dict.fromkeys(A_MODEL, "--resume"),
    "several": {**A_MODEL, "train --resume": RUN},
}
"""The combinations without a meaning, and a word of the sentence that refuses each."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tiny files, and below them the folders of all runs; the features of pictures are cached there."""
    folder = tmp_path_factory.mktemp("seams")
    write_blobs(folder, SAMPLES)
    class_folders(folder / "pictures", EACH)
    class_folders(folder / "new pictures", EACH, shade=500)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VMT_CACHE", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="module")
def made(data: Path) -> Callable[[str], Path]:
    """A function that returns the folder of a name in ``MADE_BY``, which it makes when it is first asked for."""
    folders: dict[str, Path] = {}

    def of(name: str) -> Path:
        if name not in folders:
            folders[name] = MADE_BY[name](data, data / "runs" / name)
        return folders[name]

    return of


def words_of(reader: str, run: Path, samples: Path, out: Path, again: tuple[object, ...]) -> list[object]:
    """The command line of a reader; ``again`` names the user's own function."""
    page = ["-o", out / "report.html", "--map", "none", *again]
    words: dict[str, list[object]] = {
        "report": ["report", run, *page],
        "report --json": ["report", run, "--test", samples, "--json", *page],
        "select": ["select", run],
        "select --json": ["select", run, "--all", "--history", "--json"],
        "evaluate": ["evaluate", run, *again],
        "evaluate --test": ["evaluate", run, "--test", samples, "--json", *again],
        "predict": ["predict", run, samples, "--out", out / "predictions.csv", *again],
        "export": ["export", run, "--format", "pt2", "--out", out / "model.pt2", *again],
        "train --resume": ["train", "--resume", run, *again],
        "train --from": [
            "train", "--from", run, "--target", samples, "--iterations", 2, *SHORT, "--out", out / "refined", *again,
        ],
    }  # fmt: skip
    return words[reader]


def contents(path: Path) -> dict[Path, bytes]:
    files = path.rglob("*") if path.is_dir() else [path]
    return {file: file.read_bytes() for file in files if file.is_file() and file.name != LOCK}


def check_done(reader: str, run: Path, out: Path, printed: str, samples: int) -> None:
    """What a command that succeeds leaves behind."""
    if reader.endswith("--json") or reader == "evaluate --test":
        found = json.loads(printed.strip().splitlines()[-1])
        assert found.get("samples", samples) == samples
    if reader.startswith("report"):
        assert (out / "report.html").stat().st_size > 10_000
    if reader == "predict":
        assert len((out / "predictions.csv").read_text().splitlines()) == 1 + samples
    if reader == "export":
        assert (out / "model.pt2").is_file()
    if reader == "train --resume":
        assert (run / MODEL).is_file()
    if reader == "train --from":
        assert (out / "refined" / MODEL).is_file()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("maker", MADE_BY)
def test_every_command_reads_the_folder_or_refuses_it_in_one_sentence(
    maker: str,
    reader: str,
    made: Callable[[str], Path],
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, again = made(maker), NAMED_AGAIN.get(maker, ())
    on_pictures = again == OWN_FEATURES
    samples = data / ("new pictures" if on_pictures else "test.npz")
    if reader == "train --resume" and run.is_dir():  # the one reader that writes to the folder
        run = shutil.copytree(run, tmp_path / "copy")
    before = contents(run)
    capsys.readouterr()
    code = command(*words_of(reader, run, samples, tmp_path, again))
    printed = capsys.readouterr()
    refused = REFUSED.get(maker, {}).get(reader)
    if refused is not None:
        lines = printed.err.strip().splitlines()
        assert (code, len(lines)) == (2, 1), printed.err
        assert refused in lines[0]
    else:
        assert code == 0, printed.err
        check_done(reader, run, tmp_path, printed.out, EACH * len(CLASSES) if on_pictures else SAMPLES)
    if reader != "train --resume" or refused is not None:
        assert contents(run) == before


@pytest.mark.parametrize(("maker", "remedy"), [("vmt.search", "vmt.search"), ("adapt auto", "method='auto'")])
def test_a_single_run_is_not_resumed_in_the_folder_of_several(
    maker: str, remedy: str, made: Callable[[str], Path], data: Path
) -> None:
    with pytest.raises(vmt.InputError, match=remedy):
        vmt.adapt(*arrays(data), "mcc", iterations=4, out=made(maker), resume=True, **IN_PYTHON)


def test_a_file_is_no_folder_for_a_run_or_a_search(made: Callable[[str], Path], data: Path) -> None:
    file = made("VMTClassifier")
    before = file.read_bytes()
    for make in (adapt_files, search_arrays):
        with pytest.raises(vmt.InputError, match="is a file"):
            make(data, file)
    assert file.read_bytes() == before
