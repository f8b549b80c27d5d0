"""A page per method, for people who come from a search engine: formula, kernel, picture, pitfalls, and where to go on.

This table only says where these things stand. Every sentence comes from the weeks and from the kernels' docstrings.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from autograder.manifest import MANIFEST
from autograder.site.cross_references import CrossReferences, slug
from autograder.site.kernels import Kernel
from autograder.site.pictures import Pictures
from autograder.site.week import Week

BARE_NUMBER = re.compile(r"(?:^|(?<=\d, )(?<!Figures \d\.\d, )(?<!Figures \d\.\d\d, ))\d+\.\d+(?=$|, )")


@dataclass(frozen=True)
class Method:
    """Where the course speaks of one method: ``equations`` by tag, ``picture`` a ``moving_…`` or a figure's number."""

    slug: str
    name: str
    week: str
    equations: tuple[str, ...]
    kernels: tuple[str, ...]
    picture: str
    pitfalls: str  # a regular expression for the rows of "What people get wrong"
    section: str = ""  # the section that opens with it; none: the week's answer in one sentence is what it is


METHODS = (
    Method(
        "sinusoidal",
        "Sinusoidal positional encoding",
        "2",
        ("2", "5"),
        ("sinusoidal_positional_encoding", "shift_matrix"),
        "clocks",
        r"[Ss]inusoid|wavelength|dot product|odd width|Channels",
        section="2",
    ),
    Method(
        "learned-absolute",
        "Learned absolute position embeddings",
        "2",
        ("1",),
        ("LearnedPositionalEmbedding",),
        "2.8",
        r"[Ll]earned",
        section="6",
    ),
    Method(
        "rope",
        "Rotary position embeddings (RoPE)",
        "3",
        ("2", "3", "4"),
        ("apply_rotary_emb", "rope_frequencies", "apply_rotary_emb_half", "interleaved_to_half"),
        "clocks",
        r"RoPE|rotate_half|half layout|pairs|bfloat16|frequenc",
    ),
    Method(
        "alibi",
        "Attention with linear biases (ALiBi)",
        "4",
        ("1", "3"),
        ("alibi_slopes", "alibi_bias"),
        "slopes",
        r"slope|bias|ALiBi|Head 0|number of heads",
    ),
    Method(
        "position-interpolation",
        "Position interpolation (PI)",
        "5",
        ("2",),
        ("position_interpolation",),
        "frequencies",
        r"\bPI\b|never completed",
        section="2",
    ),
    Method(
        "ntk",
        "NTK-aware scaling",
        "5",
        ("3",),
        ("ntk_base",),
        "frequencies",
        r"^(The )?NTK",
        section="3",
    ),
    Method(
        "dynamic-ntk",
        "Dynamic NTK scaling",
        "5",
        ("4",),
        ("dynamic_ntk_base",),
        "frequencies",
        r"Dynamic NTK",
        section="4",
    ),
    Method(
        "yarn",
        "YaRN",
        "5",
        ("5", "6", "7", "8"),
        ("yarn_frequencies", "yarn_temperature"),
        "frequencies",
        r"YaRN|never completed",
        section="5",
    ),
    Method(
        "log-n",
        "Log-n scaling of attention",
        "5",
        ("10",),
        ("log_n_scale",),
        "5.13",
        r"log n",
        section="7",
    ),
    Method(
        "shaw",
        "Shaw's relative positions",
        "6",
        ("2",),
        ("shaw_attention", "relative_positions"),
        "6.1",
        r"Shaw|Relative encodings",
        section="2",
    ),
    Method(
        "transformer-xl",
        "Transformer-XL's relative attention",
        "6",
        ("3",),
        ("transformer_xl_scores", "rel_shift"),
        "6.2",
        r"rel_shift",
        section="3",
    ),
    Method(
        "t5",
        "T5's bucketed relative bias",
        "6",
        ("4", "1"),
        ("t5_bucket", "t5_attention"),
        "buckets",
        r"T5",
        section="4",
    ),
    Method(
        "deberta",
        "DeBERTa's disentangled attention",
        "6",
        ("5",),
        ("deberta_scores",),
        "6.6",
        r"DeBERTa",
        section="5",
    ),
)


def method_page(
    method: Method,
    weeks: Mapping[str, Week],
    kernels: Mapping[str, Kernel],
    references: CrossReferences,
    pictures: Pictures,
) -> str:
    week = weeks[method.week]
    picture, caption = _picture(method, week)
    blocks = [
        f"(method-{method.slug})=\n# {method.name}",
        _opening(method, week),
        "## The formula",
        *(_formula(method, week, tag) for tag in method.equations),
        f"## The symbols\n\n{week.symbols}",
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
    rows = [f"| [{method.name}](#method-{method.slug}) | [{method.week}](#week-{method.week}) |" for method in METHODS]
    return "\n".join(["| method | week |", "|---|---|", *rows])


def _opening(method: Method, week: Week) -> str:
    return week.opening(method.section) if method.section else week.answer


def _formula(method: Method, week: Week, tag: str) -> str:
    source = f'<a href="../weeks/{week.assignment}.html#equation-{tag}">Week {week.number}, equation ({tag})</a>'
    formula = f"$$\n{week.equations[tag]}\n$$\n\n{source}"
    before = week.before_equation(tag)
    return formula if before in ("", _opening(method, week)) else f"{before}\n\n{formula}"


def _picture(method: Method, week: Week) -> tuple[str, str]:
    return week.figure(method.picture) if "." in method.picture else week.moving_picture(method.picture)


def _row(row: tuple[str, ...]) -> list[str]:
    """In a notebook a bare 3.4 is an exercise; whoever comes from elsewhere is told so."""
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
