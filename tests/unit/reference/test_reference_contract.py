"""The contract of every reference kernel: names, dtype, device, graph, unchanged arguments, nothing cached."""

import inspect

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


# Each case: arguments as (shape or ready tensor) and a call; the call returns one tensor.
def _qkv(device, dtype):
    return [torch.randn(2, 3, 5, 8, device=device, dtype=dtype) for _ in range(3)]


def _module(cls, device, dtype):
    return cls(24, 3).to(device=device, dtype=dtype)


def _attention(device, dtype):
    mask = torch.ones(5, 5, dtype=torch.bool, device=device).tril(-1)  # the first row is fully masked
    return lambda q, k, v: reference.scaled_dot_product_attention(q, k, v, mask)[0], _qkv(device, dtype)


def _attention_weights(device, dtype):
    return lambda q, k, v: reference.scaled_dot_product_attention(q, k, v)[1] * v.mean(), _qkv(device, dtype)


def _rope(device, dtype):
    return lambda x: reference.apply_rotary_emb(x, torch.arange(5, device=device)), _qkv(device, dtype)[:1]


def _rope_per_batch(device, dtype):
    positions = torch.arange(10, device=device).view(2, 5) * 0.5
    return lambda x: reference.apply_rotary_emb(x, positions), _qkv(device, dtype)[:1]


def _rope_half(device, dtype):
    return lambda x: reference.apply_rotary_emb_half(x, torch.arange(5, device=device)), _qkv(device, dtype)[:1]


def _interleaved_to_half(device, dtype):
    return lambda w: reference.interleaved_to_half(w, 3), [torch.randn(24, 7, device=device, dtype=dtype)]


def _interleaved_to_half_one_pair(device, dtype):
    # With one pair per head the order does not change; the result is still a copy.
    return lambda w: reference.interleaved_to_half(w, 3), [torch.randn(6, 7, device=device, dtype=dtype)]


def _rotate_half(device, dtype):
    return reference.rotate_half, _qkv(device, dtype)[:1]


def _decode_step_scores(device, dtype):
    q, k, _ = _qkv(device, dtype)
    return reference.decode_step_scores, [q[:, :, :1].contiguous(), k]


def _rotary_scores(device, dtype):
    distances = torch.arange(15, device=device).view(3, 5)
    q, k, _ = _qkv(device, dtype)
    return lambda q, k: reference.rotary_scores(q, k, distances), [q[:, :, 2:], k]


def _position_interpolation(device, dtype):
    return lambda p: reference.position_interpolation(p, 1), [torch.randn(5, device=device, dtype=dtype)]


def _learned(device, dtype):
    module = reference.LearnedPositionalEmbedding(6, 24).to(device)  # a float32 table whatever x is
    return module, [torch.randn(2, 5, 24, device=device, dtype=dtype)]


def _rotary_module(device, dtype):
    module = _module(reference.RotaryMultiHeadAttention, device, dtype)
    return lambda x: module(x, is_causal=True), [torch.randn(2, 5, 24, device=device, dtype=dtype)]


def _alibi_module(device, dtype):
    module = _module(reference.ALiBiMultiHeadAttention, device, dtype)
    return module, [torch.randn(2, 5, 24, device=device, dtype=dtype)]


def _shaw(device, dtype):
    tables = [torch.randn(5, 8, device=device, dtype=dtype) for _ in range(2)]
    mask = torch.ones(5, 5, dtype=torch.bool, device=device).tril(-1)
    return lambda *tensors: reference.shaw_attention(*tensors, mask)[0], [*_qkv(device, dtype), *tables]


def _rel_shift(device, dtype):
    return reference.rel_shift, [torch.randn(2, 3, 4, 6, device=device, dtype=dtype)]


def _transformer_xl_scores(device, dtype):
    q, k, _ = _qkv(device, dtype)
    rest = [torch.randn(*shape, device=device, dtype=dtype) for shape in ((3, 5, 8), (3, 8), (3, 8))]
    return reference.transformer_xl_scores, [q[:, :, 3:].contiguous(), k, *rest]


def _t5_attention(device, dtype):
    table = torch.randn(32, 3, device=device, dtype=dtype)
    return lambda *tensors: reference.t5_attention(*tensors, is_causal=True)[0], [*_qkv(device, dtype), table]


