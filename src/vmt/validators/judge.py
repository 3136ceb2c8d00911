r"""Whether adapting helps, by the agreement with a classifier that adapts in another way.

No score of one answer alone tells whether it is right. Two answers for the same samples can be compared, if there is a
third classifier, the judge, whose errors are independent of theirs: the better answer agrees with it more often. With
K classes, an accuracy p of the judge and errors that fall on every other class alike, an answer of accuracy q agrees
with it on

.. math:: p\,q + \frac{(1-p)(1-q)}{K-1}

of the samples, which grows with q if the judge is better than guessing, p > 1/K.
"""

import math
from dataclasses import dataclass

from torch import Tensor

# A difference must exceed this multiple of its standard deviation by chance; that of the class shares has the same.
NOISE_FACTOR = 1.5


@dataclass(frozen=True)
class Verdict:
    """How often a judge agrees with the answers before and after adaptation."""

    before: float
    """The share of the samples on which it agrees with the answer before."""
    after: float
    noise: float
    """The standard deviation of the difference, if only chance decides between both answers."""

    @property
    def against(self) -> bool:
        """Whether the judge agrees more often with the answer before, beyond what chance explains."""
        return self.before - self.after > NOISE_FACTOR * self.noise

    def doubt(self) -> str | None:
        """A sentence if the judge is against the answer after adaptation; otherwise None."""
        if not self.against:
            return None
        return (
            "whether adapting helps is in doubt: the kernel classifier, which adapts in another way, agrees with those "
            f"that know the source alone on {self.before:.0%} of the target and with the adapted networks on "
            f"{self.after:.0%}; label some samples of the target and compare with vmt evaluate"
        )


def judged(judge: Tensor, before: Tensor, after: Tensor) -> Verdict:
    """Compare two answers by a judge; all are predicted classes (N) of the same samples.

    Where both answers are the same, the judge tells nothing. Elsewhere, chance alone would let it agree with either
    equally often.

    >>> import torch
    >>> judged(torch.tensor([0, 1, 2, 2]), torch.tensor([0, 1, 2, 1]), torch.tensor([0, 0, 0, 1]))
    Verdict(before=0.75, after=0.25, noise=0.353...)
    """
    with_before, with_after = judge == before, judge == after
    deciding = int((with_before != with_after).sum())
    count = max(1, len(judge))
    return Verdict(float(with_before.sum()) / count, float(with_after.sum()) / count, math.sqrt(deciding) / count)
