"""A task: a pair of domains with their held-out parts, resized and ready for the network.

The second half of the module checks that the domains belong together: shapes, value ranges, units, features, labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vmt.data.domains import Domain, column_names, frame_values, reorder_columns
from vmt.data.framing import PictureFormat
from vmt.data.preprocess import (
    BYTES,
    CONSTANT,
    SIGNED,
    UNIT,
    Preprocess,
    extremes,
    fill_missing,
    fill_values,
    in_units_of,
    moments,
    preprocess_for,
    standardise,
    value_range,
)
from vmt.data.stored import same_samples
from vmt.device import default_torch_settings
from vmt.errors import InputError
from vmt.errors import whole as whole_number

if TYPE_CHECKING:
    from vmt.data.files.features import Extractor

HELD_OUT_FRACTION = 0.1
HELD_OUT_SEED = 0


@dataclass(frozen=True, eq=False)
class Task:
    """Everything that a run is trained and evaluated on."""

    name: str
    source: Domain  # labelled, trained on
    source_test: Domain | None  # labelled, held out; shows whether a run has collapsed
    target: Domain  # trained on; only target_only uses its labels, if it has any
    target_test: Domain | None  # labelled, held out, used for reported numbers only
    classes: tuple[str, ...]
    preprocess: Preprocess
    target_labelled: Domain | None = None  # the part of the target whose labels may be trained on
    target_choice: Domain | None = None  # labelled, neither trained on nor reported: for choices between runs
    backbone: "Extractor | None" = None  # the network that computed the samples, if they are features of pictures

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample as the network sees it: (features,) or (channels, height, width)."""
        preprocess = self.preprocess
        return (preprocess.channels,) if preprocess.size is None else (preprocess.channels, *preprocess.size)

    @property
    def bytes(self) -> int:
        """The size of all samples."""
        return sum(part.bytes for part in vars(self).values() if isinstance(part, Domain))

    def to(self, device: torch.device | str, labels_only: bool = False) -> "Task":
        """The task on a device; with `labels_only`, the samples stay where they are."""
        parts = {name: part for name, part in vars(self).items() if isinstance(part, Domain)}
        moved: dict[str, Any] = {name: part.to(device, labels_only) for name, part in parts.items()}
        return replace(self, **moved)


def make_task(
    source: Domain,
    target: Domain,
    *,
    source_test: Domain | None = None,
    target_test: Domain | None = None,
    target_labelled: Domain | None = None,
    classes: Sequence[str] | int | None = None,
    name: str = "own data",
    size: tuple[int, int] | None = None,
    format: PictureFormat | None = None,
    impute: str | None = None,
    standardise_per_domain: bool = False,
) -> Task:
    """Check that the domains belong together, resize their images to one size, and fill in missing values of vectors.

    Without `source_test`, a tenth of the source is held out. `classes` are the names of the classes or their number; by
    default, the classes are counted in the source labels. Images are resized to `size`, by default the larger of the
    two domains' sizes; `format` says how, and what they are normalised with. `target_labelled` are target samples whose
    labels may be trained on (:func:`vmt.methods.with_target_labels`).

    `impute` is ``"mean"`` or ``"median"``: a missing value (NaN) becomes that of its feature in its domain. Without it,
    missing values are refused. Vectors are standardised over both domains together or, with `standardise_per_domain`,
    in each domain by itself; the domains may then have different units. At prediction, the values of the target are
    used for both.

    >>> source = Domain(torch.randn(40, 3), torch.arange(40) % 2, "source")
    >>> task = make_task(source, Domain(torch.randn(30, 3), None, "target"), classes=["no", "yes"])
    >>> len(task.source), len(task.source_test), task.classes
    (36, 4, ('no', 'yes'))
    """
    names = _class_names(classes)
    if standardise_per_domain and source.is_images:
        raise InputError(f"standardise_per_domain is for vectors, but {source.name} holds images: leave it out.")
    for part in (source, target, source_test, target_test, target_labelled):
        if impute is None and part is not None:
            _refuse_missing(part)
    # Each domain may have its own unit, if it is standardised by itself.
    count = check_pair(source, target, len(names) or None, compare_spreads=not standardise_per_domain)
    for part, whole in ((source_test, source), (target_test, target), (target_labelled, target)):
        if part is not None:
            check_held_out(part, whole, count)
    if source_test is None:
        source, held_out = source.split(HELD_OUT_FRACTION, HELD_OUT_SEED)
        source_test = replace(held_out, name=f"{source.name} held out")
    # From the training parts alone: held-out samples must not influence what the network sees.
    fill = None
    if impute is not None:
        source, source_test, fill = _imputed(source, source_test, target, impute)
        target = replace(target, x=fill_missing(target.x, fill))
        check_pair(source, target, count, compare_spreads=not standardise_per_domain)  # now for all values
    if standardise_per_domain:
        preprocess = standardise(target)
        source, source_test = (in_units_of(part, standardise(source), preprocess) for part in (source, source_test))
    else:
        preprocess = preprocess_for(source, target, size, format)
    preprocess = replace(preprocess, fill=fill)
    return Task(
        name=name,
        source=_fit(source, preprocess),
        source_test=_fit(source_test, preprocess),
        target=_fit(target, preprocess),
        target_test=None if target_test is None else _fit(target_test, preprocess),
        classes=names or tuple(str(k) for k in range(count)),
        preprocess=preprocess,
        target_labelled=None if target_labelled is None else _fit(target_labelled, preprocess),
    )


