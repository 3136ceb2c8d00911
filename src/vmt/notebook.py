"""What notebooks show: small tables in HTML, and an area of the output that can be replaced.

Nothing here imports IPython unless the process is the kernel of a notebook.
"""

import sys
from collections.abc import Sequence
from html import escape
from typing import Any


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def html_table(caption: str, rows: Sequence[Sequence[str]], header: Sequence[str] = (), note: str = "") -> str:
    """A table in HTML, whose first column names the rows. All texts are escaped.

    >>> html_table("a <b>", [["x", "1"]])
    '<table><caption ...>a &lt;b&gt;</caption><tbody><tr><th scope="row" ...>x</th><td ...>1</td></tr></tbody></table>'
    """
    left = 'style="text-align: left"'
    head = "".join(f'<th scope="col" {left}>{escape(name)}</th>' for name in header)
    body = ""
    for name, *cells in rows:
        values = "".join(f"<td {left}>{escape(cell)}</td>" for cell in cells)
        body += f'<tr><th scope="row" {left}>{escape(name)}</th>{values}</tr>'
    return (
        f'<table><caption style="text-align: left; white-space: nowrap">{escape(caption)}</caption>'
        + (f"<thead><tr>{head}</tr></thead>" if head else "")
        + f"<tbody>{body}</tbody></table>"
        + (f"<p>{escape(note)}</p>" if note else "")
    )


class NotebookOutput:
    """An area of a notebook's output that shows messages and, below them, a progress bar with a text."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.text = ""
        self.share: float | None = None
        self.handle: Any = None

    def show(self, text: str, share: float | None) -> None:
        """Show a text beside a bar that is filled to this share; None if the share is not known."""
        self.text, self.share = text, share
        self._refresh()

    def write(self, message: str) -> None:
        self.messages.append(message)
        self._refresh()

    def remove_bar(self) -> None:
        self.text, self.share = "", None
        if self.handle is not None:
            self._refresh()

    def _refresh(self) -> None:
        if self.handle is None:
            self.handle = sys.modules["IPython"].display.display(self, display_id=True)
        else:
            self.handle.update(self)

    def __repr__(self) -> str:
        return "\n".join([*self.messages, *([self.text] if self.text else [])])

    def _repr_html_(self) -> str:
        lines = [f"<div>{escape(message)}</div>" for message in self.messages]
        if self.text:
            value = "" if self.share is None else f' value="{self.share:.4f}"'
            label = escape(self.text)
            lines.append(f'<div><progress max="1"{value} aria-label="{label}"></progress> {label}</div>')
        return "".join(lines)
