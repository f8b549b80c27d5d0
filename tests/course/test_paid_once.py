"""In every week a mistake is paid for once: a wrong answer, with right ones on top of it, costs only its own points."""

import importlib

import pytest
from course.calling import CALLED, CALLING

from autograder import reference
from autograder.grading.marking.marking import grading
from autograder.grading.marking.replay import replay
from autograder.manifest import MANIFEST, entry
from autograder.misconceptions.bank import NAMES, bank, carried, known_mistakes
from autograder.script.script import Exercise

pytestmark = pytest.mark.usefixtures("one_thread")

READY = {name: getattr(reference, name) for name in ("apply_rotary_emb", "ALiBiMultiHeadAttention")}  # in week 7
STUB = "def {name}(*arguments, **options):\n    raise NotImplementedError\n"
CASES = [
    (week, name, wrong)
    for week, names in CALLED.items()
    for name in names
    for wrong in [
        STUB.format(name=name),
        f"def {name}(*a, **o):\n    return 1 / 0\n",
        *[s.source for s in bank(week, name) if not s.is_right][::4],
        *[s.source for s in bank(week, name) if s.forgets_device][:1],
    ]
]


def grade_all(week, sources, wrong_name, wrong):
    """Return the verdicts on the wrong answer and on the others, all in one notebook's namespace."""
    space = NAMES | (READY if week == "week7_capstone" else {})
    for name, source in sources.items():
        exec(wrong if name == wrong_name else source, space)
    checks, verdicts = importlib.import_module(f"autograder.checks.{week.split('_')[0]}"), {}
    with grading(5):
        for name in (wrong_name, *(name for name in sources if name != wrong_name)):
            verdicts[name] = getattr(checks, name)(space[name])
    return verdicts


def right_sources(week):
    """Return right entries of the bank for the answers that are called, and the answers that call them."""
    first = {name: next(s.source for s in bank(week, name) if s.score is None) for name in CALLED[week]}
    return first | CALLING[week]


@pytest.mark.parametrize("week", CALLING)
def test_the_answers_that_call_are_right(week):
    sources, first = right_sources(week), CALLED[week][0]
    for name, verdict in grade_all(week, sources, first, sources[first]).items():
        assert verdict.score == verdict.max_score and not verdict.note, (name, verdict.render())


@pytest.mark.parametrize(
    "case",
    [case if at % 6 == 0 else pytest.param(case, marks=pytest.mark.nightly) for at, case in enumerate(CASES)],
    ids=lambda case: f"{case[1]}-{CASES.index(case)}",
)
def test_one_wrong_answer_costs_its_own_points_alone(case):
    week, name, wrong = case
    for other, verdict in grade_all(week, right_sources(week), name, wrong).items():
        if other == name:
            assert verdict.score < entry(week, name).points
        else:
            assert verdict.score == verdict.max_score, verdict.render()


def test_a_mistake_on_top_of_a_blank_answer_is_paid_for_and_the_note_says_where_it_stops():
    mistake = right_sources("week3_rope") | {
        "apply_rotary_emb": CALLING["week3_rope"]["apply_rotary_emb"].replace("even * cos - odd", "even * cos + odd")
    }
    wrong = grade_all("week3_rope", mistake, "rope_frequencies", STUB.format(name="rope_frequencies"))[
        "apply_rotary_emb"
    ]
    assert (
        wrong.score < 6
        and "not answered yet" in wrong.note
        and "not answered" not in " ".join(criterion.message for criterion in wrong.criteria)
    )


def test_an_answer_that_makes_up_for_one_of_two_earlier_mistakes_pays_for_neither():
    week = "week4_alibi"
    sources = right_sources(week)
    sources["alibi_bias"] = sources["alibi_bias"].replace("return -alibi", "return alibi")
    sources["ALiBiMultiHeadAttention"] = sources["ALiBiMultiHeadAttention"].replace("+ alibi_bias", "- alibi_bias")
    from_zero = next(s.source for s in bank(week, "alibi_slopes") if s.name == "slopes_from_zero")
    layer = grade_all(week, sources, "alibi_slopes", from_zero)["ALiBiMultiHeadAttention"]
    assert layer.score == layer.max_score and "alibi_slopes" in layer.note and "alibi_bias" not in layer.note


@pytest.mark.parametrize(
    ("number", "blank", "later"),
    [
        ("3.2", "rope_frequencies", ["apply_rotary_emb"]),
        ("6.2", "relative_positions", ["shaw_attention", "transformer_xl_scores", "t5_attention"]),
        ("6.4", "rel_shift", ["transformer_xl_scores"]),
        ("6.6", "t5_bucket", ["t5_attention"]),
        ("7.1", "grouped_query_attention", ["CrossAttention", "CachedAttention", "HybridDecoderBlock"]),
        ("7.6", "CrossAttention", ["HybridDecoderBlock"]),
    ],
)
def test_the_note_says_where_an_answer_stops(number, blank, later):
    week = next(name for name in MANIFEST if name.startswith(f"week{number[0]}_"))
    verdicts = grade_all(week, right_sources(week), blank, STUB.format(name=blank))
    assert verdicts[blank].score == 0
    for name in later:
        assert verdicts[name].score == verdicts[name].max_score and not verdicts[name].named
        assert verdicts[name].note == (
            f"It stops in your {number} (`{blank}`), which is not answered yet; graded with the course's own in its place."
        )


