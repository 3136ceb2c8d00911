"""Many runs: one queue, and what carries it out: this process, worker processes, or Ray."""
