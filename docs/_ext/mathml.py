"""Formulas as MathML, which browsers draw themselves: no script, no font, nothing to fetch.

Symbols in running text, such as λ_t or L_m, are formulas too. Their sources stay readable in an editor and on GitHub.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx import addnodes
from sphinx.util import logging

logger = logging.getLogger(__name__)

# Browsers know no other alphabet of <mi> than the plain one: the letters have code points of their own.
ALPHABETS = {"script": "SCRIPT", "double-struck": "DOUBLE-STRUCK"}


# A letter with a short index, as the pages and docstrings write it.
SYMBOL = re.compile(r"(?<![\w/.])([λξεLXxpzfdr])_([a-z]{1,2}|mix|div|mcc|disc|\d)(?![/.]?\w)")
MINUS = re.compile(r"(?<![\w.–-])-(?=\d)")
LETTERS = {"λ": r"\lambda", "ξ": r"\xi", "ε": r"\epsilon", "L": r"\mathcal{L}"}
VERBATIM = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw, nodes.FixedTextElement)

# A command that the converter does not know.
SPELT = {r"\\arg(?![a-z])": r"\\operatorname{arg}"}


def mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    latex = node.astext()
    for command, spelt in SPELT.items():
        latex = re.sub(command, spelt, latex)
    found = convert(latex, display=display)
    if "\\" in found:
        logger.warning("a command in the formula %r is not known", latex, location=node)
    # Browsers set no space between the name of a function and its argument.
    found = re.sub(r"(<mi>(?:ln|log)</mi>)(?=<m[in])", r'\1<mspace width="0.17em"></mspace>', found)
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


def typeset_symbols(app: Any, tree: nodes.document) -> None:
    """Make formulas of the symbols in running text, and minus signs of the hyphens before numbers."""
    for text in list(tree.findall(nodes.Text)):
        if inside(text, (addnodes.download_reference,)):
            # The long names of result files break between words.
            text.parent.replace(text, nodes.Text(re.sub(r"(?<=[_=])", "\u200b", text)))
        elif (SYMBOL.search(text) or MINUS.search(text)) and not inside(text, VERBATIM):
            text.parent.replace(text, list(with_formulas(MINUS.sub("−", text))))


def inside(node: nodes.Node, kinds: tuple[type[nodes.Node], ...]) -> bool:
    return node.parent is not None and (isinstance(node.parent, kinds) or inside(node.parent, kinds))


def with_formulas(text: str) -> Iterator[nodes.Node]:
    end = 0
    for match in SYMBOL.finditer(text):
        yield nodes.Text(text[end : match.start()])
        letter, index = match.groups()
        index = index if len(index) == 1 else rf"\mathrm{{{index}}}"
        latex = f"{LETTERS.get(letter, letter)}_{{{index}}}"
        yield nodes.math(latex, latex)
        end = match.end()
    yield nodes.Text(text[end:])


def setup(app: Any) -> dict[str, bool]:
    app.connect("doctree-read", typeset_symbols, priority=100)  # before the tables of contents are collected
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
