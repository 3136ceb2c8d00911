"""What the loop itself has to remember across a kill; everything else is in the tensors."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Notes:
    """How a run has gone so far."""

    seconds: float = 0.0
    best_source: float = 0.0
    collapsed: str | None = None
    phases: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The last judgement of each phase that has ended."""
    clock: list[tuple[int, float]] = field(default_factory=list)
    """Iterations and the seconds they had taken, at each look."""
    best: dict[str, Any] | None = None
    """Which look is the best by ``Config.keep_best``."""
