"""Week 7's kernels: properties for every size and every split, and what must be refused."""

import itertools
import math

import pytest
import torch
from helpers import random
from hypothesis import given, settings
from hypothesis import strategies as st

from autograder.reference import (
    CachedAttention,
    CrossAttention,
    HybridDecoderBlock,
    RotaryMultiHeadAttention,
    apply_rotary_emb,
    generate,
    grouped_query_attention,
    padded_causal,
    scaled_dot_product_attention,
    shift_cached_keys,
)

EXACT = {"rtol": 0, "atol": 1e-12}
FEW = settings(max_examples=15, deadline=None)


def scaled_up(module):
    """Make the weights as large as trained ones: initial weights give scores near zero, which hide mistakes."""
    for parameter in module.double().parameters():
        torch.nn.init.normal_(parameter, std=1.4 / math.sqrt(parameter.shape[-1]))
    return module


def in_pieces(module, x, sizes):
    outputs, cache = [], None
    for piece in x.split(sizes, dim=1):
        out, cache = module(piece, cache)
        outputs.append(out)
    return torch.cat(outputs, dim=1), cache


@given(
    n=st.integers(1, 9),
    cuts=st.sets(st.integers(1, 8)),
    heads=st.sampled_from([(8, 2), (12, 3), (4, 4), (4, 1), (2, 1)]),
)
@FEW
def test_any_split_of_a_text_gives_the_output_of_the_whole(n, cuts, heads):
    module = scaled_up(CachedAttention(heads[0] * 4, *heads))
    x = random(2, n, heads[0] * 4)
    edges = [0, *sorted(cut for cut in cuts if cut < n), n]
    whole, (keys, values) = module(x)
    pieces, cache = in_pieces(module, x, [b - a for a, b in itertools.pairwise(edges)])
    torch.testing.assert_close(pieces, whole, **EXACT)
    torch.testing.assert_close(cache, (keys, values), **EXACT)


def test_one_prefix_continued_twice():
    module = scaled_up(CachedAttention(16, 4, 2))
    prefix, first, second = random(1, 5, 16), random(1, 3, 16, seed=1), random(1, 2, 16, seed=2)
    _, cache = module(prefix)
    kept = tuple(part.clone() for part in cache)
    for continuation in (first, second):
        out, longer = module(continuation, cache)
        torch.testing.assert_close(out, module(torch.cat((prefix, continuation), 1))[0][:, 5:], **EXACT)
        assert longer[0].shape == (1, 2, 5 + continuation.shape[1], 4)
    assert all(torch.equal(a, b) for a, b in zip(cache, kept, strict=False))


def test_with_as_many_key_heads_it_is_week_3s_layer():
    cached, plain = (
        scaled_up(CachedAttention(24, 3, 3, base=500.0)),
        RotaryMultiHeadAttention(24, 3, base=500.0).double(),
    )
    plain.load_state_dict(cached.state_dict())
    x = random(2, 7, 24)
    torch.testing.assert_close(cached(x)[0], plain(x, is_causal=True), **EXACT)


def test_angles_stay_exact_in_bfloat16():
    """bfloat16 cannot count beyond 256; positions must not be built in it."""
    module = scaled_up(CachedAttention(16, 2, 1))
    x = random(1, 400, 16).bfloat16()
    exact, _ = module(x.double())
    rounded, cache = in_pieces(module.bfloat16(), x, [300, 99, 1])
    assert rounded.dtype == cache[0].dtype == cache[1].dtype == torch.bfloat16
    assert (rounded.double() - exact).abs().max() < 0.4


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(8, 2), (12, 3)])
def test_repeat_is_not_repeat_interleave(n_heads, n_kv_heads):
    q, k, v = random(2, n_heads, 4, 6), random(2, n_kv_heads, 5, 6, seed=1), random(2, n_kv_heads, 5, 3, seed=2)
    out, weights = grouped_query_attention(q, k, v)
    assert out.shape == (2, n_heads, 4, 3) and weights.shape == (2, n_heads, 4, 5)
    group = n_heads // n_kv_heads
    for h in range(n_heads):
        shared = slice(h // group, h // group + 1)
        alone = scaled_dot_product_attention(q[:, h : h + 1], k[:, shared], v[:, shared])
        torch.testing.assert_close((out[:, h : h + 1], weights[:, h : h + 1]), alone, **EXACT)
    repeated, _ = scaled_dot_product_attention(q, k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1))
    assert (repeated - out).abs().max() > 0.5


