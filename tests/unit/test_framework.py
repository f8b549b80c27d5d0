"""The framework of the hidden tests: messages, gating, diagnosis; no student pays for the course's own errors."""

import copy
import math
import re
import sys

import pytest
import torch
from helpers import run as command
from hypothesis import given
from hypothesis import strategies as st

from autograder.checks import framework, week3
from autograder.checks.framework import Absent, BrokenCheck, Check, StudentError, calling, differentiating, exercise
from autograder.checks.probes import calling_again
from autograder.grading.marking import marking
from autograder.grading.marking.marking import grading
from autograder.grading.marking.replay import NO_VALUE
from autograder.grading.sandbox.worker import simulated_device
from autograder.misconceptions import bank as banks
from autograder.misconceptions.bank import Mistake
from autograder.script.answer import Given
from autograder.script.compare import FOUR_DIGITS, Tolerance, brief, difference, is_rounded, kind, off, only_where_zero
from autograder.script.script import GOES_TO_NUMPY, ON_THE_CPU, WHOLE_NUMBERS, Entry
from autograder.script.verdict import Criterion, Verdict

EXACT = Tolerance(rtol=0, atol=0)


def double(x):
    return 2 * x


def run(body, student, reference=double, seed=0):
    """Return the verdict of a made-up check on an exercise of one point."""
    with grading(seed):
        return exercise("week3_rope", "rotate_half", reference)(body)(student)


# ---- comparison -----------------------------------------------------------------------------------------------------


def test_shape_comes_before_values():
    message = difference(torch.zeros(2, 3), torch.ones(3, 2), EXACT)
    assert message == "expected shape (3, 2), got shape (2, 3)"


def test_type_comes_before_shape():
    assert difference([1.0], torch.ones(3), EXACT) == "expected a tensor of shape (3,), got a list"
    assert "return statement" in difference(None, torch.ones(3), EXACT)
    assert "expected 2 values, got 3" in difference((1, 2, 3), (1.0, 2.0), EXACT)


def test_only_the_first_difference_is_shown_and_to_four_digits():
    got, expected = torch.tensor([[1.0, 2.34567], [7.77, 8.0]]), torch.tensor([[1.0, 5.678], [1.2345, 8.0]])
    assert difference(got, expected, EXACT) == "2 of 4 values differ; the first at [0, 1]: got 2.346, expected 5.678"


def test_what_is_zero_but_for_rounding_is_called_zero():
    message = difference(torch.tensor([0.25]), torch.tensor([-6e-8]), Tolerance(rtol=0, atol=1e-4))
    assert message == "1 of 1 values differ; the first at [0]: got 0.25, expected 0"


def test_a_single_result_is_not_taken_for_several():
    """A batch of two texts has as many rows as there are expected results, but is not two results."""
    out, weights = torch.ones(2, 3, 5, 6), torch.ones(2, 3, 5, 7)
    message = difference(out, (out, weights), EXACT, ("out", "weights"))
    assert message == "expected 2 values, got a float32 tensor of shape (2, 3, 5, 6)"
    assert not difference(torch.stack((out, out)), (out, out), EXACT)


def test_whole_numbers_that_belong_together_are_shown_together():
    shapes = {"k_proj.weight": (8, 12)}
    assert difference({"k_proj.weight": (8, 16)}, shapes, EXACT) == "k_proj.weight: got (8, 16), expected (8, 12)"
    assert difference([True, False], [True, True], EXACT) == "got (True, False), expected (True, True)"
    assert difference([25], [], EXACT) == "got (25,), expected ()"
    assert difference([1, 0], [True, False], EXACT)
    assert difference("a list of 2", "a tuple of 2", EXACT) == "expected a tuple of 2, got a list of 2"


@pytest.mark.parametrize(
    ("got", "expected", "words"),
    [
        (768.0, 769.0, "got 768, expected 769: one too small"),
        (45, 46.0, "got 45, expected 46: one too small"),
        (3.0, 5.0, "got 3, expected 5: two too small"),
        (1.049, 1.0, "got 1.049, expected 1"),
        (0.5, 0.25, "got 0.5, expected 0.25"),
        (0.0, 0.25, "got 0, expected 0.25"),
        (85499.3, 41829.37, "got 85499, expected 41829"),
        (44.7, 45.2, "got 44.7, expected 45.2"),
        (1.00004, 1.00001, "got 1.00004, expected 1.00001"),
        (5.0, 800.0, "got 5, expected 800"),
    ],
)
def test_numbers_have_as_many_digits_as_show_the_difference(got, expected, words):
    assert difference(got, expected, EXACT) == words


