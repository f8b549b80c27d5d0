"""`make quiz`: the questions at the end of a week, as a learning management system imports them.

Their only source is the text of the week: ``<details><summary>1. A question?</summary>``, its answer, ``</details>``.
They are open questions: a student writes an answer, and the system then shows the answer of the text as feedback.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from urllib.parse import quote

from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from autograder.build.pipeline import texts
from autograder.build.release import write_zip
from autograder.build.text import to_notebook
from autograder.errors import CourseError, TextError
from autograder.pages import filled

QUESTION = re.compile(r"<details><summary>(\d+)\. (.+?)</summary>\s*(.+?)\s*</details>", re.DOTALL)


@dataclass(frozen=True)
class Question:
    """A question in plain text, and its answer in the Markdown of the text."""

    number: int
    question: str
    answer: str


@dataclass(frozen=True)
class Quiz:
    """The questions of one week."""

    assignment: str
    title: str
    questions: tuple[Question, ...]


def read_quiz(text: Path) -> Quiz:
    """The questions of a text notebook. Raises ``TextError`` if it has none, or if they do not count from 1."""
    cells = [
        cell.source for cell in to_notebook(text.read_text(encoding="utf-8")).cells if cell.cell_type == "markdown"
    ]
    found = tuple(
        Question(int(number), unescape(question), answer)
        for source in cells
        for number, question, answer in QUESTION.findall(source)
    )
    numbers = [question.number for question in found]
    if not found or numbers != list(range(1, len(found) + 1)):
        raise TextError(
            f"source/{text.name}: questions must be numbered 1, 2, 3, …, each as "
            f"<details><summary>1. The question?</summary>, the answer, </details>; found: {numbers}"
        )
    if marked := [question.number for question in found if set(question.question) & set("$`")]:
        raise TextError(f"source/{text.name}: a question's own line is plain text, without $ and `; look at {marked}")
    heading = re.search(r"^# (.+)$", cells[0], flags=re.MULTILINE)
    return Quiz(text.stem, heading.group(1) if heading else text.stem, found)


def write_quiz(root: Path, week: str | None, system: str) -> tuple[Path, int]:
    """Write a week's questions under release/; returns the file and how many there are."""
    if not week:
        raise CourseError("say which week, for example WEEK=3")
    if system not in FORMATS:
        raise CourseError(f"there is no format {system!r}; there is: {', '.join(FORMATS)}")
    quiz = read_quiz(texts(root, week)[0])
    suffix, files = FORMATS[system](quiz)
    path = root / "release" / f"quiz-{quiz.assignment}-{system}{suffix}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".zip":
        write_zip(path, "", files)
    else:
        (content,) = files.values()
        path.write_bytes(content)
    return path, len(quiz.questions)


def moodle(quiz: Quiz) -> tuple[str, dict[str, bytes]]:
    """Moodle XML: essays in a category of their own, the answer as general feedback. Formulas are for MathJax.

    https://docs.moodle.org/en/Moodle_XML_format"""
    return ".xml", {"quiz.xml": _filled("quiz_moodle.xml.j2", quiz, between_brackets)}


def blackboard(quiz: Quiz) -> tuple[str, dict[str, bytes]]:
    """Blackboard's own table with tabs between the fields: ESS, the question, a sample answer. Its Ultra courses take this
    table too, but no QTI packages.
    https://library.blackboard.com/docs/r7/71/en_US/instructor/bbas_r7_1_instructor/upload_questions.htm
    """
    rows = [
        ["ESS", _html_of_question(one), " ".join(as_html(one.answer, between_brackets).split())]
        for one in quiz.questions
    ]
    return ".txt", {"quiz.txt": "".join("\t".join(row) + "\n" for row in rows).encode()}


FORMATS: dict[str, Callable[[Quiz], tuple[str, dict[str, bytes]]]] = {
    "canvas": lambda quiz: _qti_package(quiz, equation_image),
    "moodle": moodle,
    "brightspace": lambda quiz: _qti_package(quiz, between_brackets),
    "blackboard": blackboard,
}

Formula = Callable[[str, bool], str]  # turns LaTeX, and whether it is on its own line, into HTML


def between_brackets(latex: str, display: bool) -> str:
    """A formula in the delimiters of MathJax, which Moodle, Brightspace and Blackboard use."""
    return rf"\[{escape(latex)}\]" if display else rf"\({escape(latex)}\)"


def equation_image(latex: str, display: bool) -> str:
    """A formula as Canvas stores it: a picture that its server draws, with the LaTeX beside it."""
    shown = escape(latex)
    image = (
        f'<img class="equation_image" title="{shown}" src="/equation_images/{quote(latex, safe="")}" '
        f'alt="LaTeX: {shown}" data-equation-content="{shown}">'
    )
    return f"<p>{image}</p>" if display else image


def as_html(markdown: str, formula: Formula) -> str:
    """An answer as HTML, its formulas in the form of one system."""
    rendered: str = MarkdownWithMath(renderer=_Renderer(formula)).render(markdown)
    return rendered.strip()


class _Renderer(IPythonRenderer):
    """nbconvert's renderer, except for formulas."""

    def __init__(self, formula: Formula) -> None:
        super().__init__(escape=False)
        self._formula = formula

    def inline_math(self, body: str) -> str:
        return self._formula(body, False)

    def block_math(self, body: str) -> str:
        return self._formula(body, True)


def _qti_package(quiz: Quiz, formula: Formula) -> tuple[str, dict[str, bytes]]:
    """A package of QTI 1.2, for Canvas and Brightspace: https://www.imsglobal.org/question/"""
    return ".zip", {
        "imsmanifest.xml": _filled("quiz_manifest.xml.j2", quiz, formula),
        f"{quiz.assignment}.xml": _filled("quiz_qti.xml.j2", quiz, formula),
    }


def _filled(template: str, quiz: Quiz, formula: Formula) -> bytes:
    items = [(one.number, _html_of_question(one), as_html(one.answer, formula)) for one in quiz.questions]
    return filled(template, quiz=quiz, items=items).encode()


def _html_of_question(one: Question) -> str:
    return f"<p>{escape(one.question, quote=False)}</p>"
