"""An instructor uses formgrader: sees the class, grades a free-text answer by hand, autogrades with the button."""

import base64
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser.conftest import Shoot
from browser.lab_server import JupyterServer
from helpers import COURSE, WEEK3, run
from nbformat.v4 import new_code_cell, new_markdown_cell
from nbgrader.api import Gradebook
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, expect

from autograder.classroom import Student, make_course_root, simulate
from autograder.grading.plugins.score_log import Change, score_log
from autograder.manifest import MANIFEST

pytestmark = pytest.mark.isolation

AUTOMATIC = sum(entry.points for entry in MANIFEST[WEEK3] if entry.kind != "text")
ALL_POINTS = sum(entry.points for entry in MANIFEST[WEEK3])
GRADING_SECONDS = 1500
LATE = "noether"  # submits after everybody else was graded
HOSTILE = "fermat"
PASTED = "emmy"  # pastes a picture into the proof
MARKUP = """My proof.
<script>window.ran = "script"</script>
<img src="x" onerror="window.ran = 'image'">
<svg onload="window.ran = 'svg'"></svg>
<details open ontoggle="window.ran = 'details'"><summary>Summary</summary></details>
<iframe srcdoc="<script>parent.ran = 'frame'</script>"></iframe>
<form action="/"><input class="score" id="relative_proof"></form>
<style>body {display: none}</style>
[a link](javascript:window.ran='link')
$x<script>window.ran = 'formula'</script>$
"""
PRINTS_MARKUP = """from IPython.display import HTML, display
print("<script>window.ran = 'print'</script>")
display(HTML("<script>window.ran = 'display'</script>"))
"""


class FormgraderServer(JupyterServer):
    """`make formgrader` on the course root of a simulated class."""

    def __init__(self, root: Path, home: Path, students: list[Student]) -> None:
        super().__init__(root, home, PYTHONPATH=str(COURSE))
        self.students = {student.name: student for student in students}

    def grades(self, student: str) -> tuple[float, dict[str, float | None]]:
        """Return the score in the gradebook and the manual score of each cell."""
        with Gradebook(f"sqlite:///{self.root}/gradebook.db", "positional_encodings") as gradebook:
            submission = gradebook.find_submission(WEEK3, student)
            return submission.score, {
                grade.name: grade.manual_score for notebook in submission.notebooks for grade in notebook.grades
            }

    def logged(self, student: str) -> list[Change]:
        """Return the gradebook's log of a student's scores."""
        with Gradebook(f"sqlite:///{self.root}/gradebook.db", "positional_encodings") as gradebook:
            return [change for change in score_log(gradebook, WEEK3) if change.student == student]


@pytest.fixture(scope="module")
def formgrader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FormgraderServer]:
    """Six students graded by plain `nbgrader autograde`, one of them hostile, and a seventh who is not graded yet."""
    folder = tmp_path_factory.mktemp("instructor")
    root = folder / "course"
    make_course_root(COURSE, root, [WEEK3])
    students = simulate(COURSE, root, WEEK3, count=6, seed=3)
    submitted = root / "submitted"
    _make_hostile(submitted / HOSTILE / WEEK3 / f"{WEEK3}.ipynb")
    _paste_a_picture(submitted / PASTED / WEEK3 / f"{WEEK3}.ipynb")
    run("nbgrader", "autograde", WEEK3, cwd=root)
    shutil.copytree(submitted / "ada", submitted / LATE)
    (submitted / LATE / WEEK3 / "timestamp.txt").touch()
    with FormgraderServer(root, folder / "home", students) as server:
        yield server


