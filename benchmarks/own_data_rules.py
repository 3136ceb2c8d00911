"""Try rules by which the candidates of ``auto`` answer, on the outputs that own_data_candidates.py has kept.

    python benchmarks/own_data_candidates.py --jobs 2 --further mcc vmt --out build/candidates
    python benchmarks/own_data_rules.py build/candidates --out results/rules_of_samples.json
    python benchmarks/own_data_rules.py build/of-features --features --out results/rules_of_features.json

For each rule: the mean accuracy over the tasks, the mean distance to the best model in the files of each task, the
share of the tasks on which the answer is within 2 points of it, and the tasks on which the answer is more than 1 point
below source only. Tasks have the mean over their seeds. Rules are tried on the candidates of ``auto``, and the rule of
``auto`` also with other trained methods in the files as candidates.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from own_data_tasks import Array

from vmt.disk import write_atomically
from vmt.nets.registry import KERNEL
from vmt.runs.auto import ON_FEATURES, SOURCE_KERNEL, TRAINED, UNADAPTED
from vmt.validators.choice import REFERENCE
from vmt.validators.evidence import Evidence
from vmt.validators.together import OF_FEATURES, OF_SAMPLES, Rule, weigh

NEAR, HARM = 2.0, 1.0
# Rules in which all changed classes count alike, and those in which the source has a say: with fits as they are, and
# with their logarithms.
TEMPERATURES, BY_CHANGED = (0.1, 0.2, 0.4), (0.0, 0.2, 0.4, 0.6)
WITH_SUPPORT = (
    *(Rule(0.1, by_changed, 1.0) for by_changed in (2.0, 3.0, 4.0)),
    *(Rule(*values, 3.0, 0.01) for values in product((0.1, 0.2, 0.3, 0.5), (6.0, 8.0, 10.0, 12.0, 16.0))),
    *(Rule(0.2, 10.0, by_source, 0.01) for by_source in (0.0, 6.0)),
    *(Rule(0.2, 10.0, 3.0, floor) for floor in (0.005, 0.02, 0.05)),
    Rule(0.5, 16.0, 3.0, 0.02),
)

Weights = Mapping[str, float]


@dataclass(frozen=True)
class Case:
    """What the candidates predict on one task with one seed."""

    task: str
    seed: int
    target: Mapping[str, torch.Tensor]
    test: Mapping[str, torch.Tensor]
    labels: torch.Tensor
    source: Mapping[str, torch.Tensor]
    source_labels: torch.Tensor | None
    neighbours: torch.Tensor
    support: torch.Tensor | None
    prior: torch.Tensor
    shares: torch.Tensor | None

    def accuracy(self, weights: Weights) -> float:
        """The accuracy of a weighted mean of candidates on the test part of the target, in %."""
        mean = torch.stack([weight * self.test[name].softmax(1) for name, weight in weights.items()]).sum(0)
        return 100 * float((mean.argmax(1) == self.labels).double().mean())

    def weights(self, rule: Rule, names: Sequence[str], by_support: bool) -> Weights:
        """How much candidates count by a rule; without ``by_support``, all changed classes count alike."""
        evidence = {
            name: Evidence(
                target=self.target[name],
                source=self.source.get(name),
                source_labels=self.source_labels,
                neighbours=self.neighbours,
            )
            for name in names
        }
        support = self.support if by_support else None
        return weigh(evidence, UNADAPTED, self.prior, self.shares, support, rule).weights


def read_case(path: Path) -> Case:
    """A file of own_data_candidates.py."""
    task, seed, _ = path.name.rsplit(".", 2)
    with np.load(path) as file:
        names = [str(name) for name in file["candidates"]]

        def tensor(key: str) -> torch.Tensor:
            array: Array = file[key]
            return torch.from_numpy(array.astype(np.int64 if array.dtype.kind in "iu" else np.float64))

        return Case(
            task,
            int(seed),
            {name: tensor(f"{name}/target") for name in names},
            {name: tensor(f"{name}/test") for name in names},
            tensor("labels/test"),
            {name: tensor(f"{name}/source") for name in names if f"{name}/source" in file},
            tensor("labels/source") if "labels/source" in file else None,
            tensor("neighbours"),
            tensor("support") if "support" in file else None,
            tensor("prior"),
            tensor("shares") if "shares" in file else None,
        )


def rules(found: Sequence[str], on_features: bool) -> Iterator[tuple[str, Callable[[Case], Weights]]]:
    """Every rule that is tried, with its name; ``found`` are the models that every task has."""
    own = [*(ON_FEATURES if on_features else TRAINED), SOURCE_KERNEL, KERNEL]
    used = OF_FEATURES if on_features else OF_SAMPLES

    def by(rule: Rule, names: Sequence[str], by_support: bool) -> Callable[[Case], Weights]:
        return lambda case: case.weights(rule, names, by_support)

    def alike(names: Sequence[str]) -> Callable[[Case], Weights]:
        return lambda _: dict.fromkeys(names, 1.0)

    for name in found:
        yield name, alike([name])
    yield "mean of all", alike(own)
    yield "mean of those that adapt", alike([name for name in own if name not in UNADAPTED])
    for temperature, by_changed in product(TEMPERATURES, BY_CHANGED):
        rule = Rule(temperature, by_changed)
        yield named(rule), by(rule, own, by_support=False)
    for rule in () if on_features else WITH_SUPPORT:
        yield f"{named(rule)} by support", by(rule, own, by_support=True)
    trained = sorted({*found} - {REFERENCE, SOURCE_KERNEL, KERNEL})
    for count in range(1, len(trained) + 1):
        for some in combinations(trained, count):
            names = [REFERENCE, *some, SOURCE_KERNEL, KERNEL]
            if set(names) != set(own):
                yield f"candidates {' and '.join(some)}", by(used, names, by_support=not on_features)


def named(rule: Rule) -> str:
    by_source = f", by_source {rule.by_source}" if rule.by_source else ""
    floor = "" if rule.floor is None else f", floor {rule.floor}"
    return f"temperature {rule.temperature}, by_changed {rule.by_changed}{by_source}{floor}"


def judged(cases: Sequence[Case], rule: Callable[[Case], Weights]) -> dict[str, Any]:
    """What a rule reaches."""
    rows = []
    for task in sorted({case.task for case in cases}):
        of_task = [case for case in cases if case.task == task]
        own = np.mean([case.accuracy(rule(case)) for case in of_task])
        alone = {name: np.mean([case.accuracy({name: 1.0}) for case in of_task]) for name in of_task[0].test}
        rows.append((own, max(alone.values()), alone[REFERENCE]))
    own, best, source = np.array(rows).T
    gain = own - source
    return {
        "mean": round(float(own.mean()), 2),
        "regret": round(float((best - own).mean()), 2),
        "near": round(float((best - own <= NEAR).mean()), 3),
        "harmed": int((gain < -HARM).sum()),
        "lost": round(float(gain[gain < -HARM].sum()), 1),
        "worst": round(float(gain.min()), 1),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder that own_data_candidates.py has written")
    parser.add_argument("--features", action="store_true", help="the tasks are pairs of domains of features")
    parser.add_argument("--out", type=Path, help="write the results to this file as well")
    asked = parser.parse_args(arguments)
    cases = [read_case(path) for path in sorted(asked.folder.glob("*.npz"))]
    everywhere = [name for name in cases[0].test if all(name in case.test for case in cases)]
    tried = {name: judged(cases, rule) for name, rule in rules(everywhere, asked.features)}
    used = named(OF_FEATURES) if asked.features else f"{named(OF_SAMPLES)} by support"
    for name, found in tried.items():
        print(f"{name + (' *' if name == used else ''):48} " + "  ".join(f"{k} {v}" for k, v in found.items()))
    if asked.out is not None:
        from vmt.runs.folder import commit

        about = {"commit": commit(), "torch": torch.__version__, "tasks": len({c.task for c in cases})}
        text = json.dumps({**about, "cases": len(cases), "used": used, "rules": tried}, indent=1)
        write_atomically(asked.out, text.encode())


if __name__ == "__main__":
    main()