def test_what_is_measured_is_not_counted():
    """2.0 for 1.0 is twice as much, not one too many."""
    near = Tolerance(rtol=0, atol=1e-4)
    assert difference(2.0, 1.0, near) == "got 2, expected 1"
    assert difference(torch.tensor([2.0]), torch.tensor([1.0]), EXACT).endswith("got 2, expected 1")
    assert difference(torch.tensor([2]), torch.tensor([1]), EXACT).endswith("got 2, expected 1: one too large")
    assert off(2.0, 1.0) == "about 2 times too large" and off(2.0, 1.0, counted=True) == "one too large"


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_two_numbers_that_differ_never_look_the_same(got, expected):
    words = difference(got, expected, EXACT)
    shown = re.fullmatch(r"got (\S+), expected ([^\s:,]+)(.*)", words)
    assert got == expected or shown[1] != shown[2] or "differ by" in shown[3]


@pytest.mark.parametrize(
    ("got", "expected", "counted", "words"),
    [
        (45, 46.0, True, "one too small"),
        (40, 46.0, True, "too small"),
        (45.5, 46.0, True, "a whole number is expected"),
        (-0.9, 0.9, False, "the sign is wrong"),
        (0.955, 0.9093, False, "about 5% too large"),
        (1.03, 0.9093, False, "about 13% too large"),
        (-0.5, -0.8415, False, "about 41% too small"),  # in absolute value
        (0.91, 0.9093, False, "near, but not right to four significant digits"),
        (5.0, 0.9, False, "about 5.6 times too large"),
        (0.002, -0.9, False, "another sign is expected"),
        (0.002, 0.9, False, "about 450 times too small"),
        (0.0, 0.9, False, "too small"),
        (math.nan, 1.0, False, "nan is no answer"),
    ],
)
def test_a_number_can_be_told_from_the_right_one_without_showing_it(got, expected, counted, words):
    assert off(got, expected, counted) == words


@pytest.mark.parametrize("given", [0.3, torch.tensor(0.3), torch.tensor([0.3], dtype=torch.float64)])
def test_an_entry_that_is_wrong_does_not_show_the_right_number(given):
    entry = Entry(lambda answers: answers["a"], "entry 'a'", FOUR_DIGITS, expected=Given(0.24473), key="a")
    assert entry.fault(Given(given)).message == "entry 'a': about 23% too large"


@pytest.mark.parametrize(
    ("number", "expected", "rounded"),
    [
        (0.24, 0.24473, True),
        (1.15, 1.15470, True),
        (1.2, 1.15470, True),
        (650.0, 651.9, True),
        (0.25, 0.24473, False),
        (0.2447, 0.24473, False),
        (0.0, 0.24473, False),
        (0.0, 0.0002, True),
        (math.inf, 1.0, False),
    ],
)
def test_a_number_is_rounded_if_it_is_right_to_its_last_digit(number, expected, rounded):
    assert is_rounded(number, expected) == rounded


def test_several_results_are_called_by_their_names():
    pair = (torch.zeros(2), torch.ones(2))
    assert difference(pair, (torch.zeros(2), torch.zeros(2)), EXACT, ("out", "weights")).startswith("weights: 2 of 2")


@given(st.floats(-1e300, 1e300))
def test_brief_has_one_significant_digit(value):
    digits = re.sub(r"e.*", "", brief(value)).replace(".", "").replace("-", "").strip("0")
    assert len(digits) <= 1


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
def test_no_message_carries_the_inputs_in_full(values):
    expected = torch.tensor(values)
    assert len(difference(expected + 1 + expected.abs(), expected, EXACT)) < 120


def test_dtype_counts_only_where_asked():
    got, expected = torch.ones(2, dtype=torch.float64), torch.ones(2)
    assert not difference(got, expected, EXACT)
    assert "dtype" in difference(got, expected, Tolerance(0, 0, exact_dtype=True))


@pytest.mark.parametrize("got", [0.5, torch.tensor(0.5), torch.tensor([0.5], dtype=torch.float16)])
def test_a_number_may_be_a_tensor_of_one_element(got):
    assert not difference(got, 0.5, EXACT)


