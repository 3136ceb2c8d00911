"""Compare the training step with iterations recorded from the authors' own program.

    python -m tests.golden tests/fixtures/vmt_small_instance_norm.npz --method vmt --net small --instance-norm yes
    python -m tests.golden tests/fixtures/dirt_t_small_no_instance_norm.npz --method dirt_t --instance-norm no

Every input of a recording is a draw named by a string (:func:`draw`), so the file holds results only. The package's own
step runs on those inputs; every recorded loss, weight, running statistic and weight average is compared, and the
command exits with 1 when one is too far off. The step runs in double precision: what is left is the rounding of the
recorded program alone, not of two programs.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from tests.recording import POOL, N, pool, recorded_form, recorded_values, to_tf, to_torch, value_of, variables
from vmt import methods
from vmt.data import Domain
from vmt.methods.nouns import Method
from vmt.nets import cnn
from vmt.step.draws import RecordedDraws
from vmt.step.iteration import Metrics, StepContext, step
from vmt.step.state import State, build_state, fresh_optimisers, share_buffers
from vmt.train.loop import run_events

WIDTHS = {"small": (64, 64, 64), "large": (96, 192, 192)}
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
    # DIRT-T's program feeds the teacher's labels where the source's were.
    "dirt_t": {
        "class": "teacher",
        "dirt": "teacher",
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
# The share of a layer's weights that must be that close. In float32, one layer of the DIRT-T recording has 93.9 %.
WEIGHTS_WITHIN = {"vmt": 0.95, "dirt_t": 0.93}


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


def build_method(name: str, xi: float) -> Method:
    base = methods.vmt(lambda_d=0.01, lambda_s=1, lambda_t=0.06, fresh_lambda=False, xi=xi)
    if name == "vmt":
        return base
    return methods.dirt_t(base, beta=0.01, lambda_t=0.06, fresh_lambda=False, xi=xi)


def initialise(state: State) -> None:
    with torch.no_grad():
        for name, tensor, shape in variables(state.roles["classifier"], state.roles["discriminator"]):
            tensor.copy_(to_torch(value_of(name, shape), tensor, name))
        torch._foreach_copy_(list(state.roles["ema"].parameters()), list(state.roles["classifier"].parameters()))


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
    state.optimisers = fresh_optimisers(method, state)
    initialise(state)
    images = pool()
    for i in (0, 1):
        run_events(phase, state, i)
        context = StepContext(
            streams={"source": images, "target": images},
            preprocess=torch.Tensor.double,
            batch_size={"source": N, "target": N},
            draws=RecordedDraws(lambda name, i=i: recorded_values(name, i)),
            xi={},
            scalars={},
        )
        if f"iteration{i} teacher probabilities" in recording:
            yield compare_teacher(recording, state, images, i)
        for update in phase.updates:
            metrics = step(replace(phase, updates=(update,)), state, context)
            if update.name == "classifier":
                yield from compare_losses(recording, metrics, method_name, i)
            yield from compare_variables(recording, state, update.name, i, WEIGHTS_WITHIN[method_name])


def compare(what: str, ours: np.ndarray, theirs: np.ndarray, kind: str, i: int, required: float = 1) -> Comparison:
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


def compare_losses(recording: np.lib.npyio.NpzFile, metrics: Metrics, method: str, i: int) -> Iterator[Comparison]:
    names = LOSSES[method]
    for name, theirs in zip(recording["loss_names"], recording[f"iteration{i} losses"], strict=True):
        if str(name) not in names:
            print(f"     iteration {i} loss {name}: {theirs:.6g} has no counterpart in this method")
        else:
            ours = metrics[f"classifier/{names[str(name)]}"].numpy()
            yield compare(f"loss {name}", ours, theirs, "loss", i)


def compare_variables(
    recording: np.lib.npyio.NpzFile, state: State, update: str, i: int, weights_within: float
) -> Iterator[Comparison]:
    after = f"iteration{i} after {update}|"
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
        kind, required = ("statistics", 1.0) if is_statistic else ("weights", weights_within)
        yield compare(f"after {update}: {recorded}", ours, recording[key], kind, i, required)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
