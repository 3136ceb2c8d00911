"""Compare the training step with iterations recorded from the authors' own program.

    python -m tests.golden tests/fixtures/vmt_small_instance_norm.npz --method vmt --net small --instance-norm yes

Every input of a recording is a draw named by a string (:func:`draw`), so the file holds results only. The package's own
step runs on those inputs; every recorded loss, weight, running statistic and weight average is compared, and the
command exits with 1 when one is too far off. The step runs in double precision: what is left is the rounding of the
recorded program alone, not of two programs.
"""

import argparse
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from vmt import methods
from vmt.data import Domain
from vmt.draws import RecordedDraws
from vmt.events import run_events
from vmt.method import Method
from vmt.nets import Staged, cnn
from vmt.nets.norm import BatchNorm, InstanceNorm
from vmt.optim import AdamState
from vmt.state import State, build_state, share_buffers
from vmt.step import Metrics, Setting, step

N = 64
WIDTHS = {"small": (64, 64, 64), "large": (96, 192, 192)}
CONVOLUTIONS = ("l1", "l2", "l3", "l7", "l8", "l9", "l13", "l14", "l15")
# The recording's names for losses, by method.
LOSSES = {
    "vmt": {
        "disc": "L_disc",
        "domain": "L_d",
        "class": "L_y",
        "cent": "L_c(target)",
        "trg_vat": "L_v(target)",
        "src_vat": "L_v(source)",
        "src_mix_adv": "L_m(source)",
        "trg_mix_adv": "L_m(target)",
    },
    "dirt_t": {
        "class": "teacher",
        "cent": "L_c(target)",
        "trg_vat": "L_v(target)",
        "trg_mix_adv": "L_m(target)",
    },
}
# How close to be, per iteration. Adam's first steps are nearly sign steps and amplify rounding.
TOLERANCE = {
    "loss": (1e-4, 1e-2),
    "statistics": (1e-6, 3e-4),
    "weights": (1e-5, 1e-2),
    "teacher": (1e-5, 1e-3),
}
WEIGHTS_WITHIN = 0.95  # the share of entries that must be that close


@dataclass(frozen=True)
class Comparison:
    """One line of the report."""

    what: str
    difference: float
    tolerance: float
    within: float
    required: float

    @property
    def ok(self) -> bool:
        return self.within >= self.required

    def __str__(self) -> str:
        mark = "ok  " if self.ok else "FAIL"
        return (
            f"{mark} {self.what:<62} max |Δ| {self.difference:.2e}   "
            f"{100 * self.within:6.2f} % within {self.tolerance:.0e} (needs {100 * self.required:.0f} %)"
        )


def draw(name: str) -> np.random.RandomState:
    return np.random.RandomState(zlib.crc32(name.encode()))