def hold_apart(task: Task, count: int) -> Task:
    """The task without ``count`` labelled target samples, which are kept apart as its ``target_choice``.

    The paper chooses settings by 1,000 labelled samples of the target's training set. They are drawn at random, the
    same ones for every run, and are not trained on. If the accuracy is measured on the target samples themselves, they
    are left out there as well.

    >>> labelled = Domain(torch.randn(40, 3), torch.arange(40) % 2, "target")
    >>> task = hold_apart(make_task(labelled, labelled), 10)
    >>> len(task.target), len(task.target_choice)
    (30, 10)
    """
    target, count = task.target, whole_number(count, "choose_on")
    if target.y is None:
        raise InputError(
            f"choose_on needs the labels of {target.name}, and not all of its samples have one: label them, or leave "
            "choose_on out."
        )
    if task.target_labelled is not None:
        raise InputError(
            "choose_on holds target labels apart, but they are to be trained on: leave out one of the two."
        )
    if not 1 <= count <= len(target) - 2:
        raise InputError(
            f"choose_on is {count}, but {target.name} has {len(target)} samples: give a number from 1 to "
            f"{len(target) - 2}."
        )
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(HELD_OUT_SEED))
    apart, kept = order[:count].sort().values, order[count:].sort().values
    test = task.target_test
    if test is not None and same_samples(test.x, target.x):
        test = test.subset(kept)
    choice = replace(target.subset(apart), name=f"{target.name}, held apart for choices")
    return replace(task, target=target.subset(kept), target_test=test, target_choice=choice)


def _imputed(
    source: Domain, source_test: Domain, target: Domain, impute: str
) -> tuple[Domain, Domain, tuple[float, ...]]:
    """The source and its held-out part without missing values, and the values that replace those of the target."""
    own, others = fill_values(source, impute), fill_values(target, impute)
    if empty := torch.nonzero(own.isnan()).flatten().tolist():
        raise InputError(f"{_feature(source, empty[0])} has no value at all in {source.name}: leave it out.")
    # A feature that the target never has is filled in with the value of the source.
    fill = tuple(torch.where(others.isnan(), own, others).tolist())
    parts = [replace(part, x=fill_missing(part.x, tuple(own.tolist()))) for part in (source, source_test)]
    return parts[0], parts[1], fill


def _refuse_missing(samples: Domain) -> None:
    if samples.is_images or not bool(samples.x.aminmax().max.isnan()):
        return
    missing = samples.x.isnan()
    row, column = torch.nonzero(missing)[0].tolist()
    raise InputError(
        f"{samples.name} has {int(missing.sum())} missing values (first: sample {row}, "
        f"{_feature(samples, column)}): fill them in, or let vmt do that with impute='mean' or 'median'."
    )


def _feature(samples: Domain, place: int) -> str:
    return f"the column {samples.features[place]!r}" if samples.features else f"feature {place}"


def _fit(samples: Domain, preprocess: Preprocess) -> Domain:
    return replace(samples, x=preprocess.fit(samples.x))


def _class_names(classes: Sequence[str] | int | None) -> tuple[str, ...]:
    if classes is None:
        return ()
    # As plain text: NumPy's numbers, which np.unique returns, could not be saved.
    names = tuple(str(name) for name in (range(classes) if isinstance(classes, int) else classes))
    if len(names) < 2 or len(set(names)) != len(names):
        raise InputError(f"classes={classes!r} must name two or more different classes.")
    return names


