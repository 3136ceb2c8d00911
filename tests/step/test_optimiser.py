"""Adam in TensorFlow's form, against its formula in numpy; AdamW and SGD, against torch's."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.small import build, context, network, recorded
from vmt import methods
from vmt.errors import InputError
from vmt.methods.nouns import SGD, Adam, AdamW, AnyOptimiser, Phase, make_optimiser
from vmt.step.iteration import step
from vmt.step.state import AdamState, norm_of, state_for

pytestmark = pytest.mark.usefixtures("one_thread")

SHAPES = [(3, 4), (5,)]
SCALES = {"ordinary": 1.0, "tiny": 1e-8, "mixed": np.logspace(-12, 2, 20)}
Run = Callable[[list[np.ndarray], list[list[np.ndarray]], Adam], list[np.ndarray]]


def gradients(scale: float | np.ndarray, steps: int = 20) -> list[list[np.ndarray]]:
    random = np.random.RandomState(0)
    scales = np.broadcast_to(scale, steps)
    return [[random.randn(*shape) * scales[i] for shape in SHAPES] for i in range(steps)]


def start() -> list[np.ndarray]:
    random = np.random.RandomState(1)
    return [random.randn(*shape) for shape in SHAPES]


def tensorflow(parameters: list[np.ndarray], of_steps: list[list[np.ndarray]], adam: Adam) -> list[np.ndarray]:
    """TensorFlow 1's AdamOptimizer: ε stands beside √v before the bias correction ("ε-hat")."""
    parameters = [p.copy() for p in parameters]
    m, v = ([np.zeros_like(p) for p in parameters] for _ in range(2))
    assert isinstance(adam.lr, float)
    for t, found in enumerate(of_steps, start=1):
        rate = adam.lr * np.sqrt(1 - adam.beta2**t) / (1 - adam.beta1**t)
        for i, g in enumerate(found):
            m[i] = adam.beta1 * m[i] + (1 - adam.beta1) * g
            v[i] = adam.beta2 * v[i] + (1 - adam.beta2) * g**2
            parameters[i] -= rate * m[i] / (np.sqrt(v[i]) + adam.eps)
    return parameters


def ours(parameters: list[np.ndarray], of_steps: list[list[np.ndarray]], adam: Adam) -> list[np.ndarray]:
    live = [torch.from_numpy(p.copy()) for p in parameters]
    state = AdamState(live)
    for found in of_steps:
        state.step_(live, [torch.from_numpy(g) for g in found], adam, adam.lr)  # type: ignore[arg-type]
    return [p.numpy() for p in live]


def torchs(parameters: list[np.ndarray], of_steps: list[list[np.ndarray]], adam: Adam) -> list[np.ndarray]:
    live = [torch.from_numpy(p.copy()) for p in parameters]
    assert isinstance(adam.lr, float)
    optimiser = torch.optim.Adam(live, adam.lr, (adam.beta1, adam.beta2), adam.eps)
    for found in of_steps:
        for p, g in zip(live, found, strict=True):
            p.grad = torch.from_numpy(g)
        optimiser.step()
    return [p.detach().numpy() for p in live]


def furthest(run: Run, scale: float | np.ndarray, adam: Adam) -> float:
    """The largest difference to the formula after 20 steps, in units of the learning rate."""
    pairs = zip(run(start(), gradients(scale), adam), tensorflow(start(), gradients(scale), adam), strict=True)
    assert isinstance(adam.lr, float)
    return max(float(np.abs(a - b).max()) for a, b in pairs) / adam.lr


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("adam", [Adam(), Adam(lr=0.1, beta1=0.9, beta2=0.99, eps=1e-4)], ids=["paper", "other"])
def test_equal_to_tensorflows_formula(scale: str, adam: Adam) -> None:
    assert furthest(ours, SCALES[scale], adam) < 1e-6


def test_torchs_own_form_of_epsilon_is_another_optimiser() -> None:
    """The two forms agree for ordinary gradients and differ widely for gradients as small as ε."""
    assert furthest(torchs, SCALES["ordinary"], Adam()) < 1e-4
    assert furthest(torchs, SCALES["tiny"], Adam()) > 1
    assert furthest(torchs, SCALES["mixed"], Adam()) > 0.1


