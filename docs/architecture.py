"""Draw the rooms of the package and which of them import from which, from the import statements of the source files.

    python docs/architecture.py

``make docs`` draws the picture again when the rooms have changed. Only direct neighbours are connected: where a room
imports from another directly and also through a third one, the direct arrow is left out.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from vmt.figures import COLOURS, MUTED, PAPER, picture_bytes

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "src" / "vmt"
PICTURE = DOCS / "architecture.svg"
# Nearly every room imports from these, or they only start the others, so arrows for them would say nothing.
LEFT_OUT = ("errors", "json_types", "_imports", "__init__", "__main__")
# Where each room is drawn: a row for each step of the data, and a place in the row.
ROWS: tuple[dict[str, float], ...] = (
    {"disk": 0, "device": 1, "notebook": 2, "kernels": 3, "losses": 4},
    {"cache": 0, "progress": 2},
    {"data": 1, "ranks": 2.25},
    {"nets": 3.5},
    {"methods": 3},
    {"step": 1.75, "validators": 3.25},
    {"engine": 1, "evaluate": 2.5},
    {"figures": 0, "train": 1.5, "model": 2.75},
    {"runs": 1.5},
    {"api": 0, "estimator": 1, "report": 2, "export": 4},
    {"many": 0.5, "estimator_search": 1.25, "trackers": 2},
    {"paper": 1.25},
    {"cli": 3},
)
WIDTH, HEIGHT = 1.45, 0.52
COLUMN, ROW = 1.7, 0.98


@dataclass(frozen=True)
class Rooms:
    """The rooms of the package and what they import from each other."""

    modules: Mapping[str, int]
    """The number of files in each package, without its ``__init__``; 0 for a room that is a single file."""
    imports: Mapping[str, set[str]]
    """The rooms that each room imports from, without those that it also reaches through another room."""

    def to_json(self) -> str:
        """Everything that decides what the picture shows."""
        imports = {room: sorted(others) for room, others in self.imports.items()}
        return json.dumps({"modules": self.modules, "imports": imports, "rows": ROWS}, sort_keys=True)


def rooms_of(package: Path = PACKAGE) -> Rooms:
    modules: dict[str, int] = {}
    imports: dict[str, set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        room = inside.parts[0].removesuffix(".py")
        if room in LEFT_OUT:
            continue
        modules.setdefault(room, 0)
        modules[room] += len(inside.parts) > 1 and path.name != "__init__.py"
        imported = {name.split(".")[1] for name in imported_in(ast.parse(path.read_text())) if name.startswith("vmt.")}
        imports.setdefault(room, set()).update(imported - {room})
    imports = {room: imported & modules.keys() for room, imported in imports.items()}
    return Rooms(modules, {room: direct(room, imports) for room in imports})


def imported_in(tree: ast.AST) -> Iterator[str]:
    """The dotted names that code imports, inside functions as well, but not those for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imported_in(node)


def direct(room: str, imports: Mapping[str, set[str]]) -> set[str]:
    """The imports of a room without those that another of its imports also reaches."""
    return {one for one in imports[room] if not any(one in reached(other, imports) for other in imports[room])}


def reached(room: str, imports: Mapping[str, set[str]], path: tuple[str, ...] = ()) -> set[str]:
    """All rooms that a room imports from, directly or through others."""
    if room in path:
        raise ValueError(f"imports must point one way, but these form a circle: {' → '.join((*path, room))}")
    further = (reached(other, imports, (*path, room)) for other in imports.get(room, ()))
    return imports.get(room, set()).union(*further)


def places_of(rooms: Rooms) -> dict[str, tuple[float, float]]:
    """The middle of each room's box. Every arrow must lead down, to a later row."""
    places = {room: (COLUMN * column, -ROW * row) for row, line in enumerate(ROWS) for room, column in line.items()}
    if missing := rooms.modules.keys() - places.keys():
        raise ValueError(f"ROWS in docs/architecture.py must give the new room {sorted(missing)[0]!r} a place.")
    for room, imported in rooms.imports.items():
        if wrong := [other for other in imported if places[other][1] <= places[room][1]]:
            raise ValueError(
                f"{room} imports from {wrong[0]}, which ROWS in docs/architecture.py does not have above it."
            )
    return {room: places[room] for room in rooms.modules}


def draw(rooms: Rooms, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import FancyBboxPatch

    places = places_of(rooms)
    xs, ys = zip(*places.values(), strict=True)
    size = max(xs) - min(xs) + WIDTH + 0.4, max(ys) - min(ys) + HEIGHT + 0.4
    with plt.rc_context({"font.family": "DejaVu Sans"}):
        figure = plt.figure(figsize=size, facecolor=PAPER)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(min(xs) - WIDTH / 2 - 0.2, max(xs) + WIDTH / 2 + 0.2)
        axes.set_ylim(min(ys) - HEIGHT / 2 - 0.2, max(ys) + HEIGHT / 2 + 0.2)
        axes.axis("off")
        arrow = {"arrowstyle": "-|>", "color": COLOURS[0], "shrinkA": 0, "shrinkB": 1, "linewidth": 1.1}
        for room, imported in rooms.imports.items():
            for other in imported:
                (x, y), (to_x, to_y) = places[other], places[room]
                axes.annotate("", (to_x, to_y + HEIGHT / 2), (x, y - HEIGHT / 2), arrowprops=arrow, zorder=1)
        for room, (x, y) in places.items():
            corner = x - WIDTH / 2, y - HEIGHT / 2
            colour = (COLOURS[1], 0.15) if rooms.modules[room] else (COLOURS[0], 0.08)
            for fill in (PAPER, colour):  # white first: an arrow must not shine through
                box = FancyBboxPatch(corner, WIDTH, HEIGHT, "round,pad=0,rounding_size=0.08", fc=fill, ec=MUTED, lw=0.8)
                axes.add_patch(box)
            axes.text(x, y + 0.04, room, ha="center", fontsize=10, weight="bold")
            axes.text(x, y - 0.15, files_in(room, rooms), ha="center", fontsize=10)
        path.write_bytes(picture_bytes(figure, path.suffix, description=rooms.to_json()))
        plt.close(figure)


def files_in(room: str, rooms: Rooms) -> str:
    return f"{rooms.modules[room]} files" if rooms.modules[room] else "one file"


def is_up_to_date(rooms: Rooms, path: Path = PICTURE) -> bool:
    """Whether the picture shows these rooms, by the description that it carries."""
    found = re.search(r"<dc:description>(.*?)</dc:description>", path.read_text()) if path.exists() else None
    return found is not None and found[1].replace("&quot;", '"') == rooms.to_json()


def main() -> int:
    rooms = rooms_of()
    if not is_up_to_date(rooms):
        draw(rooms, PICTURE)
        print(f"wrote {PICTURE.relative_to(DOCS.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
