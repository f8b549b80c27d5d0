"""Cells that have lost their ids are recognised: the course's own by their text, code answers by the name they define."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from nbformat.notebooknode import NotebookNode

from autograder.course import Cell, Role
from autograder.grading.submission.pieces import (
    NEW,
    Piece,
    defines_answer,
    given,
    is_code,
    is_test_of,
    is_unchanged,
    is_untouched,
    uncommented,
)

HEAD = 60  # first characters by which a text of the course is known that was changed
SURE = 40  # characters of the course's by which a cell is known that holds more than these
MOST_COPIES = 50  # of one cell; those above them are the student's own


@dataclass
class Match:
    """The student's cell, by the id of the instructor's; the student's own, by the instructor's cell before them."""

    answers: dict[str, NotebookNode] = field(default_factory=dict)
    extras: dict[str | None, list[NotebookNode]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Recognition:
    """A submission's pieces, in its order, each with the cell of the course that it stands for."""

    def __init__(self, submitted: NotebookNode, template: tuple[Cell, ...]) -> None:
        by_grade_id = {cell.grade_id: cell for cell in template if cell.grade_id}
        by_id = {cell.id: cell for cell in template}
        self.template = template
        self.position = {cell.id: number for number, cell in enumerate(template)}
        self.pieces = [Piece(cell, by_grade_id.get(cell.grade_id) or by_id.get(cell.id)) for cell in submitted.cells]
        self.found = Match()
        self.elsewhere: list[Piece] = []  # cells of the student's own that hold an answer whose cell was left as it was
        texts = [cell for cell in template if cell.cell_type != "code" and cell.role is not Role.ANSWER]
        self.by_head = {given(cell.source)[:HEAD]: cell for cell in texts if len(given(cell.source)) >= HEAD}

    def recognise(self) -> None:
        """Find what the pieces stand for."""
        self._let_go_of_many()
        self._read_comments()
        self._recognise_texts()
        self._recognise_names()
        self._let_go_of_many()

    def _read_comments(self) -> None:
        """The course's texts as comments, as a notebook has them that was a script in between."""
        for piece in self.pieces:
            text = uncommented(piece.source) if piece.place is None and piece.is_code else ""
            if text[:HEAD] in self.by_head:
                piece.cell = NotebookNode(piece.cell, cell_type="markdown", source=text)

    def _let_go_of_many(self) -> None:
        """Nobody cuts an answer into that many pieces, and each of them is parsed several times."""
        counted: Counter[str] = Counter()
        for piece in reversed(self.pieces):
            if piece.place is not None:
                counted[piece.place.id] += 1
                if counted[piece.place.id] > MOST_COPIES:
                    piece.place = None

    def of(self, cell: Cell) -> list[Piece]:
        return [piece for piece in self.pieces if piece.place is cell]

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        there = {piece.place.id for piece in self.pieces if piece.place}
        return [cell for cell in cells if cell.id not in there]

    def reach(self) -> list[int]:
        """For every piece the position of the instructor's cell that it stands for or follows."""
        reached, found = -1, []
        for piece in self.pieces:
            reached = self.position[piece.place.id] if piece.place else reached
            found.append(reached)
        return found

    # ---- cells that have lost their ids

    def _recognise_texts(self) -> None:
        """The course's own cells by the text that students were given, also where it stands in a cell with other text. An
        answer is not known by its text: the empty ones of all weeks look the same."""
        lost: dict[tuple[str, str], list[Cell]] = {}
        for cell in reversed(self.missing(self.template)):
            if cell.role is not Role.ANSWER:
                lost.setdefault((cell.cell_type, given(cell.source)), []).append(cell)
        before = len(self.missing(self.template))
        for piece in self.pieces:
            if piece.place is None and (same := lost.get((piece.cell.cell_type, piece.source.strip()))):
                piece.place = same.pop()
        there = {piece.place.id for piece in self.pieces if piece.place}
        for piece in self.pieces:
            changed = self.changed_text(piece)
            if changed and changed.id not in there:
                piece.place = changed
                there.add(changed.id)
        for cell in self.missing(self.template):
            if cell.role is not Role.ANSWER and len(given(cell.source)) >= SURE:
                self._cut_out(cell)
        if recognised := before - len(self.missing(self.template)):
            cells = "1 cell of the course was" if recognised == 1 else f"{recognised} cells of the course were"
            self.found.notes.append(f"{cells} recognised by the text: the ids were lost, or cells were merged")

    def changed_text(self, piece: Piece) -> Cell | None:
        """The text of the course that a cell without its id begins with."""
        return None if piece.place or piece.is_code else self.by_head.get(piece.source.strip()[:HEAD])

    def _cut_out(self, cell: Cell) -> None:
        """A cell of the course's that is part of another; what stands around it stays with that, or is the student's."""
        text = given(cell.source)
        for index, piece in enumerate(self.pieces):
            if text not in piece.source or is_unchanged(piece):
                continue
            if cell.role in (Role.PREDICTION, Role.SETUP) and piece.place is None:
                piece.place = cell  # what was added to it is looked for there
                return
            head, _, tail = piece.source.partition(text)
            first, last = piece.with_source(head.strip("\n")), piece.with_source(tail.strip("\n"))
            last.cell.cell_type = "code" if is_code(last) else "markdown"
            course = piece.with_source(text, cell_type=cell.cell_type)
            if piece.place is not None:
                first.where = last.where = f"in the cell {piece.place.grade_id or piece.place.id}"
                is_later = self.position[piece.place.id] > self.position[cell.id]
                (first if is_later else last).place = None
            course.place = cell
            self.pieces[index : index + 1] = [part for part in (first, course, last) if part.source.strip()]
            return

    def _recognise_names(self) -> None:
        """Code answers whose cells have lost their ids, or that stand in a new cell beside the one meant for them: by the
        name that the exercise asks for."""
        lost: list[str] = []
        for cell in self.template:
            if cell.role is not Role.ANSWER or cell.cell_type != "code":
                continue
            own = self.of(cell)
            if any(not is_untouched(piece, cell) for piece in own):
                continue
            named = [
                index for index, piece in enumerate(self.pieces) if piece.place is None and defines_answer(piece, cell)
            ]
            written = [index for index in named if not is_untouched(self.pieces[index], cell)]
            finished = [index for index in written if defines_answer(self.pieces[index], cell, finished=True)]
            last = max((index for index, piece in enumerate(self.pieces) if is_test_of(piece, cell)), default=None)
            if last is not None and any(index < last for index in finished):
                named = [index for index in named if index < last]
            for index in named if not own else finished:
                self.pieces[index].place = cell
                self.elsewhere += [self.pieces[index]] if own else []
            where = self.pieces[named[-1]].where if named else ""
            if named and not own and where == NEW:
                lost.append(str(cell.grade_id))
            elif finished:
                self.found.notes.append(f"the answer {cell.grade_id} was found {where}")
        if lost:
            self.found.notes.append(f"recognised by name, for the cells had lost their ids: {', '.join(lost)}")
