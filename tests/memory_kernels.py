"""A kernel that can be made to read and write beyond its tensors."""

# mypy: ignore-errors
import triton
import triton.language as tl


@triton.jit
def copy(x, out, first, n, BLOCK: tl.constexpr):
    """Values first … n of x."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at + first, mask=at < n, other=0.0).to(out.dtype.element_ty), mask=at < n)
