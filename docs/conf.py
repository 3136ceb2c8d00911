"""The documentation site: `make docs` builds it into build/docs."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from docutils import nodes

import vmt

project = "vmt"
author = "the vmt developers"
project_copyright = author
version = release = vmt.__version__

extensions = ["mathml", "myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
# README.md is the page that GitHub shows for this folder; index.md includes its list of pages.
exclude_patterns = ["README.md", "_*"]
smartquotes = False  # they would turn -- into –
nitpicky = True
# Names of other projects: their inventories are on the network, and the site is built without one.
nitpick_ignore_regex = [
    ("py:.*", r"(torch|numpy|np|nn|sklearn|collections|pathlib|typing)\..*"),
    ("py:.*", r"Tensor|NDArray|Path|Any|Callable|Sequence|Mapping|Self|Module|nn\.Module"),
    ("py:data", r"(vmt\.validators\.)?[A-Z_]+"),
    # Folders of the repository are links on GitHub and plain text on the site.
    ("myst", r"(\.\./)+[\w/-]+"),
    # Parts of the package that signatures and docstrings mention, but that are not in the reference.
    ("py:.*", r"vmt\.(step|nets\.factory|data\.readers|data\.synthetic|progress|many)\..*|vmt\.evaluate\.adabn\.Net"),
    ("py:.*", r"(vmt\.data\.files\.features\.)?Extractor"),
]

# The notebook is stored with its outputs, and a test executes it: training does not belong in building pages.
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence", "dollarmath", "smartquotes"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 3

html_math_renderer = "mathml"
html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"vmt {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = False
napoleon_use_param = napoleon_use_rtype = False
python_maximum_signature_line_length = 90
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True


def setup(app: Any) -> None:
    # Napoleon takes the text before a colon in the description of an attribute for its type, so it must not see it.
    kept: dict[str, list[str]] = {}

    def keep(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
        kept[name] = list(lines)

    def put_back(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
        if what in ("attribute", "property"):
            lines[:] = kept[name]

    app.connect("autodoc-process-docstring", keep, priority=100)
    app.connect("autodoc-process-docstring", put_back, priority=900)

    def plain_words(app: Any, tree: nodes.document, page: str) -> None:
        for link in list(tree.findall(nodes.reference)):
            if str(link.get("refid", "")).startswith("../"):
                link.replace_self(link.children)

    app.connect("doctree-resolved", plain_words)

    def dashes(app: Any, tree: nodes.document, page: str) -> None:
        """Sphinx puts two hyphens between a parameter and its description."""
        for text in [text for text in tree.findall(nodes.Text) if text == " -- "]:
            text.parent.replace(text, nodes.Text(" – "))

    app.connect("doctree-resolved", dashes)
