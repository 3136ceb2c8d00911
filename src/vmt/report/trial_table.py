"""The trials of a search as HTML: a table of all of them, best first, and the importance of each setting."""

from collections.abc import Mapping
from html import escape
from typing import Any

from vmt.report.run_table import share


def trials_section(search: Mapping[str, Any], choice: Mapping[str, Any] | None) -> str:
    """The section about the trials of a search. Those without details above have no model."""
    trials = search["trials"]
    names = list(dict.fromkeys(name for trial in trials for name in trial.get("settings", {})))
    labelled = any(trial.get("target_accuracy") is not None for trial in trials)
    headings = ["Trial", "State", f"Score ({search['by']})", *(["Target accuracy"] if labelled else []), *names]
    chosen = None if choice is None else choice.get("chosen")
    rows = "\n".join(trial_row(trial, names, labelled, trial["name"] == chosen) for trial in trials)
    hint = " The accuracy was measured with target labels, which the search does not use." if labelled else ""
    return f"""
<section id="trials" aria-labelledby="trials-title">
<h2 id="trials-title">Trials of the search</h2>
<p class="hint">All {len(trials)} trials, best first, those that were pruned at the end.{hint}</p>
{importances_table(search["importances"])}
<div class="scroll" role="region" tabindex="0" aria-label="Table of trials">
<table>
<thead><tr>{"".join(f'<th scope="col">{escape(name)}</th>' for name in headings)}</tr></thead>
<tbody>
{rows}
</tbody>
</table>
</div>
</section>
"""


def trial_row(trial: Mapping[str, Any], names: list[str], labelled: bool, is_chosen: bool) -> str:
    use = ' <span class="use">use this one</span>' if is_chosen else ""
    state = escape(trial["state"] + (f": {trial['why']}" if trial.get("why") else ""))
    score, accuracy = trial.get("score"), trial.get("target_accuracy")
    cells = [state, "–" if score is None else f"{score:.4f}"]
    if labelled:
        cells.append("–" if accuracy is None else share(accuracy))
    cells += [escape(setting_as_text(trial.get("settings", {}).get(name))) for name in names]
    return f'<tr><th scope="row">{escape(trial["name"])}{use}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def importances_table(importances: Mapping[str, float]) -> str:
    """How much each setting contributes to the differences between good and bad trials."""
    if not importances:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{share(value)}</td><td><meter min="0" max="1" value="{value:.4f}" '
        f'aria-label="importance of {escape(name)}"></meter></td></tr>'
        for name, value in importances.items()
    )
    return (
        "<table><caption>Importance of each setting (PED-ANOVA): its share in what distinguishes the best trials from "
        f"the others</caption><tbody>{rows}</tbody></table>"
    )


def setting_as_text(value: Any) -> str:
    """The value of a setting as a cell; a dash if the trial does not have it."""
    return f"{value:.4g}" if isinstance(value, float) else "–" if value is None else str(value)
