"""The pages as a browser shows them: nothing fetched, nothing wider than a phone, both themes readable."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_optimizer.report import course_html, html, measurement_html
from model_optimizer.testing.records import record

from .test_figures import course, measured

pytestmark = pytest.mark.browser

_NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = os.environ.get("MOPT_TEST_CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with sync_api.sync_playwright() as play:
        opened = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


PAGES = {
    "run": lambda: html(record()),
    "measurement": lambda: measurement_html(measured(), "a model"),
    "course": lambda: course_html(course()),
}


@pytest.fixture(params=PAGES)
def page_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / "report.html"
    file.write_text(PAGES[request.param]())
    return file


def opened(browser, file: Path, *, width: int, scheme: str = "light"):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.problems = []
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on(
        "request",
        lambda request: page.problems.append(request.url) if request.url.startswith("http") else None,
    )
    page.goto(file.as_uri())
    return page


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_its_window_and_nothing_is_fetched(
    browser, page_file: Path, width: int
) -> None:
    page = opened(browser, page_file, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.problems == []


def test_words_in_pictures_can_be_read_on_a_phone(browser, page_file: Path) -> None:
    page = opened(browser, page_file, width=390)
    sizes = page.evaluate(
        "[...document.querySelectorAll('figure svg[role=img] text')].map(t => t.getBoundingClientRect().height)"
    )
    assert sizes and min(sizes) >= 8
    outside = page.evaluate(
        "[...document.querySelectorAll('figure svg[role=img]')].flatMap(s => { const b = s.getBoundingClientRect();"
        "return [...s.querySelectorAll('text')].filter(t => { const r = t.getBoundingClientRect();"
        "return r.left < b.left - 1 || r.right > b.right + 1 }).map(t => t.textContent) })"
    )
    assert outside == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(browser, page_file: Path, scheme: str) -> None:
    page = opened(browser, page_file, width=1280, scheme=scheme)
    pairs = page.evaluate(
        "[...document.querySelectorAll('h1, td, th, small, figcaption, svg text')].map(e => {"
        "const own = getComputedStyle(e); let at = e, ground = 'rgba(0, 0, 0, 0)';"
        "while (at && ground === 'rgba(0, 0, 0, 0)') { ground = getComputedStyle(at).backgroundColor; at = at.parentElement }"
        "return [e.namespaceURI.includes('svg') ? own.fill : own.color, ground] })"
    )
    assert pairs
    worst = min(contrast(colour(a), colour(b)) for a, b in pairs)
    assert worst >= 4.5


def test_every_picture_has_a_name_for_those_who_do_not_see_it(browser, page_file: Path) -> None:
    page = opened(browser, page_file, width=1280)
    names = page.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].map(s => s.getAttribute('aria-label'))"
    )
    assert names and all(names)


def colour(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in json.loads(f"[{text[text.index('(') + 1 : -1]}]")[:3])


def contrast(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """The ratio of WCAG 2: relative luminances with 0.05 added."""

    def luminance(rgb: tuple[float, ...]) -> float:
        parts = [c / 255 / 12.92 if c / 255 <= 0.03928 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)
