"""The search of settings: processes share a study, one that dies loses nothing, and the answer can be used."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from sklearn.base import clone

import vmt
from tests.processes import Started, start
from vmt.cli.main import main
from vmt.report.page import write_report
from vmt.report.samples import Options
from vmt.runs.folder import MODEL, RUN, SUMMARY
from vmt.runs.recipes import Recipe, defaults_for
from vmt.runs.search import TRIALS, SearchSpec, carry_out_search, join, work_on
from vmt.runs.search_result import clean, conclude
from vmt.runs.space import FACTORS, Range, default_space, read_space
from vmt.runs.spec import DataSpec, load_data
from vmt.train.checkpoint import CHECKPOINTS, checkpoints
from vmt.train.config import Config
from vmt.train.log import LOG, read_log

posix = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
ITERATIONS = 60


def moved_clusters(n: int = 240) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Four clusters, and the same ones moved so far that source only errs."""
    random = np.random.default_rng(0)
    centres, y = 1.6 * random.standard_normal((4, 10)), np.arange(n) % 4
    shift = np.array([1.5, -1.5] + [0.8] * 8)
    return {
        name: ((centres[y] + random.standard_normal((n, 10)) + far * shift).astype(np.float32), y)
        for name, far in {"source": 0, "target": 1, "test": 1}.items()
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSpec:
    folder = tmp_path_factory.mktemp("data")
    for name, (x, y) in moved_clusters().items():
        np.savez(folder / f"{name}.npz", x=x, **({} if name == "target" else {"y": y}))
    return DataSpec(
        **{name: str(folder / f"{name.split('_')[-1]}.npz") for name in ("source", "target", "target_test")}
    )


def recipe_of(method: str) -> Recipe:
    config = Config(device="cpu", threads=1, evaluate_every=10, checkpoint_every=10, log_every=20)
    recipe = replace(defaults_for((10,), 240), iterations=ITERATIONS).recipe(method)
    return replace(recipe, config=config)


def spec_for(data: DataSpec, folder: Path, space: Any = None, **more: Any) -> SearchSpec:
    recipe = recipe_of("vmt")
    space = default_space(recipe) if space is None else read_space(space, recipe)
    return SearchSpec(folder, data, recipe, space, **{"reference": recipe_of("source_only"), **more})


def trials_of(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / SUMMARY).read_text())["search"]["trials"])


# --- Processes ---


