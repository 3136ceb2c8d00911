"""Formulas as MathML, which browsers draw themselves: no script, no font, nothing to fetch."""

import re
import unicodedata
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

logger = logging.getLogger(__name__)

# Browsers know no other alphabet of <mi> than the plain one: the letters have code points of their own.
ALPHABETS = {"script": "SCRIPT", "double-struck": "DOUBLE-STRUCK"}


# A command that the converter does not know.
SPELT = {r"\\arg(?![a-z])": r"\\operatorname{arg}"}


def mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    latex = node.astext()
    for command, spelt in SPELT.items():
        latex = re.sub(command, spelt, latex)
    found = convert(latex, display=display)
    if "\\" in found:
        logger.warning("a command in the formula %r is not known", latex, location=node)
    return re.sub(r'<mi mathvariant="(script|double-struck)">(\w)</mi>', letter, found)


def letter(match: re.Match[str]) -> str:
    name = f"{ALPHABETS[match[1]]} CAPITAL {match[2]}"
    try:
        return f"<mi>{unicodedata.lookup(name)}</mi>"
    except KeyError:
        return f"<mi>{unicodedata.lookup(f'MATHEMATICAL {name}')}</mi>"


def inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    # A formula wider than a phone scrolls by itself.
    translator.body.append(f'<div class="formula" tabindex="0">{mathml(node, "block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
