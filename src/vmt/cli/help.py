"""The help of a command, as wide as the terminal."""

import argparse
import re
import textwrap

WIDEST = 118


class Help(argparse.RawDescriptionHelpFormatter):
    """Paragraphs are wrapped. Of an example that is too long, what it is about comes on the next line."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        width = min(width, WIDEST)
        return "\n\n".join(filled(paragraph, width) for paragraph in text.strip("\n").split("\n\n")) + "\n"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(" ".join(text.split()), width)


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Lines that break at spaces only: usps-mnist and --dirt-t stay whole."""
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def filled(paragraph: str, width: int) -> str:
    """A paragraph of prose, or a heading with indented lines below it, in lines of at most a width where possible."""
    lines = paragraph.split("\n")
    if not any(line.startswith("  ") for line in lines):
        return "\n".join(wrapped(" ".join(lines), width))
    if max(map(len, lines)) <= width:
        return paragraph
    return "\n".join(each for line in lines for each in narrowed(line, width))


def narrowed(line: str, width: int) -> list[str]:
    """``  command   what it is about`` in two lines, or more."""
    command, _, about = re.sub(r"(?<=\S) {2,}", "\0", line).partition("\0")
    if len(line) <= width or not about:
        return [line]
    return [command, *wrapped(about, width, " " * 6)]
