"""Check what weeks 3 and 4 say about other people's code on the code itself: transformers, in the pinned version.

The notebooks show each trap in a few lines of their own. If one of these tests fails after an upgrade, the section
"In the wild" of that week tells students something that is no longer true.
"""

import inspect
import math
from pathlib import Path

import pytest
import torch
import transformers
from transformers import LlamaConfig
from transformers.core_model_loading import PermuteForRope
from transformers.models.bloom import modeling_bloom
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

from autograder.reference import alibi_slopes, interleaved_to_half, rope_frequencies, rotate_half

pytestmark = pytest.mark.nightly

HEAD_DIM = 128
HEADS, TOKENS = 112, 2048  # BLOOM's


@pytest.fixture
def llama() -> LlamaConfig:
    return LlamaConfig(hidden_size=HEAD_DIM, num_attention_heads=1, num_key_value_heads=1)


def weights(bias: torch.Tensor) -> torch.Tensor:
    """Attention of the last query under equal content, (heads, keys)."""
    return bias.reshape(HEADS, TOKENS).double().softmax(-1)


def exact_weights() -> torch.Tensor:
    return weights(alibi_slopes(HEADS).double()[:, None] * torch.arange(TOKENS))


def test_the_version_is_the_one_the_notebooks_name() -> None:
    assert transformers.__version__.startswith("5.23.")


def test_llama_keeps_its_base_in_rope_parameters(llama: LlamaConfig) -> None:
    assert llama.rope_parameters["rope_theta"] == 10000.0
    with pytest.raises(AttributeError):
        _ = llama.rope_theta


def test_a_cast_still_rounds_the_frequencies_of_llama(llama: LlamaConfig) -> None:
    positions = torch.arange(4096)
    exact = torch.outer(positions.double(), rope_frequencies(HEAD_DIM).double()).cos()

    def worst_error(rotary: torch.nn.Module) -> float:
        cos, _ = rotary(torch.zeros(1), positions[None])
        return float((cos[0, :, : HEAD_DIM // 2] - exact).abs().max())

    rotary = modeling_llama.LlamaRotaryEmbedding(llama)
    assert worst_error(rotary) < 0.001
    assert worst_error(rotary.to(torch.bfloat16)) > 1.99


def test_loading_in_bfloat16_keeps_the_frequencies_of_llama(llama: LlamaConfig, tmp_path: Path) -> None:
    llama.num_hidden_layers, llama.intermediate_size, llama.vocab_size = 1, 8, 8
    modeling_llama.LlamaModel(llama).save_pretrained(tmp_path)
    loaded = modeling_llama.LlamaModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert next(loaded.parameters()).dtype == torch.bfloat16
    assert loaded.rotary_emb.inv_freq.dtype == torch.float32


def test_who_pairs_neighbours_and_who_pairs_halves() -> None:
    x = torch.arange(1.0, 9.0).view(1, 1, 1, 8)
    for module in (modeling_llama, modeling_gpt_neox):
        assert torch.equal(module.rotate_half(x), rotate_half(x))
    assert modeling_gptj.rotate_every_two(x).flatten().tolist() == [-2, 1, -4, 3, -6, 5, -8, 7]


def test_permute_for_rope_is_the_converter_of_3_4() -> None:
    weight = torch.randn(24, 5, generator=torch.Generator().manual_seed(0))
    config = LlamaConfig(hidden_size=24, num_attention_heads=3)
    assert torch.equal(PermuteForRope()._permute_for_rope(weight, config), interleaved_to_half(weight, 3))


def test_bloom_cannot_tell_its_newest_tokens_apart_in_bfloat16() -> None:
    bloom = weights(build_alibi_tensor(torch.ones(1, TOKENS), HEADS, torch.bfloat16))
    assert [round(float(weight), 2) for weight in bloom[0, -4:]] == [0.0, 0.0, 0.5, 0.5]
    assert [round(float(weight), 2) for weight in exact_weights()[0, -4:]] == [0.04, 0.1, 0.24, 0.6]
    # Its slopes are powers taken in float32, ours are rounded once: a few ties more or less among the flat heads.
    assert abs(int((bloom[:, -1] == bloom[:, -2]).sum()) - 104) <= 2


def test_bloom_rounds_the_sum_of_bias_and_content_too() -> None:
    """`BloomAttention` adds both in one call; content is 3 at the last key but one and -3 at the last."""
    assert "alibi.baddbmm(" in inspect.getsource(modeling_bloom.BloomAttention.forward)
    bias = build_alibi_tensor(torch.ones(1, TOKENS), HEADS, torch.bfloat16)
    keys = torch.zeros(HEADS, 1, TOKENS, dtype=torch.bfloat16)
    keys[..., -2], keys[..., -1] = 3, -3
    scores = bias.baddbmm(torch.ones(HEADS, 1, 1, dtype=torch.bfloat16), keys)[:, 0]
    assert scores[0, -1] == scores[0, -2] == 1880
    assert abs(int((scores[:, -1] == scores[:, -2]).sum()) - 14) <= 2


def test_mpt_counts_from_the_last_key_and_is_exact_near_the_query() -> None:
    mpt = build_mpt_alibi_tensor(HEADS, TOKENS)
    assert mpt.dtype == torch.float32 and float(mpt[..., -1].abs().max()) == 0
    assert math.isclose(float(mpt[0, 0, -2]), -float(alibi_slopes(HEADS)[0]), rel_tol=1e-6)
    # in bfloat16 only the slopes are rounded near the query, by at most 2**-9 of their value
    assert float((weights(mpt.to(torch.bfloat16)) - exact_weights()).abs().max()) < 0.001
