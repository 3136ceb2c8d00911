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
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from vmt.disk import write_atomically
from vmt.errors import shown
from vmt.progress import Progress
from vmt.report.contents import gather
from vmt.report.samples import Options
from vmt.report.verdict import points

SCRIPTS = ("core.js", "curves.js", "classes.js", "map.js", "gallery.js", "main.js")
GENERATOR = "vmt report"
MARKS = {"good": "✓", "watch": "!", "bad": "✗", "unknown": "?"}


def write_report(folders: Sequence[Path], out: Path, options: Options | None = None) -> dict[str, Any]:
    """Write the page about the runs in some folders, and return the data in it."""
    with closing(Progress(unit="", leave=False)) as progress:
        data = gather(folders, options or Options(), progress)
    write_atomically(out, render(data).encode())
    return data


def render(data: Mapping[str, Any]) -> str:
    """The page as HTML."""
    style = asset("report.css")
    script = "\n".join(asset(name) for name in SCRIPTS)
    parts = {
        "generator": GENERATOR,
        "title": escape(f"{data['verdict']['headline']} – {GENERATOR}"),
        "policy": f"default-src 'none'; img-src data:; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'",
        "style": style,
        "script": script,
        "data": embedded(data),
        "tone": data["verdict"]["tone"],
        "mark": MARKS[data["verdict"]["tone"]],
        "headline": escape(data["verdict"]["headline"]),
        "sentences": "\n".join(f"<p>{escape(sentence)}</p>" for sentence in data["verdict"]["sentences"]),
        "runs": "\n".join(run_row(i, run, i == data["first"]) for i, run in enumerate(data["runs"])),
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


def run_row(i: int, run: Mapping[str, Any], chosen: bool) -> str:
    """A row of the table of runs."""
    name, status = escape(run["name"]), run["status"]["kind"]
    accuracy, gain = run["accuracy"], run["gain"]
    measured = "no labels" if accuracy is None else f"<b>{share(accuracy['value'])}</b> {span(accuracy)}"
    gained = "–" if gain is None else f"<b>{points(gain['value'])}</b> {span(gain, points)}"
    return f"""<tr data-run="{i}">
<td><label class="show"><input type="checkbox" class="show-run" value="{i}" checked>
<svg class="swatch" viewBox="0 0 28 8" aria-hidden="true"><path class="line c{i % 10} d{i % 6}" d="M0 4H28"/></svg>
<span class="hidden">show in the curves:</span></label></td>
<th scope="row"><button type="button" class="open-run" value="{i}" aria-pressed="{str(chosen).lower()}">{name}</button>
</th>
<td>{measured}</td>
<td>{gained}</td>
<td><span class="status {status}">{escape(status)}</span></td>
<td>{escape(run["method"])}</td>
<td>{escape(str(run["seed"]))}</td>
<td>{"–" if run["source_accuracy"] is None else share(run["source_accuracy"])}</td>
<td>{run["iterations"]:,}</td>
</tr>"""


def share(value: float) -> str:
    return f"{100 * value:.1f}&nbsp;%"


def span(interval: Mapping[str, float], written: Any = lambda value: f"{100 * value:.1f}") -> str:
    return f'<span class="interval">{written(interval["low"])} to {written(interval["high"])}</span>'