@pytest.mark.parametrize(
    "got",
    [
        True,
        "0.5",
        None,
        10**400,
        -(10**400),
        math.nan,
        math.inf,
        0.5j,
        torch.tensor(0.5j),
        torch.tensor([0.5, 0.5]),
        [0.5],
        {"a": 0.5},
        object(),
    ],
)
def test_what_is_no_right_number_is_refused_without_an_error(got):
    assert difference(got, 0.5, EXACT)
    assert difference(got, 769, EXACT)
    assert difference(got, torch.ones(2), EXACT)
    assert difference(got, (0.5, 0.25), EXACT)
    assert difference(got, {"b": 0.5}, EXACT)


def test_nan_is_not_close_to_a_number():
    assert difference(torch.tensor([math.nan]), torch.zeros(1), Tolerance(1, 1e9))


NUMBERS = st.sampled_from([math.inf, -math.inf, math.nan, 0.0, 1.0, 1.05, -1.0, 1e300])


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4),
    st.sampled_from([(0.0, 0.0), (0.1, 0.0), (0.0, 0.1), (0.1, 0.1)]),
)
def test_close_is_what_torch_calls_close_infinities_and_nan_included(pairs, tolerance):
    got, expected = (torch.tensor(side, dtype=torch.float64) for side in zip(*pairs, strict=True))
    rtol, atol = tolerance
    close = bool(torch.isclose(got, expected, rtol=rtol, atol=atol, equal_nan=True).all())
    assert bool(difference(got, expected, Tolerance(rtol, atol))) != close


def test_a_value_that_stays_in_the_sandbox_is_called_by_its_type():
    class Opaque:
        type_name = "ndarray"

    assert kind(Opaque()) == "a NumPy array"


def test_keys_are_compared_and_cut():
    message = difference({"x" * 1000: 1.0}, {"a": 1.0}, EXACT)
    assert "'a'" in message and len(message) < 200


# ---- criteria -------------------------------------------------------------------------------------------------------


def golden(check, points=0.5):
    with check.criterion("values", points, golden=True):
        check.agrees(calling(check.randn(3)), "double(x (3,))")


def property_only(check, points=0.5):
    with check.criterion("refuses strings", points):
        check.raises(calling("x"), TypeError, "double('x')")


def refusing_double(x):
    if isinstance(x, str):
        raise TypeError("numbers, please")
    return 2 * x


def both(check):
    golden(check)
    property_only(check)


def test_full_marks():
    verdict = run(both, refusing_double, refusing_double)
    assert verdict.score == 1 and not verdict.named


def test_a_property_counts_only_beside_a_right_value():
    def refuses_everything(x):
        raise TypeError("no")

    verdict = run(both, refuses_everything, refusing_double)
    assert verdict.score == 0
    assert verdict.criteria[1].message == NO_VALUE


def test_a_property_is_paid_where_one_golden_criterion_held():
    def body(check):
        golden(check, 0.25)
        with check.criterion("more values", 0.25, golden=True):
            check.agrees(calling(torch.full((2,), 3.0)), "double(threes)")
        property_only(check)

    def wrong_for_threes(x):
        return refusing_double(x) + (0 if isinstance(x, str) else (x == 3).float())

    assert run(body, wrong_for_threes, refusing_double).score == 0.75


def test_not_implemented_never_counts():
    def body(check):
        golden(check, 0.5)
        with check.criterion("refuses strings", 0.5):
            check.raises(calling("x"), RuntimeError, "double('x')")  # NotImplementedError is a RuntimeError

    def reference(x):
        if isinstance(x, str):
            raise RuntimeError("numbers, please")
        return 2 * x

    def half_a_stub(x):
        if isinstance(x, str):
            raise NotImplementedError
        return 2 * x

    assert run(body, reference, reference).score == 1
    verdict = run(body, half_a_stub, reference)
    assert verdict.score == 0.5 and verdict.criteria[1].message.startswith("not answered yet")


def test_a_librarys_error_of_the_same_name_is_no_stub():
    def student(x):
        if not isinstance(x, str):
            raise NotImplementedError("Unsupported for float64")
        raise TypeError("numbers, please")

    verdict = run(both, student, refusing_double)
    assert verdict.criteria[0].message == "double(x (3,)) raised NotImplementedError: Unsupported for float64"
    assert not verdict.stopped


def test_an_error_is_told_with_its_type_message_and_line():
    def student(x):
        raise StudentError(("ZeroDivisionError", "ArithmeticError"), "division by zero\nand more", "line 3")

    message = run(both, student, refusing_double).criteria[0].message
    assert message == "double(x (3,)) raised ZeroDivisionError: division by zero (line 3)"


