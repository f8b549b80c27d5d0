"""Recorded questions: what a probe asks, and which questions may be sent before earlier answers have arrived."""

from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from autograder.checks import week3
from autograder.checks.probes import calling, calling_again, differentiating
from autograder.script.answer import Answer, Given, Raised
from autograder.script.question import Question, recorded


def asked(probe: Any, right: Any) -> tuple[Answer, list[tuple[int | None, str | None, bool]]]:
    answer, questions = recorded(probe, right)
    return answer, [(question.made_by, question.method, question.is_plain) for question in questions]


WEIGHTS = {"weight": torch.tensor([[2.0, 1.0]]), "bias": torch.tensor([1.0])}


def test_a_module_that_a_question_makes_is_asked_by_its_number() -> None:
    def twice(cls: Any) -> list[Any]:
        module = cls.made({"weights": WEIGHTS, "zeroed": []}, 2, 1)
        module.to(torch.float64)
        return [module(torch.tensor(x, dtype=torch.float64)).tolist() for x in ([3.0, 4.0], [0.0, 0.0])]

    answer, questions = asked(twice, nn.Linear)
    assert isinstance(answer, Given) and answer.value == [[11.0], [1.0]]
    assert questions == [(None, None, True), (0, "to", True), (0, None, True), (0, None, True)]


def test_a_question_that_is_made_of_an_answer_is_asked_by_itself() -> None:
    _, handed_on = asked(lambda f: f(f(torch.ones(2))), lambda x: 2 * x)
    _, not_handed_on = asked(lambda f: f(torch.ones(2)) - f(torch.zeros(2)), lambda x: 2 * x)
    _, number = asked(lambda f: f(torch.full((2,), f(1))), lambda x: 2 * x)
    assert [plain for *_, plain in handed_on + not_handed_on + number] == [True, False, True, True, True, False]


def test_the_right_one_answers_twice_only_where_a_question_follows_a_value() -> None:
    answered: list[str] = []

    def right() -> Any:
        answered.append("made")
        return lambda n: answered.append("called") or n

    recorded(lambda make: make()(1), right)
    assert answered == ["made", "called"]
    answered.clear()
    recorded(lambda make: [call(n) for call in [make()] for n in (1, 2)], right)
    assert answered == ["made", "called", "called"] * 2


def test_a_question_that_hands_over_a_function_is_asked_by_itself() -> None:
    assert asked(calling(abs, 2), lambda f, x: f(x))[1] == [(None, None, False)]


def test_to_refuse_is_an_answer_and_what_was_asked_is_known() -> None:
    answer, questions = asked(calling("no", size=1), lambda x: x)
    assert isinstance(answer, Raised) and questions == [(None, None, True)]


def test_a_question_keeps_what_it_asked_whatever_becomes_of_its_arguments() -> None:
    x = torch.ones(2)
    _, questions = recorded(lambda f: f(x), lambda x: x + 1)
    x.zero_()
    assert torch.equal(questions[0].args[0], torch.ones(2))


def test_a_gradient_and_a_second_call_travel_with_the_question() -> None:
    _, (slope,) = recorded(differentiating(torch.ones(2)), lambda x: x**2)
    _, (again,) = recorded(calling_again(torch.ones(2)), lambda x: x + 1)
    assert slope.slope == (0, None) and not slope.keeps_graph and again.again
    assert Question(None, None, (torch.ones(2, requires_grad=True),), {}).keeps_graph


def test_a_script_keeps_no_graph_of_what_is_right() -> None:
    """The graph of attention on one long text would take hundreds of megabytes in every judge."""
    script = week3.RotaryMultiHeadAttention.write(week3.RotaryMultiHeadAttention.right, 5, "cpu")
    kept = [leaf for step in script.steps for leaf in tree_leaves(getattr(step.expected, "value", None))]
    tensors = [leaf for leaf in kept if isinstance(leaf, torch.Tensor)]
    assert len(tensors) > 20 and not any(tensor.requires_grad for tensor in tensors)
