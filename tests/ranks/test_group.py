"""What two ranks compute together equals what is computed from their batches one after the other."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.ranks.started import ended, printed, start
from tests.small import blobs
from vmt import methods
from vmt.data import Task, make_task
from vmt.engine.engine import make_engine
from vmt.evaluate.accuracy import evaluate, outputs_of
from vmt.methods.nouns import Phase, Update
from vmt.nets import Staged, mlp
from vmt.ranks.group import ALONE, Ranks, join_ranks
from vmt.step.draws import SeededDraws
from vmt.step.iteration import StepContext, apply, make_context, step
from vmt.step.plan import plan
from vmt.step.state import State, build_state
from vmt.train.config import Config
from vmt.train.loop import train

METHOD = methods.vmt(iterations=200, xi=0.5)


def network() -> Staged:
    return mlp((4,), 3, width=5, dropout=0, noise=0)


def small_task() -> Task:
    domains = blobs()
    return make_task(domains["source"], domains["target"].without_labels(), target_test=domains["target"])


def made(ranks: Ranks = ALONE, rank: int = 0, device: str = "cpu") -> tuple[State, StepContext]:
    """The start of a run, with the draws of a rank."""
    place = torch.device(device)
    task = small_task().to(place)
    state = build_state(METHOD, network, task.sample_shape, seed=0, device=place)
    context = make_context(task, METHOD, state, seed=0, batch_size=6, bfloat16=False, ranks=ranks)
    assert isinstance(context.draws, SeededDraws)
    context.draws.rank = rank or ranks.rank
    return state, context


def first_step_of_a_rank(folder: Path, device: str = "cpu") -> None:
    with join_ranks(device) as ranks:
        state, context = made(ranks, device=device)
        step(METHOD.phases[0], state, context)
        torch.save({name: tensor.cpu() for name, tensor in state.tensors().items()}, folder / f"{ranks.rank}.pt")


def first_step_restated(phase: Phase, device: str) -> State:
    """The first step of two ranks: for each update the mean of the gradients and statistics of two single steps."""
    state, _ = made(device=device)
    taps = {name: module.taps for name, module in state.roles.items()}
    for update in phase.updates:
        after = []
        for rank in (0, 1):
            alone = copy.deepcopy(state)
            _, context = made(rank=rank, device=device)
            context.draws.step = alone.step  # type: ignore[attr-defined]
            apply(update, plan(update, taps), alone, context, 0)
            after.append(alone)
        take_mean_step(update, state, after)
    state.step += 1
    return state


@torch.no_grad()
def take_mean_step(update: Update, state: State, after: list[State]) -> None:
    """Do an update with the mean of what two ranks computed alone."""
    for role in update.optimises:
        name = f"{update.name}/{role}"
        # The optimisers are new, so the first moment is the gradient times 1 − β1.
        moments = [each.optimisers[name].m for each in after]
        mean = [(a + b) / 2 / (1 - update.optimiser.beta1) for a, b in zip(*moments, strict=True)]
        lr = update.optimiser.lr
        assert not callable(lr)
        state.optimisers[name].step_(state.parameters((role,)), mean, update.optimiser, lr)
    for average in update.averages:
        live = list(state.roles[average.of].parameters())
        torch._foreach_lerp_(list(state.roles[average.into].parameters()), live, 1 - average.decay)
    for name, module in state.roles.items():
        buffers = [each.roles[name].buffers() for each in after]
        for own, a, b in zip(module.buffers(), *buffers, strict=True):
            own.copy_((a + b) / 2)


def check_first_step(folder: Path, device: str = "cpu") -> None:
    """Whether the first step of two ranks is the mean of two single steps."""
    assert ended(start(first_step_of_a_rank, folder, device, log=folder)) == [0, 0], printed(folder, 0)
    both: list[dict[str, Tensor]] = [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]
    restated = first_step_restated(METHOD.phases[0], device).tensors()
    for name, expected in restated.items():
        assert torch.equal(both[0][name], both[1][name]), name
        # Adam divides by the square root of v, so weights only follow where the gradient is not almost zero.
        tolerance = 1e-6 if name.startswith("optimisers") or "running" in name else 1e-4
        assert torch.allclose(both[0][name], expected.cpu(), rtol=0, atol=tolerance), name
    largest = 0.0
    for update in METHOD.phases[0].updates:
        for name in (name for name in restated if name.startswith(f"optimisers/{update.name}/") and "/m." in name):
            # After the first step, the moment is the gradient times 1 − β1. A GPU may add in another order.
            gradient, expected = (m.cpu() / (1 - update.optimiser.beta1) for m in (both[0][name], restated[name]))
            assert torch.allclose(gradient, expected, rtol=0, atol=1e-6 if device == "cpu" else 2e-6), name
            largest = max(largest, float(gradient.abs().max()))
    assert largest > 0.1, "gradients this small would agree anyway"
    alone, context = made(device=device)
    step(METHOD.phases[0], alone, context)
    moment = "optimisers/classifier/classifier/m.0"
    assert not torch.allclose(alone.tensors()[moment].cpu(), both[0][moment], atol=1e-5), "rank 1 has had no effect"


def test_gradients_are_the_mean_of_two_single_steps(tmp_path: Path) -> None:
    check_first_step(tmp_path)


def weights_of_a_rank(folder: Path) -> None:
    config = Config(batch_size=6, device="cpu", validate_samples=0, precision="float32")
    with join_ranks("cpu") as ranks:
        outcome = train(small_task(), METHOD, network, config, ranks=ranks)
        evaluated = evaluate(outcome.network, small_task().target, small_task().preprocess, ranks)
        torch.save((outcome.network.state_dict(), evaluated.measured(), outcome.records), folder / f"{ranks.rank}.pt")


def test_weights_are_the_same_on_all_ranks_after_200_steps(tmp_path: Path) -> None:
    assert ended(start(weights_of_a_rank, tmp_path, log=tmp_path)) == [0, 0]
    (weights, evaluated, records), (others, also, same_records) = (
        torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in (0, 1)
    )
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert evaluated == also
    assert records == same_records
    restored = network()
    restored.load_state_dict(weights)
    alone = evaluate(restored, small_task().target, small_task().preprocess).measured()
    assert evaluated["entropy"] == pytest.approx(alone["entropy"], rel=1e-5)
    assert evaluated["predicted_share"] == alone["predicted_share"]


def stopped_and_resumed(folder: Path) -> None:
    config = Config(batch_size=6, device="cpu", validate_samples=0, log_every=5, precision="float32")
    method = methods.source_only(iterations=5)
    with join_ranks("cpu") as ranks:
        out = folder / "run" if ranks.is_first else None
        unbroken = train(small_task(), method, network, config, ranks=ranks)
        stopped = train(small_task(), method, network, config, out, budget=0.0, ranks=ranks)
        resumed = train(small_task(), method, network, config, out, resume=True, ranks=ranks)
    assert stopped.step < 5, "it was not stopped between two records"
    assert resumed.records == unbroken.records


def test_losses_of_all_ranks_are_logged_whole_after_a_stop(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert ended(start(stopped_and_resumed, tmp_path, log=tmp_path)) == [0, 0], printed(tmp_path, 1)


def outputs_of_a_rank(folder: Path) -> None:
    torch.manual_seed(0)
    net, task = network(), small_task()
    with join_ranks("cpu") as ranks:
        for count in (20, 3, 2):
            (shared,) = outputs_of(net, task.target.x[:count], task.preprocess, ("logits",), batch=2, ranks=ranks)
            (alone,) = outputs_of(net, task.target.x[:count], task.preprocess, ("logits",))
            assert torch.allclose(shared, alone, atol=1e-6), count


def test_outputs_do_not_depend_on_the_number_of_ranks(tmp_path: Path) -> None:
    assert ended(start(outputs_of_a_rank, tmp_path, count=3, log=tmp_path)) == [0, 0, 0]


def test_every_rank_has_draws_of_its_own() -> None:
    now = torch.tensor(3)
    alone, first, second = SeededDraws(0, now), SeededDraws(0, now, rank=0), SeededDraws(0, now, rank=1)
    assert torch.equal(alone.bits("x", 5), first.bits("x", 5))
    assert not torch.equal(alone.bits("x", 5), second.bits("x", 5))


def test_every_rank_has_dropout_of_its_own() -> None:
    method = methods.source_only(iterations=5)

    def after_a_step(rank: int) -> dict[str, Tensor]:
        task = small_task()
        state = build_state(method, lambda: mlp((4,), 3, dropout=0.5), task.sample_shape, 0, torch.device("cpu"))
        ranks = Ranks(rank, count=2)  # without a group: nothing is exchanged
        context = make_context(task, method, state, seed=0, batch_size=6, bfloat16=False, ranks=ranks)
        assert isinstance(context.draws, SeededDraws)
        context.draws.rank = 0  # the same batch
        make_engine("eager", state, context, 0).run(method.phases[0], 0, 1, 0)
        return state.tensors()

    first, again, second = (after_a_step(rank) for rank in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], second[name]) for name in first)