def test_a_result_that_cannot_be_used_was_raised_by_nobody():
    def body(check):
        with check.criterion("pair", 1, golden=True):
            check.agrees(lambda f: f(1)[0], "f(1)")

    assert (
        run(body, lambda n: 5, lambda n: (n,))
        .criteria[0]
        .message.startswith("f(1): its result cannot be used (TypeErr")
    )


def test_an_argument_that_autograd_keeps_from_being_changed_is_named():
    def body(check):
        with check.criterion("gradient", 1, golden=True):
            check.agrees(differentiating(torch.ones(2)), "the gradient of f(x)")

    message = run(body, lambda x: x.mul_(2), lambda x: 2 * x).criteria[0].message
    assert "an argument is changed in place" in message and "work on a new tensor" in message


def test_a_cause_of_a_later_miss_is_said_in_addition():
    verdict = run(both, lambda x: 3 * x, refusing_double)
    assert not verdict.names_first and "  Also: double('x') must raise TypeError" in verdict.render()


def test_refusing_in_another_way_is_told():
    def student(x):
        assert not isinstance(x, str)
        return 2 * x

    verdict = run(both, student, refusing_double)
    assert verdict.score == 0.5
    assert verdict.named == ["double('x') must raise TypeError; yours raises AssertionError."]
    assert run(both, lambda x: mistyped, refusing_double).named == []  # noqa: F821  an error wherever it is called


def test_what_the_sandbox_has_stopped_is_no_refusal_in_another_way():
    def student(x):
        if isinstance(x, str):
            raise StudentError(("TimeoutError",), "not run: this notebook has used all the CPU time of a submission")
        return 2 * x

    verdict = run(both, student, refusing_double)
    assert verdict.score == 0.5 and verdict.named == []
    assert "got TimeoutError: not run" in verdict.criteria[1].message


def test_a_change_in_place_is_told_and_undone():
    def body(check):
        golden(check)
        with check.criterion("leaves x alone", 0.5):
            x = torch.ones(3)
            given.append(x)
            check.unchanged(lambda f: f(x), "double(x)", x)

    given = []
    verdict = run(body, lambda x: x.mul_(2))
    assert verdict.score == 0.5 and "in place" in verdict.named[0]
    assert torch.equal(given[0], torch.ones(3))


FILLED = ([torch.ones(2)] * 3, [object()] * 3, [3, 1, True], [3, 1], [[3], 1, 2])


@pytest.mark.parametrize(
    ("given", "spoil", "kind"),
    [
        ([3, 1, 2], list.sort, "list"),
        ([[1], [2, 3]], lambda lists: lists[0].insert(0, 0), "list"),
        ({"a": 1, "b": None}, lambda fields: fields.pop("b"), "dict"),
        # Comparing tensors as list entries raises an error, which would count as the course's.
        *[([3, 1, 2], lambda given, new=new: given.__setitem__(slice(None), new), "list") for new in FILLED],
    ],
)
def test_what_is_done_to_a_list_or_dict_is_told_and_put_back(given, spoil, kind):
    def body(check):
        golden(check)
        with check.criterion("leaves its argument alone", 0.5):
            check.unchanged(lambda f: f(torch.ones(1), given), "double(x, given)", given)

    def spoils(x, given=None):
        spoil(given) if given else None
        return 2 * x

    as_it_was = copy.deepcopy(given)
    verdict = run(body, spoils, lambda x, given=None: 2 * x)
    assert verdict.score == 0.5 and f"work on a new {kind}" in verdict.named[0] and given == as_it_was


def test_a_result_that_is_handed_out_twice_is_told():
    def body(check):
        golden(check)
        with check.criterion("a new one on each call", 0.5):
            check.agrees(calling_again(torch.ones(2)), "double(ones), once more", EXACT, "Kept.")

    kept = {}

    def keeps(x):
        return kept.setdefault(x.numel(), 2 * x)

    verdict = run(body, keeps)
    assert verdict.score == 0.5 and verdict.named == ["Kept."]


