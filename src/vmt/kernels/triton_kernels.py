"""All Triton kernels. The other modules of this package launch them and say in plain PyTorch what they compute.

A kernel with ``EARLY`` is launched while the one before it still runs (:mod:`vmt.kernels.launch`), and first waits for
its end.
"""

# mypy: ignore-errors
# ruff: noqa: RUF059
import triton
import triton.language as tl

BLOCK = 512  # values that a program of `random_bits` or `clear` writes


@triton.jit
def wait_for_the_one_before(EARLY: tl.constexpr):
    """Wait for the end of the kernel before, and let the next one be launched. A kernel must call this first."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


# Normalise → LeakyReLU (→ max-pool 2 → dropout → noise) of channels_last activations (normalisation.py).
#
# A batch holds groups of samples (passes), each normalised with its own statistics. There is one reduction and one map
# forward, and one reduction and one map backward. Each reads the convolution's output once, and nothing else is kept
# from the forward pass: dropout masks are drawn again in the backward pass from the same counter.
#
# A reduction leaves partial sums. If they are few, each program of the map that follows adds them up, in a fixed order;
# if they are many, `add_parts` does so once.


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
        # Four loads are issued before the first is used.
        v0 = tile_of(x, g, s, i, n, C, cols, ROWS, BR)
        v1 = tile_of(x, g, s, i + BR, n, C, cols, ROWS, BR)
        v2 = tile_of(x, g, s, i + 2 * BR, n, C, cols, ROWS, BR)
        v3 = tile_of(x, g, s, i + 3 * BR, n, C, cols, ROWS, BR)
        total += (v0 + v1) + (v2 + v3)
        squares += (v0 * v0 + v1 * v1) + (v2 * v2 + v3 * v3)
    mine = partial + (g * S + s) * 2 * C + cols
    tl.store(mine, tl.sum(total, 0))
    tl.store(mine + C, tl.sum(squares, 0))


@triton.jit(do_not_specialize=["which"])
def forward_map(
    x, partial, gamma, beta, mean_out, var_out, scale_out, shift_out, y, seeds, which,
    n, count, C, eps, slope, threshold, factor, noise, H, W,
    PARTS: tl.constexpr, POOL: tl.constexpr, DROP: tl.constexpr, NOISE: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Normalise, activate, pool, drop and add noise.

    Each group has ``n`` rows of output, which are pixels or windows of 2×2 pixels, and ``count`` pixels of input.
    """
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


