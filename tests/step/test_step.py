"""The training step, which concatenates passes, computes what the methods compute when they are written out plainly."""

import pytest
import torch
from torch import Tensor

from tests.restated import Objective, Restated
from tests.small import CLASSES, N, blobs, build, context, numbers, recorded
from vmt import methods
from vmt.data import Domain
from vmt.engine.bench import workload
from vmt.errors import InputError
from vmt.methods.nouns import Adam, Method, Number, Phase, Ramp, WarmUp
from vmt.nets import Staged, cnn
from vmt.nets.norm import normalised_together
from vmt.step.draws import SeededDraws
from vmt.step.iteration import step
from vmt.step.state import State
from vmt.train.loop import run_events

pytestmark = pytest.mark.usefixtures("one_thread")

WEIGHTS = {"lambda_d": 0.3, "lambda_s": 0.8, "lambda_t": 0.6}
VMT = {**WEIGHTS, "mix": "logits"}
ONE_PHASE: dict[str, tuple[Method, Objective]] = {
    "vmt": (methods.vmt(**WEIGHTS), Objective(**VMT, vat=True)),
    "vmt on probabilities": (
        methods.vmt(**WEIGHTS, mix="probabilities"),
        Objective(**WEIGHTS, mix="probabilities", vat=True),
    ),
    "vmt on hidden": (methods.vmt(**WEIGHTS, mix="hidden"), Objective(**WEIGHTS, mix="hidden", vat=True)),
    "vmt without vat": (methods.vmt(**WEIGHTS, vat=False), Objective(**VMT)),
    "vmt, own weight": (methods.vmt(**WEIGHTS, lambda_mix_t=0.05), Objective(**VMT, vat=True, lambda_mix_t=0.05)),
    "vmt without discriminator": (methods.vmt(0, 0.8, 0.6), Objective(**{**VMT, "lambda_d": 0}, vat=True)),
    "vada": (methods.vada(**WEIGHTS), Objective(**WEIGHTS, vat=True)),
    "vada without entropy": (methods.vada(**WEIGHTS, entropy=False), Objective(**WEIGHTS, vat=True, entropy=False)),
    "vmt and mcc": (methods.vmt_mcc(**WEIGHTS, lambda_mcc=0.7), Objective(**VMT, vat=True, lambda_mcc=0.7)),
    "mcc": (methods.mcc(0.7), Objective(lambda_mcc=0.7)),
    "dann": (methods.dann(0.3), Objective(lambda_d=0.3)),
    "cdan": (methods.cdan(0.3), Objective(lambda_d=0.3, conditional=True, entropy_weights=True)),
    "cdan without weights": (methods.cdan(0.3, False), Objective(lambda_d=0.3, conditional=True)),
    "source only": (methods.source_only(), Objective(statistics="source")),
    "source only, target statistics": (methods.source_only(statistics="target"), Objective()),
    "adabn": (methods.adabn(), Objective()),
    "target only": (methods.target_only(), Objective(labels="target")),
}


def run_both(phase: Phase, state: State, plain: Restated, o: Objective, i: int, done: int = 0) -> None:
    """Step ``i`` of a run, in a phase that began after ``done`` steps, on both."""
    streams, draws = blobs(), recorded(i)
    run_events(phase, state, i - done)
    metrics = step(phase, state, context(streams, draws))
    expected = plain.discriminate(streams, draws, o) if len(phase.updates) == 2 else {}
    expected |= plain.classify(streams, draws, o)
    for name, value in expected.items():
        torch.testing.assert_close(metrics[name], value.detach(), msg=lambda m, n=name: f"{n}: {m}")
    plain.compare(state)


@pytest.mark.parametrize("name", ONE_PHASE)
def test_three_steps_equal_the_plain_restatement(name: str) -> None:
    method, objective = ONE_PHASE[name]
    state = build(method)
    plain = Restated(state)
    for i in range(3):
        run_both(method.phases[0], state, plain, objective, i)
    assert int(state.step) == 3


@pytest.mark.parametrize("name", ["vmt", "vmt on hidden", "dann"])
def test_the_same_when_all_passes_are_normalised_by_one_formula(name: str) -> None:
    method, objective = ONE_PHASE[name]
    state = build(method)
    plain = Restated(state)
    for i in range(2):
        with normalised_together():
            run_both(method.phases[0], state, plain, objective, i)