def value_of(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The initial value of a variable of the authors' program."""
    random = draw(name)
    kind = name.rsplit("/", 1)[1]
    if kind == "weights":
        value = random.randn(*shape) * np.sqrt(2 / np.prod(shape[:-1]))
    elif kind == "gamma":
        value = 1 + 0.2 * random.randn(*shape)
    elif kind == "var":
        value = 1 + 0.3 * random.rand(*shape)
    else:
        value = 0.1 * random.randn(*shape)
    return value.astype(np.float32)


def variables(
    classifier: Staged, discriminator: Staged | None
) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
    """Name, tensor and TensorFlow shape of every variable that the recording may hold."""

    def normalised(
        layer: str, module: nn.Module, bn: BatchNorm
    ) -> Iterator[tuple[str, Tensor, tuple[int, ...]]]:
        c = bn.weight.numel()
        shape = (1, 1, 1, c) if isinstance(module, nn.Conv2d) else (1, c)
        yield f"{layer}/weights", module.weight, tf_shape(module)
        yield f"{layer}/biases", module.bias, (c,)
        yield f"{layer}/bn/mean", bn.running_mean, shape
        yield f"{layer}/bn/var", bn.running_var, shape
        yield f"{layer}/bn/gamma", bn.weight, shape
        yield f"{layer}/bn/beta", bn.bias, shape

    for module in classifier.modules():
        if isinstance(module, InstanceNorm):
            yield "class/l0/instance_norm/gamma", module.weight, (1, 1, 1, 3)
            yield "class/l0/instance_norm/beta", module.bias, (1, 1, 1, 3)
    convolutions = [m for m in classifier.modules() if isinstance(m, nn.Conv2d)]
    norms = [m for m in classifier.modules() if isinstance(m, BatchNorm)]
    dense = next(m for m in classifier.modules() if isinstance(m, nn.Linear))
    for layer, conv, bn in zip(CONVOLUTIONS, convolutions, norms[:-1], strict=True):
        yield from normalised(f"class/{layer}/conv2d", conv, bn)
    yield from normalised("class/l17/dense", dense, norms[-1])
    if discriminator is not None:
        layers = [m for m in discriminator.modules() if isinstance(m, nn.Linear)]
        for name, layer in zip(("dense", "dense_1"), layers, strict=True):
            yield f"disc/feat/{name}/weights", layer.weight, tf_shape(layer)
            yield f"disc/feat/{name}/biases", layer.bias, (layer.bias.numel(),)


def tf_shape(module: nn.Module) -> tuple[int, ...]:
    weight = module.weight
    return (
        (3, 3, weight.shape[1], weight.shape[0]) if weight.dim() == 4 else (weight.shape[1], weight.shape[0])
    )


def to_torch(value: np.ndarray, like: Tensor, name: str) -> Tensor:
    """From TensorFlow's layout: HWIO convolutions, in×out dense layers, features flattened as H, W, C."""
    tensor = torch.from_numpy(value)
    if name.endswith("feat/dense/weights"):
        tensor = tensor.view(8, 8, -1, value.shape[1]).permute(2, 0, 1, 3).reshape(value.shape)
    if name.endswith("weights"):
        tensor = tensor.permute(3, 2, 0, 1) if tensor.dim() == 4 else tensor.T
    return tensor.reshape(like.shape)


def to_tf(tensor: Tensor, name: str) -> np.ndarray:
    tensor = tensor.detach()
    if name.endswith("weights"):
        tensor = tensor.permute(2, 3, 1, 0) if tensor.dim() == 4 else tensor.T
    if name.endswith("feat/dense/weights"):
        tensor = tensor.reshape(-1, 8, 8, tensor.shape[1]).permute(1, 2, 0, 3).reshape(tensor.shape)
    return tensor.numpy()


def recorded_form(value: np.ndarray) -> np.ndarray:
    """The whole array when it is small; otherwise 64 entries, the mean and the norm."""
    flat = value.reshape(-1)
    if flat.size <= 128:
        return flat
    at = np.linspace(0, flat.size - 1, 64).astype(int)
    return np.concatenate([flat[at], [flat.mean()], [np.sqrt(np.square(flat, dtype=np.float64).sum())]])


def recorded_values(name: str, iteration: int, method: str) -> Tensor:
    """What the step draws, by its name for it. A batch is a row of indices into the pool of all images."""
    update, stream, kind = name.split("/")
    if kind == "indices":
        return torch.arange(N) + N * POOL.index(place(update, stream, iteration, method))
    if kind == "lambda":
        return torch.from_numpy(draw(f"lambda/{stream}").beta(1, 1, N).astype(np.float32))
    if kind == "partner":
        return torch.from_numpy(draw(f"iteration{iteration}/permutation/{stream}").permutation(N))
    direction = draw(f"iteration{iteration}/direction/{stream}").randn(N, 32, 32, 3).astype(np.float32)
    return torch.from_numpy(direction).permute(0, 3, 1, 2).contiguous()


def place(update: str, stream: str, iteration: int, method: str) -> str:
    if update == "discriminator":
        return f"iteration{iteration}/disc/{stream}"
    stream = "source" if stream == "target.teacher" else stream
    return f"iteration{iteration}/{stream}"


POOL = [f"iteration{i}/{name}" for i in (0, 1) for name in ("disc/source", "disc/target", "source", "target")]


def pool() -> Domain:
    """All images of a recording, one after the other, with the labels where they belong."""
    images = [draw(name).randint(0, 256, (N, 32, 32, 3)) / 255 * 2 - 1 for name in POOL]
    x = torch.from_numpy(np.concatenate(images).astype(np.float32)).permute(0, 3, 1, 2).contiguous()
    y = torch.zeros(len(x), dtype=torch.int64)
    for i in (0, 1):
        at = N * POOL.index(f"iteration{i}/source")
        y[at : at + N] = torch.from_numpy(draw(f"iteration{i}/y").randint(0, 10, N))
    return Domain(x, y, "recorded")


def build_method(name: str, xi: float) -> Method:
    base = methods.vmt(lambda_d=0.01, lambda_s=1, lambda_t=0.06, fresh_lambda=False, xi=xi)
    if name == "vmt":
        return base
    return methods.dirt_t(base, beta=0.01, lambda_t=0.06, fresh_lambda=False, xi=xi)


def initialise(state: State) -> None:
    with torch.no_grad():
        for name, tensor, shape in variables(state.roles["classifier"], state.roles["discriminator"]):
            tensor.copy_(to_torch(value_of(name, shape), tensor, name))
        torch._foreach_copy_(
            list(state.roles["ema"].parameters()), list(state.roles["classifier"].parameters())
        )


def run(path: Path, method_name: str, net: str, instance_norm: bool) -> Iterator[Comparison]:
    """Both iterations on the package's own step, compared with everything the file holds."""
    recording = np.load(path)
    classes = recording["iteration0 after classifier|class.l17.dense.biases"].size
    method = build_method(method_name, float(recording["xi"]))
    phase = method.phases[-1]
    state = build_state(
        method,
        lambda: cnn((3, 32, 32), classes, WIDTHS[net], instance_norm, dropout=0, noise=0),
        (3, 32, 32),
        seed=0,
        device=torch.device("cpu"),
    )
    for module in state.roles.values():
        module.double()
    share_buffers(state.roles["classifier"], state.roles["ema"])
    state.optimisers = {
        update.name: AdamState(list(state.parameters(update.optimises))) for update in method.updates()
    }
    initialise(state)
    images = pool()
    for i in (0, 1):
        run_events(phase, state, i)
        setting = Setting(
            streams={"source": images, "target": images},
            preprocess=torch.Tensor.double,
            batch_size={"source": N, "target": N},
            draws=RecordedDraws(lambda name, i=i: recorded_values(name, i, method_name)),
            xi={},
            scalars={},
        )
        if f"iteration{i} teacher probabilities" in recording:
            yield compare_teacher(recording, state, images, i)
        metrics = step(phase, state, setting)
        yield from compare_losses(recording, metrics, method_name, i)
        yield from compare_variables(recording, state, i)


def compare(
    what: str, ours: np.ndarray, theirs: np.ndarray, kind: str, i: int, required: float = 1
) -> Comparison:
    difference = np.abs(ours.reshape(-1).astype(np.float64) - theirs.reshape(-1))
    tolerance = TOLERANCE[kind][i]
    return Comparison(
        f"iteration {i} {what}",
        float(difference.max()),
        tolerance,
        float((difference <= tolerance).mean()),
        required,
    )


def compare_teacher(recording: np.lib.npyio.NpzFile, state: State, images: Domain, i: int) -> Comparison:
    at = N * POOL.index(f"iteration{i}/source")
    with torch.no_grad():
        logits = state.roles["teacher"].eval()(images.x[at : at + N].double())["logits"]
    theirs = recording[f"iteration{i} teacher probabilities"]
    return compare("teacher probabilities", logits.softmax(-1).numpy(), theirs, "teacher", i)


def compare_losses(
    recording: np.lib.npyio.NpzFile, metrics: Metrics, method: str, i: int
) -> Iterator[Comparison]:
    names = LOSSES[method]
    for name, theirs in zip(recording["loss_names"], recording[f"iteration{i} losses"], strict=True):
        if str(name) in names:
            ours = metrics[f"classifier/{names[str(name)]}"].numpy()
            yield compare(f"loss {name}", ours, theirs, "loss", i)


def compare_variables(recording: np.lib.npyio.NpzFile, state: State, i: int) -> Iterator[Comparison]:
    """After the iteration. What follows the discriminator's update alone is checked where the classifier's leaves it."""
    after = f"iteration{i} after classifier|"
    live = variables(state.roles["classifier"], state.roles["discriminator"])
    averaged = variables(state.roles["ema"], None)
    everything = [(n, t, n) for n, t, _ in live] + [(n, t, f"{n}@ema") for n, t, _ in averaged]
    for name, tensor, recorded in everything:
        key = after + recorded.replace("/", ".")
        # Biases before BN have no true gradient: Adam turns their rounding into full steps.
        if key not in recording or (name.endswith("biases") and name.startswith("class")):
            continue
        ours = recorded_form(to_tf(tensor, name))
        is_statistic = "/bn/mean" in name or "/bn/var" in name
        kind, required = ("statistics", 1.0) if is_statistic else ("weights", WEIGHTS_WITHIN)
        yield compare(f"after classifier: {recorded}", ours, recording[key], kind, i, required)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--method", choices=LOSSES, default="vmt")
    parser.add_argument("--net", choices=WIDTHS, default="small")
    parser.add_argument("--instance-norm", choices=("yes", "no"), default="yes")
    arguments = parser.parse_args()
    failed = 0
    for comparison in run(arguments.file, arguments.method, arguments.net, arguments.instance_norm == "yes"):
        print(comparison)
        failed += not comparison.ok
    print("equal to the recording" if not failed else f"{failed} comparisons failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
