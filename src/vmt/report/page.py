"""From gathered data to one HTML page that needs nothing else: no network, no fonts, no other file.

Everything that comes from data is escaped here, or reaches the page as JSON that the scripts show as text. A content
security policy with the hashes of style and script prevents anything else from running.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from vmt.disk import write_atomically
from vmt.errors import shown
from vmt.progress import Progress
from vmt.report.contents import gather
from vmt.report.run_table import headings, rows
from vmt.report.samples import Options
from vmt.report.trial_table import trials_section

SCRIPTS = ("core.js", "curves.js", "classes.js", "map.js", "gallery.js", "main.js")
GENERATOR = "vmt report"
MARKS = {"good": "✓", "watch": "!", "bad": "✗", "unknown": "?"}


def write_report(folders: Sequence[Path], out: Path, options: Options | None = None) -> dict[str, Any]:
    """Write the page about the runs in some folders, and return the data in it."""
    with closing(Progress(unit="", leave=False, name_phases=True)) as progress:
        data = gather(folders, options or Options(), progress, out)
    write_atomically(out, render(data).encode())
    return data


def render(data: Mapping[str, Any]) -> str:
    """The page as HTML."""
    style = asset("report.css")
    script = "\n".join(asset(name) for name in SCRIPTS)
    parts = {
        "generator": GENERATOR,
        "title": escape(f"{data['verdict']['headline']} – {data['about']} – {GENERATOR}"),
        "policy": f"default-src 'none'; img-src data:; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
        "data": embedded(data),
        "tone": data["verdict"]["tone"],
        "mark": MARKS[data["verdict"]["tone"]],
        "headline": escape(data["verdict"]["headline"]),
        "sentences": "\n".join(f"<p>{escape(sentence)}</p>" for sentence in data["verdict"]["sentences"]),
        "about": escape(data["about"]),
        "date": f'<time datetime="{escape(data["date"])}">{written_date(data["date"])}</time>',
        "next": next_box(data["next"]),
        "warnings": warnings_box(data["warnings"], len(data["runs"]) > 1),
        "choice": choice_box(data["choice"]),
        "trials": "" if data["search"] is None else trials_section(data["search"], data["choice"]),
        "headings": "".join(f'<th scope="col" role="columnheader">{heading}</th>' for heading in headings(data)),
        "runs": "\n".join(rows(data)),
        "version": escape(str(data["version"])),
    }
    # In one pass, so that nothing inside the inserted texts is replaced.
    return shown(re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], asset("page.html")))


def asset(name: str) -> str:
    return (files("vmt.report") / "assets" / name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """A hash as it is written in a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that a browser cannot mistake for markup, whatever strings it contains."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def written_date(iso: str) -> str:
    """A date as people write it."""
    moment = datetime.fromisoformat(iso)
    return f"{moment.day} {moment:%B %Y, %H:%M}"


def next_box(steps: Sequence[Mapping[str, Any]]) -> str:
    """The commands to run next, each with the reason for it."""
    if not steps:
        return ""
    items = [
        f'<li><p id="step-{n}">{"In Python: " if step["python"] else ""}{escape(step["text"])}</p>'
        f'<div class="command"><code id="command-{n}">{break_between_words(step["command"])}</code>'
        f'<button type="button" class="copy" value="command-{n}" aria-describedby="step-{n}">Copy</button></div></li>'
        for n, step in enumerate(steps)
    ]
    return (
        '<div class="next" role="group" aria-labelledby="next-title"><h2 id="next-title">Next</h2>'
        f'<ol class="steps">{"".join(items)}</ol>'
        '<p class="hint">Paths are as seen from the folder in which the report was made.</p></div>'
    )


def break_between_words(command: str) -> str:
    """A command whose lines break only between its words, and not after the dashes of a flag."""
    words = re.findall(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+|\s+|.""", command)
    return "".join(word if word.isspace() else f'<span class="word">{escape(word)}</span>' for word in words)


def warnings_box(warnings: Sequence[Sequence[str]], several: bool) -> str:
    """What the runs warn of."""
    if not warnings:
        return ""
    items = (f"<li>{f'<b>{escape(name)}:</b> ' if several else ''}{escape(text)}</li>" for name, text in warnings)
    return f'<h2 class="small">Warnings</h2><ul class="warnings">{"".join(items)}</ul>'


def choice_box(choice: Mapping[str, Any] | None) -> str:
    """The paragraph that explains an automatic choice among the runs."""
    return "" if choice is None else f'<h2 class="small">How it was chosen</h2><p>{escape(choice["text"])}</p>'
