"""What the convolutions of one iteration cost alone: the part that no fusion removes.

    python benchmarks/convolutions.py

Times every 3×3 convolution of the small net, forward, by input and by weight, in bfloat16 channels_last, and sums them
as one VMT iteration needs them.
"""

import torch
from torch import Tensor

aten = torch.ops.aten
# side, channels in, channels out, how many of them in the net
LAYERS = ((32, 3, 64, 1), (32, 64, 64, 2), (16, 64, 64, 3), (8, 64, 64, 3))


def milliseconds(run: object, repeats: int = 20) -> float:
    """The median of graph replays of ten calls."""
    for _ in range(3):
        run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            run()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 10)
    return sorted(times)[repeats // 2]


def image(n: int, c: int, side: int) -> Tensor:
    return torch.randn(n, c, side, side, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)


def costs(n: int, side: int, inputs: int, outputs: int) -> tuple[float, float, float]:
    """Milliseconds forward, by input, by weight."""
    x, g = image(n, inputs, side), image(n, outputs, side)
    w = torch.randn(outputs, inputs, 3, 3, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)

    def backward(by_input: bool, by_weight: bool) -> None:
        aten.convolution_backward(g, x, w, [outputs], *geometry, [by_input, by_weight, False])

    return (
        milliseconds(lambda: aten.convolution(x, w, None, *geometry)),
        milliseconds(lambda: backward(True, False)),
        milliseconds(lambda: backward(False, True)),
    )


def main() -> None:
    for benchmark in (False, True):
        torch.backends.cudnn.benchmark = benchmark
        for channels in (3, 4, 8, 16):
            row = [f"{t * 1e3:6.1f}" for n in (128, 256) for t in costs(n, 32, channels, 64)]
            print(f"cudnn.benchmark={benchmark} first layer, {channels} channels, µs at 128 and 256: {' '.join(row)}")
        total = 0.0
        for side, inputs, outputs, count in LAYERS:
            few = costs(128, side, max(inputs, 8), outputs)
            many = costs(256, side, max(inputs, 8), outputs)
            rates = [2 * 9 * 256 * side**2 * inputs * outputs / t / 1e9 for t in many]
            first, encoder = inputs == 3, side > 8
            layer = few[0] * (2 + encoder) + many[0]  # direction, adversarial, discriminator's; clean and mixed
            layer += few[1] + (0 if first else few[1] + many[1])
            layer += few[2] + many[2]
            total += count * layer
            row = " ".join(f"{t * 1e3:6.1f}" for t in (*few, *many))
            print(f"  {side:2} {inputs:2}→{outputs} µs {row}  TFLOP/s {[round(r) for r in rates]}")
        print(f"cudnn.benchmark={benchmark}: all convolutions of an iteration {total:.3f} ms")


if __name__ == "__main__":
    main()
