"""Operators with kernels of their own, and what each computes in plain PyTorch."""
