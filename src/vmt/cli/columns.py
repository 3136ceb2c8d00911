"""Tables of text that fit the terminal: what does not find room beside the rest goes below it."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from shutil import get_terminal_size

GAP = "  "


@dataclass(frozen=True)
class Column:
    """A heading with the cells below it; numbers end at the right, words begin at the left."""

    head: str
    cells: Sequence[str]
    words: bool = False

    @property
    def width(self) -> int:
        return max(map(len, (self.head, *self.cells)))

    def lines(self) -> list[str]:
        place = str.ljust if self.words else str.rjust
        return [place(cell, self.width) for cell in (self.head, *self.cells)]


def terminal_width() -> int:
    """80 where the output is no terminal, as in a file or a pipe."""
    return get_terminal_size((80, 24)).columns


def fitted(key: Column, columns: Sequence[Column], width: int) -> str:
    """Columns side by side, in as many tables as it takes; each begins with the key."""
    tables: list[list[Column]] = [[key]]
    for column in columns:
        if len(tables[-1]) > 1 and across([*tables[-1], column]) > width:
            tables.append([key])
        tables[-1].append(column)
    return "\n\n".join(side_by_side(table) for table in tables)


def across(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def side_by_side(columns: Sequence[Column]) -> str:
    return "\n".join(GAP.join(cells).rstrip() for cells in zip(*(column.lines() for column in columns), strict=True))


def shortened(text: str, room: int) -> str:
    """The end of a path says most."""
    return text if len(text) <= room else "…" + text[len(text) - max(room - 1, 1) :]


def filled(sentence: str, width: int) -> str:
    """Prose in lines of at most this width; paths and flags stay whole."""
    return textwrap.fill(sentence, width, break_long_words=False, break_on_hyphens=False)
