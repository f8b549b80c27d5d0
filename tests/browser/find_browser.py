"""Find the Chromium that the browser tests drive; ``--install`` installs one if there is none."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
ADVICE = "install the system package `chromium` (Debian, Ubuntu: sudo apt install chromium)"


def find_browser() -> str | None:
    """Return the system's Chromium or Chrome, else playwright's own, else ``None``."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    return _playwrights_own()


def _playwrights_own() -> str | None:
    # In its own process: playwright's blocking interface refuses to start if an event loop is already running.
    code = (
        "from playwright.sync_api import sync_playwright\n"
        "with sync_playwright() as p: print(p.chromium.executable_path)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    path = done.stdout.strip()
    return path if done.returncode == 0 and path and Path(path).is_file() else None


def install_browser() -> str | None:
    """Install a browser if that needs no password. Return its path, or ``None`` if that did not work."""
    print("No Chromium found; getting one for the browser tests …", flush=True)
    if shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", "chromium"]):
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
        if found := find_browser():
            return found
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)
    return find_browser()


def main(arguments: list[str]) -> int:
    found = find_browser()
    if found is None and "--install" in arguments:
        found = install_browser()
    elif found is not None and "--install" not in arguments:
        print(found)
    if found is None:
        print(f"error: the browser tests need Chromium, and there is none: {ADVICE}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
