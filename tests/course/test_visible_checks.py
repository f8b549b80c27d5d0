"""The visible checks on the answers of the banks: none refuses an answer that is right on every device, and none says
"Looks right" about one that earns nothing."""

import re
import sys
from functools import cache

import pytest
import torch
from course.weeks import WEEKS
from helpers import COURSE

from autograder.build.text import to_notebook
from autograder.grading.sandbox.worker import simulated_device  # noqa: F401  which lab.py looks for beside it
from autograder.manifest import MANIFEST
from autograder.misconceptions.bank import bank

pytestmark = pytest.mark.usefixtures("one_thread")

EXERCISES = [(week, entry) for week, entries in MANIFEST.items() for entry in entries if entry.kind != "text"]
CODE = [case for case in EXERCISES if case[1].kind == "code"]
BY_HAND = [case for case in EXERCISES if case[1].kind == "numbers"]


def name(case):
    return case[1].grade_id


@cache
def notebook(week):
    """Return what a week's cells define when all answers are right, and the code of its graded cells."""
    (text,) = [path for path in WEEKS if path.stem == week]
    namespace, sources = {}, {}
    sys.path.insert(0, str(COURSE / "source"))  # where the set-up cells find lab.py and the week's own files
    try:
        for cell in to_notebook(text.read_text(encoding="utf-8")).cells:
            marks = cell.metadata.get("nbgrader")
            if cell.cell_type != "code" or marks is None:
                continue
            sources[marks.grade_id] = cell.source
            if not marks.grade:
                exec(cell.source, namespace)
    finally:
        sys.path.remove(str(COURSE / "source"))
    return namespace, sources


def complaint(week, entry, answer):
    """Return the visible check's error for an answer typed into its cell, or nothing if it passes."""
    namespace, sources = notebook(week)
    namespace = dict(namespace)
    try:
        exec(answer, namespace)
        exec(sources[f"{entry.grade_id}_check"], namespace)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        torch.set_grad_enabled(True)
    return ""


@pytest.mark.parametrize("case", EXERCISES, ids=name)
def test_a_visible_check_refuses_no_right_answer_but_those_that_forget_the_device(case):
    week, entry = case
    right = [solution for solution in bank(week, entry.grade_id) if solution.is_right]
    answers = {solution.name: solution.source for solution in right}
    answers["solution"] = notebook(week)[1][entry.grade_id]
    refused = {name: said for name, answer in answers.items() if (said := complaint(week, entry, answer))}
    assert refused.keys() == {solution.name for solution in right if solution.forgets_device}, refused
    assert all(re.search("the CPU|NumPy|whole numbers", said) for said in refused.values()), refused


@pytest.mark.parametrize("case", CODE, ids=name)
def test_a_visible_check_praises_no_answer_that_earns_nothing(case):
    week, entry = case
    worthless = [solution for solution in bank(week, entry.grade_id) if solution.score == 0]
    praised = [solution.name for solution in worthless if not complaint(week, entry, solution.source)]
    assert not praised, f"the visible check says nothing about {praised}, which earn nothing"


@pytest.mark.parametrize("case", BY_HAND, ids=name)
def test_the_check_of_a_hand_computation_promises_nothing(case):
    """Only these answers may pass their check and earn nothing: comparing the values would give them away. So the check
    tests their form and whether they agree with one another, and claims no more."""
    week, entry = case
    assert "Looks right" not in notebook(week)[1][f"{entry.grade_id}_check"]
