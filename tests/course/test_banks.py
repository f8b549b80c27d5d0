"""Tests of the hidden tests: every known wrong solution gets its hand-written score, every right one full marks."""

import ast
import importlib
import inspect
import math
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

import autograder.reference
from autograder.checks.framework import Check
from autograder.grading.marking.marking import grading
from autograder.grading.marking.result_cache import ResultCache
from autograder.grading.sandbox.worker import simulated_device
from autograder.manifest import MANIFEST, entry
from autograder.misconceptions.bank import NAMES, bank
from autograder.script.answer import Absent, Given, answer_of
from autograder.script.compare import Tolerance, difference
from autograder.script.question import Local, plain, recorded
from autograder.script.script import NOT_FOLLOWED, Exercise, FollowsDevice

pytestmark = pytest.mark.usefixtures("one_thread")

EXERCISES = [(week, entry) for week, entries in MANIFEST.items() for entry in entries if entry.kind != "text"]
SOLUTIONS = [(week, entry, solution) for week, entry in EXERCISES for solution in bank(week, entry.grade_id)]
OF_THE_CLASS = {week: ResultCache() for week in MANIFEST}
BUG_HUNTS = ("rotate_half", "rotary_tables", "decode_step_scores")
# minimum numbers of (wrong, right) entries
LEAST = {
    "scaled_dot_product_attention": (10, 3),
    "sinusoidal_positional_encoding": (10, 3),
    "apply_rotary_emb": (16, 6),
    "alibi_bias": (10, 3),
    "ALiBiMultiHeadAttention": (10, 3),
    "yarn_frequencies": (10, 3),
    "loss_by_length": (10, 3),
    "rotate_by_hand": (5, 2),
    "bfloat16_positions": (5, 2),
}


def names(case):
    return "-".join(getattr(part, "name", None) or getattr(part, "grade_id", None) or str(part) for part in case[1:])


def each(cases):
    """Make one test per case; an exercise stays in one process, which caches right results for the class."""
    return pytest.mark.parametrize(
        "case", [pytest.param(case, marks=pytest.mark.xdist_group(case[1].grade_id), id=names(case)) for case in cases]
    )


def in_a_tenth(case):
    """Choose a tenth by name, so that the choice stays the same when the bank grows."""
    return zlib.crc32(names(case).encode()) % 10 == 0


def check_of(week, entry):
    return getattr(importlib.import_module(f"autograder.checks.{week.split('_')[0]}"), entry.grade_id)


def typed(solution):
    """Run an entry's source anew, as a notebook in the simulated classroom does, and return the answer."""
    namespace = dict(NAMES)
    exec(solution.source, namespace)
    return namespace[solution.grade_id]


def grade(week, entry, subject, seed=1, cache=None):
    with grading(seed, cache=cache) as context:
        verdict = check_of(week, entry)(subject)
    assert context.verdicts == [verdict]
    return verdict


# A check that tests a property words the sentence itself.
CAUSES = {solution.says for _, _, solution in SOLUTIONS if solution.says}
BY_PROPERTY = r"must raise|in place|must be an? \w+ tensor"


def require_what_is_due(entry, solution, verdict):
    assert verdict.score == solution.due(entry.points), verdict.render()
    if solution.is_right:
        assert len(verdict.named) == solution.forgets_device, verdict.render()
        assert set(verdict.named) <= set(NOT_FOLLOWED.values())
        assert [criterion.earned < criterion.points for criterion in verdict.criteria].count(True) == len(verdict.named)
    else:
        assert solution.score < entry.points, "a wrong answer is due less than full marks"
        assert solution.says.endswith((".", ".)")), "the sentence for the student ends with a full stop"
        named = verdict.named
        told = solution.says in named if CAUSES & set(named) else re.search(BY_PROPERTY, " ".join(named))
        assert told, named or "no cause is named"


@each(SOLUTIONS)
def test_every_entry_gets_its_score_and_its_sentence(case):
    """As in grading: the source is run, and there is a cache for the class."""
    week, entry, solution = case
    require_what_is_due(entry, solution, grade(week, entry, typed(solution), cache=OF_THE_CLASS[week]))


@each([case for case in SOLUTIONS if in_a_tenth(case)])
def test_an_entry_by_itself_gets_the_same(case):
    """Without a cache, with another seed and the function itself: the rest of the class neither helps nor harms."""
    week, entry, solution = case
    require_what_is_due(entry, solution, grade(week, entry, solution.subject, seed=2))