@pytest.fixture
def problems(page: Page) -> list[str]:
    """The page's errors and dialogs, and its failed requests."""
    seen: list[str] = []
    page.on("pageerror", lambda error: seen.append(error.message))
    page.on("requestfailed", lambda request: seen.append(f"not found: {request.url}"))
    page.on("dialog", lambda dialog: (seen.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    return seen


def test_an_instructor_grades_a_free_text_answer(formgrader: FormgraderServer, page: Page, shoot: Shoot) -> None:
    before, by_hand = formgrader.grades("ada")
    assert before == AUTOMATIC
    assert by_hand["relative_proof"] is None

    page.goto(f"{formgrader.url}/formgrader")
    expect(page.locator("h1", has_text="Manage Assignments")).to_be_visible()
    row = page.locator("#main-table tr", has_text=WEEK3)
    expect(row.locator(".num-submissions")).to_have_text(str(len(formgrader.students) + 1))
    shoot(page, "instructor-1-assignments")

    page.get_by_role("link", name="Manual Grading").click()
    page.locator("#main-table").get_by_role("link", name=WEEK3).click()
    expect(page).to_have_url(re.compile(f"/formgrader/gradebook/{WEEK3}$"))
    page.locator("#main-table").get_by_role("link", name=WEEK3).click()
    _show_names(page)
    for name in formgrader.students:
        expect(_row(page, name)).to_be_visible()
    ada = _row(page, "ada")
    expect(ada.locator(".score").first).to_have_text(f"{before:g} / {ALL_POINTS}")
    expect(ada.locator(".needs-manual-grade .glyphicon-ok")).to_be_visible()
    shoot(page, "instructor-2-class")

    ada.get_by_role("link", name="Example, Ada").click()
    score = page.locator("input#relative_proof")
    expect(score).to_have_class(re.compile("needs_manual_grade"))
    rubric = page.locator(".text_cell", has_text="BEGIN MARK SCHEME").filter(has_text="1 point per part")
    answer = page.locator(".nbgrader_cell", has=score)
    expect(answer).to_contain_text("My answer to relative_proof")
    _look_at(page, answer)
    expect(rubric.locator("li").last).to_be_in_viewport(ratio=1)
    assert 0 <= _pixels_between(rubric.locator("li").last, answer) < 150
    with page.expect_response(re.compile("/formgrader/api/grade/")) as saved:
        score.fill("2.5")
        score.press("Tab")
    assert saved.value.ok
    expect(score).not_to_have_class(re.compile("needs_manual_grade"))
    assert [(one.cell, one.kind, one.before, one.after) for one in formgrader.logged("ada")] == [
        ("relative_proof", "by hand", None, 2.5)
    ]
    shoot(page, "instructor-3-graded")

    page.locator(".breadcrumb").get_by_role("link", name=WEEK3).last.click()
    _show_names(page)
    expect(_row(page, "ada").locator(".score").first).to_have_text(f"{before + 2.5:g} / {ALL_POINTS}")
    expect(_row(page, "ada").locator(".written-score")).to_have_text("2.5 / 4")
    shoot(page, "instructor-4-total")
    after, by_hand = formgrader.grades("ada")
    assert after == before + 2.5
    assert by_hand["relative_proof"] == 2.5


def test_no_markup_of_a_student_runs(
    formgrader: FormgraderServer, page: Page, shoot: Shoot, problems: list[str]
) -> None:
    _open(page, formgrader, HOSTILE)
    proof = page.locator(".nbgrader_cell", has=page.locator("input#relative_proof"))
    expect(proof).to_have_count(1)  # the student's own input field does not count
    expect(proof).to_contain_text("window.ran")  # shown as text
    _look_at(page, proof)
    shoot(page, "instructor-5-hostile")
    assert _markup_in(page) == []
    expect(page.locator(".output_area", has_text="window.ran = 'print'").first).to_be_attached()
    page.wait_for_load_state("networkidle")
    assert page.evaluate("window.ran") is None
    assert problems == []


@pytest.mark.nightly
def test_formulas_hints_and_shortcuts_need_no_network(
    formgrader: FormgraderServer, page: Page, shoot: Shoot, problems: list[str]
) -> None:
    _open(page, formgrader, "ada")
    page.wait_for_load_state("load")
    assert "$" not in page.locator(".text_cell_render").first.inner_text()
    formula = page.locator("#notebook math").first
    expect(formula).to_be_visible()
    formula.scroll_into_view_if_needed()
    shoot(page, "instructor-10-formulas")
    assert page.locator("summary").first.evaluate("element => getComputedStyle(element).display") == "list-item"
    assert problems == []
    before = page.url
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Period")
    expect(page).not_to_have_url(before)


@pytest.mark.nightly
def test_a_pasted_picture_is_shown(formgrader: FormgraderServer, page: Page, shoot: Shoot) -> None:
    _open(page, formgrader, PASTED)
    proof = page.locator(".nbgrader_cell", has=page.locator("input#relative_proof"))
    expect(proof).to_contain_text("On paper")
    photo = proof.locator("img")
    expect(photo).to_have_js_property("naturalWidth", 1600)
    assert photo.evaluate("photo => photo.getBoundingClientRect().right") <= proof.evaluate(
        "cell => cell.getBoundingClientRect().right"
    )
    _look_at(page, proof)
    shoot(page, "instructor-6-pasted")


def test_an_ungradable_submission_says_why(formgrader: FormgraderServer, page: Page, shoot: Shoot) -> None:
    name = next(name for name, student in formgrader.students.items() if student.ungradable)
    _open(page, formgrader, name)
    expect(page.locator("#notebook").first).to_contain_text("This submission could not be graded.")
    expect(page.locator("input#relative_proof")).to_have_class(re.compile("needs_manual_grade"))
    shoot(page, "instructor-7-ungradable")


def test_the_autograde_button_goes_through_our_grader(formgrader: FormgraderServer, page: Page, shoot: Shoot) -> None:
    page.goto(f"{formgrader.url}/formgrader/manage_submissions/{WEEK3}")
    row = page.locator("#main-table tr").filter(has=page.locator(".student-id", has_text=LATE))
    expect(row.locator(".status")).to_have_text("needs autograding")
    row.locator(".autograde a").click()
    modal = page.locator(".modal-dialog")
    done = f"Successfully autograded '{WEEK3}' for student '{LATE}'"
    expect(modal).to_contain_text(done, timeout=GRADING_SECONDS * 1000)
    shoot(page, "instructor-8-autograded")
    modal.get_by_role("button", name="OK").click()
    expect(row.locator(".status")).to_have_text("needs manual grading")
    expect(row.locator(".score")).to_have_text(f"{AUTOMATIC} / {ALL_POINTS}")
    shoot(page, "instructor-9-submissions")
    assert formgrader.grades(LATE)[0] == AUTOMATIC
    graded = json.loads((formgrader.root / "autograded" / LATE / WEEK3 / f"{WEEK3}.ipynb").read_text(encoding="utf-8"))
    verdicts = [cell["metadata"]["verdict"] for cell in graded["cells"] if "verdict" in cell["metadata"]]
    assert len(verdicts) == sum(entry.kind != "text" for entry in MANIFEST[WEEK3])


def _make_hostile(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    _proof(notebook)["source"] = MARKUP
    notebook["cells"] += [
        new_markdown_cell(MARKUP.replace("relative_proof", "other"), id="extra-1"),
        new_code_cell(PRINTS_MARKUP, id="extra-2"),
    ]
    path.write_text(json.dumps(notebook), encoding="utf-8")


def _paste_a_picture(path: Path) -> None:
    """Save the notebook as JupyterLab does when a picture is pasted into a text cell."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    proof = _proof(notebook)
    photo = io.BytesIO()
    Image.new("RGB", (4032, 3024), "white").save(photo, "JPEG")
    proof["source"] = "On paper:\n\n![proof.jpg](attachment:proof.jpg)"
    proof["attachments"] = {"proof.jpg": {"image/jpeg": base64.b64encode(photo.getvalue()).decode()}}
    path.write_text(json.dumps(notebook), encoding="utf-8")


def _proof(notebook: dict) -> dict:
    cells = {
        cell["metadata"]["nbgrader"]["grade_id"]: cell for cell in notebook["cells"] if "nbgrader" in cell["metadata"]
    }
    return cells["relative_proof"]


def _markup_in(page: Page) -> list[str]:
    """Return elements in the notebook that can run a script or change the page and that the course never writes."""
    return page.locator("#notebook").first.evaluate("""notebook => {
        const runs = (address) => !["http:", "https:"].includes(new URL(address, document.baseURI).protocol);
        return [...notebook.querySelectorAll("*")].filter(element =>
            ["IFRAME", "FORM", "OBJECT", "EMBED", "BASE", "META"].includes(element.tagName)
            || ["SCRIPT", "STYLE"].includes(element.tagName) && /window.ran|display: none/.test(element.textContent)
            || [...element.attributes].some(({name, value}) => name.startsWith("on") && /ran/.test(value)
                || ["href", "xlink:href", "action"].includes(name) && runs(value))
        ).map(element => element.outerHTML.slice(0, 200));
    }""")


def _open(page: Page, formgrader: FormgraderServer, student: str) -> None:
    page.goto(f"{formgrader.url}/formgrader/gradebook/{WEEK3}/{WEEK3}")
    _show_names(page)
    _row(page, student).get_by_role("link", name=_shown(student)).click()
    expect(page.locator("#notebook").first).to_be_visible()


def _look_at(page: Page, answer: Locator) -> None:
    """Click into the answer's score box, as a grader does: nbgrader's page then scrolls to it."""
    page.wait_for_load_state("load")
    _wait_until_still(page)
    answer.locator("input.score").click()
    _wait_until_still(page)
    expect(answer).to_be_in_viewport()


def _wait_until_still(page: Page) -> None:
    page.wait_for_function("jQuery(':animated').length === 0")


def _show_names(page: Page) -> None:
    expect(page.locator(".dataTables_wrapper")).to_be_visible()  # the rows are there
    page.get_by_role("button", name="Show All Names").click()


def _row(page: Page, student: str) -> Locator:
    return page.locator("#main-table tr").filter(has=page.get_by_role("link", name=_shown(student), exact=True))


def _shown(student: str) -> str:
    """Return a simulated student's name as the gradebook shows it."""
    return f"Example, {student.capitalize()}"


def _pixels_between(upper: Locator, lower: Locator) -> float:
    return upper.evaluate(
        "(upper, lower) => lower.getBoundingClientRect().top - upper.getBoundingClientRect().bottom",
        lower.element_handle(),
    )


@pytest.mark.nightly
def test_feedback_fits_a_phone(formgrader: FormgraderServer, chromium: Browser, shoot: Shoot) -> None:
    """Nothing is cut off, and nothing overlaps."""
    run("nbgrader", "generate_feedback", WEEK3, cwd=formgrader.root)
    worst = min(formgrader.students, key=lambda student: formgrader.grades(student)[0])
    context = chromium.new_context(viewport={"width": 390, "height": 800}, is_mobile=True)
    page = context.new_page()
    page.goto((formgrader.root / "feedback" / worst / WEEK3 / f"{WEEK3}.html").as_uri())
    shoot(page, "instructor-feedback-phone")
    assert page.evaluate("innerWidth") == 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for heading in page.locator(".nbgrader_cell > .panel-heading").all():
        assert heading.evaluate("it => it.scrollHeight <= it.clientHeight")
    assert page.locator("table.summary tr:visible").count() == len(MANIFEST[WEEK3])
    context.close()
