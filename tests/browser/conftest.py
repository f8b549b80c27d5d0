"""Fixtures: the browser, screenshots, and pages that can reach only the test's own server."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser.find_browser import ADVICE, find_browser
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

CHROMIUM_OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ELSEWHERE = re.compile(r"^(?:https?|wss?)://(?!127\.0\.0\.1[:/])")
PATIENCE = 120_000  # milliseconds until a page counts as hanging; a busy machine is slow, not broken

Shoot = Callable[[Page | Locator, str], None]


@pytest.fixture(scope="package")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        pytest.fail(f"the browser tests need Chromium, and there is none: {ADVICE}", pytrace=False)
    expect.set_options(timeout=PATIENCE)
    home = str(tmp_path_factory.mktemp("chromium"))  # keeps crash reports and caches out of the user's home
    environment = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, headless=True, args=CHROMIUM_OPTIONS, env=environment
        )
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A page that can reach 127.0.0.1 and nothing else: after set-up the course needs no network."""
    context = chromium.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE)
    context.route(ELSEWHERE, lambda route: route.abort())
    yield context.new_page()
    context.close()


@pytest.fixture
def shoot() -> Shoot:
    """A function that saves a screenshot of (part of) a page in the folder AUTOGRADER_SCREENSHOTS, if that is set."""
    folder = os.environ.get("AUTOGRADER_SCREENSHOTS")

    def shot(what: Page | Locator, name: str) -> None:
        if folder:
            what.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")

    return shot