@pytest.mark.nightly
@each([case for case in SOLUTIONS if not in_a_tenth(case)])
def test_every_other_entry_by_itself_gets_the_same(case):
    test_an_entry_by_itself_gets_the_same(case)


# Seeds whose random inputs once hid the mistake that they should show: a mask with one key per row, two nearly tied
# scores, a window in which the far tokens hardly counted, largest differences all of one sign.
UNLUCKY = [
    ("equivariance_gap", "gap_signed", 63),
    ("equivariance_gap", "gap_one_input", 19),
    ("scaled_dot_product_attention", "attention_exp_by_hand", 24),
    ("scaled_dot_product_attention", "attention_exp_by_hand", 27),
    ("softmax_with_sink", "sink_through_logsumexp", 40),
    ("softmax_with_sink", "sink_through_logsumexp", 197),
    ("loss_by_length", "loss_one_window", 1012),
]


@pytest.mark.parametrize(("grade_id", "name", "seed"), UNLUCKY)
def test_the_score_does_not_depend_on_the_seed_of_the_class(grade_id, name, seed):
    week, entry, solution = next(case for case in SOLUTIONS if (case[1].grade_id, case[2].name) == (grade_id, name))
    verdict = grade(week, entry, typed(solution), seed)
    assert verdict.score == solution.due(entry.points), verdict.render()


def test_an_answer_that_remembers_is_told_so_however_often_the_bank_has_been_asked():
    week, grade_id = "week5_extrapolation", "dynamic_ntk_base"
    remembers = [solution for solution in bank(week, grade_id) if solution.remembers]
    assert remembers
    for solution in remembers:
        for _ in range(3):  # after the first round the entry itself remembers
            grade(week, entry(week, grade_id), solution.subject)
            assert grade(week, entry(week, grade_id), typed(solution)).named == [solution.says]


@each(EXERCISES)
def test_banks_are_large_enough(case):
    week, entry = case
    entries = bank(week, entry.grade_id)
    wrong, right = sum(not s.is_right for s in entries), sum(s.is_right for s in entries)
    due = LEAST.get(entry.grade_id, (6, 3))
    assert wrong >= due[0] and right >= due[1], f"{wrong} wrong and {right} right entries, {due} are due"
    assert any(s.score is None for s in entries), "no answer for full marks"


@each(EXERCISES)
def test_the_reference_gets_full_marks_and_the_criteria_add_up(case):
    week, entry = case
    right = getattr(autograder.reference, entry.grade_id, None)
    if right is None:
        right = next(s.subject for s in bank(week, entry.grade_id) if s.is_right)
    verdict = grade(week, entry, right)
    assert verdict.score == entry.points == sum(criterion.points for criterion in verdict.criteria), verdict.render()


# ---- answers that answer nothing ------------------------------------------------------------------------------------


def stub(*arguments, **options):
    raise NotImplementedError


def identity(*arguments, **options):
    return arguments[0]


def nothing(*arguments, **options):
    return None


def filled_like(right, value):
    """Return an answer that fills the right answer's shapes with ``value``, and raises where that raises."""

    def fill(answer):
        if isinstance(answer, (tuple, list)):
            return type(answer)(map(fill, answer))
        return torch.full_like(answer, value) if isinstance(answer, torch.Tensor) else type(answer)(value)

    return lambda *arguments, **options: fill(right(*arguments, **options))


def module_with(right, forward, construct=None):
    """Return a class with the right parameters and another forward."""

    class Module(right):
        def __init__(self, *arguments, **options):
            if construct is not None:
                construct()
            super().__init__(*arguments, **options)

        def forward(self, *arguments, **options):
            return forward(*arguments, **options)

    return Module


def empty_answers(week, entry):
    right = getattr(autograder.reference, entry.grade_id, None)
    if entry.kind == "numbers":
        keys = next(s.subject for s in bank(week, entry.grade_id) if s.is_right)
        yield from (dict.fromkeys(keys, value) for value in (None, 0.0, 1, True, "0.9093", math.nan, 10**400, stub))
        yield from ({}, None, [0.0] * 6, stub)
    elif inspect.isclass(right):
        yield module_with(right, stub)
        yield module_with(right, stub, construct=stub)
        yield module_with(right, identity)
        yield module_with(right, nothing)
        yield module_with(right, lambda x, *rest, **options: torch.zeros_like(x))
        yield module_with(right, lambda x, *rest, **options: torch.ones_like(x))
        yield from (stub, identity, nothing, None)
    else:
        yield from (stub, identity, nothing, filled_like(right, 0), filled_like(right, 1), None, 0.0)


