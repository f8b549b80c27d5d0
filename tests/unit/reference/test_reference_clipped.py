import pytest
import torch

from autograder.reference import apply_rotary_emb, clipped_distances, rotary_scores


def test_distances_by_hand():
    expected = torch.tensor([[2, 1, 0, -1, -2], [2, 2, 1, 0, -1], [2, 2, 2, 1, 0]])
    assert torch.equal(clipped_distances(3, 5, 2), expected)
    assert torch.equal(
        clipped_distances(3, 5, 9), expected.new_tensor([[2, 1, 0, -1, -2], [3, 2, 1, 0, -1], [4, 3, 2, 1, 0]])
    )


@pytest.mark.parametrize("sizes", [(5, 3, 2), (0, 3, 2), (3, 3, -1)])
def test_errors(sizes):
    with pytest.raises(ValueError):
        clipped_distances(*sizes)


def test_scores_within_the_limit_are_those_of_rope():
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 4, 8, dtype=torch.float64), torch.randn(2, 3, 9, 8, dtype=torch.float64)
    at = torch.arange(9)
    rope = apply_rotary_emb(q, at[5:]) @ apply_rotary_emb(k, at).mT
    torch.testing.assert_close(rotary_scores(q, k, clipped_distances(4, 9, 8)), rope)


def test_scores_of_any_distances_against_a_double_loop():
    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 4, 8, dtype=torch.float64), torch.randn(2, 3, 5, 8, dtype=torch.float64)
    distances = torch.randint(-9, 60, (4, 5))
    scores = rotary_scores(q, k, distances, base=50.0)
    for i in range(4):
        for j in range(5):
            turned = apply_rotary_emb(q[:, :, i : i + 1], distances[i, j].view(1), 50.0)[:, :, 0]
            torch.testing.assert_close(scores[:, :, i, j], (turned * k[:, :, j]).sum(-1))
