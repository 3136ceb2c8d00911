"""The site is built without a warning; its links lead somewhere, and no markup is left in its text."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.documented import ROOT

VERBATIM = {"code", "pre", "script", "style", "math", "title", "svg", "dt"}
MARKUP = re.compile(r"\\[a-z]+\{|\$[^$\s][^$]*\$|```|\*\*\w|\]\([\w./-]*\.md|:\w+:`|[λξL]_[a-z]")


class Page(HTMLParser):
    """Names that links can lead to, links, and running text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.text: list[str] = []
        self.inside: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.names.update(given[name] for name in ("id", "name") if name in given)
        self.links.extend(given[name] for name in ("href", "src") if name in given)
        if tag in VERBATIM:
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.inside and tag == self.inside[-1]:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.text.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """Every page of the site, built as `make docs` builds it."""
    out = tmp_path_factory.mktemp("site").resolve()
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-n",
        "-q",
        "-d",
        out / "trees",
        "docs",
        out / "html",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path: Page(path) for path in (out / "html").rglob("*.html")}


def test_every_page_is_on_the_site_under_its_title(site: dict[Path, Page]) -> None:
    """Sphinx has pages of its own, such as search.html, which would take the place of one with that name."""
    out = next(path for path in site if path.name == "index.html" and (path.parent / "searchindex.js").exists()).parent
    for page in (ROOT / "docs").rglob("*.md"):
        title = re.search(r"^# (.*)$", page.read_text(), re.MULTILINE)
        if title is not None and page.name != "README.md":
            words = re.findall(r"[A-Za-z]{3,}", title[1])
            shown = " ".join(site[out / page.relative_to(ROOT / "docs").with_suffix(".html")].text)
            assert all(word in shown for word in words), page.name


def test_links_inside_the_site_lead_somewhere(site: dict[Path, Page]) -> None:
    broken = []
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            known = site[target].names if target in site else set()
            if not target.exists() or (target in site and parts.fragment and unquote(parts.fragment) not in known):
                broken.append((path.name, link))
    assert not broken


def test_no_markup_is_left_in_the_text(site: dict[Path, Page]) -> None:
    left = {
        path.name: found
        for path, page in site.items()
        if path.stem != "genindex" and (found := MARKUP.findall(" ".join(page.text)))
    }
    assert not left


def test_pictures_are_small() -> None:
    pictures = [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".svg", ".png")]
    assert pictures
    assert not [path.name for path in pictures if path.stat().st_size > 300_000]
