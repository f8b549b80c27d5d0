"""All tracked files are the course's own: code and fonts of other projects come as packages."""

import re
import subprocess
from pathlib import Path

import pytest
from helpers import COURSE

FOREIGN_KIND = re.compile(
    r"\.min\.(js|css)$|\.(woff2?|ttf|otf|whl|jar|wasm)$|^(licen[cs]e|copying|notice|vendor)", re.I
)
NOTICE = re.compile(rb"copyright (\(c\)|\xc2\xa9|\d{4})|SPDX-Licen[cs]e|@licen[cs]e|permission is hereby granted", re.I)


def foreign(root: Path, names: list[str]) -> list[str]:
    """Return the files that look like another project's, by their name or by a copyright notice in them."""
    return [
        name
        for name in names
        if FOREIGN_KIND.search(Path(name).name)
        or ((root / name).is_file() and NOTICE.search((root / name).read_bytes()))
    ]


def test_only_our_own_licence_is_tracked() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=COURSE, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git repository")
    names = [name for name in listed.stdout.split("\0") if name]
    assert set(foreign(COURSE, names)) - {"tests/unit/test_licence.py"} == {"LICENSE"}  # this file contains the words
