"""Points and times come from the manifest; notebooks, README and the guide say the same."""

import re
from collections import Counter

import pytest
from helpers import COURSE

from autograder.build.opening import costs, hours, points, with_tables, without_tables
from autograder.manifest import MANIFEST, OUTLINES

WEEK4 = "week4_alibi"


def test_marks_become_tables_and_tables_marks() -> None:
    text = f"# Week 4\n\n<!-- costs of {WEEK4} -->\n\n## A\n\n<!-- points of {WEEK4} -->\n\nB"
    full = with_tables(text)
    assert costs(WEEK4) in full and points(WEEK4) in full and full.endswith("\n\nB")
    assert with_tables(full) == full and without_tables(full) == text


def test_tables_have_every_exercise_once() -> None:
    for assignment, exercises in MANIFEST.items():
        found = re.findall(r"^\| (\S+) \| `(\w+)` \| (\S+) \| (\d+) \|$", points(assignment), flags=re.MULTILINE)
        assert sorted(found) == sorted((e.number, e.grade_id, f"{e.points:g}", str(e.minutes)) for e in exercises)


@pytest.mark.parametrize("assignment", MANIFEST)
def test_the_text_has_both_marks_and_no_times_of_its_own(assignment: str) -> None:
    opening = (COURSE / "source" / f"{assignment}.py").read_text(encoding="utf-8").split("# %%")[1]
    assert f"<!-- costs of {assignment} -->" in opening and f"<!-- points of {assignment} -->" in opening
    assert "minutes" not in opening and "**Time" not in opening


@pytest.mark.parametrize("assignment", MANIFEST)
def test_readme_and_guide_say_what_the_manifest_says(assignment: str) -> None:
    total = f"{sum(e.points for e in MANIFEST[assignment]):g}"
    by_hand = f"{sum(e.points for e in MANIFEST[assignment] if e.kind == 'text'):g}"
    readme = (COURSE / "README.md").read_text(encoding="utf-8")
    row = rf"\[`{assignment}`\]\(source/{assignment}.py\) \| {total} \| {hours(assignment):g} \| (.*) \|"
    found = re.search(row, readme)
    assert found and found[1] == OUTLINES[assignment].about, (
        f"README's table: {total} points, {hours(assignment):g} hours"
    )
    guide = (COURSE / "docs" / "instructors.md").read_text(encoding="utf-8")
    row = f"| `{assignment}` | {total} | {by_hand} | {hours(assignment):g} |"
    assert row in guide, f"docs/instructors.md, its table: {row}"


def test_the_guides_sum_is_that_of_the_weeks_in_it() -> None:
    guide = (COURSE / "docs" / "instructors.md").read_text(encoding="utf-8")
    counted = [assignment for assignment in MANIFEST if assignment != "week8_production"]
    total = sum(exercise.points for assignment in counted for exercise in MANIFEST[assignment])
    assert f"| | | {total:g} | 42 | {sum(map(hours, counted)):g} |" in guide
    assert f"divide by {total:g}." in guide


@pytest.mark.parametrize("assignment", MANIFEST)
def test_headings_say_the_points_and_minutes_of_the_manifest(assignment: str) -> None:
    text = (COURSE / "source" / f"{assignment}.py").read_text(encoding="utf-8")
    said, due = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for part in text.split("# ### Exercise ")[1:]:
        number = re.match(r"[\d.]+", part)[0]
        heading = r"^# \*\*([\d.+ ]+) points[^\n]*? difficulty [^\n]*?· ([\d +]+) minutes"
        for given, minutes in re.findall(heading, part, flags=re.MULTILINE):
            said[number, "points"] += sum(map(float, given.split("+")))
            said[number, "minutes"] += sum(map(int, minutes.split("+")))
    for exercise in MANIFEST[assignment]:
        due[exercise.number, "points"] += exercise.points
        due[exercise.number, "minutes"] += exercise.minutes
    assert said == due


@pytest.mark.parametrize("assignment", MANIFEST)
def test_cells_carry_the_points_of_the_manifest(assignment: str) -> None:
    text = (COURSE / "source" / f"{assignment}.py").read_text(encoding="utf-8")
    cells = re.findall(r'"grade_id": "(\w+)", "grade": true,(?: "solution": true,)? "points": ([\d.]+)\}', text)
    carried = {name: float(points) for name, points in cells if float(points)}
    assert carried == {exercise.graded_cell: exercise.points for exercise in MANIFEST[assignment]}
    said = re.findall(r'"grade_id": "(\w+_tests)"[^\n]*\n# Hidden tests \(([\d.]+) points?\)', text)
    assert {name: float(points) for name, points in said} == {
        name: points for name, points in carried.items() if name.endswith("_tests")
    }
