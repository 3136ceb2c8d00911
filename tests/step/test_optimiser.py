"""Adam in TensorFlow's form, against its formula in numpy."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from vmt.methods.nouns import Adam
from vmt.step.state import AdamState

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
