"""A page per method, for people who come from a search engine: formula, kernel, picture, pitfalls, "
"and where to go on"

This table says where these things stand, and adds what a reader needs who has not read the week: one opening that says
what the method is, and the symbols that the week explains elsewhere. All else comes from the weeks and the docstrings.
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
    """Where the course speaks of one method: ``equations`` by tag, ``picture`` a ``moving_…`` or a "
    "figure's number."""

    slug: str
    name: str
    week: str
    equations: tuple[str, ...]
    kernels: tuple[str, ...]
    picture: str
    pitfalls: str  # a regular expression for the rows of "What people get wrong"
    gist: str  # what it is, for someone who comes from elsewhere
    symbols: tuple[str, ...] = ()  # those of the formulas that the week's conventions leave out


METHODS = (
    Method(
        "sinusoidal",
        "Sinusoidal positional encoding",
        "2",
        ("2", "5"),
        ("sinusoidal_positional_encoding", "shift_matrix"),
        "clocks",
        r"[Ss]inusoid|wavelength|dot product|odd width|Channels",
        gist=(
            "Every position gets a fixed vector of sines and cosines, and it is added to the token. Each pair "
            "of channels is the hand of a clock: the first pairs turn fast and tell neighbours apart, the last "
            "turn slowly and tell far from near."
        ),
        symbols=(
            r"$\omega_t$ is the **frequency** of pair $t$, in radians per position.",
            r"$M_k$ is a $d\times d$ matrix with a rotation by $k\,\omega_t$ for each pair on its diagonal. It "
            "depends on the step $k$ alone, not on the position $p$.",
        ),
    ),
    Method(
        "learned-absolute",
        "Learned absolute position embeddings",
        "2",
        ("1",),
        ("LearnedPositionalEmbedding",),
        "2.8",
        r"[Ll]earned",
        gist=(
            "Every position has a trainable vector of its own, a row of a table, and it is added to the token. "
            "BERT and GPT-2 do it this way. Nobody has to think about waves; the price is a table with an end."
        ),
        symbols=(
            "$x_p$ is the embedding of the token at position $p$, $x'_p$ what the first layer sees. "
            r"$\mathrm{PE}(p)$ is row $p$ of the table, which has `max_len` rows.",
        ),
    ),
    Method(
        "rope",
        "Rotary position embeddings (RoPE)",
        "3",
        ("2", "3", "4"),
        ("apply_rotary_emb", "rope_frequencies", "apply_rotary_emb_half", "interleaved_to_half"),
        "clocks",
        r"RoPE|rotate_half|half layout|pairs|bfloat16|frequenc",
        gist=(
            "RoPE turns every query and every key by an angle proportional to its position. Their dot product "
            "then depends on how far apart the two tokens are, not on where they stand."
        ),
        symbols=(
            r"$\theta$ is a **frequency**, in radians per position, and $\theta_i$ that of pair $i$. "
            r"$R(\varphi)$ rotates by the angle $\varphi$.",
            r"$f(q,m)$ is the query $q$ after its rotation at position $m$. $\langle a, b\rangle$ is the dot "
            "product of $a$ and $b$.",
            r"$\alpha$ and $\beta$ are the directions of one pair of the query and of the key before the "
            "rotation: their content.",
            "An **echo** is a far offset at which the fastest pair has made a whole number of turns more, so "
            "that a wrong key looks like the right one.",
        ),
    ),
    Method(
        "alibi",
        "Attention with linear biases (ALiBi)",
        "4",
        ("1", "3"),
        ("alibi_slopes", "alibi_bias"),
        "slopes",
        r"slope|bias|ALiBi|Head 0|number of heads",
        gist=(
            "ALiBi adds nothing to the tokens. It subtracts from every score a penalty that grows linearly with "
            "the distance, and each head has a fixed slope of its own."
        ),
        symbols=(
            "$s_{ij}$ is the score, $q_i$ a query, $k_j$ a key. $m_k$ is the slope of head $k$, counted from 1; "
            "the formula is for a number of heads that is a power of two.",
        ),
    ),
    Method(
        "position-interpolation",
        "Position interpolation (PI)",
        "5",
        ("2",),
        ("position_interpolation",),
        "frequencies",
        r"\bPI\b|never completed",
        gist=(
            "To read a text $s$ times as long as those in training, divide every position by $s$: no distance "
            "is then longer than the model has seen. The price is that neighbours move closer together, so Chen "
            "et al. (2023) fine-tune after the change."
        ),
    ),
    Method(
        "ntk",
        "NTK-aware scaling",
        "5",
        ("3",),
        ("ntk_base",),
        "frequencies",
        r"^(The )?NTK",
        gist=(
            "NTK-aware scaling (bloc97, 2023) stretches RoPE by a larger base instead of smaller positions. The "
            "fastest pair "
            "keeps its frequency, and every later pair slows down more, the last one by exactly $s$."
        ),
        symbols=(
            "$b$ is the base that the model was trained with, $b'$ the new one. Pair $i$ then has the frequency "
            "$b'^{-2i/d}$.",
        ),
    ),
    Method(
        "dynamic-ntk",
        "Dynamic NTK scaling",
        "5",
        ("4",),
        ("dynamic_ntk_base",),
        "5.3",
        r"Dynamic NTK",
        gist=(
            "Dynamic NTK is NTK-aware scaling with a stretch that follows the text: none up to the training "
            "length, then more with every token. Short texts keep the angles that the model was trained with."
        ),
        symbols=(
            "$b$ is the base that the model was trained with, $b'(n)$ the base at length $n$.",
            "$c$ is the argument `scale`. It is not the stretch: it says how fast the stretch $s(n)$ grows. "
            "With $c=1$ the stretch is $n/L$.",
        ),
    ),
    Method(
        "yarn",
        "YaRN",
        "5",
        ("5", "6", "7", "8"),
        ("yarn_frequencies", "yarn_temperature"),
        "frequencies",
        r"YaRN|never completed",
        gist=(
            "YaRN (Peng et al., 2023) treats each pair of RoPE by the number of turns it makes within the "
            "training length. Pairs "
            "with many turns stay as they are, pairs with less than one turn are divided by the stretch $s$, and a "
            "linear **ramp** mixes the two between. A temperature sharpens attention a little."
        ),
        symbols=(
            r"$\dim(r)$ is the number of the pair that makes $r$ turns within $L$; it need not be whole.",
            r"$\beta_\text{fast}=32$ and $\beta_\text{slow}=1$ are numbers of turns: with more than the first a "
            "pair is left alone, with fewer than the second it is divided by $s$.",
            r"$\gamma_i$ is the **ramp**: 0 leaves pair $i$ alone, 1 divides its frequency by $s$. $\theta_i'$ "
            "is its new frequency.",
            "$t(s)$ is the **temperature**. Cosine and sine are both multiplied by it, so the logits get its square.",
        ),
    ),
    Method(
        "log-n",
        "Log-n scaling of attention",
        "5",
        ("10",),
        ("log_n_scale",),
        "5.13",
        r"log n",
        gist=(
            "In a longer text more keys share the softmax, and the weight of the one that matters falls, even "
            "where every angle is right. The remedy is to multiply all logits, the scores before softmax, by "
            r"$\log n/\log n_0$. Su (2021) derived the factor. Adding a constant would change nothing."
        ),
        symbols=(
            r"$\lambda(n)$ is the factor for all logits at length $n$. $n_0$ is a length at which the model is "
            "at home, say its training length.",
        ),
    ),
    Method(
        "shaw",
        "Shaw's relative positions",
        "6",
        ("2",),
        ("shaw_attention", "relative_positions"),
        "6.1",
        r"Shaw|Relative encodings",
        gist=(
            "Shaw's method learns a vector for every relative position and adds it to the key, and a second one "
            "to the value. Offsets beyond a clip share the end rows, so a longer text meets no unknown row."
        ),
        symbols=(
            "$s_{ij}$ is the score, $w_{ij}$ its weight after softmax. $q_i$, $k_j$ and $v_j$ are query, key "
            "and value.",
            "$a^K$ and $a^V$ are the two learned tables, for keys and values, of $2c+1$ rows. $c$ is the clip "
            "and $t$ the row.",
        ),
    ),
    Method(
        "transformer-xl",
        "Transformer-XL's relative attention",
        "6",
        ("3",),
        ("transformer_xl_scores", "rel_shift"),
        "6.2",
        r"rel_shift",
        gist=(
            r"Transformer-XL starts from the score with absolute positions, $(x_i+p_i)W_q\cdot(x_j+p_j)W_k$, "
            "which multiplies out to four terms, and makes each of them relative. The position of the key "
            "becomes an encoding of the distance; the position of the query becomes a learned vector."
        ),
        symbols=(
            "$x_i$ is a token and $p_i$ its position's vector; $W_q$ and $W_k$ make queries and keys. $q_i$ is "
            "the query, $k_j$ the key, $s_{ij}$ the score.",
            "$R_t$ is the sinusoid of the distance $t$, and $W_{kR}$ its own projection. $u$ and $v$ are "
            "learned vectors of each head; this $v$ is no value.",
        ),
    ),
    Method(
        "t5",
        "T5's bucketed relative bias",
        "6",
        ("4", "1"),
        ("t5_bucket", "t5_attention"),
        "buckets",
        r"T5",
        gist=(
            "T5 adds one learned number to each score, and nothing else. Which number depends on the head and "
            "on the **bucket** of the relative position: near offsets have a bucket each, far ones share."
        ),
        symbols=(
            r"$h$ is the head, $b_{h,\,\text{bucket}}$ its learned number for that bucket. There is no $\sqrt "
            "d$: T5 does not scale.",
            "A **side** is all keys behind the query, or all keys ahead of it. $B$ is the number of buckets of "
            "a side: an encoder gives each side half of `num_buckets`, a causal decoder gives all of them to "
            "the keys behind.",
            "$M$ is `max_distance`, 128 by default. In equation (1) $m$ is the distance $|j-i|$.",
        ),
    ),
    Method(
        "deberta",
        "DeBERTa's disentangled attention",
        "6",
        ("5",),
        ("deberta_scores",),
        "6.6",
        r"DeBERTa",
        gist=(
            "DeBERTa keeps content and position apart, and scores them in three terms: content with content, "
            "the query's content with the offset, and the key's content with the offset. Position with position "
            "is left out."
        ),
        symbols=(
            "$p^k$ and $p^q$ are projections of one learned table of $2s$ rows. $s$ is the span, and "
            r"$\delta(i,j)$ the row.",
            r"$s_{ij}$ is the score. Three terms are added, so it is divided by $\sqrt{3d}$.",
        ),
    ),
    Method(
        "partial-rotary",
        "Partial rotary embeddings",
        "8",
        ("1",),
        ("partial_rotary_emb",),
        "8.1",
        r"[Pp]artial",
        gist=(
            "Partial rotary embedding rotates only some channels of every head, a quarter of them in GPT-NeoX. "
            "The channels that stay still compare content only, the same at every distance."
        ),
        symbols=(
            r"$r$ is the number of rotated channels (`rotary_dim`), and $\theta_i$ the frequency of pair $i$ "
            "among them. The exponent has $r$, not $d$: so the pairs cover the whole range from fast to slow.",
        ),
    ),
    Method(
        "m-rope",
        "M-RoPE: positions on three axes",
        "8",
        ("2",),
        ("mrope_positions", "apply_mrope"),
        "axes",
        r"M-RoPE",
        gist=(
            "M-RoPE (Wang et al., 2024, for Qwen2-VL) gives every token of a video three positions, time, "
            "height and width, and shares out the "
            "pairs of a head among these axes. Text has the same number on all three, and for text it is "
            "ordinary RoPE."
        ),
        symbols=(
            r"$p$ numbers the pairs from 0, and $a(p)$ is the axis of pair $p$. $\varphi_p$ is the angle by "
            "which that pair turns.",
        ),
    ),
    Method(
        "streaming",
        "Sliding windows, attention sinks and streaming caches",
        "8",
        ("3",),
        ("sliding_window_mask", "softmax_with_sink", "streaming_cache"),
        "conveyor",
        r"sink|window|streaming|ring buffer",
        gist=(
            "A chat that runs all day has no last token, and its cache cannot grow for ever. A **sliding "
            "window** shows each query the last keys alone; an **attention sink** takes up weight that no key "
            "deserves; a "
            "**streaming cache** keeps the first tokens and the last (Xiao et al., 2024)."
        ),
        symbols=(
            "$s_j$ is the score of key $j$, $w_j$ its weight. $b$ is the **sink**: one learned logit per head "
            "that belongs to no key. The weights of the keys then add up to less than 1.",
        ),
    ),
    Method(
        "mla",
        "Multi-head latent attention (MLA)",
        "8",
        ("4", "5", "6"),
        ("mla_attention",),
        "absorbed",
        r"MLA",
        gist=(
            "Multi-head latent attention (DeepSeek-AI, 2024) stores no head's keys or values. Its cache holds "
            "one short **latent** "
            "vector per token, and a small rotated key that all heads share. The query is carried into the "
            "space of the latents, and no key is ever made."
        ),
        symbols=(
            "$c_j$ is the latent of token $j$. $W^{UK}_h$ and $W^{UV}_h$ make the key $k_{hj}$ and the value "
            "$v_{hj}$ of head $h$ from it.",
            "$q_h$ and $k_{hj}$ have $d_n$ channels and no position. $q'_h$ and $k'_j$ have $d_r$ channels and "
            "are rotated already; $k'_j$ is the same for all heads.",
            "$s_{hj}$ is the score of head $h$ for token $j$.",
        ),
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
    # A comma belongs to the sentence that goes on in the week.
    formula = f"$$\n{week.equations[tag].rstrip(' ,')}\n$$\n\n{source}"
    before = week.before_equation(tag)
    return f"{before}\n\n{formula}" if is_whole(before) else formula


def is_whole(paragraph: str) -> bool:
    """Whether a paragraph can stand before its formula alone: it does not begin or break off in the middle."""
    return paragraph.rstrip('"').endswith((".", ":", "?")) and not paragraph[0].islower()


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
