"""The paper's tables, and the experiments that fill their cells."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import floor
from statistics import mean, stdev
from typing import Any

from vmt.errors import InputError
from vmt.paper import notes, numbers
from vmt.paper.experiment import Cell, Experiment, Table

METHOD_OF = {"Source-Only": "source_only", "VADA": "vada", "Co-DA": "co_da", "VMT": "vmt"}
# The upper block of Table 1, as far as its systems exist here. They have networks of their own, without instance norm.
OTHER_METHODS = {"MMD": "mmd", "DANN": "dann_grl", "DRCN": "drcn", "DSN": "dsn", "Π-model (aug)": "pi_model"}
M2S = "mnist-svhn"
REFINED = Experiment(M2S, dirt_t=True)
WITHOUT = replace(REFINED, instance_norm=False)
WARM = replace(REFINED, changes={"warm_up": 0.125})
WARMED = {
    M2S: WARM,
    "svhn-mnist": Experiment("svhn-mnist", dirt_t=True, changes={"warm_up": 0.125, "dirt_t_iterations": 40_000}),
    "mnist-mnistm": Experiment(
        "mnist-mnistm",
        dirt_t=True,
        changes={"warm_up": 0.03125, "iterations": 160_000, "dirt_t_iterations": 40_000},
    ),
}
# A fifth of the paper's iterations, and inverted pictures instead of the warm-up: the best of the table of choices.
INVERTED = replace(REFINED, changes={"augment_invert": 0.5, "iterations": 16_000, "dirt_t_iterations": 24_000})
# On MNIST → MNIST-M, the paper's 0.001 for L_m(target) stands among the settings of DIRT-T: this has it there alone.
FULL_MIXUP = {"lambda_mix_t": 0.01, "dirt_t_lambda_mix_t": 0.001, "dirt_t_iterations": 40_000}
# With a constant λ_t as in the paper, but as short a DIRT-T as the rows with warm-up have on these tasks.
SHORTER = {
    task: Experiment(task, dirt_t=True, changes={"dirt_t_iterations": 40_000})
    for task in ("svhn-mnist", "mnist-mnistm")
}
TARGET_STATISTICS = {"statistics": "target"}
SOURCE_ROW = "Source-Only, source statistics"


def longer(experiment: Experiment, **lengths: int) -> Experiment:
    """The same experiment with phases of other lengths."""
    return replace(experiment, changes={**experiment.changes, **lengths})


def at_160k(experiment: Experiment) -> Experiment:
    """VMT alone for 160,000 iterations."""
    return longer(replace(experiment, dirt_t=False), iterations=160_000)


# --- Table 1 ---


def main_cell(task: str, row: str, instance_norm: bool, seeds: int) -> Cell:
    """A cell of the main table. One run gives both the number before DIRT-T and the number after it."""
    table = numbers.WITH_INSTANCE_NORM if instance_norm else numbers.WITHOUT_INSTANCE_NORM
    number = table[row][numbers.TASKS.index(task)]
    name, _, refined = row.partition(" + ")
    method = METHOD_OF[name]
    # CIFAR → STL has no DIRT-T.
    dirt_t = name != "Source-Only" and task != "cifar-stl"
    changes = TARGET_STATISTICS if name == "Source-Only" else {}
    experiment = Experiment(task, method, instance_norm, dirt_t, changes)
    if (row, task, instance_norm) == ("VMT", M2S, False):  # the paper's number is from iteration 160,000
        experiment = at_160k(experiment)
    passing = ((SHORTER[task], 40_000),) if (row, instance_norm) == ("VMT", True) and task in SHORTER else ()
    return Cell(row, task, experiment, "dirt_t" if refined else method, number, seeds=seeds, passing=passing)


def seeds_of(task: str, row: str, instance_norm: bool) -> int:
    """How many runs a cell of the main table should have."""
    photographs = task in ("cifar-stl", "stl-cifar")
    if not row.startswith("VMT"):
        return 3 if task == M2S and instance_norm and row != "Source-Only" else 1
    return 1 if photographs else 3


def evaluation(instance_norm: bool) -> tuple[Cell, ...]:
    table = numbers.WITH_INSTANCE_NORM if instance_norm else numbers.WITHOUT_INSTANCE_NORM
    order = ("VMT", "VMT + DIRT-T", "VADA", "VADA + DIRT-T", "Co-DA", "Co-DA + DIRT-T", "Source-Only")
    cells = []
    for row in order:
        known = [task for task, number in zip(numbers.TASKS, table[row], strict=True) if number is not None]
        cells += [main_cell(task, row, instance_norm, seeds_of(task, row, instance_norm)) for task in known]
        if instance_norm and row.startswith("VMT"):
            cells += cells_with_warm_up(row, *WARMED)
            cells.append(full_mixup(row))
        if instance_norm and row == "VMT + DIRT-T":
            cells += shorter()
        if not instance_norm and row == "VMT":
            at_40k = numbers.TEN_RUNS["VMT@40K, no IN"]
            passing = ((at_160k(WITHOUT), 40_000),)
            cells.append(
                Cell("VMT at 40,000", M2S, WITHOUT, "vmt", *mean_and_spread(at_40k), 3, ours=True, passing=passing)
            )
        if row == "Source-Only":
            cells.append(source_statistics(instance_norm))
    return tuple(cells)


def source_statistics(instance_norm: bool) -> Cell:
    """Source only with running statistics of source batches, beside the number of the main table."""
    cell = main_cell(M2S, "Source-Only", instance_norm, 1)
    assert cell.experiment is not None
    return replace(cell, row=SOURCE_ROW, experiment=replace(cell.experiment, changes={}), ours=True)


def cells_with_warm_up(row: str, *tasks: str) -> list[Cell]:
    """Cells of VMT with warm-up, beside the paper's numbers of the main table."""
    return [
        replace(
            main_cell(task, row, True, 10 if task == M2S else 3),
            row=f"{row}, warm-up",
            experiment=WARMED[task],
            ours=True,
            passing=(),
        )
        for task in tasks
    ]


