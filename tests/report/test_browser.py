"""The report in a headless browser, offline.

``make test`` installs Debian's ``chromium`` if it can. VMT_BROWSER=required makes a missing browser a failure.
"""

import os
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.own_data import write_blobs
from tests.report_runs import NAMES, train, write_pictures
from vmt.cli.main import main

WIDE, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None and os.environ.get("VMT_BROWSER") == "required":
        pytest.fail("there is no Chromium: apt-get install chromium")
    if found is None:
        pytest.skip("there is no Chromium here: apt-get install chromium, then run this again")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages of two runs on images with hostile class names, and of one on unlabelled vectors."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_pictures(folder / "data")
    source, target = write_blobs(folder)
    train(folder / "pictures" / "lower", data, "--method", "source_only")
    train(folder / "pictures" / "mine", data, "--method", "vmt", "--dirt-t", "--dirt-t-iterations", "4")
    train(folder / "vectors", ["--source", str(source), "--target", str(target)], "--method", "dann")
    found = {}
    for name in ("pictures", "vectors"):
        found[name] = folder / f"{name}.html"
        assert main(["report", str(folder / name), "-o", str(found[name])]) == 0
    return found


class Opened:
    """An open page that records its requests and its errors."""

    def __init__(self, browser: Any, path: Path, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": WIDE, **options})
        self.context.set_offline(True)
        self.page = self.context.new_page()
        self.page.set_default_timeout(5000)
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.errors.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.address = path.as_uri()
        self.page.goto(self.address)

    def check(self) -> None:
        """Check that the page has written nothing to the console and requested nothing from a network."""
        assert self.errors == []
        assert [url for url in self.requests if url != self.address and not url.startswith("data:")] == []


@pytest.fixture(scope="module")
def opened(browser: Any, pages: dict[str, Path]) -> Iterator[Opened]:
    found = Opened(browser, pages["pictures"])
    yield found
    found.context.close()


@pytest.fixture
def page(opened: Opened) -> Iterator[Any]:
    """The page of the two runs, newly opened."""
    opened.page.reload()
    yield opened.page
    opened.check()


def texts(page: Any, selector: str) -> list[str]:
    return [text.strip() for text in page.locator(selector).all_inner_texts()]


def test_the_page_renders(page: Any) -> None:
    assert page.locator("h1").count() == 1
    assert len(texts(page, "#sign-list li")) >= 3
    assert page.locator("#curve-groups svg path.line").count() > 10
    assert page.locator("#intervals svg circle").count() == 2
    assert page.locator("table.confusion tbody tr").count() == len(NAMES)
    assert "vmt" in page.locator("#settings-tables").inner_text()
    assert page.locator("details.group[data-group=discriminator] figure").count() >= 3
    assert "cannot tell" in page.locator("[data-chart='discriminator/accuracy'] svg").text_content()
    for canvas in ("canvas.points", "#gallery canvas.thumbnail >> nth=0"):
        different = page.locator(canvas).evaluate(
            "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size"
        )
        assert different > 3, f"{canvas} is blank"


def test_names_of_classes_are_shown_and_not_run(page: Any) -> None:
    assert NAMES[0][:25] in page.locator("#gallery-class").inner_text(), "long names are cut short"
    assert page.evaluate("window.hit") is None
    assert page.locator("main img").count() == 0


def test_runs_are_chosen_and_hidden(page: Any) -> None:
    assert page.locator("#run").input_value() == "1"
    assert "dirt_t" in page.locator("[data-chart='target/accuracy'] svg").text_content()
    page.select_option("#run", "0")
    assert "lower bound" in page.locator("#run-verdict").inner_text()
    assert "source_only" in page.locator("#settings-tables").inner_text()
    page.get_by_role("button", name="mine", exact=True).click()
    assert page.locator("#run").input_value() == "1"
    assert page.locator("tr.chosen button").inner_text() == "mine"
    lines = page.locator("[data-chart='target/accuracy'] path.line")
    assert lines.count() == 2
    page.locator(".show-run >> nth=0").uncheck()
    assert lines.count() == 1
    page.locator(".show-run >> nth=0").check()
    assert lines.count() == 2


def test_curves_are_read_by_pointer_and_keys(page: Any) -> None:
    card = page.locator("[data-chart='target/accuracy']")
    readout, chart = card.locator("output"), card.locator(".chart")
    assert readout.inner_text().startswith("at the end")
    chart.scroll_into_view_if_needed()
    chart.hover()
    assert readout.inner_text().startswith("iteration")
    chart.focus()
    page.keyboard.press("Home")
    assert readout.inner_text().startswith("iteration 4:")
    page.keyboard.press("ArrowRight")
    assert readout.inner_text().startswith("iteration 8:")
    assert "mine" in readout.inner_text()
    card.locator("details summary").click()
    card.locator("details table").wait_for()
    assert card.locator("details table tbody tr").count() == 3


def test_the_map_is_read_by_pointer_keys_and_colours(page: Any) -> None:
    canvas, panel = page.locator("canvas.points"), page.locator(".panel")
    canvas.scroll_into_view_if_needed()
    before = canvas.evaluate("c => c.toDataURL()")
    page.locator("label[for=map-by-right]").click()
    assert canvas.evaluate("c => c.toDataURL()") != before
    assert "target, wrong" in page.locator(".legend").inner_text()
    canvas.focus()
    page.keyboard.press("ArrowRight")
    first = panel.inner_text()
    assert "predicted" in first
    assert "confidence" in first
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert panel.inner_text() != first
    assert panel.locator("canvas.thumbnail").count() == 1
    # Point at the place that the data give for a target sample.
    place = page.evaluate("DATA.runs[state.run].map.at(-1)")
    box = canvas.bounding_box()
    x, y = (14 + share * (box["width"] - 28) for share in place)
    canvas.hover(position={"x": x, "y": y})
    assert "target" in panel.inner_text()
    page.locator("#map-target").uncheck()
    page.select_option("#map-only", "1")
    page.keyboard.press("Tab")


def test_samples_are_ordered_and_filtered(page: Any) -> None:
    def confidences() -> list[float]:
        return [float(card.get_attribute("data-confidence")) for card in page.locator(".sample").all()]

    assert len(confidences()) == 24
    page.locator("label[for=gallery-order-least]").click()
    assert confidences() == sorted(confidences())
    page.locator("label[for=gallery-order-most]").click()
    assert confidences() == sorted(confidences(), reverse=True)
    page.get_by_role("button", name="Show more").click()
    assert len(confidences()) == 48
    page.locator("#gallery-wrong").check()
    cards = texts(page, ".sample")
    assert all("✗" in card for card in cards)
    wrong = page.evaluate("DATA.runs[state.run].confusion.matrix.flatMap((r, t) => r.filter((_, p) => p !== t))")
    assert f"of the {sum(wrong)} samples" in page.locator("#gallery [role=status]").inner_text()
    page.locator("#gallery-wrong").uncheck()
    page.select_option("#gallery-class", "2")
    assert {card.get_attribute("data-predicted") for card in page.locator(".sample").all()} <= {"2"}


def test_dark_mode_by_preference_and_by_button(browser: Any, pages: dict[str, Path], page: Any) -> None:
    def ground(of: Any) -> str:
        return str(of.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = ground(page)
    theme = page.get_by_role("button", name="Dark")
    assert theme.get_attribute("aria-pressed") == "false"
    theme.focus()
    page.keyboard.press("Enter")
    assert theme.get_attribute("aria-pressed") == "true"
    dark = ground(page)
    assert dark != light
    other = Opened(browser, pages["pictures"], color_scheme="dark")
    assert ground(other.page) == dark
    other.page.get_by_role("button", name="Dark").click()
    assert ground(other.page) == light
    other.check()
    other.context.close()


@pytest.mark.parametrize("name", ["pictures", "vectors"])
def test_the_page_on_a_phone(browser: Any, pages: dict[str, Path], name: str) -> None:
    phone = Opened(browser, pages[name], viewport=PHONE, has_touch=True, is_mobile=True, device_scale_factor=2)
    page = phone.page
    page.evaluate("document.querySelectorAll('details').forEach((box) => { box.open = true; })")
    page.wait_for_selector("details.numbers table")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    canvas = page.locator("canvas.points")
    canvas.scroll_into_view_if_needed()
    place, box = page.evaluate("DATA.runs[state.run].map[0]"), canvas.bounding_box()
    x, y = (14 + share * (box["width"] - 28) for share in place)
    canvas.tap(position={"x": x, "y": y})
    assert "confidence" in page.locator(".panel").inner_text()
    small = page.evaluate(
        "[...document.querySelectorAll('button, select, .segments label')]"
        ".filter(e => e.offsetHeight && e.offsetHeight < 36).length"
    )
    assert small == 0, "something to tap is too small"
    phone.check()
    phone.context.close()


def test_vectors_without_labels(browser: Any, pages: dict[str, Path]) -> None:
    found = Opened(browser, pages["vectors"])
    page = found.page
    assert page.locator("canvas.thumbnail").count() == 0
    assert page.locator(".sample").count() == 24
    assert page.locator("#gallery-wrong").count() == 0
    assert page.locator("table.confusion").count() == 0
    assert page.locator("#map-by-right").count() == 0
    assert page.locator("#run").is_hidden(), "there is nothing to choose with one run"
    assert page.locator("details.group[data-group=scores]").get_attribute("open") is not None
    page.locator("canvas.points").focus()
    page.keyboard.press("ArrowRight")
    assert "confidence" in page.locator(".panel").inner_text()
    found.check()
    found.context.close()


def test_the_page_is_accessible(page: Any) -> None:
    """It has landmarks, headings in order, a name for every control and image, and unique identifiers."""
    for landmark in ("banner", "main", "navigation", "contentinfo"):
        assert page.get_by_role(landmark).count() == 1, landmark
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    nameless = page.evaluate(
        """[...document.querySelectorAll("input, select, button, [role=img], [role=region], [role=group], canvas")]
        .filter(e => e.offsetParent !== null || e.ownerSVGElement === null)
        .filter(e => !(e.getAttribute("aria-label") || (e.labels && e.labels.length) || e.textContent.trim()))
        .map(e => e.outerHTML.slice(0, 90))"""
    )
    assert nameless == []
    twice = page.evaluate(
        "(() => { const ids = [...document.querySelectorAll('[id]')].map(e => e.id); "
        "return ids.filter((id, i) => ids.indexOf(id) !== i); })()"
    )
    assert twice == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
