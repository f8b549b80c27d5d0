"""The contract of every reference kernel: names, dtype, device, graph, unchanged arguments, nothing cached."""

import inspect
from functools import cache

import pytest
import torch

from autograder import reference

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]

SIGNATURES = {
    "scaled_dot_product_attention": "(q, k, v, mask=None)",
    "equivariance_gap": "(f, x, perm)",
    "causal_mask": "(n_queries, n_keys)",
    "sinusoidal_positional_encoding": "(seq_len, d_model, base=10000.0)",
    "shift_matrix": "(offset, d_model, base=10000.0)",
    "LearnedPositionalEmbedding": "(max_len, d_model)",
    "similarity_counterexample": "(d_model)",
    "rope_frequencies": "(head_dim, base=10000.0)",
    "apply_rotary_emb": "(x, positions, base=10000.0)",
    "apply_rotary_emb_half": "(x, positions, base=10000.0)",
    "interleaved_to_half": "(weight, n_heads)",
    "RotaryMultiHeadAttention": "(d_model, n_heads, base=10000.0)",
    "rotate_half": "(x)",
    "rotary_tables": "(positions, head_dim, dtype=torch.float32, base=10000.0)",
    "serving_test": "(rotate_llama, prompt_scores, decode_step_scores)",
    "decode_step_scores": "(q, k_cache, base=10000.0)",
    "look_back_head": "(back, head_dim, n_keys)",
    "alibi_slopes": "(n_heads)",
    "alibi_bias": "(n_heads, n_queries, n_keys=None)",
    "per_key_bias_is_equivalent": "(scores, slopes, causal)",
    "ALiBiMultiHeadAttention": "(d_model, n_heads)",
    "effective_window": "(slope, tol=0.01)",
    "position_interpolation": "(positions, scale)",
    "ntk_base": "(base, scale, head_dim)",
    "dynamic_ntk_base": "(base, scale, head_dim, seq_len, original_len)",
    "yarn_frequencies": "(head_dim, scale, original_len, base=10000.0, beta_fast=32.0, beta_slow=1.0)",
    "yarn_temperature": "(scale)",
    "loss_by_length": "(model, tokens, lengths, n_targets)",
    "clipped_distances": "(n_queries, n_keys, limit)",
    "rotary_scores": "(q, k, distances, base=10000.0)",
    "log_n_scale": "(n, n0)",
    "relative_positions": "(n_queries, n_keys)",
    "shaw_attention": "(q, k, v, rel_k, rel_v, mask=None)",
    "rel_shift": "(x)",
    "transformer_xl_scores": "(q, k, r, content_bias, position_bias)",
    "t5_bucket": "(relative_position, bidirectional=True, num_buckets=32, max_distance=128)",
    "t5_attention": "(q, k, v, table, is_causal=False, max_distance=128)",
    "deberta_scores": "(q, k, pos_q, pos_k)",
    "grouped_query_attention": "(q, k, v, mask=None)",
    "CachedAttention": "(d_model, n_heads, n_kv_heads, base=10000.0)",
    "padded_causal": "(keep, n_queries)",
    "generate": "(decode, prompts, n_new)",
    "shift_cached_keys": "(k, offset, base=10000.0)",
    "CrossAttention": "(d_model, n_heads, base=10000.0)",
    "HybridDecoderBlock": "(d_model, n_heads)",
    "partial_rotary_emb": "(x, positions, rotary_dim, base=10000.0)",
    "mrope_positions": "(segments)",
    "apply_mrope": "(x, positions, sections, base=10000.0)",
    "sliding_window_mask": "(n_queries, n_keys, window)",
    "softmax_with_sink": "(scores, sinks)",
    "streaming_cache": "(n_tokens, n_sinks, window)",
    "mla_attention": "(q_nope, q_rope, latent, k_rope, w_uk, w_uv, mask=None)",
    "layers_that_turn": "(config)",
}


def test_names_are_those_of_the_outline():
    assert set(reference.__all__) == set(SIGNATURES)


def signature(function):
    """Return names and defaults as the notebooks give them, without types."""
    found, nothing = inspect.signature(function), inspect.Parameter.empty
    plain = [parameter.replace(annotation=nothing) for parameter in found.parameters.values()]
    return str(found.replace(parameters=plain, return_annotation=nothing))


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    assert signature(getattr(reference, name)) == SIGNATURES[name]


@pytest.mark.parametrize("name", SIGNATURES)
def test_docstring_names_its_source(name):
    assert "Source: " in getattr(reference, name).__doc__


