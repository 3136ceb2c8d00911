"""``vmt.map_runs`` on this machine, and runs that are kept under a URL of fsspec."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from safetensors.torch import load_file

import vmt
from tests.many.runs_of_vectors import CHECKPOINT_EVERY, ITERATIONS, Steps, StopsAt, arguments, broken_network, trained
from vmt.errors import InputError
from vmt.many.map_runs import MappedRun, digest_of
from vmt.many.storage import Storage
from vmt.train.checkpoint import MANIFEST

pytestmark = pytest.mark.usefixtures("one_thread")
posix = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")


def mapped(runs: list[dict[str, Any]], out: str | Path, **how: Any) -> list[MappedRun]:
    return vmt.map_runs(runs, out=out, progress=False, **how)


def test_runs_that_fail_do_not_hold_up_the_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    runs = [arguments(seed=1, out="first"), arguments(net="nonsense"), arguments(net=broken_network), arguments(seed=2)]
    first, unknown, broken, last = mapped(runs, tmp_path)
    assert [run.name for run in (first, unknown, broken, last)] == ["first", "0001", "0002", "0003"]
    assert (first.problem, last.problem) == (None, None)
    assert first.summary is not None
    assert (first.summary["seed"], first.summary["finished"]) == (1, True)
    assert unknown.summary is None
    assert "'nonsense'" in str(unknown.problem)
    assert "KeyError" in str(broken.problem)
    assert not list((tmp_path / "first" / "checkpoints").iterdir())
    assert first.model().predict(arguments()["target"]).shape == (30,)
    with pytest.raises(InputError, match="'nonsense'"):
        unknown.model()
    assert capfd.readouterr() == ("", ""), "progress=False prints nothing"


@posix
def test_the_same_call_resumes_and_does_not_repeat(tmp_path: Path) -> None:
    def runs() -> list[dict[str, Any]]:
        follow = (Steps(tmp_path / "steps"), StopsAt(CHECKPOINT_EVERY + 1, tmp_path / "mark"))
        return [arguments(callbacks=follow), arguments(seed=1)]

    with pytest.raises(KeyboardInterrupt):
        mapped(runs(), tmp_path / "runs")
    assert [run.problem for run in mapped(runs(), tmp_path / "runs")] == [None, None]
    assert len(mapped(runs(), tmp_path / "runs")) == 2
    before, after = trained(tmp_path / "steps")
    assert before + after == list(range(1, ITERATIONS + 1)), "every iteration once"
    alone = vmt.adapt(**arguments(), out=tmp_path / "alone", progress=False)
    assert alone.about["step"] == ITERATIONS
    assert same_model(tmp_path / "runs" / "0000", tmp_path / "alone")


def same_model(one: Path, other: Path) -> bool:
    a, b = (load_file(folder / "model.safetensors") for folder in (one, other))
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


def test_worker_processes_give_the_same_models(tmp_path: Path) -> None:
    runs = [arguments(seed=seed) for seed in range(2)] + [arguments(net="nonsense")]
    done = mapped(runs, tmp_path / "workers", at_once=2)
    mapped(runs[:2], tmp_path / "here")
    assert [run.problem is None for run in done] == [True, True, False]
    for name in ("0000", "0001"):
        assert same_model(tmp_path / "workers" / name, tmp_path / "here" / name)


@pytest.mark.parametrize(
    ("runs", "how", "named"),
    [
        ([arguments(resume=True)], {}, "resume"),
        ([arguments(out="a/b")], {}, "a/b"),
        ([arguments(out="a"), arguments(out="a")], {}, "'a'"),
        ([{"source": 1}], {}, "target"),
        (["vmt"], {}, "str"),
        ([arguments()], {"on": "spark"}, "spark"),
        ([arguments()], {"gpus_per_run": 0.5}, "gpus-per-run"),
        ([arguments()], {"on": "ray", "gpus_per_run": 2}, "gpus-per-run"),
        ([arguments()], {"at_once": 0}, "at_once"),
        ([arguments(net=lambda: None)], {"at_once": 2}, "at_once"),
        ([arguments()], {"out": "nonsense://runs"}, "nonsense"),
        ([arguments()], {"out": "memory://runs", "at_once": 2}, "memory"),
        ([arguments(method="auto")], {"out": "memory://runs"}, "auto"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_before_anything_runs(
    tmp_path: Path, runs: list[Any], how: dict[str, Any], named: str
) -> None:
    with pytest.raises(InputError, match=named):
        mapped(runs, **{"out": tmp_path / "out", **how})
    assert not list(tmp_path.glob("out/*"))


def test_other_arguments_are_not_mistaken_for_the_same_run(tmp_path: Path) -> None:
    assert mapped([arguments(net="nonsense")], tmp_path)[0].problem is not None
    assert mapped([arguments()], tmp_path)[0].problem is None, "a run that was refused can be corrected"
    for other in (arguments(seed=1), arguments(target=arguments()["target"] + 1), arguments(net=broken_network)):
        with pytest.raises(InputError, match="0000"):
            mapped([other], tmp_path)
    assert mapped([arguments(), arguments(seed=1)], tmp_path)[1].problem is None


def test_the_digest_of_arguments_is_the_same_in_every_process() -> None:
    given = arguments(net=broken_network, callbacks=(Steps(Path("a")),))
    probe = (
        "from tests.many.runs_of_vectors import *; from pathlib import Path; from vmt.many.map_runs import digest_of; "
        "print(digest_of(arguments(net=broken_network, callbacks=(Steps(Path('a')),))))"
    )
    done = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    assert digest_of(given) == done.stdout.strip()
    assert digest_of(given) != digest_of({**given, "seed": 1})


# --- Runs under a URL ---


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a storage; local copies are in ``tmp_path/cache``."""
    monkeypatch.setenv("VMT_CACHE", str(tmp_path / "cache"))
    yield (tmp_path / "far").as_uri() if request.param == "file" else "memory://far"
    if request.param == "memory":
        files = fsspec.filesystem("memory")
        if files.exists("/far"):
            files.rm("/far", recursive=True)