@pytest.mark.parametrize(
    ("called", "name", "line", "changed"),
    [
        ("apply_rotary_emb", "apply_rotary_emb_half", "dim=-1).flatten(-2), ", "dim=-1).flatten(), "),
        ("rope_frequencies", "decode_step_scores", "positions[-1:]", "positions[:1]"),
    ],
)
def test_of_two_mistakes_each_has_the_cause_that_it_has_alone(called, name, line, changed):
    sources = right_sources("week3_rope")
    sources[name] = sources[name].replace(line, changed)
    alone = grade_all("week3_rope", sources, called, sources[called])[name]
    for earlier in [s.source for s in bank("week3_rope", called) if not s.is_right][::3]:
        both = grade_all("week3_rope", sources, called, earlier)[name]
        assert (both.score, both.named) == (alone.score, alone.named), both.render()


def test_an_answer_that_is_blank_itself_is_blank():
    sources = right_sources("week3_rope") | {"apply_rotary_emb": STUB.format(name="apply_rotary_emb")}
    verdict = grade_all("week3_rope", sources, "rope_frequencies", STUB.format(name="rope_frequencies"))[
        "apply_rotary_emb"
    ]
    assert verdict.score == 0 and not verdict.note and verdict.criteria[0].message.startswith("not answered yet")


# ---- the same slip typed again --------------------------------------------------------------------------------------

HALVED = """
def rope_frequencies(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("pairs")
    return base ** (-torch.arange(head_dim // 2) / head_dim)
"""
TURNED = """
def {name}(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("pairs")
    d = x.shape[-1]
    angles = positions.double()[..., None] * base ** (-torch.arange(d // 2, device=x.device).double() / d)
    angles = angles[:, None] if positions.ndim == 2 else angles
    a, b = {split}
    a, b = a.double(), b.double()
    turned = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
    return {joined}.to(x.dtype)
"""
NEIGHBOURS = ("x[..., 0::2], x[..., 1::2]", "torch.stack(turned, dim=-1).flatten(-2)")
HALVES = ("x.chunk(2, dim=-1)", "torch.cat(turned, dim=-1)")
SHIFT = next(s.source for s in bank("week6_relative_bias", "rel_shift") if s.name == "shift_queries_for_keys")
XL = """
def transformer_xl_scores(q, k, r, content_bias, position_bias):
    x = (q + position_bias[:, None]) @ r.flip(1).mT
    b, h, n_queries, n_keys = x.shape
    padded = F.pad(x, (1, 0)).reshape(b, h, n_queries + 1, n_keys)
    position = padded[:, :, 1:].reshape(b, h, n_queries, n_keys)
    return ((q + content_bias[:, None]) @ k.mT + position) / math.sqrt(q.shape[-1])
"""
ROLLED = next(s.source for s in bank("week6_relative_bias", "rel_shift") if s.name == "shift_rolled")
XL_ROLLED = """
def transformer_xl_scores(q, k, r, content_bias, position_bias):
    x = (q + position_bias[:, None]) @ r.flip(1).mT
    position = torch.stack([x[:, :, i].roll(-i, -1) for i in range(x.shape[2])], dim=2)
    return ((q + content_bias[:, None]) @ k.mT + position) / math.sqrt(q.shape[-1])
"""
AGAIN = {  # exercises in order, each with its source and its points
    "week3_halved": {
        "rope_frequencies": (HALVED, 0),
        "apply_rotary_emb": (TURNED.format(name="apply_rotary_emb", split=NEIGHBOURS[0], joined=NEIGHBOURS[1]), 6),
        "apply_rotary_emb_half": (TURNED.format(name="apply_rotary_emb_half", split=HALVES[0], joined=HALVES[1]), 2),
    },
    "week6_queries_for_keys": {"rel_shift": (SHIFT, 1.75), "transformer_xl_scores": (XL, 4)},
    "week6_rolled": {"rel_shift": (ROLLED, 0), "transformer_xl_scores": (XL_ROLLED, 4)},
}


@pytest.mark.parametrize("slip", AGAIN)
def test_the_same_slip_typed_again_is_paid_for_once(slip):
    space, checks = dict(NAMES), importlib.import_module(f"autograder.checks.{slip.split('_')[0]}")
    with grading(5):
        for number, (name, (source, points)) in enumerate(AGAIN[slip].items()):
            exec(source, space)
            verdict = getattr(checks, name)(space[name])
            assert verdict.score == points, verdict.render()
            assert ("The same mistake as in your" in verdict.note) == bool(number)


@pytest.mark.parametrize("week", MANIFEST)
def test_what_is_carried_is_named_in_two_exercises_of_the_week(week):
    sentences = [
        {says for mistake in known_mistakes(week, one.grade_id) for says in mistake.says} for one in MANIFEST[week]
    ]
    for sentence in carried(week):
        assert sum(sentence in known for known in sentences) >= 2, sentence


KINDS = (RuntimeError, ValueError, TypeError, IndexError)


def raising(kind):
    def raises(*arguments, **options):
        raise kind("whatever")

    return raises


@pytest.mark.nightly
@pytest.mark.parametrize("week", MANIFEST)
def test_an_answer_that_answers_nothing_earns_nothing_on_top_of_what_is_carried(week):
    """Grade empty answers on top of a mistake that an earlier answer has already paid for."""
    checks = importlib.import_module(f"autograder.checks.{week.split('_')[0]}")
    for one in MANIFEST[week]:
        test = getattr(checks, one.grade_id, None)
        for mistake in known_mistakes(week, one.grade_id) if isinstance(test, Exercise) else ():
            if len(mistake.says) == 1 and mistake.says[0] in carried(week):
                script = test.write(mistake.subject, 5, "cpu")
                for nothing in (lambda *a, **o: a[0], lambda *a, **o: None, *map(raising, KINDS)):
                    assert replay(test, script, nothing).score == 0, (one.grade_id, mistake.says)