def full_mixup(row: str) -> Cell:
    cell = main_cell("mnist-mnistm", row, True, 3)
    assert cell.experiment is not None
    experiment = replace(cell.experiment, changes=FULL_MIXUP)
    return replace(cell, row=f"{row}, L_m(target) 0.01 before DIRT-T", experiment=experiment, ours=True, passing=())


def shorter() -> list[Cell]:
    """DIRT-T of 40,000 iterations after VMT with a constant λ_t."""
    cells = (main_cell(task, "VMT + DIRT-T", True, 3) for task in SHORTER)
    return [
        replace(cell, row="VMT + DIRT-T@40K", experiment=SHORTER[cell.column], ours=True, passing=()) for cell in cells
    ]


def other_systems() -> tuple[Cell, ...]:
    cells = []
    for row, values in numbers.OTHER_SYSTEMS.items():
        method = OTHER_METHODS.get(row)
        for task, number in zip(numbers.TASKS, values, strict=True):
            if number is not None:
                experiment = None if method is None else Experiment(task, method, instance_norm=False)
                cells.append(Cell(row, task, experiment, method or "", number))
    return tuple(cells)


# --- The tables of ten runs on MNIST → SVHN ---


def row_of_ten(
    rows: Mapping[str, Sequence[float]], row: str, experiment: Experiment, phase: str, seeds: int, **others: Any
) -> Cell:
    """A row with ten runs in the paper, of which its table has the mean and the standard deviation."""
    return Cell(row, M2S, experiment, phase, *mean_and_spread(rows[row]), seeds, **others)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and standard deviation, rounded as in the paper."""
    return rounded(mean(values)), rounded(stdev(values))


def rounded(value: float) -> float:
    """A number with one decimal, rounded half up."""
    return floor(10 * value + 0.5 + 1e-9) / 10


def ten_runs() -> tuple[Cell, ...]:
    rows = numbers.TEN_RUNS
    as_paper = {row: mean_and_spread(rows[row]) for row in ("VMT@40K", "VMT + DIRT-T@160K")}
    long_in, long_no_in = longer(REFINED, dirt_t_iterations=280_000), longer(WITHOUT, dirt_t_iterations=260_000)
    in_first, in_second = ((long_in, 40_000),), ((long_in, 200_000),)
    no_in_first = ((at_160k(WITHOUT), 40_000), (long_no_in, 40_000))
    return (
        row_of_ten(rows, "VMT@40K", REFINED, "vmt", 10, passing=in_first),
        Cell("VMT@40K, warm-up", M2S, WARM, "vmt", *as_paper["VMT@40K"], 10, ours=True),
        row_of_ten(rows, "VMT + DIRT-T@160K", REFINED, "dirt_t", 10, passing=in_second),
        Cell("VMT + DIRT-T@160K, warm-up", M2S, WARM, "dirt_t", *as_paper["VMT + DIRT-T@160K"], 10, ours=True),
        Cell("VMT@16K, inverted pictures", M2S, INVERTED, "vmt", *as_paper["VMT@40K"], 10, ours=True),
        Cell(
            "VMT + DIRT-T@24K, inverted pictures",
            M2S,
            INVERTED,
            "dirt_t",
            *as_paper["VMT + DIRT-T@160K"],
            10,
            ours=True,
        ),
        Cell("VMT + DIRT-T@280K", M2S, long_in, "dirt_t", numbers.LONGER["VMT + DIRT-T@280K"]),
        row_of_ten(rows, "VMT@40K, no IN", WITHOUT, "vmt", 10, passing=no_in_first),
        row_of_ten(rows, "VMT@160K, no IN", at_160k(WITHOUT), "vmt", 10),
        row_of_ten(rows, "VMT + DIRT-T@160K, no IN", WITHOUT, "dirt_t", 10, passing=((long_no_in, 200_000),)),
        Cell("VMT + DIRT-T@260K, no IN", M2S, long_no_in, "dirt_t", numbers.LONGER["VMT + DIRT-T@260K, no IN"]),
    )


def three_stages(rows: Mapping[str, Sequence[float]], experiment: Experiment, seeds: int) -> tuple[Cell, ...]:
    """VMT at 40,000 and at 160,000 iterations, and DIRT-T: in this order in the paper's tables."""
    alone = at_160k(experiment)
    first, second, third = rows
    return (
        row_of_ten(rows, first, experiment, "vmt", seeds, passing=((alone, 40_000),)),
        row_of_ten(rows, second, alone, "vmt", seeds),
        row_of_ten(rows, third, experiment, "dirt_t", seeds),
    )


