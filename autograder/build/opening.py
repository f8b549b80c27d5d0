"""The time, topic and points of a week, which the build writes from the manifest into a notebook's opening."""

import re

from autograder.manifest import MANIFEST, OUTLINES, Exercise

MARK = re.compile(r"<!-- (?P<what>costs|points) of (?P<assignment>\w+) -->(?:\n\n.*?\n\n<!-- end -->)?", re.DOTALL)


def with_tables(text: str) -> str:
    """Return the text of a cell with the generated block after each mark."""
    return MARK.sub(lambda mark: f"{_bare(mark)}\n\n{BLOCKS[mark['what']](mark['assignment'])}\n\n<!-- end -->", text)


def without_tables(text: str) -> str:
    """The inverse of ``with_tables``."""
    return MARK.sub(_bare, text)


def costs(assignment: str) -> str:
    """Two lines for the first screen: time, points and topic."""
    outline, exercises = OUTLINES[assignment], MANIFEST[assignment]
    minutes = sum(exercise.minutes for exercise in exercises)
    return (
        f"**It costs** about {hours(assignment):g} hours: {minutes} minutes of exercises, {outline.reading} of reading and "
        f"experiments.  \n**It earns** {_sum(exercises)} points. **It covers** {outline.about}."
    )


def points(assignment: str) -> str:
    """A heading and two short tables: what hidden tests grade, and what a person reads."""
    exercises = MANIFEST[assignment]
    texts = tuple(exercise for exercise in exercises if exercise.kind == "text")
    others = tuple(exercise for exercise in exercises if exercise.kind != "text")
    blocks = [f"## The exercises: {_sum(exercises)} points"]
    for title, found in (("Hidden tests grade code and numbers", others), ("A person reads the text answers", texts)):
        rows = [f"| {one.number} | `{one.grade_id}` | {one.points:g} | {one.minutes} |" for one in found]
        blocks += [f"**{title}: {_sum(found)} points.**", "\n".join([TABLE_HEAD, *rows])]
    return "\n\n".join(blocks)


def hours(assignment: str) -> float:
    """The hours that a week takes, to the half hour."""
    minutes = sum(exercise.minutes for exercise in MANIFEST[assignment]) + OUTLINES[assignment].reading
    return round(minutes / 30) / 2


TABLE_HEAD = "| # | exercise | points | minutes |\n|---|---|---|---|"
BLOCKS = {"costs": costs, "points": points}


def _bare(mark: re.Match[str]) -> str:
    return f"<!-- {mark['what']} of {mark['assignment']} -->"


def _sum(exercises: tuple[Exercise, ...]) -> str:
    return f"{sum(exercise.points for exercise in exercises):g}"
