"""Week 8's kernels against independent implementations; calls and tolerances as in the project's fact sheet."""

from types import SimpleNamespace

import pytest
import torch
from helpers import random
from torch import nn
from transformers import DeepseekV3Config, GPTNeoXConfig, GptOssConfig, masking_utils
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLTextConfig

from autograder.reference import (
    apply_mrope,
    causal_mask,
    mla_attention,
    mrope_positions,
    partial_rotary_emb,
    sliding_window_mask,
    softmax_with_sink,
)

EXACT = {"rtol": 0, "atol": 1e-13}


# ---- rotations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "factor", "base"), [(4, 0.25, 10000.0), (8, 0.5, 10000.0), (2, 1.0, 500.0)])
def test_a_part_of_gpt_neox_channels(heads, factor, base):
    config = GPTNeoXConfig(
        hidden_size=64,
        num_attention_heads=heads,
        rope_parameters={"rope_type": "default", "rope_theta": base, "partial_rotary_factor": factor},
    )
    q, k = random(2, heads, 7, 64 // heads), random(2, heads, 7, 64 // heads, seed=1)
    positions = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [40, 3, 9, 9, 0, 100, 7]])
    cos, sin = modeling_gpt_neox.GPTNeoXRotaryEmbedding(config)(q, positions)
    expected = modeling_gpt_neox.apply_rotary_pos_emb(q, k, cos, sin)
    rotary_dim = int(64 // heads * factor)
    for ours, theirs in zip((q, k), expected, strict=True):
        got = partial_rotary_emb(ours, positions, rotary_dim, base)
        torch.testing.assert_close(got, theirs, rtol=0, atol=2e-5)  # angles up to 100, in float32
        assert torch.equal(got[..., rotary_dim:], ours[..., rotary_dim:])


@pytest.mark.parametrize(("head_dim", "sections"), [(128, [16, 24, 24]), (24, [4, 3, 5]), (12, [0, 2, 4])])
def test_sections_of_qwen2_5_vl(head_dim, sections):
    config = Qwen2_5_VLTextConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        num_key_value_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections},
    )
    rotary = modeling_qwen2_5_vl.Qwen2_5_VLRotaryEmbedding(config)
    q, k = random(2, 2, 6, head_dim), random(2, 2, 6, head_dim, seed=1)
    positions = torch.randint(0, 60, (3, 2, 6), generator=torch.Generator().manual_seed(2))
    expected = modeling_qwen2_5_vl.apply_rotary_pos_emb(q, k, *rotary(q, positions))
    for ours, theirs in zip((q, k), expected, strict=True):
        got = apply_mrope(ours, positions, sections, 1e6)
        torch.testing.assert_close(got, theirs, rtol=0, atol=2e-5)  # angles up to 60, in float32
    one = positions[:, :1].expand(3, 2, 6)
    torch.testing.assert_close(apply_mrope(q, positions[:, 0], sections), apply_mrope(q, one, sections), **EXACT)


def test_the_recomposition_alone_is_exact():
    """Which axis each pair takes, without rounded angles: our rotation of (1, 0) gives the recomposed cosines."""
    n_pairs, sections = 12, [4, 3, 5]
    positions = torch.arange(18).view(3, 6)
    angles = positions[:, :, None].double() * 10000.0 ** (-torch.arange(n_pairs, dtype=torch.float64) / n_pairs)
    peer = modeling_qwen2_5_vl.Qwen2_5_VLRotaryEmbedding.recomposition_frequencies
    table = peer(SimpleNamespace(mrope_section=sections), angles.cos()[:, None])[0]
    x = torch.cat((torch.ones(1, 1, 6, n_pairs), torch.zeros(1, 1, 6, n_pairs)), dim=-1).double()
    assert torch.equal(apply_mrope(x, positions, sections)[0, 0, :, :n_pairs], table[:, :n_pairs])


# ---- positions of grids ---------------------------------------------------------------------------------------------


def positions_of_qwen(segments):
    """Return the positions of transformers' Qwen2.5-VL for texts and pictures (t = 1) or videos."""
    kinds, images, videos = [], [], []
    for segment in segments:
        if isinstance(segment, int):
            kinds += [0] * segment
        else:
            t, h, w = segment
            kinds += [1 if t == 1 else 2] * (t * h * w)
            (images if t == 1 else videos).append(segment)
    cls = modeling_qwen2_5_vl.Qwen2_5_VLModel
    model = SimpleNamespace(
        config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=1, tokens_per_second=1)),
        get_vision_position_ids=lambda *arguments, **options: cls.get_vision_position_ids(None, *arguments, **options),
    )
    positions, _ = cls.get_rope_index(
        model,
        input_ids=torch.zeros(1, len(kinds), dtype=torch.long),
        mm_token_type_ids=torch.tensor([kinds]),
        image_grid_thw=torch.tensor(images) if images else None,
        video_grid_thw=torch.tensor(videos) if videos else None,
    )
    return positions[:, 0]


