"""Compiled kernels outlive the process that compiled them."""

import os
from pathlib import Path


def remember_compiled_kernels() -> Path | None:
    """Keep what is compiled in the user's cache folder, unless TORCHINDUCTOR_CACHE_DIR names another.

    By default they go to the folder for temporary files, which is emptied at will. That is where they go, and None is
    returned, for a user who has no folder to write to.
    """
    folder = named_folder() or own_folder()
    if folder is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
        # Inductor moves Triton's cache, but only once it builds a kernel in this process and not in a worker: what was
        # built before that is looked for in another folder by the next process, and built again.
        os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return folder


def named_folder() -> Path | None:
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return Path(named) if named else None


def own_folder() -> Path | None:
    """In the user's cache folder; None where it cannot be written to."""
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "vmt" / "inductor"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if os.access(folder, os.W_OK) else None
