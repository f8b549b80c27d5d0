"""`nbgrader zip_collect` as in docs/instructors.md, on a class's uploads with the oddities that students produce."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from documents import fences
from helpers import COURSE, run

from autograder.classroom import make_course_root

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

WEEK = "week1_permutation_equivariance"
FILE = f"{WEEK}.ipynb"
NAMES = {
    "ada": "Ada Lovelace",
    "boole": "George Boole",
    "cantor": "Georg Cantor",
    "dirac": "Paul Dirac",
    "emmy": "Emmy Noether",
    "fermat": "Zoë O'Fermat",
    "gauss": "Carl Gauss",
    "hopper": "Grace Hopper",
    "jones": "Sam Jones",
    "jones2": "Sam Jones",
}


def text(note: str) -> bytes:
    """Return a notebook that its note tells from others."""
    return json.dumps({"cells": [], "metadata": {"note": note}, "nbformat": 4, "nbformat_minor": 5}).encode()


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A course root with the document's plug-in, its roster saved by Excel, and a folder for the download."""
    root = tmp_path / "course"
    make_course_root(COURSE, root, [WEEK])
    (root / "notebooks" / WEEK).mkdir(parents=True)
    (root / "notebooks" / WEEK / FILE).write_bytes(text("as released"))
    (root / "downloaded" / WEEK / "archive").mkdir(parents=True)
    found = fences(COURSE / "docs" / "instructors.md")
    (plug_in,) = (fence.text for fence in found if fence.marks.get("file") == "lms.py")
    (setting,) = (fence.text for fence in found if "lms.MoodleUploads" in fence.text)
    (root / "lms.py").write_text(plug_in, encoding="utf-8")
    with (root / "nbgrader_config.py").open("a", encoding="utf-8") as config:
        config.write(setting)
    rows = [",".join([name, *full.split(" "), f"{name}@x"]) for name, full in NAMES.items()]
    (root / "roster.csv").write_text("id,first_name,last_name,email\n" + "\n".join(rows), encoding="utf-8-sig")
    return root


def collect(root: Path, files: dict[str, bytes], *options: str) -> str:
    """Collect one zip of an LMS and return the warnings."""
    (root / "downloaded" / WEEK / "archive" / "submissions.zip").write_bytes(zipped(files))
    said = run("nbgrader", "zip_collect", WEEK, *options, cwd=root).stderr
    assert "Traceback" not in said
    return "\n".join(line for line in said.splitlines() if " | WARNING] " in line)


def collected(root: Path) -> dict[str, dict[str, str]]:
    """Return the name and the note of every notebook, by student."""
    return {
        folder.parent.name: {
            path.name: json.loads(path.read_text(encoding="utf-8"))["metadata"]["note"] for path in folder.iterdir()
        }
        for folder in root.glob(f"submitted/*/{WEEK}")
    }


def upload(student: str, name: str = FILE) -> str:
    return f"{NAMES[student]}_101_assignsubmission_file_/{name}"


