"""The class report: one self-contained page for the instructor on how a week went."""

import io
from collections import Counter
from pathlib import Path

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
from autograder.pages import filled

BAR, REST = "#0072B2", "#D5DCE3"  # colour-blind safe; the rest of a bar is lighter, so print works too


def write_report(root: Path, assignment: str, standing: list[Score], isolated: bool = True) -> Path:
    """Write ``report/ASSIGNMENT.html`` and the item analysis as CSV in the course root; returns the page's path."""
    graded = [score for score in standing if score.score is not None]
    verdicts, read = read_autograded(root, assignment, graded)
    entries = exercises(root, assignment)
    items = item_analysis(entries, graded, verdicts, read)
    path = root / "report" / f"{assignment}.html"
    path.parent.mkdir(exist_ok=True)
    if graded:
        table = path.with_name(f"{assignment}-items.csv")
        items = with_before(items, table)
        write_table(items, table)
    page = filled(
        "report.html.j2",
        code_in=code_in,
        assignment=assignment,
        isolated=isolated,
        own_tests=not is_week(assignment),
        graded=graded,
        in_words={entry.grade_id for entry in entries if entry.kind == "text"},
        ungradable=[score for score in standing if score.score is None],
        waiting=[score for score in graded if score.to_grade_by_hand],
        distribution=_svg(_distribution(graded)),
        per_exercise=_svg(_per_exercise([item for item in items if item.kind == "exercise"])),
        items=items,
        changed=[item for item in items if item.has_changed and item.kind != "criterion"],
        few=FEW,
    )
    path.write_text(page, encoding="utf-8")
    return path


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
        read.update(cell for cell, points in score.by_cell.items() if points is not None and cell not in blank)
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


def _per_exercise(items: list[Item]) -> Figure:
    figure, axes = plt.subplots(figsize=(7, 0.34 * len(items) + 1.1))
    names = [f"{item.number} {item.exercise}" for item in items]
    unread = [item.value is None and item.waiting > 0 for item in items]
    axes.barh(names, [0 if is_unread else 100 for is_unread in unread], color=REST)
    axes.barh(names, [100 * (item.value or 0.0) for item in items], color=BAR)
    for place, item in enumerate(items):
        note = "no points yet" if item.mean is None else f"{item.mean:.1f} of {item.points}"
        note += f", {item.waiting} not read yet" if item.waiting else ""
        if unread[place]:
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
