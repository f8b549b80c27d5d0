"""Both ends of nbgrader's exchange: release, fetch, submit, collect, grade, and fetch the feedback."""

import json
import shutil
from pathlib import Path

import pytest
from helpers import COURSE, WEEK3, run

from autograder.classroom import make_course_root

pytestmark = [pytest.mark.isolation, pytest.mark.nightly]


def test_a_week_goes_out_and_its_feedback_comes_back(tmp_path: Path) -> None:
    root, home, exchange = tmp_path / "course", tmp_path / "home", tmp_path / "exchange"
    make_course_root(COURSE, root, [WEEK3])
    shutil.copytree(COURSE / "notebooks" / WEEK3, root / "notebooks" / WEEK3)
    exchange.mkdir()
    exchange.chmod(0o777)
    setting = f'\nc.Exchange.root = "{exchange}"\n'
    with (root / "nbgrader_config.py").open("a", encoding="utf-8") as config:
        config.write(setting)
    home.mkdir()
    (home / "nbgrader_config.py").write_text(
        f'c = get_config()\nc.CourseDirectory.course_id = "positional_encodings"{setting}', encoding="utf-8"
    )

    def instructor(*command: str, code: int = 0) -> str:
        return run("nbgrader", *command, cwd=root, code=code, HOME=str(home)).stderr

    def student(*command: str) -> str:
        return run("nbgrader", *command, cwd=home, HOME=str(home)).stderr

    instructor("release_assignment", WEEK3)
    student("fetch_assignment", WEEK3)
    _answer_with_a_formula(home / WEEK3 / f"{WEEK3}.ipynb")
    student("submit", WEEK3)
    instructor("collect", WEEK3)
    instructor("autograde", WEEK3)
    instructor("generate_feedback", WEEK3)
    for stamp in root.glob(f"feedback/*/{WEEK3}/timestamp.txt"):
        stamp.unlink()
    instructor("generate_feedback", WEEK3)  # puts it back; without it nothing can be released
    instructor("release_feedback", WEEK3)
    student("fetch_feedback", WEEK3)
    (page,) = home.glob(f"{WEEK3}/feedback/*/{WEEK3}.html")
    text = page.read_text(encoding="utf-8")
    assert "0.0 of 33.0 points" in text
    assert "submission_secret" not in text and "other files were submitted" not in text  # the exchange's own file
    assert "<math" in text and "<script" not in text  # formulas need no network, and no MathJax

    # Again, with a file name of the student's own; another student's work has come by mail.
    (home / WEEK3 / f"{WEEK3}.ipynb").rename(home / WEEK3 / "my answers.ipynb")
    student("submit", WEEK3)
    instructor("collect", WEEK3, "--update")
    by_mail = root / "submitted" / "hopper" / WEEK3
    by_mail.mkdir(parents=True)
    shutil.copy(COURSE / "notebooks" / WEEK3 / f"{WEEK3}.ipynb", by_mail)
    (by_mail / "timestamp.txt").write_text("yesterday, I think")
    assert "hopper: timestamp.txt holds no time that can be read" in instructor("autograde", WEEK3)
    instructor("generate_feedback", WEEK3)
    page = (root / "feedback" / "hopper" / WEEK3 / f"{WEEK3}.html").read_text(encoding="utf-8")
    assert "timestamp.txt holds no time that can be read" in page
    assert "Not released: the feedback of hopper. " in instructor("release_feedback", WEEK3, code=1)
    listed = student("list", "--inbound", WEEK3).splitlines()
    assert [line.partition(" (")[2] for line in listed if WEEK3 in line] == [
        "feedback already fetched)",
        "feedback ready to be fetched)",
    ]
    student("fetch_feedback", WEEK3)
    (renamed,) = home.glob(f"{WEEK3}/feedback/*/my answers.html")
    assert "the notebook was called my answers.ipynb" in renamed.read_text(encoding="utf-8")


def _answer_with_a_formula(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    (proof,) = [
        cell for cell in notebook["cells"] if cell["metadata"].get("nbgrader", {}).get("grade_id") == "relative_proof"
    ]
    proof["source"] = r"Since $R_m^\top R_n = R_{n-m}$."
    path.write_text(json.dumps(notebook), encoding="utf-8")
