"""What only week 4 has: a frame in which the variants of its layer are written."""

import pytest
import torch
from course.variants_week4 import Frame
from torch import nn

from autograder.checks import week4
from autograder.grading.marking.marking import grading

pytestmark = pytest.mark.usefixtures("one_thread")

WEEK = "week4_alibi"


def grade(grade_id, *subjects, seed=11):
    with grading(seed):
        return getattr(week4, grade_id)(*subjects)


def test_the_frame_of_the_variants_is_right():
    assert grade("ALiBiMultiHeadAttention", Frame).score == 5


def test_a_table_of_parameters_is_found():
    class Learned(Frame):
        def __init__(self, d_model, n_heads):
            super().__init__(d_model, n_heads)
            self.extra = nn.Parameter(torch.zeros(1))

    assert grade("ALiBiMultiHeadAttention", Learned).score == 4.5
