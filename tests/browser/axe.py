"""Run axe-core, the accessibility checker, in a page. It comes from npm and only these tests need it."""

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import Page

VERSION = "4.10.3"
RULES = [
    "image-alt",
    "svg-img-alt",
    "role-img-alt",
    "input-image-alt",
    "object-alt",
    "label",
    "button-name",
    "aria-input-field-name",
    "select-name",
    "frame-title",
    "nested-interactive",
]


@functools.cache
def axe_source() -> str:
    """Return the script, fetched once per run; skip the test if npm or its registry is out of reach."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"axe-core {VERSION} comes from npm, and there is none: install Node.js to run this test")
    with tempfile.TemporaryDirectory(prefix="axe-") as folder:
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", f"axe-core@{VERSION}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            pytest.skip(f"npm did not get axe-core {VERSION}: {done.stderr.strip()[-300:]}")
        return (Path(folder) / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


# axe compares each element with each excluded one, so we wrap the thousand words of a listing in one element.
ONE_CHILD_PER_LISTING = """() => {
  for (const listing of document.querySelectorAll("article .highlight pre")) {
    const words = document.createElement("span");
    words.append(...listing.childNodes);
    listing.append(words);
  }
}"""


def serious_violations(page: Page, contrast: bool = True) -> list[str]:
    """Return what axe-core calls serious or critical; colours only with ``contrast``, as they take nearly all the time.

    Formulas and the words of listings are excluded: their thousands of glyphs would take a minute per page.
    """
    page.evaluate(axe_source())
    page.evaluate(ONE_CHILD_PER_LISTING)
    found = page.evaluate(
        """contrast => axe.run({exclude: [['math'], ['article .highlight pre > span']]},
            {resultTypes: ['violations'], rules: {'color-contrast': {enabled: contrast}}})""",
        contrast,
    )
    return [
        f"{broken['id']}: {node['html'][:200]}"
        for broken in found["violations"]
        if broken["impact"] in ("serious", "critical")
        for node in broken["nodes"]
    ]


def figures_without_text(page: Page, where: str = "body") -> list[str]:
    """Return the images, drawings and controls that a screen reader could not name, as axe-core finds them."""
    page.evaluate(axe_source())
    found = page.evaluate("([where, rules]) => axe.run(where, {runOnly: rules})", [where, RULES])
    return [f"{broken['id']}: {node['html'][:200]}" for broken in found["violations"] for node in broken["nodes"]]