def renamed(cells: Sequence[Cell], *rows: str) -> tuple[Cell, ...]:
    return tuple(replace(cell, row=row) for cell, row in zip(cells, rows, strict=True))


def lambda_t() -> tuple[Cell, ...]:
    rows = numbers.LAMBDA_T
    larger, smaller = replace(WITHOUT, changes={"lambda_t": 0.02}), replace(REFINED, changes={"lambda_t": 0.01})
    of_larger = {row: rows[row] for row in list(rows)[1:4]}
    usual = {row: numbers.TEN_RUNS[row] for row in ("VMT@40K, no IN", "VMT@160K, no IN", "VMT + DIRT-T@160K, no IN")}
    with_in = [row for row in rows if row.startswith("λ_t 0.01")]
    return (
        row_of_ten(rows, next(iter(rows)), larger, "vmt", 1, domain="source", passing=((at_160k(larger), 40_000),)),
        *three_stages(of_larger, larger, 1),
        *renamed(
            three_stages(usual, WITHOUT, 3), *(f"λ_t 0.01, no IN: {row.removesuffix(', no IN')}" for row in usual)
        ),
        *renamed(
            (
                row_of_ten(numbers.TEN_RUNS, "VMT@40K", REFINED, "vmt", 3),
                row_of_ten(numbers.TEN_RUNS, "VMT + DIRT-T@160K", REFINED, "dirt_t", 3),
            ),
            "λ_t 0.06: VMT@40K",
            "λ_t 0.06: VMT + DIRT-T@160K",
        ),
        row_of_ten(rows, with_in[0], smaller, "vmt", 1),
        row_of_ten(rows, with_in[1], smaller, "dirt_t", 1),
    )


def mixup() -> tuple[Cell, ...]:
    ten, hidden = numbers.TEN_RUNS, numbers.ON_HIDDEN
    on_probabilities, on_hidden = (replace(REFINED, changes={"mix": mix}) for mix in ("probabilities", "hidden"))
    return (
        replace(row_of_ten(ten, "VMT@40K", REFINED, "vmt", 3), row="logits"),
        Cell("probabilities", M2S, on_probabilities, "vmt", None, ours=True),
        replace(row_of_ten(hidden, "VMT_inter", on_hidden, "vmt", 1), row="hidden"),
        replace(row_of_ten(ten, "VMT + DIRT-T@160K", REFINED, "dirt_t", 3), row="logits + DIRT-T"),
        Cell("probabilities + DIRT-T", M2S, on_probabilities, "dirt_t", None, ours=True),
        replace(row_of_ten(hidden, "VMT_inter + DIRT-T", on_hidden, "dirt_t", 1), row="hidden + DIRT-T"),
    )


