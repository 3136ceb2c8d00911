"""Runs on samples that are streamed from the disk compute what runs on samples in memory do, bit for bit."""

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import vmt
from tests.examples_of_methods import maximum_classifier_discrepancy
from tests.interrupted import interrupted
from tests.own_pictures import class_folders, unlabelled_folder
from vmt import methods
from vmt.cli.main import main
from vmt.data import Domain, Task, domain, make_task
from vmt.data.files.store import pack
from vmt.data.stored import StoredSamples
from vmt.data.task import hold_apart
from vmt.engine.compile import lasting_tensors, trace_step
from vmt.engine.engine import Engine, MetricSums, make_engine
from vmt.errors import InputError
from vmt.evaluate.accuracy import evaluate
from vmt.methods.nouns import Method
from vmt.nets import cnn
from vmt.nets.networks import Staged
from vmt.ranks.group import ALONE, Ranks
from vmt.runs.folder import data_fingerprint
from vmt.step.iteration import make_context, step
from vmt.step.state import State, build_state

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMT_CACHE", str(tmp_path / "cache"))


def made_task(samples: int = 300) -> Task:
    random = np.random.default_rng(0)
    y = np.arange(samples) % 3
    x = random.integers(0, 256, (samples, 8, 8), dtype=np.uint8)
    return make_task(domain(x, y, name="source"), domain(255 - x, y, name="target"), target_labelled=None)


def on_disk(task: Task, folder: Path) -> Task:
    """The same task with its samples in stores."""

    def stored(name: str, part: Domain) -> Domain:
        rows = part.x.numpy()
        store = pack(folder / name, len(rows), rows.shape[1:], lambda numbers, done: iter(rows[done:]))
        return replace(part, x=StoredSamples(store.rows))

    parts = {name: stored(name, part) for name, part in vars(task).items() if isinstance(part, Domain)}
    return replace(task, **parts)


def network() -> Staged:
    return cnn((1, 8, 8), 3, widths=(4, 4, 4))


def trained(task: Task, method: Method, steps: tuple[int, ...], resume_at: int = 0, ranks: Ranks = ALONE) -> State:
    """The state after so many steps of each phase; with ``resume_at``, another engine continues after these."""
    state = build_state(method, network, task.sample_shape, 0, CPU)

    def made() -> Engine:
        context = make_context(task, method, state, seed=3, batch_size=4, bfloat16=False, ranks=ranks)
        return make_engine("eager", state, context, 3)

    run = made()
    done = 0
    for phase, count in zip(method.phases, steps, strict=True):
        for i in range(count):
            if done == resume_at:
                run = made()
            run.run(phase, i, 1, done)
            done += 1
    return state


def assert_same(one: State, other: State) -> None:
    others = other.tensors()
    for name, tensor in one.tensors().items():
        assert torch.equal(tensor, others[name]), name


METHODS = [methods.dirt_t(methods.vmt()), methods.cdan(), maximum_classifier_discrepancy()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_streamed_steps_are_those_of_resident_samples(method: Method, tmp_path: Path) -> None:
    task = made_task()
    steps = (4,) * len(method.phases)
    expected = trained(task, method, steps)
    streamed = trained(on_disk(task, tmp_path), method, steps)
    assert_same(expected, streamed)
    assert_same(expected, trained(on_disk(task, tmp_path), method, steps, resume_at=3))


def test_another_rank_streams_the_samples_of_its_own_draws(tmp_path: Path) -> None:
    task, method, second = made_task(), METHODS[1], Ranks(rank=1, count=2)  # without a group: nothing is exchanged
    assert_same(trained(task, method, (4,), ranks=second), trained(on_disk(task, tmp_path), method, (4,), ranks=second))


def test_a_compiled_step_has_the_batches_as_arguments(tmp_path: Path) -> None:
    task, method = on_disk(made_task(), tmp_path), methods.source_only()
    state = build_state(method, network, task.sample_shape, 0, CPU)
    context = make_context(task, method, state, seed=3, batch_size=4, bfloat16=False)
    assert context.feed is not None
    context.feed.prepare(method.phases[0], 0)
    sums = MetricSums()
    reachable = lasting_tensors(state, context, sums)
    _, arguments = trace_step(lambda: sums.add_(step(method.phases[0], state, context)), reachable)
    fed = list(context.feed.inputs.values())
    assert fed
    assert all(any(argument is each for argument in arguments) for each in fed)
    assert not any(isinstance(each, StoredSamples) for each in reachable)


def test_the_fingerprint_is_that_of_resident_samples_and_is_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = made_task()
    stored, other = on_disk(task, tmp_path), on_disk(made_task(301), tmp_path / "other")
    found = data_fingerprint(stored)
    assert found == data_fingerprint(task)
    assert found != data_fingerprint(other)
    monkeypatch.setattr(StoredSamples, "portions", None)
    assert data_fingerprint(stored) == found
    changed = replace(stored, source=replace(stored.source, y=1 - stored.source.y.clamp(max=1)))
    with pytest.raises(TypeError):  # it is another, which must be computed
        data_fingerprint(changed)


def test_all_that_reads_samples_reads_stored_ones(tmp_path: Path) -> None:
    """Held-out parts, evaluation, validators, class shares and AdaBN."""
    task = made_task()
    stored = on_disk(task, tmp_path)
    one, two = (network_evaluated(each) for each in (task, stored))
    assert one == two
    assert isinstance(stored.source.split(0.5, 0)[1].x, StoredSamples)
    apart = hold_apart(replace(stored, target_test=stored.target), 20)
    assert (len(apart.target), len(apart.target_test or ())) == (280, 280)
    runs = [
        vmt.adapt(each.source, each.target, "source_only", iterations=3, net="tiny", keep_best="im", progress=False)
        for each in (task, stored)
    ]
    weights = [run.network.state_dict() for run in runs]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def network_evaluated(task: Task) -> object:
    torch.manual_seed(0)
    return evaluate(network(), task.target, task.preprocess)


def flags(folder: Path, out: Path, *more: object) -> list[str]:
    given = ["train", "--source", folder / "source", "--target", folder / "target", "--out", out, "--iterations", 24]
    given += ["--evaluate-every", 12, "--checkpoint-every", 4, "--log-every", 6, "--batch-size", 8, *more]
    return [str(each) for each in given]


def test_killed_and_resumed_with_less_memory_or_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class_folders(tmp_path / "source", each=20)
    unlabelled_folder(tmp_path / "target", count=60)
    unbroken, killed = tmp_path / "unbroken", tmp_path / "killed"
    assert main(flags(tmp_path, unbroken)) == 0
    assert "in memory" in capsys.readouterr().err
    assert interrupted(10, "SIGKILL", *flags(tmp_path, killed, "--memory", "20KiB")) == -signal.SIGKILL
    assert main(["train", "--resume", str(killed)]) == 0
    told = capsys.readouterr().err
    assert "Resuming at iteration" in told
    assert "streamed from the disk" in told
    models = [load_file(run / "model.safetensors") for run in (unbroken, killed)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert (unbroken / "log.jsonl").read_text() == (killed / "log.jsonl").read_text()
    assert main(["report", str(killed), "--map", "none", "-o", str(tmp_path / "report.html")]) == 0
    assert main(["train", "--resume", str(killed), "--memory", "1GiB"]) == 0, "memory decides no result"


@pytest.mark.parametrize("memory", ["2 apples", "GiB", "-1GiB", "0"])
def test_a_memory_that_is_not_a_size_is_refused(memory: str) -> None:
    with pytest.raises(InputError, match="memory"):
        vmt.Config(memory=memory)
