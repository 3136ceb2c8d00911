"""The folder of a run: the files in it, what the run was started with, and the lock of the process that writes to it.

``run.json``
    What was run: data, recipe, a fingerprint of the samples, the environment, and the identity of the run.
``log.jsonl``, ``checkpoints/``
    Every logged number, and the last two checkpoints.
``model.safetensors``
    The result: the model at the end or, for ``vmt.adapt(keep_best=…)``, the best one.
``model_best.safetensors``, ``model_last.safetensors``, ``model_PHASE.safetensors``
    The best model by ``Config.keep_best``; the model at the end, if the result is another; and the model at the end of
    each phase but the last.
``summary.json``, ``curves.png``
    How the run went. They are written when it ends.
``mlflow.json``
    The address and the run of MLflow, if the run was sent there. A resumed run continues there if it gets the address.
``.lock``
    Locked while a process writes to the folder.
"""

import contextlib
import hashlib
import json
import os
import platform
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from itertools import chain
from pathlib import Path
from typing import IO, Any, get_type_hints

import numpy as np
import torch
from torch import Tensor

import vmt
from vmt.data.domains import Domain
from vmt.data.files.cached import Arrays, cached_arrays
from vmt.data.files.paths import is_utf8
from vmt.data.stored import StoredSamples
from vmt.data.task import Task
from vmt.disk import DAY, explain_write_errors, remove_abandoned, temporary_files, write_atomically
from vmt.errors import InputError, as_flag, parsing, shown
from vmt.json_types import check_complete, check_types, from_json, of_another_type
from vmt.methods.nodes import View
from vmt.methods.nouns import Method
from vmt.methods.settings import AUTO, DirtTSettings, PythonSettings, Settings
from vmt.nets.factory import OWN_MODULE, NetSpec
from vmt.runs.recipes import OWN_VALUES, Recipe
from vmt.runs.spec import DataSpec
from vmt.train.checkpoint import CHECKPOINTS, checkpoints, unfinished_checkpoints
from vmt.train.config import Config
from vmt.train.log import LOG

RUN, SUMMARY, MODEL, CURVES = "run.json", "summary.json", "model.safetensors", "curves.png"
BEST, LAST = "model_best.safetensors", "model_last.safetensors"
EARLIER_ADAPT = "adapt.json"
"""Until version 0.1, ``vmt.adapt`` wrote the identity of its run to this file and no run.json."""
TRACKED = "mlflow.json"
LOCK = ".lock"
RECORD = ("the record of a run", "start the run again in another folder")
RECORD_TYPES: dict[str, Any] = {
    "fingerprint": str | None,
    "environment": dict[str, Any] | None,
    "identity": dict[str, Any] | None,
    "begun_in": str,
    "search": dict[str, Any],
}
SEARCH_TYPES = {"study": str, "space": dict[str, Any], "by": str}
# A choice of the method auto has the lengths of its candidates; None is the usual length.
AUTO_TYPES = {"iterations": dict[str, int | None]}
LENGTH_TYPES = {"iterations": int | None}
SETTING_TYPES = {
    name: kind for each in (Settings, DirtTSettings, PythonSettings) for name, kind in get_type_hints(each).items()
}
AS_A_VALUE = " (given as a value)"
"""Appended to the name of a method that was given as a :class:`Method`, which its recipe cannot build again."""