def _deberta_scores(device, dtype):
    tables = [torch.randn(3, 4, 8, device=device, dtype=dtype) for _ in range(2)]
    return reference.deberta_scores, [*_qkv(device, dtype)[:2], *tables]


def _grouped(device, dtype):
    q, k, v = _qkv(device, dtype)
    return lambda q, k, v: reference.grouped_query_attention(q, k, v)[0], [
        q,
        k[:, :1].contiguous(),
        v[:, :1].contiguous(),
    ]


def _cached(device, dtype):
    module = reference.CachedAttention(24, 6, 2).to(device=device, dtype=dtype)

    def call(x, keys, values):
        out, (k, v) = module(x, (keys, values))
        return out + k.mean() + v.mean()

    keys, values = (torch.randn(2, 2, 3, 4, device=device, dtype=dtype) for _ in range(2))
    return call, [torch.randn(2, 5, 24, device=device, dtype=dtype), keys, values]


def _shifted(device, dtype):
    return lambda k: reference.shift_cached_keys(k, 3), _qkv(device, dtype)[:1]


def _cross(device, dtype):
    module = _module(reference.CrossAttention, device, dtype)
    mask = torch.ones(2, 7, dtype=torch.bool, device=device).triu(1)  # the second memory has its first keys hidden
    positions = torch.arange(5, device=device), torch.arange(7, device=device) / 2
    return lambda x, m: module(x, m, mask, *positions), [
        torch.randn(2, n, 24, device=device, dtype=dtype) for n in (5, 7)
    ]


def _hybrid(device, dtype):
    module = _module(reference.HybridDecoderBlock, device, dtype)
    return module, [torch.randn(2, n, 24, device=device, dtype=dtype) for n in (5, 7)]


def _partial(device, dtype):
    return lambda x: reference.partial_rotary_emb(x, torch.arange(5, device=device), 4), _qkv(device, dtype)[:1]


def _mrope(device, dtype):
    positions = torch.arange(15, device=device).view(3, 5)
    return lambda x: reference.apply_mrope(x, positions, (1, 1, 2)), _qkv(device, dtype)[:1]


def _mrope_per_batch(device, dtype):
    positions = torch.arange(30, device=device).view(3, 2, 5) * 0.5
    return lambda x: reference.apply_mrope(x, positions, [2, 0, 2]), _qkv(device, dtype)[:1]


def _sink(device, dtype):
    hidden = torch.ones(5, 8, dtype=torch.bool, device=device).triu()  # the first row has no key
    return lambda scores, sinks: reference.softmax_with_sink(scores.masked_fill(hidden, -torch.inf), sinks), [
        _qkv(device, dtype)[0],
        torch.randn(3, device=device, dtype=dtype),
    ]


def _latent(device, dtype):
    mask = torch.ones(5, 7, dtype=torch.bool, device=device).tril(-1)  # the first row is fully masked
    shapes = (2, 3, 5, 8), (2, 3, 5, 4), (2, 7, 6), (2, 7, 4), (3, 8, 6), (3, 5, 6)
    arguments = [torch.randn(*shape, device=device, dtype=dtype) for shape in shapes]
    return lambda *tensors: reference.mla_attention(*tensors, mask), arguments


CASES = [
    _attention,
    _attention_weights,
    _rope,
    _rope_per_batch,
    _rope_half,
    _interleaved_to_half,
    _interleaved_to_half_one_pair,
    _rotate_half,
    _decode_step_scores,
    _rotary_scores,
    _position_interpolation,
    _learned,
    _rotary_module,
    _alibi_module,
    _shaw,
    _rel_shift,
    _transformer_xl_scores,
    _t5_attention,
    _deberta_scores,
    _grouped,
    _cached,
    _shifted,
    _cross,
    _hybrid,
    _partial,
    _mrope,
    _mrope_per_batch,
    _sink,
    _latent,
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
def test_dtype_device_graph_and_arguments(case, dtype, device):
    torch.manual_seed(0)
    call, arguments = case(device, dtype)
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.strip("_"))
def test_no_cpu_tensor_meets_another_device(case):
    # The meta device exists on every machine and, like CUDA, refuses to be mixed with the CPU.
    call, arguments = case("meta", torch.float32)
    assert call(*arguments).device.type == "meta"


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
