"""What the pages say about photographs and large folders is in the files of their benchmarks."""

import json
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from tests.docs.test_figures_of_pages import RESULTS, rounded, text_of


def result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


def exact(number: float) -> Fraction:
    return Fraction(repr(number))


def test_plain_onnx_runtime_gives_the_classes_of_vmt_predict() -> None:
    found, page = result("deployed.json"), text_of("docs/photographs.md")
    both = [found[f"vmt predict {name} and onnx_only.py"] for name in ("FILE", "RUN")]
    assert found["photographs"]["count"] == 500
    assert [each["equal_classes"] for each in both] == [500, 500]
    assert set(found["photographs"]["orientations"]) == set("12345678")
    assert "the classes of `vmt predict` 500 times" in page
    largest = max(exact(each["largest_difference"]) for each in both)
    assert f"differ by at most {rounded(largest, 6)} ([measured]" in page
    assert f"{rounded(sum(map(exact, found['seconds'].values())), 0)} s for its commands" in page
    assert f"commit {found['commit'][:7]}, torch {found['versions']['torch'][:4]}, onnxruntime 1.31" in page
    assert found["versions"]["onnxruntime"].startswith("1.31")


def test_the_readmes_commands_take_as_long_as_the_page_says() -> None:
    found, page = result("photographs_flow.json"), text_of("docs/photographs.md")
    seconds = round(found["to_the_file"]["seconds"])
    assert seconds < 300
    assert f"took {seconds // 60} min {seconds % 60} s on two cores" in page
    assert f"used {rounded(exact(found['to_the_file']['cpu_s']), 0)} s of CPU time" in page
    new = found["new_pictures"]
    assert f"classified {rounded(new['count'] * exact(new['accuracy']), 0)} of {new['count']} other paintings" in page
    loads = found["load"]["before"] + found["load"]["after"]
    assert f"a load of {rounded(exact(min(loads)), 0)} to {rounded(exact(max(loads)), 0)}" in page
    assert found["pictures"] == {"labelled": 1000, "unlabelled": 1000, "seed": 0}
    assert f"commit {found['commit'][:7]}" in page


def test_a_large_folder_takes_the_memory_that_the_page_says() -> None:
    found, page = result("large_folder.json"), text_of("docs/own-data.md")
    assert found["equal"] == {"weights": True, "log_records": True, "number_of_records": 63}
    assert found["streamed"]
    assert found["peak_mib"] < 2048
    assert found["pictures"] == {"unlabelled": 100_000, "labelled": 20_000, "side": 64}
    assert f"took at most {rounded(exact(found['peak_mib']) / 1024, 2)} GiB of resident memory" in page
    assert f"{rounded(exact(found['decoded_mib']) / 1024)} GiB decoded" in page
    assert f"in {rounded(exact(found['runs']['unbroken']['seconds']), 0)} s." in page
    checkpoint = re.sub(r"step-0*", "", found["killed"]["last_checkpoint"])
    killed = f"killed by SIGKILL in iteration {found['killed']['at_iteration']} and resumed from the checkpoint of"
    assert f"{killed} iteration {checkpoint}:" in page
    assert f"commit {found['commit'][:7]}" in page


def test_the_means_of_pacs_are_those_of_its_file() -> None:
    lines = (RESULTS / "pacs.jsonl").read_text().splitlines()
    # Of the same contender, pair and seed, the later record counts.
    last = {(r["contender"], r["pair"], r["seed"]): r for r in map(json.loads, lines) if "failed" not in r}
    answers = {key[1:]: record for key, record in last.items() if key[0] == "auto"}
    assert len(answers) == 12 * 5
    page = text_of("docs/photographs.md")

    def average(values: Iterable[float]) -> str:
        found = [100 * exact(value) for value in values]
        return rounded(sum(found, Fraction(0)) / len(found))

    auto = average(record["last"] for record in answers.values())
    unadapted, best = (
        average(r["runs"][name]["last"] for r in answers.values()) for name in ("source_only", "vmt_mcc")
    )
    plain, per_domain = (
        average(record["last"] for key, record in last.items() if key[0] == name)
        for name in ("logistic", "logistic-per-domain")
    )
    assert f"a mean accuracy of {auto} % where logistic regression has {plain} %, or {per_domain} %" in page
    assert f"`vmt_mcc` alone has {best} %" in page
    assert f"| {unadapted} % | {auto} % | `auto` on features" in text_of("README.md")
    to_sketches = [record for (pair, _), record in answers.items() if pair == "photo-sketch"]
    others = [record for (pair, _), record in answers.items() if pair != "photo-sketch"]
    harmed, regression = average(r["last"] for r in to_sketches), last["logistic-per-domain", "photo-sketch", 0]["last"]
    assert f"{harmed} %, where logistic regression has {average([regression])} %" in page
    assert all(record["warnings"] for record in to_sketches)
    assert not any(record["warnings"] for record in others)
    assert f"in none of the {len(others)} runs of the other directions" in page


def test_what_the_warning_is_worth_is_in_its_file() -> None:
    found, page = result("doubts_of_features.json"), text_of("docs/photographs.md")
    tasks = found["tasks"]
    for row in (row for rows in found["tables"].values() for row in rows):
        assert row in page
    far, near = ([t for t in tasks if (t["difference"] > 0.24) == different] for different in (True, False))
    for name in tasks[0]["estimates"]:
        counts = [
            f"{sum(t['estimates'][name]['difference'] > least for t in group)} of {len(group)}"
            for least in (0.24, 0.18)
            for group in (far, near)
        ]
        assert re.search(rf"\| {name} \| [\d.]+ \| [\d.–]+ \| {re.escape(' | '.join(counts))} \|", page), name
    trained = [t for t in tasks if "gain" in t]
    assert f"There are {len(tasks)} tasks, and on {len(trained)} of them all candidates were trained" in page
    for task in trained:
        accuracy = {name: exact(value) for name, value in task["accuracy"].items()}
        best = max(accuracy[name] for name in ("source_only", "source_kernel", "logistic", "logistic-per-domain"))
        assert abs(accuracy["auto"] - best - exact(task["gain"])) <= Fraction(2, 10_000)
    harmed, others = ([t for t in trained if (t["gain"] < -0.01) == harm] for harm in (True, False))
    assert not any(t["estimates"]["both"]["difference"] > 0.24 for t in harmed)
    assert len(harmed) == 7
    warned = [sum(t["kernel_against_adapting"] > 1.5 for t in group) for group in (harmed, others)]
    counts = [f"{number} of {len(group)}" for number, group in zip(warned, (harmed, others), strict=True)]
    assert f"| kernel against adapting | {counts[0]} | {counts[1]} |" in page
    differences = [exact(t["difference"]) for t in tasks]
    low, high = (rounded(100 * each, 0) for each in (min(differences), max(differences)))
    assert f"so that {low} to {high} % of the target would have to change its class" in page
    equal = sum((exact(t["difference_from_equal"]) for t in tasks), Fraction(0)) / len(tasks)
    assert f"would be wrong by {rounded(equal, 2)} on average" in page
    assert f"the tables at commit {found['commit'][:7]}" in page
    verdicts = [json.loads(line) for line in (RESULTS / "pacs_kernel_verdict.jsonl").read_text().splitlines()]
    against = [r for r in verdicts if r["warnings"]]
    assert (len(against), len(verdicts)) == (6, 11)
    assert "against adapting in six of eleven directions" in page
    assert sum(r["last"] - r["candidates"]["source_only"] > 0.4 for r in against) == 2
    assert {r["commit"][:7] for r in verdicts} == {"3f569ff"}
