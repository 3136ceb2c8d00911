"""What users had at commit 364b1c0 still serves: runs go on, models and pickles predict the same, names are there.

The files in ``tests/fixtures/364b1c0`` were made by the code of that commit, as their ``make.py`` says, and so were all
expected values.
"""

import csv
import importlib
import json
import pickle
import shutil
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

import vmt
from vmt.cli.main import main
from vmt.data import read_own

described = importlib.import_module("tests.fixtures.364b1c0.described")  # its name is not an identifier
pytestmark = pytest.mark.filterwarnings("ignore:.* has moved")
MADE: Path = described.HERE
NARROW, OWN_NET = ["--net", "mine.nets:narrow"], ["--net", "mine.nets:make"]


def then(name: str) -> Any:
    return json.loads((MADE / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def expected() -> dict[str, NDArray[Any]]:
    with np.load(MADE / "expected.npz") as file:
        return dict(file)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None, own_modules: None) -> None:
    """A copy of the files as the current folder."""
    monkeypatch.chdir(shutil.copytree(MADE, tmp_path / "made"))


@cache
def rounds_as_then() -> bool:
    return bool(described.machine() == then("machine"))


def same(found: NDArray[Any], expected: NDArray[Any]) -> None:
    """Bit for bit on a machine that computes like the one of then, else up to rounding."""
    if rounds_as_then():
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def records(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(run) / "log.jsonl").read_text().splitlines()]


def mark(run: str) -> None:
    """Put a mark into the first record of a log, which is lost if the run begins again instead of going on."""
    first, *rest = records(run)
    lines = [json.dumps(record) + "\n" for record in ({"mark": 1, **first}, *rest)]
    (Path(run) / "log.jsonl").write_text("".join(lines))


def check_end(run: str, unbroken: str) -> None:
    """A marked run has gone on, to the models and the log of one that nothing stopped."""
    models = sorted(path.name for path in Path(unbroken).glob("model*.safetensors"))
    assert {path.name for path in Path(run).glob("model*.safetensors")} >= set(models)
    for name in models:
        found, wanted = load_file(Path(run) / name), load_file(Path(unbroken) / name)
        assert found.keys() == wanted.keys()
        for key in wanted:
            same(found[key], wanted[key])
    (first, *rest), wanted_records = records(run), records(unbroken)
    assert first.pop("mark") == 1
    for record in rest:  # this validator was added later
        record.get("validators", {}).pop("neighbours", None)
    if rounds_as_then():
        assert [first, *rest] == wanted_records
    else:
        assert list(map(outline, [first, *rest])) == list(map(outline, wanted_records))


def outline(record: dict[str, Any]) -> tuple[Any, ...]:
    return record["step"], record["phase"], sorted(record)


def check_predictions(arguments: list[str], expected: str) -> None:
    """``vmt predict`` writes the table that it wrote then."""
    assert main(["predict", *arguments, "--out", "now.csv"]) == 0
    (header, *found), (wanted_header, *wanted) = (
        list(csv.reader(Path(name).read_text().splitlines())) for name in ("now.csv", expected)
    )
    assert header == wanted_header
    assert [row[:3] for row in found] == [row[:3] for row in wanted]
    same(np.array([row[3:] for row in found], float), np.array([row[3:] for row in wanted], float))


@pytest.mark.parametrize(
    ("stopped", "unbroken", "flags"),
    [("stopped_in_vmt", "narrow", NARROW), ("stopped_in_dirt_t", "own_net", OWN_NET)],
)
def test_a_run_goes_on(here: None, stopped: str, unbroken: str, flags: list[str]) -> None:
    mark(stopped)
    assert main(["train", "--resume", stopped, *flags]) == 0
    check_end(stopped, unbroken)
    check_predictions([stopped, "target.csv", *flags], f"{unbroken}.csv")


def test_a_run_of_adapt_goes_on(here: None, expected: dict[str, NDArray[Any]]) -> None:
    mark("stopped_in_adapt")
    model = described.adapted("stopped_in_adapt", resume=True)
    check_end("stopped_in_adapt", "adapted")
    same(model.predict_proba(read_own("target.csv", like=read_own("source.csv")).domain.x), expected["adapted"])


