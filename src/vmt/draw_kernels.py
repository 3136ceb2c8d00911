"""SplitMix64 as one Triton kernel; :func:`vmt.draws.random_bits_in_torch` says the same in PyTorch."""

# mypy: ignore-errors
import triton
import triton.language as tl

from vmt.nets.kernels import wait_for_the_one_before

BLOCK = 512


@triton.jit
def mix(bits):
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB
    return bits ^ (bits >> 31)


@triton.jit
def random_bits(step, out, key, n, FROZEN: tl.constexpr, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    wait_for_the_one_before(EARLY)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(step).to(tl.uint64)
    if FROZEN:
        at = at * 0
    golden = tl.full((), 0x9E3779B97F4A7C15, tl.uint64)
    start = mix(at * golden + tl.load(key).to(tl.uint64))
    bits = mix(start + (place + 1).to(tl.uint64) * golden)
    tl.store(out + place, bits.to(tl.int64, bitcast=True), mask=place < n)
