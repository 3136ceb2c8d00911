"""Callbacks that follow a run, and MLflow through them, read back with MLflow's own client."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import vmt
from tests.own_data import write_blobs
from vmt.cli.main import main
from vmt.runs.folder import read_run
from vmt.runs.run import Run, carry_out
from vmt.runs.spec import load_data
from vmt.trackers import client_of

FLAGS = ["--method", "source_only", "--iterations", "30", "--log-every", "5", "--evaluate-every", "15"]
FLAGS += ["--checkpoint-every", "5", "--batch-size", "8", "--precision", "float32", "--no-match-shares"]


def train(folder: Path, *flags: str) -> int:
    write_blobs(folder)
    data = ["--source", str(folder / "source.npz"), "--target", str(folder / "target.npz")]
    return main(["train", *data, "--out", str(folder / "run"), *FLAGS, *flags])


def test_mlflow_has_metrics_settings_model_and_report(tmp_path: Path) -> None:
    store, run = tmp_path / "store", tmp_path / "run"
    assert train(tmp_path, "--mlflow", str(store)) == 0
    client = client_of(store.as_uri())
    experiment = client.get_experiment_by_name("vmt")
    (tracked,) = client.search_runs([experiment.experiment_id])
    assert tracked.info.status == "FINISHED"
    assert tracked.data.params["recipe.method"] == "source_only"
    assert tracked.data.params["recipe.config.batch_size"] == "8"
    losses = client.get_metric_history(tracked.info.run_id, "classifier/L_y")
    records = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    assert [(each.step, each.value) for each in losses] == [
        (record["step"], record["classifier/L_y"]) for record in records if "target" not in record
    ]
    entropies = client.get_metric_history(tracked.info.run_id, "target/entropy")
    assert [each.step for each in entropies] == [15, 30]
    fetched = Path(client.download_artifacts(tracked.info.run_id, "", str(tmp_path)))
    weights, own = (load_file(place / "model.safetensors") for place in (fetched, run))
    assert weights.keys() == own.keys()
    assert len(own) > 4
    assert all(weights[name].equal(own[name]) for name in own)
    assert vmt.load(fetched / "model.safetensors").classes == vmt.load(run / "model.safetensors").classes
    assert "<html" in (fetched / "report.html").read_text()


def test_a_resumed_run_continues_in_mlflow_and_repeats_no_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, run = tmp_path / "store", tmp_path / "run"

    class Stop(vmt.Callback):
        def on_log(self, record: Mapping[str, Any]) -> None:
            if record["step"] == 20:
                raise KeyboardInterrupt  # as a kill: the checkpoint of step 15 is the last

    assert train(tmp_path) == 0
    spec = read_run(run)
    shutil.rmtree(run)
    tracker = vmt.MLflow(str(store))
    with pytest.raises(KeyboardInterrupt):
        carry_out(Run.of(spec, load_data(spec.data)), run, callbacks=[tracker, Stop()])
    untracked = shutil.copytree(run, tmp_path / "untracked")
    assert main(["train", "--resume", str(run), "--mlflow", str(store)]) == 0
    # Without its address nothing is sent, whatever the folder says: it may be of others.
    assert main(["train", "--resume", str(untracked)]) == 0
    assert f"--mlflow {store.as_uri()}" in capsys.readouterr().out
    (tracked,) = tracker.client.search_runs([tracker.client.get_experiment_by_name("vmt").experiment_id])
    assert tracked.info.status == "FINISHED"
    steps = [each.step for each in tracker.client.get_metric_history(tracked.info.run_id, "classifier/L_y")]
    assert steps == [5, 10, 15, 20, 25, 30]


def status_in(store: Path) -> list[str]:
    """How the runs in a store of MLflow ended, the first first."""
    client = client_of(store.as_uri())
    runs = client.search_runs([client.get_experiment_by_name("vmt").experiment_id], order_by=["start_time"])
    return [run.info.status for run in runs]


def test_mlflow_hears_of_a_run_that_fails(tmp_path: Path) -> None:
    store = tmp_path / "store"

    class Fails(vmt.Callback):
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def on_log(self, record: Mapping[str, Any]) -> None:
            raise self.error

    source, target = write_blobs(tmp_path)
    given = {"iterations": 4, "log_every": 2, "progress": False, "batch_size": 8}
    tracker = vmt.MLflow(str(store))
    for error in (KeyboardInterrupt(), ValueError()):
        with pytest.raises(type(error)):
            vmt.adapt(source, target, "source_only", callbacks=[tracker, Fails(error)], **given)
    assert status_in(store) == ["KILLED", "FAILED"]
    vmt.adapt(source, target, "source_only", callbacks=[tracker], **given)
    assert status_in(store) == ["KILLED", "FAILED", "FINISHED"]


def test_a_run_that_is_refused_at_its_start_is_not_continued_in_mlflow(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert train(tmp_path, "--mlflow", str(store), "--lr", "1e38") == 2
    assert status_in(store) == ["FAILED"]
    assert train(tmp_path, "--mlflow", str(store)) == 0
    assert status_in(store) == ["FAILED", "FINISHED"]


def test_mlflow_is_told_of_the_end_although_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    tracker = vmt.MLflow(str(store))
    monkeypatch.setattr(tracker, "send_files", lambda *_: 1 / 0)
    source, target = write_blobs(tmp_path)
    with pytest.warns(UserWarning, match="MLflow"):
        vmt.adapt(source, target, "source_only", callbacks=[tracker], iterations=2, progress=False, batch_size=8)
    assert status_in(store) == ["FINISHED"]


def test_callbacks_hear_of_everything_in_order(tmp_path: Path) -> None:
    heard: list[Any] = []

    class Listens(vmt.Callback):
        def on_start(self, record: Mapping[str, Any], folder: Path | None) -> None:
            heard.append(record["recipe"]["config"]["seed"])

        def on_log(self, record: Mapping[str, Any]) -> None:
            heard.append(record["step"])

        def on_evaluate(self, record: Mapping[str, Any]) -> None:
            heard.append(sorted(record["target"]))

        def on_end(self, model: vmt.Model, summary: Mapping[str, Any], folder: Path | None) -> None:
            heard.append((model.classes, summary["finished"], folder))

    source, target = write_blobs(tmp_path)
    given = {"iterations": 4, "log_every": 2, "progress": False, "seed": 7, "batch_size": 8}
    model = vmt.adapt(source, target, "source_only", callbacks=[Listens()], **given)
    keys = ["accuracy", "entropy", "per_class", "predicted_share", "samples"]
    assert heard == [7, 2, 4, keys, (model.classes, True, None)]


def test_a_run_continues_when_its_tracker_is_lost(tmp_path: Path) -> None:
    store = tmp_path / "store"

    class Remove(vmt.Callback):
        def on_log(self, record: Mapping[str, Any]) -> None:
            shutil.rmtree(store, ignore_errors=True)

    source, target = write_blobs(tmp_path)
    given = {"iterations": 4, "log_every": 2, "progress": False, "batch_size": 8}
    with pytest.warns(UserWarning, match="MLflow"):
        vmt.adapt(source, target, "source_only", callbacks=[Remove(), vmt.MLflow(str(store))], **given)


def test_a_server_that_does_not_answer_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert train(tmp_path, "--mlflow", "http://127.0.0.1:9") == 2
    assert "127.0.0.1:9" in capsys.readouterr().err
    assert not (tmp_path / "run" / "run.json").exists()


def test_mlflow_that_is_not_installed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert train(tmp_path, "--mlflow", str(tmp_path / "store")) == 2
    assert "pip install 'vmt[mlflow]'" in capsys.readouterr().err


def test_nothing_is_sent_to_the_makers_of_mlflow(tmp_path: Path) -> None:
    """In a process in which MLflow cannot see that it is tested, which it would take for a reason to send nothing."""
    probe = "import sys; from vmt.trackers import client_of; client_of(sys.argv[1]); import mlflow.telemetry as t; "
    probe += "print(t.get_telemetry_client())"
    settings = ("PATH", "HOME", "VIRTUAL_ENV", "SYSTEMROOT")
    environment = {name: os.environ[name] for name in settings if name in os.environ}
    environment |= dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    command = [sys.executable, "-c", probe, (tmp_path / "store").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.strip() == "None"


def test_a_password_in_the_address_is_refused() -> None:
    with pytest.raises(vmt.InputError, match="MLFLOW_TRACKING_PASSWORD"):
        vmt.MLflow("https://me:secret@example.org")
