"""The log of a run: one JSON object per line, with every loss and every evaluation; optionally also for TensorBoard."""

import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

from torch import Tensor

from vmt.disk import explain_write_errors, flush_to_disk, write_atomically
from vmt.errors import InputError, parsing
from vmt.evaluate.accuracy import Evaluation
from vmt.json_types import check_types

LOG = "log.jsonl"
# The keys that every evaluation of a domain has.
FIGURES = {"samples", "accuracy", "predicted_share", "entropy"}
EVALUATION_TYPES = get_type_hints(Evaluation)
RECORD_TYPES: dict[str, Any] = {
    "step": int,
    "phase": str,
    "target": dict[str, Any],
    "source": dict[str, Any] | None,
    "validators": dict[str, float | None],
    "alarm": str | None,
    "validated": int,
}


class Log:
    """Remembers records and appends them to ``folder/log.jsonl``, if there is a folder."""

    def __init__(
        self, folder: Path | None, tensorboard: bool = False, on_record: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self.on_record = on_record
        self.path = None if folder is None else folder / LOG
        self.tensorboard = TensorBoard(folder) if tensorboard and folder is not None else None
        self.records: list[dict[str, Any]] = []

    def rewind(self, step: int) -> None:
        """Read the log of a resumed run, and drop what was written after iteration ``step``."""
        if self.path is None or not self.path.exists():
            return
        self.records = [record for record in read_log(self.path) if record["step"] <= step]
        lines = "".join(json.dumps(record) + "\n" for record in self.records)
        write_atomically(self.path, lines.encode())
        if self.tensorboard is not None:
            self.tensorboard.restart(self.records)

    def write(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        if self.path is not None:
            with explain_write_errors(self.path), self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
        if self.tensorboard is not None:
            self.tensorboard.write(record)
        if self.on_record is not None:
            self.on_record(record)

    def flush(self) -> None:
        """Flush the log to the disk, so that after a power failure no checkpoint is ahead of the log."""
        if self.path is not None and self.path.exists():
            with explain_write_errors(self.path):
                flush_to_disk(self.path)


def read_log(path: Path) -> list[dict[str, Any]]:
    """All records of a log. Lines that are damaged, or that a kill cut short, are left out."""
    records = []
    with parsing(path, "the log of a run", "restore it, or leave the run out"):
        lines = path.read_bytes().split(b"\n")
    for line in lines:
        with suppress(ValueError, RecursionError):
            record = json.loads(line, parse_float=finite, parse_constant=finite)
            if is_record(record):
                records.append(record)
    return records


def finite(text: str) -> float:
    """The number that a text stands for; a ValueError if it is infinite or not a number, which no log has."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def is_record(values: Any) -> bool:
    """Whether a line of a log has the keys and the types by which records are read; damage may have changed one."""
    needed = {"step", "phase"}
    if isinstance(values, dict) and "target" in values:
        needed |= {"source"} | ({"alarm", "validated"} if "validators" in values else set())
    try:
        check_types(values, RECORD_TYPES)
        if not needed <= values.keys():
            return False
        for domain in (values[name] for name in ("target", "source") if values.get(name) is not None):
            check_types(domain, EVALUATION_TYPES)
            if not domain.keys() >= FIGURES or not domain["predicted_share"]:
                return False
    except (TypeError, AttributeError):
        return False
    return True


def json_numbers(metrics: dict[str, Tensor]) -> dict[str, Any]:
    """Metrics as numbers and lists that JSON can hold, rounded to six digits."""

    def rounded(value: Any) -> Any:
        return [rounded(v) for v in value] if isinstance(value, list) else float(f"{value:.6g}")

    return {name: rounded(value.tolist()) for name, value in metrics.items()}


TENSORBOARD_FOLDER = "tensorboard"
EVENTS = "events.out.tfevents.*"
# Lists of more classes than this are left out, because they would fill the page with charts.
MAX_CLASSES = 50


class TensorBoard:
    """Shows the records of a log as TensorBoard scalars.

    The event file is written anew from the log whenever the log is rewound, so a resumed run shows each point once.
    The file is opened and closed for each record, so that errors are raised here: ``SummaryWriter`` writes in its own
    thread, where a full disk would end in a traceback.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / TENSORBOARD_FOLDER
        self.file: Path | None = None

    def restart(self, records: Sequence[Mapping[str, Any]]) -> None:
        with explain_write_errors(self.folder):
            for old in self.folder.glob(EVENTS):
                old.unlink()
            self.folder.mkdir(exist_ok=True)
            name = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
            self.file = self.folder / EVENTS.replace("*", name)
            self._append([_event(file_version="brain.Event:2"), *map(_scalars_event, records)])

    def write(self, record: Mapping[str, Any]) -> None:
        if self.file is None:
            self.restart(())
        with explain_write_errors(self.folder):
            self._append([_scalars_event(record)])

    def _append(self, events: Iterable[Any]) -> None:
        assert self.file is not None
        with self.file.open("ab") as file:
            writer = require_tensorboard()(file)
            for event in events:
                writer.write(event.SerializeToString())


def require_tensorboard() -> Any:
    """The class that frames events in a file; an InputError if the package is not installed."""
    try:
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise InputError(
            "--tensorboard needs the package tensorboard: pip install 'vmt[tensorboard]', or leave the flag out."
        ) from error
    return RecordWriter


def scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Every number of a record under a name that TensorBoard can show; a list gives one number per class."""

    def numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield from numbers(f"{name}/{key}", inner)
        elif isinstance(value, list | tuple) and len(value) <= MAX_CLASSES:
            for k, inner in enumerate(value):
                yield from numbers(f"{name}/{k}", inner)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name.replace(" ", "_").replace("(", "_").replace(")", ""), float(value)

    for name, value in record.items():
        if name != "step":
            yield from numbers(name, value)


def _scalars_event(record: Mapping[str, Any]) -> Any:
    values = [{"tag": name, "simple_value": value} for name, value in scalars(record)]
    return _event(step=record["step"], summary={"value": values})


def _event(**fields: Any) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event

    return Event(wall_time=time.time(), **fields)
