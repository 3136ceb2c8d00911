"""Where and on what a run was made: the facts that every published number carries."""

import hashlib
import os
import platform
import subprocess
from pathlib import Path

import numpy as np
import torch

import vmt
from vmt.data.domains import Domain
from vmt.data.task import Task


def environment(device: str = "auto") -> dict[str, str | None]:
    """Versions, hardware and commit, for work on a device named as in :class:`vmt.train.Config`."""
    on_gpu = device != "cpu" and torch.cuda.is_available()
    return {
        "vmt": vmt.__version__,
        "commit": commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu_threads": str(torch.get_num_threads()),
        "gpu": torch.cuda.get_device_name(None if device in ("auto", "cuda") else device) if on_gpu else None,
    }


def commit(package: Path = Path(vmt.__file__).parent) -> str | None:
    """The commit of the source tree that runs, with a + when it has been changed.

    For a copy without its history, what VMT_COMMIT says; None where nothing is known, as for an installed package.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # Of this package: an environment inside another project's repository is not under that project's commit.
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("VMT_COMMIT")


def data_fingerprint(task: Task) -> str:
    """A digest of every sample and label of a task, to notice when the data change under a run."""
    digest = hashlib.blake2b(digest_size=16)
    for domain in (task.source, task.target, task.source_test, task.target_test, task.target_labelled):
        if isinstance(domain, Domain):
            for tensor in (domain.x, domain.y):
                if tensor is not None:
                    digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)  # no copy of what may fill memory
    return digest.hexdigest()
