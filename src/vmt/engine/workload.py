"""A training problem of the paper's size on random images, for benchmarks and tests of the engines."""

from dataclasses import dataclass

import torch

from vmt import methods
from vmt.data import Domain, Preprocess
from vmt.draws import SeededDraws
from vmt.engine.choose import make_engine
from vmt.engine.prepare import Say
from vmt.engine.running import Engine
from vmt.method import Method
from vmt.nets import cnn
from vmt.state import State, build_state
from vmt.step import Setting

WIDTHS = {"small": (64, 64, 64), "large": (96, 192, 192)}
XI = 1e-6


@dataclass(frozen=True)
class Workload:
    """A method with everything it needs to run."""

    method: Method
    state: State
    setting: Setting
    seed: int

    def engine(self, choice: str, iterations: int | None = None, say: Say = print) -> Engine:
        return make_engine(choice, self.state, self.setting, self.seed, iterations, say)


def random_domains(device: torch.device, samples: int, side: int) -> dict[str, Domain]:
    """Grey floats and coloured bytes, as resized MNIST and SVHN are stored."""
    random = torch.Generator(device).manual_seed(0)

    def domain(name: str, channels: int, dtype: torch.dtype) -> Domain:
        x = torch.randint(0, 256, (samples, channels, side, side), generator=random, device=device, dtype=torch.uint8)
        y = torch.randint(0, 10, (samples,), generator=random, device=device)
        return Domain(x.to(dtype), y, name)

    return {"source": domain("source", 1, torch.float32), "target": domain("target", 3, torch.uint8)}


def workload(
    net: str | tuple[int, int, int],
    bfloat16: bool,
    device: torch.device,
    batch_size: int = 64,
    samples: int = 20_000,
    side: int = 32,
    dropout: float = 0.5,
    noise: float = 1.0,
    xi: float = XI,
    seed: int = 0,
    streams: dict[str, Domain] | None = None,
    method: Method | None = None,
) -> Workload:
    """The paper's MNIST→SVHN with instance norm: VMT with λ_d 0.01, λ_s 1, λ_t 0.06, then DIRT-T, or another method."""
    method = method or methods.dirt_t(methods.vmt(lambda_t=0.06), lambda_t=0.06)
    widths = WIDTHS[net] if isinstance(net, str) else net
    shape = (3, side, side)
    state = build_state(method, lambda: cnn(shape, 10, widths, True, dropout, noise), shape, seed, device)
    setting = Setting(
        streams=streams or random_domains(device, samples, side),
        preprocess=Preprocess(3, (side, side), (2 / 255,), (-1.0,)),
        batch_size={"source": batch_size, "target": batch_size},
        draws=SeededDraws(seed, state.step),
        xi=dict.fromkeys(state.roles, xi),
        scalars={},
        bfloat16=bfloat16,
    )
    return Workload(method, state, setting, seed)
