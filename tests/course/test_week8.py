"""What only week 8 has: traps in which a wrong answer looks right, right answers in
yet other ways, and answers that must not be given away."""

import math

import pytest
import torch
import torch.nn.functional as F

from autograder import reference
from autograder.checks import week8
from autograder.checks.framework import Check
from autograder.grading.marking.marking import grading
from autograder.manifest import MANIFEST, entry
from autograder.misconceptions.bank import bank

pytestmark = pytest.mark.usefixtures("one_thread")

WEEK = "week8_production"


def grade(grade_id, subject, seed=11):
    with grading(seed):
        return getattr(week8, grade_id)(subject)


def test_points_and_minutes_are_the_contracts():
    exercises = MANIFEST[WEEK]
    assert (sum(e.points for e in exercises), sum(e.minutes for e in exercises)) == (30, 238)
    of_number = {}
    for exercise in exercises:
        points, minutes = of_number.get(exercise.number, (0, 0))
        of_number[exercise.number] = points + exercise.points, minutes + exercise.minutes
    assert of_number == {"8.1": (3, 15), "8.2": (7, 50), "8.3": (6, 33), "8.4": (8, 75), "8.5": (3, 30), "8.6": (3, 35)}


@pytest.mark.parametrize("one", [e for e in MANIFEST[WEEK] if e.kind != "text"], ids=lambda e: e.grade_id)
def test_banks_have_at_least_twelve_wrong_and_four_right_entries(one):
    entries = bank(WEEK, one.grade_id)
    assert sum(not solution.is_right for solution in entries) >= 12
    assert sum(solution.is_right for solution in entries) >= 4


# ---- traps: where a wrong answer looks right ------------------------------------------------------------------------


def mistakes(grade_id, *names):
    return {solution.name: solution for solution in bank(WEEK, grade_id) if solution.name in names}


def agree(one, other):
    return torch.allclose(one.double(), other.double(), atol=1e-6)


def test_a_whole_head_does_not_tell_the_exponents_apart():
    x, positions = torch.randn(2, 3, 5, 8), torch.arange(5)
    wrong = mistakes("partial_rotary_emb", "partial_head_exponent", "partial_last_channels", "partial_all_turn")
    for solution in wrong.values():
        assert agree(solution.subject(x, positions, 8), reference.partial_rotary_emb(x, positions, 8))
        assert grade("partial_rotary_emb", solution.subject).score == solution.score == 0


def test_pictures_do_not_tell_whether_time_is_forgotten():
    solution = mistakes("mrope_positions", "grid_time_forgotten")["grid_time_forgotten"]
    for segments in ([3, (1, 4, 2), 2], [(2, 3, 3), 1]):
        assert torch.equal(solution.subject(segments), reference.mrope_positions(segments))
    assert not torch.equal(solution.subject([2, (5, 2, 2), 1]), reference.mrope_positions([2, (5, 2, 2), 1]))
    assert grade("mrope_positions", solution.subject).score == 2.25


def test_text_does_not_tell_the_axes_apart():
    """With one number on all axes every layout of sections is plain RoPE."""
    x, positions = torch.randn(1, 2, 6, 12), torch.arange(6).expand(3, 6)
    for solution in mistakes("apply_mrope", "mrope_axes_exchanged", "mrope_woven", "mrope_one_axis").values():
        assert agree(solution.subject(x, positions, (2, 3, 1)), reference.apply_mrope(x, positions, (2, 3, 1)))
        assert grade("apply_mrope", solution.subject).score == 0


def test_a_window_longer_than_the_text_tells_nothing():
    solution = mistakes("sliding_window_mask", "window_none", "window_one_too_many")
    for one in solution.values():
        assert torch.equal(one.subject(3, 5, 9), reference.sliding_window_mask(3, 5, 9))
        assert grade("sliding_window_mask", one.subject).score == 0


