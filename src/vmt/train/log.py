"""The run's log: one JSON object a line, every loss part and health figure."""

import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any

from torch import Tensor

from vmt.disk import explain_write_errors, flush_to_disk, write_atomically
from vmt.errors import InputError

TENSORBOARD_FOLDER = "tensorboard"
EVENTS = "events.out.tfevents.*"
# Charts of one class each, beyond which nobody looks at them.
MANY = 50


class Mirror:
    """Shows a run's log records as TensorBoard scalars.

    The log is the truth: whenever the log is opened, rewound or not, the event files are written afresh from it. So a
    resumed run shows no point twice, and none that a kill took back.
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
            # Closed after every record, so that a failure to write is known at once, and here.
            self.file = self.folder / EVENTS.replace("*", name)
            self._append(chain([event(file_version="brain.Event:2")], map(shown, records)))

    def write(self, record: Mapping[str, Any]) -> None:
        if self.file is None:
            self.restart(())
        with explain_write_errors(self.folder):
            self._append([shown(record)])

    def _append(self, events: Iterable[Any]) -> None:
        assert self.file is not None
        with self.file.open("ab") as file:
            writer = record_writer()(file)
            for each in events:
                writer.write(each.SerializeToString())


def shown(record: Mapping[str, Any]) -> Any:
    """A record as an event."""
    values = [{"tag": name, "simple_value": value} for name, value in scalars(record)]
    return event(step=record["step"], summary={"value": values})


def event(**fields: Any) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event

    return Event(wall_time=time.time(), **fields)


def scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Every number of a record under a name that TensorBoard can show; a list gives one per class."""

    def numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                yield from numbers(f"{name}/{key}", inner)
        elif isinstance(value, list | tuple) and len(value) <= MANY:
            for k, inner in enumerate(value):
                yield from numbers(f"{name}/{k}", inner)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield name.replace(" ", "_").replace("(", "_").replace(")", ""), float(value)

    for name, value in record.items():
        if name != "step":
            yield from numbers(name, value)


def record_writer() -> Any:
    """The class that packs events into a file, or one sentence about how to get it.

    TensorBoard's own writer of event files has a thread, which a full disk ends in a traceback.
    """
    try:
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise InputError(
            "--tensorboard needs the package tensorboard: pip install 'vmt[tensorboard]', or leave the flag out."
        ) from error
    return RecordWriter


LOG = "log.jsonl"


class Log:
    """Appends records to a file, if there is one, and remembers them; ``tensorboard`` shows them there too."""

    def __init__(self, folder: Path | None, tensorboard: bool = False) -> None:
        self.path = None if folder is None else folder / LOG
        self.mirror = Mirror(folder) if tensorboard and folder is not None else None
        self.records: list[dict[str, Any]] = []

    def rewind(self, step: int) -> None:
        """Forget what a killed run wrote after its last checkpoint."""
        if self.path is None or not self.path.exists():
            return
        self.records = [record for record in read_log(self.path) if record["step"] <= step]
        lines = "".join(json.dumps(record) + "\n" for record in self.records)
        write_atomically(self.path, lines.encode())
        if self.mirror is not None:
            self.mirror.restart(self.records)

    def write(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        if self.path is not None:
            with explain_write_errors(self.path), self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
        if self.mirror is not None:
            self.mirror.write(record)

    def flush(self) -> None:
        """To the disk: after a loss of power a checkpoint must not know more than the log."""
        if self.path is not None and self.path.exists():
            with explain_write_errors(self.path):
                flush_to_disk(self.path)


def read_log(path: Path) -> list[dict[str, Any]]:
    """All whole records; a line that a kill cut short, or that is damaged, is left out."""
    records = []
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and isinstance(record.get("step"), int) and is_whole(record):
                records.append(record)
    return records


def is_whole(record: Mapping[str, Any]) -> bool:
    """Whether a record, if it is of an evaluation, has all that those write down, and as what they write it."""
    if "target" not in record:
        return True
    source, scores = record.get("source", "missing"), record.get("validators", {})
    return (
        isinstance(record.get("phase"), str)
        and is_evaluation(record["target"])
        and (source is None or is_evaluation(source))
        and isinstance(scores, Mapping)
        and all(score is None or is_real(score) for score in scores.values())
        and ("validators" not in record or ("alarm" in record and is_real(record.get("validated"))))
    )


def is_evaluation(values: Any) -> bool:
    """Whether these are figures of a domain."""
    if not isinstance(values, Mapping) or "accuracy" not in values:
        return False
    shares, accuracy = values.get("predicted_share"), values["accuracy"]
    shared = isinstance(shares, list) and len(shares) > 0 and all(map(is_part, shares))
    measured = accuracy is None or is_part(accuracy)
    return shared and measured and is_real(values.get("samples")) and is_real(values.get("entropy"))


def is_part(value: Any) -> bool:
    """Of a whole."""
    return is_real(value) and 0 <= value <= 1


def is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) != inf


def plain(metrics: dict[str, Tensor]) -> dict[str, Any]:
    """Tensors as numbers and lists that JSON can hold; six digits are more than they mean."""

    def rounded(value: Any) -> Any:
        return [rounded(v) for v in value] if isinstance(value, list) else float(f"{value:.6g}")

    return {name: rounded(value.tolist()) for name, value in metrics.items()}