def test_a_finished_run_is_read(here: None, capsys: pytest.CaptureFixture[str]) -> None:
    check_predictions(["finished", "target.csv"], "finished.csv")
    check_predictions(["own_net", "target.csv", *OWN_NET], "own_net.csv")
    assert main(["evaluate", "finished", "--test", "source.csv"]) == 0
    assert main(["select", "finished", "own_net"]) == 0
    assert main(["report", "finished", "own_net", "--map", "none", *OWN_NET]) == 0
    assert main(["train", "--resume", "own_net", *OWN_NET]) == 0  # it has its checkpoints, and nothing is left to do
    capsys.readouterr()
    assert main(["train", "--resume", "finished"]) == 2
    assert "finished" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "inputs"), [("adapted", "vectors"), ("pictures.safetensors", "pictures")])
def test_a_saved_model_predicts_the_same(here: None, expected: dict[str, NDArray[Any]], name: str, inputs: str) -> None:
    model = vmt.load(name, device="cpu")
    same(model.predict_proba(expected[inputs]), expected[name])
    assert model.predict(expected[inputs]).tolist() == expected[name].argmax(1).tolist()
    assert list(model.classes) == expected[f"classes of {inputs}"].tolist()
    assert model.about["method"].startswith("vmt")


@pytest.mark.parametrize("kind", ["vectors", "pictures"])
def test_an_onnx_file_predicts_the_same(here: None, expected: dict[str, NDArray[Any]], kind: str) -> None:
    file = importlib.import_module("vmt.exported").load_exported(f"{kind}.onnx")
    same(file.predict_proba(expected[kind]), expected[f"{kind}.onnx"])
    assert list(file.classes) == expected[f"classes of {kind}"].tolist()
    inputs = "target.csv" if kind == "vectors" else "pictures.npz"
    check_predictions([f"{kind}.onnx", inputs], f"{kind}.onnx.csv")


@pytest.mark.parametrize("name", ["classifier", "pipeline"])
def test_a_pickled_classifier_predicts_the_same(here: None, expected: dict[str, NDArray[Any]], name: str) -> None:
    classifier = pickle.loads(Path(f"{name}.pickle").read_bytes())
    same(classifier.predict_proba(expected["vectors"]), expected[name])
    assert classifier.predict(expected["vectors"]).tolist() == expected[f"labels of {name}"].tolist()
    assert pickle.loads(pickle.dumps(classifier)).classes_.tolist() == classifier.classes_.tolist()


def test_every_public_name_is_there() -> None:
    """Also when every module has been imported: one that has the name of a function may not take its place."""
    names = then("public_names")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert [path for path in names if not is_there(path, names)] == []
        described.import_everything()
        assert [path for path in names if not is_there(path, names)] == []


def is_there(path: str, names: list[str]) -> bool:
    module, _, name = path.partition(":")
    try:
        found = importlib.import_module(module)
        found = attrgetter(name)(found) if name else found
    except (ImportError, AttributeError):
        return False
    return not isinstance(found, ModuleType) or f"{module}.{name}:" in names or not name


def test_networks_have_the_same_tensors(tmp_path: Path, one_thread: None) -> None:
    assert described.nets(tmp_path) == then("nets")


def test_every_operator_is_there() -> None:
    assert set(then("operators")) - set(described.operators()) == set()


def test_random_numbers_are_drawn_by_the_same_names(one_thread: None) -> None:
    assert described.draws() == then("draws")


def test_every_flag_is_there() -> None:
    # --only takes several patterns now. The default of --at-once means one run at a time, as before; on Ray it means as
    # many as there is room for.
    expected = ["vmt paper run --only", "vmt paper run --at-once"]
    assert list(lost(then("options"), described.options())) == expected


def lost(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """Flags and arguments that are gone or mean something else. New flags and new choices are welcome."""
    for command, known in before.items():
        found = now.get(command, {"arguments": [], "flags": {}})
        for flag, was in known["flags"].items():
            if not keeps(found["flags"].get(flag), was):
                yield f"{command} {flag}"
        if not all(keeps(*pair) for pair in zip_longest(found["arguments"], known["arguments"])):
            yield f"{command}: its arguments"


def keeps(now: dict[str, Any] | None, was: dict[str, Any] | None) -> bool:
    """Whether a flag or an argument has the default that it had, and takes what it took."""
    if now is None or was is None:
        return False
    refused = set(was.get("choices", ())) - set(now.get("choices", was.get("choices", ())))
    return not refused and all(now.get(name) == was.get(name) for name in ("const", "default", "nargs"))
