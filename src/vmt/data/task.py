"""A task: a pair of domains with their held-out parts, checked, resized and ready for the network."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from vmt.data.checks import check_held_out, check_pair
from vmt.data.domains import Domain
from vmt.data.preprocess import Preprocess, preprocess_for
from vmt.errors import InputError

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

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample as the network sees it: (features,) or (channels, height, width)."""
        preprocess = self.preprocess
        return (preprocess.channels,) if preprocess.size is None else (preprocess.channels, *preprocess.size)

    def to(self, device: torch.device | str) -> "Task":
        moved: dict[str, Any] = {name: p.to(device) for name, p in vars(self).items() if isinstance(p, Domain)}
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
) -> Task:
    """Check that the domains belong together, and resize their images to one size.

    Without `source_test`, a tenth of the source is held out. `classes` are the names of the classes or their number; by
    default, the classes are counted in the source labels. Images are resized to `size`, by default the larger of the
    two domains' sizes. `target_labelled` are target samples whose labels may be trained on
    (:func:`vmt.methods.with_target_labels`).

    >>> source = Domain(torch.randn(40, 3), torch.arange(40) % 2, "source")
    >>> task = make_task(source, Domain(torch.randn(30, 3), None, "target"), classes=["no", "yes"])
    >>> len(task.source), len(task.source_test), task.classes
    (36, 4, ('no', 'yes'))
    """
    names = _class_names(classes)
    count = check_pair(source, target, len(names) or None)
    for part, whole in ((source_test, source), (target_test, target), (target_labelled, target)):
        if part is not None:
            check_held_out(part, whole, count)
    if source_test is None:
        source, held_out = source.split(HELD_OUT_FRACTION, HELD_OUT_SEED)
        source_test = replace(held_out, name=f"{source.name} held out")
    # From the training parts alone: held-out samples must not influence what the network sees.
    preprocess = preprocess_for(source, target, size)
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