@dataclass(frozen=True)
class RunSpec:
    """What run.json records of a run: its data and its recipe."""

    data: DataSpec
    recipe: Recipe
    result_is_best: bool = False
    """Whether the result is the best model by ``Config.keep_best``, as for ``vmt.adapt``, instead of the last."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RunSpec":
        recipe = dict(values["recipe"])
        recipe["config"] = from_json(Config, recipe["config"])
        if recipe["method"] == AUTO:
            check_complete(recipe["settings"], AUTO_TYPES)
            check_types(recipe["settings"], {"minutes": float | None})
        else:
            for settings in (recipe.get("settings"), recipe.get("dirt_t")):
                check_types(settings or {}, LENGTH_TYPES)
        data = from_json(DataSpec, values["data"])
        return cls(data, from_json(Recipe, recipe), bool(values.get("result_is_best", False)))

    @property
    def can_be_built_again(self) -> bool:
        """Whether files and names suffice to run it again: no arrays, no method given as a value, no function."""
        return self.only_in_python is None and OWN_MODULE not in (self.recipe.net, self.data.features)

    @property
    def only_in_python(self) -> str | None:
        """What of the run was given in Python and is in no file: samples, a method or a setting such as a schedule."""
        if not self.data.in_files:
            return "samples"
        if self.recipe.method.endswith(AS_A_VALUE):
            return "a method"
        settings = {} if self.recipe.method == AUTO else {**self.recipe.settings, **(self.recipe.dirt_t or {})}
        return next((f"a value of {name}" for name in of_another_type(settings, SETTING_TYPES)), None)


def read_record(folder: Path) -> tuple[RunSpec, dict[str, Any]]:
    """What a run was started with, and the whole of run.json."""
    path = folder / RUN
    if not path.is_file() and (folder / EARLIER_ADAPT).is_file():
        with parsing(folder / EARLIER_ADAPT, *RECORD):
            identity = dict(json.loads((folder / EARLIER_ADAPT).read_bytes()))
            check_types(identity, {"data": str | None})
            return _spec_of_identity(identity), {"identity": identity, "fingerprint": identity.get("data")}
    if not path.is_file():
        why = f"it has no {RUN}" if folder.exists() else "it does not exist"
        raise InputError(f"{folder} is not the folder of a run ({why}): give the folder that --out named.")
    with parsing(path, *RECORD):
        record = dict(json.loads(path.read_bytes()))
        check_types(record, RECORD_TYPES)
        if "search" in record:
            check_complete(record["search"], SEARCH_TYPES)
        spec = RunSpec.from_dict(record)
        return replace(spec, data=spec.data.found_from(Path(record.get("begun_in", "")))), record


def read_run(folder: Path) -> RunSpec:
    """What a run was started with."""
    return read_record(folder)[0]


def _spec_of_identity(identity: Mapping[str, Any]) -> RunSpec:
    """As much of a spec as the file of an earlier version contains."""
    name, _, refined = str(identity.get("method", "")).partition("+dirt_t")
    net = dict(identity.get("net") or {})
    given = {name: identity[name] for name in ("seed", "batch_size", "precision", "keep_best") if identity.get(name)}
    config = from_json(Config, given)
    dirt_t: dict[str, Any] | None = {} if "+dirt_t" in str(identity.get("method", "")) else None
    described = {"net": net.get("name", ""), "net_options": net.get("options", {}), "dirt_t": dirt_t, "config": config}
    return RunSpec(DataSpec(), from_json(Recipe, {"method": name + refined + AS_A_VALUE, **described}))


def model_at_the_end(folder: Path) -> Path:
    """The file of the model that a finished run ended with."""
    return folder / LAST if (folder / LAST).exists() else folder / MODEL


def start(folder: Path, record: Mapping[str, Any]) -> None:
    """Record a new run in its folder. A folder that already holds a run is never overwritten."""
    check_free(folder)
    write_record(folder, record)


def write_record(folder: Path, record: Mapping[str, Any]) -> None:
    write_atomically(folder / RUN, json.dumps(record, indent=1, default=repr).encode())


def check_free(folder: Path) -> None:
    """Refuse to start a run in a folder that holds one."""
    if (folder / RUN).exists() or (folder / CHECKPOINTS).exists():
        raise InputError(
            f"{folder} already holds a run: resume it (--resume {folder}, or resume=True in Python), or choose another "
            "folder."
        )
    if (folder / MODEL).exists():
        raise InputError(f"{folder} holds a model, but no run that could be resumed: choose another folder.")


def check_not_over(folder: Path) -> None:
    """Refuse to resume a run that has ended and has no checkpoints: it would start again and overwrite its results."""
    check_no_search(folder)
    if (folder / MODEL).exists() and not checkpoints(folder / CHECKPOINTS):
        raise InputError(
            f"the run in {folder} has ended and has no checkpoint to resume from: start a new run in another folder."
        )


def check_no_search(folder: Path) -> None:
    """Refuse to resume a search as if it were a run."""
    if (folder / RUN).exists() and "search" in read_record(folder)[1]:
        raise InputError(
            f"{folder} holds a search: continue it by the same vmt search command, with the same --out, or the same "
            "call of vmt.search."
        )


def check_same_data(folder: Path, data_fingerprint: str) -> None:
    if read_record(folder)[1].get("fingerprint") != data_fingerprint:
        raise InputError(
            f"the data of {folder} have changed since the run was started: restore them, or start a new run in another "
            "folder."
        )


def check_same_settings(spec: RunSpec, asked: Mapping[str, Any]) -> None:
    """Refuse command-line flags that differ from those that a resumed run was started with."""
    recipe = spec.recipe
    refine = dict(recipe.dirt_t or {})
    refine |= {name: refine[own] for name, own in OWN_VALUES.items() if own in refine}
    if "iterations" in refine:
        refine["dirt_t_iterations"] = refine.pop("iterations")
    known = {**asdict(spec.data), **asdict(recipe.config), **refine, **recipe.settings}
    known |= {"instance_norm": False, "logit_norm": True, **recipe.net_options}
    known |= {"method": recipe.method, "net": recipe.net, "dirt_t": recipe.dirt_t is not None}
    known["match_shares"] = recipe.match_shares
    for name, value in asked.items():
        flag = as_flag(name)
        if name not in known:
            raise InputError(f"the run was started without {flag}: leave it out to resume the run.")
        if known[name] != value:
            raise InputError(
                f"the run was started with {flag} {known[name]}, not {value}: leave {flag} out to resume it, or start "
                "a new run with another --out."
            )


# --- The identity of a run: everything that decides what it computes ---


def identity_of(data_fingerprint: str, method: Method, net: NetSpec, recipe: Recipe) -> dict[str, Any]:
    """Everything that decides what a run computes, as far as it can be written down."""
    config = recipe.config
    updates = {f"{phase.name}/{update.name}": update for phase in method.phases for update in phase.updates}
    terms = {f"{name}/{term.name}": term for name, update in updates.items() for term in update.terms}
    return {
        "data": data_fingerprint,
        "method": method.name,
        "iterations": {phase.name: phase.iterations for phase in method.phases},
        "weights": {name: repr(term.weight) for name, term in terms.items() if _is_plain(term.weight)},
        "terms": {
            name: {"loss": _name_of(term.loss), **_numbers_in((term.loss, *term.reads))} for name, term in terms.items()
        },
        "optimisers": {n: repr(update.optimiser) for n, update in updates.items() if _is_plain(update.optimiser.lr)},
        "averages": {f"{n}/{each.into}": each.decay for n, update in updates.items() for each in update.averages},
        "events": {phase.name: [event.every for event in phase.events] for phase in method.phases},
        "net": json.loads(json.dumps(net.to_dict(), default=str)),
        "seed": config.seed,
        "batch_size": config.batch_size,
        "precision": config.precision,
        "keep_best": config.keep_best or None,
        "match_shares": recipe.match_shares,
        **({"balance_classes": True} if recipe.balance_classes else {}),
    }


def _numbers_in(described: Any) -> dict[str, float | None]:
    """The numbers in a loss and in what it reads: MCC's temperature, VAT's radius and ξ, the mix's α."""
    if isinstance(described, tuple):
        return {name: value for each in described for name, value in _numbers_in(each).items()}
    found: dict[str, float | None] = {}
    for field in fields(described) if is_dataclass(described) else ():
        value = getattr(described, field.name)
        if not (value is None or isinstance(value, int | float)):
            found |= _numbers_in(value)
        elif not isinstance(described, View):
            found[field.name] = value
    return found


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def _is_plain(weight: float | Callable[..., Any]) -> bool:
    """Whether a weight reads the same in every process: a number or a schedule of this package."""
    return not callable(weight) or is_dataclass(weight)