def test_what_is_asked_only_where_something_else_holds_leaves_no_trace():
    """The deciding question is neither counted nor diagnosed."""

    def body(check):
        golden(check)
        with (
            check.criterion("sevens, where threes are right", 0.5),
            check.holds(calling(torch.full((2,), 3.0)), "double(threes)"),
        ):
            check.agrees(calling(torch.full((2,), 7.0)), "double(sevens)", hint="Sevens.")

    assert run(body, double).score == 1
    wrong_for_sevens = run(body, lambda x: 2 * x + (x == 7).float())
    assert wrong_for_sevens.score == 0.5 and wrong_for_sevens.named == ["Sevens."]
    wrong_for_both = run(body, lambda x: 2 * x + (x == 7).float() + (x == 3).float())
    assert wrong_for_both.score == 1 and not wrong_for_both.named


def test_gradients_are_compared_by_value():
    def body(check):
        with check.criterion("values and gradients", 1, golden=True):
            x = check.randn(3)
            check.agrees(calling(x), "double(x)")
            check.agrees(differentiating(x), "the gradient of double(x)", hint="No gradient.")

    assert run(body, double).score == 1
    assert run(body, lambda x: x + x).score == 1
    for wrong in (lambda x: 2 * x.detach(), lambda x: x + x.detach()):
        verdict = run(body, wrong)
        assert verdict.score == 0 and verdict.named == ["No gradient."]


def test_inputs_depend_on_the_seed_and_the_block_alone():
    seen = []

    def body(check, more=0):
        with check.criterion("first", 0.5, golden=True):
            check.randn(5 + more)
        with check.criterion("second", 0.5, golden=True):
            seen.append(check.randn(4))

    for seed, more in ((3, 0), (3, 2), (4, 0)):
        body(Check("week3_rope", "rotate_half", double, seed, "cpu"), more)
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])


def test_a_hint_about_rows_of_zeros_is_for_answers_that_are_right_elsewhere():
    expected = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    assert only_where_zero((torch.tensor([[1.0, 0.0], [math.nan, 0.5]]),), (expected,))
    assert not only_where_zero((torch.tensor([[1.0, 0.5], [0.0, 0.5]]),), (expected,))


def test_entries_of_a_hand_computation():
    def body(check):
        with check.criterion("entries", 1, golden=True):
            check.entries("a", "b", "c", tolerance=Tolerance(1e-3, 1e-6))

    right = {"a": 1.0, "b": 2, "c": 3.0}
    assert run(body, {"a": 1, "b": 2.0005, "c": torch.tensor(3.0)}, right).score == 1
    message = run(body, {"a": None, "b": 2.5}, right).criteria[0].message
    assert message.splitlines() == [
        "entry 'a': not answered yet",
        "entry 'b': about 25% too large",
        "entry 'c' is missing",
    ]
    assert "not answered" not in run(body, {"a": 0, "b": 2, "c": 3}, right).criteria[0].message


def test_a_hand_computation_to_fewer_digits_and_one_with_a_single_slip_are_told_so():
    def body(check):
        with check.criterion("entries", 1, golden=True):
            check.entries("a", "b", "c", tolerance=FOUR_DIGITS)

    right = {"a": 0.24473, "b": 1.15470, "c": -0.39515}
    for rounded in (
        {"a": 0.24, "b": 1.15, "c": -0.40},
        {"a": 0.245, "b": 1.155, "c": -0.395},
        {"a": 0.2447, "b": 1.15},
    ):
        assert run(body, right | rounded, right).named == [banks.ROUNDED_TOO_FAR]
    assert run(body, right | {"b": 1.1457}, right).named == [marking.ONE_SLIP.format("b")]
    for several in ({"a": 0.24, "b": 1.1457}, {"a": None}, {"a": 0.3, "b": 1.1}):
        assert run(body, right | several, right).named == []


# ---- trouble of ours ------------------------------------------------------------------------------------------------


def test_a_reference_that_fails_is_a_broken_check():
    def reference(x):
        raise ZeroDivisionError

    with pytest.raises(BrokenCheck, match="the reference fails"):
        run(golden, double, reference)


def test_a_reference_that_accepts_what_it_must_refuse_is_a_broken_check():
    with pytest.raises(BrokenCheck, match="the reference accepts"):
        run(both, double, double)


def test_criteria_must_add_up():
    with pytest.raises(BrokenCheck, match="add up to 0.5"):
        run(golden, double)


def test_errors_of_the_course_are_not_the_students():
    SandboxError = type("SandboxError", (Exception,), {"__module__": "autograder.grading.sandbox.sandbox"})

    def student(x):
        raise SandboxError("no namespaces")

    with pytest.raises(SandboxError):
        run(lambda check: golden(check, 1), student)


