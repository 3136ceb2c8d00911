"""Where the samples of a run come from, and loading them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmt.errors import InputError, few

if TYPE_CHECKING:
    from vmt.data.task import Task

SCARCE = 8
"""A class or a target with fewer samples than this is worth a warning."""


@dataclass(frozen=True)
class DataSpec:
    """The samples of a run: a named task, your own files, or neither if they were given as arrays in Python."""

    task: str | None = None
    """Name of a task."""
    data: str | None = None
    """Folder of the task's official files."""
    source: str | None = None
    """Your labelled source samples: a folder of pictures, a table or a NumPy file."""
    target: str | None = None
    """Your target samples, in any of these forms; they need no labels."""
    target_test: str | None = None
    """Labelled target samples, to report the accuracy on."""
    label: str | None = None
    """Column of a table that holds the classes; it is called label if none is named."""
    image_size: list[int] | None = None
    """Height and width, or one side, that pictures are resized to."""
    channels: int | None = None
    """1 reads pictures in grey, 3 in colour."""
    use_target_labels: float | None = None
    """Weight of the cross-entropy on known target labels; None leaves those labels unseen."""
    impute: str | None = None
    """Fill in missing values of vectors with the mean or the median of their feature in their domain."""
    standardise_per_domain: bool | None = None
    """Standardise vectors in each domain by itself instead of over both together; the target's values predict."""

    @property
    def name(self) -> str:
        return self.task or "own data"

    @property
    def in_files(self) -> bool:
        """Whether the samples can be read again from the disk."""
        return self.task is not None or (self.source is not None and self.target is not None)

    def check(self) -> None:
        """Refuse a combination of places that does not describe one data set."""
        for one, other in (("source", "target"), ("target", "source")):
            if self.task is None and getattr(self, one) is not None and getattr(self, other) is None:
                raise InputError(f"--{other} is missing: your own data need it beside --{one}.")
        if not self.in_files:
            from vmt.data.tasks import TASKS

            raise InputError(f"name a task ({', '.join(TASKS)}), or give your own data with --source and --target.")
        if self.task is not None and (self.source or self.target):
            raise InputError(f"the task {self.task} has its own data: leave out --source and --target, or the task.")
        for name in (
            "target_test",
            "label",
            "image_size",
            "channels",
            "use_target_labels",
            "impute",
            "standardise_per_domain",
        ):
            if self.task is not None and getattr(self, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} is for your own data: leave it out for {self.task}.")

        if self.impute is not None:
            from vmt.data.preprocess import check_imputer

            check_imputer(self.impute)

    def moved(self, places: "DataSpec") -> "DataSpec":
        """The same data at the places that ``places`` names; what it leaves out stays."""
        return replace(self, **{f.name: value for f in fields(self) if (value := getattr(places, f.name)) is not None})

    def found_from(self, folder: Path) -> "DataSpec":
        """The same data; paths that exist only relative to ``folder``, where a run was started, are resolved."""

        def resolved(path: str | None) -> str | None:
            if path is None or Path(path).exists() or not (folder / path).exists():
                return path
            return str(folder / path)

        places: dict[str, Any] = {n: resolved(getattr(self, n)) for n in ("data", "source", "target", "target_test")}
        return replace(self, **places)


def silent(note: str) -> None:
    """Print nothing."""


def load_data(data: DataSpec, notify: Callable[[str], None] = silent, cache: bool = True) -> "Task":
    """The task that a data spec describes; ``notify`` gets notes about how files were read."""
    if data.task is not None:
        from vmt.data.tasks import load_task

        return load_task(data.task, None if data.data is None else Path(data.data))
    if data.source is None or data.target is None:
        raise InputError(
            "the samples of this run were given as arrays in Python, and no file holds them: give files with "
            "--source and --target."
        )
    from vmt.data.files.own import ReadOptions, own_task

    _check_paths(data)
    how = ReadOptions(_height_and_width(data.image_size), data.channels, data.label, cache, strict=True)
    task, notes = own_task(
        data.source,
        data.target,
        data.target_test,
        how,
        data.use_target_labels is not None,
        data.impute,
        bool(data.standardise_per_domain),
    )
    for note in notes:
        notify(note)
    return task


def warnings_about(task: "Task") -> Iterator[str]:
    """Sentences about samples that can be trained on, but that little can be learned from."""
    from vmt.data.task import near_constant_features

    assert task.source.y is not None
    counts = task.source.y.bincount(minlength=len(task.classes)).tolist()
    scarce = [f"{name} ({count})" for name, count in zip(task.classes, counts, strict=True) if count < SCARCE]
    if scarce:
        yield f"classes with fewer than {SCARCE} samples to learn from: {few(scarce, 8)}"
    if len(task.target) < SCARCE:
        yield f"the target has only {len(task.target)} samples, too few for reliable statistics: add more if you can"
    if flat := near_constant_features(task):
        yield f"features that vary in the target but hardly in the source: {few(flat, 8)}; leave them out if you can"


def _check_paths(data: DataSpec) -> None:
    """Refuse a relative path that does not exist, and say which folder it is relative to."""
    from vmt.data.files.paths import INPUT_FORMATS

    for name in ("source", "target", "target_test"):
        path = getattr(data, name)
        if path is not None and not Path(path).is_absolute() and not Path(path).exists():
            flag = f"--{name.replace('_', '-')}"
            raise InputError(f"{path} ({flag}) does not exist in {Path.cwd()}: give {INPUT_FORMATS}.")


def _height_and_width(sides: Sequence[int] | None) -> tuple[int, int] | None:
    if sides is None:
        return None
    if len(sides) > 2:
        raise InputError(f"--image-size has {len(sides)} numbers: give height and width, or one side of a square.")
    return sides[0], sides[-1]
