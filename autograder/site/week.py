"""A week as the site sees it: the students' notebook, with the experiments' results taken from the solution."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import nbformat
from nbformat.notebooknode import NotebookNode

from autograder.course import Role, role_of, week_number
from autograder.errors import CourseError

EQUATION = re.compile(r"\$\$(?P<latex>(?:(?!\$\$).)*?)\\tag\{(?P<tag>\d+)\}\s*\$\$", re.DOTALL)
FIGURE = re.compile(r"^\*\*Figure (?P<number>\d+\.\d+)\.", re.MULTILINE)
EXERCISE = re.compile(r"^### Exercise (?P<number>\d+\.\d+) · (?P<title>.+)$", re.MULTILINE)
SECTION = re.compile(r"^## (?P<number>\d+) · (?P<title>.+)$", re.MULTILINE)
BADGE = re.compile(r"^\[!\[.*\]\(.*\)\]\(.*\)\n+", re.MULTILINE)
HEADING = re.compile(r"^#{2,3} (?P<title>.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Week:
    """One week's notebook and, by cell id, what its experiments show."""

    assignment: str
    cells: tuple[NotebookNode, ...]
    results: dict[str, tuple[NotebookNode, ...]]

    @property
    def number(self) -> str:
        return week_number(self.assignment)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The teaching text, cell by cell."""
        return tuple(cell.source for cell in self.cells if cell.cell_type == "markdown")

    @cached_property
    def title(self) -> str:
        """``Rotary position embeddings (RoPE)`` for ``# Week 3 · Rotary position embeddings (RoPE)``."""
        return self._match(r"\A# Week \d+ · (.+)$")

    @cached_property
    def question(self) -> str:
        """The paragraph that a week opens with."""
        return self._match(r"\A# .+\n\n(.+)$")

    @cached_property
    def equations(self) -> dict[str, str]:
        """LaTeX by the number in ``\\tag``."""
        return {found["tag"]: found["latex"].strip() for text in self.texts for found in EQUATION.finditer(text)}

    @cached_property
    def figures(self) -> frozenset[str]:
        return frozenset(found["number"] for text in self.texts for found in FIGURE.finditer(text))

    @cached_property
    def exercises(self) -> dict[str, str]:
        """Titles by number."""
        return {found["number"]: found["title"] for text in self.texts for found in EXERCISE.finditer(text)}

    @cached_property
    def sections(self) -> dict[str, str]:
        """Titles by number."""
        return {found["number"]: found["title"] for text in self.texts for found in SECTION.finditer(text)}

    @cached_property
    def misreadings(self) -> tuple[tuple[str, ...], ...]:
        """The rows of the table "What people get wrong"."""
        text = next(text for text in self.texts if text.startswith("## What people get wrong"))
        rows = [line.strip("| ") for line in text.splitlines() if line.startswith("|")]
        return tuple(tuple(re.split(r" (?<!\\)\| ", row)) for row in rows[2:])

    @cached_property
    def symbols(self) -> str:
        """The lines of the week's conventions that explain a symbol."""
        text = next(text for text in self.texts if text.startswith("### Conventions"))
        return "\n".join(line for line in text.splitlines() if line.startswith("- ") and "$" in line)

    def before_equation(self, tag: str) -> str:
        """The paragraph that leads to an equation."""
        for text in self.texts:
            if found := next((found for found in EQUATION.finditer(text) if found["tag"] == tag), None):
                paragraph = text[: found.start()].strip().split("\n\n")[-1]
                return "" if paragraph.startswith(("$$", "#", "|")) else paragraph
        raise CourseError(f"week {self.number} has no equation ({tag})")

    def picture(self, name: str) -> tuple[str, str]:
        """The HTML of a picture, and the caption below it: that of "Figure NAME", or what ``lab.moving_NAME`` made."""
        for cell, below in zip(self.cells, self.cells[1:], strict=False):
            for result in self.results.get(cell.id, ()):
                html: str = result.get("data", {}).get("text/html", "")
                named = below.source.startswith(f"**Figure {name}.") or html.startswith(f'<div data-lab="{name}-')
                if html and named:
                    return html, below.source.split("\n\n")[0]
        raise CourseError(f"week {self.number} has no picture {name}")

    def _match(self, pattern: str) -> str:
        found = re.search(pattern, self.texts[0], flags=re.MULTILINE)
        if found is None:
            raise CourseError(f"the notebook of {self.assignment} does not open as docs/authoring.md says: {pattern}")
        return found[1]


def read_week(root: Path, assignment: str) -> Week:
    student = nbformat.read(root / "notebooks" / assignment / f"{assignment}.ipynb", as_version=4)
    solution = nbformat.read(root / "solutions" / assignment / f"{assignment}.ipynb", as_version=4)
    results = {
        cell.id: tuple(cell.outputs)
        for cell in solution.cells
        if cell.cell_type == "code" and role_of(cell) is Role.EXPERIMENT
    }
    student.cells[0].source = BADGE.sub("", student.cells[0].source)  # the page has its own link to Colab
    return Week(assignment, tuple(student.cells), results)


def split_at_headings(text: str) -> Iterator[tuple[str, str]]:
    """Pieces of Markdown, each with the heading that opens it; the first may have none."""
    starts = [found.start() for found in HEADING.finditer(text)]
    for start, end in zip([0, *starts], [*starts, len(text)], strict=True):
        if piece := text[start:end].strip():
            found = HEADING.match(piece)
            yield (found["title"] if found else ""), piece
