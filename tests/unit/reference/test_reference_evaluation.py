import math

import pytest
import torch
from torch import nn

from autograder.reference import loss_by_length

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


class Model(nn.Module):
    """A model whose logits depend on the token and its index in the window; it records its inputs."""

    def __init__(self, vocab=7, dtype=torch.float64):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.token = nn.Parameter(torch.randn(vocab, vocab, dtype=dtype, generator=generator))
        self.index = nn.Parameter(torch.randn(50, vocab, dtype=dtype, generator=generator))
        self.dropout = nn.Sequential(nn.Dropout(0.9), nn.Dropout(0.9))
        self.seen = []

    def forward(self, x):
        self.seen.append((x.clone(), torch.is_grad_enabled()))
        return self.dropout(self.token[x] + self.index[: x.shape[1]])


def tokens(device="cpu"):
    return torch.randint(7, (3, 21), generator=torch.Generator().manual_seed(1)).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_against_the_definition(dtype, device):
    model, text = Model(dtype=dtype).to(device), tokens(device)
    result = loss_by_length(model, text, [4, 20, 9], 3)
    assert list(result) == [4, 20, 9] and all(type(k) is int and type(v) is float for k, v in result.items())
    for length, loss in result.items():
        total = 0.0
        for row in text.cpu():
            for t in (18, 19, 20):  # the last three tokens, each predicted from the one before
                logits = (model.token[row[t - 1]] + model.index[t - 1 - (20 - length)]).double().cpu()
                total += (logits.exp().sum().log() - logits[row[t]]).item()
        assert loss == pytest.approx(total / 9, rel=1e-12)


def test_windows_and_no_gradients():
    model, text = Model(), tokens()
    loss_by_length(model, text, [4, 20], 4)
    for (seen, grad), length in zip(model.seen, [4, 20], strict=True):
        assert torch.equal(seen, text[:, 20 - length : 20]) and not grad
    assert all(parameter.grad is None for parameter in model.parameters()) and torch.is_grad_enabled()


def test_uniform_model_has_log_vocab():
    def uniform(x):  # any callable will do
        return torch.zeros(*x.shape, 7)

    log_vocab = pytest.approx(math.log(7))
    assert loss_by_length(uniform, tokens(), range(5, 7), 5) == {5: log_vocab, 6: log_vocab}


def test_training_flags_are_left_as_they_were():
    model = Model()
    model.train()
    model.dropout[1].eval()
    flags = [module.training for module in model.modules()]
    assert True in flags and False in flags
    assert loss_by_length(model, tokens(), [5], 2) == loss_by_length(model.eval(), tokens(), [5], 2)  # dropout was off
    for module, flag in zip(model.modules(), flags, strict=True):
        module.training = flag
    loss_by_length(model, tokens(), [5], 2)
    assert [module.training for module in model.modules()] == flags

    class Broken(Model):
        def forward(self, x):
            raise RuntimeError("broken")

    broken = Broken()
    with pytest.raises(RuntimeError, match="broken"):
        loss_by_length(broken, tokens(), [5], 2)
    assert all(module.training for module in broken.modules())


@pytest.mark.parametrize(("lengths", "n_targets"), [([21], 2), ([5, 30], 2), ([5, 2], 3), ([5], 6), ([5], 0)])
def test_errors_before_the_model_is_called(lengths, n_targets):
    model = Model()
    with pytest.raises(ValueError, match="n_targets"):
        loss_by_length(model, tokens(), lengths, n_targets)
    assert model.seen == []
