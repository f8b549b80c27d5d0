"""Week 7's kernels against independent implementations; calls and tolerances as in the project's fact sheet."""

import pytest
import torch
import torch.nn.functional as F
from helpers import random
from rotary_embedding_torch import RotaryEmbedding
from torch import nn
from transformers import DynamicCache, LlamaConfig
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import repeat_kv

from autograder.reference import (
    CachedAttention,
    CrossAttention,
    HybridDecoderBlock,
    apply_rotary_emb,
    causal_mask,
    grouped_query_attention,
    interleaved_to_half,
    shift_cached_keys,
)

EXACT = {"rtol": 0, "atol": 1e-13}


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(8, 2), (12, 3), (4, 1), (4, 4)])
def test_grouped_heads_of_sdpa_and_llama(n_heads, n_kv_heads):
    q, k, v = random(2, n_heads, 5, 8), random(2, n_kv_heads, 9, 8, seed=1), random(2, n_kv_heads, 9, 6, seed=2)
    out, weights = grouped_query_attention(q, k, v, causal_mask(5, 9))
    torch.testing.assert_close(
        F.scaled_dot_product_attention(q, k, v, causal_mask(5, 9), enable_gqa=True), out, **EXACT
    )
    torch.testing.assert_close(weights @ repeat_kv(v, n_heads // n_kv_heads), out, **EXACT)


def llama_layer(ours: CachedAttention, n_heads: int, n_kv_heads: int):
    """Return LLaMA's layer with our weights, q and k reordered to its half-split layout; float64 throughout."""
    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    config._attn_implementation = "sdpa"  # the eager one takes its softmax in float32
    peer = modeling_llama.LlamaAttention(config, layer_idx=0).double().eval()
    peer.load_state_dict(
        {
            "q_proj.weight": interleaved_to_half(ours.q_proj.weight, n_heads),
            "k_proj.weight": interleaved_to_half(ours.k_proj.weight, n_kv_heads),
            "v_proj.weight": ours.v_proj.weight,
            "o_proj.weight": ours.o_proj.weight,
        }
    )
    return peer, modeling_llama.LlamaRotaryEmbedding(config)


@pytest.mark.parametrize("sizes", [[12], [5, 7], [11, 1], [1] * 12])
def test_llamas_layer_with_its_dynamic_cache(sizes):
    torch.manual_seed(0)
    ours = CachedAttention(64, 8, 2).double()
    peer, rotary = llama_layer(ours, 8, 2)
    x, start = random(2, 12, 64), 0
    theirs, cache = DynamicCache(), None
    for piece in x.split(sizes, dim=1):
        n = piece.shape[1]
        positions = torch.arange(start, start + n)[None]
        cos, sin = rotary(piece, positions)
        expected, _ = peer(
            piece,
            position_embeddings=(cos.double(), sin.double()),
            past_key_values=theirs,
            attention_mask=causal_mask(n, start + n).expand(2, 1, -1, -1),
        )
        out, cache = ours(piece, cache)
        # LLaMA's tables are float32.
        torch.testing.assert_close(out, expected, rtol=0, atol=1e-6)
        start += n
    assert theirs.layers[0].keys.shape == cache[0].shape


@pytest.mark.parametrize("offset", [7, 100])
def test_keys_moved_by_rotary_embedding_torch(offset):
    k = random(2, 3, 16, 32)
    rotary = RotaryEmbedding(dim=32)
    near = rotary.rotate_queries_or_keys(k)
    far = rotary.rotate_queries_or_keys(k, offset=offset)
    torch.testing.assert_close(shift_cached_keys(near, offset), far, rtol=0, atol=2e-5)  # its frequencies are float32
    ours = shift_cached_keys(apply_rotary_emb(k, torch.arange(16)), offset)
    torch.testing.assert_close(ours, apply_rotary_emb(k, torch.arange(16) + offset), **EXACT)


def multihead(d_model, n_heads, layer):
    peer = nn.MultiheadAttention(d_model, n_heads, bias=False, batch_first=True).double().eval()
    with torch.no_grad():
        peer.in_proj_weight.copy_(torch.cat([layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight]))
        peer.out_proj.weight.copy_(layer.o_proj.weight)
    return peer


def test_cross_attention_of_torch():
    torch.manual_seed(0)
    ours = CrossAttention(24, 3).double()
    x, memory, mask = random(2, 5, 24), random(2, 7, 24, seed=1), torch.arange(7) < torch.tensor([7, 4])[:, None]
    expected, _ = multihead(24, 3, ours)(x, memory, memory, key_padding_mask=~mask)
    torch.testing.assert_close(ours(x, memory, mask), expected, **EXACT)


def test_decoder_block_of_torch():
    """TransformerDecoderLayer with pre-norm; ALiBi is passed as a mask that is added to the scores."""
    from autograder.reference import alibi_bias

    torch.manual_seed(0)
    ours = HybridDecoderBlock(32, 4).double()
    peer = nn.TransformerDecoderLayer(32, 4, 128, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    peer = peer.double().eval()
    with torch.no_grad():
        for theirs, layer in ((peer.self_attn, ours.self_attn), (peer.multihead_attn, ours.cross_attn)):
            theirs.in_proj_weight.copy_(torch.cat([layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight]))
            theirs.out_proj.weight.copy_(layer.o_proj.weight)
            theirs.in_proj_bias.zero_()
            theirs.out_proj.bias.zero_()
        for theirs, layer in ((peer.linear1, ours.ffn[0]), (peer.linear2, ours.ffn[2])):
            theirs.load_state_dict(layer.state_dict())
    x, memory, keep = random(2, 6, 32), random(2, 5, 32, seed=1), torch.arange(5) < torch.tensor([5, 3])[:, None]
    bias = alibi_bias(4, 6).double().masked_fill(~causal_mask(6, 6), float("-inf")).repeat(2, 1, 1)
    expected = peer(x, memory, tgt_mask=bias, memory_key_padding_mask=~keep)
    torch.testing.assert_close(ours(x, memory, keep), expected, **EXACT)