# A column whose standard deviation is below this fraction of its mean has only a handful of different float32 values.
SMALLEST_SPREAD = 2.0**-22
# A feature is nearly constant in the source if its spread is below this fraction of the one in the target, or if fewer
# than FEW_DIFFERENT of its values differ from the usual one, but more than this share of those of the target.
NARROW, FEW_DIFFERENT, COMMON = 0.02, 8, 0.1
# Two measurements of the same features in the same unit do not differ in spread by this factor.
MAX_SPREAD_RATIO = 50.0

REMEDIES = {
    (BYTES, UNIT): "divide {} by 255 in floating point, or multiply {} by 255",
    (BYTES, SIGNED): "divide {} by 127.5 and subtract 1, or add 1 to {} and multiply by 127.5",
    (UNIT, SIGNED): "multiply {} by 2 and subtract 1, or add 1 to {} and halve it",
}


def check_pair(source: Domain, target: Domain, classes: int | None = None, *, compare_spreads: bool = True) -> int:
    """Refuse domains that do not belong together; return the number of classes.

    Without `compare_spreads`, the features of vectors may have different units in the two domains.

    >>> bright = Domain(torch.rand(8, 1, 6, 6), torch.arange(8) % 2, "scans")
    >>> check_pair(bright, Domain(torch.rand(8, 1, 6, 6) * 255, None, "photographs"))
    Traceback (most recent call last):
    vmt.errors.InputError: scans is in 0–1 and photographs in 0–255: divide photographs by 255 in floating point, ...
    """
    _check_samples(source, target, compare_spreads)
    if len(target) < 2:
        raise InputError(
            f"{target.name} has 1 sample: give it two or more, because the samples of a batch must differ."
        )
    return _check_classes(source, target, classes)


def check_held_out(part: Domain, whole: Domain, classes: int) -> None:
    """Refuse a held-out part that does not fit the domain that it belongs to."""
    if part.y is None:
        raise InputError(
            f"{part.name} has no labels: add them, because a held-out domain is for measuring the accuracy."
        )
    _check_samples(part, whole)
    if part.is_images and part.x.shape[1] > whole.x.shape[1]:
        raise InputError(f"{part.name} is in colour and {whole.name} in grey: convert {part.name} to grey.")
    _check_label_range(part, part.y, classes)


def _check_samples(first: Domain, second: Domain, compare_spreads: bool = True) -> None:
    _check_shapes(first, second)
    if first.is_images:
        _check_ranges(first, second)
    elif compare_spreads:
        _check_spreads(first, second)
    else:
        for samples in (first, second):
            extremes(samples)


def _check_shapes(first: Domain, second: Domain) -> None:
    if first.is_images != second.is_images:
        images, vectors = (first, second) if first.is_images else (second, first)
        raise InputError(
            f"{images.name} holds images and {vectors.name} vectors: pass both as images or both as vectors."
        )
    a, b = first.x.shape[1], second.x.shape[1]
    if first.is_images and a != b and {a, b} != {1, 3}:
        raise InputError(
            f"{first.name} has {a} channels and {second.name} has {b}: convert both to grey or both to RGB."
        )
    if not first.is_images and a != b:
        raise InputError(f"{first.name} has {a} features and {second.name} has {b}: give both the same features.")
    if first.features and second.features and first.features != second.features:
        raise InputError(
            f"the columns of {first.name} and {second.name} differ in names or order: give both the same columns, or "
            "read one with read_own(…, like=the other)."
        )


def _check_ranges(first: Domain, second: Domain) -> None:
    ranges = value_range(first), value_range(second)
    if ranges[0] == ranges[1]:
        return
    if ranges in REMEDIES:
        remedy = REMEDIES[ranges].format(first.name, second.name)
    else:
        remedy = REMEDIES[ranges[1], ranges[0]].format(second.name, first.name)
    raise InputError(f"{first.name} is in {ranges[0].label} and {second.name} in {ranges[1].label}: {remedy}.")


def _check_spreads(first: Domain, second: Domain) -> None:
    # Standardising both domains together would hide a difference of units from the user, but not from the network.
    for samples in (first, second):
        extremes(samples)
    a, b = (moments(samples.x)[1] for samples in (first, second))
    varying = (a > 0) & (b > 0)
    if not varying.any():
        return
    ratio = float((a / b)[varying].median())
    if not 1 / MAX_SPREAD_RATIO < ratio < MAX_SPREAD_RATIO:
        wide, narrow = (first, second) if ratio > 1 else (second, first)
        raise InputError(
            f"the features of {wide.name} spread {max(ratio, 1 / ratio):.3g} times as wide as those of "
            f"{narrow.name}: bring both to the same unit (0–255 against 0–1 is the usual cause), or standardise each "
            "domain by itself (--standardise-per-domain)."
        )


