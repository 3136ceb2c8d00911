"""Training: the loop, its configuration, checkpoints and logs."""

from typing import TYPE_CHECKING, Any

from vmt.train.checkpoint import Notes
from vmt.train.config import Config

if TYPE_CHECKING:
    from vmt.train.loop import Outcome, train

__all__ = ["Config", "Notes", "Outcome", "train"]


def __getattr__(name: str) -> Any:
    # The loop needs torch, which takes a second or two to import; what a command line may say of Config does not.
    if name in ("Outcome", "train"):
        from vmt.train import loop

        return getattr(loop, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
