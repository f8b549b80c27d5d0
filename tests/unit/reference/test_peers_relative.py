"""Week 6's kernels against independent implementations; calls and tolerances as in the project's fact sheet.

The packages are imported plainly: without the `peers` extra this file fails, it is not skipped.
"""

import math

import pytest
import torch
from helpers import random
from transformers import DebertaV2Config, T5Config, Wav2Vec2BertConfig
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as wav2vec2
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention
from x_transformers.x_transformers import RelativePositionBias

from autograder.reference import (
    deberta_scores,
    relative_positions,
    shaw_attention,
    t5_attention,
    t5_bucket,
    transformer_xl_scores,
)

# --- T5 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (64, 256), (8, 20), (16, 1000), (128, 800)])
def test_buckets_of_transformers_and_x_transformers(bidirectional, num_buckets, max_distance):
    offsets = torch.arange(-3000, 3001)
    ours = t5_bucket(offsets, bidirectional, num_buckets, max_distance)
    hugging_face = T5Attention._relative_position_bucket(offsets, bidirectional, num_buckets, max_distance)
    x_transformers = RelativePositionBias._relative_position_bucket(
        offsets, not bidirectional, num_buckets, max_distance
    )
    assert torch.equal(ours, hugging_face) and torch.equal(ours, x_transformers)


def t5_config(is_decoder):
    return T5Config(d_model=24, d_kv=8, num_heads=3, is_decoder=is_decoder, attn_implementation="eager")


@pytest.mark.parametrize("is_causal", [True, False])
def test_attention_of_t5(is_causal):
    torch.manual_seed(0)
    peer = T5Attention(t5_config(is_causal), has_relative_attention_bias=True, layer_idx=0).double().eval()
    torch.nn.init.normal_(peer.relative_attention_bias.weight)
    x = random(2, 50, 24)
    hidden = (
        torch.zeros(1, 1, 50, 50).double().masked_fill(relative_positions(50, 50) > 0, -math.inf) if is_causal else None
    )
    q, k, v = (p(x).unflatten(-1, (3, 8)).transpose(1, 2) for p in (peer.q, peer.k, peer.v))
    with torch.no_grad():
        expected = peer(x, mask=hidden)[0]
        out, _ = t5_attention(q, k, v, peer.relative_attention_bias.weight, is_causal)
        torch.testing.assert_close(peer.o(out.transpose(1, 2).flatten(2)), expected, rtol=0, atol=1e-14)


def test_offsets_of_t5_with_a_cache():
    peer = T5Attention(t5_config(True), has_relative_attention_bias=True, layer_idx=0)
    torch.nn.init.normal_(peer.relative_attention_bias.weight)
    bias = peer.relative_attention_bias.weight[t5_bucket(relative_positions(3, 9), False)].permute(2, 0, 1)
    assert torch.equal(peer.compute_bias(3, 9, past_seen_tokens=6)[0], bias)


# --- Shaw -----------------------------------------------------------------------------------------------------------


def shaw_scores(q, k, rel_k):
    """Return the attention weights, which give the scores up to a constant per row; values play no part."""
    zeros = torch.zeros(*k.shape[:-1], 1, dtype=q.dtype)
    return shaw_attention(q, k, zeros, rel_k, torch.zeros(len(rel_k), 1, dtype=q.dtype))[1]


@pytest.mark.parametrize("clip", [2, 5, 30])
def test_key_term_of_wav2vec2_bert(clip):
    config = Wav2Vec2BertConfig(
        hidden_size=24,
        num_attention_heads=3,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=clip,
        right_max_position_embeddings=clip,
    )
    peer = wav2vec2.Wav2Vec2BertSelfAttention(config).double()
    q, k = random(2, 3, 12, 8), random(2, 3, 12, 8, seed=1)
    _, bias = wav2vec2._apply_relative_key_position_encoding(peer, q, k)
    expected = (q @ k.mT * peer.scaling + bias).softmax(-1)
    torch.testing.assert_close(shaw_scores(q, k, peer.distance_embedding.weight), expected, rtol=0, atol=1e-14)


# --- Transformer-XL -------------------------------------------------------------------------------------------------


def test_shift_and_scores_of_xlnet():
    """XLNet feeds 2n distances, from n down to -n + 1, and is right on both sides."""
    n = 9
    q, k = random(2, 3, n, 8, seed=1), random(2, 3, n, 8, seed=2)
    r, u, v = random(3, 2 * n, 8, seed=3), random(3, 8, seed=4), random(3, 8, seed=5)  # row c: distance n - c
    position = XLNetRelativeAttention.rel_shift_bnij((q + v[:, None]) @ r.mT, klen=n)
    expected = ((q + u[:, None]) @ k.mT + position) / math.sqrt(8)
    ours = transformer_xl_scores(q, k, r[:, : n + 1].flip(1)[:, :n], u, v)
    seen = relative_positions(n, n) <= 0
    torch.testing.assert_close(ours[..., seen], expected[..., seen], rtol=0, atol=5e-15)


def test_scores_of_wav2vec2_bert():
    n = 9
    config = Wav2Vec2BertConfig(hidden_size=24, num_attention_heads=3, position_embeddings_type="relative")
    peer = wav2vec2.Wav2Vec2BertSelfAttention(config).double()
    for bias in (peer.pos_bias_u, peer.pos_bias_v):
        torch.nn.init.normal_(bias)
    q, k, encodings = random(2, 3, n, 8, seed=1), random(2, 3, n, 8, seed=2), random(1, 2 * n - 1, 24, seed=3)
    biased, position = wav2vec2._apply_relative_position_encoding(peer, q, k, encodings)
    expected = biased @ k.mT * peer.scaling + position
    projected = peer.linear_pos(encodings)[0].unflatten(-1, (3, 8)).transpose(0, 1)  # distances n - 1 .. -(n - 1)
    ours = transformer_xl_scores(q, k, projected[:, :n].flip(1), peer.pos_bias_u, peer.pos_bias_v)
    seen = relative_positions(n, n) <= 0
    torch.testing.assert_close(ours[..., seen], expected[..., seen], rtol=0, atol=5e-15)


# --- DeBERTa --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seq_len", "span"), [(6, 8), (12, 4)])
def test_scores_of_deberta(seq_len, span):
    torch.manual_seed(0)
    config = DebertaV2Config(
        hidden_size=24,
        num_attention_heads=3,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        max_relative_positions=span,
        position_buckets=-1,
        share_att_key=False,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    peer = DisentangledSelfAttention(config).double().eval()
    for parameter in peer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    x, table = random(2, seq_len, 24), random(2 * span, 24, seed=1)
    with torch.no_grad():
        _, expected = peer(x, torch.ones(2, 1, seq_len, seq_len), output_attentions=True, rel_embeddings=table)
        q, k = (p(x).unflatten(-1, (3, 8)).transpose(1, 2) for p in (peer.query_proj, peer.key_proj))
        pos_q, pos_k = (
            p(table).unflatten(-1, (3, 8)).transpose(0, 1) for p in (peer.pos_query_proj, peer.pos_key_proj)
        )
    # the peer takes its square roots in float32
    torch.testing.assert_close(deberta_scores(q, k, pos_q, pos_k).softmax(-1), expected, rtol=0, atol=1e-6)