def test_equal_sinks_do_not_tell_the_heads_apart():
    scores = torch.randn(2, 3, 4, 5)
    one = mistakes("softmax_with_sink", "sink_of_first_head")["sink_of_first_head"]
    assert agree(one.subject(scores, torch.full((3,), 0.5)), reference.softmax_with_sink(scores, torch.full((3,), 0.5)))
    assert grade("softmax_with_sink", one.subject).score == 0


def test_in_a_short_text_true_positions_are_those_in_the_cache():
    one = mistakes("streaming_cache", "stream_true_positions")["stream_true_positions"]
    assert all(map(torch.equal, one.subject(9, 4, 6), reference.streaming_cache(9, 4, 6)))
    assert grade("streaming_cache", one.subject).score == 1


def test_a_ring_buffer_of_whole_turns_looks_right():
    """20 tokens, 4 sinks, 6 more: the window begins where the ring does."""
    ring = mistakes("streaming_cache", "stream_ring")["stream_ring"]
    kept, positions = ring.subject(16, 4, 6)
    assert torch.equal(positions, reference.streaming_cache(16, 4, 6)[1]) and kept.tolist()[4:] == list(range(10, 16))
    assert grade("streaming_cache", ring.subject).score == 1


def test_expanded_keys_earn_full_points():
    """Memory is measured in the notebook, and not graded."""
    expanded = next(s for s in bank(WEEK, "mla_attention") if s.name == "mla_plain")
    assert grade("mla_attention", expanded.subject).score == entry(WEEK, "mla_attention").points


# ---- right in yet other ways ----------------------------------------------------------------------------------------


def partial_by_matrix(x, positions, rotary_dim, base=10000.0):
    if rotary_dim not in range(2, x.shape[-1] + 1, 2):
        raise ValueError
    n, wide = rotary_dim // 2, x.to(torch.float64)
    angle = torch.outer(positions.flatten().double(), float(base) ** (-torch.arange(n, device=x.device).double() / n))
    eye = torch.eye(x.shape[-1], dtype=torch.float64, device=x.device).repeat(len(angle), 1, 1)
    i = torch.arange(n)
    eye[:, i, i], eye[:, i + n, i + n] = angle.cos(), angle.cos()
    eye[:, i, i + n], eye[:, i + n, i] = -angle.sin(), angle.sin()
    eye = eye.unflatten(0, positions.shape)
    return torch.einsum("bhnd,bned->bhne" if positions.ndim == 2 else "bhnd,ned->bhne", wide, eye).to(x.dtype)


def grid_by_recursion(segments, s=0):
    if not segments:
        return torch.zeros(3, 0, dtype=torch.int64)
    first, *rest = segments
    sizes = (first, 1, 1) if isinstance(first, int) else first
    place = torch.cartesian_prod(*map(torch.arange, sizes)).T.reshape(3, -1)
    place = place[:1].expand(3, -1) if isinstance(first, int) else place
    here = place + s
    return torch.cat((here, grid_by_recursion(rest, int(here.max()) + 1 if here.numel() else s)), dim=1)


def mrope_of_three_turns(x, positions, sections, base=10000.0):
    if sum(sections) * 2 != x.shape[-1]:
        raise ValueError
    pair = torch.arange(x.shape[-1], device=x.device) % sum(sections)
    edge = [0, sections[0], sections[0] + sections[1], sum(sections)]
    turned = [reference.apply_rotary_emb_half(x, positions[axis], base) for axis in range(3)]
    return sum(torch.where((pair >= edge[a]) & (pair < edge[a + 1]), turned[a], 0 * x) for a in range(3))


def window_by_ranks(n_queries, n_keys, window):
    return (
        torch.ones(n_keys, n_keys, dtype=torch.bool)
        .tril()
        .logical_xor(torch.ones(n_keys, n_keys, dtype=torch.bool).tril(-window))[-n_queries:]
    )


def sink_as_gate(scores, sinks):
    empty = torch.isinf(scores).all(dim=-1, keepdim=True)
    scores = scores.masked_fill(empty, 0.0)  # before anything is differentiated
    gate = torch.sigmoid(torch.logsumexp(scores, dim=-1, keepdim=True) - sinks[:, None, None])
    return scores.softmax(dim=-1) * gate.masked_fill(empty, 0.0)


