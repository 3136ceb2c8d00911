"""The paper's tables as experiments: which runs fill which cell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

from vmt.errors import InputError
from vmt.paper import numbers
from vmt.recipes import Recipe, paper, with_settings


@dataclass(frozen=True)
class Experiment:
    """A run of the paper but for its seed."""

    task: str
    method: str = "vmt"
    instance_norm: bool = True
    dirt_t: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ from the task's recipe."""

    @property
    def name(self) -> str:
        parts = [self.task, self.method, "dirt_t" if self.dirt_t else "", "in" if self.instance_norm else "no-in"]
        parts += [f"{name}={value}" for name, value in self.changes.items()]
        return "_".join(part for part in parts if part).replace("/", "-")

    def recipe(self, seed: int) -> Recipe:
        recipe = paper(self.task, self.method, self.instance_norm, self.dirt_t)
        shared = {n: v for n, v in self.changes.items() if n in ("lambda_t", "mix", "vat")}
        recipe = with_settings(recipe, self.changes, shared)
        return replace(recipe, config=replace(recipe.config, seed=seed))


@dataclass(frozen=True)
class Cell:
    """One number of a table: the end of a phase of an experiment, over some seeds, beside the paper's."""

    row: str
    column: str
    experiment: Experiment
    phase: str
    paper: float | None
    seeds: int = 1


@dataclass(frozen=True)
class Table:
    """A table of the paper; its cells in the order of their worth."""

    name: str
    title: str
    cells: tuple[Cell, ...]

    def runs(self) -> list[tuple[Experiment, int]]:
        """Every run that the table needs, once, the most valuable first."""
        wanted: dict[tuple[str, int], tuple[Experiment, int]] = {}
        for cell in self.cells:
            for seed in range(cell.seeds):
                wanted.setdefault((cell.experiment.name, seed), (cell.experiment, seed))
        return list(wanted.values())


METHOD_OF = {"Source-Only": "source_only", "VADA": "vada", "Co-DA": "co_da", "VMT": "vmt"}


def row_cells(
    task: str, row: str, paper_number: float | None, instance_norm: bool, seeds: int, column: str | None = None
) -> Cell:
    """A cell of the main table. DIRT-T's number comes from the run that also gives the number before it."""
    name, _, refined = row.partition(" + ")
    # A method that DIRT-T follows anywhere is run once, with it; CIFAR → STL has no DIRT-T.
    dirt_t = name != "Source-Only" and task != "cifar-stl"
    method = METHOD_OF[name]
    experiment = Experiment(task, method, instance_norm, dirt_t)
    return Cell(row, column or task, experiment, "dirt_t" if refined else method, paper_number, seeds)


def evaluation(instance_norm: bool) -> tuple[Cell, ...]:
    table = numbers.WITH_INSTANCE_NORM if instance_norm else numbers.WITHOUT_INSTANCE_NORM
    order = ("VMT + DIRT-T", "VMT", "VADA", "Co-DA", "Source-Only", "VADA + DIRT-T", "Co-DA + DIRT-T")
    cells = []
    for row in order:
        for task, number in zip(numbers.TASKS, table[row], strict=True):
            if number is not None:
                seeds = 3 if task == "mnist-svhn" and row.startswith("VMT") else 2 if "VMT" in row else 1
                cells.append(row_cells(task, row, number, instance_norm, seeds))
    return tuple(cells)


def pair(rows: Mapping[str, Iterable[float]], experiment: Experiment, seeds: int) -> tuple[Cell, ...]:
    """Two rows of ten runs each: before and after DIRT-T."""
    before, after = rows.items()
    return tuple(
        Cell(row, "mnist-svhn", experiment, phase, round(mean(values), 1), seeds)
        for (row, values), phase in ((before, "vmt"), (after, "dirt_t"))
    )


def some(rows: Mapping[str, tuple[float, ...]], first: int) -> dict[str, tuple[float, ...]]:
    return dict(list(rows.items())[first : first + 2])


M2S = "mnist-svhn"
REFINED = Experiment(M2S, dirt_t=True)
VARIANTS = {
    "L_c": Experiment(M2S, "vmt", changes={"vat": False, "mix": None}),
    "L_c, L_v": Experiment(M2S, "vada", dirt_t=True),
    "L_c, L_m": Experiment(M2S, "vmt", changes={"vat": False}),
    "L_c, L_v, L_m": REFINED,
}
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table("evaluation", "Table 1, with instance-normalised input", evaluation(instance_norm=True)),
        Table("evaluation-no-in", "Table 1, without instance-normalised input", evaluation(instance_norm=False)),
        Table(
            "ten-runs",
            "Ten runs of MNIST → SVHN",
            (
                *pair(some(numbers.TEN_RUNS, 2), REFINED, 10),
                *pair(some(numbers.TEN_RUNS, 0), replace(REFINED, instance_norm=False), 10),
            ),
        ),
        Table(
            "vat-versus-vmt",
            "VAT against VMT on MNIST → SVHN, with instance norm",
            tuple(
                Cell(row, M2S, experiment, "vada" if experiment.method == "vada" else "vmt", values[0])
                for (row, values), experiment in zip(numbers.VAT_VERSUS_VMT.items(), VARIANTS.values(), strict=True)
            ),
        ),
        Table(
            "probabilities",
            "Mixup on probabilities, MNIST → SVHN without instance norm",
            pair(numbers.ON_PROBABILITIES, replace(REFINED, instance_norm=False, changes={"mix": "probabilities"}), 1),
        ),
        Table(
            "hidden",
            "Mixup on the last hidden layer, MNIST → SVHN with instance norm",
            pair(numbers.ON_HIDDEN, replace(REFINED, changes={"mix": "hidden"}), 1),
        ),
        Table(
            "lambda-t",
            "The effect of λ_t on MNIST → SVHN",
            (
                *pair(some(numbers.LAMBDA_T, 2), replace(REFINED, changes={"lambda_t": 0.01}), 1),
                *pair(some(numbers.LAMBDA_T, 0), replace(REFINED, instance_norm=False, changes={"lambda_t": 0.02}), 1),
            ),
        ),
        Table(
            "upper-bound",
            "Trained on the target's own labels, SVHN without instance norm",
            (
                Cell(
                    "Train on Target",
                    M2S,
                    Experiment(M2S, "target_only", instance_norm=False),
                    "target_only",
                    numbers.TRAINED_ON_TARGET,
                ),
            ),
        ),
    )
}


def find_table(name: str) -> Table:
    if name not in TABLES:
        raise InputError(f"there is no table {name!r}: choose one of {', '.join(TABLES)}.")
    return TABLES[name]
