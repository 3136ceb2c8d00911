"""Compiled kernels outlive the process that compiled them."""

import os
from pathlib import Path


def remember_compiled_kernels() -> Path | None:
    """Keep what is compiled in the user's cache folder, unless TORCHINDUCTOR_CACHE_DIR names another.

    By default they go to the folder for temporary files, which is emptied at will. That is where they go, and None is
    returned, for a user who has no folder to write to.
    """
    if named := os.environ.get("TORCHINDUCTOR_CACHE_DIR"):
        return Path(named)
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = home / "vmt" / "inductor"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    if not os.access(folder, os.W_OK):
        return None
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    return folder