def _check_classes(source: Domain, target: Domain, classes: int | None) -> int:
    if source.y is None:
        raise InputError(f"{source.name} has no labels: add them, because the source must be labelled.")
    present = set(source.y.tolist())
    if classes is None:
        classes = int(source.y.max()) + 1
        if 1 < len(present) < classes:
            absent = next(k for k in range(classes) if k not in present)
            if present == set(range(1, classes)):
                raise InputError(
                    f"the labels of {source.name} are numbers from 1: subtract 1, because class numbers begin at 0, or "
                    "pass the labels as names, y.astype(str)."
                )
            raise InputError(
                f"the labels of {source.name} reach {classes - 1}, but none is {absent}: number the classes from 0 "
                "without gaps (or, from Python, pass the names of all classes as classes=)."
            )
    _check_label_range(source, source.y, classes)
    if len(present) < 2:
        raise InputError(f"{source.name} has only samples of class {int(source.y[0])}: give it two classes or more.")
    if target.y is not None:
        _check_label_range(target, target.y, classes)
    return classes


def _check_label_range(samples: Domain, labels: Tensor, classes: int) -> None:
    highest = int(labels.max())
    if highest >= classes:
        raise InputError(
            f"{samples.name} has the label {highest}, but the labels of {classes} classes are 0 to "
            f"{classes - 1}: correct the labels or the number of classes."
        )


def check_digits(source: Any, target: Any, features: Sequence[str] = ()) -> None:
    """Refuse a column whose differences float32 cannot represent: it rounds 1,000,000,001 and 1,000,000,002 alike.

    >>> check_digits(np.array([[1e9 + 1, 3]]), np.array([[1e9 + 2, 5]]), ("time", "size"))
    Traceback (most recent call last):
    vmt.errors.InputError: the column 'time' has values near 1e+09 that differ by about 0.5, which 32-bit ...
    """
    parts = [_vectors(reorder_columns(x, features, "x", "the source")) for x in (source, target)]
    if parts[0] is None or parts[1] is None or parts[0].shape[1] != parts[1].shape[1]:
        return
    mean, spread = moments(parts[0], parts[1])
    relative = spread / mean.abs().clamp(min=1e-300)
    lost = torch.nonzero((relative > CONSTANT) & (relative < SMALLEST_SPREAD)).flatten().tolist()
    if lost:
        place = lost[0]
        which = f"the column {features[place]!r}" if features else f"feature {place}"
        raise InputError(
            f"{which} has values near {float(mean[place]):g} that differ by about {float(spread[place]):.2g}, which "
            "32-bit numbers cannot distinguish: subtract the same number from it in both domains, or leave it out."
        )


@default_torch_settings()
def near_constant_features(task: Task) -> list[str]:
    """The features that vary in the target and hardly in the source, so that nothing can be learned about them.

    >>> x, names = torch.randn(200, 3), ("height", "width", "depth")
    >>> source = Domain(x * torch.tensor([1.0, 0.001, 1.0]), torch.arange(200) % 2, "source", names)
    >>> near_constant_features(make_task(source, Domain(x, None, "target", names)))
    ["the column 'width'"]
    """
    source, target = task.source, task.target
    if source.is_images:
        return []
    spreads = [moments(part.x)[1] for part in (source, target)]
    usual = source.x.median(0).values
    others = (source.x != usual).sum(0).cpu()
    differs = (target.x != usual).double().mean(0).cpu()
    # Also a feature that only a few samples of the source have, such as a mark that is set almost never.
    rare = (others < FEW_DIFFERENT) & (differs > COMMON)
    narrow = (spreads[0] < NARROW * spreads[1]) | rare
    return [_feature(source, place) for place in torch.nonzero(narrow).flatten().tolist()]


def _vectors(x: Any) -> Tensor | NDArray[Any] | None:
    """The rows of an array, a tensor or a data frame; None for anything else, such as images."""
    if column_names(x):
        x = frame_values(x, "x")
    if isinstance(x, Tensor):
        return x.detach() if x.ndim == 2 and x.layout == torch.strided and not x.is_complex() else None
    return x if isinstance(x, np.ndarray) and x.ndim == 2 and x.dtype.kind in "iuf" else None