def check_same_identity(folder: Path, identity: Mapping[str, Any]) -> None:
    """Refuse to resume a run as if it were another. A run of an earlier version may have recorded less, or nothing."""
    before = read_record(folder)[1].get("identity") or {}
    for name, was, now in differences(before, {name: value for name, value in identity.items() if name in before}):
        if name == "data":
            check_same_data(folder, now)
        raise InputError(
            f"the run in {folder} was started with {name} {was}, not {now}: resume it with the same settings and the "
            "version of vmt that started it, or choose another folder."
        )


def check_same_choice(folder: Path, config: Config, net: str, iterations: int | None) -> None:
    """Refuse to resume a choice of the method auto as if it were another: candidates that are finished would stay.

    A choice with a budget has chosen the lengths itself, so ``iterations`` is compared only if there was none.
    """
    if (before := recorded_recipe(folder)) is None or before.method != AUTO:
        return
    names = ("seed", "batch_size", "precision")
    compared = {name: (getattr(before.config, name), getattr(config, name)) for name in names} | {
        "net": (before.net, net)
    }
    lengths = before.settings["iterations"].values()
    if iterations is not None and before.settings.get("minutes") is None:
        compared["iterations"] = next((each for each in lengths if each != iterations), iterations), iterations
    for name, (was, now) in compared.items():
        if was != now:
            raise InputError(
                f"the run in {folder} was started with {name} {was}, not {now}: resume it with the same settings, or "
                "choose another folder."
            )


def check_started_from_python(folder: Path) -> None:
    """Refuse to resume from Python a run whose record cannot show whether the arguments are still the same."""
    check_no_search(folder)
    if (before := recorded_recipe(folder)) is not None and before.method == AUTO:
        raise InputError(f"the run in {folder} was started with the method {AUTO}: resume it with method={AUTO!r}.")
    if (folder / RUN).exists() and "identity" not in read_record(folder)[1]:
        raise InputError(f"{folder} was started by vmt train: resume it with vmt train --resume {folder}.")


