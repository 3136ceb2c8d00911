"""Triton kernels for normalise → LeakyReLU (→ max-pool 2 → dropout → noise) of channels_last activations.

A batch holds groups of samples (passes), each normalised with its own statistics. One reduction and one map forward,
one reduction and one map backward: each reads the convolution's output once, and nothing else is kept from the forward
pass. Dropout masks are drawn again in the backward pass from the same counter. :mod:`vmt.nets.fused` calls these and
says in plain PyTorch what they compute.

A reduction leaves partial sums. The map that follows adds them up in each of its programs, in a fixed order, where they
are few; where they are many, :func:`add_parts` does it once.

``EARLY`` kernels are launched while the one before still runs (:mod:`vmt.launch`) and wait for its end first.
"""

# mypy: ignore-errors
# ruff: noqa: RUF059
import triton
import triton.language as tl


@triton.jit
def wait_for_the_one_before(EARLY: tl.constexpr):
    """First thing in a kernel that may be launched early; lets the next one be launched in turn."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def tile_of(x, g, s, i, n, C, cols, ROWS: tl.constexpr, BR: tl.constexpr):
    """Rows i … i + BR of part s of group g, zero beyond the end of either."""
    inside = i + tl.arange(0, BR)
    row = s * ROWS + inside
    at = (g * n + row)[:, None] * C + cols[None, :]
    return tl.load(x + at, mask=((inside < ROWS) & (row < n))[:, None], other=0.0).to(tl.float32)


@triton.jit
def statistics(
    x, partial, n, C, S: tl.constexpr, ROWS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr, EARLY: tl.constexpr
):
    """Sums of values and of squares, by group, part and channel."""
    wait_for_the_one_before(EARLY)
    g, s, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    cols = block * BC + tl.arange(0, BC)
    total = tl.zeros((BR, BC), tl.float32)
    squares = tl.zeros((BR, BC), tl.float32)
    for i in range(0, ROWS, 4 * BR):
        # Four loads on their way before the first is used.
        v0 = tile_of(x, g, s, i, n, C, cols, ROWS, BR)
        v1 = tile_of(x, g, s, i + BR, n, C, cols, ROWS, BR)
        v2 = tile_of(x, g, s, i + 2 * BR, n, C, cols, ROWS, BR)
        v3 = tile_of(x, g, s, i + 3 * BR, n, C, cols, ROWS, BR)
        total += (v0 + v1) + (v2 + v3)
        squares += (v0 * v0 + v1 * v1) + (v2 * v2 + v3 * v3)
    mine = partial + (g * S + s) * 2 * C + cols
    tl.store(mine, tl.sum(total, 0))
    tl.store(mine + C, tl.sum(squares, 0))


@triton.jit
def add_parts(partial, out, C, S: tl.constexpr, BC: tl.constexpr, EARLY: tl.constexpr):
    """Many parts of a sum into one."""
    wait_for_the_one_before(EARLY)
    g, which = tl.program_id(0), tl.program_id(1)
    cols = tl.program_id(2) * BC + tl.arange(0, BC)
    parts = partial + (g * S + tl.arange(0, S))[:, None] * 2 * C + which * C + cols[None, :]
    tl.store(out + (g * 2 + which) * C + cols, tl.sum(tl.load(parts), 0))


@triton.jit
def added(partial, g, C, cols, PARTS: tl.constexpr):
    """Both sums of a group."""
    parts = partial + (g * PARTS + tl.arange(0, PARTS))[:, None] * 2 * C + cols[None, :]
    return tl.sum(tl.load(parts), 0), tl.sum(tl.load(parts + C), 0)


@triton.jit
def interleaved(a, b, BR: tl.constexpr, BC: tl.constexpr):
    return tl.reshape(tl.join(a, b), (BR, BC))


@triton.jit
def random_words(seeds, which, row, block, C, BC: tl.constexpr):
    """Random words for pairs of neighbouring channels: the counter is the pair's place in the output."""
    pair = row[:, None] * (C // 2) + block * (BC // 2) + tl.arange(0, BC // 2)[None, :]
    return tl.randint4x(tl.load(seeds + which), pair, 7)


@triton.jit
def kept(word, threshold, BR: tl.constexpr, BC: tl.constexpr):
    """Dropout's mask: each half of a word against the probability of dropping, in 65536ths."""
    bits = interleaved((word & 0xFFFF).to(tl.int32), (word >> 16).to(tl.int32), BR, BC)
    return bits >= threshold


@triton.jit(do_not_specialize=["which"])
def forward_map(
    x, partial, gamma, beta, mean_out, var_out, scale_out, shift_out, y, seeds, which,
    n, count, C, eps, slope, threshold, factor, noise, H, W,
    PARTS: tl.constexpr, POOL: tl.constexpr, DROP: tl.constexpr, NOISE: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """``n`` rows of output per group: pixels, or windows of 2×2 of them; ``count`` pixels of input."""
    wait_for_the_one_before(EARLY)
    g, tile, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    cols = block * BC + tl.arange(0, BC)
    inside = tile * BR + tl.arange(0, BR)
    row = g * n + inside
    mask = (inside < n)[:, None]
    total, squares = added(partial, g, C, cols, PARTS)
    mean = total / count
    var = tl.maximum(squares / count - mean * mean, 0.0)
    by_channel = tl.load(gamma + cols) * tl.rsqrt(var + eps)
    if tile == 0:
        of_group = g * C + cols
        tl.store(mean_out + of_group, mean)
        tl.store(var_out + of_group, var)
        tl.store(scale_out + of_group, by_channel)
        tl.store(shift_out + of_group, tl.load(beta + cols) - mean * by_channel)
    scale = by_channel[None, :]
    shift = (tl.load(beta + cols) - mean * by_channel)[None, :]
    if POOL:
        places = (H // 2) * (W // 2)
        place = row % places
        pixel = (row // places) * H * W + (place // (W // 2)) * 2 * W + (place % (W // 2)) * 2
        at = pixel[:, None] * C + cols[None, :]
        z = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) * scale + shift
        z = tl.maximum(z, tl.load(x + at + C, mask=mask, other=0.0).to(tl.float32) * scale + shift)
        z = tl.maximum(z, tl.load(x + at + W * C, mask=mask, other=0.0).to(tl.float32) * scale + shift)
        z = tl.maximum(z, tl.load(x + at + W * C + C, mask=mask, other=0.0).to(tl.float32) * scale + shift)
    else:
        at = row[:, None] * C + cols[None, :]
        z = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) * scale + shift
    z = tl.where(z > 0, z, z * slope)
    if DROP or NOISE:
        a, b, c, d = random_words(seeds, which, row, block, C, BC)
        if DROP:
            z = tl.where(kept(c, threshold, BR, BC), z * factor, 0.0)
        if NOISE:
            first, second = tl.pair_uniform_to_normal(tl.uint_to_uniform_float(a), tl.uint_to_uniform_float(b))
            z += noise * interleaved(first, second, BR, BC)
    out = row[:, None] * C + cols[None, :]
    tl.store(y + out, z.to(y.dtype.element_ty), mask=mask)


@triton.jit
def larger(v, z, best_v, best_z, which, k):
    better = z > best_z
    return tl.where(better, v, best_v), tl.where(better, z, best_z), tl.where(better, k, which)


@triton.jit
def through_activation(
    dy, x, scale, shift, seeds, which, row, block, cols, mask, C, slope, threshold, factor, H, W,
    POOL: tl.constexpr, DROP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradient at the normalised value, the input it belongs to, and with pooling which of four and where."""
    g = tl.load(dy + row[:, None] * C + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    winner = tl.zeros((BR, BC), tl.int32)
    if POOL:
        places = (H // 2) * (W // 2)
        place = row % places
        pixel = (row // places) * H * W + (place // (W // 2)) * 2 * W + (place % (W // 2)) * 2
        at = pixel[:, None] * C + cols[None, :]
        v0 = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        v1 = tl.load(x + at + C, mask=mask, other=0.0).to(tl.float32)
        v2 = tl.load(x + at + W * C, mask=mask, other=0.0).to(tl.float32)
        v3 = tl.load(x + at + W * C + C, mask=mask, other=0.0).to(tl.float32)
        v, z = v0, v0 * scale + shift
        v, z, winner = larger(v1, v1 * scale + shift, v, z, winner, 1)
        v, z, winner = larger(v2, v2 * scale + shift, v, z, winner, 2)
        v, z, winner = larger(v3, v3 * scale + shift, v, z, winner, 3)
    else:
        at = row[:, None] * C + cols[None, :]
        v0 = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        v1, v2, v3 = v0, v0, v0
        v, z = v0, v0 * scale + shift
    if DROP:
        a, b, c, d = random_words(seeds, which, row, block, C, BC)
        g = tl.where(kept(c, threshold, BR, BC), g * factor, 0.0)
    g = tl.where(z > 0, g, g * slope)
    return g, v, winner, at, v0, v1, v2, v3


@triton.jit(do_not_specialize=["which"])
def gradient_sums(
    dy, x, scale_in, shift_in, seeds, which, partial, n, C, slope, threshold, factor, H, W,
    S: tl.constexpr, ROWS: tl.constexpr, POOL: tl.constexpr, DROP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Σg and Σg·x, by group, part and channel; g is the gradient at the normalised value."""
    wait_for_the_one_before(EARLY)
    group, s, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    cols = block * BC + tl.arange(0, BC)
    of_group = group * C + cols
    scale, shift = tl.load(scale_in + of_group), tl.load(shift_in + of_group)
    total = tl.zeros((BR, BC), tl.float32)
    product = tl.zeros((BR, BC), tl.float32)
    if POOL or DROP:
        for i in range(0, ROWS, BR):
            inside = s * ROWS + i + tl.arange(0, BR)
            g, v, winner, at, v0, v1, v2, v3 = through_activation(
                dy, x, scale[None, :], shift[None, :], seeds, which, group * n + inside, block, cols,
                (inside < n)[:, None], C, slope, threshold, factor, H, W, POOL, DROP, BR, BC,
            )  # fmt: skip
            total += g
            product += g * v
    else:
        for i in range(0, ROWS, 2 * BR):
            # Two tiles of each on their way before the first is used.
            v0 = tile_of(x, group, s, i, n, C, cols, ROWS, BR)
            g0 = tile_of(dy, group, s, i, n, C, cols, ROWS, BR)
            v1 = tile_of(x, group, s, i + BR, n, C, cols, ROWS, BR)
            g1 = tile_of(dy, group, s, i + BR, n, C, cols, ROWS, BR)
            g0 = tl.where(v0 * scale[None, :] + shift[None, :] > 0, g0, g0 * slope)
            g1 = tl.where(v1 * scale[None, :] + shift[None, :] > 0, g1, g1 * slope)
            total += g0 + g1
            product += g0 * v0 + g1 * v1
    mine = partial + (group * S + s) * 2 * C + cols
    tl.store(mine, tl.sum(total, 0))
    tl.store(mine + C, tl.sum(product, 0))


@triton.jit(do_not_specialize=["which"])
def backward_map(
    dy, x, partial, mean_in, var_in, scale_in, shift_in, hat_out, sum_out, seeds, which, dx,
    n, count, C, eps, slope, threshold, factor, H, W,
    PARTS: tl.constexpr, POOL: tl.constexpr, DROP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """The gradient at the convolution's output: scale · g + slope · x + constant. Also what those of γ and β add up."""
    wait_for_the_one_before(EARLY)
    group, tile, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    cols = block * BC + tl.arange(0, BC)
    of_group = group * C + cols
    sum_g, sum_gx = added(partial, group, C, cols, PARTS)
    mean, rate = tl.load(mean_in + of_group), tl.rsqrt(tl.load(var_in + of_group) + eps)
    by_channel = tl.load(scale_in + of_group)
    hat = (sum_gx - mean * sum_g) * rate
    if tile == 0:
        tl.store(hat_out + of_group, hat)
        tl.store(sum_out + of_group, sum_g)
    scale, shift = by_channel[None, :], tl.load(shift_in + of_group)[None, :]
    by_x = (-by_channel * rate * hat / count)[None, :]
    constant = (-by_channel * sum_g / count + by_channel * rate * hat / count * mean)[None, :]
    inside = tile * BR + tl.arange(0, BR)
    mask = (inside < n)[:, None]
    g, v, winner, at, v0, v1, v2, v3 = through_activation(
        dy, x, scale, shift, seeds, which, group * n + inside, block, cols, mask, C, slope, threshold, factor, H, W,
        POOL, DROP, BR, BC,
    )  # fmt: skip
    g *= scale
    kind = dx.dtype.element_ty
    if POOL:
        tl.store(dx + at, (tl.where(winner == 0, g, 0.0) + v0 * by_x + constant).to(kind), mask=mask)
        tl.store(dx + at + C, (tl.where(winner == 1, g, 0.0) + v1 * by_x + constant).to(kind), mask=mask)
        tl.store(dx + at + W * C, (tl.where(winner == 2, g, 0.0) + v2 * by_x + constant).to(kind), mask=mask)
        tl.store(dx + at + W * C + C, (tl.where(winner == 3, g, 0.0) + v3 * by_x + constant).to(kind), mask=mask)
    else:
        tl.store(dx + at, (g + v0 * by_x + constant).to(kind), mask=mask)
