"""One training iteration: what is drawn, what runs together, and what changes."""
