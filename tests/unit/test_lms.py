"""`make lms`: headers as the four systems document them, blanks for what is not graded, and no formulas."""

import csv
from pathlib import Path

import pytest

from autograder.errors import CourseError
from autograder.grading.plugins.gradebook import Score, out_of_range
from autograder.lms import FORMATS, Column, Person, columns, table
from autograder.manifest import Exercise

# Headers as in the pages that the docstrings of lms.py name, except for the titles of the assignments.
DOCUMENTED = {
    # lib/gradebook_importer.rb: GRADEBOOK_IMPORTER_RESERVED_NAMES, in the order that update_column_count reads them
    "canvas": ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "week3_rope"],
    # "the import file format is the same as the corresponding export format"; mapped by Email address or ID number
    "moodle": ["First name", "Last name", "ID number", "Email address", "week3_rope"],
    # "You must provide a Username or Org Defined ID"; "the grade item name followed by 'Points Grade'"
    "brightspace": ["Username", "week3_rope Points Grade"],
    # "the unique identifier used for each student is the student's user name"
    "blackboard": ["Last Name", "First Name", "Username", "week3_rope"],
}
ENTRIES = (Exercise("3.2", "rope_frequencies", "code", 2, 10), Exercise("3.5", "relative_proof", "text", 3, 20))
STANDING = [
    Score("ada", 4.5, 5, by_cell={"rope_frequencies_tests": 2.0, "relative_proof": 3.0}),
    Score("boole", None, 5, "no valid JSON", by_cell={"rope_frequencies_tests": None, "relative_proof": None}),
    Score("cantor", 1.0, 5, to_grade_by_hand=1, by_cell={"rope_frequencies_tests": 1.0, "relative_proof": None}),
]
PEOPLE = [
    Person("ada", "Lovelace", "Ada", "ada@example.org"),
    Person("boole", "=HYPERLINK(1)", "+George"),
    Person("cantor"),
    Person("dirac"),
]


def rows_of(system: str, per_exercise: bool = False) -> list[list[str]]:
    return table(system, PEOPLE, columns("week3_rope", ENTRIES, STANDING, per_exercise)).rows


@pytest.mark.parametrize("system", FORMATS)
def test_headers_are_the_documented_ones(system: str) -> None:
    assert rows_of(system)[0] == DOCUMENTED[system]


@pytest.mark.parametrize("system", FORMATS)
def test_only_who_is_wholly_graded_has_points(system: str) -> None:
    rows = [row for row in rows_of(system)[1:] if row[0] != "Points Possible"]
    assert [row[-1] for row in rows] == ["4.5", "", "", ""]  # boole cannot be read, cantor waits, dirac has nothing
    assert table(system, PEOPLE, columns("week3_rope", ENTRIES, STANDING)).blank == 3


@pytest.mark.parametrize("system", FORMATS)
def test_exercises_have_columns_on_request(system: str) -> None:
    rows = [row for row in rows_of(system, per_exercise=True) if row[0] != "Points Possible"]
    suffix = " Points Grade" if system == "brightspace" else ""
    assert rows[0][-2:] == [f"week3_rope 3.2 rope_frequencies{suffix}", f"week3_rope 3.5 relative_proof{suffix}"]
    assert [row[-2:] for row in rows[1:]] == [["2", "3"], ["", ""], ["1", ""], ["", ""]]


@pytest.mark.parametrize("system", FORMATS)
def test_no_cell_begins_as_a_formula_does(system: str) -> None:
    cells = [cell for row in rows_of(system, per_exercise=True) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]


@pytest.mark.parametrize("person", [Person("=cmd"), Person("x", email="@SUM(1)")])
def test_an_identifier_that_is_a_formula_is_left_out_and_named(person: Person) -> None:
    made = table("moodle", [*PEOPLE, person], [Column("week3_rope", 5, {person.id: 5.0})])
    assert made.left_out == [person.id] and len(made.rows) == 1 + len(PEOPLE)
    assert table("canvas", [person], []).left_out == [person.id] * (person.id == "=cmd")  # it shows no address


def test_points_that_no_exercise_gives_are_named() -> None:
    slips = Score("ada", 29, 5, by_cell={"rope_frequencies_tests": -1.0, "relative_proof": 30.0})
    found = out_of_range(ENTRIES, [*STANDING, slips])
    assert found == ["ada, rope_frequencies: -1 of 2 points", "ada, relative_proof: 30 of 3 points"]


def test_canvas_takes_numbers_for_its_own_and_other_ids_for_logins() -> None:
    made = table("canvas", [Person("1041", "Lovelace", "Ada"), Person("boole")], [Column("week3_rope", 5, {})])
    assert made.rows[1] == ["Points Possible", "", "", "", "", "5"]
    assert [row[:5] for row in made.rows[2:]] == [["Lovelace, Ada", "1041", "", "", ""], ["boole", "", "", "boole", ""]]


def test_moodle_needs_an_address_of_ones_own() -> None:
    people = [Person("ada", email="a@x.org"), Person("boole", email="A@x.org"), Person("dirac")]
    assert table("moodle", people, []).problems == ["no e-mail address: dirac", "the same e-mail address: ada, boole"]


def test_brightspace_takes_numbers_for_its_own_ids() -> None:
    assert table("brightspace", [Person("20067930")], []).rows == [["OrgDefinedID"], ["20067930"]]
    assert table("brightspace", [Person("20067930"), Person("ada")], []).rows[0] == ["Username"]


def test_blackboard_wants_every_field_quoted(tmp_path: Path) -> None:
    table("blackboard", PEOPLE[:1], [Column("week3_rope", 5, {"ada": 4.5})]).write(tmp_path / "made.csv")
    text = (tmp_path / "made.csv").read_text(encoding="utf-8")
    assert text.splitlines()[1] == '"Lovelace","Ada","ada","4.5"'
    assert len(list(csv.reader(text.splitlines()))) == 2


def test_another_system_is_refused() -> None:
    with pytest.raises(CourseError, match="canvas, moodle"):
        table("sakai", [], [])
