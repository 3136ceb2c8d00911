"""Triton kernel of a 3×3 convolution's gradient by its weight."""

# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def by_weight(
    x, dy, partial, rows, H, W, CI, CO, EACH: tl.constexpr, BM: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr
):
    """Of one tap of the window and one block of channels, over this program's share of the pixels."""
    part, tap, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    ci = block // (CO // BO) * BI + tl.arange(0, BI)
    co = block % (CO // BO) * BO + tl.arange(0, BO)
    down, right = tap // 3 - 1, tap % 3 - 1
    total = tl.zeros((BO, BI), tl.float32)
    for i in range(0, EACH, BM):
        row = part * EACH + i + tl.arange(0, BM)
        place = row % (H * W)
        v, u = place // W + down, place % W + right
        seen = (row < rows) & (v >= 0) & (v < H) & (u >= 0) & (u < W)
        a = tl.load(x + (row + down * W + right)[:, None] * CI + ci[None, :], mask=seen[:, None], other=0.0)
        g = tl.load(dy + row[:, None] * CO + co[None, :], mask=(row < rows)[:, None], other=0.0)
        total += tl.dot(tl.trans(g), a)
    at = (part * CO + co)[:, None] * 9 * CI + tap * CI + ci[None, :]
    tl.store(partial + at, total)