# --- VAT against VMT ---


def variant(row: str, task: str) -> tuple[Experiment, str]:
    """The experiment of a row, and its phase. Without L_m, λ_t is VADA's, from whose paper the numbers are."""
    dirt_t = task != "cifar-stl"
    match row:
        case "L_c":
            lambda_t = 0.01 if task in (M2S, "mnist-mnistm") else 0.1
            return Experiment(task, changes={"vat": False, "mix": None, "lambda_t": lambda_t}), "vmt"
        case "L_c, L_v":
            return Experiment(task, "vada", dirt_t=dirt_t), "vada"
        case "L_c, L_m":
            return Experiment(task, changes={"vat": False}), "vmt"
    return Experiment(task, dirt_t=dirt_t), "vmt"


VARIANTS = {row: variant(row, M2S) for row in numbers.VAT_VERSUS_VMT}


def vat_versus_vmt() -> tuple[Cell, ...]:
    return tuple(
        Cell(row, task, *variant(row, task), paper=number, seeds=3 if (row, task) == ("L_c, L_v, L_m", M2S) else 1)
        for row, values in numbers.VAT_VERSUS_VMT.items()
        for task, number in zip(numbers.TASKS, values, strict=True)
    )


UPPER_BOUND = Cell(
    "Train on Target",
    M2S,
    Experiment(M2S, "target_only", instance_norm=False),
    "target_only",
    numbers.TRAINED_ON_TARGET,
)

# --- Choices ---

CHOOSE_ON = 1_000


def choices() -> tuple[Cell, ...]:
    """The candidates of every choice that was made on a test set, each with 1,000 samples held apart to choose by."""

    def candidates(of: str, phase: str, *experiments: Experiment) -> tuple[Cell, ...]:
        return tuple(
            Cell(f"{of}: {each.name.split('_in', 1)[1].strip('_') or 'as the paper'}", each.task, each, phase, None)
            for each in experiments
        )

    def on(base: Experiment, *changes: Mapping[str, Any]) -> list[Experiment]:
        return [replace(base, changes={**base.changes, **each}, choose_on=None) for each in changes]

    warm: tuple[dict[str, Any], ...] = (
        {},
        {"warm_up": 0.0625},
        {"warm_up": 0.125},
        {"warm_up": 0.25},
        {"warm_up": 0.5},
    )
    inverted: tuple[dict[str, Any], ...] = (
        {"warm_up": 0.125},
        {"warm_up": 0.125, "augment_invert": 0.5},
        {"augment_invert": 0.5},
        {"warm_up": 0.125, "augment_invert": 0.5, "augment_crop": 0.6},
    )
    vmt, mnistm = Experiment(M2S), Experiment("mnist-mnistm")
    of_mnistm: tuple[dict[str, Any], ...] = (
        {},
        {"lambda_mix_t": 0.01},
        {"lambda_t": 0.03},
        {"warm_up": 0.125},
        {"warm_up": 0.03125, "iterations": 160_000},
    )
    cells = (
        *candidates("warm-up", "vmt", *on(vmt, *warm)),
        *candidates("inverted pictures", "vmt", *on(vmt, *({"iterations": 10_000, **each} for each in inverted))),
        *candidates("λ_t", "vmt", *on(vmt, *({"lambda_t": each} for each in (0.02, 0.04, 0.08)))),
        *candidates("λ_p of Co-DA", "co_da", *on(Experiment(M2S, "co_da"), {}, {"lambda_p": 0.1}, {"lambda_p": 0.001})),
        *candidates("MNIST → MNIST-M", "vmt", *on(mnistm, *of_mnistm)),
        *candidates("SVHN → MNIST", "vmt", *on(Experiment("svhn-mnist"), {}, {"warm_up": 0.125})),
    )
    return Table("", "", cells).choosing_on(CHOOSE_ON).cells


TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        Table("evaluation", "Table 1, with instance-normalised input", evaluation(instance_norm=True), notes.MAIN_IN),
        Table(
            "evaluation-no-in",
            "Table 1, without instance-normalised input",
            evaluation(instance_norm=False),
            notes.MAIN_NO_IN,
        ),
        Table("other-systems", "Table 1, systems of other papers", other_systems(), notes.OTHER_SYSTEMS),
        Table("ten-runs", "Table 2, runs of MNIST → SVHN", ten_runs(), notes.TEN_RUNS),
        Table(
            "probabilities",
            "Table 3, mixup on probabilities, MNIST → SVHN without instance norm",
            three_stages(numbers.ON_PROBABILITIES, replace(WITHOUT, changes={"mix": "probabilities"}), 1),
            notes.PROBABILITIES,
        ),
        Table("vat-versus-vmt", "Table 4, VAT against VMT, with instance norm", vat_versus_vmt(), notes.VAT_VERSUS_VMT),
        Table("lambda-t", "Tables 6 and 7, the effect of λ_t on MNIST → SVHN", lambda_t(), notes.LAMBDA_T),
        Table(
            "mixup",
            "Table 8, where virtual labels are mixed, MNIST → SVHN with instance norm",
            mixup(),
            notes.MIXUP,
        ),
        Table(
            "frozen-lambda",
            "λ drawn once per run, as in the authors' program, MNIST → SVHN with instance norm",
            tuple(
                replace(
                    row_of_ten(numbers.TEN_RUNS, row, replace(REFINED, changes={"fresh_lambda": False}), phase, 10),
                    ours=True,
                )
                for row, phase in (("VMT@40K", "vmt"), ("VMT + DIRT-T@160K", "dirt_t"))
            ),
            notes.FROZEN_LAMBDA,
        ),
        Table("upper-bound", "Trained on target labels, SVHN without instance norm", (UPPER_BOUND,), notes.COMMON),
        Table("choices", "The choices, made on 1,000 target images held apart", choices(), notes.CHOICES),
    )
}


def cell_of(table: str, row: str, task: str = M2S) -> Cell:
    return next(cell for cell in TABLES[table].cells if (cell.row, cell.column) == (row, task))


def in_main(task: str, row: str, instance_norm: bool = True) -> Cell:
    """A cell of the main table, for the table of priorities."""
    cell = cell_of("evaluation" if instance_norm else "evaluation-no-in", row, task)
    return cell if instance_norm else replace(cell, row=f"{row}, no IN")


VMT_ROWS = ("VMT", "VMT + DIRT-T")
BASELINES = ("VADA", "VADA + DIRT-T", "Co-DA", "Co-DA + DIRT-T", "Source-Only")
DIGIT_TASKS = numbers.TASKS[1:4]

TABLES["priority"] = Table(
    "priority",
    "The most important numbers of all tables, in order",
    (
        *(cell_of("ten-runs", row) for row in ("VMT@40K, warm-up", "VMT + DIRT-T@160K, warm-up")),
        *(cell_of("ten-runs", row) for row in ("VMT@40K", "VMT + DIRT-T@160K")),
        *(replace(cell, row=f"{cell.row}, frozen λ") for cell in TABLES["frozen-lambda"].cells),
        *(in_main(M2S, row) for row in BASELINES),
        cell_of("evaluation", SOURCE_ROW),
        *(in_main(task, row) for task in DIGIT_TASKS for row in VMT_ROWS),
        *shorter(),
        *(full_mixup(row) for row in VMT_ROWS),
        *(cell for row in VMT_ROWS for cell in cells_with_warm_up(row, "svhn-mnist", "mnist-mnistm")),
        *(in_main(task, row) for task in DIGIT_TASKS for row in BASELINES),
        *(replace(cell_of("ten-runs", row), seeds=3) for row in ("VMT@40K, no IN", "VMT + DIRT-T@160K, no IN")),
        *(in_main(M2S, row, False) for row in ("VMT", *BASELINES)),
        replace(cell_of("evaluation-no-in", SOURCE_ROW), row=f"{SOURCE_ROW}, no IN"),
        UPPER_BOUND,
        *(in_main(task, row, False) for task in DIGIT_TASKS for row in (*VMT_ROWS, *BASELINES)),
        *TABLES["probabilities"].cells,
        *(cell_of("vat-versus-vmt", row) for row in numbers.VAT_VERSUS_VMT),
        *TABLES["lambda-t"].cells,
        *TABLES["mixup"].cells,
        *TABLES["other-systems"].cells,
        *(in_main(task, "VMT") for task in ("cifar-stl", "stl-cifar")),
    ),
    notes.PRIORITY,
)


def find_table(name: str) -> Table:
    if name == "all":
        in_order = (TABLES["priority"], *TABLES.values())
        return Table("all", "Every table", tuple(cell for table in in_order for cell in table.cells))
    if name not in TABLES:
        raise InputError(f"there is no table {name!r}: choose one of {', '.join(TABLES)}, or all.")
    return TABLES[name]
