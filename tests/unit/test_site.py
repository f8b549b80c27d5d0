"""The site's parts: references become links, kernels lose their bodies, results to be predicted are folded."""

import re
from base64 import b64encode
from pathlib import Path

import pytest
from fontTools.ttLib import TTFont
from helpers import COURSE
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from autograder.errors import CourseError
from autograder.public_address import PublicAddress
from autograder.site.check_links import check_links
from autograder.site.cross_references import CrossReferences, with_targets
from autograder.site.formulas import draw, write_font
from autograder.site.guides import guide_page, guides, slug
from autograder.site.kernels import Kernel, read_kernels
from autograder.site.launch import binder, start_box
from autograder.site.methods import METHODS, Method, method_page
from autograder.site.pictures import Pictures
from autograder.site.week import Week, read_week
from autograder.site.week_page import week_page

RESULT = (new_output("stream", text="the result\n"),)


@pytest.fixture(scope="module")
def weeks() -> dict[str, Week]:
    found = [read_week(COURSE, path.name) for path in sorted((COURSE / "notebooks").glob("week*"))]
    return {week.number: week for week in found}


def small_week(*cells: object) -> Week:
    opening = new_markdown_cell("# Week 3 · Small\n\nA question?\n\n## What you will be able to do\n\n- little")
    all_cells = (opening, *cells)
    return Week("week3_small", all_cells, {cell.id: RESULT for cell in all_cells if cell.cell_type == "code"})


def page_of(week: Week, folder: Path) -> str:
    return week_page(week, CrossReferences({"3": week}), Pictures(folder, "../pictures"), "START")


def experiment(source: str = "run()") -> object:
    return new_code_cell(source, metadata={"tags": ["experiment"]})


def test_what_the_text_names_becomes_a_link(weeks: dict[str, Week]) -> None:
    references = CrossReferences(weeks)
    linked = references.linked(
        "Figures 3.9 and 3.10, section 8, week 2, equation (3), `Figure 3.1`, $week 2$", weeks["3"]
    )
    assert linked == (
        "Figures [3.9](#figure-3-9) and [3.10](#figure-3-10), section [8](#section-3-8), week [2](#week-2), "
        'equation <a href="#equation-3">(3)</a>, `Figure 3.1`, $week 2$'
    )
    elsewhere = references.linked('equation (3) <a href="#x">equation (3)</a>', weeks["3"], elsewhere=True)
    link = '<a href="../weeks/week3_rope.html#equation-3">(3)</a>'
    assert elsewhere == f'equation {link} <a href="#x">equation (3)</a>'
    for same in ("Figure 9.9", "section 3.4.2", "2018, section 3", "week 3", "equation (99)", "# Week 2 in a heading"):
        assert references.linked(same, weeks["3"]) == same


def test_figures_exercises_and_sections_are_targets(weeks: dict[str, Week]) -> None:
    text = "**Figure 3.1. A.** b\n\n### Exercise 3.2 · C\n\n## 4 · D"
    assert with_targets(text, weeks["3"]).count(")=\n") == 3


@pytest.fixture(scope="module")
def kernels() -> dict[str, Kernel]:
    return read_kernels(COURSE)


def test_kernels_are_shown_without_their_bodies(kernels: dict[str, Kernel]) -> None:
    shown = "\n".join(kernel.directive() for kernel in kernels.values())
    assert "apply_rotary_emb(x: torch.Tensor, positions: torch.Tensor, base: float=10000.0)" in shown
    assert "CrossAttention(d_model: int" in shown  # the arguments of a class that inherits its __init__
    assert "torch.stack(" not in shown and "(self" not in shown
    assert "[arXiv:2104.09864](https://arxiv.org/abs/2104.09864)" in shown
    # nothing but backticks is markup
    assert r"PE\[p, 2i\] = sin(p w\_i)" in shown and r"base\*\*(-2i/head\_dim), radians" in shown


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.slug)
def test_a_methods_page_has_no_sentence_that_breaks_off(
    method: Method, weeks: dict[str, Week], kernels: dict[str, Kernel], tmp_path: Path
) -> None:
    page = method_page(method, weeks, kernels, CrossReferences(weeks), Pictures(tmp_path, "../pictures"))
    blocks = re.sub(r"^(`{3,}).*?^\1$", "", page, flags=re.DOTALL | re.MULTILINE).split("\n\n")
    prose = [block.strip() for block in blocks if block.strip() and not block.startswith(("#", "|", "(method-", "<a "))]
    assert prose[0] == method.gist
    assert "|---|---|---|\n| " in page, "nothing goes wrong with it"
    for one, after in zip(prose, [*prose[1:], ""], strict=True):
        assert one.rstrip('"*)').endswith((".", ":", "?", "$$")) or one.startswith("- ["), one
        assert not one.endswith(":") or after.startswith("$$"), one


@pytest.mark.parametrize("guide", guides(COURSE), ids=slug)
def test_a_guide_shows_commands_as_such_and_no_marks_for_tests(guide: str, tmp_path: Path) -> None:
    page = guide_page(COURSE, guide, PublicAddress(), Pictures(tmp_path, "../pictures"))
    fences = re.findall(r"^ *```(\S*)\n(.*?)^ *```$", page, flags=re.DOTALL | re.MULTILINE)
    assert all(language for language, _ in fences)
    assert not [text for language, text in fences if "make " in text and language not in ("bash", "python")]
    assert "<!--" not in page and "# needs" not in page