def test_a_mask_of_its_own_for_every_head():
    q, k, v = random(2, 4, 3, 6), random(2, 2, 5, 6, seed=1), random(2, 2, 5, 6, seed=2)
    mask = random(2, 4, 3, 5, seed=3) > 0
    mask[0, 1, 2] = False
    out, weights = grouped_query_attention(q, k, v, mask)
    assert not weights[~mask].any() and not out[0, 1, 2].any()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).double(), **EXACT)


@given(padding=st.lists(st.integers(0, 5), min_size=1, max_size=3), n_queries=st.integers(1, 6))
@FEW
def test_padding_on_the_left_changes_nothing_for_real_tokens(padding, n_queries):
    keep = torch.arange(6) >= torch.tensor(padding)[:, None]
    positions, mask = padded_causal(keep, n_queries)
    assert positions.shape == (len(padding), n_queries) and positions.dtype == torch.int64
    assert mask.shape == (len(padding), 1, n_queries, 6) and mask.dtype == torch.bool
    for row, n_padding in enumerate(padding):
        for at in range(6 - n_queries, 6):
            if at >= n_padding:
                query = at - (6 - n_queries)
                assert positions[row, query] == at - n_padding
                assert mask[row, 0, query].tolist() == [n_padding <= key <= at for key in range(6)]


def test_a_padded_batch_gives_the_output_of_each_text_alone():
    module = scaled_up(RotaryMultiHeadAttention(16, 2))
    x, keep = random(2, 6, 16), torch.arange(6) >= torch.tensor([0, 3])[:, None]
    positions, mask = padded_causal(keep, 6)
    q, k, v = module.heads(x)
    out, _ = scaled_dot_product_attention(apply_rotary_emb(q, positions), apply_rotary_emb(k, positions), v, mask)
    torch.testing.assert_close(module.output(out)[1:, 3:], module(x[1:, 3:], is_causal=True), **EXACT)


@given(start=st.integers(-50, 50), offset=st.integers(-10_000, 10_000))
@FEW
def test_moved_keys_are_keys_rotated_elsewhere(start, offset):
    k, positions = random(2, 3, 5, 8), torch.arange(5) + start
    moved = shift_cached_keys(apply_rotary_emb(k, positions), offset)
    torch.testing.assert_close(moved, apply_rotary_emb(k, positions + offset), rtol=0, atol=1e-11)


def test_moved_bfloat16_keys_are_rounded_once():
    k = random(1, 2, 5, 64).bfloat16()
    moved = shift_cached_keys(k, 9_999)
    assert moved.dtype == torch.bfloat16
    torch.testing.assert_close(moved.double(), shift_cached_keys(k.double(), 9_999), rtol=2**-8, atol=2e-3)


# ---- cross-attention and the block ----------------------------------------------------------------------------------


def test_the_memorys_padding_is_never_seen():
    module = scaled_up(CrossAttention(24, 3))
    x, memory, mask = random(2, 4, 24), random(2, 6, 24, seed=1), torch.arange(6) < torch.tensor([6, 4])[:, None]
    out = module(x, memory, mask)
    torch.testing.assert_close(out[1:], module(x[1:], memory[1:, :4]), **EXACT)


def test_a_memory_without_a_real_token_gives_zeros():
    module = scaled_up(CrossAttention(24, 3))
    x = random(2, 4, 24).requires_grad_()
    mask = torch.tensor([[True, False], [False, False]])
    out = module(x, random(2, 2, 24, seed=1), mask)
    assert not out[1].any() and out[0].any()
    out.sum().backward()
    assert x.grad.isfinite().all()


def test_only_the_difference_of_positions_counts():
    module = scaled_up(CrossAttention(16, 2))
    x, memory = random(2, 4, 16), random(2, 6, 16, seed=1)
    here, there = torch.arange(4), torch.arange(6) * 0.5
    out = module(x, memory, None, here, there)
    torch.testing.assert_close(module(x, memory, None, (here + 40).expand(2, 4), there + 40), out, rtol=0, atol=1e-10)
    assert (module(x, memory, None, here + 1, there) - out).abs().max() > 0.01
    torch.testing.assert_close(module(x, memory, None, here * 0, there * 0), module(x, memory), **EXACT)