@triton.jit(do_not_specialize=["which"])
def gradient_sums(
    dy, x, scale_in, shift_in, seeds, which, partial, n, C, slope, threshold, factor, H, W,
    S: tl.constexpr, ROWS: tl.constexpr, POOL: tl.constexpr, DROP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Σg and Σg·x by group, part and channel, where g is the gradient at the normalised value."""
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
            # Two tiles of each are loaded before the first is used.
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
    """The gradient at the convolution's output, scale · g + slope · x + constant, and those of γ and β by group."""
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


@triton.jit
def add_parts(partial, out, C, S: tl.constexpr, BC: tl.constexpr, EARLY: tl.constexpr):
    """Add up the parts of a sum."""
    wait_for_the_one_before(EARLY)
    g, which = tl.program_id(0), tl.program_id(1)
    cols = tl.program_id(2) * BC + tl.arange(0, BC)
    parts = partial + (g * S + tl.arange(0, S))[:, None] * 2 * C + which * C + cols[None, :]
    tl.store(out + (g * 2 + which) * C + cols, tl.sum(tl.load(parts), 0))


@triton.jit
def tile_of(x, g, s, i, n, C, cols, ROWS: tl.constexpr, BR: tl.constexpr):
    """Rows i … i + BR of part s of group g; zero beyond the end of the part or the group."""
    inside = i + tl.arange(0, BR)
    row = s * ROWS + inside
    at = (g * n + row)[:, None] * C + cols[None, :]
    return tl.load(x + at, mask=((inside < ROWS) & (row < n))[:, None], other=0.0).to(tl.float32)


@triton.jit
def added(partial, g, C, cols, PARTS: tl.constexpr):
    """Both sums of a group, added up from their parts."""
    parts = partial + (g * PARTS + tl.arange(0, PARTS))[:, None] * 2 * C + cols[None, :]
    return tl.sum(tl.load(parts), 0), tl.sum(tl.load(parts + C), 0)


@triton.jit
def through_activation(
    dy, x, scale, shift, seeds, which, row, block, cols, mask, C, slope, threshold, factor, H, W,
    POOL: tl.constexpr, DROP: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradient at the normalised value and the input that it belongs to; with pooling, which of four and where."""
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


@triton.jit
def larger(v, z, best_v, best_z, which, k):
    """The larger of two normalised values, the input that it belongs to, and which of four it is."""
    better = z > best_z
    return tl.where(better, v, best_v), tl.where(better, z, best_z), tl.where(better, k, which)


@triton.jit
def random_words(seeds, which, row, block, C, BC: tl.constexpr):
    """Random words for pairs of neighbouring channels. The counter is the place of the pair in the output."""
    pair = row[:, None] * (C // 2) + block * (BC // 2) + tl.arange(0, BC // 2)[None, :]
    return tl.randint4x(tl.load(seeds + which), pair, 7)


@triton.jit
def kept(word, threshold, BR: tl.constexpr, BC: tl.constexpr):
    """Dropout's mask: each half of a word compared with the probability of dropping, in 65536ths."""
    bits = interleaved((word & 0xFFFF).to(tl.int32), (word >> 16).to(tl.int32), BR, BC)
    return bits >= threshold


@triton.jit
def interleaved(a, b, BR: tl.constexpr, BC: tl.constexpr):
    """Two halves as one tile of neighbouring columns."""
    return tl.reshape(tl.join(a, b), (BR, BC))


# --- Gradients of 3×3 convolutions by their weights (convolution.py) ---


@triton.jit
def by_weights(
    xs, dys, partial, H, W, CI, CO,
    STARTS: tl.constexpr, ROWS: tl.constexpr, EACH: tl.constexpr, BM: tl.constexpr, BI: tl.constexpr, BO: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Gradients by the weights of several convolutions, each cut into parts of EACH pixels.

    Convolution m has the parts from STARTS[m] on and ROWS[m] pixels. A program takes one part, one row of the window
    and one block of channels: the three taps of that row share the load of ``dy``.
    """
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
    """Add up the parts of several sums: sum m has the rows from STARTS[m] to STARTS[m + 1]."""
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


# --- The first convolution, of one to three channels (convolution.py) ---
# Patches times all weights on the tensor cores.


@triton.jit
def stem_forward(
    x, w, y, pixels, H, W, sn, sc, sh, sw, wo, wc, wh, ww, COUT,
    CIN: tl.constexpr, KP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The convolution: the patches of a tile of pixels times all weights."""
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
def stem_by_weight(
    x, dy, partial, pixels, H, W, sn, sc, sh, sw, COUT,
    EACH: tl.constexpr, CIN: tl.constexpr, KP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The gradient by the weights, in parts: each program adds up its share of the pixels."""
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


@triton.jit
def patches(x, row, pixels, H, W, sn, sc, sh, sw, CIN: tl.constexpr, KP: tl.constexpr):
    """The values under the 3×3 window over each pixel: entry k is channel k % CIN of tap k // CIN."""
    k = tl.arange(0, KP)
    c, tap = k % CIN, k // CIN
    n, place = row // (H * W), row % (H * W)
    v = (place // W)[:, None] + (tap // 3)[None, :] - 1
    u = (place % W)[:, None] + (tap % 3)[None, :] - 1
    inside = (row < pixels)[:, None] & (k < 9 * CIN)[None, :] & (v >= 0) & (v < H) & (u >= 0) & (u < W)
    at = n[:, None] * sn + c[None, :] * sc + v * sh + u * sw
    return tl.load(x + at, mask=inside, other=0.0).to(tl.bfloat16)


# --- Instance norm (normalisation.py) ---
# One program per image and channel.


@triton.jit
def instance_forward(
    x, gamma, beta, y, mean_out, rate_out, pixels, W, sn, sc, sh, sw, yn, yc, yh, yw, eps,
    C: tl.constexpr, BP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One program normalises one channel of one image, whose pixels it holds all at once."""
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
def instance_backward(
    dy, x, gamma, mean_in, rate_in, dx, by_affine, pixels, W, sn, sc, sh, sw, gn, gc, gh, gw,
    dn, dc, dh, dw,
    C: tl.constexpr, BP: tl.constexpr, BY_X: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Σ g·x̂ and Σ g of each image and channel, and with BY_X the gradient at the image, γ/σ (g − ḡ − x̂ mean(g·x̂))."""
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


# --- SplitMix64 (random_bits.py) ---


@triton.jit
def random_bits(step, out, key, n, FROZEN: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    """The first ``n`` numbers of the sequence of a key at a step; the same at every step with FROZEN."""
    wait_for_the_one_before(EARLY)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(step).to(tl.uint64)
    if FROZEN:
        at = at * 0
    golden = tl.full((), 0x9E3779B97F4A7C15, tl.uint64)
    start = mix(at * golden + tl.load(key).to(tl.uint64))
    bits = mix(start + (place + 1).to(tl.uint64) * golden)
    tl.store(out + place, bits.to(tl.int64, bitcast=True), mask=place < n)


@triton.jit
def mix(bits):
    """SplitMix64's output function."""
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    return bits ^ (bits >> 31)


# --- Zeros, in the place of memsets in a captured graph (vmt.engine.memsets) ---


@triton.jit(do_not_specialize=["words"])
def clear(out, words, BLOCK: tl.constexpr):
    """Write zeros into this many words of 32 bits."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.zeros((BLOCK,), tl.int32), mask=at < words)