def test_what_is_odd_about_one_upload_stops_no_other_and_is_named(course: Path) -> None:
    """Uses the document's plug-in for Moodle."""
    mac = {FILE: text("in a zip"), f"__MACOSX/._{FILE}": b"\0\5\x16\7", ".DS_Store": b"", "__MACOSX/._hw.zip": b"\0"}
    said = collect(
        course,
        {
            upload("ada", "Week 1 (1).ipynb"): text("alone"),
            upload("boole"): text("named"),
            upload("boole", "old.ipynb"): text("old"),
            upload("cantor", "my work.zip"): zipped(mac),
            f"__MACOSX/{upload('cantor', '._my work.zip')}": b"\0\5\x16\7",
            upload("dirac", "first.ipynb"): text("first"),
            upload("dirac", "a/second.ipynb"): text("second"),
            upload("emmy", "work.zip"): zipped({FILE: text("lost")})[:60],
            upload("fermat"): text("twice the same"),
            upload("fermat", "a copy/answers.ipynb"): text("twice the same"),
            f"__MACOSX/{upload('fermat', f'._{FILE}')}": b"\0\5\x16\7",
            upload("gauss", f"one/{FILE}"): text("one"),
            upload("gauss", f"two/{FILE}"): text("two"),
            upload("hopper", "answers.docx"): b"PK",
            upload("jones"): text("whose?"),
            "Grace Murray_7_assignsubmission_file_/x.ipynb": text("not in the roster"),
        },
    )
    assert collected(course) == {
        "ada": {FILE: "alone"},
        "boole": {FILE: "named", "old.ipynb": "old"},
        "cantor": {FILE: "in a zip"},
        "dirac": {"first.ipynb": "first", "second.ipynb": "second"},
        "fermat": {FILE: "twice the same"},
        "gauss": {f"{WEEK}-2.ipynb": "one", f"{WEEK}-3.ipynb": "two"},
    }
    lines = said.splitlines()
    for words in (
        ["boole has handed in 2 notebooks", "old.ipynb", f"{FILE} counts"],
        ["dirac has handed in 2 notebooks", "first.ipynb", "or none if several do"],
        ["gauss has handed in 2 notebooks", "or none if several do"],
        ["fermat has handed in 2 notebooks", f"{FILE} counts"],
        ["Emmy Noether", "work.zip cannot be unpacked"],
        ["not collected", "Grace Hopper", "answers.docx"],
        ["not collected", "Sam Jones"],
        ["not collected", "Grace Murray"],
    ):
        assert any(all(word in line for word in words) for line in lines), (words, said)
    for unconcerned in ("Ada Lovelace", "Georg Cantor", "__MACOSX"):
        assert unconcerned not in said

    # A student already has a submission: it stays, and the others are collected.
    (course / "submitted" / "ada" / WEEK / FILE).write_bytes(text("by hand"))
    for folder in (course / "submitted").iterdir():
        if folder.name != "ada":
            for path in folder.glob("*/*"):
                path.unlink()
    said = collect(course, {upload("ada"): text("new"), upload("boole"): text("new")})
    assert collected(course)["ada"] == {FILE: "by hand"} and collected(course)["boole"] == {FILE: "new"}
    assert "ada has a submission already" in said and "boole" not in said

    # A second download with --force: new files replace old ones and drop their times; unchanged files keep theirs.
    for student in ("ada", "boole"):
        (course / "submitted" / student / WEEK / "timestamp.txt").write_text("2026-11-17 18:00:00 UTC")
    said = collect(course, {upload("ada"): text("new"), upload("boole"): text("new")}, "--force")
    times = {path.parents[1].name for path in course.glob(f"submitted/*/{WEEK}/timestamp.txt")}
    assert json.loads((course / "submitted/ada" / WEEK / FILE).read_text())["metadata"]["note"] == "new"
    assert times == {"boole"} and "ada has a new submission without a time" in said and "boole" not in said


def test_the_newest_counts_where_the_names_of_files_say_when(course: Path) -> None:
    """Uses nbgrader's own plug-in with a pattern."""
    with (course / "nbgrader_config.py").open("a", encoding="utf-8") as config:
        config.write(
            "from nbgrader.plugins import FileNameCollectorPlugin as stock\nc.ZipCollectApp.collector_plugin = stock\n"
            r'c.FileNameCollectorPlugin.named_regexp = r".*/(?P<student_id>\w+)_(?P<timestamp>[\d-]+)_(?P<file_id>week\d_[a-z_]+)"'
        )
    said = collect(
        course,
        {
            f"ada_2026-11-02_{FILE}": text("newest"),
            f"ada_2026-11-01_{FILE}": text("older"),
            f"boole_2026-99-99_{FILE}": text("alone"),
            f"._boole_2026-99-99_{FILE}": b"\0\5",
        },
    )
    assert json.loads((course / "submitted" / "ada" / WEEK / FILE).read_text())["metadata"]["note"] == "newest"
    assert (course / "submitted" / "ada" / WEEK / "timestamp.txt").read_text().startswith("2026-11-02")
    assert (course / "submitted" / "boole" / WEEK / FILE).is_file()
    assert "ada has handed in 2 notebooks: the newest counts" in said
    assert f"boole_2026-99-99_{FILE}: '2026-99-99' is no time that can be read" in said