def stream_by_sets(n_tokens, n_sinks, window):
    kept = sorted(set(range(n_tokens)[:n_sinks]) | set(range(n_tokens)[-window:]))
    return torch.stack((torch.tensor(kept), torch.arange(len(kept))))


def latent_with_heads_as_queries(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None):
    heads = q_nope.shape[1]
    q = torch.cat((torch.einsum("bhqd,hdr->bhqr", q_nope, w_uk), q_rope), dim=-1).flatten(1, 2)
    k = torch.cat((latent, k_rope), dim=-1)
    scores = (q @ k.mT).unflatten(1, (heads, -1)) / math.sqrt(q_nope.shape[-1] + q_rope.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, torch.finfo(scores.dtype).min)
    weights = F.softmax(scores, dim=-1)
    weights = weights if mask is None else torch.where(mask, weights, 0)
    return torch.einsum("bhqk,bkr,hvr->bhqv", weights, latent, w_uv)


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(
    ("grade_id", "subject"),
    [
        ("partial_rotary_emb", partial_by_matrix),
        ("mrope_positions", grid_by_recursion),
        ("apply_mrope", mrope_of_three_turns),
        ("sliding_window_mask", window_by_ranks),
        ("softmax_with_sink", sink_as_gate),
        ("streaming_cache", stream_by_sets),
        ("mla_attention", latent_with_heads_as_queries),
    ],
)
def test_right_in_another_way_is_right(grade_id, subject, seed):
    verdict = grade(grade_id, subject, seed)
    assert verdict.score == verdict.max_score and not verdict.named, verdict.render()


# ---- what the probes ask --------------------------------------------------------------------------------------------


def probed(grade_id, monkeypatch):
    """All arguments that the check of an exercise hands to a right answer."""
    asked = []
    right = getattr(reference, grade_id)

    def subject(*arguments, **options):
        asked.append((arguments, options))
        return right(*arguments, **options)

    monkeypatch.setattr(Check, "raises", lambda self, *rest: None)
    with grading(3):
        getattr(week8, grade_id)(subject)
    return asked


def test_rotations_are_asked_for_every_dtype_and_kind_of_position(monkeypatch):
    for grade_id in ("partial_rotary_emb", "apply_mrope"):
        asked = [arguments for arguments, _ in probed(grade_id, monkeypatch)]
        assert {x.dtype for x, *_ in asked} == {torch.float64, torch.float32, torch.bfloat16, torch.float16}
        positions = [positions for _, positions, *_ in asked]
        assert {torch.int64, torch.float32, torch.float16} <= {p.dtype for p in positions}
        assert any(bool((p < 0).any()) for p in positions) and any(bool((p % 1 != 0).any()) for p in positions)
        assert any(not x.is_contiguous() for x, *_ in asked)


def test_bases_are_asked_as_whole_numbers_too(monkeypatch):
    for grade_id in ("partial_rotary_emb", "apply_mrope"):
        assert {type(options["base"]) for _, options in probed(grade_id, monkeypatch) if options} == {int, float}


def test_every_case_of_segments_and_streams_is_asked(monkeypatch):
    segments = [arguments[0] for arguments, _ in probed("mrope_positions", monkeypatch)]
    grids = [one for text in segments for one in text if isinstance(one, tuple)]
    assert [] in segments and any(0 in text for text in segments) and any(0 in grid for grid in grids)
    for longest in range(3):  # each axis is once the longest, before a text
        assert any(max(grid) == grid[longest] > max(grid[:longest] + grid[longest + 1 :]) for grid in grids)
    sizes = [arguments for arguments, _ in probed("streaming_cache", monkeypatch)]
    assert any(n_sinks == 0 for _, n_sinks, _ in sizes) and any(window == 1 for *_, window in sizes)
    for case in (
        lambda n, s, w: n < s,
        lambda n, s, w: s < n < s + w,
        lambda n, s, w: n == s + w,
        lambda n, s, w: n > s + w,
    ):
        assert any(case(*size) for size in sizes)
