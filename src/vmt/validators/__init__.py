"""Scores for choosing a model without target labels. Higher is better for every one of them.

Each validator is a plain function of logits and features. :data:`VALIDATORS` lists what each needs; :func:`scores`
computes those for which the evidence is complete:

>>> import torch
>>> from vmt.validators import Evidence, scores
>>> sorted(scores(Evidence(target=torch.randn(50, 3))))
['bnm', 'diversity', 'entropy', 'im', 'mano', 'snd']

During training they are computed at every evaluation (``evaluate_every``) on a fixed sample of each domain
(``validate_samples``): the *training* part of the target, without labels, and held-out source samples. Beside
``target`` and ``source``, the record in ``log.jsonl`` then has

``validators``
    a number for each name, or null where it is not finite;
``alarm``
    null, or the message of :func:`collapse_alarm`: no score of a collapsed model can be trusted;
``validated``
    the number of target samples that were scored; scores of different numbers of samples are not comparable.
"""

from typing import TYPE_CHECKING

from vmt._imports import lazy

if TYPE_CHECKING:
    from vmt.validators.choice import Choice, Finding, choose
    from vmt.validators.class_shares import ClassShares, corrected_shares, estimate_class_shares
    from vmt.validators.clusters import (
        adjusted_mutual_information,
        ami_source,
        class_ami,
        nearest_neighbours,
        neighbour_agreement,
    )
    from vmt.validators.evidence import Evidence, scores
    from vmt.validators.predictions import (
        agreement,
        bnm,
        collapse_alarm,
        diversity,
        entropy,
        information_maximisation,
        mano,
        mixval,
        partners,
        snd,
        source_accuracy,
    )
    from vmt.validators.refinement import change_on_target, refined_scores
    from vmt.validators.registry import DEFAULT, VALIDATORS, Validator, check_name
    from vmt.validators.risk import density_ratio, dev, dev_risk

__all__ = [
    "DEFAULT",
    "VALIDATORS",
    "Choice",
    "ClassShares",
    "Evidence",
    "Finding",
    "Validator",
    "adjusted_mutual_information",
    "agreement",
    "ami_source",
    "bnm",
    "change_on_target",
    "check_name",
    "choose",
    "class_ami",
    "collapse_alarm",
    "corrected_shares",
    "density_ratio",
    "dev",
    "dev_risk",
    "diversity",
    "entropy",
    "estimate_class_shares",
    "information_maximisation",
    "mano",
    "mixval",
    "nearest_neighbours",
    "neighbour_agreement",
    "partners",
    "refined_scores",
    "scores",
    "snd",
    "source_accuracy",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(__all__, "vmt.validators.predictions"),
        **dict.fromkeys(("Choice", "Finding", "choose"), "vmt.validators.choice"),
        **dict.fromkeys(
            ("adjusted_mutual_information", "ami_source", "class_ami", "nearest_neighbours", "neighbour_agreement"),
            "vmt.validators.clusters",
        ),
        **dict.fromkeys(("ClassShares", "corrected_shares", "estimate_class_shares"), "vmt.validators.class_shares"),
        **dict.fromkeys(("Evidence", "scores"), "vmt.validators.evidence"),
        **dict.fromkeys(("change_on_target", "refined_scores"), "vmt.validators.refinement"),
        **dict.fromkeys(("DEFAULT", "VALIDATORS", "Validator", "check_name"), "vmt.validators.registry"),
        **dict.fromkeys(("density_ratio", "dev", "dev_risk"), "vmt.validators.risk"),
    },
)
