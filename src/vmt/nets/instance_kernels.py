"""Triton kernels of instance norm: one program per image and channel, which holds all of its pixels."""

# mypy: ignore-errors
import triton
import triton.language as tl

from vmt.nets.kernels import wait_for_the_one_before


@triton.jit
def forward(
    x, gamma, beta, y, mean_out, rate_out, pixels, W, sn, sc, sh, sw, yn, yc, yh, yw, eps,
    C: tl.constexpr, BP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait_for_the_one_before(EARLY)
    n, c = tl.program_id(0), tl.program_id(1)
    p = tl.arange(0, BP)
    inside = p < pixels
    row, column = p // W, p % W
    v = tl.load(x + n * sn + c * sc + row * sh + column * sw, mask=inside, other=0.0)
    mean = tl.sum(v, 0) / pixels
    from_mean = tl.where(inside, v - mean, 0.0)
    rate = 1 / tl.sqrt(tl.sum(from_mean * from_mean, 0) / pixels + eps)
    tl.store(mean_out + n * C + c, mean)
    tl.store(rate_out + n * C + c, rate)
    out = y + n * yn + c * yc + row * yh + column * yw
    tl.store(out, from_mean * rate * tl.load(gamma + c) + tl.load(beta + c), mask=inside)


@triton.jit
def backward(
    dy, x, gamma, mean_in, rate_in, dx, by_affine, pixels, W, sn, sc, sh, sw, gn, gc, gh, gw,
    dn, dc, dh, dw,
    C: tl.constexpr, BP: tl.constexpr, BY_X: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Σ g·x̂ and Σ g of each image and channel, and with BY_X the gradient at the image: γ/σ (g − ḡ − x̂ mean(g·x̂))."""
    wait_for_the_one_before(EARLY)
    n, c = tl.program_id(0), tl.program_id(1)
    p = tl.arange(0, BP)
    inside = p < pixels
    row, column = p // W, p % W
    rate = tl.load(rate_in + n * C + c)
    v = tl.load(x + n * sn + c * sc + row * sh + column * sw, mask=inside, other=0.0)
    g = tl.load(dy + n * gn + c * gc + row * gh + column * gw, mask=inside, other=0.0)
    hat = tl.where(inside, (v - tl.load(mean_in + n * C + c)) * rate, 0.0)
    by_gamma, by_beta = tl.sum(g * hat, 0), tl.sum(g, 0)
    tl.store(by_affine + (n * 2) * C + c, by_gamma)
    tl.store(by_affine + (n * 2 + 1) * C + c, by_beta)
    if BY_X:
        by_v = tl.load(gamma + c) * rate * (g - by_beta / pixels - hat * (by_gamma / pixels))
        tl.store(dx + n * dn + c * dc + row * dh + column * dw, by_v, mask=inside)
