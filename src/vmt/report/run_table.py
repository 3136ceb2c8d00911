"""The table of runs as HTML: what was measured, what differs, and which run to use."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from vmt.report.standing import BEST_KEPT, FINISHED
from vmt.report.verdict import points

# States with another colour than those of failure.
COLOURS = {FINISHED: "good", BEST_KEPT: "watch", "unfinished": "watch", "pruned": "watch"}


def headings(data: Mapping[str, Any]) -> list[str]:
    """The headings of the table of runs: only what is known of at least one of them."""
    names = ["Curves", "Run (select for details)"]
    if has(data, "accuracy"):
        names += ["Target accuracy, 95&nbsp;% interval", "Points over source only"]
    if has(data, "score"):
        names += [f"Score ({escape(data['score'])})"]
        names += [] if has(data, "accuracy") else ["Score over source only"]
        names += ["Alarm"]
    return [*names, "State", "Method", *map(escape, data["columns"]), "Source accuracy", "Iterations"]


def has(data: Mapping[str, Any], name: str) -> bool:
    return any(run[name] is not None for run in (*data["runs"], *data["references"]))


def rows(data: Mapping[str, Any]) -> Iterator[str]:
    """The rows of the table of runs, with models that are not runs below the run that they belong to."""
    for i, run in enumerate(data["runs"]):
        yield run_row(i, run, data)
        yield from (reference_row(row, data) for row in data["references"] if row["after"] == i)


def run_row(i: int, run: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """A row of the table of runs."""
    name = escape(run["name"])
    chosen = '<span class="use">use this one</span>' if i == data["chosen"] and len(data["runs"]) > 1 else ""
    first = f"""<label class="show"><input type="checkbox" class="show-run" value="{i}" checked>
<svg class="swatch" viewBox="0 0 28 8" aria-hidden="true"><path class="line c{i % 10} d{i % 6}" d="M0 4H28"/></svg>
<span class="hidden">show {name} in the curves</span></label>"""
    pressed = str(i == data["first"]).lower()
    heading = f"""<button type="button" class="open-run" value="{i}" aria-pressed="{pressed}">{name}</button>{chosen}"""
    cells = [*measured(run, data)]
    if has(data, "score"):
        cells.append("–" if run["alarm"] is None else escape(run["alarm"]))
    colour = COLOURS.get(run["state"], "bad")
    cells.append(f'<span class="status {colour}">{escape(run["state"])}</span>')
    cells += [escape(run["method"]), *map(escape, run["differs"])]
    cells += ["–" if run["source_accuracy"] is None else share(run["source_accuracy"]), f"{run['iterations']:,}"]
    return row(first, heading, cells, data, f' data-run="{i}"')


def reference_row(model: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """A row for a model that is not a run: it has no curves and no details."""
    cells = measured(model, data)
    if has(data, "score"):
        cells.append(escape(str(model["alarm"] or ("–" if model["score"] is None else "none"))))
    use = '<span class="use">use this one</span>' if model["name"] == data["answer"] else ""
    return row("", escape(model["name"]) + use, cells + ["–"] * (len(headings(data)) - 2 - len(cells)), data, "")


def measured(model: Mapping[str, Any], data: Mapping[str, Any]) -> list[str]:
    """The cells of accuracy and score, as far as the table has them."""
    accuracy, gain, score, cells = model["accuracy"], model.get("gain"), model["score"], []
    if has(data, "accuracy"):
        cells.append("–" if accuracy is None else f"<b>{share(accuracy['value'])}</b> {span(accuracy)}")
        cells.append("–" if gain is None else f"<b>{points(gain['value'])}</b> {span(gain, points)}")
    if has(data, "score"):
        of = "" if score is None or score.get("last", True) else f" (iteration {score['step']:,})"
        cells.append("–" if score is None else f"<b>{score['value']:.3f}</b>{of}")
        if not has(data, "accuracy"):
            more = None if score is None else score["more"]
            cells.append("–" if more is None else f"{more:+.3f}".replace("-", "−"))
    return cells


def row(first: str, heading: str, cells: Sequence[str], data: Mapping[str, Any], attributes: str) -> str:
    """A row of the table, whose cells name their columns for narrow screens, where rows become cards.

    With the roles, it stays a table for screen readers, however the style sheet shows it.
    """
    named = zip(headings(data)[2:], cells, strict=True)
    return (
        f'<tr role="row"{attributes}><td role="cell">{first}</td><th scope="row" role="rowheader">{heading}</th>'
        + "".join(f'<td role="cell" data-label="{label}">{cell}</td>' for label, cell in named)
        + "</tr>"
    )


def share(value: float) -> str:
    return f"{100 * value:.1f}&nbsp;%"


def span(interval: Mapping[str, float], written: Any = lambda value: f"{100 * value:.1f}") -> str:
    return f'<span class="interval">{written(interval["low"])} to {written(interval["high"])}</span>'