def test_a_guide_leads_to_a_section_of_another(tmp_path: Path) -> None:
    page = guide_page(COURSE, "docs/instructors.md", PublicAddress(), Pictures(tmp_path, "../pictures"))
    assert "[PostgreSQL](postgresql.md#copies)" in page


def test_a_picture_of_a_guide_has_its_text(tmp_path: Path) -> None:
    page = guide_page(COURSE, "docs/architecture.md", PublicAddress(), Pictures(tmp_path, "../pictures"))
    assert '<img alt="A submission' in page


def test_the_list_of_guides_begins_with_teaching() -> None:
    slugs = [slug(guide) for guide in guides(COURSE)]
    assert slugs[0] == "instructors" and slugs[-2:] == ["contributing", "security"]
    assert {path.stem for path in (COURSE / "docs").glob("*.md")} < set(slugs)


@pytest.mark.parametrize(
    ("before", "is_folded"),
    [
        ([new_markdown_cell("**Predict.** What?", metadata={"tags": ["prediction"]})], True),
        ([new_markdown_cell("", metadata={"tags": ["prediction"]}), new_markdown_cell("A cell in between.")], True),
        ([new_markdown_cell("### Experiment: what happens?")], True),
        ([new_markdown_cell("### Live: someone else's model")], True),
        ([new_markdown_cell("### Demonstration: without the sign")], True),
        ([new_markdown_cell("### Experiment: what?"), new_markdown_cell("## 4 · Something else")], False),
        ([], False),
    ],
)
def test_results_are_folded_where_there_is_something_to_predict(
    tmp_path: Path, before: list[object], is_folded: bool
) -> None:
    page = page_of(small_week(*before, experiment(), experiment("again()")), tmp_path)
    assert page.count("the result") == 2
    assert page.count('<details class="fold result">') == (2 if is_folded else 0)


def test_hidden_tests_and_empty_answers_are_left_out(tmp_path: Path) -> None:
    graded = {"nbgrader": {"grade": True, "solution": False, "grade_id": "f_tests"}}
    check = {"nbgrader": {"grade": True, "solution": False, "grade_id": "f_check"}}
    text = {"nbgrader": {"grade": True, "solution": True, "grade_id": "why"}}
    cells = (
        new_code_cell("hidden()", metadata=graded),
        new_code_cell("visible()", metadata=check),
        new_markdown_cell("YOUR ANSWER HERE", metadata=text),
    )
    page = page_of(small_week(*cells), tmp_path)
    assert "visible()" in page and "hidden()" not in page and "YOUR ANSWER" not in page


def test_buttons_follow_the_public_address(weeks: dict[str, Week]) -> None:
    here = PublicAddress("https://github.com/owner/course", "main")
    path = "notebooks/week3_rope/week3_rope.ipynb"
    link = "https://mybinder.org/v2/gh/owner/course/main?labpath=notebooks%2Fweek3_rope%2Fweek3_rope.ipynb"
    assert binder(here, path) == link
    assert link in start_box(weeks["3"], here) and "colab.research.google.com" in start_box(weeks["3"], here)
    assert "Binder" not in start_box(weeks["3"], PublicAddress()) and "Download" in start_box(
        weeks["3"], PublicAddress()
    )
    assert "ready_encodings.py" in start_box(weeks["5"], here) and here.address in start_box(weeks["5"], here)
    assert "ask whoever gave you this page" in start_box(weeks["5"], PublicAddress())


def test_a_stored_picture_has_its_size(tmp_path: Path) -> None:
    png = bytes(16) + (40).to_bytes(4) + (30).to_bytes(4)
    shown = Pictures(tmp_path, "pictures").stored(f'<img src="data:image/png;base64,{b64encode(png).decode()}">')
    assert 'width="40" height="30"' in shown


def test_formulas_are_drawn_or_refused() -> None:
    assert draw(r"\theta_i", display=False) == "<math><msub><mi>θ</mi><mi>i</mi></msub></math>"
    with pytest.raises(CourseError, match="Unknown command"):
        draw(r"\nothing", display=True)
    with pytest.raises(CourseError, match="height"):
        draw(r"\begin{cases}a\\[2pt]b\end{cases}", display=True)


def test_a_long_formula_breaks_behind_its_relations() -> None:
    latex = r"mj-\bigl(-m(i-j)\bigr) = mj+mi-mj = mi" + r"\," * 10
    assert draw(latex, display=False).count("<math>") == 3
    assert re.findall(r"<m[ion].*?>([^<]+)", draw(latex, display=False)) == list("mj−(−m(i−j))=mj+mi−mj=mi")
    assert draw(latex, display=True).count("<math") == 1
    assert draw(r"\cos(100\cdot(0.0014-0.01)) \approx \cos 0.86", display=False).count("<math>") == 2


def test_the_font_has_what_the_formulas_show(tmp_path: Path) -> None:
    target = tmp_path / "math.woff"
    write_font(["<p>ℝ</p><math><mi>θ</mi><mo>∑</mo></math>"], target)
    font = TTFont(target)
    characters = font.getBestCmap()
    assert {ord("θ"), ord("𝜃"), ord("∑"), ord("√")} <= characters.keys() and ord("ℝ") not in characters
    assert "MATH" in font and "SIL Open Font License" in font["name"].getDebugName(13)


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a id="a" href="other.html#b">x</a><a href="#a">y</a><a href="#c">z</a><img src="gone.png">'
    )
    (tmp_path / "other.html").write_text("<p>")
    with pytest.raises(CourseError) as error:
        check_links(tmp_path)
    assert "other.html#b" in str(error.value) and "gone.png" in str(error.value)
    assert "#c" in str(error.value) and "#a\n" not in str(error.value)