def test_the_block_is_causal_in_x_and_sees_all_of_the_memory():
    block = scaled_up(HybridDecoderBlock(16, 2))
    x, memory = random(1, 5, 16), random(1, 4, 16, seed=1)
    out = block(x, memory)
    torch.testing.assert_close(block(x[:, :3], memory), out[:, :3], **EXACT)
    assert (block(x, memory.flip(1)) - out).abs().max() < 1e-12  # the memory has no positions
    other = torch.cat((memory[:, :3], random(1, 1, 16, seed=2)), 1)
    assert bool(((block(x, other) - out).abs().amax(-1) > 1e-3).all())


# ---- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(24, 5, 1), (24, 6, 4), (24, 6, 0), (18, 6, 2), (24, 0, 1), (24, 4, 8)])
def test_sizes_that_do_not_fit(arguments):
    with pytest.raises(ValueError):
        CachedAttention(*arguments)


@pytest.mark.parametrize("cls", [CrossAttention, HybridDecoderBlock])
@pytest.mark.parametrize("arguments", [(24, 5), (18, 6)])
def test_heads_that_do_not_fit(cls, arguments):
    with pytest.raises(ValueError):
        cls(*arguments)


@pytest.mark.parametrize("shape", [(1, 2, 5, 4), (2, 4, 5, 4), (2, 2, 5, 6), (2, 2, 5)])
def test_a_cache_of_another_shape(shape):
    good = 2, 2, 5, 4
    for keys, values in ((shape, shape), (good, shape)):
        with pytest.raises(ValueError, match="cache"):
            CachedAttention(16, 4, 2)(torch.zeros(2, 1, 16), (torch.zeros(keys), torch.zeros(values)))


def test_what_is_written_in_a_batch_is_what_each_prompt_gets_alone_from_cached_attention():
    torch.manual_seed(0)
    module, table = scaled_up(CachedAttention(16, 4, 2)), random(23, 16, seed=3)
    embedded = torch.nn.Embedding.from_pretrained(table)

    def decode(tokens, positions, mask, cache):
        q, k, v = (
            layer(embedded(tokens)).unflatten(-1, (-1, 4)).transpose(1, 2)
            for layer in (module.q_proj, module.k_proj, module.v_proj)
        )
        q, k = apply_rotary_emb(q, positions), apply_rotary_emb(k, positions)
        if cache is not None:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        out, _ = grouped_query_attention(q, k, v, mask)
        return module.o_proj(out.transpose(1, 2).flatten(2)) @ table.T, (k, v)

    prompts = [[3], [7, 1, 22, 4], [5, 5], [0, 9, 2]]
    together = generate(decode, prompts, 6)
    assert together.dtype == torch.int64 and tuple(together.shape) == (4, 6)
    assert len(set(map(tuple, together.tolist()))) == 4  # the prompts are not forgotten
    for prompt, row in zip(prompts, together.tolist(), strict=True):
        text = list(prompt)
        for _ in range(6):
            out, _ = module(embedded(torch.tensor([text])))
            text.append(int((out[0, -1] @ table.T).argmax()))
        assert text[len(prompt) :] == row


def test_other_bad_input():
    q, k = torch.zeros(1, 4, 2, 6), torch.zeros(1, 3, 2, 6)
    with pytest.raises(ValueError, match="n_kv_heads"):
        grouped_query_attention(q, k, k)
    with pytest.raises(ValueError, match="same number"):
        grouped_query_attention(q, k[:, :2], k[:, :1])
    with pytest.raises(TypeError, match="boolean"):
        grouped_query_attention(q, k[:, :2], k[:, :2], torch.ones(2, 2))
    with pytest.raises(ValueError, match="n_queries"):
        padded_causal(torch.ones(1, 3, dtype=torch.bool), 4)
    with pytest.raises(TypeError, match="boolean"):
        padded_causal(torch.ones(1, 3), 2)
    with pytest.raises(ValueError, match="even"):
        shift_cached_keys(torch.zeros(1, 1, 2, 5), 1)
    module, x = CrossAttention(8, 2), torch.zeros(1, 2, 8)
    for one in ({"positions": torch.arange(2)}, {"memory_positions": torch.arange(2)}):
        with pytest.raises(ValueError, match="both or none"):
            module(x, x, **one)
    with pytest.raises(TypeError, match="boolean"):
        module(x, x, torch.ones(1, 2))
