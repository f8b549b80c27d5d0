"""A notebook with right answers, and ways in which editors, systems and hasty students damage one."""

import copy
import json
from functools import lru_cache
from pathlib import Path

from helpers import COURSE, WEEK3


@lru_cache(maxsize=8)
def read(kind: str, assignment: str) -> dict:
    """Read a notebook: as released from ``notebooks``, with answers from ``solutions``."""
    return json.loads((COURSE / kind / assignment / f"{assignment}.ipynb").read_text(encoding="utf-8"))


def grade_id(cell: dict) -> str | None:
    return cell["metadata"].get("nbgrader", {}).get("grade_id")


def id_near(name: str, how: str, assignment: str = WEEK3) -> str:
    """Return the id of the cell above ``name``, or of the first cell from there on with this tag or beginning."""
    cells = read("notebooks", assignment)["cells"]
    at = next(n for n, cell in enumerate(cells) if grade_id(cell) == name)
    if how == "above":
        return cells[at - 1]["id"]
    tagged = (c for c in cells[at:] if how in c["metadata"].get("tags", []) or "".join(c["source"]).startswith(how))
    return next(tagged)["id"]


class Mangled:
    """The released notebook with the solutions' answers, to be mangled; a cell's name is its grade_id or its id."""

    def __init__(self, assignment: str = WEEK3) -> None:
        self.assignment = assignment
        self.nb = copy.deepcopy(read("notebooks", assignment))
        answers = {grade_id(cell): "".join(cell["source"]) for cell in read("solutions", assignment)["cells"]}
        for cell in self.cells:
            cell["source"] = "".join(cell["source"])
            if cell["metadata"].get("nbgrader", {}).get("solution"):
                cell["source"] = answers[grade_id(cell)]

    @property
    def cells(self) -> list[dict]:
        return self.nb["cells"]

    def at(self, name: str) -> int:
        return next(n for n, cell in enumerate(self.cells) if name in (grade_id(cell), cell.get("id")))

    def source(self, name: str) -> str:
        return self.cells[self.at(name)]["source"]

    def stub(self, name: str) -> str:
        """Return the cell's source as students receive it."""
        return "".join(
            next(cell["source"] for cell in read("notebooks", self.assignment)["cells"] if grade_id(cell) == name)
        )

    def write_into(self, name: str, source: str) -> None:
        self.cells[self.at(name)]["source"] = source

    def blank(self, name: str) -> None:
        self.write_into(name, self.stub(name))

    def split(self, name: str, *parts: str) -> list[dict]:
        """Split a cell as JupyterLab does: every part gets the metadata."""
        at = self.at(name)
        pieces = [
            copy.deepcopy(self.cells[at]) | {"source": part, "id": f"{name}-{number}"}
            for number, part in enumerate(parts)
        ]
        self.cells[at : at + 1] = pieces
        return pieces

    def merge(self, first: str, last: str, keeps: str | None = None) -> None:
        """Merge cells as JupyterLab does: one of them keeps its metadata and type."""
        start, end = self.at(first), self.at(last) + 1
        kept = copy.deepcopy(self.cells[self.at(keeps or first)])
        kept["source"] = "\n\n".join(cell["source"] for cell in self.cells[start:end])
        self.cells[start:end] = [kept]

    def lose_ids(self) -> None:
        """Drop all ids and metadata, as editors with an older format do."""
        for cell in self.cells:
            cell["metadata"] = {}
            cell.pop("id", None)

    def insert(self, source: str, *, below: str = "", above: str = "", kind: str = "markdown", **more: object) -> None:
        """Insert a new cell of the student's own."""
        cell = {"cell_type": kind, "metadata": {}, "source": source, "id": f"new-{len(self.cells)}"} | more
        if kind == "code":
            cell |= {"outputs": [], "execution_count": None}
        self.cells.insert(self.at(below) + 1 if below else self.at(above), cell)

    def copy_to_the_end(self, name: str, source: str) -> None:
        self.cells.append(copy.deepcopy(self.cells[self.at(name)]) | {"source": source, "id": "copy"})

    def write(self, folder: Path, name: str = "") -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / (name or f"{self.assignment}.ipynb")
        path.write_text(json.dumps(self.nb, ensure_ascii=False), encoding="utf-8")
        return path
