"""The systems of other papers: a step of each written out plainly, training that learns, and their networks."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.restated import Numbers, Restated, rows
from tests.small import BATCH, blobs, build, context, recorded
from vmt import losses, methods
from vmt.data import Domain, Task
from vmt.methods.nouns import SGD, Adam, Method
from vmt.methods.published import Distortion, Masking, Motion
from vmt.nets import cnn, mlp
from vmt.nets.factory import NetSpec
from vmt.nets.published import DomainHead, drcn_decoder, dsn_decoder, dsn_private
from vmt.step.draws import SeededDraws
from vmt.step.iteration import step
from vmt.step.state import State, build_state
from vmt.train import Config, train

pytestmark = pytest.mark.usefixtures("one_thread")
LR = 0.1


class Plain:
    """A state before a step, its batches, and plain SGD on its weights."""

    def __init__(self, method: Method) -> None:
        self.state: State = build(method)
        self.numbers, streams, self.draws = Restated(self.state), blobs(), recorded()
        for role, weights in self.numbers.weights.items():
            self.numbers.weights[role] = {name: p.requires_grad_() for name, p in weights.items()}
        (self.x_s, self.y), (self.x_t, _) = (
            rows(streams, self.draws, "classifier", name) for name in ("source", "target")
        )
        self.found = step(method.phases[0], self.state, context(streams, self.draws))

    def dense(self, role: str, name: str, x: Tensor) -> Tensor:
        return self.numbers.dense(role, name, x)

    def domain_loss(self, source: Tensor, target: Tensor) -> Tensor:
        """½ BCE on each domain, of a discriminator with one hidden layer."""

        def logit(x: Tensor) -> Tensor:
            return self.dense("discriminator", "domain.2.0", self.dense("discriminator", "domain.1.0", x).relu())[:, 0]

        return F.softplus(-logit(source)).mean() / 2 + F.softplus(logit(target)).mean() / 2

    def compare(self, losses: dict[str, Tensor]) -> None:
        """Every role has taken one step of plain gradient descent on its own loss."""
        for role, loss in losses.items():
            live: Numbers = self.numbers.weights[role]
            gradients = torch.autograd.grad(loss, list(live.values()), retain_graph=True, allow_unused=True)
            moved = {n: p if g is None else p - LR * g for (n, p), g in zip(live.items(), gradients, strict=True)}
            for name, p in self.state.roles[role].named_parameters():
                torch.testing.assert_close(p.detach(), moved[self.numbers.short(name)].detach(), msg=f"{role} {name}")


def test_a_step_of_dann_with_gradient_reversal_written_out_plainly() -> None:
    """The discriminator minimises its loss, and the encoder maximises it λ times, in one update."""
    plain = Plain(methods.dann_grl(reversal=0.7, head=(5,), optimiser=SGD(lr=LR, momentum=0)))
    source, target = plain.numbers.forward(plain.x_s), plain.numbers.forward(plain.x_t)
    l_disc = plain.domain_loss(source["features"], target["features"])
    torch.testing.assert_close(plain.found["classifier/L_disc"], l_disc.detach())
    supervised = F.cross_entropy(source["logits"], plain.y)
    plain.compare({"classifier": supervised - 0.7 * l_disc, "discriminator": l_disc})


def test_a_step_of_domain_separation_written_out_plainly() -> None:
    method = methods.dsn(0.3, 0.2, 0.5, separation_from=0, head=(5,), optimiser=SGD(lr=LR, momentum=0))
    plain = Plain(method)
    numbers, total = plain.numbers, torch.zeros((), dtype=torch.float64)
    codes = {}
    for name, x in (("source", plain.x_s), ("target", plain.x_t)):
        role = f"private {name}"
        taps = numbers.forward(x)
        codes[name] = taps["hidden"]
        z = plain.dense(role, "code.0", x)
        private = numbers.norm(role, "code.1", z, moves=False, evaluating=False).relu()
        hidden = plain.dense("decoder", "reconstruction.0.0", private + taps["hidden"]).relu()
        error = plain.dense("decoder", "reconstruction.1", hidden) - x
        rebuilt = error.var(1, unbiased=False).mean()
        p, s = (F.normalize(code - code.mean(0)) for code in (private, taps["hidden"]))
        apart = (p.T @ s).square().mean()
        torch.testing.assert_close(plain.found[f"classifier/reconstruction({name})"], rebuilt.detach())
        torch.testing.assert_close(plain.found[f"classifier/difference({name})"], apart.detach())
        total = total + 0.3 * rebuilt + 0.2 * apart
        if name == "source":
            total = total + F.cross_entropy(taps["logits"], plain.y)
    l_disc = plain.domain_loss(codes["source"], codes["target"])
    others = dict.fromkeys(("private source", "private target", "decoder"), total)
    plain.compare({"classifier": total - 0.5 * l_disc, "discriminator": 0.5 * l_disc, **others})


def test_separation_begins_after_a_share_of_the_iterations() -> None:
    terms = methods.dsn(separation_from=0.25).phases[0].updates[0].terms
    weights = {term.name: term.weight for term in terms if callable(term.weight)}
    assert {name.partition("(")[0] for name in weights} == {"L_disc", "difference", "reconstruction"}
    for weight in weights.values():
        assert callable(weight)
        assert weight(0.2) == 0 < weight(0.3)
    late = methods.mmd(0.5, separation_from=0.25).phases[0].updates[0].terms[1].weight
    assert callable(late)
    assert (late(0.2), late(0.3)) == (0, 0.5)


def test_a_step_of_the_pi_model_written_out_plainly() -> None:
    """Only confident predictions of the second pass count, which is held constant; all samples are in the mean."""
    method = methods.pi_model(2.0, 0.5, balance=0.3, noise=0.4, optimiser=SGD(lr=LR, momentum=0))
    plain = Plain(method)

    def noisy(x: Tensor, draw: str) -> Tensor:
        noise = plain.draws.normal(f"classifier/{draw}/augment/noise", tuple(x.shape))
        logits: Tensor = plain.numbers.forward(x + 0.4 * noise)["logits"]
        return logits

    source = noisy(plain.x_s, "source")
    p, q = (noisy(plain.x_t, draw).softmax(1) for draw in ("student", "teacher"))
    q = q.detach()
    mask = (q.max(1).values > 0.5).double()
    assert 0 < mask.mean() < 1, "some are confident and some are not"
    consistency = (mask * (p - q).square().mean(1)).mean()
    even = torch.full_like(p[0], 1 / 3)
    balance = 3 * F.binary_cross_entropy(p.mean(0), even) * mask.mean()
    torch.testing.assert_close(plain.found["classifier/consistency"], consistency.detach())
    torch.testing.assert_close(plain.found["classifier/class balance"], balance.detach())
    plain.compare({"classifier": F.cross_entropy(source, plain.y) + 2.0 * consistency + 0.3 * balance})


def test_a_step_of_drcn_written_out_plainly() -> None:
    """The classifier's update comes first; then encoder and decoder rebuild the clean target from a damaged one."""
    method = methods.drcn(0.6, masked=0.3, optimiser=Adam())
    state = build(method)
    plain, streams, draws = Restated(state), blobs(), recorded()
    found = step(method.phases[0], state, context(streams, draws))
    x_s, y = rows(streams, draws, "classifier", "source")
    live = plain.trained("classifier")
    plain.adam("classifier", F.cross_entropy(plain.forward(x_s)["logits"], y), live)
    x_t, _ = rows(streams, draws, "reconstruction", "target")
    kept = draws.beta("reconstruction/mask/augment/mask", 1.0, x_t.numel()).view(x_t.shape) >= 0.3
    for role in ("classifier", "decoder"):
        plain.weights[role] = {name: p.detach().requires_grad_() for name, p in plain.weights[role].items()}
    hidden = plain.forward(torch.where(kept, x_t, 0.0))["hidden"]
    rebuilt = plain.dense("decoder", "reconstruction.1", plain.dense("decoder", "reconstruction.0.0", hidden).relu())
    error = (rebuilt - x_t).square().mean()
    torch.testing.assert_close(found["reconstruction/reconstruction"], error.detach())
    weights = [p for role in ("classifier", "decoder") for p in plain.weights[role].values()]
    gradients = torch.autograd.grad(0.6 * error, weights, allow_unused=True)
    norm = torch.stack([g.norm() for g in gradients if g is not None]).norm()
    torch.testing.assert_close(found["reconstruction/gradient norm"], norm)


