"""The paper rebuilt: its tables as runs, results beside its numbers."""
