"""The log once more, where TensorBoard finds it. The package ``tensorboard`` is an extra."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vmt.errors import InputError
from vmt.train.checkpoint import writing

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
        self.writer: Any = None

    def restart(self, records: Sequence[Mapping[str, Any]]) -> None:
        with writing(self.folder):
            for old in self.folder.glob(EVENTS):
                old.unlink()
            self.writer = summary_writer()(str(self.folder))
            for record in records:
                self._add(record)
            self.writer.flush()

    def write(self, record: Mapping[str, Any]) -> None:
        if self.writer is None:
            self.restart(())
        with writing(self.folder):
            self._add(record)
            self.writer.flush()

    def _add(self, record: Mapping[str, Any]) -> None:
        for name, value in scalars(record):
            self.writer.add_scalar(name, value, record["step"])


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


def summary_writer() -> Any:
    """The class that writes event files, or one sentence about how to get it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            "--tensorboard needs the package tensorboard: pip install 'vmt[tensorboard]', or leave the flag out."
        ) from error
    return SummaryWriter