@pytest.mark.slow
def test_outside_the_grader_a_hidden_test_ends_the_process():
    code = (
        "from autograder.checks import week3\n"
        "try:\n"
        "    week3.rotate_half(lambda x: x)\n"
        "except BaseException:\n"
        "    pass\n"
        "print('still alive')\n"
    )
    done = command(sys.executable, "-c", code, code=70)
    assert "still alive" not in done.stdout and "grader" in done.stderr


# ---- diagnosis ------------------------------------------------------------------------------------------------------


def diagnose(student, mistakes, hint="", monkeypatch=None):
    def body(check):
        with check.criterion("small", 0.5, golden=True):
            check.agrees(calling(torch.tensor([1.0, 2.0])), "double(small)", EXACT)
        with check.criterion("large", 0.5, golden=True):
            check.agrees(calling(torch.tensor([300.0, 400.0])), "double(large)", EXACT, hint)

    monkeypatch.setattr(framework, "known_mistakes", lambda *names: iter(mistakes))
    return run(body, student).named


TRIPLES = Mistake(lambda x: 3 * x, ("It triples.",))
CLAMPS = Mistake(lambda x: (2 * x).clamp(max=500), ("It clamps.",))
BOTH = Mistake(lambda x: (3 * x).clamp(max=500), ("It triples.", "It clamps."))


def test_a_known_mistake_is_named(monkeypatch):
    assert diagnose(lambda x: x + x + x, [CLAMPS, TRIPLES], monkeypatch=monkeypatch) == ["It triples."]


def test_two_mistakes_at_once_are_named(monkeypatch):
    student = lambda x: torch.minimum(3 * x, torch.tensor(500.0))  # noqa: E731
    assert diagnose(student, [TRIPLES, CLAMPS, BOTH], monkeypatch=monkeypatch) == ["It triples.", "It clamps."]


def test_a_mistake_that_contradicts_right_answers_comes_after_the_hint(monkeypatch):
    student = lambda x: torch.where(x < 100, 2 * x, 3 * x)  # noqa: E731
    assert diagnose(student, [TRIPLES], "Large ones.", monkeypatch=monkeypatch) == ["Large ones."]
    assert diagnose(student, [TRIPLES], monkeypatch=monkeypatch) == ["It triples."]


def test_a_long_text_is_put_only_to_mistakes_that_fit_all_short_ones(monkeypatch):
    """An answer may fail only on a long text, and running that for hundreds of pairs of mistakes takes long."""
    asked = []

    def adds_at_four(x):
        asked.append(len(x))
        return 2 * x + (len(x) == 4)

    def body(check):
        with check.criterion("all", 1, golden=True):
            for length in (2, 3, 4):
                check.agrees(calling(torch.ones(length)), f"{length}", EXACT)
            check.agrees(calling(torch.ones(500)), "a long one", EXACT)

    def stops(x):
        return 2 * x if len(x) < 500 else 1 / 0

    known = [
        Mistake(adds_at_four, ("It adds at four.",)),
        Mistake(double, ("It adds.",)),
        Mistake(double, ("It also adds.",)),
        Mistake(adds_at_four, ("It adds.", "It also adds.")),
    ]
    monkeypatch.setattr(framework, "known_mistakes", lambda *names: iter(known))
    run(body, stops)
    assert asked.count(4) >= 2 and 500 not in asked


def test_a_pair_with_a_mistake_that_is_ruled_out_is_not_tried(monkeypatch):
    """A class has thousands of pairs, and what a single mistake answers is known already."""
    tried = []

    def pair(x):
        tried.append(x)
        return 2 * x

    known = [CLAMPS, Mistake(lambda x: 2 * x + 1, ("It adds.",)), Mistake(pair, ("It clamps.", "It adds."))]
    assert diagnose(lambda x: (2 * x).clamp(max=700), known, monkeypatch=monkeypatch) == []
    assert not tried


def test_what_is_not_known_is_not_named(monkeypatch):
    assert diagnose(lambda x: 5 * x, [TRIPLES, CLAMPS, BOTH], monkeypatch=monkeypatch) == []


def test_a_right_answer_is_not_named(monkeypatch):
    assert diagnose(double, [TRIPLES], "Large ones.", monkeypatch=monkeypatch) == []


def test_a_stub_is_not_named(monkeypatch):
    def stub(x):
        raise NotImplementedError

    assert diagnose(stub, [Mistake(stub, ("It is a stub.",))], "Large ones.", monkeypatch=monkeypatch) == []


