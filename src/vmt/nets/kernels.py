"""Triton kernels for normalise → LeakyReLU (→ max-pool 2 → dropout → noise) of channels_last activations.

A batch holds groups of samples (passes), each normalised with its own statistics. One reduction and one map forward,
one reduction and one map backward: each reads the convolution's output once, and nothing else is kept from the forward
pass. Dropout masks are drawn again in the backward pass from the same counter. :mod:`vmt.nets.fused` calls these and
says in plain PyTorch what they compute.

The reductions end with the last program to finish adding up the partial sums, in a fixed order: no second launch, and
the same result each time.
"""

# mypy: ignore-errors
# ruff: noqa: RUF059
import triton
import triton.language as tl


@triton.jit
def tile_of(x, g, s, i, n, C, cols, ROWS: tl.constexpr, BR: tl.constexpr):
    """Rows i … i + BR of part s of group g, zero beyond the end of either."""
    inside = i + tl.arange(0, BR)
    row = s * ROWS + inside
    at = (g * n + row)[:, None] * C + cols[None, :]
    return tl.load(x + at, mask=((inside < ROWS) & (row < n))[:, None], other=0.0).to(tl.float32)


@triton.jit
def statistics(
    x, partial, counter, gamma, beta, mean_out, var_out, scale_out, shift_out, n, C, eps,
    S: tl.constexpr, ROWS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean and variance of each group and channel, and the scale and shift that normalise with them."""
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
    tl.debug_barrier()
    ticket = counter + g * tl.num_programs(2) + block
    if tl.atomic_add(ticket, 1) == S - 1:
        parts = partial + (g * S + tl.arange(0, S))[:, None] * 2 * C + cols[None, :]
        mean = tl.sum(tl.load(parts, cache_modifier=".cg"), 0) / n
        square = tl.sum(tl.load(parts + C, cache_modifier=".cg"), 0) / n
        var = tl.maximum(square - mean * mean, 0.0)
        scale = tl.load(gamma + cols) * tl.rsqrt(var + eps)
        out = g * C + cols
        tl.store(mean_out + out, mean)
        tl.store(var_out + out, var)
        tl.store(scale_out + out, scale)
        tl.store(shift_out + out, tl.load(beta + cols) - mean * scale)
        tl.store(ticket, 0)


@triton.jit
def interleaved(a, b, BR: tl.constexpr, BC: tl.constexpr):
    return tl.reshape(tl.join(a, b), (BR, BC))


@triton.jit
def random_words(seed, row, block, C, BC: tl.constexpr):
    """Random words for pairs of neighbouring channels: the counter is the pair's place in the output."""
    pair = row[:, None] * (C // 2) + block * (BC // 2) + tl.arange(0, BC // 2)[None, :]
    return tl.randint4x(tl.load(seed), pair, 7)


@triton.jit
def kept(word, threshold, BR: tl.constexpr, BC: tl.constexpr):
    """Dropout's mask: each half of a word against the probability of dropping, in 65536ths."""
    bits = interleaved((word & 0xFFFF).to(tl.int32), (word >> 16).to(tl.int32), BR, BC)
    return bits >= threshold


@triton.jit
def forward_map(
    x, scale_in, shift_in, y, seed, n, C, slope, threshold, factor, noise, H, W,
    POOL: tl.constexpr, DROP: tl.constexpr, NOISE: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """``n`` rows of output per group: pixels, or windows of 2×2 of them."""
    g, tile, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    cols = block * BC + tl.arange(0, BC)
    inside = tile * BR + tl.arange(0, BR)
    row = g * n + inside
    mask = (inside < n)[:, None]
    scale = tl.load(scale_in + g * C + cols)[None, :]
    shift = tl.load(shift_in + g * C + cols)[None, :]
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
        a, b, c, d = random_words(seed, row, block, C, BC)
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
    dy, x, scale, shift, seed, row, block, cols, mask, C, slope, threshold, factor, H, W,
    POOL: tl.constexpr, DROP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradient at the normalised value, the input it belongs to, and with pooling which of four and where."""
    g = tl.load(dy + row[:, None] * C + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    which = tl.zeros((BR, BC), tl.int32)
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
        v, z, which = larger(v1, v1 * scale + shift, v, z, which, 1)
        v, z, which = larger(v2, v2 * scale + shift, v, z, which, 2)
        v, z, which = larger(v3, v3 * scale + shift, v, z, which, 3)
    else:
        at = row[:, None] * C + cols[None, :]
        v0 = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        v1, v2, v3 = v0, v0, v0
        v, z = v0, v0 * scale + shift
    if DROP:
        a, b, c, d = random_words(seed, row, block, C, BC)
        g = tl.where(kept(c, threshold, BR, BC), g * factor, 0.0)
    g = tl.where(z > 0, g, g * slope)
    return g, v, which, at, v0, v1, v2, v3


@triton.jit
def gradient_sums(
    dy, x, scale_in, shift_in, mean_in, var_in, seed, partial, counter,
    slope_out, constant_out, hat_out, sum_out, dgamma, dbeta, n, count, C, eps, slope, threshold, factor, H, W,
    G: tl.constexpr, S: tl.constexpr, ROWS: tl.constexpr,
    POOL: tl.constexpr, DROP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Σg and Σg·x, from which follow what the map needs and the gradients of γ and β. ``count`` pixels per group."""
    group, s, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    cols = block * BC + tl.arange(0, BC)
    of_group = group * C + cols
    scale, shift = tl.load(scale_in + of_group), tl.load(shift_in + of_group)
    total = tl.zeros((BR, BC), tl.float32)
    product = tl.zeros((BR, BC), tl.float32)
    if POOL or DROP:
        for i in range(0, ROWS, BR):
            inside = s * ROWS + i + tl.arange(0, BR)
            g, v, which, at, v0, v1, v2, v3 = through_activation(
                dy, x, scale[None, :], shift[None, :], seed, group * n + inside, block, cols, (inside < n)[:, None],
                C, slope, threshold, factor, H, W, POOL, DROP, BR, BC,
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
    tl.debug_barrier()
    ticket = counter + group * tl.num_programs(2) + block
    if tl.atomic_add(ticket, 1) == S - 1:
        parts = partial + (group * S + tl.arange(0, S))[:, None] * 2 * C + cols[None, :]
        sum_g = tl.sum(tl.load(parts, cache_modifier=".cg"), 0)
        sum_gx = tl.sum(tl.load(parts + C, cache_modifier=".cg"), 0)
        mean, rate = tl.load(mean_in + of_group), tl.rsqrt(tl.load(var_in + of_group) + eps)
        hat = (sum_gx - mean * sum_g) * rate
        by_x = -scale * rate * hat / count
        tl.store(slope_out + of_group, by_x)
        tl.store(constant_out + of_group, -scale * sum_g / count - by_x * mean)
        tl.store(hat_out + of_group, hat)
        tl.store(sum_out + of_group, sum_g)
        tl.store(ticket, 0)
        tl.debug_barrier()
        all_groups = counter + G * tl.num_programs(2) + block
        if tl.atomic_add(all_groups, 1) == G - 1:
            hats = tl.zeros((BC,), tl.float32)
            sums = tl.zeros((BC,), tl.float32)
            for k in range(G):
                hats += tl.load(hat_out + k * C + cols, cache_modifier=".cg")
                sums += tl.load(sum_out + k * C + cols, cache_modifier=".cg")
            tl.store(dgamma + cols, hats)
            tl.store(dbeta + cols, sums)
            tl.store(all_groups, 0)


@triton.jit
def backward_map(
    dy, x, scale_in, shift_in, slope_in, constant_in, seed, dx, n, C, slope, threshold, factor, H, W,
    POOL: tl.constexpr, DROP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradient at the convolution's output: scale · g + slope · x + constant."""
    group, tile, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    cols = block * BC + tl.arange(0, BC)
    of_group = group * C + cols
    scale, shift = tl.load(scale_in + of_group)[None, :], tl.load(shift_in + of_group)[None, :]
    by_x, constant = tl.load(slope_in + of_group)[None, :], tl.load(constant_in + of_group)[None, :]
    inside = tile * BR + tl.arange(0, BR)
    mask = (inside < n)[:, None]
    g, v, which, at, v0, v1, v2, v3 = through_activation(
        dy,
        x,
        scale,
        shift,
        seed,
        group * n + inside,
        block,
        cols,
        mask,
        C,
        slope,
        threshold,
        factor,
        H,
        W,
        POOL,
        DROP,
        BR,
        BC,
    )
    g *= scale
    kind = dx.dtype.element_ty
    if POOL:
        tl.store(dx + at, (tl.where(which == 0, g, 0.0) + v0 * by_x + constant).to(kind), mask=mask)
        tl.store(dx + at + C, (tl.where(which == 1, g, 0.0) + v1 * by_x + constant).to(kind), mask=mask)
        tl.store(dx + at + W * C, (tl.where(which == 2, g, 0.0) + v2 * by_x + constant).to(kind), mask=mask)
        tl.store(dx + at + W * C + C, (tl.where(which == 3, g, 0.0) + v3 * by_x + constant).to(kind), mask=mask)
    else:
        tl.store(dx + at, (g + v0 * by_x + constant).to(kind), mask=mask)
