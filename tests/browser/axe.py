"""axe-core, the accessibility checker, in a page. It comes from npm, for these tests alone."""

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
    """The script, fetched once per run; skips the test where npm or its registry is out of reach."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"axe-core {VERSION} comes from npm, and there is none: install Node.js to run this test")
    with tempfile.TemporaryDirectory(prefix="axe-") as folder:
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", f"axe-core@{VERSION}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            pytest.skip(f"npm did not get axe-core {VERSION}: {done.stderr.strip()[-300:]}")
        return (Path(folder) / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


# axe compares every element of a page with every one that is left out: the thousand words of a listing become one.
ONE_CHILD_PER_LISTING = """() => {
  for (const listing of document.querySelectorAll("article .highlight pre")) {
    const words = document.createElement("span");
    words.append(...listing.childNodes);
    listing.append(words);
  }
}"""


def serious_violations(page: Page, contrast: bool = True) -> list[str]:
    """All that axe-core calls serious or critical; colours with ``contrast`` only, since they take nearly all the time.

    Of formulas and listings only the frames are looked at: their thousands of glyphs would take a minute a page.
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
    """What axe-core finds in images, drawings and controls that a screen reader could not name."""
    page.evaluate(axe_source())
    found = page.evaluate("([where, rules]) => axe.run(where, {runOnly: rules})", [where, RULES])
    return [f"{broken['id']}: {node['html'][:200]}" for broken in found["violations"] for node in broken["nodes"]]
