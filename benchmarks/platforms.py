"""Checks that every pin has a wheel on the systems and Pythons that the course names; writes benchmarks/platforms.md.

Needs a network and uv (pip install uv), whose resolver can answer for systems other than the one it runs on.
"""

import datetime
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
SYSTEMS = {
    "Linux x86-64": "x86_64-manylinux_2_28",
    "Linux ARM64": "aarch64-manylinux_2_28",
    "macOS 14, Apple silicon": "aarch64-apple-darwin",
    "Windows x86-64": "x86_64-pc-windows-msvc",
    "macOS 14, Intel": "x86_64-apple-darwin",
    "Windows ARM64": "aarch64-pc-windows-msvc",
    "Linux x86-64, musl": "x86_64-unknown-linux-musl",
}
HEAD = """# Wheels on every system

Made by `python benchmarks/platforms.py` on {date}: uv resolves all pins of `pyproject.toml`, extras included
({extras}), from wheels alone, for each system and Python. A number is how many packages that installs; "no" names the
first package without a wheel. `requires-python` is `{requires}`; other Pythons are asked all the same.

| system | {pythons} |
|---|{rule}
"""


def main() -> int:
    project = tomllib.loads((COURSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [name for name in project["optional-dependencies"] if name != "dev"]
    pins = project["dependencies"] + [pin for name in extras for pin in project["optional-dependencies"][name]]
    rows = []
    for name, platform in SYSTEMS.items():
        cells = [_resolve(pins, platform, python) for python in PYTHONS]
        rows.append(f"| {name} | {' | '.join(cells)} |")
        print(rows[-1], flush=True)
    head = HEAD.format(
        date=datetime.date.today(),
        extras=", ".join(extras),
        requires=project["requires-python"],
        pythons=" | ".join(PYTHONS),
        rule="---|" * len(PYTHONS),
    )
    (COURSE / "benchmarks" / "platforms.md").write_text(head + "\n".join(rows) + "\n", encoding="utf-8")
    return 0


def _resolve(pins: list[str], platform: str, python: str) -> str:
    command = [sys.executable, "-m", "uv", "pip", "compile", "-", "--only-binary", ":all:", "--quiet"]
    command += ["--python-platform", platform, "--python-version", python, "--no-header", "--no-annotate"]
    environment = {**os.environ, "MACOSX_DEPLOYMENT_TARGET": "14.0"}  # the oldest macOS that torch has wheels for
    done = subprocess.run(command, input="\n".join(pins), env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return str(len([line for line in done.stdout.splitlines() if "==" in line]))
    said = " ".join(done.stderr.split())
    package = re.search(r"Because (?:only )?([\w-]+)[=<>]", said) or re.search(r"([\w-]+)==", said)
    return f"no: {package[1] if package else said[:60]}"


if __name__ == "__main__":
    sys.exit(main())
