"""Importing in a thread of low priority."""

import os
import sys
from pathlib import Path

import pytest

from autograder.imports import GIVES_WAY, giving_way

LOWEST = 19


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "imported_late", raising=False)
    return tmp_path / "imported_late.py"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads have priorities on Linux only")
def test_only_the_import_gives_way(module: Path) -> None:
    module.write_text("import os, threading\nnice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())\n")
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert giving_way("imported_late").nice == min(before + GIVES_WAY, LOWEST)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


@pytest.mark.parametrize("statement", ["import nothing_of_that_name", "raise SystemExit(3)", "1 / 0"])
def test_what_goes_wrong_is_raised_where_it_was_asked_for(module: Path, statement: str) -> None:
    module.write_text(statement)
    with pytest.raises((ImportError, SystemExit, ZeroDivisionError)):
        giving_way("imported_late")
