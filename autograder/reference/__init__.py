"""Reference kernels: the oracle that answers are graded against. One file per method, names as in the notebooks.

All are plain formulas with angles in float64. They keep the dtype and device of their tensor arguments and the autograd
graph, never change an argument in place, and cache nothing; half precision is computed in float32 and rounded once.
Functions without a tensor argument return tensors on the CPU.
"""

from autograder.reference.alibi import (
    ALiBiMultiHeadAttention,
    alibi_bias,
    alibi_slopes,
    effective_window,
    per_key_bias_is_equivalent,
)
from autograder.reference.attention import causal_mask, equivariance_gap, scaled_dot_product_attention
from autograder.reference.clipped import clipped_distances, rotary_scores
from autograder.reference.configurations import layers_that_turn
from autograder.reference.cross_attention import CrossAttention
from autograder.reference.deberta import deberta_scores
from autograder.reference.evaluation import loss_by_length
from autograder.reference.grouped_query import grouped_query_attention
from autograder.reference.hybrid import HybridDecoderBlock
from autograder.reference.kv_cache import CachedAttention, generate, padded_causal, shift_cached_keys
from autograder.reference.latent import mla_attention
from autograder.reference.learned import LearnedPositionalEmbedding
from autograder.reference.log_n import log_n_scale
from autograder.reference.mrope import apply_mrope, mrope_positions
from autograder.reference.partial_rotary import partial_rotary_emb
from autograder.reference.relative import relative_positions, shaw_attention
from autograder.reference.rope import (
    RotaryMultiHeadAttention,
    apply_rotary_emb,
    apply_rotary_emb_half,
    decode_step_scores,
    interleaved_to_half,
    look_back_head,
    rope_frequencies,
    rotary_tables,
    rotate_half,
    serving_test,
)
from autograder.reference.scaling import (
    dynamic_ntk_base,
    ntk_base,
    position_interpolation,
    yarn_frequencies,
    yarn_temperature,
)
from autograder.reference.sinusoidal import (
    shift_matrix,
    similarity_counterexample,
    sinusoidal_positional_encoding,
)
from autograder.reference.streaming import sliding_window_mask, softmax_with_sink, streaming_cache
from autograder.reference.t5 import t5_attention, t5_bucket
from autograder.reference.transformer_xl import rel_shift, transformer_xl_scores

__all__ = [
    "ALiBiMultiHeadAttention",
    "CachedAttention",
    "CrossAttention",
    "HybridDecoderBlock",
    "LearnedPositionalEmbedding",
    "RotaryMultiHeadAttention",
    "alibi_bias",
    "alibi_slopes",
    "apply_mrope",
    "apply_rotary_emb",
    "apply_rotary_emb_half",
    "causal_mask",
    "clipped_distances",
    "deberta_scores",
    "decode_step_scores",
    "dynamic_ntk_base",
    "effective_window",
    "equivariance_gap",
    "generate",
    "grouped_query_attention",
    "interleaved_to_half",
    "layers_that_turn",
    "log_n_scale",
    "look_back_head",
    "loss_by_length",
    "mla_attention",
    "mrope_positions",
    "ntk_base",
    "padded_causal",
    "partial_rotary_emb",
    "per_key_bias_is_equivalent",
    "position_interpolation",
    "rel_shift",
    "relative_positions",
    "rope_frequencies",
    "rotary_scores",
    "rotary_tables",
    "rotate_half",
    "scaled_dot_product_attention",
    "serving_test",
    "shaw_attention",
    "shift_cached_keys",
    "shift_matrix",
    "similarity_counterexample",
    "sinusoidal_positional_encoding",
    "sliding_window_mask",
    "softmax_with_sink",
    "streaming_cache",
    "t5_attention",
    "t5_bucket",
    "transformer_xl_scores",
    "yarn_frequencies",
    "yarn_temperature",
]