def test_the_learning_rate_may_be_a_tensor() -> None:
    a, b = ([torch.ones(3, dtype=torch.float64)] for _ in range(2))
    g = [torch.tensor([1.0, -2.0, 0.0], dtype=torch.float64)]
    AdamState(a).step_(a, g, Adam(), torch.tensor(0.01, dtype=torch.float64))
    AdamState(b).step_(b, g, Adam(), 0.01)
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(a[0], torch.tensor([0.99, 1.01, 1.0], dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_single_precision_keeps_the_bias_correction_in_double() -> None:
    p = [torch.zeros(2)]
    state = AdamState(p)
    for _ in range(3):
        state.step_(p, [torch.ones(2)], Adam(), 1e-3)
    assert state.t.dtype == torch.float64
    # With a constant gradient of 1, every step is lr.
    torch.testing.assert_close(p[0], torch.full((2,), -3e-3), rtol=1e-5, atol=0)


def test_an_optimiser_resumes_from_the_tensors_that_it_lists() -> None:
    p = [torch.zeros(2), torch.zeros(3)]
    state = AdamState(p)
    state.step_(p, [torch.ones(2), torch.ones(3)], Adam(), 1e-3)
    tensors = state.tensors()
    assert set(tensors) == {"t", "m.0", "m.1", "v.0", "v.1"}
    resumed, q = AdamState(p), [x.clone() for x in p]
    for name, tensor in resumed.tensors().items():
        tensor.copy_(tensors[name])
    state.step_(p, [torch.ones(2), torch.ones(3)], Adam(), 1e-3)
    resumed.step_(q, [torch.ones(2), torch.ones(3)], Adam(), 1e-3)
    assert all(torch.equal(a, b) for a, b in zip(p, q, strict=True))


TORCHS: dict[str, tuple[AnyOptimiser, Callable[[list[torch.Tensor]], torch.optim.Optimizer]]] = {
    "adamw": (
        AdamW(lr=0.02, weight_decay=0.3),
        lambda p: torch.optim.AdamW(p, 0.02, weight_decay=0.3),
    ),
    "sgd": (
        SGD(lr=0.02, momentum=0.8, weight_decay=0.3),
        lambda p: torch.optim.SGD(p, 0.02, momentum=0.8, weight_decay=0.3),
    ),
    "sgd without momentum": (SGD(lr=0.02, momentum=0.0), lambda p: torch.optim.SGD(p, 0.02)),
    "nesterov": (
        SGD(lr=0.02, momentum=0.8, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.02, momentum=0.8, nesterov=True),
    ),
}


@pytest.mark.parametrize("name", TORCHS)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_adamw_and_sgd_are_torchs(name: str, as_tensor: bool) -> None:
    optimiser, make = TORCHS[name]
    ours, theirs = ([torch.from_numpy(p).requires_grad_() for p in start()] for _ in range(2))
    torchs, state = make(theirs), state_for(optimiser, ours)
    lr = optimiser.lr
    assert isinstance(lr, float)
    for found in gradients(1.0, 5):
        for p, g in zip(theirs, found, strict=True):
            p.grad = torch.from_numpy(g)
        torchs.step()
        state.step_(
            ours, [torch.from_numpy(g) for g in found], optimiser, torch.tensor(lr).double() if as_tensor else lr, None
        )
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("optimiser", [Adam(), AdamW(), SGD()])
def test_a_smaller_rate_and_no_gradient(optimiser: AnyOptimiser) -> None:
    """The second weight takes a tenth of the first one's step, and the third has no gradient."""
    p = [torch.ones(2) for _ in range(3)]
    state = state_for(optimiser, p)
    for _ in range(2):
        state.step_(p, [torch.ones(2), torch.ones(2), None], optimiser, 1e-2, [1.0, 0.1, 1.0])
    torch.testing.assert_close((1 - p[1]) * 10, 1 - p[0], rtol=1e-3, atol=0)
    assert torch.equal(p[2], torch.ones(2))


def steps(optimiser: AnyOptimiser, count: int = 1) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], float]:
    """The weights of the classifier before and after some steps, and the norm of the last gradient."""
    method = methods.mcc(0.3, optimiser=optimiser)
    state = build(method)
    before = {name: p.detach().clone() for name, p in state.roles["classifier"].named_parameters()}
    for i in range(count):
        metrics = step(method.phases[0], state, context(draws=recorded(i)))
    after = {name: p.detach() for name, p in state.roles["classifier"].named_parameters()}
    return before, after, float(metrics["classifier/gradient norm"])