@posix
def test_a_run_under_a_url_is_resumed_from_its_checkpoint_there(url: str, tmp_path: Path) -> None:
    steps = tmp_path / "steps"

    def runs() -> list[dict[str, Any]]:
        return [arguments(callbacks=(Steps(steps), StopsAt(CHECKPOINT_EVERY + 1, tmp_path / "mark")))]

    with pytest.raises(KeyboardInterrupt):
        mapped(runs(), url)
    assert not local_runs(tmp_path), "the local copy is removed once the storage has everything"
    files = Storage(url).names_of("0000")
    assert {"run.json", "log.jsonl", f"checkpoints/step-{CHECKPOINT_EVERY:09d}/{MANIFEST}"} <= set(files)
    assert "summary.json" not in files
    (done,) = mapped(runs(), url)
    assert done.problem is None
    before, after = trained(steps)
    assert before + after == list(range(1, ITERATIONS + 1))
    alone = vmt.adapt(**arguments(), progress=False)
    x = arguments()["target"]
    assert (done.model().predict_proba(x) == alone.predict_proba(x)).all()
    left = Storage(url).names_of("0000")
    assert {"model.safetensors", "summary.json"} <= set(left)
    assert not [name for name in left if name.startswith("checkpoints")]
    (again,) = mapped(runs(), url)
    assert again.summary == done.summary
    assert len(trained(steps)) == 2, "a finished run is not repeated"


def local_runs(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_checkpoint_that_was_sent_in_part_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the process had been killed while it sent the second checkpoint."""
    monkeypatch.setenv("VMT_CACHE", str(tmp_path / "cache"))
    steps, far = tmp_path / "steps", tmp_path / "far"
    runs = [arguments(callbacks=(Steps(steps), StopsAt(CHECKPOINT_EVERY + 1, tmp_path / "mark")))]
    with pytest.raises(KeyboardInterrupt):
        mapped(runs, far.as_uri())
    newest = sorted((far / "0000" / "checkpoints").iterdir())[-1]
    assert newest.name == f"step-{CHECKPOINT_EVERY + 1:09d}"
    (newest / MANIFEST).unlink()
    (newest / "weights.safetensors").write_bytes(b"half")
    mapped(runs, far.as_uri())
    assert trained(steps)[1][0] == CHECKPOINT_EVERY + 1, "it continues from the checkpoint before"
    log = [json.loads(line) for line in (far / "0000" / "log.jsonl").read_text().splitlines()]
    losses = [record["step"] for record in log if "target" not in record]
    assert losses == list(range(1, ITERATIONS + 1))
