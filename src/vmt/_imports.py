"""Names that are imported when they are first used, and names that have moved.

Importing torch takes seconds, which ``vmt --help`` need not wait for. So the packages of vmt list where their public
names are defined, and :func:`lazy` imports a name when it is first used. Modules that were documented under another
name can still be imported by it, with a ``DeprecationWarning``; pickled estimators name such modules, too.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Where the contents of a module are now, and the names that have changed as well.
MOVED = {
    "vmt.defaults": "vmt.runs.recipes",
    "vmt.directions": "vmt.losses",
    "vmt.exported": "vmt.export",
    "vmt.health": "vmt.methods.terms",
    "vmt.method": "vmt.methods.nouns",
    "vmt.nets.layers": "vmt.nets.networks",
    "vmt.nets.spec": "vmt.nets.factory",
    "vmt.nets.staged": "vmt.nets.networks",
    "vmt.plan": "vmt.step.plan",
    "vmt.schedules": "vmt.methods.nouns",
    "vmt.views": "vmt.methods.nodes",
}
RENAMED = {"vmt.directions.adversarial": "adversarial_point"}


def lazy(
    package: str, homes: Mapping[str, str], renamed: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose public names are defined in the modules ``homes[name]``.

    ``renamed`` maps names of earlier versions to ``module:name``; using one of them warns.
    """
    earlier = renamed or {}

    def get(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        if name in earlier:
            module, _, now = earlier[name].partition(":")
            _warn(f"{package}.{name}", f"{module}.{now}")
            return getattr(import_module(module), now)
        inside = f"{package}.{name}"
        try:
            return import_module(inside)
        except ModuleNotFoundError as error:
            if error.name != inside:
                raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        known = vars(sys.modules[package])
        return sorted({*known, *known.get("__all__", ()), *homes})

    return get, listed


class _MovedModules(MetaPathFinder, Loader):
    """Imports a module that has moved by the name that it had."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = MOVED[old]

        def get(name: str) -> Any:
            now = RENAMED.get(f"{old}.{name}", name)
            value = getattr(import_module(new), now)  # an AttributeError names the new module
            if not name.startswith("__"):
                _warn(f"{old}.{name}", f"{new}.{now}")
            return value

        module.__dict__["__getattr__"] = get


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} has moved: use {new}.", DeprecationWarning, stacklevel=3)


def install() -> None:
    """Make moved modules importable by their earlier names."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
