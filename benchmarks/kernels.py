"""How the work of the kernels after a convolution is best divided: microseconds by kernel, shape and tiles.

python benchmarks/kernels.py
"""

import torch
from torch.profiler import ProfilerActivity, profile

from vmt.kernels import normalisation as fused
from vmt.kernels.normalisation import After, NormaliseActivate, Tiles

SHAPES = ((4, 32, False), (4, 32, True), (2, 32, False), (2, 32, True), (4, 16, False), (2, 16, False), (2, 8, False))
CHOICES = {
    "STATISTICS": (Tiles(64, 8, 256), Tiles(32, 8, 256), Tiles(64, 8, 512), Tiles(64, 4, 512), Tiles(32, 4, 512)),
    "SUMS": (Tiles(64, 8, 256), Tiles(32, 8, 256), Tiles(64, 8, 512), Tiles(64, 4, 512), Tiles(32, 4, 512)),
    "SUMS_POOLED": (Tiles(32, 4, 512), Tiles(32, 8, 512), Tiles(16, 4, 512), Tiles(32, 4, 256), Tiles(32, 8, 256)),
    "FORWARD_POOLED": (Tiles(32, 4), Tiles(16, 4), Tiles(32, 8), Tiles(16, 2), Tiles(8, 2)),
    "BACKWARD_POOLED": (Tiles(32, 4), Tiles(16, 4), Tiles(32, 8), Tiles(16, 2), Tiles(8, 2)),
}
NAMES = {
    "STATISTICS": "statistics",
    "SUMS": "gradient_sums",
    "SUMS_POOLED": "gradient_sums",
    "FORWARD_POOLED": "forward_map",
    "BACKWARD_POOLED": "backward_map",
}


def times(groups: int, side: int, pool: bool) -> dict[str, float]:
    x = torch.randn(groups * 64, 64, side, side, device="cuda", dtype=torch.bfloat16)
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    weight, bias = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
    after = After(pool=pool, dropout=0.5 if pool else 0, noise=1.0 if pool else 0)

    def run() -> None:
        y, _, _ = NormaliseActivate.apply(x, weight, bias, groups, 1e-3, after)
        torch.autograd.grad(y, x, y)

    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(10):
            run()
        torch.cuda.synchronize()
    found: dict[str, float] = {}
    for event in recorded.events():
        found[event.name] = found.get(event.name, 0) + event.device_time / 10
    return found


def main() -> None:
    for k in range(5):
        for constant, choices in CHOICES.items():
            setattr(fused, constant, choices[k])
        for shape in SHAPES:
            found = times(*shape)
            for constant, choices in CHOICES.items():
                if constant == "STATISTICS" or shape[2] == constant.endswith("POOLED"):
                    tiles = choices[k]
                    cut = f"{tiles.rows}/{tiles.warps}/{tiles.programs}"
                    print(f"{constant:12} {shape!s:14} {cut:14} {found.get(NAMES[constant], 0):6.1f}")


if __name__ == "__main__":
    main()
