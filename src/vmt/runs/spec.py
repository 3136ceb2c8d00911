"""Where the samples of a run come from, and loading them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmt.data.picture_sets import PICTURE_TASKS
from vmt.errors import InputError, as_flag, few
from vmt.progress import Notify, silent

if TYPE_CHECKING:
    from vmt.data.files.own import ReadOptions
    from vmt.data.framing import PictureFormat
    from vmt.data.task import Task
    from vmt.nets.backbone import Backbone

SCARCE = 8
"""A class or a target with fewer samples than this is worth a warning."""


# Fields that name or change the samples of users, and those that also change how named tasks of pictures are read.
OF_OWN_DATA = ("target_test", "label", "use_target_labels", "impute", "standardise_per_domain")
OF_PICTURES = ("features", "image_size", "channels", "mean", "std", "interpolation", "crop")


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
    from_model: str | None = None
    """Refine this saved model, or the result of this run, on the target alone, without a source."""
    label: str | None = None
    """Column of a table that holds the classes; by default, the column called label."""
    features: str | None = None
    """Train on the features of pictures, which a frozen network computes once: timm:NAME, torchvision:NAME, or
    package.module:function for one of your own."""
    image_size: list[int] | None = None
    """Size that pictures are resized to: height and width, or one number for both."""
    channels: int | None = None
    """1 reads pictures in grey, 3 in colour."""
    mean: list[float] | None = None
    """Mean of each channel that the weights of a pretrained network expect, for pictures in 0–1."""
    std: list[float] | None = None
    """Standard deviation of each channel that the weights of a pretrained network expect, for pictures in 0–1."""
    interpolation: str | None = None
    """How pictures are resized: bilinear (the default) or bicubic."""
    crop: float | None = None
    """Keep the aspect ratio of pictures, and this share of their shorter side around the centre."""
    use_target_labels: float | None = None
    """Weight of the cross-entropy on known target labels; None leaves those labels unseen."""
    impute: str | None = None
    """Fill in missing values of vectors with the mean or the median of their feature in their domain."""
    standardise_per_domain: bool | None = None
    """Standardise vectors in each domain by itself, not over both together; predictions use the target's statistics."""
    choose_on: int | None = None
    """Hold this many labelled target samples apart from training, and report the accuracy on them for choices."""

    @property
    def name(self) -> str:
        return self.task or "own data"

    @property
    def in_files(self) -> bool:
        """Whether the samples can be read again from the disk."""
        without_source = self.from_model is not None or self.source is not None
        return self.task is not None or (without_source and self.target is not None)

    @property
    def format(self) -> "PictureFormat | None":
        """What the network expects of pictures, apart from their size; None if nothing is given."""
        from vmt.data.framing import format_from

        given = (self.mean, self.std, self.interpolation, self.crop)
        return None if given == (None,) * 4 else format_from(None, *given)

    def expecting(self, format: "PictureFormat | None") -> "DataSpec":
        """The same data, with pictures as a network expects them where nothing else was asked for."""
        if format is None or self.features is not None or self.task not in (None, *PICTURE_TASKS):
            return self
        expected = {name: getattr(format, name) for name in ("interpolation", "crop")}
        expected["image_size"] = None if format.size is None else list(format.size)
        if self.mean is None and self.std is None and format.mean is not None and format.std is not None:
            expected |= {"mean": list(format.mean), "std": list(format.std)}
        return replace(self, **{name: value for name, value in expected.items() if getattr(self, name) is None})

    def check(self) -> None:
        """Refuse a combination of places that does not describe one data set."""
        if self.from_model is not None:
            self._check_source_free()
            return
        for one, other in (("source", "target"), ("target", "source")):
            if self.task is None and getattr(self, one) is not None and getattr(self, other) is None:
                raise InputError(f"--{other} is missing: your own data need it beside --{one}.")
        if not self.in_files:
            from vmt.data.tasks import NAMES_OF_TASKS

            raise InputError(
                f"name a task ({', '.join(NAMES_OF_TASKS)}), or give your own data with --source and --target."
            )
        if self.task is not None and (self.source or self.target):
            raise InputError(f"the task {self.task} has its own data: leave out --source and --target, or the task.")
        for name in OF_OWN_DATA + (() if self.task in PICTURE_TASKS else OF_PICTURES):
            if self.task is not None and getattr(self, name) is not None:
                raise InputError(f"{as_flag(name)} is for your own data: leave it out for {self.task}.")
        _ = self.format  # which is checked when it is made
        if self.impute is not None:
            from vmt.data.preprocess import check_imputer

            check_imputer(self.impute)

    def _check_source_free(self) -> None:
        """Refuse what a run without a source cannot use: the model decides how samples are read."""
        if self.target is None:
            raise InputError("--target is missing: --from refines a model on the samples of a target.")
        usable = ("target", "target_test", "from_model", "label", "features")
        for name in (each.name for each in fields(self) if each.name not in usable):
            if getattr(self, name) is not None:
                flag = f"the task {self.task}" if name == "task" else as_flag(name)
                raise InputError(f"{flag} cannot be combined with --from, which has no source: leave it out.")

    def moved(self, places: "DataSpec") -> "DataSpec":
        """The same data at the places that ``places`` names; what it leaves out stays."""
        return replace(self, **{f.name: value for f in fields(self) if (value := getattr(places, f.name)) is not None})

    def found_from(self, folder: Path) -> "DataSpec":
        """The same data; paths that exist only relative to ``folder``, where a run was started, are resolved."""

        def resolved(path: str | None) -> str | None:
            if path is None or Path(path).exists() or not (folder / path).exists():
                return path
            return str(folder / path)

        places: dict[str, Any] = {n: resolved(getattr(self, n)) for n in PLACES}
        return replace(self, **places)