@pytest.mark.parametrize(
    "segments", [[3], [2, (1, 2, 3), 2], [(1, 4, 2), 3, (1, 1, 5), 1], [1, (2, 3, 2), 4], [5, (3, 3, 2)]]
)
def test_grids_of_qwen2_5_vl(segments):
    """Where time is not the longest axis, both rules agree."""
    assert torch.equal(mrope_positions(segments), positions_of_qwen(segments))


def test_transformers_forgets_time_after_a_long_video():
    segments = [2, (5, 2, 2), 1]
    ours, theirs = mrope_positions(segments), positions_of_qwen(segments)
    assert torch.equal(ours[:, :-1], theirs[:, :-1])
    assert ours[:, -1].tolist() == [7, 7, 7] and theirs[:, -1].tolist() == [4, 4, 4]


# ---- windows, sinks, a stream ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_queries", "n_keys", "window"), [(7, 7, 3), (2, 9, 4), (1, 5, 1), (4, 6, 100)])
def test_the_mask_function_of_transformers(n_queries, n_keys, window):
    seen = masking_utils.sliding_window_causal_mask_function(window)
    expected = [
        [bool(seen(0, 0, torch.tensor(n_keys - n_queries + row), torch.tensor(key))) for key in range(n_keys)]
        for row in range(n_queries)
    ]
    assert sliding_window_mask(n_queries, n_keys, window).tolist() == expected


@pytest.mark.parametrize("hidden", [False, True])
def test_the_eager_attention_of_gpt_oss(hidden):
    config = GptOssConfig(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    layer = modeling_gpt_oss.GptOssAttention(config, layer_idx=0).double().eval()
    nn.init.normal_(layer.sinks, generator=torch.Generator().manual_seed(3))
    q, k, v = random(2, 4, 5, 8), random(2, 2, 9, 8, seed=1), random(2, 2, 9, 8, seed=2)
    bias = torch.zeros(5, 9, dtype=torch.float64).masked_fill(~sliding_window_mask(5, 9, 4), -torch.inf)
    bias = bias if hidden else torch.zeros_like(bias)
    out, expected = modeling_gpt_oss.eager_attention_forward(layer, q, k, v, bias, scaling=8**-0.5)
    scores = q @ k.repeat_interleave(2, dim=1).mT / 8**0.5 + bias
    weights = softmax_with_sink(scores, layer.sinks)
    torch.testing.assert_close(weights, expected, **EXACT)
    torch.testing.assert_close((weights @ v.repeat_interleave(2, dim=1)).transpose(1, 2), out, **EXACT)


# ---- latent attention -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_new", [6, 2, 1])
def test_the_attention_of_deepseek_v3(n_new):
    """Our arguments come from the layer's own projections; our result must be that of its attention before o_proj."""
    dn, dr, dv, rank, heads, n = 6, 4, 5, 7, 3, 6
    config = DeepseekV3Config(
        hidden_size=24,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        q_lora_rank=8,
        kv_lora_rank=rank,
        qk_nope_head_dim=dn,
        qk_rope_head_dim=dr,
        v_head_dim=dv,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    layer = modeling_deepseek_v3.DeepseekV3Attention(config, layer_idx=0).double().eval()
    layer.o_proj = nn.Identity()
    x, positions = random(2, n, 24), torch.arange(n)[None]
    rotary = modeling_deepseek_v3.DeepseekV3RotaryEmbedding(config)
    cos, sin = (table.double() for table in rotary(x, positions))
    mask = causal_mask(n, n)
    expected, _ = layer(x, (cos, sin), mask.expand(2, 1, -1, -1))

    q = layer.q_b_proj(layer.q_a_layernorm(layer.q_a_proj(x))).unflatten(-1, (heads, dn + dr)).transpose(1, 2)
    latent, k_rope = layer.kv_a_proj_with_mqa(x).split([rank, dr], dim=-1)
    q_rope, k_rope = modeling_deepseek_v3.apply_rotary_pos_emb_interleave(q[..., dn:], k_rope[:, None], cos, sin)
    w_uk, w_uv = layer.kv_b_proj.weight.view(heads, dn + dv, rank).split([dn, dv], dim=1)
    new = slice(n - n_new, n)
    out = mla_attention(
        q[:, :, new, :dn],
        q_rope[:, :, new],
        layer.kv_a_layernorm(latent),
        k_rope[:, 0],
        w_uk,
        w_uv,
        causal_mask(n_new, n),
    )
    torch.testing.assert_close(out.transpose(1, 2).flatten(2), expected[:, new], **EXACT)
