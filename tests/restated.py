"""The methods written out a second time, plainly: one forward pass per input, BatchNorm, Adam and averages by hand.

Nothing here uses the package's losses, plan, norms or optimiser: only the numbers of a state, and the named draws.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from vmt.data import Domain
from vmt.methods.nodes import Draws
from vmt.step.state import State

Numbers = dict[str, Tensor]
BLOCKS = {"features": ("features.1", "features.2"), "hidden": ("hidden.0", "hidden.1")}


@dataclass
class Objective:
    """Which terms, with which weights; None or 0 leaves one out."""

    lambda_y: float = 1.0
    labels: str = "source"
    statistics: str = "target"
    lambda_d: float = 0.0
    lambda_s: float = 0.0
    lambda_t: float = 0.0
    lambda_mix_t: float | None = None
    mix: str | None = None
    vat: bool = False
    entropy: bool = True
    beta: float = 0.0
    lambda_mcc: float = 0.0
    conditional: bool = False
    entropy_weights: bool = False


class Restated:
    """The numbers of a state as plain tensors, and the updates on them."""

    def __init__(self, state: State) -> None:
        self.weights: dict[str, Numbers] = {}
        self.running: dict[str, Numbers] = {}
        for role, module in state.roles.items():
            self.weights[role] = {self.short(n): p.detach().clone() for n, p in module.named_parameters()}
            self.running[role] = {self.short(n): b.clone() for n, b in module.named_buffers()}
        self.running["ema"] = self.running["classifier"]
        names = {"classifier", "discriminator"} & set(state.roles)
        self.moments = {r: {n: (0.0 * p, 0.0 * p) for n, p in self.weights[r].items()} for r in names}
        self.t = dict.fromkeys(names, 0)

    @staticmethod
    def short(name: str) -> str:
        return name.removeprefix("stages.")

    def compare(self, state: State) -> None:
        for role, module in state.roles.items():
            for name, p in module.named_parameters():
                torch.testing.assert_close(p.detach(), self.weights[role][self.short(name)], msg=f"{role} {name}")
            for name, b in module.named_buffers():
                torch.testing.assert_close(b, self.running[role][self.short(name)], msg=f"{role} {name}")

    # Networks

    def norm(self, role: str, name: str, z: Tensor, moves: bool, evaluating: bool) -> Tensor:
        w, running = self.weights[role], self.running[role]
        mean, var = z.mean(0), z.var(0, unbiased=False)
        if evaluating:
            mean, var = running[f"{name}.running_mean"], running[f"{name}.running_var"]
        if moves:
            for kind, value in (("mean", mean), ("var", var)):
                old = running[f"{name}.running_{kind}"]
                running[f"{name}.running_{kind}"] = 0.99 * old + 0.01 * value.detach()
        return (z - mean) / (var + 1e-3).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    def dense(self, role: str, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[role][f"{name}.weight"].T + self.weights[role][f"{name}.bias"]

    def forward(
        self, x: Tensor, role: str = "classifier", moves: bool = False, evaluating: bool = False, until: str = ""
    ) -> Numbers:
        taps = {}
        for tap, blocks in BLOCKS.items():
            for block in blocks:
                z = self.norm(role, f"{block}.1", self.dense(role, f"{block}.0", x), moves, evaluating)
                x = torch.where(z > 0, z, 0.1 * z)
            taps[tap] = x
            if tap == until:
                return taps
        taps["logits"] = self.head(x, role, moves, evaluating)
        return taps

    def head(self, h: Tensor, role: str = "classifier", moves: bool = False, evaluating: bool = False) -> Tensor:
        return self.norm(role, "logits.1", self.dense(role, "logits.0", h), moves, evaluating)

    def domain(self, taps: Numbers, o: Objective) -> Tensor:
        x = taps["features"]
        if o.conditional:
            p = taps["logits"].detach().softmax(1)
            x = torch.stack(
                [f[i] * q[k] for f, q in zip(x, p, strict=True) for i in range(len(f)) for k in range(len(q))]
            )
            x = x.view(len(p), -1)
        return self.dense("discriminator", "domain.3", self.dense("discriminator", "domain.1", x).relu())[:, 0]

    # Updates

    def adam(self, role: str, loss: Tensor, live: Numbers) -> Tensor:
        gradients = dict(zip(live, torch.autograd.grad(loss, list(live.values()), allow_unused=True), strict=True))
        self.t[role] += 1
        t, squares = self.t[role], torch.zeros((), dtype=torch.float64)
        for name, p in live.items():
            g = torch.zeros_like(p) if gradients[name] is None else gradients[name]
            m, v = self.moments[role][name]
            m, v = 0.5 * m + 0.5 * g, 0.999 * v + 0.001 * g * g
            self.moments[role][name] = m, v
            self.weights[role][name] = p.detach() - 1e-3 * (1 - 0.999**t) ** 0.5 / (1 - 0.5**t) * m / (v.sqrt() + 1e-8)
            squares = squares + g.square().sum()
        return squares.sqrt()

    def trained(self, role: str) -> Numbers:
        """From here on, gradients reach the weights of this role and no others."""
        for other, numbers in self.weights.items():
            self.weights[other] = {n: p.detach().requires_grad_(other == role) for n, p in numbers.items()}
        return self.weights[role]

    def discriminate(self, streams: dict[str, Domain], draws: Draws, o: Objective) -> Numbers:
        live = self.trained("discriminator")
        x = {name: rows(streams, draws, "discriminator", name)[0] for name in streams}
        source = self.forward(x["source"])
        # This target pass too moves running statistics: those of the encoder, if it goes no further.
        target = self.forward(x["target"], moves=True, until="" if o.conditional else "features")
        loss = self.told_apart(source, target, 1, o)
        return {"discriminator/L_disc": loss, "discriminator/gradient norm": self.adam("discriminator", loss, live)}

    def told_apart(self, source: Numbers, target: Numbers, sign: int, o: Objective) -> Tensor:
        """The loss of the discriminator for sign 1, and that with swapped labels for sign −1."""
        parts = []
        for taps, of_domain in ((source, sign), (target, -sign)):
            loss = -F.logsigmoid(of_domain * self.domain(taps, o))
            if o.entropy_weights:
                p = taps["logits"].detach().softmax(1)
                w = 1 + (p * p.log()).sum(1).exp()
                loss = loss * w / w.mean()
            parts.append(0.5 * loss.mean())
        return parts[0] + parts[1]

    def classify(self, streams: dict[str, Domain], draws: Draws, o: Objective) -> Numbers:
        live = self.trained("classifier")
        x = {name: rows(streams, draws, "classifier", name)[0] for name in streams}
        y = rows(streams, draws, "classifier", o.labels)[1]
        clean = {name: self.forward(x[name], moves=name == o.statistics) for name in streams}
        found: Numbers = {}
        total = torch.zeros((), dtype=torch.float64)
        if o.lambda_y:
            found["L_y"] = -clean[o.labels]["logits"].log_softmax(1)[range(len(y)), y].mean()
            total = total + o.lambda_y * found["L_y"]
        if o.beta:
            other = rows(streams, draws, "classifier", "target", ".teacher")[0]
            label = self.forward(other, "teacher", evaluating=True)["logits"].softmax(1)
            found["teacher"] = cross_entropy(label, self.forward(other)["logits"])
            total = total + o.beta * found["teacher"]
        if o.lambda_d:
            found["L_d"] = self.told_apart(clean["source"], clean["target"], -1, o)
            total = total + o.lambda_d * found["L_d"]
        for name, weight in (("source", o.lambda_s), ("target", o.lambda_t)):
            if not weight:
                continue
            if o.mix:
                found[f"L_m({name})"] = self.mixup(x[name], clean[name], draws, name, o.mix)
                own = o.lambda_mix_t if name == "target" and o.lambda_mix_t is not None else weight
                total = total + own * found[f"L_m({name})"]
            if o.vat:
                found[f"L_v({name})"] = self.vat(x[name], clean[name]["logits"], draws, name)
                total = total + weight * found[f"L_v({name})"]
        if o.lambda_t and o.entropy:
            p = clean["target"]["logits"].softmax(1)
            found["L_c(target)"] = -(p * p.log()).sum(1).mean()
            total = total + o.lambda_t * found["L_c(target)"]
        if o.lambda_mcc:
            found["L_mcc(target)"] = class_confusion(clean["target"]["logits"])
            total = total + o.lambda_mcc * found["L_mcc(target)"]
        norm = self.adam("classifier", total, live)
        for name, p in self.weights["classifier"].items():
            self.weights["ema"][name] = 0.998 * self.weights["ema"][name].detach() + 0.002 * p.detach()
        return {f"classifier/{name}": value for name, value in {**found, "gradient norm": norm}.items()}

    def mixup(self, x: Tensor, clean: Numbers, draws: Draws, stream: str, mix: str) -> Tensor:
        lam = draws.beta(f"classifier/{stream}/lambda", 1.0, len(x))[:, None]
        j = draws.permutation(f"classifier/{stream}/partner", len(x))
        z, h = clean["logits"].detach(), clean["hidden"].detach()
        if mix == "logits":
            label = (lam * z + (1 - lam) * z[j]).softmax(1)
        elif mix == "probabilities":
            label = lam * z.softmax(1) + (1 - lam) * z[j].softmax(1)
        else:
            label = self.head(lam * h + (1 - lam) * h[j]).softmax(1).detach()
        return cross_entropy(label, self.forward(lam * x + (1 - lam) * x[j])["logits"])

    def vat(self, x: Tensor, clean: Tensor, draws: Draws, stream: str) -> Tensor:
        d = draws.normal(f"classifier/{stream}/direction", tuple(x.shape))
        near = torch.stack([row + 0.5 * e / e.norm() for row, e in zip(x, d, strict=True)]).requires_grad_()
        label = clean.detach().softmax(1)
        (slope,) = torch.autograd.grad(len(x) * cross_entropy(label, self.forward(near)["logits"]), near)
        attacked = torch.stack([row + 3.5 * g / g.norm() for row, g in zip(x, slope, strict=True)])
        return cross_entropy(label, self.forward(attacked)["logits"])

    def teach(self) -> None:
        """The teacher becomes the weight average with the running statistics of the moment."""
        self.weights["teacher"] = {n: p.detach().clone() for n, p in self.weights["ema"].items()}
        self.running["teacher"] = {n: b.clone() for n, b in self.running["classifier"].items()}


def cross_entropy(label: Tensor, logits: Tensor) -> Tensor:
    return -(label * logits.log_softmax(1)).sum(1).mean()


def class_confusion(logits: Tensor) -> Tensor:
    """Pair by pair of classes: how much of the weight of one is shared with the other."""
    p = (logits / 2.5).softmax(1)
    w = 1 + (p * p.log()).sum(1).exp().detach()
    w, k = len(p) * w / w.sum(), p.shape[1]
    total = torch.zeros((), dtype=p.dtype)
    for a in range(k):
        for b in set(range(k)) - {a}:
            total = total + (w * p[:, a] * p[:, b]).sum() / (w * p[:, a]).sum()
    return total / k


def rows(streams: dict[str, Domain], draws: Draws, update: str, stream: str, draw: str = "") -> tuple[Tensor, Tensor]:
    domain = streams[stream]
    at = draws.choice(f"{update}/{stream}{draw}/indices", len(domain), 6)
    assert domain.y is not None
    return domain.x[at], domain.y[at]
