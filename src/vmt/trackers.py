"""Trackers of experiments, which follow a run as callbacks.

TensorBoard's files are written by the log itself (:mod:`vmt.train.log`), because they are rewound with it.
"""

import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import time
from typing import Any
from urllib.parse import urlsplit

from vmt.disk import write_atomically
from vmt.errors import InputError, first_line, parsing
from vmt.model import Model
from vmt.runs.callbacks import Callback
from vmt.runs.folder import CURVES, MODEL, RUN, SUMMARY, TRACKED
from vmt.train.log import LOG, scalars

# MLflow takes at most this many numbers in one request, and this many characters in a parameter.
AT_ONCE, LONGEST = 500, 500


class MLflow(Callback):
    """Sends settings, metrics, model and report of a run to MLflow.

    ``uri`` is the address of a tracking server, a database such as ``sqlite:///mlflow.db``, or a folder. If it fails
    during the run, a warning says so, and the run continues without it.
    """

    def __init__(self, uri: str, experiment: str = "vmt", name: str | None = None) -> None:
        if urlsplit(uri).password is not None:
            raise InputError(
                "the address of MLflow contains a password, which would be kept in the run's folder: set "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD instead."
            )
        self.uri, self.experiment, self.name = as_uri(uri), experiment, name
        self.client = client_of(self.uri)
        self.begin()

    def begin(self) -> None:
        """Forget an earlier run that this tracker has followed."""
        self.run = ""
        self.is_lost = self.has_ended = False
        self.sent: dict[str, int] | None = None
        """The last step of each metric that was sent before the run was resumed; None for a new run."""

    def on_start(self, record: Mapping[str, Any], folder: Path | None) -> None:
        self.begin()
        try:
            self.run = tracked_in(folder, self.uri)
            if self.run:
                self.sent = {}
                self.client.update_run(self.run, status="RUNNING")
                return
            found = self.client.get_experiment_by_name(self.experiment)
            experiment = self.client.create_experiment(self.experiment) if found is None else found.experiment_id
            name = self.name or (None if folder is None else folder.name)
            self.run = self.client.create_run(experiment, run_name=name).info.run_id
            from mlflow.entities import Param

            settings = {key: record[key] for key in ("data", "recipe") if key in record}
            params = [Param(key, str(value)[:LONGEST]) for key, value in flat(settings) if value is not None]
            self.client.log_batch(self.run, params=params)
        except InputError:
            raise
        except Exception as error:  # that of a server may be any
            raise InputError(
                f"MLflow at {self.uri} cannot be used ({first_line(error)[:200]}): check the address."
            ) from error
        if folder is not None:
            write_atomically(folder / TRACKED, json.dumps({"uri": self.uri, "run": self.run}).encode())

    def on_log(self, record: Mapping[str, Any]) -> None:
        self.send(lambda: self.send_metrics(record))

    def on_evaluate(self, record: Mapping[str, Any]) -> None:
        self.send(lambda: self.send_metrics(record))

    def on_end(self, model: Model, summary: Mapping[str, Any], folder: Path | None) -> None:
        over, was_lost = summary["finished"] or summary["given_up"], self.is_lost
        if over:
            self.send(lambda: self.send_files(model, summary, folder))
        self.is_lost = was_lost  # a server that refuses a file may still take the status
        self.end("FINISHED" if over else "KILLED")

    def on_exception(self, error: BaseException) -> None:
        self.end("KILLED" if isinstance(error, KeyboardInterrupt) else "FAILED")

    def end(self, status: str) -> None:
        """Say how the run ended, once."""
        if self.run and not self.has_ended:
            self.has_ended = True
            self.send(lambda: self.client.set_terminated(self.run, status))

    def send(self, what: Callable[[], object]) -> None:
        """Send something; after a failure nothing more is sent, because a run must not wait for a lost server."""
        if self.is_lost:
            return
        try:
            what()
        except Exception as error:  # that of a server may be any
            self.is_lost = True
            warnings.warn(f"MLflow at {self.uri} failed, and the run continues without it: {error}", stacklevel=2)

    def send_metrics(self, record: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric

        step, now = int(record["step"]), int(1000 * time())
        metrics = [Metric(name, value, now, step) for name, value in scalars(record) if step > self.last_step_of(name)]
        for start in range(0, len(metrics), AT_ONCE):
            self.client.log_batch(self.run, metrics[start : start + AT_ONCE])

    def last_step_of(self, name: str) -> int:
        """The last step at which a metric was sent before the run was resumed: a resumed run repeats some steps."""
        if self.sent is None:
            return -1
        if name not in self.sent:
            history = self.client.get_metric_history(self.run, name)
            self.sent[name] = max((each.step for each in history), default=-1)
        return self.sent[name]

    def send_files(self, model: Model, summary: Mapping[str, Any], folder: Path | None) -> None:
        """Send the model, the summary and, if there is a folder, the record, the log, the curves and the report."""
        with tempfile.TemporaryDirectory() as made:
            place = Path(made)
            if folder is None:
                model.save(place / MODEL)
                (place / SUMMARY).write_text(json.dumps(summary, indent=1))
            elif report := report_of(folder, place):
                warnings.warn(report, stacklevel=2)
            files = [*place.iterdir()]
            if folder is not None:
                files += [*folder.glob("model*.safetensors"), *(folder / name for name in (RUN, SUMMARY, CURVES, LOG))]
            for path in files:
                self.client.log_artifact(self.run, str(path))


def report_of(folder: Path, place: Path) -> str | None:
    """Write the report of a run to a place; a sentence if it cannot be made, as without the samples."""
    from vmt.report.page import write_report
    from vmt.report.samples import Options

    try:
        write_report([folder], place / "report.html", Options("pca"))
    except InputError as error:
        return f"MLflow gets no report of {folder}: {error}"
    return None


def read_tracked(folder: Path) -> dict[str, str]:
    """Where the run in a folder is tracked: the address and the run there."""
    with parsing(folder / TRACKED, "the record of a tracker", "remove it, and the run is tracked anew"):
        record = json.loads((folder / TRACKED).read_bytes())
        return {name: str(record[name]) for name in ("uri", "run")}


def tracked_in(folder: Path | None, uri: str) -> str:
    """The run at this address that the folder has recorded; empty if there is none."""
    if folder is None or not (folder / TRACKED).exists():
        return ""
    record = read_tracked(folder)
    return record["run"] if record["uri"] == uri else ""


def as_uri(uri: str) -> str:
    """An address as MLflow takes it: a folder becomes an address as well."""
    return uri if "://" in uri or uri.startswith(("file:", "databricks")) else Path(uri).absolute().as_uri()


def client_of(uri: str) -> Any:
    """MLflow's client; an InputError if the package is not installed."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # its own 7 would hold a run up for minutes
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nothing is sent to the makers of MLflow unasked
    if uri.startswith("file:"):
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow refuses folders that nobody asked for
    try:
        from mlflow import MlflowClient
    except ImportError as error:
        raise InputError(
            "--mlflow needs the package mlflow-skinny: pip install 'vmt[mlflow]', or leave the flag out."
        ) from error
    try:
        return MlflowClient(uri)
    except ImportError as error:
        raise InputError(f"MLflow needs another package for {uri} ({error}): pip install mlflow.") from error
    except Exception as error:  # of an address that is not valid
        raise InputError(f"MLflow does not take the address {uri} ({error}): check it.") from error


def flat(values: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, Any]]:
    """Every entry of nested settings, under a name with dots."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{of}{name}.")
        else:
            yield f"{of}{name}", value
