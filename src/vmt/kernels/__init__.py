"""Operators with their own Triton kernels, each with a description of what it computes in plain PyTorch."""
