"""Readers of the published sets, in their original files."""
