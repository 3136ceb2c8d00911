"""Both domains in the arrays of scikit-learn: which samples are of which, and which labels are known."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import column_or_1d

from vmt.data.labels import UNKNOWN, is_missing
from vmt.errors import InputError


def target_numbers(labels: Any, classes: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The class number of each target sample, −1 where its label is not known."""
    if labels is None:
        raise InputError("use_target_labels needs labels of the target: give y_target, or sample_domain.")
    number = {label: k for k, label in enumerate(classes.tolist())}
    if -1 in number:
        raise InputError(
            "−1 is a label of the source, and marks unknown ones of the target: name that class otherwise."
        )
    given = np.asarray(labels, object).ravel().tolist()
    if len(given) != count:
        raise InputError(
            f"y_target has {len(given)} labels for {count} samples: give one each, −1 where it is unknown."
        )
    known = known_labels(labels, classes)
    strange = [label for label, is_known in zip(given, known, strict=True) if is_known and label not in number]
    if strange:
        raise InputError(f"the target has the label {strange[0]!r}, which the source lacks: correct or remove it.")
    return np.array([number.get(label, -1) for label in given], np.int64)


def known_labels(labels: Any, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels are known: −1 and the like stand for one that is not, unless they are classes themselves.

    >>> known_labels([0, 1, -1], np.array([0, 1])), known_labels([1, -1], np.array([-1, 1]))
    (array([ True,  True, False]), array([ True,  True]))
    """
    found = set(classes.tolist())
    given = np.asarray(labels, object).ravel().tolist()
    return np.array([not (is_missing(label) or str(label) in UNKNOWN) or label in found for label in given], bool)


def source_rows(sample_domain: Any, count: int) -> NDArray[np.bool_]:
    """Which samples are of the source."""
    try:
        domains = column_or_1d(sample_domain).astype(np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"sample_domain holds no row of numbers ({error}): give one per sample.") from error
    if len(domains) != count:
        raise InputError(f"sample_domain has {len(domains)} entries for {count} samples: give one per sample.")
    if not (abs(domains) > 0).all():
        raise InputError(
            "sample_domain has zeros or NaN: give positive numbers for the source, negative ones for the target."
        )
    is_source: NDArray[np.bool_] = domains > 0
    for part, missing in ((is_source, "positive entry, so no source"), (~is_source, "negative entry, so no target")):
        if not part.any():
            raise InputError(f"sample_domain has no {missing}: mark the source positive and the target negative.")
    return is_source