def test_the_backbone_has_a_rate_of_its_own() -> None:
    before, plain, _ = steps(SGD(lr=0.1))
    _, slow, _ = steps(SGD(lr=0.1, backbone_rate=0.25))
    for name, start in before.items():
        rate = 1.0 if name.startswith("stages.logits") else 0.25
        torch.testing.assert_close(slow[name] - start, rate * (plain[name] - start))


def test_the_head_is_trained_first() -> None:
    head, rest = methods.mcc(0.3, optimiser=SGD(lr=0.1), iterations=10).with_head_first(0.4).phases
    assert [(head.name, head.iterations), (rest.name, rest.iterations)] == [("head", 4), ("mcc", 6)]
    state = build(methods.mcc(0.3, optimiser=SGD(lr=0.1)))
    weights = dict(state.roles["classifier"].named_parameters())

    def changed(phase: Phase) -> set[str]:
        """The stages whose weights a step changes."""
        before = {name: p.detach().clone() for name, p in weights.items()}
        step(phase, state, context(draws=recorded()))
        return {name.split(".")[1] for name, p in weights.items() if not torch.equal(p, before[name])}

    assert changed(head) == {"logits"}
    assert changed(rest) == {"features", "hidden", "logits"}
    assert methods.mcc().with_head_first(0.0) == methods.mcc()
    with pytest.raises(InputError, match="head_first"):
        methods.mcc().with_head_first(1.0)


def test_gradients_are_clipped_by_their_joint_norm() -> None:
    before, plain, norm = steps(SGD(lr=0.1))
    _, within, _ = steps(SGD(lr=0.1, clip_norm=2 * norm))
    _, clipped, logged = steps(SGD(lr=0.1, clip_norm=norm / 4))
    assert logged == norm  # the gradient's own norm is logged
    for name, start in before.items():
        assert torch.equal(within[name], plain[name])
        torch.testing.assert_close(clipped[name] - start, (plain[name] - start) / 4, rtol=1e-4, atol=1e-9)
    moved = [clipped[name] - start for name, start in before.items()]
    assert float(norm_of(moved)) == pytest.approx(0.1 * norm / 4, rel=1e-4)


def test_a_run_record_of_the_papers_adam_stays_as_it_was() -> None:
    assert repr(Adam()) == "Adam(lr=0.001, beta1=0.5, beta2=0.999, eps=1e-08)"
    assert repr(Adam(clip_norm=1.0)) == "Adam(lr=0.001, beta1=0.5, beta2=0.999, eps=1e-08, clip_norm=1.0)"


@pytest.mark.parametrize(
    ("options", "offender"),
    [
        ({"name": "adamax"}, "adamax"),
        ({"name": "adam", "momentum": 0.9}, "momentum.*sgd"),
        ({"name": "adam", "weight_decay": 0.1}, "weight_decay.*adamw or sgd"),
        ({"name": "sgd", "lr_schedule": "step"}, "lr_schedule.*step"),
        ({"name": "sgd", "momentum": 1.0}, "momentum.*1.0"),
        ({"name": "adamw", "backbone_rate": -1.0}, "backbone_rate"),
        ({"name": "adamw", "clip_norm": 0.0}, "clip_norm"),
    ],
)
def test_options_that_an_optimiser_does_not_have_are_refused(options: dict[str, object], offender: str) -> None:
    with pytest.raises(InputError, match=offender):
        make_optimiser(**options)  # type: ignore[arg-type]


def test_one_update_keeps_one_kind_of_optimiser() -> None:
    base = methods.vada(optimiser=SGD(), iterations=2)
    phase = methods.dirt_t(methods.vada(optimiser=Adam(), iterations=2), mix=None, iterations=2)
    mixed = dataclasses.replace(phase, phases=(base.phases[0], phase.phases[1]))
    with pytest.raises(InputError, match=r"classifier.*optimiser"):
        build(mixed, network)
