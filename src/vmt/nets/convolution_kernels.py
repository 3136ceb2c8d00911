"""Triton kernel of the gradient of 3×3 convolutions by their weights."""

# mypy: ignore-errors
import triton
import triton.language as tl

from vmt.nets.kernels import wait_for_the_one_before


@triton.jit
def by_weights(
    xs, dys, partial, H, W, CI, CO,
    STARTS: tl.constexpr, ROWS: tl.constexpr, EACH: tl.constexpr, BM: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Of several convolutions at once, each cut into parts of EACH pixels; convolution m has the parts from STARTS[m]
    on and ROWS[m] pixels. A program takes one part, one row of the window and one block of channels: the three taps of
    that row share the load of ``dy``."""
    wait_for_the_one_before(EARLY)
    # The three rows of the window over one part run side by side: they read the same pixels.
    down, part, block = tl.program_id(0) - 1, tl.program_id(1), tl.program_id(2)
    ci = block // (CO // BO) * BI + tl.arange(0, BI)
    co = block % (CO // BO) * BO + tl.arange(0, BO)
    x, dy, first, rows = xs[0], dys[0], 0, ROWS[0]
    for m in tl.static_range(1, len(STARTS)):
        if part >= STARTS[m]:
            x, dy, first, rows = xs[m], dys[m], STARTS[m], ROWS[m]
    left = tl.zeros((BO, BI), tl.float32)
    middle = tl.zeros((BO, BI), tl.float32)
    right = tl.zeros((BO, BI), tl.float32)
    for i in range(0, EACH, BM):
        row = (part - first) * EACH + i + tl.arange(0, BM)
        v, u = row % (H * W) // W + down, row % W
        live = row < rows
        seen = live & (v >= 0) & (v < H)
        g = tl.trans(tl.load(dy + row[:, None] * CO + co[None, :], mask=live[:, None], other=0.0))
        at = x + (row + down * W)[:, None] * CI + ci[None, :]
        left = tl.dot(g, tl.load(at - CI, mask=(seen & (u > 0))[:, None], other=0.0), left)
        middle = tl.dot(g, tl.load(at, mask=seen[:, None], other=0.0), middle)
        right = tl.dot(g, tl.load(at + CI, mask=(seen & (u < W - 1))[:, None], other=0.0), right)
    out = partial + (part * CO + co)[:, None] * 9 * CI + 3 * (down + 1) * CI + ci[None, :]
    tl.store(out, left)
    tl.store(out + CI, middle)
    tl.store(out + 2 * CI, right)


@triton.jit
def add_parts_of(partial, out, columns, STARTS: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr, EARLY: tl.constexpr):
    """Of several sums in parts, each in rows of its own: sum m has the rows from STARTS[m] to STARTS[m + 1]."""
    wait_for_the_one_before(EARLY)
    cols = tl.program_id(0) * BC + tl.arange(0, BC)
    m = tl.program_id(1)
    first, end = STARTS[0], STARTS[1]
    for k in tl.static_range(1, len(STARTS) - 1):
        if m == k:
            first, end = STARTS[k], STARTS[k + 1]
    total = tl.zeros((BP, BC), tl.float32)
    for i in range(first, end, BP):
        row = i + tl.arange(0, BP)
        inside = (row < end)[:, None] & (cols < columns)[None, :]
        total += tl.load(partial + row[:, None] * columns + cols[None, :], mask=inside, other=0.0)
    tl.store(out + m * columns + cols, tl.sum(total, 0), mask=cols < columns)
