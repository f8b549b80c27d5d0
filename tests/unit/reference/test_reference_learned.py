import pytest
import torch

from autograder.reference import LearnedPositionalEmbedding

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def test_one_trainable_table():
    module = LearnedPositionalEmbedding(5, 3)
    (parameter,) = module.parameters()
    assert parameter.shape == (5, 3) and parameter.requires_grad and len(module.state_dict()) == 1
    assert parameter.std() > 0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_adds_its_rows_in_the_input_dtype(dtype, device):
    module = LearnedPositionalEmbedding(5, 3).to(device)
    x = torch.randn(4, 2, 3, dtype=dtype, device=device)
    out = module(x)
    assert out.dtype == dtype and out.shape == x.shape
    wide = torch.promote_types(dtype, torch.float32)
    assert torch.equal(out, (x.to(wide) + module.weight[:2].to(wide)).to(dtype))  # rounded once
    out.sum().backward()
    assert module.weight.grad[:2].eq(4).all() and module.weight.grad[2:].eq(0).all()


def test_batch_and_sequence_of_equal_length():
    module = LearnedPositionalEmbedding(4, 3)
    out = module(torch.zeros(4, 4, 3))
    assert torch.equal(out, module.weight.expand(4, 4, 3))


def test_past_the_table_is_an_error():
    module = LearnedPositionalEmbedding(5, 3)
    module(torch.zeros(1, 5, 3))
    with pytest.raises(ValueError, match="5 positions"):
        module(torch.zeros(1, 6, 3))
