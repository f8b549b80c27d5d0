"""Without a browser there is one clear error line, and no test is skipped."""

import pytest
from browser import find_browser


def test_no_browser_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(find_browser, "find_browser", lambda: None)
    monkeypatch.setattr(find_browser, "install_browser", lambda: None)
    assert find_browser.main(["--install"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "chromium" in said


def test_a_browser_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(find_browser, "find_browser", lambda: "/usr/bin/chromium")
    monkeypatch.setattr(find_browser, "install_browser", lambda: pytest.fail("installed"))
    assert find_browser.main(["--install"]) == 0
    assert capsys.readouterr().out == ""
