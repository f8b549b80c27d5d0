"""Match the cells of a submission to the instructor's cells, however the notebook was mangled.

Editors split cells and copy their metadata, merge cells and keep the metadata of one, drop ids, and change cell types;
students write outside the cells meant for their answers. Each step below leaves a list of pieces in the submission's
order, each with the instructor's cell it matches. A piece that matches none is the student's own and stays in place.
"""

import itertools

from nbformat.notebooknode import NotebookNode

from autograder.course import Cell, Role
from autograder.grading.source_names import without_names
from autograder.grading.submission.pieces import (
    GLUES,
    NOT_IMPLEMENTED,
    Piece,
    added_definitions,
    added_statements,
    adds_nothing,
    as_text,
    defines_answer,
    given,
    is_blank,
    is_code,
    is_courses_text,
    is_test_of,
    is_unchanged,
    is_untouched,
    is_whole,
    one_text,
    own_lines,
    runnable,
    words_of_code,
)
from autograder.grading.submission.recognition import Match, Recognition

MOST_HALVES = 10  # cells below a split cell that may be its parts without metadata
MOST_ALONE = 20  # added statements that run in a cell each; the rest share one
GIVEN = (Role.TEST, Role.EXPERIMENT, Role.LOCKED)  # their code is the course's, whatever a student writes there


def match(submitted: NotebookNode, template: tuple[Cell, ...]) -> Match:
    """Find the answers to the instructor's cells in a submission."""
    return _Matching(submitted, template).match()


