"""Runs: what to run, the folder that records it, and reading that folder again."""
