"""The paper rebuilt: its tables as experiments, a queue that runs them, and its figures."""
