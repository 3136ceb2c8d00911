"""Triton kernels of the first convolution: patches of a few channels against all weights, on the tensor cores."""

# mypy: ignore-errors
import triton
import triton.language as tl

from vmt.nets.kernels import wait_for_the_one_before


@triton.jit
def patches(x, row, pixels, H, W, sn, sc, sh, sw, CIN: tl.constexpr, KP: tl.constexpr):
    """What the 3×3 window over each pixel sees: entry k is channel k % CIN of tap k // CIN."""
    k = tl.arange(0, KP)
    c, tap = k % CIN, k // CIN
    n, place = row // (H * W), row % (H * W)
    v = (place // W)[:, None] + (tap // 3)[None, :] - 1
    u = (place % W)[:, None] + (tap % 3)[None, :] - 1
    inside = (row < pixels)[:, None] & (k < 9 * CIN)[None, :] & (v >= 0) & (v < H) & (u >= 0) & (u < W)
    at = n[:, None] * sn + c[None, :] * sc + v * sh + u * sw
    return tl.load(x + at, mask=inside, other=0.0).to(tl.bfloat16)


@triton.jit
def forward(
    x, w, y, pixels, H, W, sn, sc, sh, sw, wo, wc, wh, ww, COUT,
    CIN: tl.constexpr, KP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait_for_the_one_before(EARLY)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, KP)
    a = patches(x, row, pixels, H, W, sn, sc, sh, sw, CIN, KP)
    at = (k % CIN * wc + k // CIN // 3 * wh + k // CIN % 3 * ww)[:, None] + cols[None, :] * wo
    b = tl.load(w + at, mask=(k < 9 * CIN)[:, None], other=0.0).to(tl.bfloat16)
    out = tl.dot(a, b)
    tl.store(y + row[:, None] * COUT + cols[None, :], out.to(tl.bfloat16), mask=(row < pixels)[:, None])


@triton.jit
def by_weight(
    x, dy, partial, pixels, H, W, sn, sc, sh, sw, COUT,
    EACH: tl.constexpr, CIN: tl.constexpr, KP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Each program adds up its share of the pixels."""
    wait_for_the_one_before(EARLY)
    program = tl.program_id(0)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((KP, BN), tl.float32)
    for i in range(0, EACH, BM):
        row = program * EACH + i + tl.arange(0, BM)
        a = patches(x, row, pixels, H, W, sn, sc, sh, sw, CIN, KP)
        g = tl.load(dy + row[:, None] * COUT + cols[None, :], mask=(row < pixels)[:, None], other=0.0)
        total += tl.dot(tl.trans(a), g)
    k = program * KP + tl.arange(0, KP)
    tl.store(partial + k[:, None] * COUT + cols[None, :], total)


@triton.jit
def spread(
    dy, w, out, pixels, wo, wc, wh, ww,
    COUT: tl.constexpr, CIN: tl.constexpr, KP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """What each output pixel sends back to each entry of its window."""
    wait_for_the_one_before(EARLY)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    k = tl.arange(0, KP)
    entry = k % CIN * wc + k // CIN // 3 * wh + k // CIN % 3 * ww
    total = tl.zeros((BM, KP), tl.float32)
    for first in range(0, COUT, BN):
        cols = first + tl.arange(0, BN)
        g = tl.load(dy + row[:, None] * COUT + cols[None, :], mask=(row < pixels)[:, None], other=0.0)
        b = tl.load(w + cols[:, None] * wo + entry[None, :], mask=(k < 9 * CIN)[None, :], other=0.0)
        total += tl.dot(g, b.to(tl.bfloat16))
    tl.store(out + row[:, None] * KP + k[None, :], total.to(out.dtype.element_ty), mask=(row < pixels)[:, None])


@triton.jit
def collect(
    spread, dx, entries, H, W, sn, sc, sh, sw,
    CIN: tl.constexpr, KP: tl.constexpr, BE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """What each input pixel gets back from the nine windows that see it."""
    wait_for_the_one_before(EARLY)
    e = tl.program_id(0) * BE + tl.arange(0, BE)
    c, row = e % CIN, e // CIN
    n, place = row // (H * W), row % (H * W)
    v, u = place // W, place % W
    total = tl.zeros((BE,), tl.float32)
    for tap in tl.static_range(9):
        ov, ou = v + 1 - tap // 3, u + 1 - tap % 3
        inside = (e < entries) & (ov >= 0) & (ov < H) & (ou >= 0) & (ou < W)
        total += tl.load(spread + ((n * H + ov) * W + ou) * KP + tap * CIN + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(dx + n * sn + c * sc + v * sh + u * sw, total.to(dx.dtype.element_ty), mask=e < entries)
