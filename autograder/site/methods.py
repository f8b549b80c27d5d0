"""One page per method, for people who come from a search engine: formula, kernel, picture, pitfalls, further reading.

`methods.toml` says where the weeks and the docstrings have these, and adds what a reader needs who has not read the
week.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograder.manifest import MANIFEST
from autograder.site.cross_references import CrossReferences, slug
from autograder.site.kernels import Kernel
from autograder.site.pictures import Pictures
from autograder.site.week import Week

BARE_NUMBER = re.compile(r"(?:^|(?<=\d, )(?<!Figures \d\.\d, )(?<!Figures \d\.\d\d, ))\d+\.\d+(?=$|, )")


@dataclass(frozen=True)
class Method:
    """Where the course treats one method; `methods.toml` says what each field means."""

    slug: str
    name: str
    week: str
    equations: tuple[str, ...]
    kernels: tuple[str, ...]
    picture: str
    pitfalls: str
    gist: str
    symbols: tuple[str, ...] = ()


def _method(entry: dict[str, Any]) -> Method:
    """Make a method from an entry of the table; join the lines of its texts."""
    lists: dict[str, Any] = {
        key: tuple(map(_one_line, value)) for key, value in entry.items() if isinstance(value, list)
    }
    texts: dict[str, Any] = {key: _one_line(value) for key, value in entry.items() if key not in lists}
    return Method(**texts, **lists)


def _one_line(text: str) -> str:
    return " ".join(text.split())


with Path(__file__).with_name("methods.toml").open("rb") as table:
    METHODS = tuple(map(_method, tomllib.load(table)["method"]))


def method_page(
    method: Method,
    weeks: Mapping[str, Week],
    kernels: Mapping[str, Kernel],
    references: CrossReferences,
    pictures: Pictures,
) -> str:
    week = weeks[method.week]
    picture, caption = week.picture(method.picture)
    blocks = [
        f"(method-{method.slug})=\n# {method.name}",
        method.gist,
        "## The formula",
        *(_formula(method, week, tag) for tag in method.equations),
        "\n".join(["## The symbols\n", week.symbols, *(f"- {line}" for line in method.symbols)]),
        "## The picture",
        pictures.block(picture),
        caption,
        "## What goes wrong",
        "| You may read | What is true | Where |\n|---|---|---|\n"
        + "\n".join(f"| {' | '.join(_row(row))} |" for row in week.misreadings if re.search(method.pitfalls, row[0])),
        "## In code",
        "The bodies are the course's exercises.",
        *(kernels[name].directive(index=False) for name in method.kernels),
        "## In the course",
        f"[Week {week.number} · {week.title}](#week-{week.number}) derives it, tests it and measures it.",
        "\n".join(f"- {line}" for line in _exercises(method, week)),
    ]
    return "\n\n".join(_linked(block, week, references) for block in blocks) + "\n"


def method_list() -> str:
    """A table of all methods."""
    rows = [
        f"| [{method.name}](#method-{method.slug}) | {method.gist} | [{method.week}](#week-{method.week}) |"
        for method in METHODS
    ]
    return "\n".join(["| method | what it is | week |", "|---|---|---|", *rows])


def _formula(method: Method, week: Week, tag: str) -> str:
    source = f'<a href="../weeks/{week.assignment}.html#equation-{tag}">Week {week.number}, equation ({tag})</a>'
    # A final comma belongs to the sentence in the week, which goes on after the formula.
    formula = f"$$\n{week.equations[tag].rstrip(' ,')}\n$$\n\n{source}"
    before = week.before_equation(tag)
    return f"{before}\n\n{formula}" if is_whole(before) else formula


def is_whole(paragraph: str) -> bool:
    """Whether a paragraph makes sense without the text before it: it neither begins nor breaks off mid-sentence."""
    return paragraph.rstrip('"').endswith((".", ":", "?")) and not paragraph[0].islower()


def _row(row: tuple[str, ...]) -> list[str]:
    """Put "exercise" before a bare 3.4: notebooks mean an exercise by it, but other readers cannot know that."""
    *cells, where = row
    return [*cells, BARE_NUMBER.sub(r"exercise \g<0>", where)]


def _exercises(method: Method, week: Week) -> list[str]:
    numbers = {entry.number for entry in MANIFEST[week.assignment] if entry.grade_id in method.kernels}
    return [
        f"[Exercise {number}](#exercise-{slug(number)}) · {title}"
        for number, title in week.exercises.items()
        if number in numbers
    ]


def _linked(block: str, week: Week, references: CrossReferences) -> str:
    return block if block.startswith("`") else references.linked(block, week, elsewhere=True)
