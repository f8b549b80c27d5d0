"""The reference kernels against independent implementations; calls and tolerances as in the project's fact sheet.

The packages are imported plainly: without the `peers` extra this file fails, it is not skipped. The peers keep their
inverse frequencies in float32, hence tolerances around 1e-5 at small positions.
"""

import pytest
import torch
from helpers import random
from rotary_embedding_torch import RotaryEmbedding
from transformers import LlamaConfig, MptConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama
from transformers.models.mpt.modeling_mpt import MptAttention, build_mpt_alibi_tensor
from x_transformers import x_transformers

from autograder.reference import (
    ALiBiMultiHeadAttention,
    RotaryMultiHeadAttention,
    alibi_bias,
    alibi_slopes,
    apply_rotary_emb,
    apply_rotary_emb_half,
    causal_mask,
    dynamic_ntk_base,
    interleaved_to_half,
    ntk_base,
    position_interpolation,
    rope_frequencies,
    rotate_half,
    sinusoidal_positional_encoding,
    yarn_frequencies,
    yarn_temperature,
)

POSITIONS = torch.arange(64)
ROTARY = {"rtol": 0, "atol": 2e-5}


# --- ALiBi ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_heads", range(1, 65))
def test_slopes_and_bias_of_mpt_and_bloom(n_heads):
    slopes = alibi_slopes(n_heads)
    last_query = alibi_bias(n_heads, 1, 20)

    mpt = build_mpt_alibi_tensor(n_heads, 20)  # -slope * (n - 1 - j), the last query's row
    torch.testing.assert_close(-mpt[:, 0, -2], slopes, rtol=1e-6, atol=0)
    torch.testing.assert_close(mpt, last_query, rtol=1e-6, atol=1e-6)

    bloom = build_alibi_tensor(torch.ones(1, 20), n_heads, torch.float32)  # slope * j
    torch.testing.assert_close(bloom[:, 0, 1], slopes, rtol=1e-6, atol=0)
    torch.testing.assert_close(bloom - bloom[..., -1:], last_query, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("n_heads", [1, 4, 6, 8, 12, 20])
def test_symmetric_bias_of_x_transformers(n_heads):
    peer = x_transformers.AlibiPositionalBias(heads=n_heads, total_heads=n_heads)(33, 33)
    torch.testing.assert_close(alibi_bias(n_heads, 33), peer, rtol=1e-6, atol=1e-6)
    peer = x_transformers.AlibiPositionalBias(heads=n_heads, total_heads=n_heads)(5, 33)
    torch.testing.assert_close(alibi_bias(n_heads, 5, 33), peer, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n_heads", [4, 6])
def test_attention_module_of_mpt(n_heads):
    torch.manual_seed(0)
    ours = ALiBiMultiHeadAttention(24, n_heads)
    peer = MptAttention(MptConfig(d_model=24, n_heads=n_heads)).eval()
    with torch.no_grad():
        peer.Wqkv.weight.copy_(torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]))
        peer.out_proj.weight.copy_(ours.o_proj.weight)
    x = random(2, 32, 24, dtype=torch.float32)
    expected, _ = peer(x, build_mpt_alibi_tensor(n_heads, 32), attention_mask=~causal_mask(32, 32))
    torch.testing.assert_close(ours(x), expected, rtol=0, atol=2e-6)


# --- RoPE -----------------------------------------------------------------------------------------------------------


def llama_config(**rope):
    return LlamaConfig(
        hidden_size=96,
        num_attention_heads=3,
        num_key_value_heads=3,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, **rope},
    )


@pytest.mark.parametrize("theta", [10000.0, 500000.0])
def test_half_split_of_llama(theta):
    q, k = random(2, 3, 64, 32, seed=1), random(2, 3, 64, 32, seed=2)
    rotary = modeling_llama.LlamaRotaryEmbedding(llama_config(rope_theta=theta))
    torch.testing.assert_close(rope_frequencies(32, theta), rotary.inv_freq, rtol=1e-6, atol=0)
    expected = modeling_llama.apply_rotary_pos_emb(q, k, *rotary(q, POSITIONS[None]))
    for x, peer in zip((q, k), expected, strict=True):
        torch.testing.assert_close(apply_rotary_emb_half(x, POSITIONS, theta), peer, **ROTARY)
    assert torch.equal(rotate_half(q), modeling_llama.rotate_half(q))


def test_converted_module_in_llama_attention():
    torch.manual_seed(0)
    ours = RotaryMultiHeadAttention(96, 3)
    config = llama_config()
    config._attn_implementation = "eager"
    peer = modeling_llama.LlamaAttention(config, layer_idx=0).eval()
    peer.load_state_dict(
        {
            "q_proj.weight": interleaved_to_half(ours.q_proj.weight, 3),
            "k_proj.weight": interleaved_to_half(ours.k_proj.weight, 3),
            "v_proj.weight": ours.v_proj.weight,
            "o_proj.weight": ours.o_proj.weight,
        }
    )
    x, positions = random(2, 64, 96, dtype=torch.float32), torch.stack([POSITIONS, POSITIONS + 7])
    tables = modeling_llama.LlamaRotaryEmbedding(config)(x, positions)
    hidden = torch.zeros(64, 64).masked_fill(~causal_mask(64, 64), float("-inf"))
    for is_causal, mask in [(True, hidden), (False, None)]:
        expected, _ = peer(x, position_embeddings=tables, attention_mask=mask)
        torch.testing.assert_close(ours(x, positions, is_causal), expected, rtol=0, atol=5e-6)


