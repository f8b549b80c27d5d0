"""Which cell of a submission stands for which of the instructor's, however the notebook was mangled.

Editors split cells and copy their metadata, merge cells and keep one's, drop ids, turn cells into another type; students
write where no cell is meant for it. Every step below leaves a list of pieces, in the submission's order, that says of
each what it stands for. What stands for nothing is the student's own and stays where it is.
"""

import ast
import difflib
import io
import itertools
import re
import tokenize
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from nbformat.notebooknode import NotebookNode

from autograder.build.regions import TEXT_STUB, clear_hidden
from autograder.course import Cell, Role
from autograder.grading.source_names import IPYTHONS, lines_of, parsed, parsed_cell, settled_names, without_names

MARKUP = re.compile(r"[\s*_#>`~-]+")
WORD = re.compile(r"[^\W\d_]{2,}")
NOT_IMPLEMENTED = "raise NotImplementedError"
HEAD = 60  # first characters by which a text of the course is known that was changed
SURE = 40  # characters of the course's by which a cell is known that holds more than these
GLUES = ("\n", "")  # a cell is cut between lines, or within one
MOST_HALVES = 10  # of a cell that was cut, which have lost their metadata
MOST_IMPORTS = 20  # that are run by themselves
MOST_COPIES = 50  # of one cell; those above them are the student's own
FEW_WORDS = 4  # in a code cell; fewer are a label
MOST_LINES = 1_000  # of a course's cell, compared with what it was
MOST_CODE = 20_000  # characters of a code cell, among which words are looked for
NEW = "in a new cell"
COURSES = (Role.TEXT, Role.LOCKED)


@dataclass(eq=False)
class Piece:
    """A submitted cell or a part of one, and the instructor's cell that it stands for, if any."""

    cell: NotebookNode
    place: Cell | None = None
    where: str = NEW
    _names: tuple[str, dict[str, bool]] | None = None  # and the text they were read from

    @property
    def source(self) -> str:
        text: str = self.cell.source
        return text

    @property
    def is_code(self) -> bool:
        return bool(self.cell.cell_type == "code")

    @property
    def names(self) -> dict[str, bool]:
        """What it defines, with whether that is more than a stub. Text that is no Python defines nothing."""
        if self._names is None or self._names[0] != self.source:
            is_python = self.is_code or parsed_cell(self.source) is not None
            self._names = self.source, settled_names(self.source) if is_python else {}
        return self._names[1]

    def with_source(self, source: str, **changes: object) -> "Piece":
        """The same with another text."""
        return Piece(NotebookNode(self.cell, source=source, **changes), self.place, self.where)