class _Matching(Recognition):
    def match(self) -> Match:
        self.recognise()
        code = [cell for cell in self.template if cell.role is Role.ANSWER and cell.cell_type == "code"]
        texts = [cell for cell in self.template if cell.role is Role.ANSWER and cell.cell_type != "code"]
        self._take_lower_halves(code)
        for cell in code:
            self._join_code(cell)
        self._keep_additions()
        for cell in texts:
            self._let_go_of_a_copy(cell)
        for cell in self.template:
            if cell in texts or cell.role is Role.PREDICTION:
                self._join_text(cell)
        for cell in texts:
            self._keep_own_words(cell)
        if any(piece.place and piece.place.role is Role.ANSWER for piece in self.pieces):  # the right notebook
            at_the_end = self._own_texts_at_the_end()
            for cell in texts:
                self._look_elsewhere(cell, at_the_end)
        self._put_in_place()
        self._take_apart(code)
        self._note_later_definitions(code)
        self._note_what_is_missing()
        return self.found

    # ---- cells that were split or copied

    def _take_lower_halves(self, code: list[Cell]) -> None:
        """Match the lower half of a split cell, which some editors leave without metadata. It does not run by itself,
        only joined to the upper half."""
        for index, upper in enumerate(self.pieces):
            parts = [upper.source]
            below = itertools.islice(self.pieces, index + 1, index + 1 + MOST_HALVES) if upper.place in code else ()
            for number, lower in enumerate(below, start=index + 1):
                if lower.place is not None:
                    break
                if not lower.is_code or is_whole(lower.source):  # a scratch cell, or words, between the halves
                    continue
                parts.append(lower.source)
                if any(is_whole(glue.join(parts)) for glue in GLUES):
                    for half in self.pieces[index + 1 : number + 1]:
                        if half.source in parts:
                            half.place = upper.place

    def _join_code(self, cell: Cell) -> None:
        """Combine several cells of one code answer. Cells that run by themselves run in the student's order; a function
        that was cut in two is joined. Cells below the exercise's tests count only if there are none above."""
        own = self.of(cell)
        for piece in own:
            above, _, below = piece.source.rpartition(given(cell.source))
            if defines_answer(piece.with_source(above), cell, finished=True):
                piece.cell = NotebookNode(piece.cell, source=f"{above}{below}".strip("\n"))
                self.found.notes.append(f"the blank version below the answer {cell.grade_id} was left out")
        if len(own) < 2:
            return
        is_given = all(adds_nothing(piece.source, cell.source) for piece in own)
        if is_given or len({piece.source.strip() for piece in own}) == 1:  # copies
            own[0].cell = NotebookNode(own[0].cell, source=cell.source if is_given else own[0].source)
            self.pieces = [piece for piece in self.pieces if piece not in own[1:]]
            return
        kept = [piece for piece in own if not is_untouched(piece, cell, is_part=True)]
        if NOT_IMPLEMENTED not in cell.source and not any(defines_answer(piece, cell) for piece in kept):
            kept = own  # the student added to working code
        self.pieces = [piece for piece in self.pieces if piece not in own or piece in kept]
        tests = [index for index, piece in enumerate(self.pieces) if is_test_of(piece, cell)]
        early = [piece for piece in kept if not tests or self.pieces.index(piece) < max(tests)]
        is_above = any(defines_answer(piece, cell) for piece in early)
        pieces, joined = runnable(early if is_above else kept)
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
        """Take the last piece that defines the answer as the answer. The others become the student's own cells."""
        name = str(cell.grade_id)
        finished = [piece for piece in pieces if defines_answer(piece, cell, finished=True)]
        defining = [piece for piece in pieces if defines_answer(piece, cell)]
        chosen = (finished or defining or pieces)[-1]
        for piece in pieces:
            piece.place = cell if piece is chosen else None
            piece.cell = NotebookNode(piece.cell, cell_type="code")
        for piece in defining:  # an unfinished version below would replace the finished one
            if self.pieces.index(piece) > self.pieces.index(chosen):
                self.pieces.remove(piece)
                self.pieces.insert(self.pieces.index(chosen), piece)
        several = f"; it is defined in {len(defining)} of them, and the last one counts" if len(defining) > 1 else ""
        self.found.notes.append(
            f"the answer {name} was split over {len(pieces)} cells; they were run one after the other{several}"
        )

    def _let_go_of_a_copy(self, cell: Cell) -> None:
        """Unmatch a copy of another text answer's cell that stands where this one, blank otherwise, belongs."""
        if any(not is_blank(cell, piece.source) for piece in self.of(cell)):
            return
        here = self.position[cell.id]
        for above, piece in itertools.pairwise(self.pieces):
            other, at = piece.place, self.position[above.place.id] if above.place else -1
            if other is None or other.role is not Role.ANSWER or other.cell_type == "code":
                continue
            before = self.of(other)[: self.of(other).index(piece)]
            if self._with_text_above(here) <= at <= here and any(not is_blank(other, one.source) for one in before):
                piece.place, piece.where = None, f"in a copy of the cell {other.grade_id}"

    def _join_text(self, cell: Cell) -> None:
        """Join all pieces of a text answer, and the text in new cells between them, into one answer."""
        own = self.of(cell)
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
        kept[0].cell = one_text([(piece, "") for piece in parts])
        self.pieces = [piece for piece in self.pieces if piece is kept[0] or piece not in (*own, *between)]
        if len({piece.source.strip() for piece in written}) > 1 and cell.role is Role.ANSWER:
            self.found.notes.append(
                f"the answer {cell.grade_id} was split over {len(parts)} cells; they were read as one"
            )

    # ---- what was written into the course's own cells

    def _keep_additions(self) -> None:
        """Move statements added to the set-up cell into the student's own cells below it. Grading discards changes to
        the course's other cells, but imports and definitions added there move into such cells above them."""
        setup = [piece for piece in self.pieces if piece.place and piece.place.role is Role.SETUP]
        if self._keep([text for piece in setup for text in added_statements(piece)], setup[-1:], below=True):
            self.found.notes.append(
                "the set-up cell is the course's own again; what was added to it was run in cells of your own below it"
            )
        answers = {cell.grade_id for cell in self.template if cell.role is Role.ANSWER}
        others = [
            piece for piece in self.pieces if piece.place and piece.place.role in GIVEN and not is_unchanged(piece)
        ]
        kept = [self._keep(added_definitions(piece, answers), [piece], below=False) for piece in others]
        if True in kept:
            self.found.notes.append(
                "of the course's cells (figures, checks, tests) grading takes the course's own; imports, functions and plain "
                "assignments that were added to them were run in cells of your own above them"
            )

    def _keep(self, statements: list[str], near: list[Piece], below: bool) -> bool:
        """Put each statement into its own cell: one may fail here, for lack of a package or a drive."""
        added = list(dict.fromkeys(statements))
        for piece in near if added else []:
            at = self.pieces.index(piece) + below
            cells = [*added[:MOST_ALONE], "\n\n".join(added[MOST_ALONE:])]
            self.pieces[at:at] = [Piece(NotebookNode(piece.cell, source=text)) for text in cells if text]
        return bool(added)

    def _keep_own_words(self, cell: Cell) -> None:
        """Move words added to course texts between a question and the next exercise into the student's own cells."""
        _, question, end = self._region(cell)
        for piece in list(self.pieces):
            place = piece.place
            if place is None or not is_courses_text(place) or not question <= self.position[place.id] < end:
                continue
            if own := own_lines(piece.source, given(place.source)):
                is_question = self.position[place.id] == question
                where = "in the question's cell" if is_question else "in a cell of the course"
                added = Piece(NotebookNode(piece.cell, source=own, cell_type="markdown"), where=where)
                self.pieces.insert(self.pieces.index(piece) + 1, added)
                piece.cell = NotebookNode(piece.cell, source=given(place.source))

    def _region(self, cell: Cell) -> tuple[int, int, int]:
        """Return the positions around a text answer: the cell above its question, its question, the next exercise."""
        here = self.position[cell.id]
        question = self._with_text_above(here)
        above = question - 1
        if above >= 0 and self.template[above].role is Role.ANSWER:
            above = question  # text below the previous answer belongs to that answer
        later = (at for at in range(here + 1, len(self.template)) if self.template[at].role is Role.ANSWER)
        following = next(later, None)
        end = len(self.template) if following is None else max(self._with_text_above(following), here + 1)
        return above, question, end

    def _with_text_above(self, at: int) -> int:
        return at - 1 if at > 0 and is_courses_text(self.template[at - 1]) else at

    # ---- text answers beside their cells

    def _own_texts_at_the_end(self) -> list[Piece]:
        """Return the student's own texts at the end, where some collect answers; answer cells may be among them."""
        theirs = (None, Role.ANSWER)
        own = itertools.takewhile(lambda piece: (piece.place and piece.place.role) in theirs, reversed(self.pieces))
        texts = [piece.with_source(self._written(piece)) for piece in own if piece.place is None and not is_code(piece)]
        return texts[::-1]

    def _written(self, piece: Piece) -> str:
        """Return what the student wrote in a cell that may be a copy of a course cell."""
        courses = self.changed_text(piece)
        return own_lines(piece.source, given(courses.source)) if courses else piece.source

    def _look_elsewhere(self, cell: Cell, at_the_end: list[Piece]) -> None:
        """Fill a blank text answer with what the student wrote between its question and the next exercise. If that is
        nothing, take all text at the end of the notebook; a person decides what in it answers which question."""
        own = self.of(cell)
        if any(not is_blank(cell, piece.source) for piece in own):
            own[0].cell = NotebookNode(own[0].cell, source=as_text(own[0]))
            return
        start, _, end = self._region(cell)
        words: list[tuple[Piece, str]] = []
        for piece, reached in zip(list(self.pieces), self.reach(), strict=True):
            if not start <= reached < end or (reached == start and piece.place is not None):
                continue
            if piece.place is None and not piece.is_code:
                text = self._written(piece)
                if not is_blank(cell, text):
                    words.append((piece.with_source(text), piece.where))
                    self.pieces.remove(piece)
                elif not own and not self.changed_text(piece):  # the answer's own cell, without its id
                    self.pieces.remove(piece)
            elif piece.is_code and (text := words_of_code(piece)):
                where = "in a code cell" if piece.place is None else "in a code cell of the course"
                words.append((piece.with_source(text), where))
                if piece.place is None and not is_code(piece):
                    self.pieces.remove(piece)
        words = words or [
            (piece, "at the end of the notebook") for piece in at_the_end if not is_blank(cell, piece.source)
        ]
        if words:
            answer = one_text(words)
            if own:
                own[0].cell = answer
            else:
                self.found.answers[cell.id] = answer
            places = ", ".join(dict.fromkeys(where for _, where in words))
            self.found.notes.append(f"the answer {cell.grade_id} was not in the cell meant for it; found {places}")

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
        """Find answers in other cells: merged into one, which kept only its own metadata, or written into the wrong one.
        Each gets the cell's whole text without the answers to earlier exercises, which are judged, and replaced, by
        themselves; above it what else its own cell holds."""
        changed = {piece: piece.place for piece in self.pieces if piece.place and not is_unchanged(piece)}
        together: dict[Piece, list[Cell]] = {}
        beside: dict[str, list[str]] = {}  # helpers that were left in an answer's own cell
        names = frozenset(str(cell.grade_id) for cell in code)
        for cell in code:
            own = [piece for piece in self.of(cell) if not is_untouched(piece, cell)]
            if any(defines_answer(piece, cell, finished=True) for piece in own):
                continue
            if holding := [piece for piece in changed if defines_answer(piece, cell, finished=True)]:
                left = [without_names(piece.source, names).strip("\n") for piece in own if is_whole(piece.source)]
                beside[cell.id] = list(filter(None, left))
                together.setdefault(holding[-1], []).append(cell)
        moved = [cell for cells in together.values() for cell in cells]
        for piece, cells in together.items():
            place = changed[piece]
            stays = place.role is Role.ANSWER and place.cell_type == "code" and place not in moved
            members = sorted([*cells, place] if stays else cells, key=lambda cell: self.position[cell.id])
            for number, cell in enumerate(members):
                earlier = frozenset(str(member.grade_id) for member in members[:number])
                parts = [*(beside[cell.id] if cell in cells else ()), without_names(piece.source, earlier)]
                self.found.answers[cell.id] = piece.with_source("\n\n".join(parts), cell_type="code").cell
            where = piece.where if piece in self.elsewhere else f"in the cell {place.grade_id or place.id}"
            self.found.notes += [f"the answer {cell.grade_id} was found {where}" for cell in cells]

    def _note_later_definitions(self, code: list[Cell]) -> None:
        """Say which answers the student's own cells below define anew: what stands below the tests comes too late."""
        for cell in code:
            places = [index for index, piece in enumerate(self.pieces) if piece.place is cell]
            tests = [index for index, piece in enumerate(self.pieces) if is_test_of(piece, cell)]
            anew = [
                index
                for index, piece in enumerate(self.pieces)
                if piece.place is None and piece.is_code and places and defines_answer(piece, cell, True)
                if index > places[-1]
            ]
            last = max(tests, default=len(self.pieces))
            if any(index < last for index in anew):
                self.found.notes.append(
                    f"{cell.grade_id} is defined once more in a cell below its answer; the last one counts"
                )
            elif anew:
                self.found.notes.append(
                    f"{cell.grade_id} is defined once more below its tests; the one above them was graded"
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
                kind = "code" if answer.cell_type == "code" else "text"  # a raw cell is read as Markdown
                self.found.notes.append(f"the answer cell {cell.grade_id} had become a {kind} cell")
