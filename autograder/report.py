"""The class report: one self-contained page for the instructor on how a week went."""

import io
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import matplotlib
import nbformat

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from autograder.course import exercises, is_week
from autograder.grading.plugins.code import code_in
from autograder.grading.plugins.gradebook import Score
from autograder.item_analysis import FEW, Item, Verdicts, item_analysis, with_before, write_table
from autograder.manifest import Exercise

TEMPLATES = Path(__file__).parent / "templates"
BAR, REST = "#0072B2", "#D5DCE3"  # colour-blind safe; the rest of a bar is lighter, so print works too


@dataclass
class ExerciseSummary:
    """One exercise over the class: its mean points, and the causes that were named, with their counts."""

    entry: Exercise
    graded: int = 0
    waiting: int = 0
    mean: float = 0.0
    full: int = 0
    unread: bool = False  # answers wait for a person, and only blank ones have points so far
    causes: list[tuple[str, int]] = field(default_factory=list)


def write_report(root: Path, assignment: str, standing: list[Score], isolated: bool = True) -> Path:
    """Write ``report/ASSIGNMENT.html`` and the item analysis as CSV in the course root; returns the page's path."""
    graded = [score for score in standing if score.score is not None]
    verdicts, read = read_autograded(root, assignment, graded)
    exercises = summaries(root, assignment, graded, verdicts, read)
    path = root / "report" / f"{assignment}.html"
    path.parent.mkdir(exist_ok=True)
    items = _items(root, assignment, graded, verdicts, read, path.with_name(f"{assignment}-items.csv"))
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)
    environment.filters["code_in"] = code_in
    page = environment.get_template("report.html.j2").render(
        assignment=assignment,
        isolated=isolated,
        own_tests=not is_week(assignment),
        graded=graded,
        exercises=exercises,
        ungradable=[score for score in standing if score.score is None],
        waiting=[score for score in graded if score.to_grade_by_hand],
        distribution=_svg(_distribution(graded)),
        per_exercise=_svg(_per_exercise(exercises)),
        items=[item for item in items if item.kind != "cause"],
        changed=[item for item in items if item.has_changed and item.kind != "criterion"],
        few=FEW,
    )
    path.write_text(page, encoding="utf-8")
    return path


def summaries(
    root: Path, assignment: str, graded: list[Score], verdicts: Verdicts, read: Counter[str]
) -> list[ExerciseSummary]:
    """Summarise every exercise of the week over the graded submissions."""
    causes: dict[str, Counter[str]] = defaultdict(Counter)
    for cells in verdicts.values():
        for cell_id, verdict in cells.items():
            causes[cell_id].update(verdict.get("named", []))
    found = []
    for entry in exercises(root, assignment):
        summary = ExerciseSummary(entry, causes=causes[entry.graded_cell].most_common())
        standing = [score.by_cell or {} for score in graded]
        points = [cells[entry.graded_cell] for cells in standing if entry.graded_cell in cells]
        given = [value for value in points if value is not None]
        summary.graded, summary.waiting = len(given), len(points) - len(given)
        summary.mean = sum(given) / len(given) if given else 0.0
        summary.full = sum(value == entry.points for value in given)
        summary.unread = bool(summary.waiting) and not read[entry.graded_cell]
        found.append(summary)
    return found


def _items(
    root: Path, assignment: str, graded: list[Score], verdicts: Verdicts, read: Counter[str], table: Path
) -> list[Item]:
    if not graded:
        return []
    items = with_before(item_analysis(exercises(root, assignment), graded, verdicts, read), table)
    write_table(items, table)
    return items


def read_autograded(root: Path, assignment: str, graded: list[Score]) -> tuple[Verdicts, Counter[str]]:
    """Read the autograded notebooks: return the verdicts by student and cell, and how many answers of each cell have
    points and are not blank."""
    verdicts: Verdicts = {}
    read: Counter[str] = Counter()
    for score in graded:
        path = root / "autograded" / score.student / assignment / f"{assignment}.ipynb"
        cells = nbformat.read(path, as_version=4).cells if path.is_file() else []
        verdicts[score.student] = {cell.id: cell.metadata["verdict"] for cell in cells if "verdict" in cell.metadata}
        blank = {
            cell.metadata.get("nbgrader", {}).get("grade_id")
            for cell in cells
            if cell.metadata.get("unanswered") is True
        }
        read.update(cell for cell, points in (score.by_cell or {}).items() if points is not None and cell not in blank)
    return verdicts, read


def _distribution(graded: list[Score]) -> Figure:
    figure, axes = plt.subplots(figsize=(7, 2.8))
    best = graded[0].max_score if graded else 1
    points = [score.score for score in graded if score.score is not None]
    counts = Counter(min(int(10 * value / best), 9) if best else 0 for value in points)
    axes.bar([best * (k + 0.5) / 10 for k in range(10)], [counts[k] for k in range(10)], width=best / 10.8, color=BAR)
    axes.set(xlabel=f"points so far (of {best:g})", ylabel="students", xlim=(0, best), title="Score distribution")
    axes.yaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _per_exercise(exercises: list[ExerciseSummary]) -> Figure:
    figure, axes = plt.subplots(figsize=(7, 0.34 * len(exercises) + 1.1))
    names = [f"{summary.entry.number} {summary.entry.grade_id}" for summary in exercises]
    shares = [0 if summary.unread else 100 * summary.mean / summary.entry.points for summary in exercises]
    axes.barh(names, [0 if summary.unread else 100 for summary in exercises], color=REST)
    axes.barh(names, shares, color=BAR)
    for place, summary in enumerate(exercises):
        note = f"{summary.mean:.1f} of {summary.entry.points}" if summary.graded else "no points yet"
        note += f", {summary.waiting} not read yet" if summary.waiting else ""
        if summary.unread:
            note = "not read yet"
            axes.barh(place, 100, fill=False, hatch="//", edgecolor=REST, linewidth=0)
        axes.text(101, place, note, va="center", fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="mean share of the points (%)", xlim=(0, 100), title="Points per exercise")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _svg(figure: Figure) -> str:
    with io.StringIO() as target:
        figure.savefig(target, format="svg", bbox_inches="tight", metadata={"Date": None})
        plt.close(figure)
        text = target.getvalue()
    return text[text.index("<svg") :]