def test_what_drcn_rebuilds_is_neither_moved_nor_masked() -> None:
    """With a decoder that gives 0 everywhere, the error is the mean square of what it is compared with."""
    method, shape = methods.drcn(rotation=45, shift=0.4), (1, 8, 8)
    state = build_state(method, lambda: cnn(shape, 3, widths=(4, 4, 4)), shape, 0, torch.device("cpu"))
    for parameter in state.roles["decoder"].parameters():
        parameter.data.zero_()
    streams = {name: Domain(torch.rand(20, *shape), torch.arange(20) % 3, name) for name in ("source", "target")}
    draws = SeededDraws(0, state.step)
    chosen = draws.choice("reconstruction/target/indices", 20, BATCH)
    found = step(method.phases[0], state, context(streams, draws))
    expected = streams["target"].x[chosen].square().mean()
    torch.testing.assert_close(found["reconstruction/reconstruction"], expected)


def test_a_decoder_that_is_black_everywhere_still_learns() -> None:
    """As it becomes on pictures that are mostly black, if its values are limited to those of a picture."""
    decoder = drcn_decoder((8,), (1, 8, 8))
    last = list(decoder.parameters())[-1]
    last.data.fill_(-3.0)
    rebuilt = decoder(torch.rand(2, 8))["reconstruction"]
    assert rebuilt.max() < -1
    losses.squared_error(rebuilt, torch.ones_like(rebuilt)).mean().backward()  # type: ignore[no-untyped-call]
    assert last.grad is not None
    assert last.grad.abs().min() > 0


