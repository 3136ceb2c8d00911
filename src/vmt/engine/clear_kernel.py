"""Triton kernel that writes zeros."""

# mypy: ignore-errors
import triton
import triton.language as tl

BLOCK = 512


@triton.jit(do_not_specialize=["words"])
def clear(out, words, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.zeros((BLOCK,), tl.int32), mask=at < words)
