"""Tables of text that fit the terminal: columns that do not fit beside the others go below them."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from shutil import get_terminal_size

GAP = "  "


@dataclass(frozen=True)
class Column:
    """A heading with the cells below it. Numbers are aligned to the right, words to the left."""

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
    """The width of the terminal; 80 in a file or a pipe."""
    return get_terminal_size((80, 24)).columns


def tables_within(key: Column, columns: Sequence[Column], width: int) -> str:
    """Columns side by side, in as many tables as the width requires. Each table begins with the key."""
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
    """The end of a path, which identifies it best."""
    return text if len(text) <= room else "…" + text[len(text) - max(room - 1, 1) :]


def wrap_sentence(sentence: str, width: int) -> str:
    """Prose in lines of at most this width, with paths and flags kept whole."""
    return textwrap.fill(sentence, width, break_long_words=False, break_on_hyphens=False)


def say(sentence: str, width: int) -> None:
    """Print prose in lines of at most this width; nothing if the sentence is empty."""
    if sentence:
        print(wrap_sentence(sentence, width))


def number(value: float | None, digits: int = 4) -> str:
    """A number as a cell; a dash if there is none."""
    return "–" if value is None else f"{value:.{digits}f}"