@pytest.mark.parametrize("name", ["dann_grl", "pi_model", "drcn", "dsn"])
def test_a_method_learns(task: Task, name: str) -> None:
    method = methods.METHODS[name](optimiser=Adam(lr=5e-3, beta1=0.9), iterations=70)
    outcome = train(task, method, lambda: mlp((6,), 3), Config(batch_size=32, evaluate_every=70, validate_samples=0))
    assert outcome.records[-1]["target"]["accuracy"] > 0.9


@pytest.mark.parametrize("name", ["dann_mnist", "dann_svhn", "drcn", "self_ensembling"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 16, 16)])
def test_the_networks_fit_their_decoders(name: str, shape: tuple[int, int, int]) -> None:
    network = NetSpec(name, shape, 10).build().eval()
    taps = network(torch.zeros(2, *shape))
    assert taps["logits"].shape == (2, 10)
    code = tuple(taps["hidden"].shape[1:])
    for decoder in (dsn_decoder(code, shape), drcn_decoder(code, shape)):
        assert decoder(torch.zeros(2, *code))["reconstruction"].shape == (2, *shape)
    assert dsn_private(code, shape)(torch.zeros(2, *shape))["code"].shape == (2, *code)
    features = tuple(taps["features"].shape[1:])
    assert DomainHead((7, 5))(features, shape)(taps["features"])["domain"].shape == (2, 1)


def test_augmentations_move_images_and_keep_their_shape() -> None:
    x = torch.rand(64, 1, 12, 12) * 2 - 1
    draws = SeededDraws(0, torch.zeros((), dtype=torch.int64))
    still = Distortion(affine=0, shift=0, noise=0)
    torch.testing.assert_close(still(x, draws, "still"), x, atol=1e-5, rtol=0)
    torch.testing.assert_close(Motion(0, 0)(x, draws, "still"), x, atol=1e-5, rtol=0)
    mirrored = Distortion(affine=0, shift=0, flip=True, noise=0)(x, draws, "flip")
    at_once = [torch.allclose(a, b.flip(-1), atol=1e-5) for a, b in zip(mirrored, x, strict=True)]
    assert 10 < sum(at_once) < 54
    assert Distortion(intensity=True)(x, draws, "all").shape == Motion(20, 0.2)(x, draws, "move").shape == x.shape
    assert float((Masking(0.5)(x, draws, "mask") == -1).float().mean()) == pytest.approx(0.5, abs=0.03)
