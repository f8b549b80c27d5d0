"""A week's page. Predictions come before results: a predicted result stays folded until the reader opens it."""

import re

from nbformat.notebooknode import NotebookNode

from autograder.course import Role, role_of
from autograder.errors import CourseError
from autograder.site.cross_references import CrossReferences, with_targets
from autograder.site.markdown import code, folded, raw
from autograder.site.pictures import Pictures
from autograder.site.week import Week, split_at_headings

EXPERIMENTS = ("Experiment", "Live", "Demonstration")  # first words of headings above results that readers predict
YOUR_PREDICTION = re.compile(r"\n*^\*Your predictions?:?\*:?\s*$", re.MULTILINE)


def week_page(week: Week, references: CrossReferences, pictures: Pictures, start: str) -> str:
    """Markdown for the site. ``start`` says how to open the notebook; it goes after the opening paragraphs."""
    page = _Page(week, references, pictures)
    pieces = list(split_at_headings(week.cells[0].source))
    if len(pieces) < 2:
        raise CourseError(f"the first cell of {week.assignment} has no heading after the opening paragraphs")
    page.add(f"(week-{week.number})=")
    page.text(week.cells[0].source[: week.cells[0].source.index(pieces[1][1])].strip())
    page.add(start)
    page.text("\n\n".join(piece for _, piece in pieces[1:]))
    for cell in week.cells[1:]:
        page.cell(cell)
    return page.markdown()


class _Page:
    """Collects the blocks of one page, cell by cell."""

    def __init__(self, week: Week, references: CrossReferences, pictures: Pictures) -> None:
        self._week, self._references, self._pictures = week, references, pictures
        self._blocks: list[str] = []
        self._predicted = False  # whether readers were asked for a prediction since the last heading

    def markdown(self) -> str:
        return "\n\n".join(self._blocks) + "\n"

    def add(self, block: str) -> None:
        self._blocks.append(block)

    def cell(self, cell: NotebookNode) -> None:
        match role_of(cell):
            case Role.TEXT:
                for heading, _ in split_at_headings(cell.source):
                    if heading:
                        self._predicted = heading.startswith(EXPERIMENTS)
                self.text(cell.source)
            case Role.PREDICTION:
                self._predicted = True
                self.add(raw('<div class="prediction">'))
                self.text(YOUR_PREDICTION.sub("", cell.source))
                self.add(raw("</div>"))
            case Role.EXPERIMENT:
                self._experiment(cell)
            case Role.SETUP:
                self.add(folded("Set-up", code(cell.source), "code"))
            case Role.LOCKED:
                self._code(cell)
            case Role.ANSWER if cell.cell_type == "code":
                self._code(cell)
            case Role.TEST if cell.metadata["nbgrader"]["grade_id"].endswith("_check"):
                self.add(folded("Visible check", code(cell.source), "check"))
            case _:  # hidden tests, and the empty box of a text answer
                pass

    def text(self, source: str) -> None:
        self.add(self._references.linked(with_targets(source, self._week), self._week))

    def _code(self, cell: NotebookNode) -> None:
        if cell.metadata.get("jupyter", {}).get("source_hidden"):
            self.add(folded("Code", code(cell.source), "code"))
        else:
            self.add(code(cell.source))

    def _experiment(self, cell: NotebookNode) -> None:
        shown = [self._result(result) for result in self._week.results.get(cell.id, ())]
        if "lab.moving_" not in cell.source:  # the call that makes a moving picture explains nothing
            self._code(cell)
        if shown and self._predicted:
            self.add(folded("Result: open it when you have predicted", "\n\n".join(shown), "result"))
        else:
            self._blocks += shown

    def _result(self, result: NotebookNode) -> str:
        if result.output_type == "stream":
            return code(result.text.rstrip("\n"), "text")
        if "text/html" in result.data:
            return self._pictures.block(result.data["text/html"])
        return code(result.data["text/plain"], "text")