@dataclass
class Match:
    """The student's cell, by the id of the instructor's; the student's own, by the instructor's cell before them."""

    answers: dict[str, NotebookNode] = field(default_factory=dict)
    extras: dict[str | None, list[NotebookNode]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def match(submitted: NotebookNode, template: tuple[Cell, ...]) -> Match:
    """Find the answers to the instructor's cells in a submission."""
    return _Matching(submitted, template).match()


def is_blank(cell: Cell, source: str) -> bool:
    """Whether nothing was written where this answer belongs."""
    if cell.cell_type == "code":
        return source.strip() in ("", cell.source.strip())
    return MARKUP.sub("", source) in {"", *(MARKUP.sub("", stub) for stub in (cell.source, *TEXT_STUB))}


class _Matching:
    def __init__(self, submitted: NotebookNode, template: tuple[Cell, ...]) -> None:
        by_grade_id = {cell.grade_id: cell for cell in template if cell.grade_id}
        by_id = {cell.id: cell for cell in template}
        self.template = template
        self.position = {cell.id: number for number, cell in enumerate(template)}
        self.pieces = [Piece(cell, by_grade_id.get(cell.grade_id) or by_id.get(cell.id)) for cell in submitted.cells]
        self.found = Match()
        texts = [cell for cell in template if cell.cell_type != "code" and cell.role is not Role.ANSWER]
        self.by_head = {given(cell.source)[:HEAD]: cell for cell in texts if len(given(cell.source)) >= HEAD}

    def match(self) -> Match:
        self._let_go_of_many()
        self._recognise_texts()
        self._recognise_names()
        self._let_go_of_many()
        code = [cell for cell in self.template if cell.role is Role.ANSWER and cell.cell_type == "code"]
        texts = [cell for cell in self.template if cell.role is Role.ANSWER and cell.cell_type != "code"]
        self._take_lower_halves(code)
        for cell in code:
            self._join_code(cell)
        self._keep_additions()
        for cell in self.template:
            if cell in texts or cell.role is Role.PREDICTION:
                self._join_text(cell)
        for cell in texts:
            self._keep_own_words(cell)
        at_the_end = self._own_texts_at_the_end()
        for cell in texts:
            self._look_elsewhere(cell, at_the_end)
        self._put_in_place()
        self._take_apart(code)
        self._note_what_is_missing()
        return self.found

    def _let_go_of_many(self) -> None:
        """Nobody cuts an answer into that many pieces, and each of them is parsed several times."""
        counted: Counter[str] = Counter()
        for piece in reversed(self.pieces):
            if piece.place is not None:
                counted[piece.place.id] += 1
                if counted[piece.place.id] > MOST_COPIES:
                    piece.place = None

    def _of(self, cell: Cell) -> list[Piece]:
        return [piece for piece in self.pieces if piece.place is cell]

    def _missing(self, cells: Iterable[Cell]) -> list[Cell]:
        there = {piece.place.id for piece in self.pieces if piece.place}
        return [cell for cell in cells if cell.id not in there]

    def _reach(self) -> list[int]:
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
        for cell in reversed(self._missing(self.template)):
            if cell.role is not Role.ANSWER:
                lost.setdefault((cell.cell_type, given(cell.source)), []).append(cell)
        before = len(self._missing(self.template))
        for piece in self.pieces:
            if piece.place is None and (same := lost.get((piece.cell.cell_type, piece.source.strip()))):
                piece.place = same.pop()
        there = {piece.place.id for piece in self.pieces if piece.place}
        for piece in self.pieces:
            changed = self._changed_text(piece)
            if changed and changed.id not in there:
                piece.place = changed
                there.add(changed.id)
        for cell in self._missing(self.template):
            if cell.role is not Role.ANSWER and len(given(cell.source)) >= SURE:
                self._cut_out(cell)
        if recognised := before - len(self._missing(self.template)):
            cells = "1 cell of the course was" if recognised == 1 else f"{recognised} cells of the course were"
            self.found.notes.append(f"{cells} recognised by the text: the ids were lost, or cells were merged")

    def _changed_text(self, piece: Piece) -> Cell | None:
        """The text of the course that a cell without its id begins with."""
        return None if piece.place or piece.is_code else self.by_head.get(piece.source.strip()[:HEAD])

    def _cut_out(self, cell: Cell) -> None:
        """A cell of the course's that is part of another; what stands around it stays with that, or is the student's."""
        text = given(cell.source)
        for index, piece in enumerate(self.pieces):
            if text not in piece.source or _is_unchanged(piece):
                continue
            if cell.role in (Role.PREDICTION, Role.SETUP) and piece.place is None:
                piece.place = cell  # what was added to it is looked for there
                return
            head, _, tail = piece.source.partition(text)
            first, last = piece.with_source(head.strip("\n")), piece.with_source(tail.strip("\n"))
            last.cell.cell_type = "code" if _is_code(last) else "markdown"
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
        reach = self._reach()
        for cell in self.template:
            if cell.role is not Role.ANSWER or cell.cell_type != "code":
                continue
            own = self._of(cell)
            if any(not _is_untouched(piece, cell) for piece in own):
                continue
            here = self.position[cell.id]
            named = [
                index
                for index, piece in enumerate(self.pieces)
                if piece.place is None and (not own or reach[index] in (here - 1, here)) and _answers(piece, cell)
            ]
            finished = [index for index in named if _answers(self.pieces[index], cell, finished=True)]
            last = max((index for index, piece in enumerate(self.pieces) if self._tests(piece, cell)), default=None)
            if last is not None and any(index < last for index in finished):
                named = [index for index in named if index < last]
            for index in named if not own else finished:
                self.pieces[index].place = cell
            where = self.pieces[named[-1]].where if named else ""
            if named and not own and where == NEW:
                lost.append(str(cell.grade_id))
            elif finished:
                self.found.notes.append(f"the answer {cell.grade_id} was found {where}")
        if lost:
            self.found.notes.append(f"recognised by name, for the cells had lost their ids: {', '.join(lost)}")

    @staticmethod
    def _tests(piece: Piece, cell: Cell) -> bool:
        return piece.place is not None and piece.place.grade_id in (f"{cell.grade_id}_check", f"{cell.grade_id}_tests")

    # ---- cells that were split or copied

    def _take_lower_halves(self, code: list[Cell]) -> None:
        """Some editors give the lower half of a cell that was cut no metadata. It does not run by itself, but does below the
        upper half."""
        for index, upper in enumerate(self.pieces):
            parts = [upper.source]
            below = itertools.islice(self.pieces, index + 1, index + 1 + MOST_HALVES) if upper.place in code else ()
            for number, lower in enumerate(below, start=index + 1):
                if lower.place is not None or not lower.is_code or _is_whole(lower.source):
                    break
                parts.append(lower.source)
                if any(_is_whole(glue.join(parts)) for glue in GLUES):
                    for half in self.pieces[index + 1 : number + 1]:
                        half.place = upper.place

    def _join_code(self, cell: Cell) -> None:
        """Several cells of one code answer. Those that run by themselves are run one after the other, as in the student's
        notebook; a function that was cut in two is put together. A copy below the exercise's tests is only a copy."""
        own = self._of(cell)
        if len(own) < 2:
            return
        if all(_adds_nothing(piece.source, cell.source) for piece in own):
            own[0].cell = NotebookNode(own[0].cell, source=cell.source)
            self.pieces = [piece for piece in self.pieces if piece not in own[1:]]
            return
        kept = [piece for piece in own if not _is_untouched(piece, cell, is_part=True)] or own[:1]
        if NOT_IMPLEMENTED not in cell.source and not any(_answers(piece, cell) for piece in kept):
            kept = own  # what was written adds to what was given
        self.pieces = [piece for piece in self.pieces if piece not in own or piece in kept]
        tests = [index for index, piece in enumerate(self.pieces) if self._tests(piece, cell)]
        early = [piece for piece in kept if not tests or self.pieces.index(piece) < max(tests)]
        pieces, joined = _runnable(early or kept)
        for piece in kept:
            piece.place = cell if piece in pieces else None
        if joined:
            pieces[0].cell = NotebookNode(pieces[0].cell, source=joined, cell_type="code")
            self.pieces = [piece for piece in self.pieces if piece not in pieces[1:]]
            self.found.notes.append(f"the answer {cell.grade_id} was split into {len(pieces)} cells; they were joined")
        elif len(pieces) > 1:
            self._run_in_order(cell, pieces)
        if len(kept) > len(pieces):
            self.found.notes.append(f"there are further cells {cell.grade_id}; they are shown where they stand")

    def _run_in_order(self, cell: Cell, pieces: list[Piece]) -> None:
        """The last that defines what is asked for is the answer; the others are the student's own cells around it."""
        name = str(cell.grade_id)
        finished = [piece for piece in pieces if _answers(piece, cell, finished=True)]
        defining = [piece for piece in pieces if _answers(piece, cell)]
        chosen = (finished or defining or pieces)[-1]
        for piece in pieces:
            piece.place = cell if piece is chosen else None
            piece.cell = NotebookNode(piece.cell, cell_type="code")
        for piece in defining:  # an unfinished version below would come in the place of the finished one
            if self.pieces.index(piece) > self.pieces.index(chosen):
                self.pieces.remove(piece)
                self.pieces.insert(self.pieces.index(chosen), piece)
        several = f"; it is defined in {len(defining)} of them, and the last one counts" if len(defining) > 1 else ""
        self.found.notes.append(
            f"the answer {name} was split over {len(pieces)} cells; they were run one after the other{several}"
        )

    def _join_text(self, cell: Cell) -> None:
        """All pieces of a text answer are one answer, and so is the text in new cells between them."""
        own = self._of(cell)
        written = [piece for piece in own if not is_blank(cell, piece.source)]
        if len(own) < 2:
            return
        kept = written or own[:1]
        indexes = [self.pieces.index(piece) for piece in kept]
        between: list[Piece] = []
        for start, end in itertools.pairwise(indexes):
            inner = [piece for piece in self.pieces[start + 1 : end] if piece not in own]
            if all(piece.place is None for piece in inner):
                between += [piece for piece in inner if not piece.is_code]
        parts = [piece for piece in self.pieces if piece in kept or piece in between]
        kept[0].cell = _one_text([(piece, "") for piece in parts])
        self.pieces = [piece for piece in self.pieces if piece is kept[0] or piece not in (*own, *between)]
        if len(written) > 1 and cell.role is Role.ANSWER:
            self.found.notes.append(
                f"the answer {cell.grade_id} was split over {len(parts)} cells; they were read as one"
            )

    # ---- what was written into the course's own cells

    def _keep_additions(self) -> None:
        """Statements that were added to the set-up cell, as cells of the student's own below it: imports each by itself, for
        a package may be missing here, and the rest."""
        pieces = [piece for piece in self.pieces if piece.place and piece.place.role is Role.SETUP]
        added = list(dict.fromkeys(text for piece in pieces for text in _added_statements(piece)))
        if not added:
            return
        imports = [text for text in added if text.startswith(("import ", "from "))][:MOST_IMPORTS]
        rest = "\n\n".join(text for text in added if text not in imports)
        at = self.pieces.index(pieces[-1]) + 1
        cells = [NotebookNode(pieces[-1].cell, source=text) for text in (*imports, rest) if text]
        self.pieces[at:at] = [Piece(cell) for cell in cells]
        self.found.notes.append(
            "the set-up cell is the course's own again; what was added to it was run in cells of your own below it"
        )

    def _keep_own_words(self, cell: Cell) -> None:
        """Words in the course's texts between a question and the next exercise: cells of the student's own below them."""
        _, question, end = self._region(cell)
        for piece in list(self.pieces):
            place = piece.place
            if place is None or not self._is_courses_text(place) or not question <= self.position[place.id] < end:
                continue
            if own := own_lines(piece.source, given(place.source)):
                is_question = self.position[place.id] == question
                where = "in the question's cell" if is_question else "in a cell of the course"
                added = Piece(NotebookNode(piece.cell, source=own, cell_type="markdown"), where=where)
                self.pieces.insert(self.pieces.index(piece) + 1, added)
                piece.cell = NotebookNode(piece.cell, source=given(place.source))

    def _region(self, cell: Cell) -> tuple[int, int, int]:
        """Between which positions a text answer may stand: the cell above its question, its question, the next exercise."""
        here = self.position[cell.id]
        question = self._with_text_above(here)
        above = question - 1
        if above >= 0 and self.template[above].role is Role.ANSWER:
            above = question  # what stands below the answer before belongs to that
        later = (at for at in range(here + 1, len(self.template)) if self.template[at].role is Role.ANSWER)
        following = next(later, None)
        end = len(self.template) if following is None else max(self._with_text_above(following), here + 1)
        return above, question, end

    def _with_text_above(self, at: int) -> int:
        return at - 1 if at > 0 and self._is_courses_text(self.template[at - 1]) else at

    @staticmethod
    def _is_courses_text(cell: Cell) -> bool:
        return cell.cell_type != "code" and cell.role in COURSES

    # ---- text answers beside their cells

    def _own_texts_at_the_end(self) -> list[Piece]:
        """Texts of the student's own below all cells of the course: some collect their answers there."""
        own = itertools.takewhile(lambda piece: piece.place is None, reversed(self.pieces))
        texts = [piece.with_source(self._written(piece)) for piece in own if not _is_code(piece)]
        return texts[::-1]

    def _written(self, piece: Piece) -> str:
        """What the student wrote of a cell that may be a copy of one of the course's."""
        courses = self._changed_text(piece)
        return own_lines(piece.source, given(courses.source)) if courses else piece.source

    def _look_elsewhere(self, cell: Cell, at_the_end: list[Piece]) -> None:
        """A blank text answer becomes what the student has written between its question and the next exercise; if nothing
        is there, all that stands at the end of the notebook: which of it answers what, a person decides."""
        own = self._of(cell)
        if any(not is_blank(cell, piece.source) for piece in own):
            own[0].cell = NotebookNode(own[0].cell, source=_as_text(own[0]))
            return
        start, _, end = self._region(cell)
        words: list[tuple[Piece, str]] = []
        for piece, reached in zip(list(self.pieces), self._reach(), strict=True):
            if not start <= reached < end or (reached == start and piece.place is not None):
                continue
            if piece.place is None and not piece.is_code:
                text = self._written(piece)
                if not is_blank(cell, text):
                    words.append((piece.with_source(text), piece.where))
                    self.pieces.remove(piece)
                elif not own and not self._changed_text(piece):  # the answer's own cell, without its id
                    self.pieces.remove(piece)
            elif piece.is_code and (text := self._words_of_code(piece)):
                where = "in a code cell" if piece.place is None else "in a code cell of the course"
                words.append((piece.with_source(text), where))
                if piece.place is None and not _is_code(piece):
                    self.pieces.remove(piece)
        words = words or [
            (piece, "at the end of the notebook") for piece in at_the_end if not is_blank(cell, piece.source)
        ]
        if words:
            answer = _one_text(words)
            if own:
                own[0].cell = answer
            else:
                self.found.answers[cell.id] = answer
            places = ", ".join(dict.fromkeys(where for _, where in words))
            self.found.notes.append(f"the answer {cell.grade_id} was not in the cell meant for it; found {places}")

    @staticmethod
    def _words_of_code(piece: Piece) -> str:
        """A code cell as text, if it holds words: an answer in comments, strings, or bare prose."""
        place, source, known = piece.place, piece.source[:MOST_CODE], ""
        if place is not None:
            if place.role in (Role.ANSWER, Role.SETUP) or _is_unchanged(piece):
                return ""
            known = given(place.source)
        said = [text for text in _said(source) if text not in known] if place or _is_code(piece) else [source]
        words = WORD.findall(" ".join(said))
        return "" if len(words) < FEW_WORDS else own_lines(source, known) if place else source

    # ---- the result

    def _put_in_place(self) -> None:
        before: str | None = None
        for piece in self.pieces:
            if piece.place is not None:
                self.found.answers[piece.place.id] = piece.cell
                before = piece.place.id
            elif piece.source.strip():
                self.found.extras.setdefault(before, []).append(piece.cell)

    def _take_apart(self, code: list[Cell]) -> None:
        """Answers whose cells were merged into another, which kept its own metadata alone. Each of them gets the whole text
        but for the answers to earlier exercises: they are judged, and replaced, by themselves."""
        changed = [piece for piece in self.pieces if piece.place and not _is_unchanged(piece)]
        together: dict[int, list[Cell]] = {}
        for cell in code:
            if cell.id in self.found.answers:
                continue
            holding = [index for index, piece in enumerate(changed) if _answers(piece, cell, finished=True)]
            if holding:
                together.setdefault(holding[-1], []).append(cell)
        for index, cells in together.items():
            piece = changed[index]
            place = piece.place
            if place is None:
                continue
            of_answer = place.role is Role.ANSWER and place.cell_type == "code"
            members = sorted([*cells, place] if of_answer else cells, key=lambda cell: self.position[cell.id])
            for number, cell in enumerate(members):
                earlier = frozenset(str(member.grade_id) for member in members[:number])
                self.found.answers[cell.id] = piece.with_source(
                    without_names(piece.source, earlier), cell_type="code"
                ).cell
            for cell in cells:
                self.found.notes.append(
                    f"the answer {cell.grade_id} was found in the cell {place.grade_id or place.id}"
                )

    def _note_what_is_missing(self) -> None:
        for cell in self.template:
            answer = self.found.answers.get(cell.id)
            if answer is None and cell.role in (Role.TEST, Role.STOCK_TEST, Role.LOCKED, Role.SETUP):
                self.found.notes.append(f"the course's cell {cell.grade_id} was missing and has been put back")
            elif answer is None and cell.role is Role.ANSWER:
                self.found.notes.append(
                    f"the answer cell {cell.grade_id} is missing from the submission; it counts as unanswered"
                )
            elif answer is not None and cell.role is Role.ANSWER and answer.cell_type != cell.cell_type:
                self.found.notes.append(f"the answer cell {cell.grade_id} had become a {answer.cell_type} cell")


@lru_cache(maxsize=2000)
def given(source: str) -> str:
    """What students were given of a cell of the course."""
    return clear_hidden(source).strip()


def _is_unchanged(piece: Piece) -> bool:
    return piece.place is not None and piece.source.strip() == given(piece.place.source)


def own_lines(source: str, text: str) -> str:
    """What a student has added to a text of the course."""
    if source.strip() == text:
        return ""
    lines, courses = source.strip().split("\n"), text.split("\n")
    if len(lines) > MOST_LINES:
        return source
    lines, courses = [line.rstrip() for line in lines], [line.rstrip() for line in courses]
    found: list[str] = []
    compared = difflib.SequenceMatcher(lambda line: not line, lines, courses, autojunk=False)
    for kind, start, end, first, last in compared.get_opcodes():
        if kind in ("delete", "replace"):
            found += [_rest_of_line(line, courses[first:last]) for line in lines[start:end]]
    return "\n".join(found).strip()


def _as_text(piece: Piece) -> str:
    """A piece as Markdown: a comment in Python would be a heading there."""
    return f"````\n{piece.source}\n````" if piece.is_code and _is_code(piece) else piece.source.strip("\n")


def _rest_of_line(line: str, replaced: list[str]) -> str:
    """What was added to a line of the course's."""
    for old in replaced:
        if old.strip() and old in line:
            return line.replace(old, "", 1)
    return line


def _one_text(parts: list[tuple[Piece, str]]) -> NotebookNode:
    """Pieces as one text, each with the word where it was found."""
    text, in_formula = "", False
    seen: set[str] = set()
    for piece, where in parts:
        source = _as_text(piece)
        if source.strip() in seen:
            continue  # a copy
        seen.add(source.strip())
        gap = "" if not text else "\n" if in_formula else "\n\n"  # no blank line is in a formula that was cut
        text += gap + (f"**[found {where}]**\n\n" if where else "") + source
        in_formula ^= bool(source.count("$$") % 2)
    return NotebookNode(parts[0][0].cell, cell_type="markdown", source=text)


def _runnable(pieces: list[Piece]) -> tuple[list[Piece], str]:
    """Those of an answer's pieces that are code; and their text put together, if they were cut where they do not run by
    themselves."""
    code = [piece for piece in pieces if _is_code(piece)]
    for parts in ([piece for piece in pieces if piece in code or parsed_cell(piece.source) is None], code):
        if parts and all(_is_whole(piece.source) for piece in parts):
            return parts, ""
        for glue in GLUES:
            if len(parts) > 1 and _is_whole(joined := glue.join(piece.source for piece in parts)):
                return parts, joined
    return code or pieces, ""


def _is_whole(source: str) -> bool:
    """Whether the text runs by itself."""
    tree = parsed_cell(source)
    begins = source.lstrip("\n")[:1]
    return tree is not None and not begins.isspace() and not any(isinstance(node, ast.Return) for node in tree.body)


def _is_code(piece: Piece) -> bool:
    """Whether a piece is Python, and more than words that are Python too."""
    tree = parsed_cell(piece.source)
    return tree is not None and (piece.is_code or any(not isinstance(node, ast.Expr) for node in tree.body))


def _is_untouched(piece: Piece, cell: Cell, is_part: bool = False) -> bool:
    """Whether an answer's cell, or a part of it, is as it was given."""
    if is_blank(cell, piece.source):
        return True
    return is_part and NOT_IMPLEMENTED in piece.source and _adds_nothing(piece.source, cell.source)


def _adds_nothing(source: str, stub: str) -> bool:
    known = {line.strip() for line in stub.splitlines()} | {""}
    return all(line.strip() in known for line in source.splitlines())


def _answers(piece: Piece, cell: Cell, finished: bool = False) -> bool:
    """Whether a piece defines what an exercise asks for."""
    name = str(cell.grade_id)
    return name in piece.source and name in piece.names and (piece.names[name] or not finished)


def _added_statements(piece: Piece) -> list[str]:
    """A set-up cell's statements that are not the course's, nor what looks for files in a released notebook."""
    source = piece.source
    tree, courses = parsed_cell(source), parsed(piece.place.source) if piece.place else None
    if tree is None or courses is None:
        return []
    known = {ast.dump(node) for node in courses.body}
    added = [node for node in tree.body if ast.dump(node) not in known and not isinstance(node, ast.Pass)]
    lines = source.split("\n")
    kept = dict.fromkeys(lines_of(node) for node in added if not _looks_for_files(node))
    return ["\n".join(lines[first:end]) for first, end in kept]


def _looks_for_files(node: ast.stmt) -> bool:
    names = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    names |= {alias.asname or "" for alias in ast.walk(node) if isinstance(alias, ast.alias)}
    return any(name in ("_os", "_web", "_file", "_missing") for name in names)


def _said(source: str) -> list[str]:
    """Comments and strings."""
    found: list[str] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(IPYTHONS.sub("", source)).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", None)):
                found.append(token.string)
    except (tokenize.TokenError, SyntaxError):
        pass
    return found