def test_an_error_is_recognised_whatever_its_numbers(monkeypatch):
    def student(x):
        return 2 * x if x[0] < 100 else torch.zeros(3) + torch.zeros(5)

    def known(x):
        return 2 * x if x[0] < 100 else torch.zeros(7) + torch.zeros(4)

    assert diagnose(student, [Mistake(known, ("Wrong sizes.",))], monkeypatch=monkeypatch) == ["Wrong sizes."]


# ---- verdicts and banks ---------------------------------------------------------------------------------------------


def test_a_verdict_reads_well():
    verdict = Verdict(
        "f", "3.2", 2, [Criterion("values", 1, 1), Criterion("base", 1, 0, "a\nb")], ["Because."], "On 3.1."
    )
    assert verdict.score == 1
    assert verdict.render().splitlines() == [
        "Exercise 3.2, f: 1 of 2 points",
        "  On 3.1.",
        "  Likely cause: Because.",
        "  ok   1/1  values",
        "  MISS 0/1  base",
        "         a",
        "         b",
    ]


@pytest.fixture
def empty_banks(monkeypatch):
    monkeypatch.setattr(banks, "_banks", {})
    monkeypatch.setattr(banks, "_families", {})
    banks.known_mistakes.cache_clear()
    yield
    banks.known_mistakes.cache_clear()


def test_entries_are_renamed_and_stripped_of_decorators(empty_banks):
    @banks.right("week3_rope", "answer")
    def another_name(x):
        return another_name if x is None else x + 1

    solution = banks.bank("week3_rope", "answer")[0]
    assert solution.source == "def answer(x):\n    return answer if x is None else x + 1"
    banks.edited(another_name, "minus", 0.5, "It subtracts.", ("x + 1", "x - 1"))
    minus = banks.bank("week3_rope", "answer")[1]
    assert minus.subject(3) == 2 and minus.score == 0.5 and "x - 1" in minus.source
    with pytest.raises(ValueError, match="0 times"):
        banks.edited(another_name, "other", 0, "", ("x * 1", "x"))
    with pytest.raises(ValueError, match="two entries"):
        banks.edited(another_name, "minus", 0, "", ("x + 1", "x"))


def test_a_family_gives_each_mistake_and_each_pair(empty_banks):
    @banks.family("week3_rope", "answer", {"a": "A.", "b": "B.", "c": "C."})
    def build(mistakes):
        return lambda: sorted(mistakes)

    known = [(mistake.subject(), mistake.says) for mistake in banks.known_mistakes("week3_rope", "answer")]
    assert known == [
        (["a"], ("A.",)),
        (["b"], ("B.",)),
        (["c"], ("C.",)),
        (["a", "b"], ("A.", "B.")),
        (["a", "c"], ("A.", "C.")),
        (["b", "c"], ("B.", "C.")),
    ]


def test_a_check_knows_its_device():
    check = Check("week3_rope", "rotate_half", double, 5, "cpu")
    assert check.randn(2).device.type == "cpu" and check.randperm(4).sort().values.tolist() == [0, 1, 2, 3]


def test_what_other_blocks_ask_can_need_that_a_block_was_met():
    def body(check):
        with check.criterion("values", 0.5, golden=True):
            check.agrees(calling(torch.full((2,), 3.0)), "double(threes)")
            right = check.reached()
        with check.criterion("more", 0.5, golden=True):
            with right:
                check.agrees(calling(torch.full((2,), 7.0)), "double(sevens)")
            with ~right:
                check.agrees(calling(torch.full((2,), 5.0)), "double(fives)")

    assert [run(body, lambda x, n=n: 2 * x + (x == n).float()).score for n in (3, 7, 5)] == [0.5, 0.5, 1]
    wrong_for_both = run(body, lambda x: 2 * x + (x < 6).float())
    assert wrong_for_both.score == 0 and "fives" in wrong_for_both.criteria[1].message


def test_all_steps_of_a_group_are_asked_and_the_block_ends_with_it():
    def body(check):
        with check.criterion("values", 1, golden=True):
            with check.every():
                for n in (1.0, 2.0, 3.0):
                    check.agrees(calling(torch.tensor(n)), f"double({n:g})")
            check.agrees(calling(torch.tensor(4.0)), "double(4)")

    message = run(body, lambda x: 2 * x + (x != 2)).criteria[0].message
    assert [line.partition(":")[0] for line in message.splitlines()] == ["double(1)", "double(3)"]


