"""Recognise cells that have lost their ids: the course's own by their text, code answers by the name they define."""

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
    is_courses_text,
    is_test_of,
    is_unchanged,
    is_untouched,
    uncommented,
)

HEAD = 60  # first characters that identify a text of the course after a change
SURE = 40  # shortest text of a course cell that is searched for inside other cells


@dataclass
class Match:
    """``answers`` by the instructor's cell id; ``extras``, the student's own cells, by the id of the cell before."""

    answers: dict[str, NotebookNode] = field(default_factory=dict)
    extras: dict[str | None, list[NotebookNode]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Recognition:
    """A submission's pieces in its order, each with the course cell it matches, if any."""

    def __init__(self, submitted: NotebookNode, template: tuple[Cell, ...]) -> None:
        by_grade_id = {cell.grade_id: cell for cell in template if cell.grade_id}
        by_id = {cell.id: cell for cell in template}
        self.template = template
        self.position = {cell.id: number for number, cell in enumerate(template)}
        self.pieces = [Piece(cell, by_grade_id.get(cell.grade_id) or by_id.get(cell.id)) for cell in submitted.cells]
        self._name_pictures(submitted.get("pictures", {}))
        self.found = Match()
        self.elsewhere: list[Piece] = []  # the student's own cells with an answer whose cell was left unchanged
        texts = [cell for cell in template if cell.cell_type != "code" and cell.role is not Role.ANSWER]
        self.by_head = {given(cell.source)[:HEAD]: cell for cell in texts if len(given(cell.source)) >= HEAD}

    def _name_pictures(self, pictures: dict[str, dict[str, str]]) -> None:
        """Give the course's pictures, in the cells that it put them into, the names that they have there: reading has given
        every picture another one. A picture of the student's own is none of them, whatever it is called."""
        for piece in self.pieces:
            of_course = piece.place.attachments if piece.place and is_courses_text(piece.place) else {}
            for name, bundle in of_course.items():
                known = {"".join(data.split()) for data in bundle.values()}
                same = [key for key, picture in pictures.items() if "".join(picture.get("data", "").split()) in known]
                for key in same:
                    renamed = piece.source.replace(f"(attachment:{key})", f"(attachment:{name})")
                    piece.cell = NotebookNode(piece.cell, source=renamed)

    def recognise(self) -> None:
        """Find the course cells that the pieces match."""
        self._read_comments()
        self._recognise_texts()
        self._recognise_names()

    def _read_comments(self) -> None:
        """Turn comments back into texts of the course: a notebook that was saved as a script has them as comments."""
        for piece in self.pieces:
            text = uncommented(piece.source) if piece.place is None and piece.is_code else ""
            if text[:HEAD] in self.by_head:
                piece.cell = NotebookNode(piece.cell, cell_type="markdown", source=text)

    def of(self, cell: Cell) -> list[Piece]:
        return [piece for piece in self.pieces if piece.place is cell]

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        there = {piece.place.id for piece in self.pieces if piece.place}
        return [cell for cell in cells if cell.id not in there]

    def reach(self) -> list[int]:
        """Return, for every piece, the position of the instructor's cell that it matches or follows."""
        reached, found = -1, []
        for piece in self.pieces:
            reached = self.position[piece.place.id] if piece.place else reached
            found.append(reached)
        return found

    # ---- cells that have lost their ids

    def _recognise_texts(self) -> None:
        """Recognise the course's own cells by the text that students were given, even inside a cell with other text.
        Answers are not recognised by text: the empty ones of all weeks look the same."""
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
        code = [cell for cell in self.missing(self.template) if cell.role is Role.ANSWER and cell.cell_type == "code"]
        for piece in list(self.pieces):
            if (place := piece.place) and is_courses_text(place) and not is_unchanged(piece):
                below = piece.with_source(piece.source.partition(given(place.source))[2].strip("\n"))
                if any(defines_answer(below, cell) for cell in code):
                    self._cut_out(place)

    def changed_text(self, piece: Piece) -> Cell | None:
        """Return the course's text cell that begins like this unmatched piece, if there is one."""
        return None if piece.place or piece.is_code else self.by_head.get(piece.source.strip()[:HEAD])

    def _cut_out(self, cell: Cell) -> None:
        """Cut a course cell out of the cell that contains it. The rest stays there or becomes the student's own."""
        text = given(cell.source)
        for index, piece in enumerate(self.pieces):
            if text not in piece.source or is_unchanged(piece):
                continue
            if cell.role in (Role.PREDICTION, Role.SETUP) and piece.place is None:
                piece.place = cell  # later steps look for additions in it
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
        """Recognise code answers by the name that the exercise asks for, if their cells have lost their ids or they are
        in a new cell beside the one meant for them."""
        lost: list[str] = []
        code = [cell for cell in self.template if cell.role is Role.ANSWER and cell.cell_type == "code"]
        for piece in self.pieces:  # a copy of an answer's cell may hold another answer
            place = piece.place
            if place and place in code and not defines_answer(piece, place):
                others = any(defines_answer(piece, cell) for cell in code)
                if others and any(defines_answer(other, place, finished=True) for other in self.of(place)):
                    piece.place, piece.where = None, f"in a copy of the cell {place.grade_id}"
        for cell in code:
            own = self.of(cell)
            if any(defines_answer(piece, cell) and not is_untouched(piece, cell) for piece in own):
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