def test_interleaved_of_gptj():
    x = random(2, 3, 64, 32)
    sin, cos = modeling_gptj.create_sinusoidal_positions(64, 32).double().chunk(2, dim=-1)
    # GPT-J rotates (batch, seq_len, heads, head_dim)
    peer = modeling_gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    torch.testing.assert_close(apply_rotary_emb(x, POSITIONS), peer, **ROTARY)


@pytest.mark.parametrize("offset", [0, 7])
def test_interleaved_of_rotary_embedding_torch(offset):
    x = random(2, 3, 64, 32)
    peer = RotaryEmbedding(dim=32).rotate_queries_or_keys(x, offset=offset)
    torch.testing.assert_close(apply_rotary_emb(x, POSITIONS + offset), peer, **ROTARY)


def test_interleaved_of_x_transformers():
    x, positions = random(2, 3, 64, 32), torch.stack([POSITIONS, POSITIONS.flip(0)])
    rotary = x_transformers.RotaryEmbedding(32)
    for p in (POSITIONS, positions):
        peer = x_transformers.apply_rotary_pos_emb(x, rotary(p)[0])
        torch.testing.assert_close(apply_rotary_emb(x, p), peer, **ROTARY)


# --- sinusoidal -----------------------------------------------------------------------------------------------------


def test_sinusoidal_table_of_gptj():
    interleaved = sinusoidal_positional_encoding(64, 32)
    concatenated = torch.cat((interleaved[:, 0::2], interleaved[:, 1::2]), dim=-1)  # [sin | cos]
    torch.testing.assert_close(concatenated, modeling_gptj.create_sinusoidal_positions(64, 32), **ROTARY)


# --- length extrapolation -------------------------------------------------------------------------------------------


def test_interpolation_of_rotary_embedding_torch():
    x = random(2, 3, 64, 32)
    peer = RotaryEmbedding(dim=32, interpolate_factor=4).rotate_queries_or_keys(x)
    torch.testing.assert_close(apply_rotary_emb(x, position_interpolation(POSITIONS, 4)), peer, **ROTARY)


def test_ntk_of_rotary_embedding_torch():
    x = random(2, 3, 64, 32)
    peer = RotaryEmbedding(dim=32, theta_rescale_factor=2).rotate_queries_or_keys(x)
    torch.testing.assert_close(apply_rotary_emb(x, POSITIONS, ntk_base(10000.0, 2, 32)), peer, **ROTARY)


def test_linear_frequencies_of_transformers():
    peer, factor = ROPE_INIT_FUNCTIONS["linear"](llama_config(rope_type="linear", factor=4.0))
    # dividing positions or dividing frequencies gives the same angles
    torch.testing.assert_close(
        rope_frequencies(32) * position_interpolation(torch.tensor(1), 4), peer, rtol=1e-6, atol=0
    )
    assert factor == 1


@pytest.mark.parametrize("seq_len", [1, 4096, 4097, 8192, 30000])
@pytest.mark.parametrize("scale", [1.0, 2.0, 4.0])
def test_dynamic_frequencies_of_transformers(scale, seq_len):
    config = llama_config(rope_type="dynamic", factor=scale)
    peer, factor = ROPE_INIT_FUNCTIONS["dynamic"](config, seq_len=seq_len)
    base = dynamic_ntk_base(10000.0, scale, 32, seq_len, 4096)
    torch.testing.assert_close(rope_frequencies(32, base), peer, rtol=1e-6, atol=0)
    assert factor == 1


@pytest.mark.parametrize("head_dim", [8, 16, 32, 64, 128])
@pytest.mark.parametrize(
    ("scale", "original_len", "theta", "betas"),
    [
        (4.0, 4096, 10000.0, (32.0, 1.0)),
        (16.0, 4096, 500000.0, (32.0, 1.0)),
        (2.0, 64, 10000.0, (32.0, 1.0)),
        (8.0, 64, 10000.0, (4.0, 0.5)),
        (4.0, 2048, 10000.0, (1.0, 1.0)),
        (4.0, 100_000, 100.0, (32.0, 1.0)),
        (1.0, 4096, 10000.0, (32.0, 1.0)),
        (4.0, 6, 10000.0, (32.0, 1.0)),
        (4.0, 3, 10000.0, (32.0, 1.0)),
    ],
)
def test_yarn_frequencies_of_transformers(head_dim, scale, original_len, theta, betas):
    config = LlamaConfig(
        hidden_size=3 * head_dim,
        num_attention_heads=3,
        head_dim=head_dim,
        max_position_embeddings=int(original_len * scale),
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": theta,
            "factor": scale,
            "original_max_position_embeddings": original_len,
            "beta_fast": betas[0],
            "beta_slow": betas[1],
        },
    )
    peer, factor = ROPE_INIT_FUNCTIONS["yarn"](config)
    torch.testing.assert_close(yarn_frequencies(head_dim, scale, original_len, theta, *betas), peer, rtol=1e-6, atol=0)
    assert yarn_temperature(scale) == pytest.approx(factor, rel=1e-12)
