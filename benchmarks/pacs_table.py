"""The page docs/pacs.md and the printed summary, from the records of benchmarks/pacs.py and pacs_finetune.py."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

Record = Mapping[str, Any]
MODELS = {"last": "last model", "chosen": "chosen without labels", "oracle": "oracle"}
UNADAPTED = ("logistic", "logistic-per-domain", "source_only", "source_kernel")
KERNELS = ("source_kernel", "kernel")
# What a record of auto has and those of its candidates have not.
OF_AUTO = ("picked", "candidates", "alarm", "warnings")
HARM = 0.01  # a loss against the best unadapted row that must be flagged
HEADER = """# Photographs, paintings, cartoons and sketches

<!-- written by benchmarks/pacs.py -->

PACS has 9,991 pictures of seven classes in four domains: photographs, art paintings, cartoons and sketches. A network
with ImageNet weights (EfficientNet-Lite0, 4.7 million parameters) turns each picture into a vector of 1,280 features
once, and everything below is trained on these vectors, on one CPU thread, with the defaults of the library for features
and one recipe for all pairs. The source is a whole domain with its labels, the target a whole domain without; labels of
the target only measure. [What was chosen on other pictures](photographs.md#how-this-was-chosen), and what was not, is
on the page about photographs.

*Last* is the model at the end of a run, *chosen* the one that the default validator picks among the evaluations of the
run without labels, and *oracle* the best of these evaluations by target labels, which nobody has. Numbers in the
literature are mostly oracles. `logistic` is scikit-learn's logistic regression on standardised features; with
`-per-domain`, each domain is standardised by itself. [`auto`](auto.md) trains `source_only`, `mcc`, `vmt` and
`vmt_mcc`, fits the kernel classifier `kernel`, and answers without labels, here always with an average; its oracle is
the best of its candidates.

```console
$ python benchmarks/pacs.py --pictures DATA --backbone pacs_network:features --file pacs.npz
$ python benchmarks/pacs.py --file pacs.npz --seeds 5 --jobs 2
$ python benchmarks/pacs.py --file pacs.npz --table
```
"""
FINETUNED = """## The network trained as well

[`benchmarks/pacs_finetune.py`](../benchmarks/pacs_finetune.py) trains the whole network on a GPU, from its ImageNet
weights, with the [recipe of the library for pretrained networks](photographs.md#training-the-network-as-well), which
was chosen on other pictures: 400 iterations with batches of 32 of each domain, crops and mirrored pictures.

```console
$ python benchmarks/pacs_finetune.py --data PACS --seeds 3 --jobs 4
```

VMT + MCC is the best on three pairs and the worst on the fourth, from sketches to photographs, where each of its runs
ends with an alarm; on average it is above DANN and source only, as on frozen features, and below MCC. *Frozen* is the
last model of the same method on frozen features, from the tables above.
"""


class Results:
    """The newest record of each contender on each pair with each seed."""

    def __init__(self, records: Iterable[Record]) -> None:
        whole = (each for r in records if "failed" not in r for each in with_candidates(r))
        self.records = {(r["contender"], r["pair"], r["seed"]): r for r in whole}
        self.contenders = list(dict.fromkeys(contender for contender, _, _ in self.records))

    def of(self, contender: str, pair: str) -> list[Record]:
        return [r for (name, other, _), r in self.records.items() if (name, other) == (contender, pair)]

    def mean(self, contender: str, pair: str, model: str) -> float:
        found = [r[model] for r in self.of(contender, pair)]
        return float(np.mean(found)) if found else float("nan")

    def over_pairs(self, contender: str, pairs: Sequence[str], model: str) -> float:
        return float(np.mean([self.mean(contender, pair, model) for pair in pairs]))

    def best_unadapted(self, pair: str) -> float:
        found = [self.mean(name, pair, "last") for name in UNADAPTED if name in self.contenders]
        return max((value for value in found if not np.isnan(value)), default=float("nan"))

    def seconds(self, contender: str) -> float:
        return float(np.mean([r["cpu_s"] for (name, _, _), r in self.records.items() if name == contender]))

    def seeds(self, contender: str) -> int:
        return len({seed for name, _, seed in self.records if name == contender})


def with_candidates(record: Record) -> Iterator[Record]:
    """A record and, if it is one of ``auto``, those of the methods that it has trained."""
    yield record
    runs = record.get("runs", {})
    seconds = sum(run["seconds"] for run in runs.values())
    about = {key: value for key, value in record.items() if key not in ("runs", *OF_AUTO)}
    for name, run in runs.items():
        yield {**about, **run, "contender": name, "cpu_s": record["cpu_s"] * run["seconds"] / seconds}
    for name, accuracy in record.get("candidates", {}).items():
        if name in KERNELS:
            yield {**about, "contender": name, "cpu_s": 0.0} | dict.fromkeys(MODELS, accuracy)


def is_flagged(record: Record) -> bool:
    """Whether the run itself said that its result may not be usable."""
    doubtful = bool(record.get("collapsed") or record.get("alarm") or record.get("warnings"))
    return doubtful or record.get("picked") in ("source_only", "source_kernel")


def number(value: float) -> str:
    return "–" if np.isnan(value) else f"{100 * value:.1f}"


def summary(records: Iterable[Record], pairs: Sequence[str]) -> str:
    """A table in plain text: the mean over the pairs, and the pairs on which adaptation did harm."""
    results = Results(records)
    lines = [f"{'contender':24}  seeds   last  chosen  oracle  harm  flagged  false flags    CPU s"]
    for name in sorted(results.contenders, key=lambda name: -results.over_pairs(name, pairs, "last")):
        means = (number(results.over_pairs(name, pairs, model)) for model in MODELS)
        last, picked, best = means
        harmed, flagged, without_reason = harm(results, name, pairs)
        lines.append(
            f"{name:24}  {results.seeds(name):5}  {last:>5}  {picked:>6}  {best:>6}  {harmed:>4}  {flagged:>7}  "
            f"{without_reason:>11}  {results.seconds(name):7.1f}"
        )
    return "\n".join(lines)


def harm(results: Results, contender: str, pairs: Sequence[str]) -> tuple[int, str, str]:
    """The pairs that end more than a point below the best unadapted row, how many of their runs say so, and how many
    runs of the other pairs say so without a reason."""
    harmed = [p for p in pairs if results.mean(contender, p, "last") < results.best_unadapted(p) - HARM]

    def flagged(pairs: Sequence[str]) -> str:
        runs = [r for pair in pairs for r in results.of(contender, pair)]
        return f"{sum(map(is_flagged, runs))}/{len(runs)}"

    return len(harmed), flagged(harmed), flagged([pair for pair in pairs if pair not in harmed])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def finetuned(records: Iterable[Record], frozen: Results | None = None) -> str:
    """Tables of the runs that train the network as well, beside the results on frozen features."""
    trained = Results(records)
    pairs = sorted({pair for _, pair, _ in trained.records})
    names = sorted(trained.contenders, key=lambda name: -trained.over_pairs(name, pairs, "last"))

    def of_frozen(mean: float) -> list[str]:
        return [] if frozen is None else [number(mean)]

    head = [*(f"{text}, %" for text in MODELS.values()), *([] if frozen is None else ["frozen, %"])]
    means = [
        [
            f"`{name}`",
            *(number(trained.over_pairs(name, pairs, model)) for model in MODELS),
            *of_frozen(frozen.over_pairs(name, pairs, "last") if frozen else 0),
        ]
        for name in names
    ]
    rows = []
    for pair in pairs:
        for name in names:
            runs = trained.of(name, pair)
            alarms = sum(bool(run.get("alarm")) for run in runs)
            rows.append(
                [
                    pair.replace("-", " → "),
                    f"`{name}`",
                    str(len(runs)),
                    *(spread(trained, name, pair, model) for model in MODELS),
                    *of_frozen(frozen.mean(name, pair, "last") if frozen else 0),
                    str(alarms),
                ]
            )
    over = table([f"mean over {len(pairs)} pairs", *head], means)
    return over + "\n" + table(["pair", "contender", "runs", *head, "runs with an alarm"], rows)


def page(records: Sequence[Record], pairs: Sequence[str], trained: Sequence[Record] = ()) -> str:
    """The whole page; ``trained`` are the records of pacs_finetune.py."""
    results = Results(records)
    names = sorted(results.contenders, key=lambda name: -results.over_pairs(name, pairs, "last"))
    parts = [HEADER, "## Means over the 12 pairs\n"]
    head = [
        "contender",
        "seeds",
        *(f"{text}, %" for text in MODELS.values()),
        "pairs with harm",
        "of these runs flagged",
        "other runs flagged",
        "CPU seconds",
    ]
    rows = [
        [
            f"`{name}`",
            str(results.seeds(name)),
            *(number(results.over_pairs(name, pairs, model)) for model in MODELS),
            *map(str, harm(results, name, pairs)),
            f"{results.seconds(name):.0f}",
        ]
        for name in names
    ]
    parts.append(table(head, rows))
    parts.append(
        "*Harm*: the last model is more than 1 point below the best of the rows that do not adapt. A run is\n"
        "*flagged* if it collapsed, raised an alarm, warned, or if `auto` stayed with source only. On other pictures,\n"
        "the warning of `auto` [finds less](photographs.md#what-the-warning-is-worth).\n"
    )
    for model, text in MODELS.items():
        parts.append(f"## {text.capitalize()}\n")
        cells = [[pair.replace("-", " → "), *(spread(results, name, pair, model) for name in names)] for pair in pairs]
        parts.append(table(["pair", *(f"`{name}`" for name in names)], cells))
    parts.append("## How it was measured\n")
    ours = list(results.records.values())
    commits, machines, torches = ({r[key] for r in ours} for key in ("commit", "machine", "torch"))
    parts.append(
        f"Mean ± standard deviation over the seeds, in %. Commit {', '.join(sorted(map(str, commits)))}; torch "
        f"{', '.join(sorted(torches))}; one thread of {', '.join(sorted(machines))}; "
        f"{sum(r['cpu_s'] for r in records) / 3600:.1f} CPU hours in all. Logistic regression has no random\n"
        "numbers, so it has one run.\n"
    )
    if trained:
        places = {r["machine"] for r in trained}
        versions = {f"commit {r['commit']}, torch {r['torch']}" for r in trained}
        parts += [
            FINETUNED,
            finetuned(trained, results),
            f"{', '.join(sorted(places))}; {', '.join(sorted(versions))}.\n",
        ]
    return "\n".join(parts)


def spread(results: Results, contender: str, pair: str, model: str) -> str:
    found = [r[model] for r in results.of(contender, pair)]
    if not found:
        return "–"
    return number(float(np.mean(found))) + (f" ± {100 * np.std(found):.1f}" if len(found) > 1 else "")
