"""The log once more, where TensorBoard finds it. The package ``tensorboard`` is an extra."""

import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from vmt.disk import writing
from vmt.errors import InputError

FOLDER = "tensorboard"
EVENTS = "events.out.tfevents.*"
# Charts of one class each, beyond which nobody looks at them.
MANY = 50


class Mirror:
    """Shows a run's log records as TensorBoard scalars.

    The log is the truth: whenever the log is opened, rewound or not, the event files are written afresh from it. So a
    resumed run shows no point twice, and none that a kill took back.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER
        self.file: Path | None = None

    def restart(self, records: Sequence[Mapping[str, Any]]) -> None:
        with writing(self.folder):
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
        with writing(self.folder):
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