@pytest.mark.parametrize("instance_norm", [False, True])
@pytest.mark.parametrize("mix", ["logits", "hidden"])
def test_a_convolutional_network_computes_the_same_with_separate_passes(mix: str, instance_norm: bool) -> None:
    method, shape = methods.vmt(**WEIGHTS, mix=mix), (1, 8, 8)

    def network() -> Staged:
        return cnn(shape, CLASSES, widths=(4, 3, 5), instance_norm=instance_norm, dropout=0, noise=0)

    images = {n: Domain(torch.from_numpy(numbers(n).randn(N, *shape)), d.y, n) for n, d in blobs().items()}
    grouped, separate = (build(method, network, shape) for _ in range(2))
    for module in separate.roles.values():
        module.separate_passes = True
    for i in range(2):
        here = context(images, recorded(i, shape=shape))
        ours, theirs = (step(method.phases[0], state, here) for state in (grouped, separate))
        for name, value in theirs.items():
            torch.testing.assert_close(ours[name], value)
    for name, tensor in separate.tensors().items():
        torch.testing.assert_close(grouped.tensors()[name], tensor, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("mix", ["logits", "probabilities", "hidden", None])
def test_dirt_t_after_its_base_equals_the_plain_restatement(mix: str | None) -> None:
    """Two steps of the base, then five of DIRT-T with the teacher copied before the first, third and fifth."""
    base, before = ONE_PHASE["vada"] if mix is None else ONE_PHASE["vmt"]
    method = methods.dirt_t(base, beta=0.4, lambda_t=0.6, interval=2, mix=mix)
    state = build(method)
    plain = Restated(state)
    for i in range(2):
        run_both(method.phases[0], state, plain, before, i)
    objective = Objective(lambda_y=0, lambda_t=0.6, mix=mix, vat=True, beta=0.4)
    teachers = []
    for i in range(2, 7):
        if i % 2 == 0:
            plain.teach()
        run_both(method.phases[1], state, plain, objective, i, done=2)
        teachers.append({n: p.clone() for n, p in state.roles["teacher"].state_dict().items()})
    assert not state.roles["teacher"].training
    for one, other, same in ((0, 1, True), (1, 2, False), (2, 3, True), (3, 4, False)):
        assert all(torch.equal(teachers[one][n], teachers[other][n]) for n in teachers[one]) is same


def test_adam_moments_carry_over_into_dirt_t() -> None:
    method = methods.dirt_t(ONE_PHASE["vmt"][0], interval=2)
    state = build(method)
    for i in range(3):
        step(method.phases[0], state, context(draws=recorded(i)))
    assert float(state.optimisers["classifier/classifier"].t) == 3
    first = [m.clone() for m in state.optimisers["classifier/classifier"].m]
    run_events(method.phases[1], state, 0)
    step(method.phases[1], state, context(draws=recorded(3)))
    assert float(state.optimisers["classifier/classifier"].t) == 4
    assert float(state.optimisers["discriminator/discriminator"].t) == 3
    # β1 = ½: what is left of the old moments is half of them, the other half is this step's gradient.
    gradients = [
        2 * (new - 0.5 * old) for new, old in zip(state.optimisers["classifier/classifier"].m, first, strict=True)
    ]
    assert sum(float(g.abs().sum()) for g in gradients) > 0


def test_the_teacher_has_its_own_statistics() -> None:
    method = methods.dirt_t(ONE_PHASE["vmt"][0], interval=100)
    state = build(method)
    step(method.phases[0], state, context())
    run_events(method.phases[1], state, 0)
    teacher, classifier = state.roles["teacher"], state.roles["classifier"]
    before = {name: b.clone() for name, b in teacher.named_buffers()}
    for name, b in classifier.named_buffers():
        torch.testing.assert_close(before[name], b)
    step(method.phases[1], state, context(draws=recorded(1)))
    for name, b in teacher.named_buffers():
        assert torch.equal(b, before[name])
        assert not torch.equal(b, classifier.get_buffer(name))


def test_schedules_of_weights_and_learning_rates_take_effect() -> None:
    weight, rate = Ramp(0.2, 0.6), Ramp(1e-3, 0.0, shape="cosine")
    scheduled = methods.vada(0.3, 0.8, lambda_t=weight, optimiser=Adam(lr=rate))

    def stepped(progress: float) -> State:
        state = build(scheduled)
        scalars = {s: torch.tensor(s(progress), dtype=torch.float64) for s in (weight, rate)}
        step(scheduled.phases[0], state, context(scalars=scalars))
        return state

    for progress in (0.0, 0.5):
        plain = methods.vada(0.3, 0.8, lambda_t=weight(progress), optimiser=Adam(lr=rate(progress)))
        state = build(plain)
        step(plain.phases[0], state, context())
        for name, tensor in stepped(progress).tensors().items():
            torch.testing.assert_close(tensor, state.tensors()[name])
    start, end = build(scheduled), stepped(1.0)
    for a, b in zip(start.parameters(("classifier",)), end.parameters(("classifier",)), strict=True):
        assert torch.equal(a, b)  # the learning rate ended at 0


@pytest.mark.parametrize(("shape", "half"), [("linear", 0.5), ("cosine", 0.5), ("sigmoid", 0.98661)])
def test_ramp(shape: str, half: float) -> None:
    ramp = Ramp(0.0, 1.0, shape=shape)
    assert ramp(0) == pytest.approx(0)
    assert ramp(0.5) == pytest.approx(half, abs=1e-4)
    assert ramp(1) == pytest.approx(1, abs=1e-4)
    with pytest.raises(InputError, match="'cos'"):
        Ramp(0.0, 1.0, shape="cos")
    late = Ramp(2.0, 4.0, begin=0.5, until=0.75)
    assert [late(p) for p in (0, 0.5, 0.625, 0.75, 1)] == pytest.approx([2, 2, 3, 4, 4])


def test_warm_up_applies_only_to_the_penalties_on_the_target() -> None:
    def weights(method: Method) -> dict[str, Number]:
        return {term.name: term.weight for update in method.updates() for term in update.terms if term.weight != 0}

    plain, warm = (methods.vmt(lambda_t=0.4, lambda_mix_t=0.2, warm_up=share) for share in (0.0, 0.25))
    changed = {name: weight for name, weight in weights(warm).items() if weight != weights(plain)[name]}
    assert changed == {
        "L_m(target)": WarmUp(0.2, 0.25),
        "L_v(target)": WarmUp(0.4, 0.25),
        "L_c(target)": WarmUp(0.4, 0.25),
    }
    assert [WarmUp(0.4, 0.25)(progress) for progress in (0, 0.125, 0.25, 1)] == pytest.approx([0, 0.2, 0.4, 0.4])
    assert WarmUp(Ramp(1.0, 3.0), 0.5)(0.25) == pytest.approx(0.75), "a schedule can be warmed up as well"
    assert weights(methods.vmt(lambda_t=0, warm_up=0.5)) == weights(methods.vmt(lambda_t=0))
    assert methods.dirt_t(warm).phases[1] == methods.dirt_t(plain).phases[1]
    for method in (methods.vada, methods.co_da, methods.vmt):
        with pytest.raises(InputError, match="warm_up"):
            method(warm_up=5000)


@pytest.mark.parametrize("fresh", [True, False])
def test_lambda_is_drawn_anew_at_each_step_unless_frozen(fresh: bool) -> None:
    method = methods.vmt(fresh_lambda=fresh, vat=False)
    state = build(method)
    seen: list[torch.Tensor] = []

    class Watched(SeededDraws):
        def beta(self, name: str, alpha: float, n: int, frozen: bool = False) -> torch.Tensor:
            value = super().beta(name, alpha, n, frozen)
            if name == "classifier/target/lambda":
                seen.append(value)
            return value

    draws = Watched(0, state.step)
    for _ in range(3):
        step(method.phases[0], state, context(draws=draws))
    assert len(seen) == 3
    assert all(torch.equal(seen[0], other) is not fresh for other in seen[1:])


def test_the_two_updates_draw_different_batches_and_the_same_state_repeats_them() -> None:
    method = methods.dann()
    runs = []
    for _ in range(2):
        state = build(method)
        for _ in range(3):
            step(method.phases[0], state, context(draws=SeededDraws(4, state.step)))
        runs.append(state.tensors())
    assert all(torch.equal(runs[0][name], tensor) for name, tensor in runs[1].items())
    draws = SeededDraws(4, torch.tensor(0))
    assert not torch.equal(
        draws.choice("discriminator/target/indices", 20, 6), draws.choice("classifier/target/indices", 20, 6)
    )


def test_weights_in_bfloat16_are_those_of_the_step_also_inside_an_autocast() -> None:
    """Torch caches converted weights until the outermost autocast ends, and the loop runs in one that is disabled."""

    def after_two_steps() -> dict[str, Tensor]:
        work = workload((8, 8, 8), True, torch.device("cpu"), batch_size=4, samples=300, side=8)
        for _ in range(2):
            step(work.method.phases[0], work.state, work.context)
        return work.state.tensors()

    torch.manual_seed(0)
    expected = after_two_steps()
    torch.manual_seed(0)
    with torch.autocast("cpu", enabled=False):
        found = after_two_steps()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
