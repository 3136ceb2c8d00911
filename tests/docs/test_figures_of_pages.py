"""The published numbers are computed anew from the files in results/, without the code that wrote the pages.

Accuracies are decimals in the files, so means are exact fractions here, rounded once, and halves are rounded up. The
number behind ± is the standard deviation of a sample (n − 1).
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from math import isqrt
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.docs.documented import ROOT

RESULTS = ROOT / "results"
WARM = "mnist-svhn_vmt_dirt_t_in_warm_up=0.125"
CONSTANT = "mnist-svhn_vmt_dirt_t_in"
TO_MNIST = "svhn-mnist_vmt_dirt_t_in"
TO_MNISTM = "mnist-mnistm_vmt_dirt_t_in"
LATER = "_warm_up=0.125_dirt_t_iterations=40000"
LONG = "_warm_up=0.03125_iterations=160000_dirt_t_iterations=40000"
PLAIN = "mnist-svhn_vmt_dirt_t_no-in"
INVERTED = "mnist-svhn_vmt_dirt_t_in_augment_invert=0.5_iterations=16000_dirt_t_iterations=24000"


def rounded(value: Fraction, digits: int = 1) -> str:
    unit = Decimal(1).scaleb(-digits)
    return str((Decimal(value.numerator) / Decimal(value.denominator)).quantize(unit, ROUND_HALF_UP))


def mean(values: Sequence[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def deviation(values: Sequence[Fraction]) -> Fraction:
    """The root of the variance of a sample, to twelve digits."""
    variance = sum(((value - mean(values)) ** 2 for value in values), Fraction(0)) / (len(values) - 1)
    return Fraction(isqrt(int(variance * 10**24)), 10**12)


def spread(values: Sequence[Fraction]) -> str:
    return rounded(mean(values)) + (f" ± {rounded(deviation(values))}" if len(values) > 1 else "")


def percent(accuracy: float) -> Fraction:
    """An accuracy as the file has it, in percent. The decimals are those that were written."""
    return 100 * Fraction(repr(accuracy))


def runs(name: str, folder: Path = RESULTS) -> dict[int, dict[str, Any]]:
    """The result files of an experiment by their seeds."""
    found = ((re.fullmatch(rf"{re.escape(name)}_(\d+)", path.stem), path) for path in folder.glob("*.json"))
    return {int(match[1]): json.loads(path.read_text()) for match, path in found if match}


def ends(name: str, phase: str, folder: Path = RESULTS) -> dict[int, Fraction]:
    """The accuracy at the end of a phase by the seed, for runs that have come to it."""
    return {
        seed: percent(result["accuracy"][phase])
        for seed, result in sorted(runs(name, folder).items())
        if phase in result["accuracy"]
    }


def at(name: str, iteration: int) -> list[Fraction]:
    """The accuracies of all runs at an iteration."""
    return [percent(p[1]) for _, result in sorted(runs(name).items()) for p in result["curve"] if p[0] == iteration]


def text_of(page: str) -> str:
    """A page with its lines joined, so that a sentence can be found in it."""
    return re.sub(r"\s+", " ", (ROOT / page).read_text())


def records(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines()]


# --- MNIST → SVHN and the other tasks of the paper ---


def test_the_headline_is_the_mean_of_the_runs_with_inverted_pictures() -> None:
    vmt, refined = ([*ends(INVERTED, phase).values()] for phase in ("vmt", "dirt_t"))
    assert len(vmt) == len(refined) == 7
    before, after, alone = spread(vmt), spread(refined), runs(INVERTED)[3]
    assert alone["at_once"] == 1
    for page, sentences in {
        "README.md": (
            f"| {rounded(mean(refined))} % | three minutes on one GPU",
            f"mean of seven seeds: ± {rounded(deviation(refined))}.",
            f"VMT has {before} % after 16,000 iterations, and DIRT-T {after} % after 24,000 more",
        ),
        "docs/index.md": (f"**{after} %**", "seven seeds"),
        "docs/speed.md": (f"it is {after} % over seven seeds, after {rounded(Fraction(alone['seconds']), 0)} s",),
        "docs/methods/vmt.md": (
            f"end at {rounded(min(vmt))} to {rounded(max(vmt))} % after 16,000 iterations",
            f"at {rounded(min(refined))} to {rounded(max(refined))} %; the mean is {before} and {after}",
            f"took {rounded(Fraction(alone['seconds']), 0)} s",
        ),
    }.items():
        for sentence in sentences:
            assert sentence in text_of(page), (page, sentence)


def test_the_choice_of_inverted_pictures_is_the_best_of_those_held_apart() -> None:
    rows = {row[0]: row for rows in tables("docs/paper/choices.md") for row in rows}
    assert "inverted pictures: iterations=10000_augment_invert=0.5" in rows
    held = {}
    for path in RESULTS.glob("mnist-svhn_vmt_in_iterations=10000_*choose_on=1000_*.json"):
        result = json.loads(path.read_text())
        if result["finished"]:
            held.setdefault(result["experiment"], []).append(result["choice_accuracy"]["vmt"])
    complete = {name: sum(each) for name, each in held.items() if len(each) == 2}
    assert len(complete) == 3
    assert max(complete, key=lambda name: complete[name]) == (
        "mnist-svhn_vmt_in_iterations=10000_augment_invert=0.5_choose_on=1000"
    )


def test_the_mean_with_a_warm_up_is_that_of_ten_seeds() -> None:
    vmt, refined = ends(WARM, "vmt"), ends(WARM, "dirt_t")
    assert sorted(vmt) == sorted(refined) == list(range(10))
    after, before = [*refined.values()], [*vmt.values()]
    headline, middle = spread(after), rounded(median(after))
    for page, sentences in {
        "README.md": (f"| {headline} (10) |",),
        "docs/speed.md": (f"the mean is {spread(before)} % and, after DIRT-T, {headline} %",),
        "docs/methods/vmt.md": (
            f"The mean of the ten is {spread(before)} and {headline}",
            f"and the median {rounded(median(before))} and {middle}",
        ),
    }.items():
        for sentence in sentences:
            assert sentence in text_of(page), page


def test_single_seeds_in_the_text_are_those_of_the_files() -> None:
    vmt, refined = ends(WARM, "vmt"), ends(WARM, "dirt_t")
    lucky = [seed for seed in vmt if seed not in (5, 8, 9)]
    assert len(lucky) == 7
    low, high, least, most = (rounded(f(of[s] for s in lucky)) for of in (vmt, refined) for f in (min, max))
    earlier = ends(WARM, "vmt", RESULTS / "earlier")
    each = {seed: f"{rounded(vmt[seed])} and {rounded(refined[seed])} %" for seed in (5, 8, 9)}
    for page in ("README.md", "docs/methods/vmt.md"):
        text = text_of(page)
        assert f"end at {low} to {high} %" in text.replace(f" (seed 2 at {rounded(vmt[2])} %)", ""), page
        assert re.search(rf"after DIRT-T, at {least} to {most} %", text), page
        for seed, numbers in each.items():
            assert re.search(rf"[Ss]eed {seed} (ends )?at {numbers}", text), (page, seed)
    assert f"another run of seed 5 had reached {rounded(earlier[5])} %" in text_of("README.md")
    again = (
        f"with {rounded(earlier[5])} and {rounded(earlier[6])} % instead of {rounded(vmt[5])} and {rounded(vmt[6])} %"
    )
    assert again in text_of("docs/methods/vmt.md")
    three = [", ".join(rounded(of[seed]) for seed in range(3)) for of in (vmt, refined, ends(CONSTANT, "vmt"))]
    assert f"at 40,000 iterations, **{three[0]} %**" in text_of("docs/speed.md")
    assert f"then DIRT-T, **{three[1]} %**" in text_of("docs/speed.md")
    assert f"constant λ_t: {three[2]} %" in text_of("docs/speed.md")


def test_the_text_about_the_other_tasks_has_the_numbers_of_the_files() -> None:
    page = text_of("docs/methods/vmt.md")

    def pair(values: Sequence[Fraction]) -> str:
        first, second = values
        return f"{rounded(first)} and {rounded(second)} %"

    before, after = [*ends(TO_MNIST, "vmt").values()], [*ends(TO_MNIST + LATER, "vmt").values()]
    assert f"Seeds 0 and 1 end at {pair(after)} instead of {pair(before)}" in page
    assert f"iterations of DIRT-T at {pair([*ends(TO_MNIST + LATER, 'dirt_t').values()])}" in page
    lengths = [pair(at(TO_MNISTM + LONG, iteration)) for iteration in (40_000, 80_000, 160_000)]
    expected = f"{lengths[0]} after 40,000 iterations, {lengths[1]} after 80,000 and {lengths[2]} after 160,000"
    assert expected in page
    assert {rounded(value) for value in ends(TO_MNISTM + LONG, "dirt_t").values()} == {"98.8"}
    assert "DIRT-T then gives 98.8 % twice" in page
    assert {rounded(value, 0) for value in at(TO_MNISTM + LONG, 30_000)} == {"95"}
    co_da = pair([*ends("mnist-svhn_co_da_dirt_t_in", "co_da", RESULTS / "earlier").values()])
    assert f"ended at {co_da} on MNIST → SVHN" in text_of("docs/methods/co_da.md")


def test_the_search_for_the_warm_up_is_in_its_file() -> None:
    found = records("seeds_h200.jsonl")

    def one(**asked: object) -> list[Fraction]:
        """The accuracies after 2,500, 5,000 … iterations of the run with these settings, and no others."""
        known = {"commit", "torch", "gpu", "accuracy"}
        (run,) = (r for r in found if {**asked} == {k: v for k, v in r.items() if k not in known} and r["accuracy"][1:])
        return [percent(value / 100) if isinstance(value, int) else Fraction(repr(value)) for value in run["accuracy"]]

    constant = {seed: one(seed=seed, weights=seed, warm_up=0.0)[1] for seed in range(8)}
    bad = sorted(constant, key=lambda seed: constant[seed])[:2]
    good = [rounded(f(v for s, v in constant.items() if s not in bad), 0) for f in (min, max)]
    page = text_of("docs/methods/vmt.md")
    assert f"They are at {' and '.join(rounded(constant[s], 0) for s in bad)} % after 5,000 iterations" in page
    assert f"where the others are at {' to '.join(good)} %" in page
    first = {(r["seed"], r["weights"]): rounded(Fraction(repr(r["accuracy"][0])), 0) for r in found if set(r) <= FIRST}
    assert f"({first[0, 2]} and {first[0, 6]} % after 2,500 iterations, instead of {first[0, 0]} %)" in page
    growing = sorted(r["accuracy"][1] for r in found if "lambda_d_grows_over" in r)
    assert f"ruins the run ({' and '.join(rounded(Fraction(repr(v)), 0) for v in growing)} % after 5,000" in page


FIRST = {"seed", "weights", "warm_up", "accuracy", "commit", "torch", "gpu"}


def tables(page: str) -> Iterator[list[list[str]]]:
    """The tables of a page, as rows of cells without bold type and non-breaking spaces."""
    for block in re.findall(r"(?:^\|.*\|\n)+", (ROOT / page).read_text().replace("\u00a0", " "), re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()]
        yield [
            [cell.strip().replace("**", "") for cell in line] for line in lines if not set("".join(line)) <= set("-: ")
        ]


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs" / "paper").glob("*.md")))
def test_every_run_on_a_page_of_the_paper_has_the_numbers_of_its_file(page: str) -> None:
    listed = [row for table in tables(f"docs/paper/{page}") if table[0][0] == "run" for row in table[1:]]
    for link, accuracy, minutes, hardware, commit in listed:
        path = re.search(r"\(\.\./\.\./(.*\.json)\)", link)
        assert path is not None
        result = json.loads((ROOT / path[1]).read_text())
        known = {phase: rounded(percent(value)) for phase, value in result["accuracy"].items()}
        assert dict(re.findall(r"(\w+) (\d+\.\d)(?=,|$| \(collapsed\))", accuracy.partition("partial")[0])) == known, (
            link
        )
        for value, iteration in re.findall(r"partial: ([\d.]+) after ([\d,]+) iterations", accuracy):
            (there,) = (p[1] for p in result["curve"] if p[0] == int(iteration.replace(",", "")))
            assert rounded(percent(there)) == value, link
        spent = result.get("phase_seconds") or {"all": result["seconds"]}
        # Seconds were rounded when they were written, so a minute may differ in its last digit.
        shown = [Fraction(value) for value in re.findall(r"\d+\.\d", minutes)]
        assert all(abs(60 * a - Fraction(str(b))) <= 4 for a, b in zip(shown, spent.values(), strict=True)), link
        assert result["environment"]["torch"] in hardware
        assert commit.startswith(result["environment"]["commit"])


# The rows of Table 2 and of Table 1 without a task: the experiment and the phase behind each.
BEHIND = {
    ("ten-runs", "VMT@40K"): (CONSTANT, "vmt"),
    ("ten-runs", "VMT@40K, warm-up"): (WARM, "vmt"),
    ("ten-runs", "VMT + DIRT-T@160K, warm-up"): (WARM, "dirt_t"),
    ("ten-runs", "VMT@40K, no IN"): (PLAIN, "vmt"),
    ("ten-runs", "VMT + DIRT-T@160K, no IN"): (PLAIN, "dirt_t"),
    ("upper-bound", "Train on Target"): ("mnist-svhn_target_only_no-in", "target_only"),
    ("mixup", "logits"): (CONSTANT, "vmt"),
    ("mixup", "probabilities"): (f"{CONSTANT}_mix=probabilities", "vmt"),
    ("mixup", "hidden"): (f"{CONSTANT}_mix=hidden", "vmt"),
    ("lambda-t", "λ_t 0.01, no IN: VMT@40K"): (PLAIN, "vmt"),
    ("lambda-t", "λ_t 0.06: VMT@40K"): (CONSTANT, "vmt"),
}


@pytest.mark.parametrize(("page", "row"), BEHIND, ids=" ".join)
def test_a_row_is_the_mean_of_its_runs_and_bold_as_the_rule_says(page: str, row: str) -> None:
    values = [*ends(*BEHIND[page, row]).values()]
    (cells,) = (cells for cells in next(tables(f"docs/paper/{page}.md"))[1:] if cells[0] == row)
    paper, ours, count = cells[2:5]
    assert ours == spread(values)
    assert count.startswith(f"{len(values)} of")
    bold = paper != "–" and Fraction(rounded(mean(values))) >= Fraction(paper.split(" ")[0])
    assert (f"| **{ours}** |" in (ROOT / "docs" / "paper" / f"{page}.md").read_text().replace("\u00a0", " ")) == bold


def test_the_demo_printed_what_the_first_page_shows() -> None:
    measured = json.loads((RESULTS / "demo.json").read_text())
    page = text_of("docs/start.md")
    for system, accuracy in measured["accuracy"].items():
        assert f" {system} {rounded(percent(accuracy))} % " in page, system
    assert f"closed {rounded(100 * Fraction(measured['gap_closed']), 0)}% of the gap" in page


# --- The search of settings ---


def test_the_search_gains_what_the_page_says() -> None:
    rows, page = records("search.jsonl"), text_of("docs/searching.md")
    (table,) = (table for table in tables("docs/searching.md") if table[0][0] == "seed")
    kinds = ("default", "chosen", "oracle", "source_only")
    for row, (seed, *cells) in zip(rows, table[1:-1], strict=True):
        loss, states = row["killed"], row["states"]
        assert sum(states.values()) == len(row["trials"]) == 40
        expected = [rounded(percent(row["accuracy"][kind])) for kind in kinds]
        expected += [f"{states['finished']}, {states['pruned']}"]
        expected += [f"trial {int(loss['trial'])}, resumed from iteration {loss['resumed_from']}"]
        assert (seed, cells) == (str(row["seed"]), expected)
        finished = [trial for trial in row["trials"] if trial["state"] == "finished"]
        best = max(finished, key=lambda trial: trial["score"])
        assert best["target_accuracy"] == max(trial["target_accuracy"] for trial in finished)
        assert row["accuracy"]["oracle"] == row["accuracy"]["chosen"] == best["target_accuracy"]
        assert [*row["importances"]][:2] == ["lr", "lambda_s"]
        assert row["environment"]["commit"][:7] in page
    assert table[-1][1:5] == [spread([percent(row["accuracy"][kind]) for row in rows]) for kind in kinds]

    def listed(values: Sequence[Fraction]) -> str:
        first, second, third = (rounded(value, 0) for value in values)
        return f"{first}, {second} and {third}"

    def gains(other: str) -> list[Fraction]:
        return [percent(row["accuracy"]["chosen"]) - percent(row["accuracy"][other]) for row in rows]

    assert f"the most accurate one: {listed(gains('default'))} points above the default" in page
    assert f"and {listed(gains('mean of finished trials'))} above the mean of the finished trials" in page
    lr, lambda_s = (listed([percent(row["importances"][name]) for row in rows]) for name in ("lr", "lambda_s"))
    assert f"({lr} %), before λ_s ({lambda_s} %)" in page
    seconds = [rounded(Fraction(repr(f(row["cpu_seconds"] for row in rows))), 0) for f in (min, max)]
    minutes = [rounded(Fraction(repr(f(row["seconds"] for row in rows))) / 60, 0) for f in (min, max)]
    assert f"took {' to '.join(seconds)} s of CPU time, and {' to '.join(minutes)} minutes on two cores" in page
    total = sum(Fraction(repr(row["cpu_seconds"])) for row in rows) / 60
    assert f"take about {rounded(total, 0)} minutes of CPU time" in page


def test_what_a_server_of_mlflow_has_returned_is_in_its_file() -> None:
    found, page = json.loads((RESULTS / "mlflow_server.json").read_text()), text_of("docs/report.md")
    assert f"{found['settings']} settings, all {found['points']} points of the log" in page
    assert f"the {found['weights']:,} weights" in page
    assert all(f"`{name}`" in page for name in found["equal files"])
    assert f"commit {found['commit'][:7]}" in page


# --- Several GPUs ---


def test_the_cost_of_the_exchange_is_measured_and_computed_as_the_page_says() -> None:
    found, page = json.loads((RESULTS / "ranks.json").read_text()), text_of("docs/growing.md")
    times = {
        name: [Fraction(repr(value)) for value in each] for name, each in found["ms: median, shortest, longest"].items()
    }
    exchange, iteration = (times[name] for name in ("the exchange alone", "iteration with exchange"))
    middle, low, high = (rounded(value) for value in exchange)
    sent = Fraction(repr(found["exchanged MB"]))
    assert f"took {middle} ms (median of 200, {low} to {high})" in page
    assert f"an iteration {rounded(iteration[0] / 1000)} s" in page
    assert f"(median of 20, {' to '.join(rounded(value / 1000) for value in iteration[1:])})" in page
    assert f"{rounded(100 * exchange[0] / iteration[0])} % of it" in page
    assert f"without the exchange, the median was {rounded(times['iteration without exchange'][0] / 1000)} s" in page
    assert f"VMT exchanges {rounded(sent)} MB per iteration with the paper's small network" in page
    assert f"load of {found['load']}" in page
    assert f"commit {found['commit'][:7]}" in page
    # Eight GPUs, on paper: MB by GB/s and hops by µs are milliseconds.
    (table,) = (table for table in tables("docs/growing.md") if table[0][0] == "ranks and network")
    network, moved, hops, added, efficiency = table[1]
    ranks, speed, latency = (int(number) for number in re.findall(r"\d+", network))
    passed, count = 2 * Fraction(ranks - 1, ranks) * sent, 2 * 2 * (ranks - 1)
    wire, waits = passed / speed, Fraction(count * latency, 1000)
    cost = wire + waits
    assert moved == f"{rounded(passed)} MB: {rounded(1000 * wire, 0)} µs"
    assert hops == f"{count}: {rounded(1000 * waits, 0)} µs"
    assert added == f"{rounded(cost, 2)} ms"
    together = Fraction(rounded(Fraction("2.7") + cost, 2))
    share = Fraction("2.7") / together
    assert efficiency == f"2.7 / {rounded(together, 2)} = {rounded(100 * share, 0)} %"
    assert f"about {rounded(ranks * share)} times the samples per second" in page


# --- Speed ---


def test_the_speed_is_that_of_the_benchmarks_file() -> None:
    result = json.loads((RESULTS / "bench_h200.json").read_text())
    first, second = result["report"], result["report of a second process"]
    (table,) = (table for table in tables("docs/speed.md") if table[0][1:] == ["ms per iteration", "spread"])
    names = ("plain port", "captured", "plain port, DIRT-T", "captured, DIRT-T")
    for row, name, digits in zip(table[1:], names, (1, 2, 1, 2), strict=True):
        middle, low, high = (rounded(Fraction(first["all_ms"][name][i]), digits) for i in (0, 1, 2))
        assert row[1:] == [middle, f"{low}–{high}"], name
    ratios = [rounded(Fraction(report["ratio"]), 0) for report in (first, second)]
    assert f"takes {rounded(Fraction(first['ms']))} ms on an H200, {' to '.join(ratios)} times" in text_of("README.md")
    assert f"{' and '.join(ratios)} times as fast as a plain port" in text_of("README.md")
    assert f"{' to '.join(ratios)} times as fast as a plain PyTorch port" in text_of("docs/index.md")
    page = text_of("docs/speed.md")
    assert f"is {rounded(Fraction(first['ratio']))} times as fast" in page
    assert f"({rounded(Fraction(first['fastest_ratio']))} times with the fastest" in page
    assert f"ratio was {rounded(Fraction(second['ratio']))} in a second process" in page
    assert f"at most {rounded(Fraction(first['peak_gib']), 2)} GiB" in page
    starts = [rounded(Fraction(report["startup_s"]), 0) for report in (first, second)]
    assert f"**{starts[0]} s** after the data are on the GPU the first time, and **{starts[1]} s**" in page


def test_the_speed_of_a_large_network_is_that_of_its_file() -> None:
    found = json.loads((RESULTS / "resnet50.json").read_text())
    (table,) = (rows for rows in tables("docs/speed.md") if rows[0][-1] == "GiB")
    assert {row[0] for row in table[1:]} == found["ms"].keys()
    for name, ms, between, memory in table[1:]:
        median, low, high, _ = (Fraction(value) for value in found["ms"][name])
        assert ms == rounded(median)
        assert between == f"{rounded(low)}–{rounded(high)}"
        assert memory == rounded(Fraction(found["peak_gib"][name]))
    ours = found["ms"]["captured and compiled, bfloat16"][0]
    ratios = [
        Fraction(found["ms"][f"plain port, {name}"][0]) / Fraction(ours) for name in ("TF32", "bfloat16, channels_last")
    ]
    text = f"{rounded(ratios[0])} times as fast as the plain port in TF32, and {rounded(ratios[1])} times"
    assert text in text_of("docs/speed.md")


def test_streaming_costs_what_the_page_says() -> None:
    found = json.loads((RESULTS / "streaming.json").read_text())
    streamed, resident = (rounded(Fraction(str(found["ms"][name])), 2) for name in ("streamed", "resident"))
    assert f"iteration takes {streamed} ms, and {resident} ms with the samples on the GPU" in text_of("docs/speed.md")
    assert found["arguments"]["memory"] == "1GiB"
    assert found["bytes"] > 2**30


def test_the_recipes_for_fine_tuning_reach_what_the_page_says() -> None:
    found = {
        (r["settings"]["method"], r["recipe"], r["pair"]): percent(r["last"]) for r in records("finetune_recipes.jsonl")
    }
    (table,) = (rows for rows in tables("docs/photographs.md") if rows[0][1] == "recipe")
    pairs = [name.replace(" → ", "-") for name in table[0][2:]]
    shown = {
        (row[0].strip("`"), row[1], pair): cell for row in table[1:] for pair, cell in zip(pairs, row[2:], strict=True)
    }
    assert {key: cell for key, cell in shown.items() if cell != "–"} == {
        key: rounded(value) for key, value in found.items()
    }


def test_the_rates_of_runs_are_those_of_their_curves() -> None:
    def rate(name: str, seed: int, begin: int, end: int) -> Fraction:
        """Milliseconds per iteration."""
        seconds = {p[0]: Fraction(repr(p[3])) for p in runs(name)[seed]["curve"]}
        return 1000 * (seconds[end] - seconds[begin]) / (end - begin)

    page = text_of("docs/speed.md")
    alone, refined = rate(CONSTANT, 1, 2500, 40_000), rate(CONSTANT, 0, 42_500, 135_000)
    assert f"the run took {rounded(alone, 2)} ms per iteration" in page
    assert f"and {rounded(refined, 2)} ms ([seed 0]" in page
    three = rate(WARM, 0, 2500, 40_000) / 3, rate(WARM, 0, 42_500, 200_000) / 3
    assert f"an iteration of VMT every {rounded(three[0])} ms and one of DIRT-T every {rounded(three[1])} ms" in page


def test_estimates_of_time_are_as_good_as_the_page_says() -> None:
    measured = json.loads((RESULTS / "estimates.json").read_text())
    shares = [100 * Fraction(repr(case["estimate"])) / Fraction(repr(case["actual"])) for case in measured["cases"]]
    assert len(shares) == 5
    assert f"was {rounded(min(shares), 0)} to {rounded(max(shares), 0)} % of the time" in text_of("docs/own-data.md")


# --- Own data, and choosing without labels ---


def test_the_tables_of_the_benchmark_are_means_over_its_seeds() -> None:
    accuracies: dict[tuple[str, str], dict[int, Fraction]] = defaultdict(dict)
    for r in records("own_data.jsonl"):
        if r["settings"] in (None, {"method": r["contender"]}) and r.get("accuracy") is not None:
            accuracies[r["task"], r["contender"]][r["seed"]] = percent(r["accuracy"])
    halves: list[tuple[dict[str, list[str]], dict[str, dict[str, Fraction]]]] = []
    for head, *rows in tables("docs/own-data-bench.md"):
        names = [name.strip("`") for name in head[1:]]
        if head[:2] == ["contender", "mean accuracy, %"]:
            halves.append(({row[0].strip("`"): row[1:] for row in rows}, defaultdict(dict)))
        elif head[2:3] == ["best competitor"]:
            for task, own, winner, shown, difference in rows:
                default, best = ([*accuracies[task, name].values()] for name in (names[0], winner.strip("`")))
                for cell, values in ((own, default), (shown, best)):
                    assert close(cell, mean(values), *([deviation(values)] if values[1:] else [])), (task, winner)
                assert close(difference, mean(best) - mean(default)), (task, winner)
        elif head[0] == "task" and head[1].startswith("`"):
            for task, *cells in rows:
                for name, cell in zip(names, cells, strict=True):
                    if cell != "–":
                        values = [*accuracies[task, name].values()]
                        assert close(cell, mean(values), *([deviation(values)] if values[1:] else [])), (task, name)
                        halves[-1][1][task][name] = mean(values)
    assert sum(len(means) for _, each in halves for means in each.values()) > 100
    for overall, each in halves:
        for name, (shown, rank, _, least, *_) in overall.items():
            assert close(rank, mean([place(name, means, len(overall)) for means in each.values()])), name
            if shown != "–":
                assert close(shown, mean([means[name] for means in each.values()])), name
            if least != "–":
                assert close(least, min(means[name] - means["source_only"] for means in each.values())), name


def place(name: str, means: dict[str, Fraction], contenders: int) -> Fraction:
    """The rank on a task; equal ones share a rank, and those without a result share the last."""
    own = means.get(name, Fraction(-1))
    others = [*means.values(), *[Fraction(-1)] * (contenders - len(means))]
    return 1 + sum(value > own for value in others) + Fraction(sum(value == own for value in others) - 1, 2)


def close(shown: str, *exact: Fraction) -> bool:
    """Whether each number is one of the nearest with its decimals: code that rounds floats may round a half down."""
    parts = shown.split(" ± ")
    assert len(parts) == len(exact)
    halves = (Fraction(1, 2 * 10 ** len(part.partition(".")[2])) + Fraction(1, 10**9) for part in parts)
    return all(abs(Fraction(part) - value) <= half for part, value, half in zip(parts, exact, halves, strict=True))


def test_the_first_page_has_the_means_of_the_benchmark() -> None:
    rows = {row[0]: row for row in next(rows for rows in tables("docs/own-data-bench.md") if rows[0][0] == "contender")}
    plain, ours, best = (rows[f"`{name}`"] for name in ("source_only", "auto", "svc-per-domain"))
    text = text_of("README.md")
    assert f"| {plain[1]} % | {ours[1]} % | `auto`, {float(ours[5]):.0f} s on one CPU core" in text
    assert f"The best of 17 methods of scikit-learn and skada has {best[1]} %" in text
    others = [row for name, row in rows.items() if name.strip("`").startswith(("svc", "hgb", "mlp", "skada"))]
    assert len(others) == 17
    assert max(float(row[1]) for row in others if row[1] != "–") == float(best[1])


@pytest.mark.parametrize(("file", "rows"), [("rules_of_samples.json", 35), ("rules_of_other_samples.json", 20)])
def test_the_rules_of_auto_reach_what_the_page_says(file: str, rows: int) -> None:
    rules = json.loads((RESULTS / file).read_text())["rules"]
    page = (ROOT / "docs" / "auto.md").read_text()
    table = page[page.index(file) :].split("\n\n")[1]
    shown = re.findall(r"^\| \**([^|*]+?)\** \| ([\d.]+) \| (\d+) \| (\d+) \| (−?\d+) \|$", table, re.MULTILINE)
    for label, *cells in shown:
        rule = {key: Fraction(repr(value)) for key, value in rules[name_of_rule(label)].items()}
        exact = (rule["mean"], 100 * rule["near"], rule["harmed"], rule["lost"])
        for cell, value, digits in zip(cells, exact, (1, 0, 0, 0), strict=True):
            half = Fraction(1, 2 * 10**digits)
            assert abs(Fraction(cell.replace("−", "-")) - value) <= half, (label, cell)
    assert len(shown) == rows


def name_of_rule(label: str) -> str:
    """The name in the file of a rule on the page."""
    names = {"weighted by the fit alone": "temperature 0.1, by_changed 0.0", "mean of the five": "mean of all"}
    if tried := re.fullmatch(r"temperature ([\d.]+), less ([\d.]+) of the classes changed", label):
        return f"temperature {tried[1]}, by_changed {tried[2]}"
    if tried := re.fullmatch(r"(logarithm, )?temperature ([\d.]+), penalty (\d+), source (\d)(, floor [\d.]+)?", label):
        by_source = "" if tried[4] == "0" else f", by_source {tried[4]}.0"
        floor = (tried[5] or ", floor 0.01") if tried[1] else ""
        return f"temperature {tried[2]}, by_changed {tried[3]}.0{by_source}{floor} by support"
    return names.get(label, label.replace("`", ""))


def test_the_rules_on_features_reach_what_the_page_says() -> None:
    rules = json.loads((RESULTS / "rules_of_features.json").read_text())["rules"]
    page = (ROOT / "docs" / "photographs.md").read_text()
    names = {
        "mean of the last four": "mean of those that adapt",
        "mean of all six": "mean of all",
        "weighted by the fit, less 0.2 of the classes changed": "temperature 0.2, by_changed 0.2",
        "weighted by the fit alone": "temperature 0.2, by_changed 0.0",
        "weighted by the fit, less 0.6 of the classes changed": "temperature 0.2, by_changed 0.6",
    }
    shown = re.findall(r"^\| \**([^|*]+?)\** \| \**([\d.]+)\** \| \**(\d+)\** \|$", page, re.MULTILINE)
    for label, *cells in shown:
        rule = {key: Fraction(repr(value)) for key, value in rules[names.get(label, label.strip("`"))].items()}
        for cell, value, digits in zip(cells, (rule["mean"], 100 * rule["near"]), (1, 0), strict=True):
            assert abs(Fraction(cell) - value) <= Fraction(1, 2 * 10**digits), (label, cell)
    assert len(shown) == 11


def test_the_embedded_digits_with_the_defaults_are_as_the_page_says() -> None:
    page = (ROOT / "docs" / "own-data.md").read_text()
    found = defaultdict(list)
    for record in records("own_data_embedded.jsonl"):
        found[record["method"]].append(record)
    for method, each in found.items():
        assert sorted(record["seed"] for record in each) == [0, 1, 2, 3, 4]
        seconds = rounded(mean([Fraction(repr(record["cpu_s"])) for record in each]), 0)
        assert f"| `{method}` | {spread([percent(record['accuracy']) for record in each])} | {seconds} |" in page


def test_the_candidates_that_are_always_taken_lose_what_the_page_says() -> None:
    trials = {(r["task"], r["seed"], r["iterations"]): r["candidates"] for r in records("validators_choice.jsonl")}
    page = (ROOT / "docs" / "validators-study.md").read_text()
    about = re.findall(r"^Tasks for [^:]+: (\d+) trials on (\d+) tasks.*?\n\n((?:\|.*\n)+)", page, re.MULTILINE)
    shown = {(int(count), int(tasks)): table for count, tasks, table in about}
    groups: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for kind in {(len(c), k[2]) for k, c in trials.items()}:
        these = {k: c for k, c in trials.items() if (len(c), k[2]) == kind}
        groups[len(these), len({k[0] for k in these})] = [*these.values()]
    assert shown.keys() == groups.keys()
    for size, candidates in groups.items():
        rows = {
            cells[0]: cells[1:]
            for line in shown[size].splitlines()
            if (cells := [c.strip() for c in line.split("|")[1:-1]])
        }
        for name in candidates[0]:
            both = [
                (
                    c[name]["accuracy"],
                    max(x["accuracy"] for x in c.values() if x["accuracy"]),
                    c["source_only"]["accuracy"],
                )
                for c in candidates
                if c[name]["accuracy"] is not None
            ]
            lost = [percent(best) - percent(value) for value, best, _ in both]
            harmed = sum(percent(source) - percent(value) > 5 for value, _, source in both)
            near = rounded(100 * Fraction(sum(points <= 2 for points in lost), len(lost)), 0)
            within, points, most, harm, _ = rows[f"always {name}"]
            assert (within, harm) == (f"{near}%", str(harmed)), (size, name)
            assert close(points, mean(lost)), (size, name)
            assert close(most, max(lost)), (size, name)
