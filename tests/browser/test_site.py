"""Every page of the site in a browser: no errors, no broken links or pictures, formulas, controls, readability."""

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser.axe import serious_violations
from browser.conftest import Shoot
from helpers import COURSE
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from autograder.manifest import MANIFEST
from autograder.site.guides import guides, slug
from autograder.site.methods import METHODS

WEEKS = [f"weeks/{assignment}.html" for assignment in MANIFEST]
PAGES = [
    *("index.html", "reference.html", "search.html", "genindex.html", "methods/index.html"),
    *WEEKS,
    *(f"methods/{method.slug}.html" for method in METHODS),
    *(f"guides/{slug(guide)}.html" for guide in guides(COURSE)),
]
LOOKED_AT = ["index.html", WEEKS[2], "methods/rope.html", "reference.html"]
USUAL = ["index.html", "methods/rope.html"]  # axe takes five to ten seconds for a week's page
OPEN_ALL = """() => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
  for (const picture of document.images) picture.loading = "eager";
}"""
NOT_LOADED = """async () => {
  await Promise.all([...document.images].map((picture) => picture.decode().catch(() => {})));
  return [...document.images].filter((picture) => !picture.naturalWidth).map((picture) => picture.src);
}"""
NOT_DRAWN = """() => [...document.querySelectorAll("math")]
  .filter((formula) => !formula.getBoundingClientRect().height)
  .map((formula) => formula.outerHTML.slice(0, 200))"""
OUT_OF_REACH = """() => [...document.querySelectorAll(".formula")]
  .filter((formula) => formula.scrollWidth > formula.clientWidth)
  .filter((formula) => formula.tabIndex < 0 || getComputedStyle(formula).overflowX !== "auto").length"""
TOO_WIDE = "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def complaints(page: Page) -> list[str]:
    """Errors of the page's console and its requests, collected as they occur."""
    found: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            found.append(message.text)

    page.on("console", listen)
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("requestfailed", lambda request: found.append(f"no answer: {request.url}"))
    page.on(
        "response",
        lambda response: found.append(f"{response.status}: {response.url}") if response.status >= 400 else None,
    )
    return found


@pytest.mark.parametrize(
    "name", [name if name in USUAL else pytest.param(name, marks=pytest.mark.nightly) for name in PAGES]
)
def test_the_page_is_whole(address: str, page: Page, complaints: list[str], name: str) -> None:
    page.goto(f"{address}/{name}")
    page.evaluate(OPEN_ALL)  # axe skips what is folded away
    assert serious_violations(page, contrast=name in LOOKED_AT) == []  # all pages share one style sheet
    assert page.evaluate(NOT_LOADED) == []
    assert page.evaluate(NOT_DRAWN) == []
    assert complaints == []


def test_no_page_is_left_out(site: Path) -> None:
    assert {path.relative_to(site).as_posix() for path in site.rglob("*.html")} == set(PAGES)


@pytest.mark.parametrize(
    ("width", "theme"),
    [
        (360, "light"),
        *(
            pytest.param(width, theme, marks=pytest.mark.nightly)
            for width, theme in [(360, "dark"), (768, "light"), (768, "dark"), (1440, "light"), (1440, "dark")]
        ),
    ],
)
def test_pages_fit_and_have_contrast(chromium: Browser, address: str, shoot: Shoot, width: int, theme: str) -> None:
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
    )
    page = context.new_page()
    for name in LOOKED_AT:
        page.goto(f"{address}/{name}")
        assert not page.evaluate(TOO_WIDE), name
        assert not page.evaluate(OUT_OF_REACH), name  # by scrolling, and by keyboard
        shoot(page, f"site-{Path(name).stem}-{width}-{theme}")
        if width == 768 and theme == "dark":  # the light theme's colours are looked at above
            assert serious_violations(page) == [], name
    context.close()


@pytest.mark.parametrize(
    "name",
    ["index.html", WEEKS[2], *(pytest.param(name, marks=pytest.mark.nightly) for name in WEEKS if name != WEEKS[2])],
)
def test_controls_move_by_mouse_and_keyboard(address: str, page: Page, name: str) -> None:
    page.goto(f"{address}/{name}")
    page.evaluate(OPEN_ALL)
    sliders = page.locator('[data-lab] input[type="range"]').all()
    assert sliders or name == WEEKS[0]  # week 1 has no moving picture
    for slider in sliders:
        slider.scroll_into_view_if_needed()
        slider.focus()
        page.keyboard.press("Home")
        least = slider.input_value()
        page.keyboard.press("ArrowRight")
        assert float(slider.input_value()) == float(least) + 1
        box = slider.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + box["height"] / 2)
        assert float(slider.input_value()) > float(least) + 1


def test_the_clocks_of_the_title_page_turn_when_told_to(address: str, page: Page) -> None:
    page.clock.install()
    page.goto(f"{address}/index.html")
    query = page.locator('[data-lab] input[type="range"]').first
    before = query.input_value()
    page.get_by_role("button", name="Let both tokens move on").click()
    expect(query).not_to_have_value(before)
    expect(page.locator("[data-lab] .said")).to_have_text("Offset m − n = 2.")
    page.get_by_role("button", name="Stop").click()
    assert page.get_by_role("button", name="Let both tokens move on").is_visible()  # at once: it stops by itself later
    stopped = query.input_value()
    page.clock.run_for(2_000)  # five turns, if it had not stopped
    assert query.input_value() == stopped
    page.get_by_role("button", name="Let both tokens move on").click()
    expect(query).not_to_have_value(stopped)


def test_the_hands_turn_as_angles_do(address: str, page: Page) -> None:
    """Counter-clockwise: at position 1 the first pair's hand is above the middle, an angle of 1 rad."""
    page.goto(f"{address}/index.html")
    page.locator('[data-lab] input[type="range"]').first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    letter = page.locator("[data-lab] .clock svg").first.get_by_text("q", exact=True)
    assert float(letter.get_attribute("x") or 0) > 75 > float(letter.get_attribute("y") or 75)


def test_results_wait_for_the_prediction(address: str, page: Page) -> None:
    page.goto(f"{address}/{WEEKS[2]}")
    result = page.locator("details.result").first
    expect(result.locator("img")).to_be_hidden()
    result.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(result.locator("img")).to_be_visible()


def test_the_first_screen_needs_no_scripts(chromium: Browser, address: str) -> None:
    context = chromium.new_context(java_script_enabled=False, viewport={"width": 360, "height": 800})
    page = context.new_page()
    for name in ("index.html", WEEKS[2]):
        page.goto(f"{address}/{name}")
        heading, paragraph = page.locator("article h1"), page.locator("article p").first
        for shown in (heading, paragraph):
            box = shown.bounding_box()
            assert box is not None and box["y"] + box["height"] < 800, name
    page.goto(f"{address}/index.html")
    expect(page.locator("[data-lab] img")).to_be_visible()
    context.close()


def test_search_finds_a_method(address: str, page: Page) -> None:
    page.goto(f"{address}/search.html?q=interleaved")
    expect(page.locator("ul.search li").filter(has_text="Rotary")).not_to_have_count(0)


def test_links_between_weeks_figures_and_equations_are_there(site: Path) -> None:
    """The text's own references have become links; the builder checks that links lead somewhere."""
    text = (site / WEEKS[2]).read_text(encoding="utf-8")
    for target in ("week2_sinusoidal.html#week-2", "#figure-3-10", "#section-3-8", "#equation-1"):
        assert re.search(rf'<a [^>]*href="{re.escape(target)}"', text), target