def test_a_test_cannot_branch_on_an_answer():
    def body(check):
        with check.criterion("values", 1, golden=True):
            if check.holds(calling(torch.ones(2)), "double(ones)"):
                check.agrees(calling(torch.ones(3)), "double(ones)")

    with pytest.raises(BrokenCheck, match="with check.holds"):
        run(body, double)


def test_a_name_that_is_not_defined_is_one_clear_sentence() -> None:
    with grading() as context:
        week3.rope_frequencies(
            Absent("rope_frequencies", ": its cell stopped with SyntaxError: invalid syntax (line 1)")
        )
    verdict = context.verdicts[0]
    assert verdict.score == 0 and verdict.named == [
        "`rope_frequencies` is not defined: its cell stopped with SyntaxError: invalid syntax (line 1)"
    ]
    assert verdict.render().count("SyntaxError") == 1


def test_an_error_of_the_course_itself_is_never_the_students(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "known_mistakes", lambda *names: 1 / 0)
    with grading(), pytest.raises(BrokenCheck, match="ZeroDivisionError"):
        week3.rope_frequencies(lambda head_dim, base=10000.0: torch.ones(head_dim // 2))


# ---- the device -----------------------------------------------------------------------------------------------------


def doubles_and_follows(check):
    with check.criterion("values", 0.75, golden=True):
        check.agrees(calling(check.randn(3)), "f(x)")
    with check.follows_device(0.25):
        check.follows(calling(check.randn(3)), "f(x)")


def numpy_s(x):
    return torch.from_numpy(2 * x.numpy())


def computes_on_the_default_device(x):
    return x * torch.full((3,), 2.0)


def moves_everything_to_the_cpu(x):
    return 2 * x.cpu()


def multiplies_whole_numbers(x):
    eye = torch.eye(3, dtype=torch.int64, device=x.device)
    return 2 * x * (eye @ eye).diagonal()


DEVICES = ("cpu", simulated_device.NAME)
CARELESS = {
    computes_on_the_default_device: [ON_THE_CPU],
    moves_everything_to_the_cpu: [ON_THE_CPU],
    numpy_s: [GOES_TO_NUMPY],
    multiplies_whole_numbers: [WHOLE_NUMBERS],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("answer", CARELESS, ids=lambda answer: answer.__name__)
def test_an_answer_that_forgets_the_device_loses_that_criterion_on_every_machine(answer, device):
    with grading(device=device):
        verdict = exercise("week3_rope", "rotate_half", double)(doubles_and_follows)(answer)
    assert [criterion.earned for criterion in verdict.criteria] == [0.75, 0], verdict.render()
    assert verdict.named == CARELESS[answer] and "on another device" in verdict.criteria[1].message


@pytest.mark.parametrize("device", DEVICES)
def test_to_follow_the_device_earns_nothing_without_a_right_value(device):
    for answer, score in ((double, 1), (lambda x: 3 * x, 0)):
        with grading(device=device):
            assert exercise("week3_rope", "rotate_half", double)(doubles_and_follows)(answer).score == score


def test_what_another_device_makes_of_an_answer_costs_nothing():
    """Other values on another device cost nothing, since the CPU decides; neither does an error not about devices."""

    def rounded(x):
        return 2 * x + 0.01 * (x.device.type != "cpu")

    def unknown_there(x):
        if x.device.type != "cpu":
            raise NotImplementedError("no such operation")
        return 2 * x

    for answer in (rounded, unknown_there):
        for device in DEVICES:
            with grading(device=device):
                verdict = exercise("week3_rope", "rotate_half", double)(doubles_and_follows)(answer)
            assert verdict.score == 1 and not verdict.named


def test_the_inputs_of_the_block_alone_are_on_the_other_device():
    places = []

    def body(check):
        doubles_and_follows(check)
        places.extend((check.randn(2).device.type, check.device))

    def asked(x):
        places.append(x.device.type)
        return 2 * x

    assert run(body, asked).score == 1
    assert places == ["cpu", "cpu", "cpu", simulated_device.NAME]


def test_a_reference_that_forgets_the_device_is_a_broken_check():
    with pytest.raises(BrokenCheck, match="does not follow the device"):
        run(doubles_and_follows, double, reference=moves_everything_to_the_cpu)
    with pytest.raises(BrokenCheck, match="fails its own check"):
        run(doubles_and_follows, double, reference=computes_on_the_default_device)