def test_forward_signatures():
    assert signature(reference.LearnedPositionalEmbedding.forward) == "(self, x)"
    assert signature(reference.RotaryMultiHeadAttention.forward) == "(self, x, positions=None, is_causal=False)"
    assert signature(reference.ALiBiMultiHeadAttention.forward) == "(self, x, is_causal=True)"
    assert signature(reference.CachedAttention.forward) == "(self, x, cache=None)"
    assert signature(reference.CrossAttention.forward) == (
        "(self, x, memory, memory_mask=None, positions=None, memory_positions=None)"
    )
    assert signature(reference.HybridDecoderBlock.forward) == "(self, x, memory, memory_mask=None)"


@cache
def module(cls, sizes, dtype, device):
    """Return the same module at every call: what one call leaves in it, the next would find."""
    torch.manual_seed(0)
    return cls(*sizes).to(device=device, dtype=dtype)


def layer(cls, x, *sizes):
    return module(cls, sizes, x.dtype, x.device)


def positions(x):
    return torch.arange(x.shape[-2], device=x.device)


def below_the_diagonal(x, n_keys=5):
    """Return a mask for five queries, the first of which sees no key."""
    return torch.ones(5, n_keys, dtype=torch.bool, device=x.device).tril(-1)


def learned(x):
    return module(reference.LearnedPositionalEmbedding, (6, 24), torch.float32, x.device)(x)  # whatever x is


def cached(x, keys, values):
    out, (k, v) = layer(reference.CachedAttention, x, 24, 6, 2)(x, (keys, values))
    return out + k.mean() + v.mean()


def cross(x, memory):
    mask = torch.ones(2, 7, dtype=torch.bool, device=x.device).triu(1)  # the second memory has its first keys hidden
    return layer(reference.CrossAttention, x, 24, 3)(x, memory, mask, positions(x), positions(memory) / 2)


def sink(scores, sinks):
    hidden = torch.ones(5, 8, dtype=torch.bool, device=scores.device).triu()  # the first row has no key
    return reference.softmax_with_sink(scores.masked_fill(hidden, -torch.inf), sinks)


