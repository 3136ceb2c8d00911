"""Benchmark sets as their publishers offer them."""
