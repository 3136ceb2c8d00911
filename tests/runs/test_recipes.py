"""One setting changed and the rest as chosen for the data; DIRT-T's interval follows its length."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests import benchmark_files as files
from tests.own_data import write_blobs
from vmt.cli.main import main
from vmt.errors import InputError
from vmt.methods.nouns import Ramp
from vmt.methods.settings import DirtTSettings, PythonSettings, Settings
from vmt.runs.recipes import defaults_for, digits, every_setting, paper, with_settings

CHOSEN = defaults_for((9,), samples=20_000)


@pytest.mark.parametrize(
    ("recipe", "asked", "interval"),
    [
        (CHOSEN.recipe("vmt", True), {}, 156),
        (CHOSEN.recipe("vmt", True), {"dirt_t_iterations": 50}, 5),
        (CHOSEN.recipe("vmt", True), {"dirt_t_iterations": 5}, 1),
        (CHOSEN.recipe("vmt", True), {"dirt_t_iterations": 50, "interval": 100}, 100),
        (CHOSEN.recipe("vmt", True), {"dirt_t_iterations": 1562}, 156),
        (digits("vmt", True), {"dirt_t_iterations": 250}, 50),
        (digits("vmt", True), {"dirt_t_iterations": 50}, 10),
        (paper("mnist-svhn", dirt_t=True), {"dirt_t_iterations": 40_000}, 5_000),
        (paper("mnist-mnistm", dirt_t=True), {"dirt_t_iterations": 40_000}, 500),
    ],
)
def test_the_interval_follows_the_length_but_for_the_papers(recipe: Any, asked: dict[str, int], interval: int) -> None:
    method = with_settings(recipe, asked).build()
    assert [event.every for event in method.phases[1].events] == [interval]


@pytest.mark.parametrize(("name", "mixes"), [("vmt", True), ("vmt_mcc", True), ("vada", False), ("mcc", False)])
def test_dirt_t_has_virtual_mixup_only_after_a_method_that_has_it(name: str, mixes: bool) -> None:
    for recipe in (CHOSEN.recipe(name, True), digits(name, True), paper("mnist-svhn", name, dirt_t=True)):
        terms = recipe.build().phases[1].updates[0].terms
        assert ("L_m(target)" in [term.name for term in terms]) is mixes


def test_a_setting_reaches_the_method_and_dirt_t_after_it() -> None:
    recipe = with_settings(
        CHOSEN.recipe("vada", True), {"radius": 0.5, "beta": 0.2, "lr": 1e-4, "lambda_t": Ramp(0.0, 1.0)}
    )
    assert recipe.settings["radius"] == recipe.dirt_t["radius"] == 0.5  # type: ignore[index]
    assert recipe.settings["lambda_s"] == CHOSEN.lambda_s
    first, second = recipe.build().phases
    assert {term.name: term.weight for term in second.updates[0].terms}["teacher"] == 0.2
    assert first.updates[0].optimiser.lr == 1e-4


@pytest.mark.parametrize(
    ("method", "asked", "offender"),
    [
        ("dann", {"lambda_t": 0.1}, "dann.*lambda_t"),
        ("vmt", {"beta": 0.1}, "beta"),
        ("vmt", {"lambda_t": "0.1"}, "lambda_t"),
        ("vmt", {"lambda_t": True}, "lambda_t"),
        ("vmt", {"radius": None}, "radius"),
        ("vmt", {"vat": "no"}, "vat"),
        ("vmt", {"mix": 3}, "mix"),
        ("vmt", {"iterations": 2.5}, "iterations"),
    ],
)
def test_invalid_settings_are_refused(method: str, asked: dict[str, Any], offender: str) -> None:
    with pytest.raises(InputError, match=offender):
        with_settings(CHOSEN.recipe(method), asked)


def test_every_argument_of_a_method_has_a_documented_setting() -> None:
    documented = {field.name for cls in (Settings, DirtTSettings, PythonSettings) for field in fields(cls)}
    assert documented == every_setting()


@pytest.fixture
def run(tmp_path: Path) -> list[str]:
    source, target = write_blobs(tmp_path, n=60)
    short = ["--iterations", "3", "--batch-size", "8", "--validate-samples", "0", "--device", "cpu"]
    out = ["--out", str(tmp_path / "run")]
    return ["train", "--source", str(source), "--target", str(target), *out, *short]


def test_a_short_dirt_t_on_the_command_line(run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*run, "--dirt-t", "--dirt-t-iterations", "50"]) == 0
    output = capsys.readouterr()
    assert "then DIRT-T: 50 iterations, a new teacher every 5," in output.out
    assert "never refreshed" not in output.err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]["dirt_t"]["interval"] == 5


def test_an_interval_longer_than_the_phase_is_explained(run: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*run, "--dirt-t", "--dirt-t-iterations", "5", "--interval", "5"]) == 0
    assert "interval of 5" in capsys.readouterr().err


@pytest.mark.parametrize("others", [False, True])
def test_the_last_line_says_if_the_samples_were_trained_on(
    others: bool, run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled = str(tmp_path / "test.npz")
    run[run.index("--target") + 1] = labelled
    assert main([*run, "--method", "target_only", *(["--target-test", labelled] if others else [])]) == 0
    output = capsys.readouterr().out
    trained_on = "on the target samples it was trained on"
    assert ("on the target test set\n" in output) is others
    assert (trained_on in output) is not others


def test_the_last_line_says_that_the_labels_of_the_target_itself_were_used(
    run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run[run.index("--target") + 1] = str(tmp_path / "test.npz")
    assert main(run) == 0
    assert "on the labelled samples of the target, as there is no --target-test\n" in capsys.readouterr().out


def test_the_last_line_says_that_a_copy_of_stl_has_no_test_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_cifar10(tmp_path)
    files.write_small_stl10(tmp_path)
    brief = ["--method", "source_only", "--net", "tiny", "--iterations", "1", "--validate-samples", "0"]
    assert main(["train", "cifar-stl", "--data", str(tmp_path), *brief, "--out", str(tmp_path / "run")]) == 0
    output = capsys.readouterr().out
    assert "on STL-10 train (this copy has no test split)\n" in output
    assert "test set" not in output


def test_a_network_without_instance_norm_on_a_task_of_the_paper(
    run: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files.write_svhn(tmp_path)
    files.write_mnist(tmp_path)
    task = ["train", "mnist-svhn", "--data", str(tmp_path), *run[run.index("--out") :], "--net", "mlp"]
    assert main([*task, "--instance-norm"]) == 2
    assert "--instance-norm" in capsys.readouterr().err
    assert main(task) == 0
    recipe = json.loads((tmp_path / "run" / "run.json").read_text())["recipe"]
    assert recipe["net_options"] == {}
    assert recipe["settings"]["lambda_t"] == paper("mnist-svhn", instance_norm=False).settings["lambda_t"]
    assert main(["train", "--resume", str(tmp_path / "run"), "--no-instance-norm"]) == 0
    assert main(["train", "--resume", str(tmp_path / "run"), "--instance-norm"]) == 2
    assert "--instance-norm" in capsys.readouterr().err


def test_a_radius_that_was_asked_for_is_not_explained(run: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*run, "--radius", "0.7"]) == 0
    assert "radius of VAT: 0.7 (--radius)\n" in capsys.readouterr().out
