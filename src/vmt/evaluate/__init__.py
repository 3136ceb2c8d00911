"""How well a model does, with labels and without."""
