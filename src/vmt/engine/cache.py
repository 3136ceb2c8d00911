"""Compiled kernels outlive the process that compiled them."""

import os
from pathlib import Path


def remember_compiled_kernels() -> Path:
    """Keep what is compiled in the user's cache folder, unless TORCHINDUCTOR_CACHE_DIR names another.

    By default they go to the folder for temporary files, which is emptied at will.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(home / "vmt" / "inductor")))
