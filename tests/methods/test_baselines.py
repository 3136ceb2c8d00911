"""DANN, CDAN, MMD, MCC and Co-DA: a step written out plainly, and training that DIRT-T can follow."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.restated import Restated, rows
from tests.small import blobs, build, context, recorded
from vmt import methods
from vmt.data import Domain, Task
from vmt.losses import BANDWIDTHS
from vmt.methods.nouns import Adam
from vmt.nets import cnn, mlp
from vmt.runs.recipes import paper
from vmt.step.draws import SeededDraws
from vmt.step.iteration import step
from vmt.step.state import build_state
from vmt.train import Config, train

pytestmark = pytest.mark.usefixtures("one_thread")


def gradient_norm(total: Tensor, plain: Restated, *roles: str) -> Tensor:
    live = [p for role in roles for p in plain.weights[role].values()]
    # Biases before a batch norm change nothing: what they get is rounding.
    gradients = torch.autograd.grad(total, live, allow_unused=True)
    norm: Tensor = torch.stack([g.norm() for g in gradients if g is not None]).norm()
    return norm


def test_a_step_of_co_da_written_out_plainly() -> None:
    """Agreement is on the target, diversity on the source; each classifier has its own discriminator."""
    method = methods.co_da(0.3, 0.0, 0.0, lambda_p=0.7, lambda_div=0.4, ceiling=50.0)
    state = build(method)
    plain, streams, draws = Restated(state), blobs(), recorded()
    found = step(method.phases[0], state, context(streams, draws))
    (x_s, y), (x_t, _) = (rows(streams, draws, "classifier", name) for name in ("source", "target"))
    total, logits, features = torch.zeros(()), [], []
    for mark in ("", "2"):
        weights = plain.weights[f"classifier{mark}"]
        plain.weights[f"classifier{mark}"] = {name: p.requires_grad_() for name, p in weights.items()}
        source, target = (plain.forward(x, f"classifier{mark}") for x in (x_s, x_t))
        # The discriminators were updated before.
        discriminator = state.roles[f"discriminator{mark}"]
        of_source, of_target = (discriminator(taps["features"])["domain"] for taps in (source, target))
        confusion = F.softplus(of_source).mean() / 2 + F.softplus(-of_target).mean() / 2
        total = total + F.cross_entropy(source["logits"], y) + 0.3 * confusion
        logits.append(target["logits"])
        features.append(source["features"])
    agreement = (logits[0].softmax(1) - logits[1].softmax(1)).abs().sum(1).mean()
    distance = (features[0].mean(0) - features[1].mean(0)).square().sum()
    norm = gradient_norm(total + 0.7 * agreement - 0.4 * distance, plain, "classifier", "classifier2")
    torch.testing.assert_close(found["classifier/agreement"], agreement.detach())
    torch.testing.assert_close(found["classifier/diversity"], -distance.detach())
    torch.testing.assert_close(found["classifier/gradient norm"], norm)


def test_diversity_pushes_the_encoders_of_images_apart() -> None:
    """The noise and dropout of a feature map must not put the distance above the ceiling, where nothing pushes."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(32, 3, 8, 8, generator=random)
    streams = {name: Domain(x, torch.arange(32) % 3, name) for name in ("source", "target")}
    distances = []
    for weight in (0.0, 1.0):
        method = methods.co_da(0.0, 0.0, 0.0, lambda_div=weight, optimiser=Adam(lr=1e-2))
        state = build_state(method, lambda: cnn((3, 8, 8), 3, (8, 8, 8)), (3, 8, 8), 0, torch.device("cpu"))
        with torch.random.fork_rng():
            torch.manual_seed(0)  # for dropout and noise
            for _ in range(40):
                found = step(method.phases[0], state, context(streams, SeededDraws(0, state.step)))
        distances.append(-float(found["classifier/diversity"]))
    assert distances[0] < 5, "far below the ceiling of 10"
    assert distances[1] > 2 * distances[0]


def test_co_da_pushes_no_further_than_its_ceiling() -> None:
    method = methods.co_da(0.0, 0.0, 0.0, ceiling=1e-3)
    found = step(method.phases[0], build(method), context())
    assert float(found["classifier/diversity"]) == pytest.approx(-1e-3)