@each(EXERCISES)
def test_what_answers_nothing_scores_nothing(case):
    week, entry = case
    for answer in empty_answers(week, entry):
        verdict = grade(week, entry, answer, cache=OF_THE_CLASS[week])
        assert verdict.score == 0, verdict.render()


@each(EXERCISES)
def test_an_answer_that_is_not_there_is_told_so_and_nothing_else(case):
    verdict = grade(*case, Absent(case[1].grade_id, ": its cell stopped"))
    assert [criterion.name for criterion in verdict.criteria] == ["an answer"]
    assert verdict.named == [f"`{case[1].grade_id}` is not defined: its cell stopped"]


@each([case for case in EXERCISES if case[1].grade_id in BUG_HUNTS])
def test_the_unchanged_snippet_of_a_bug_hunt_scores_nothing(case):
    week, entry = case
    entries = bank(week, entry.grade_id)
    assert [s.score for s in entries if s.name == f"snippet_{entry.grade_id}"] == [0]
    for snippet in snippets(week):
        if entry.grade_id in snippet:
            assert grade(week, entry, snippet[entry.grade_id]).score == 0


def snippets(week):
    """Yield the functions of each cell tagged ``listing`` in a week's text; they can call the reference's functions."""
    source = Path(__file__).parents[2] / "source" / f"{week}.py"
    text = source.read_text(encoding="utf-8") if source.exists() else ""
    for block in re.findall(r'^# %% tags=\[.*"listing".*\]\n(.*?)^# %%', text, flags=re.MULTILINE | re.DOTALL):
        code = ast.parse(block)
        code.body = [node for node in code.body if isinstance(node, ast.FunctionDef)]
        namespace = NAMES | vars(autograder.reference)
        exec(compile(code, str(source), "exec"), namespace)
        yield {node.name: namespace[node.name] for node in code.body}


def test_memorised_values_score_nothing():
    x, positions = torch.randn(2, 3, 5, 8), torch.tensor([4, 0, 9, 2, 7])
    seen = {(2, 3, 5, 8): autograder.reference.apply_rotary_emb(x, positions)}
    week, entry = next(case for case in EXERCISES if case[1].grade_id == "apply_rotary_emb")
    assert grade(week, entry, lambda x, positions, base=1e4: seen.get(tuple(x.shape), x)).score == 0


# ---- the checks themselves ------------------------------------------------------------------------------------------


def script_of(week, entry, seed=1):
    check = check_of(week, entry)
    test = check if isinstance(check, Exercise) else importlib.import_module(check.__module__)._loss_by_length
    return test, test.write(test.right, seed, "cpu")


@pytest.mark.nightly
@each(EXERCISES)
def test_probes_say_the_same_when_the_test_is_written(case):
    """Probes run after the test is written: none may use a variable that has changed since, or hand its own tensors to
    an answer that writes to them."""
    test, script = script_of(*case)
    for step in script.steps:
        if not step.watched and callable(test.right):
            torch.manual_seed(0)
            answer_of(lambda step=step: step.probe(Local(overwriting(test.right))))
    for step in script.steps:
        if isinstance(step, FollowsDevice):
            assert step.fault(answer_of(lambda step=step: step.probe(Local(test.right)))) is None, step.call
        elif step.questions and "parameters()" not in step.call:  # parameters start with other numbers each time
            again, due = answer_of(lambda step=step: step.probe(Local(test.right))), step.expected
            assert isinstance(again, Given) == isinstance(due, Given), step.call
            if isinstance(due, Given):
                assert not difference(plain(again.value), due.value, Tolerance(0, 0, exact_dtype=True)), step.call


@each(EXERCISES)
def test_no_block_but_that_of_the_device_leaves_the_cpu(case):
    test, script = script_of(*case)
    for step in script.steps:
        places = {
            leaf.device.type
            for question in recorded(step.probe, test.right)[1]
            for leaf in tree_leaves((question.args, question.kwargs))
            if isinstance(leaf, torch.Tensor)
        }
        assert places <= {step.device if isinstance(step, FollowsDevice) else "cpu"}, step.call