@pytest.fixture(scope="module")
def found(data: DataSpec, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """A search by three processes: the first is interrupted, the second killed. Also the killed trial, and the output
    of the last."""
    out = tmp_path_factory.mktemp("search") / "found"
    words = [
        "search", "--source", data.source, "--target", data.target, "--target-test", data.target_test, "--iterations",
        120, "--evaluate-every", 20, "--checkpoint-every", 20, "--trials", 3, "--keep", 1, "--device", "cpu",
        "--threads", 1, "--out", out,
    ]  # fmt: skip
    first = start(*words)
    stop_in_a_trial(first, out)
    first.send_signal(signal.SIGINT)
    first.send_signal(signal.SIGCONT)
    assert first.ended().returncode == 130, first.output
    assert "run the same command" in first.output
    second, third = start(*words), start(*words)
    number = stop_in_a_trial(second, out)
    second.send_signal(signal.SIGKILL)
    assert third.ended().returncode == 0, third.output
    second.ended()
    return out, number, third.output


def stop_in_a_trial(process: Started, out: Path) -> int:
    """Stop a process while it works on a trial that has a checkpoint, and return the number of the trial."""
    deadline = time.monotonic() + 600
    while True:
        assert process.is_running(), process.output
        assert time.monotonic() < deadline
        time.sleep(0.05)
        if in_progress(process, out) is None:
            continue
        process.send_signal(signal.SIGSTOP)
        number = in_progress(process, out)  # the trial may have ended in the meantime
        if number is not None:
            return number
        process.send_signal(signal.SIGCONT)


def in_progress(process: Started, out: Path) -> int | None:
    for folder in (out / TRIALS).glob("[0-9]*"):
        holder = (folder / ".lock").read_text().split()[1:2] if (folder / ".lock").exists() else []
        if holder == [str(process.pid)] and checkpoints(folder / CHECKPOINTS) and not (folder / SUMMARY).exists():
            return int(folder.name)
    return None


@posix
def test_a_killed_trial_is_resumed_by_another_process(found: tuple[Path, int, str]) -> None:
    out, number, printed = found
    assert [trial["state"] for trial in trials_of(out)].count("running") == 0
    assert sorted(trial["number"] for trial in trials_of(out)) == [0, 1, 2]
    (line,) = [line for line in printed.splitlines() if line.startswith(f"trial {number}: resumed")]
    assert int(line.split("iteration ")[1].split(",")[0]) >= 20
    assert not list(out.glob(f"{TRIALS}/*/{CHECKPOINTS}"))
    assert len(optuna.load_study(study_name=None, storage=journal(out)).trials) == 3


def journal(out: Path) -> Any:
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    return JournalStorage(JournalFileBackend(str(out / "study.journal")))


@posix
def test_the_folder_of_a_search_is_used_as_that_of_a_run(
    found: tuple[Path, int, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _, _ = found
    choice = json.loads((out / SUMMARY).read_text())["choice"]
    x = moved_clusters()["test"][0]
    where = out / TRIALS / choice["chosen"] if choice["chosen"].isdigit() else out / choice["chosen"]
    np.testing.assert_array_equal(
        vmt.load(out, device="cpu").predict_proba(x), vmt.load(where, device="cpu").predict_proba(x)
    )
    page = tmp_path / "report.html"
    shown = write_report([out], page, Options("none"))
    assert [trial["name"] for trial in shown["search"]["trials"]] == [trial["name"] for trial in trials_of(out)]
    assert shown["runs"][shown["chosen"]]["folder"] == str(where)
    assert page.read_text().count('<th scope="row">000') == 3
    capsys.readouterr()
    assert main(["select", str(out), "--json"]) == 0
    ranked = json.loads(capsys.readouterr().out)["ranking"]
    assert {Path(each["run"]).name for each in ranked} == {"0000", "0001", "0002", "source_only"}
    assert main(["train", "--resume", str(out)]) == 2
    assert "vmt search" in capsys.readouterr().err


@posix
def test_another_search_cannot_join(found: tuple[Path, int, str], data: DataSpec) -> None:
    out, _, _ = found
    with pytest.raises(vmt.InputError, match="iterations 120, not 60"):
        join(spec_for(data, out), load_data(data))


def test_workers_take_samples_that_no_file_holds(tmp_path: Path) -> None:
    parts = moved_clusters()
    result = vmt.search(
        parts["source"], parts["target"][0], trials=2, jobs=2, out=tmp_path / "out", iterations=12, device="cpu",
        progress=False, space={"lambda_t": [0.1, 0.2]},
    )  # fmt: skip
    assert {trial["state"] for trial in result.trials} <= {"finished", "pruned"}
    assert len(result.trials) == 2
    with pytest.raises(vmt.InputError, match="trials must be 1"):
        vmt.search(parts["source"], parts["target"][0], trials=0, progress=False)


# --- Pruning, and what is kept ---


def test_trials_below_the_median_are_pruned(data: DataSpec, tmp_path: Path) -> None:
    search = spec_for(data, tmp_path / "out", {"lr": {"low": 1e-3, "high": 1e-2}}, trials=7, keep=1)
    study = join(search, load_data(data))
    excellent = dict.fromkeys(range(10, ITERATIONS + 1, 10), 0.99)
    for _ in range(5):
        study.add_trial(
            optuna.create_trial(
                value=0.99,
                params={"lr": 1e-3},
                distributions={"lr": optuna.distributions.FloatDistribution(1e-3, 1e-2)},
                intermediate_values=excellent,
            )
        )
    work_on(search)
    default, pruned = (read_json(search.folder_of(number) / SUMMARY) for number in (0, 6))
    assert (default["finished"], default["pruned"]) == (True, None)
    assert (pruned["finished"], pruned["given_up"], pruned["iterations"]) == (False, True, 20)
    assert "median" in pruned["pruned"]
    assert study.trials[6].state == optuna.trial.TrialState.PRUNED
    kept = [path.parent.name for path in (tmp_path / "out").glob(f"{TRIALS}/*/{MODEL}")]
    assert kept == ["0000"]  # the made-up ones have none


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_trial_is_pruned_if_the_alarm_is_raised_twice_in_a_row(data: DataSpec, tmp_path: Path) -> None:
    """Entropy of a huge weight makes everything one class, before the source is learned: no collapse, but an alarm."""
    space = {"lr": [3e-3, 0.3], "lambda_t": [0.1, 1e4]}
    search = spec_for(data, tmp_path / "out", space, trials=2, reference=None)
    study = join(search, load_data(data))
    study.enqueue_trial({"lr": 0.3, "lambda_t": 1e4})
    work_on(search)
    default, pruned = study.trials
    assert (default.state.name, pruned.state.name) == ("COMPLETE", "PRUNED")
    summary = read_json(search.folder_of(1) / SUMMARY)
    assert (summary["collapsed"], summary["given_up"], summary["iterations"]) == (None, True, 40)
    evaluations = {each["step"]: each for each in read_log(search.folder_of(1) / LOG) if "target" in each}
    assert all(evaluations[step]["alarm"] for step in (10, 20, 30)), "alarms in the first two thirds end nothing"
    assert evaluations[40]["alarm"] in summary["pruned"] == pruned.user_attrs["why"]


def test_trials_that_collapse_are_stopped_and_none_is_chosen(tmp_path: Path) -> None:
    """The target is one sample of the source, again and again, so that all of it gets one class."""
    x, y = moved_clusters()["source"]
    out = tmp_path / "out"
    given = {"iterations": ITERATIONS, "evaluate_every": 10, "device": "cpu", "progress": False, "match_shares": False}
    result = vmt.search((x, y), x[:1].repeat(60, axis=0), trials=2, out=out, **given)
    assert result.chosen == "source_only"
    assert [trial["state"] for trial in result.trials] == ["pruned", "pruned"]
    for trial in result.trials:
        summary = read_json(out / TRIALS / trial["name"] / SUMMARY)
        assert (summary["finished"], summary["given_up"], summary["collapsed"]) == (False, True, trial["why"])
        assert "collapsed" in trial["why"]
        assert summary["iterations"] < ITERATIONS


def test_a_trial_that_diverges_is_pruned_and_the_search_goes_on(data: DataSpec, tmp_path: Path) -> None:
    search = spec_for(data, tmp_path / "out", {"lr": [3e-3, 1e30]}, trials=4, reference=None)
    carry_out_search(search)
    trials = join(search, load_data(data)).trials
    by_rate = {rate: {t.state.name for t in trials if t.params["lr"] == rate} for rate in (3e-3, 1e30)}
    assert by_rate == {3e-3: {"COMPLETE"}, 1e30: {"PRUNED"}}
    result = conclude(search, load_data(data))
    assert result.params == {"lr": 3e-3}
    freed = clean(tmp_path / "out")
    assert freed > 0
    kept = [path.parent.name for path in (tmp_path / "out").glob(f"{TRIALS}/*/{MODEL}")]
    assert kept == [result.chosen]


def test_source_only_is_the_answer_if_no_trial_is_credibly_better(tmp_path: Path) -> None:
    x, y = moved_clusters()["source"]
    result = vmt.search((10 * x, y), 10 * x, trials=1, iterations=40, device="cpu", progress=False)
    assert result.chosen == "source_only"
    assert not result.params
    assert "credibly" in result.reason


@pytest.mark.parametrize("event", ["on_evaluate", "on_checkpoint"])
def test_a_callback_can_give_a_run_up(tmp_path: Path, event: str) -> None:
    class Impatient(vmt.Callback):
        pass

    def give_up(self: vmt.Callback, *_: Any) -> None:
        raise vmt.GiveUp("it takes too long")

    setattr(Impatient, event, give_up)
    parts = moved_clusters()
    model = vmt.adapt(
        parts["source"], parts["target"][0], iterations=20, evaluate_every=10, checkpoint_every=10, device="cpu",
        out=tmp_path / "run", callbacks=[Impatient()], progress=False,
    )  # fmt: skip
    summary = read_json(tmp_path / "run" / SUMMARY)
    assert (summary["pruned"], summary["finished"], summary["given_up"]) == ("it takes too long", False, True)
    assert model.about["step"] == 10


# --- Storage and space ---


def test_a_database_holds_the_study(data: DataSpec, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    search = spec_for(data, tmp_path / "out", storage=url)
    study = join(search, load_data(data))
    assert not (tmp_path / "out" / "study.journal").exists()
    assert optuna.load_study(study_name=None, storage=url).study_name == study.study_name
    assert study.trials[0].system_attrs["fixed_params"] == pytest.approx(search.defaults())
    lost = spec_for(data, tmp_path / "lost", storage="sqlite:////nowhere/at/all.db")
    with pytest.raises(vmt.InputError, match="storage"):
        join(lost, load_data(data))
    assert not (tmp_path / "lost" / RUN).exists()
    with pytest.raises(vmt.InputError, match="was started with storage"):
        join(replace(search, storage=None), load_data(data))


def test_a_search_in_a_database_from_the_command_to_its_end(
    data: DataSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, url = tmp_path / "out", f"sqlite:///{tmp_path}/study.db"
    space = {"lr": {"low": 1e-4, "high": 1e-2, "log": True}, "lambda_t": {"low": 0.01, "high": 1, "log": True}}
    (tmp_path / "space.json").write_text(json.dumps(space))
    words = ["search", "--source", data.source, "--target", data.target, "--trials", 4, "--iterations", 24, "--storage"]
    words += [url, "--space", tmp_path / "space.json", "--device", "cpu", "--threads", 1, "--out", out]
    assert main([*map(str, words)]) == 0
    printed = capsys.readouterr().out
    assert not (out / "study.journal").exists()
    kept = {trial.number: trial for trial in optuna.load_study(study_name=None, storage=url).trials}
    assert {number: trial.value for number, trial in kept.items()} == {
        trial["number"]: trial["score"] for trial in trials_of(out)
    }
    assert all(kept[trial["number"]].params == trial["settings"] for trial in trials_of(out))
    assert len({trial.value for trial in kept.values()}) == 4
    summary = read_json(out / SUMMARY)
    importances = summary["search"]["importances"]
    assert importances.keys() == space.keys()
    assert sum(importances.values()) == pytest.approx(1, abs=2e-4)  # each has four decimals
    assert all(f"{name} {share:.0%}" in printed for name, share in importances.items())
    # What is kept, and what is removed.
    x, chosen = moved_clusters()["test"][0], summary["choice"]["chosen"]
    before = vmt.load(out, device="cpu").predict_proba(x)
    models = {path.parent.name for path in out.glob(f"{TRIALS}/*/{MODEL}")}
    assert models == {f"{number:04d}" for number in range(4)}
    assert main(["search", "--out", str(out), "--clean"]) == 0
    assert {path.parent.name for path in out.glob(f"{TRIALS}/*/{MODEL}")} == models & {chosen}
    np.testing.assert_array_equal(vmt.load(out, device="cpu").predict_proba(x), before)
    assert all((out / TRIALS / name / LOG).exists() for name in models)
    assert main(["search", "--out", str(out / TRIALS / "0000"), "--clean"]) == 2


def test_a_damaged_journal_is_refused(data: DataSpec, tmp_path: Path) -> None:
    search = spec_for(data, tmp_path / "out")
    join(search, load_data(data))
    path = tmp_path / "out" / "study.journal"
    path.write_bytes(b"{not JSON}\n" + path.read_bytes())
    with pytest.raises(vmt.InputError, match=r"study\.journal"):
        join(search, load_data(data))


def test_a_password_is_not_recorded(data: DataSpec, tmp_path: Path) -> None:
    from vmt.runs.search import record_of

    search = spec_for(data, tmp_path, storage="postgresql://me:secret@host/studies")
    assert "secret" not in json.dumps(record_of(search), default=str)


@pytest.mark.parametrize("method", ["vmt", "mcc", "dann", "vmt_mcc", "mmd"])
def test_default_ranges_contain_the_defaults(method: str) -> None:
    recipe = recipe_of(method)
    space = default_space(recipe)
    assert {"lr"} <= set(space) <= {*FACTORS, "warm_up"}
    for name, range in space.items():
        if name in recipe.settings:
            assert range.low <= recipe.settings[name] <= range.high, name


@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_a_space_is_read_from_a_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"space{suffix}"
    if suffix == ".json":
        path.write_text('{"lambda_t": {"low": 0.01, "high": 1, "log": true}, "batch_size": {"low": 8, "high": 64}}')
    else:
        path.write_text("lambda_t = {low = 0.01, high = 1, log = true}\nbatch_size = {low = 8, high = 64}\n")
    space = read_space(path, recipe_of("vmt"))
    assert space == {"lambda_t": Range(0.01, 1, log=True), "batch_size": Range(8, 64, whole=True)}
    assert space["batch_size"].nearest(1000) == 64


@pytest.mark.parametrize(
    ("space", "offender"),
    [
        ({}, "no settings"),
        ([1], "no settings"),
        ({"lamda_t": [0.1, 1]}, "lambda_t"),
        ({"lambda_t": 0.1}, "lambda_t"),
        ({"lambda_t": {"low": 1}}, "lambda_t"),
        ({"lambda_t": {"low": 1, "high": 0.1}}, "lambda_t"),
        ({"lambda_t": {"low": 0, "high": 0.1, "log": True}}, "lambda_t"),
        ({"lambda_t": {"low": 0, "high": "a"}}, "'a'"),
        ({"lambda_t": {"low": -1, "high": 1}}, "lambda_t"),
        ({"lambda_t": [0.1]}, "lambda_t"),
        ({"lr": {"low": 0.1, "high": 1, "step": 2}}, "lr"),
        ({"optimiser": ["adam", "sdg"]}, "sdg"),
        ({"batch_size": {"low": 0, "high": 64}}, "batch_size"),
        ({"iterations": {"low": 10.5, "high": 64}}, "whole"),
        ({"beta": [0.1, 1]}, "beta"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(tmp_path: Path, space: Any, offender: str) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps(space))
    with pytest.raises(vmt.InputError, match=offender) as refused:
        read_space(path, recipe_of("vmt"))
    assert str(path) in str(refused.value)


def test_a_file_that_is_no_space_is_refused(tmp_path: Path) -> None:
    for name, content in {"space.json": "{", "space.toml": "a = ", "space.yaml": "a: 1"}.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(vmt.InputError, match=name):
            read_space(tmp_path / name, recipe_of("vmt"))


@pytest.mark.parametrize(
    ("change", "offender"),
    [
        ({"by": "accuracy"}, "accuracy"),
        ({"keep": 0}, "keep"),
        ({"recipe": lambda recipe: replace(recipe, config=replace(recipe.config, keep_best="im"))}, "keep_best"),
        ({"recipe": lambda recipe: replace(recipe, config=replace(recipe.config, validate_samples=0))}, "validate"),
    ],
)
def test_a_search_that_has_no_meaning_is_refused(
    data: DataSpec, tmp_path: Path, change: dict[str, Any], offender: str
) -> None:
    spec = spec_for(data, tmp_path)
    changed = {name: value(spec.recipe) if isinstance(value, Callable) else value for name, value in change.items()}
    with pytest.raises(vmt.InputError, match=offender):
        replace(spec, **changed)


def test_optuna_that_is_not_installed_is_refused(
    data: DataSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(vmt.InputError, match=r"pip install 'vmt\[search\]'"):
        carry_out_search(spec_for(data, tmp_path))


# --- The estimator ---


def test_the_estimator_searches_and_predicts() -> None:
    parts = moved_clusters()
    names = np.array(["ant", "bee", "cat", "dog"])
    search = vmt.VMTSearch(vmt.VMTClassifier(iterations=40, device="cpu", random_state=0), trials=3)
    again = clone(search)
    assert again.get_params()["estimator__iterations"] == 40
    again.set_params(estimator__lr=1e-2, trials=2)
    (x, y), (xt, _), (x_test, y_test) = (parts[name] for name in ("source", "target", "test"))
    assert again.fit(x, names[y], X_target=xt) is again
    assert not hasattr(search, "best_estimator_")
    np.testing.assert_array_equal(again.classes_, names)
    np.testing.assert_array_equal(again.predict(x_test), again.best_estimator_.predict(x_test))
    assert again.predict_proba(x_test).shape == (240, 4)
    assert again.score(x_test, names[y_test]) > 0.5
    assert again.best_estimator_.get_params().items() >= again.best_params_.items()
    assert sorted(again.results_["trial"]) == [0, 1]
    assert again.results_["param_lr"][again.results_["trial"].index(0)] == pytest.approx(1e-2)
    assert len({len(column) for column in again.results_.values()}) == 1
    with pytest.raises(vmt.InputError, match="lambda_p"):
        vmt.VMTSearch(vmt.VMTClassifier(), space={"lambda_p": [0.1, 1]}).fit(x, y, X_target=xt)
    with pytest.raises(vmt.InputError, match="list"):
        vmt.VMTSearch([]).fit(x, y, X_target=xt)
    for other in ("auto", vmt.methods.vada()):
        with pytest.raises(vmt.InputError, match="search"):
            vmt.VMTSearch(vmt.VMTClassifier(other)).fit(x, y, X_target=xt)
        with pytest.raises(vmt.InputError, match="search"):
            vmt.search((x, y), xt, other)
