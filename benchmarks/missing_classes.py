"""A target that lacks classes: accuracy of some methods, and whether the warning about class proportions comes.

The source is the embedded task's drawn digits with all ten classes, as 64 numbers. The target is scanned handwriting
with all digits, or with 0 to 3 alone. Accuracies are measured on held-out handwriting of the same classes.

    python benchmarks/missing_classes.py --seeds 5

Methods that align the domains are run twice: on a source that is drawn in the estimated class shares of the target,
the default, and on the source as it is.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import avg_pool2d

import vmt
from vmt.data.domains import Domain
from vmt.data.synthetic.digits import digits_task
from vmt.runs.recipes import UNALIGNED

TARGETS = {"0–9": range(10), "0–3": range(4)}


def vectors(samples: Domain, classes: range) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The samples of some classes, as 8×8 numbers."""
    assert samples.y is not None
    kept = samples.subset(torch.nonzero(torch.isin(samples.y, torch.tensor(list(classes)))).squeeze(1))
    assert kept.y is not None
    return avg_pool2d(kept.x.float(), 2).flatten(1).numpy(), kept.y.numpy()


def trial(method: str, match_shares: bool, classes: range, seed: int) -> tuple[float, float, bool]:
    """Accuracy, the share of predictions of classes that the target lacks, and whether a warning came."""
    task = digits_task(seed)
    assert task.target_test is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = vmt.adapt(
            vectors(task.source, range(10)),
            vectors(task.target, classes)[0],
            method,
            match_shares=match_shares,
            seed=seed,
            device="cpu",
            progress=False,
        )
    evaluation = model.evaluate(*vectors(task.target_test, classes))
    assert evaluation.accuracy is not None
    absent = sum(share for k, share in enumerate(evaluation.predicted_share) if k not in classes)
    return evaluation.accuracy, absent, any("proportions" in sentence for sentence in model.about["warnings"])


def contenders(methods: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The methods, and whether the source is drawn in the shares of the target."""
    for method in methods:
        if method not in UNALIGNED:
            yield method, True
        yield method, False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=["source_only", "vmt", "mcc", "vmt_mcc"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    show = partial(print, flush=True)
    show(f"torch {torch.__version__}\n\n| target | method | accuracy (%) | predicted as absent classes (%) | warned |")
    show("|---|---|---|---|---|")
    begun = time.process_time()
    for name, classes in TARGETS.items():
        for method, matched in contenders(arguments.methods):
            trials = [trial(method, matched, classes, seed) for seed in range(arguments.seeds)]
            accuracies, absent, warned = zip(*trials, strict=True)
            spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0
            accuracy = f"{statistics.mean(accuracies):.1%} ± {spread:.1%}".replace("%", "")
            lost = f"{statistics.mean(absent):.1%}".replace("%", "")
            described = f"`{method}`" if matched or method in UNALIGNED else f"`{method}`, source as it is"
            show(f"| {name} | {described} | {accuracy} | {lost} | {sum(warned)} of {len(warned)} |")
    show(f"\n{time.process_time() - begun:.0f} s of CPU time")


if __name__ == "__main__":
    main()