def overwriting(right):
    """Return the same function or class, but one that overwrites the tensors that it is given."""

    def spoil(arguments, options):
        for value in (*arguments, *options.values()):
            if isinstance(value, torch.Tensor) and not value.requires_grad:
                value.zero_()

    if inspect.isclass(right):

        class Overwriting(right):
            def forward(self, *arguments, **options):
                value = super().forward(*arguments, **options)
                spoil(arguments, options)
                return value

        return Overwriting

    def overwrite(*arguments, **options):
        value = right(*arguments, **options)
        spoil(arguments, options)
        return value

    return overwrite


@each(EXERCISES)
def test_a_criterion_that_asks_for_a_new_result_says_so(case, monkeypatch):
    week, entry = case
    asked = []
    returns_new = Check.returns_new
    monkeypatch.setattr(
        Check,
        "returns_new",
        lambda self, *a, **o: asked.append(self.script.blocks[-1].name) or returns_new(self, *a, **o),
    )
    script_of(week, entry)
    assert all("new" in block for block in asked), asked


@pytest.mark.nightly
@each(EXERCISES)
def test_the_seed_decides_what_is_drawn(case):
    one, same, other = ([step.expected for step in script_of(*case, seed)[1].steps] for seed in (7, 7, 8))
    assert all(map(told_alike, one, same)) or case[1].grade_id == "LearnedPositionalEmbedding"
    assert len(one) == len(other)


def told_alike(one, other):
    return type(one) is type(other) and (
        not isinstance(one, Given) or not difference(one.value, other.value, Tolerance(0, 0))
    )


def test_nobody_whose_square_masks_fail_is_told_that_they_are_right():
    def without_the_last_column(n_queries, n_keys):
        mask = torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)
        return mask[:, :-1] if n_queries == n_keys > 2 else mask

    verdict = grade(*next(case for case in EXERCISES if case[1].grade_id == "causal_mask"), without_the_last_column)
    assert not [sentence for sentence in verdict.named if "are right" in sentence]


# ---- the device -----------------------------------------------------------------------------------------------------

CODE = [(week, entry) for week, entries in MANIFEST.items() for entry in entries if entry.kind == "code"]
WITHOUT_CAUSES = {week: ResultCache() for week in MANIFEST}


def score_of(week, entry, subject, device="cpu", anew=None):
    """Grade without the known mistakes, which take longest."""
    check = check_of(week, entry)
    check = replace(check, mistakes=tuple) if isinstance(check, Exercise) else check
    with grading(1, device, WITHOUT_CAUSES[week]) as marking:
        if anew is not None:
            marking.anew = anew
        return check(subject).score


def on_the_cpu(tensor):
    return tensor.cpu()


def with_one_made_on_the_cpu(tensor):
    """Return the same numbers, combined with a tensor that was made without a device."""
    one = torch.zeros(tensor.shape[-1:], dtype=tensor.dtype)
    return tensor | one if tensor.dtype == torch.bool else tensor + one


def changing_its_inputs(right, change):
    def changed(values):
        return tree_map_only(torch.Tensor, change, values)

    if not inspect.isclass(right):
        return lambda *arguments, **options: right(*changed(arguments), **changed(options))

    class Module(right):
        def forward(self, *arguments, **options):
            if change is on_the_cpu:
                self.cpu()
            return super().forward(*changed(arguments), **changed(options))

    return Module


@each(CODE)
def test_the_reference_has_full_marks_on_the_simulated_device(case):
    week, entry = case
    right = getattr(autograder.reference, entry.grade_id)
    assert score_of(week, entry, right, simulated_device.NAME) == entry.points


@each(CODE)
def test_an_answer_that_forgets_the_device_loses_that_criterion_and_keeps_the_rest(case):
    week, entry = case
    test, script = script_of(*case)
    at_stake = [block.points for block in script.blocks if any(isinstance(step, FollowsDevice) for step in block.steps)]
    changes = [with_one_made_on_the_cpu, on_the_cpu] if at_stake else []
    if entry.grade_id == "per_key_bias_is_equivalent":  # a bool has no device
        changes.remove(on_the_cpu)
    for change in changes:
        assert score_of(week, entry, changing_its_inputs(test.right, change)) == entry.points - sum(at_stake), change
