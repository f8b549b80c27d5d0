"""Slides in a browser, from files, without a network: all fits, pictures move, speaker's window and printing work."""

import re
from pathlib import Path

import pytest
from browser.axe import serious_violations
from browser.conftest import PATIENCE, Shoot
from helpers import COURSE, WEEK3
from playwright.sync_api import Browser, Page, expect

from autograder.manifest import MANIFEST
from autograder.slides import write_slides

SHAPES = [(1280, 720), (1024, 768)]
GO_TO = """number => {
  const {h, v} = Reveal.getIndices(Reveal.getSlides()[number]);
  Reveal.slide(h, v);
}"""
OVER_THE_EDGE = """async () => {
  const slide = Reveal.getCurrentSlide();
  for (let frame = 0, found; ; await new Promise(requestAnimationFrame)) {  // pictures come, and are fitted, in later ones
    found = Number(slide.style.getPropertyValue("--size") || 1) < 0.65 ? ["letters too small"] : [];
    for (const part of slide.querySelectorAll(":not(svg *)")) {
      const {right, bottom, width} = part.getBoundingClientRect();
      const cut = part.matches("pre") && part.scrollWidth > part.clientWidth + 1;
      if (width && (cut || right > innerWidth + 1 || bottom > innerHeight + 1)) found.push(part.outerHTML.slice(0, 200));
    }
    if (!found.length || (frame += 1) > 300) return found;
  }
}"""


def open_slides(page: Page, path: Path, query: str = "") -> int:
    """Open the slides and return their number. A request to anywhere but their folder fails the test."""
    page.on("request", lambda request: elsewhere.append(request.url))
    elsewhere: list[str] = []
    page.goto(f"{path.as_uri()}{query}")
    page.wait_for_function("window.Reveal && Reveal.isReady()", timeout=PATIENCE)
    assert [url for url in elsewhere if not url.startswith((path.parent.as_uri(), "data:", "blob:"))] == []
    return int(page.evaluate("Reveal.getTotalSlides()"))


@pytest.mark.nightly
@pytest.mark.parametrize("assignment", MANIFEST)
def test_all_slides_fit_and_can_be_read(chromium: Browser, tmp_path: Path, shoot: Shoot, assignment: str) -> None:
    path, count = write_slides(COURSE, assignment, tmp_path)
    over = {}
    for width, height in SHAPES:
        page = chromium.new_page(viewport={"width": width, "height": height})
        assert open_slides(page, path) == count
        for number in range(count):
            page.evaluate(GO_TO, number)
            if found := page.evaluate(OVER_THE_EDGE):
                over[width, number] = found
                shoot(page, f"slides-{assignment}-{width}-{number}")
        if width == SHAPES[0][0]:
            assert serious_violations(page) == []
            open_slides(page, path, "?print-pdf")  # all slides at once
            assert serious_violations(page, contrast=False) == []
        page.close()
    assert over == {}


@pytest.fixture(scope="module")
def lecture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_slides(COURSE, WEEK3, tmp_path_factory.mktemp("slides"))[0]


def test_keys_move_a_picture_and_not_the_slide(page: Page, lecture: Path) -> None:
    open_slides(page, lecture)
    number = page.evaluate("Reveal.getSlides().findIndex((slide) => slide.querySelector('[data-lab]'))")
    page.evaluate(GO_TO, number)
    slider = page.locator('section.present [data-lab] input[type="range"]').first
    before = slider.input_value()
    slider.focus()
    page.keyboard.press("ArrowRight")
    expect(slider).not_to_have_value(before)
    assert page.evaluate("Reveal.getSlides().indexOf(Reveal.getCurrentSlide())") == number


def test_the_speakers_window_has_the_notes(page: Page, lecture: Path) -> None:
    open_slides(page, lecture)
    note = page.evaluate("document.querySelector('aside.notes').textContent.trim().split('\\n')[0]")
    page.evaluate(
        "(() => { const slides = Reveal.getSlides(), with_notes = slides.findIndex((s) => s.querySelector('aside.notes'));"
        " const {h, v} = Reveal.getIndices(slides[with_notes]); Reveal.slide(h, v); })()"
    )
    with page.context.expect_page() as opened:
        page.keyboard.press("s")
    expect(opened.value.locator(".speaker-controls-notes .value")).to_contain_text(note[:30])


@pytest.mark.nightly
def test_on_paper_every_slide_is_a_page(chromium: Browser, lecture: Path, tmp_path: Path) -> None:
    page = chromium.new_page()
    count = open_slides(page, lecture)
    open_slides(page, lecture, "?print-pdf")
    expect(page.locator(".pdf-page")).to_have_count(count, timeout=PATIENCE)  # the pages are laid out one after another
    paper = page.pdf(prefer_css_page_size=True, print_background=True)
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) == count
    page.close()