def test_a_step_of_mmd_written_out_plainly() -> None:
    method = methods.mmd(weight=0.5)
    state = build(method)
    plain, streams, draws = Restated(state), blobs(), recorded()
    found = step(method.phases[0], state, context(streams, draws))
    (x_s, y), (x_t, _) = (rows(streams, draws, "classifier", name) for name in ("source", "target"))
    plain.trained("classifier")
    source, target = plain.forward(x_s), plain.forward(x_t, moves=True)

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        squared = (a[:, None] - b[None]).square().sum(-1)
        return sum(((-squared / (2 * sigma)).exp() for sigma in BANDWIDTHS), torch.zeros(())).mean()

    s, t = source["hidden"], target["hidden"]
    discrepancy = kernel(s, s) + kernel(t, t) - 2 * kernel(s, t)
    norm = gradient_norm(F.cross_entropy(source["logits"], y) + 0.5 * discrepancy, plain, "classifier")
    torch.testing.assert_close(found["classifier/MMD"], discrepancy.detach())
    torch.testing.assert_close(found["classifier/gradient norm"], norm)
    for name, running in state.roles["classifier"].named_buffers():
        torch.testing.assert_close(running, plain.running["classifier"][plain.short(name)], msg=name)


@pytest.mark.parametrize("name", ["mnist-svhn", "cifar-stl", "stl-cifar"])
@pytest.mark.parametrize("method", ["dann", "cdan"])
def test_dann_has_a_discriminator_on_every_task_of_the_paper(name: str, method: str) -> None:
    """Even if VMT's λ_d is 0 on the task: without a discriminator, DANN would be source only."""
    discriminator, classifier = paper(name, method).build().updates()
    assert discriminator.name == "discriminator"
    assert {term.name: term.weight for term in classifier.terms if term.weight} == {"L_y": 1.0, "L_d": 0.01}


def test_the_random_matrices_of_cdan_are_drawn_once_from_the_seed_and_saved() -> None:
    method = methods.cdan()

    def matrices(seed: int) -> dict[str, Tensor]:
        state = build_state(method, lambda: mlp((4,), 3, width=1400), (4,), seed, torch.device("cpu"))
        return {name: t.clone() for name, t in state.tensors().items() if "domain.0." in name}

    first = matrices(0)
    assert {name: tuple(t.shape) for name, t in first.items()} == {
        "roles/discriminator/stages.domain.0.of_features": (1400, 1024),
        "roles/discriminator/stages.domain.0.of_predictions": (3, 1024),
    }
    again, other = matrices(0), matrices(1)
    assert all(torch.equal(again[name], t) and not torch.equal(other[name], t) for name, t in first.items())


def test_the_random_matrices_of_cdan_do_not_change() -> None:
    method = methods.cdan(0.3)
    state = build(method, lambda: mlp((4,), 3, width=1400, dropout=0, noise=0))
    before = {name: t.clone() for name, t in state.roles["discriminator"].state_dict().items()}
    step(method.phases[0], state, context())
    changed = {n for n, t in state.roles["discriminator"].state_dict().items() if not torch.equal(t, before[n])}
    assert changed == {f"stages.domain.{layer}.{kind}" for layer in (1, 3) for kind in ("weight", "bias")}


@pytest.mark.parametrize("name", ["adabn", "mmd", "mcc", "cdan", "co_da", "vmt_mcc"])
def test_a_method_learns_and_dirt_t_can_follow(task: Task, name: str) -> None:
    base = methods.METHODS[name](optimiser=Adam(lr=3e-3), iterations=150)
    method = methods.dirt_t(base, mix=None, radius=0.3, interval=20, iterations=40).with_decay(0.9)
    config = Config(batch_size=32, evaluate_every=50)
    outcome = train(task, method, lambda: mlp((6,), 3), config)
    assert list(outcome.loop_state.phases) == [name, "dirt_t"]
    assert outcome.loop_state.phases["dirt_t"]["accuracy"] > 0.9
    assert outcome.records[-1]["source"]["accuracy"] > 0.9


def test_the_two_classifiers_of_co_da_differ_and_agree(task: Task) -> None:
    """They differ in their weights and agree in their predictions for the target."""
    method = methods.co_da(optimiser=Adam(lr=3e-3), radius=0.3, iterations=120)
    outcome = train(task, method, lambda: mlp((6,), 3), Config(batch_size=32, log_every=20))
    logged = [record for record in outcome.records if "classifier/agreement" in record]
    assert logged[-1]["classifier/agreement"] < 0.5 * logged[0]["classifier/agreement"]
    assert logged[-1]["classifier/L_y of classifier2"] < logged[0]["classifier/L_y of classifier2"]