HEADS, MODEL = (2, 3, 5, 8), (2, 5, 24)
# Each case: a call that returns one tensor, and the shapes of its arguments.
CASES = {
    "attention": (
        lambda q, k, v: reference.scaled_dot_product_attention(q, k, v, below_the_diagonal(q))[0],
        [HEADS] * 3,
    ),
    "attention_weights": (lambda q, k, v: reference.scaled_dot_product_attention(q, k, v)[1] * v.mean(), [HEADS] * 3),
    "rope": (lambda x: reference.apply_rotary_emb(x, positions(x)), [HEADS]),
    "rope_per_batch": (
        lambda x: reference.apply_rotary_emb(x, torch.arange(10, device=x.device).view(2, 5) * 0.5),
        [HEADS],
    ),
    "rope_half": (lambda x: reference.apply_rotary_emb_half(x, positions(x)), [HEADS]),
    "interleaved_to_half": (lambda w: reference.interleaved_to_half(w, 3), [(24, 7)]),
    # With one pair per head the order does not change; the result is still a copy.
    "interleaved_to_half_one_pair": (lambda w: reference.interleaved_to_half(w, 3), [(6, 7)]),
    "rotate_half": (reference.rotate_half, [HEADS]),
    "decode_step_scores": (reference.decode_step_scores, [(2, 3, 1, 8), HEADS]),
    "rotary_scores": (
        lambda q, k: reference.rotary_scores(q[:, :, 2:], k, torch.arange(15, device=q.device).view(3, 5)),
        [HEADS] * 2,
    ),
    "position_interpolation": (lambda p: reference.position_interpolation(p, 1), [(5,)]),
    "learned": (learned, [MODEL]),
    "rotary_module": (lambda x: layer(reference.RotaryMultiHeadAttention, x, 24, 3)(x, is_causal=True), [MODEL]),
    "alibi_module": (lambda x: layer(reference.ALiBiMultiHeadAttention, x, 24, 3)(x), [MODEL]),
    "shaw": (
        lambda q, *more: reference.shaw_attention(q, *more, below_the_diagonal(q))[0],
        [*[HEADS] * 3, (5, 8), (5, 8)],
    ),
    "rel_shift": (reference.rel_shift, [(2, 3, 4, 6)]),
    "transformer_xl_scores": (reference.transformer_xl_scores, [(2, 3, 2, 8), HEADS, (3, 5, 8), (3, 8), (3, 8)]),
    "t5_attention": (lambda *tensors: reference.t5_attention(*tensors, is_causal=True)[0], [*[HEADS] * 3, (32, 3)]),
    "deberta_scores": (reference.deberta_scores, [HEADS, HEADS, (3, 4, 8), (3, 4, 8)]),
    "grouped": (lambda q, k, v: reference.grouped_query_attention(q, k, v)[0], [HEADS, (2, 1, 5, 8), (2, 1, 5, 8)]),
    "cached": (cached, [MODEL, (2, 2, 3, 4), (2, 2, 3, 4)]),
    "shifted": (lambda k: reference.shift_cached_keys(k, 3), [HEADS]),
    "cross": (cross, [MODEL, (2, 7, 24)]),
    "hybrid": (lambda x, memory: layer(reference.HybridDecoderBlock, x, 24, 3)(x, memory), [MODEL, (2, 7, 24)]),
    "partial": (lambda x: reference.partial_rotary_emb(x, positions(x), 4), [HEADS]),
    "mrope": (lambda x: reference.apply_mrope(x, torch.arange(15, device=x.device).view(3, 5), (1, 1, 2)), [HEADS]),
    "mrope_per_batch": (
        lambda x: reference.apply_mrope(x, torch.arange(30, device=x.device).view(3, 2, 5) * 0.5, [2, 0, 2]),
        [HEADS],
    ),
    "sink": (sink, [HEADS, (3,)]),
    "latent": (
        lambda *tensors: reference.mla_attention(*tensors, below_the_diagonal(tensors[0], 7)),
        [HEADS, (2, 3, 5, 4), (2, 7, 6), (2, 7, 4), (3, 8, 6), (3, 5, 6)],
    ),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_dtype_device_graph_and_arguments(name, dtype, device):
    call, shapes = CASES[name]
    torch.manual_seed(0)
    arguments = [torch.randn(shape, device=device, dtype=dtype) for shape in shapes]
    before = [argument.clone() for argument in arguments]
    arguments = [argument.requires_grad_() for argument in arguments]
    result = call(*arguments)
    assert result.dtype == dtype and result.device.type == device
    result.square().sum().backward()
    for argument, copy in zip(arguments, before, strict=True):
        assert torch.equal(argument, copy) and argument._version == 0, "an argument was changed in place"
        assert argument.grad is not None and argument.grad.isfinite().all()
        assert argument.untyped_storage().data_ptr() != result.untyped_storage().data_ptr(), "result shares memory"
    assert torch.equal(call(*arguments), result), "a second call gives something else"


@pytest.mark.parametrize("name", CASES)
def test_no_cpu_tensor_meets_another_device(name):
    # The meta device exists on every machine and, like CUDA, refuses to be mixed with the CPU.
    call, shapes = CASES[name]
    assert call(*(torch.randn(shape, device="meta") for shape in shapes)).device.type == "meta"


def test_more_results_on_their_arguments_device():
    positions = torch.arange(5, device="meta")
    for table in reference.rotary_tables(positions, 8):
        assert table.device.type == "meta"
    assert reference.position_interpolation(positions, 2).device.type == "meta"
    assert reference.t5_bucket(positions).device.type == "meta"


@pytest.mark.parametrize(
    "call",
    [
        lambda: reference.causal_mask(3, 5),
        lambda: reference.sinusoidal_positional_encoding(3, 4),
        lambda: reference.shift_matrix(3, 4),
        lambda: reference.rope_frequencies(4),
        lambda: reference.alibi_slopes(3),
        lambda: reference.alibi_bias(3, 2, 5),
        lambda: reference.relative_positions(2, 5),
        lambda: reference.clipped_distances(2, 5, 3),
        lambda: reference.yarn_frequencies(8, 4, 4096),
        lambda: reference.mrope_positions([2, (1, 2, 2)]),
        lambda: reference.sliding_window_mask(2, 5, 3),
        lambda: torch.stack(reference.streaming_cache(9, 2, 3)),
    ],
)
def test_without_tensor_argument_float32_on_the_cpu(call):
    expected = call()
    assert expected.dtype == (torch.float32 if expected.is_floating_point() else expected.dtype)
    default_dtype = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        with torch.device("meta"):  # a default device that somebody set
            result = call()
    finally:
        torch.set_default_dtype(default_dtype)
    assert result.device.type == "cpu" and torch.equal(result, expected) and result.dtype == expected.dtype
    result.zero_()  # a result that the caller may change: the next one is fresh
    assert torch.equal(call(), expected)


@pytest.mark.parametrize("cls", [reference.RotaryMultiHeadAttention, reference.ALiBiMultiHeadAttention])
def test_attention_modules_state_dict_and_errors(cls):
    assert {name: tuple(value.shape) for name, value in cls(24, 3).state_dict().items()} == {
        f"{name}_proj.weight": (24, 24) for name in "qkvo"
    }
    for d_model, n_heads in [(24, 5), (24, 0), (24, 48)]:
        with pytest.raises(ValueError, match="n_heads"):
            cls(d_model, n_heads)


@pytest.mark.parametrize("cls", [reference.RotaryMultiHeadAttention, reference.ALiBiMultiHeadAttention])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_modules_gradcheck(cls, is_causal):
    torch.manual_seed(0)
    module = cls(6, 3).double()
    x = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *weights: module(x, is_causal=is_causal), (x, *module.parameters()))