def recorded_recipe(folder: Path) -> Recipe | None:
    """The recipe of the run in a folder; None without a run, and for runs of versions that did not record it."""
    return read_record(folder)[0].recipe if (folder / RUN).exists() else None


def differences(before: Mapping[str, Any], now: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The entries in which two records differ: their name and both values."""
    for name in {**now, **before}:
        a, b = before.get(name), now.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from differences(a, b, f"{of}{name} ")
        elif a != b:
            yield f"{of}{name}", a, b


# --- The lock ---


class InUse(InputError):
    """Another process or thread is writing to the folder."""


_locked: dict[Path, int] = {}
"""The folders that this process has locked, and the thread that locked each."""


def create_folder(folder: Path) -> None:
    """Create the folder of a run or of a search if needed; a name that would lead to trouble later is refused."""
    if not is_utf8(folder):  # checkpoints would be written there, but safetensors could not open them again
        raise InputError(f"the folder {shown(folder)} has a name that is not UTF-8: choose another --out.")
    if folder.parts[:1] == ("~",):  # removing a folder named ~ is dangerous
        raise InputError(f"the folder {folder} begins with ~, which the shell has not replaced: write the path out.")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: choose a folder with --out.")
    with explain_write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[bool]:
    """Create a folder if needed and lock it for this thread; the thread may lock it again inside.

    The system releases the lock when the process ends, however it ends. The lock file stays. Yields whether the folder
    is locked: where there are no locks, another process may be writing to it.
    """
    key = folder.resolve()
    if key in _locked:
        if _locked[key] != threading.get_ident():
            raise InUse(f"another thread of this process is writing to {folder}: give each thread its own folder.")
        yield True
        return
    create_folder(folder)
    with explain_write_errors(folder):
        file = (folder / LOCK).open("a+")
    with file:
        is_locked = _lock(file, folder)
        _locked[key] = threading.get_ident()
        try:
            _remove_leftovers(folder, 0 if is_locked else DAY)
            yield is_locked
        finally:
            del _locked[key]


def _remove_leftovers(folder: Path, unused_for: float) -> None:
    """Remove temporary files of a run that was killed. Others, such as those of an export, are not the run's."""
    for pattern in (RUN, SUMMARY, "model*.safetensors", CURVES, LOG):
        remove_abandoned(temporary_files(folder, pattern), unused_for)
    if (folder / CHECKPOINTS).is_dir():
        remove_abandoned(unfinished_checkpoints(folder / CHECKPOINTS), unused_for)


def _lock(file: IO[str], folder: Path) -> bool:
    """Lock a folder's file. False if there are no locks here, so that another process may be writing to the folder."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        holder = file.read().strip() or "another process"
        raise InUse(f"{holder} is writing to {folder}: wait until it has ended, or choose another --out.") from error
    except OSError:  # a file system without locks
        return False
    with contextlib.suppress(OSError):  # on a full disk the lock holds, without the name of its holder
        # Not through the file's buffer, which would be written again, and fail again, when the file is closed.
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), f"process {os.getpid()} on {socket.gethostname()}".encode())
    return True


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

    Outside a repository, it is the environment variable VMT_COMMIT, or None.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(package), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # The repository must hold this package: a virtual environment may be inside another project's repository.
        git("ls-files", "--error-unmatch", "__init__.py")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("VMT_COMMIT")


def data_fingerprint(task: Task) -> str:
    """A digest of every sample and label of a task, to notice when the data change under a run.

    For samples on the disk it is computed once and kept in the cache, by the checksums of the samples.
    """
    parts = (task.source, task.target, task.source_test, task.target_test, task.target_labelled, task.target_choice)
    domains = [part for part in parts if isinstance(part, Domain)]
    if not any(isinstance(domain.x, StoredSamples) for domain in domains):
        return _digest(domains, in_full=True)

    def compute() -> Arrays:
        return {"digest": np.array([_digest(domains, in_full=True)])}

    about = ["fingerprint", _digest(domains, in_full=False)]
    return str(cached_arrays("pictures", about, compute)["digest"][0])


def _digest(domains: Sequence[Domain], in_full: bool) -> str:
    """A digest of domains: of all samples or, not ``in_full``, of the checksums of those on the disk."""
    digest = hashlib.blake2b(digest_size=16)
    for domain in domains:
        x = domain.x
        tensors: Iterable[Tensor] = [x]
        if isinstance(x, StoredSamples):
            checksums = torch.from_numpy(x.file.checksums[x.rows].view(np.int32))
            tensors = x.portions() if in_full else [checksums]
        for tensor in chain(tensors, [] if domain.y is None else [domain.y]):
            digest.update(np.ascontiguousarray(tensor.cpu().numpy()).data)  # no copy of what may fill memory
    return digest.hexdigest()