PLACES = ("data", "source", "target", "target_test", "from_model")
"""The fields of a DataSpec that are paths."""


def load_data(
    data: DataSpec,
    notify: Notify = silent,
    cache: bool = True,
    backbone: "Backbone | None" = None,
    memory: str = "auto",
    network: str | None = None,
    device: str = "auto",
) -> "Task":
    """The task that a data spec describes; ``notify`` gets notes about how files were read.

    ``data.features`` is imported, so the user must have named it: see :func:`check_features`. A ``backbone`` that is
    already there is used instead. Pictures that take more than ``memory`` stay on the disk, as ``Config.memory`` says.
    ``network`` names the function of the model that a run without a source refines, if it has one. Networks run on
    ``device``.
    """
    from vmt.data.files.own import own_task
    from vmt.data.task import hold_apart
    from vmt.data.tasks import load_task, picture_task

    place = None if data.data is None else Path(data.data)
    notes: tuple[str, ...] = ()
    if data.task in PICTURE_TASKS:
        task, notes = picture_task(PICTURE_TASKS[data.task], place, _how(data, cache, backbone, memory, device))
    elif data.task is not None:
        task = load_task(data.task, place)
    elif data.from_model is not None and data.target is not None:
        from vmt.runs.source_free import target_task

        _check_paths(data)
        task, notes = target_task(data, cache, network, memory, device)
    elif data.source is not None and data.target is not None:
        _check_paths(data)
        task, notes = own_task(
            data.source,
            data.target,
            data.target_test,
            _how(data, cache, backbone, memory, device),
            data.use_target_labels is not None,
            data.impute,
            bool(data.standardise_per_domain),
        )
    else:
        raise InputError(
            "the samples of this run were given as arrays in Python, and no file holds them: give files with "
            "--source and --target."
        )
    for note in notes:
        notify(note)
    return task if data.choose_on is None else hold_apart(task, data.choose_on)


def _how(data: DataSpec, cache: bool, backbone: "Backbone | None", memory: str, device: str) -> "ReadOptions":
    import torch

    from vmt.data.files.own import ReadOptions
    from vmt.device import memory_for_samples

    return ReadOptions(
        _height_and_width(data.image_size),
        data.channels,
        data.label,
        cache,
        strict=True,
        format=data.format,
        extractor=backbone or backbone_of(data, device),
        memory=memory_for_samples(memory, torch.device("cpu")),
    )


def backbone_of(data: DataSpec, device: str) -> "Backbone | None":
    """The frozen network that computes the features of pictures, if there is one."""
    if data.features is None:
        return None
    from vmt.data.framing import PictureFormat
    from vmt.nets.backbone import make_backbone

    if data.channels is not None:
        raise InputError("--channels has no effect on features, whose network reads colour: leave it out.")
    asked = PictureFormat(_height_and_width(data.image_size)).or_else(data.format or PictureFormat())
    return make_backbone(data.features, asked, device)


def check_features(data: DataSpec, named: Collection[str], what: str | Path) -> None:
    """Refuse to import the function of ``--features`` that only the record of a run names."""
    if data.features is not None:
        from vmt.nets.backbone import check_trusted_backbone, same_backbone

        given = [name for name in named if same_backbone(name, data.features)]
        check_trusted_backbone(data.features, given[0] if given else next(iter(named), None), what)


def warnings_about(task: "Task") -> Iterator[str]:
    """Sentences about samples that can be trained on, but that little can be learned from."""
    from vmt.data.task import near_constant_features
    from vmt.evaluate.polarity import target_is_negative

    assert task.source.y is not None
    counts = task.source.y.bincount(minlength=len(task.classes)).tolist()
    scarce = [f"{name} ({count})" for name, count in zip(task.classes, counts, strict=True) if count < SCARCE]
    if scarce:
        yield f"classes with fewer than {SCARCE} samples to learn from: {few(scarce, 8)}"
    if len(task.target) < SCARCE:
        yield f"the target has only {len(task.target)} samples, too few for reliable statistics: add more if you can"
    if task.backbone is None and (flat := near_constant_features(task)):
        yield f"features that vary in the target but hardly in the source: {few(flat, 8)}; leave them out if you can"
    if target_is_negative(task):
        yield (
            "the pictures of the target look like negatives of the source's: with --augment-invert, by default 0.5 "
            "here, networks with random weights are trained on inverted pictures as well"
        )


def _check_paths(data: DataSpec) -> None:
    """Refuse a relative path that does not exist, and say which folder it is relative to."""
    from vmt.data.files.paths import INPUT_FORMATS

    for name in ("source", "target", "target_test"):
        path = getattr(data, name)
        if path is not None and not Path(path).is_absolute() and not Path(path).exists():
            raise InputError(f"{path} ({as_flag(name)}) does not exist in {Path.cwd()}: give {INPUT_FORMATS}.")


def _height_and_width(sides: Sequence[int] | None) -> tuple[int, int] | None:
    if sides is None:
        return None
    if not 1 <= len(sides) <= 2:
        raise InputError(f"--image-size has {len(sides)} numbers: give height and width, or one side of a square.")
    return sides[0], sides[-1]
