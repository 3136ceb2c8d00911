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
from tests.report_runs import NAMES, three_runs, train, write_pictures
from vmt.cli.main import main

WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 360, "height": 740}
VIEWS = {
    "wide": {"viewport": WIDE},
    "wide, dark": {"viewport": WIDE, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "has_touch": True, "is_mobile": True},
    "phone, dark": {"viewport": PHONE, "has_touch": True, "is_mobile": True, "color_scheme": "dark"},
}


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
    """Pages: two runs on images with hostile class names; unlabelled vectors, one run and three; two that failed."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_pictures(folder / "data")
    source, target = write_blobs(folder)
    train(folder / "pictures" / "lower", data, "--method", "source_only", "--net", "tiny")
    flags = ["--method", "vmt", "--net", "tiny", "--dirt-t", "--dirt-t-iterations", "4"]
    train(folder / "pictures" / "mine", data, *flags)
    train(folder / "vectors", ["--source", str(source), "--target", str(target)], "--method", "dann")
    three = three_runs(folder / "vectors", folder / "three runs")
    shown = {"pictures": [folder / "pictures"], "vectors": [folder / "vectors"], "three": [three]}
    shown["failed"] = [three / "short", three / "collapsed"]
    found = {name: folder / f"{name}.html" for name in shown}
    for name, runs in shown.items():
        how = "tsne" if name == "pictures" else "pca"
        assert main(["report", *map(str, runs), "-o", str(found[name]), "--map", how]) == 0
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
    assert page.locator("#intervals svg circle").count() == 3, "two runs and AdaBN"
    assert page.locator("table.confusion tbody tr").count() == len(NAMES)
    assert "vmt" in page.locator("#settings-tables").inner_text()
    assert page.locator("details.group[data-group=discriminator] figure").count() >= 3
    assert page.locator(".next .command").count() >= 1
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
    assert page.locator("#run").input_value() == str(page.evaluate("DATA.first"))
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

    page.select_option("#run", "1")  # which of the two is shown first is decided by rounding
    assert len(confidences()) == 24
    assert confidences() == sorted(confidences()), "the doubtful ones come first"
    page.locator("#gallery-differs").check()
    assert all("source only:" in card for card in texts(page, ".sample"))
    page.locator("#gallery-differs").uncheck()
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


@pytest.mark.parametrize("view", ["wide", "phone, dark"])
@pytest.mark.parametrize(
    ("name", "use", "command"), [("three", "good", "vmt predict"), ("failed", "None", "vmt train")]
)
def test_the_first_screen_names_the_run_to_use_and_a_command(
    browser: Any, pages: dict[str, Path], view: str, name: str, use: str, command: str
) -> None:
    found = Opened(browser, pages[name], **VIEWS[view])
    page = found.page
    for selector, words in (("h1", use), ("#command-0", command)):
        place = page.locator(selector)
        assert words in place.inner_text()
        box = place.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= page.viewport_size["height"], f"{selector} is below the first screen"
        assert box["x"] + box["width"] <= page.viewport_size["width"]
    assert page.locator("#run").input_value() == page.locator("tr.chosen .open-run").get_attribute("value")
    assert (page.locator("tr.chosen .use").count() == 1) == (name == "three"), "the run to use is open, if there is one"
    assert page.locator(".status.good").count() == (1 if name == "three" else 0)
    found.check()
    found.context.close()


def test_commands_are_copied(browser: Any, pages: dict[str, Path]) -> None:
    found = Opened(browser, pages["three"])
    found.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = found.page.locator(".copy >> nth=0")
    button.click()
    found.page.wait_for_function("document.querySelector('.copy').textContent !== 'Copy'")
    assert button.inner_text() == "Copied"
    copied = found.page.evaluate("navigator.clipboard.readText()")
    assert copied == found.page.evaluate("DATA.next[0].command")
    found.context.close()


@pytest.mark.parametrize("name", ["pictures", "three"])
def test_nothing_is_cut_off_on_a_phone_and_on_paper(browser: Any, pages: dict[str, Path], name: str) -> None:
    """Every cell of the tables of runs, class shares, confidence and settings is inside the page."""
    outside = """(width) => [...document.querySelectorAll('.runs td, .bars td, .settings td, .command code')]
        .filter((cell) => cell.offsetWidth && cell.getBoundingClientRect().right > width + 1)
        .map((cell) => cell.outerHTML.slice(0, 90))"""
    found = Opened(browser, pages[name], **VIEWS["phone"])
    assert found.page.evaluate(outside, 360) == []
    assert found.page.locator(".bars .count").first.is_visible(), "values are shown and not only on hover"
    found.context.close()
    paper = Opened(browser, pages[name], viewport={"width": 703, "height": 1000}, color_scheme="dark")
    paper.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    paper.page.emulate_media(media="print", color_scheme="dark")
    assert paper.page.evaluate(outside, 703) == []
    assert paper.page.evaluate("document.documentElement.scrollWidth") <= 703
    assert paper.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert paper.page.locator("details.group:not([open])").count() == 0, "everything is unfolded"
    assert paper.page.locator(".readout").first.is_visible(), "the values at the end of curves are printed"
    paper.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    paper.page.emulate_media(media="screen", color_scheme="dark")
    assert paper.page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    paper.check()
    paper.context.close()


@pytest.mark.parametrize(
    ("name", "view"),
    [
        *(("three", view) for view in (*VIEWS, "print")),
        ("failed", "phone"),
        ("pictures", "wide"),
        ("pictures", "print"),
    ],
)
def test_axe_finds_no_violation(browser: Any, pages: dict[str, Path], name: str, view: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = Opened(browser, pages[name], **VIEWS.get(view, {"viewport": {"width": 703, "height": 1000}}))
    if view == "print":
        found.page.emulate_media(media="print")
    found.page.evaluate("document.querySelectorAll('details').forEach((box) => { box.open = true; })")
    result = axe.Axe().run(found.page)
    assert [(each["id"], each["nodes"][0]["html"]) for each in result.response["violations"]] == []
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
