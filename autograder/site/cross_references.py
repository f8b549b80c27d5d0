"""Links in the teaching text: "Figure 3.1", "equation (2)", "section 8", "exercise 3.4" and "week 5" lead there.

Notebooks have no links of that kind, so the words themselves are the reference. Code, formulas, headings and existing
links stay as they are.
"""

import re
from collections.abc import Callable, Mapping

from autograder.site.week import EXERCISE, FIGURE, SECTION, Week

APART = re.compile(
    r"(?P<apart>^```.*?^```$|^#[^\n]*$|\$\$.*?\$\$|(?<!\\)\$[^$\n]+\$|`[^`\n]+`|<a .*?</a>|<[^>\n]*>|\[[^\]\n]*\]\([^)\n]*\)|\[[^\]\n]*\](?=\())",
    re.DOTALL | re.MULTILINE,
)


def _reference(words: str, number: str, before: str = "", after: str = "") -> re.Pattern[str]:
    """The pattern of one of these words with one or more numbers: "Figures 2.7, 2.8", "weeks 3 and 4"."""
    return re.compile(rf"{before}\b(?:{words}) (?P<numbers>{number}(?:(?:, | and | to ){number})*){after}")


FIGURES = _reference("[Ff]igures?", r"\d+\.\d+")
# "Shaw et al., 2018, section 3" is a paper's section.
SECTIONS = _reference("[Ss]ections?", r"\d+", before=r"(?<!\d{4}, )", after=r"(?!\.?\d)")
WEEKS = _reference("[Ww]eeks?", r"\d", after=r"(?! ·)")
EQUATIONS = _reference("[Ee]quations?|[Ff]ormulas?|[Rr]ules?|[Ww]ish|[Bb]y|[Ii]n", r"\(\d+\)")
EXERCISES = _reference("[Ee]xercises?", r"\d+\.\d+")


class CrossReferences:
    """Turns the names of places in the course into links to them."""

    def __init__(self, weeks: Mapping[str, Week]) -> None:
        self._weeks = weeks
        self._figures = {number for week in weeks.values() for number in week.figures}
        self._exercises = {number for week in weeks.values() for number in week.exercises}

    def linked(self, text: str, week: Week, elsewhere: bool = False) -> str:
        """Markdown of ``week`` with its references as links. ``elsewhere``: for a page that is not the week's own."""
        pieces = APART.split(text)
        return "".join(piece if index % 2 else self._link(piece, week, elsewhere) for index, piece in enumerate(pieces))

    def _link(self, text: str, week: Week, elsewhere: bool) -> str:
        text = FIGURES.sub(lambda found: self._each(found, r"\d+\.\d+", self._figure), text)
        text = SECTIONS.sub(lambda found: self._each(found, r"\d+", lambda number: self._section(number, week)), text)
        text = WEEKS.sub(lambda found: self._each(found, r"\d", lambda number: self._week(number, week)), text)
        page = f"../weeks/{week.assignment}.html" if elsewhere else ""
        text = EQUATIONS.sub(
            lambda found: self._each(found, r"\(\d+\)", lambda tag: self._equation(tag, week, page)), text
        )
        return EXERCISES.sub(lambda found: self._each(found, r"\d+\.\d+", self._exercise), text)

    @staticmethod
    def _each(found: re.Match[str], number: str, link: Callable[[str], str]) -> str:
        before = found[0].removesuffix(found["numbers"])
        return before + re.sub(number, lambda one: link(one[0]) or one[0], found["numbers"])

    def _figure(self, number: str) -> str:
        return f"[{number}](#figure-{slug(number)})" if number in self._figures else ""

    def _exercise(self, number: str) -> str:
        return f"[{number}](#exercise-{slug(number)})" if number in self._exercises else ""

    @staticmethod
    def _section(number: str, week: Week) -> str:
        return f"[{number}](#section-{week.number}-{number})" if number in week.sections else ""

    def _week(self, number: str, week: Week) -> str:
        return f"[{number}](#week-{number})" if number in self._weeks and number != week.number else ""

    @staticmethod
    def _equation(tag: str, week: Week, page: str) -> str:
        return f'<a href="{page}#equation-{tag[1:-1]}">{tag}</a>' if tag[1:-1] in week.equations else ""


def with_targets(text: str, week: Week) -> str:
    """Markdown with a label before each heading of a section or an exercise, and before each caption."""
    text = FIGURE.sub(lambda found: f"(figure-{slug(found['number'])})=\n{found[0]}", text)
    text = EXERCISE.sub(lambda found: f"(exercise-{slug(found['number'])})=\n{found[0]}", text)
    return SECTION.sub(lambda found: f"(section-{week.number}-{found['number']})=\n{found[0]}", text)


def slug(number: str) -> str:
    return number.replace(".", "-")
