"""The points and times of the course; they are written down nowhere else.

Kinds: ``code`` autograded implementation, ``numbers`` autograded hand computation, ``text`` graded by a person;
``test`` a test cell of an instructor's own assignment (`course.exercises`).
``grade_id`` is the name of the answer cell; its hidden tests are in ``<grade_id>_tests``.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Exercise:
    """One graded answer: its exercise number, cell name, kind, points and the exercise's expected minutes."""

    number: str
    grade_id: str
    kind: Literal["code", "numbers", "text", "test"]
    points: float
    minutes: int

    @property
    def graded_cell(self) -> str:
        """Name of the cell that carries the points in nbgrader."""
        return self.grade_id if self.kind in ("text", "test") else f"{self.grade_id}_tests"


@dataclass(frozen=True)
class Outline:
    """A week's topic in half a sentence, and its minutes of reading, predictions and experiments."""

    about: str
    reading: int


MANIFEST: dict[str, tuple[Exercise, ...]] = {
    "week1_permutation_equivariance": (
        Exercise("1.1", "scaled_dot_product_attention", "code", 4, 50),
        Exercise("1.2", "attention_by_hand", "numbers", 3, 20),
        Exercise("1.3", "equivariance_gap", "code", 3, 15),
        Exercise("1.4", "equivariant_or_invariant", "text", 3, 45),
        Exercise("1.5", "causal_mask", "code", 3, 12),
        Exercise("1.6", "ordering_explained", "text", 3, 40),
    ),
    "week2_sinusoidal": (
        Exercise("2.1", "encode_by_hand", "numbers", 5, 30),
        Exercise("2.1", "products_explained", "text", 2, 20),
        Exercise("2.2", "wavelengths_by_hand", "numbers", 2, 10),
        Exercise("2.3", "sinusoidal_positional_encoding", "code", 4, 25),
        Exercise("2.4", "shift_matrix", "code", 4, 30),
        Exercise("2.5", "LearnedPositionalEmbedding", "code", 2, 15),
        Exercise("2.6", "similarity_counterexample", "code", 2, 15),
        Exercise("2.7", "four_terms", "text", 3, 45),
    ),
    "week3_rope": (
        Exercise("3.1", "rotate_by_hand", "numbers", 3, 15),
        Exercise("3.2", "rope_frequencies", "code", 2, 10),
        Exercise("3.3", "apply_rotary_emb", "code", 6, 40),
        Exercise("3.4", "apply_rotary_emb_half", "code", 2, 12),
        Exercise("3.4", "interleaved_to_half", "code", 3, 20),
        Exercise("3.5", "relative_proof", "text", 3, 35),
        Exercise("3.6", "RotaryMultiHeadAttention", "code", 5, 40),
        Exercise("3.7", "bfloat16_positions", "numbers", 1, 12),
        Exercise("3.7", "bfloat16_explained", "text", 1, 12),
        Exercise("3.8", "serving_test", "code", 2, 45),
        Exercise("3.8", "rotate_half", "code", 1, 5),
        Exercise("3.8", "rotary_tables", "code", 1, 10),
        Exercise("3.8", "decode_step_scores", "code", 1, 10),
        Exercise("3.9", "look_back_head", "code", 2, 25),
    ),
    "week4_alibi": (
        Exercise("4.1", "slopes_by_hand", "numbers", 2, 15),
        Exercise("4.2", "alibi_slopes", "code", 3, 20),
        Exercise("4.3", "alibi_bias", "code", 4, 20),
        Exercise("4.4", "attention_with_slope", "numbers", 3, 15),
        Exercise("4.5", "per_key_bias_is_equivalent", "code", 2, 20),
        Exercise("4.5", "per_key_explained", "text", 2, 15),
        Exercise("4.6", "ALiBiMultiHeadAttention", "code", 5, 35),
        Exercise("4.7", "effective_window", "code", 2, 10),
        Exercise("4.8", "reversal", "text", 2, 30),
    ),
    "week5_extrapolation": (
        Exercise("5.1", "unturned_pairs", "numbers", 3, 15),
        Exercise("5.2", "position_interpolation", "code", 2, 10),
        Exercise("5.3", "ntk_base", "code", 3, 8),
        Exercise("5.3", "ntk_by_hand", "numbers", 1, 5),
        Exercise("5.4", "dynamic_ntk_base", "code", 2, 8),
        Exercise("5.5", "yarn_frequencies", "code", 4, 25),
        Exercise("5.5", "yarn_temperature", "code", 2, 5),
        Exercise("5.5", "yarn_by_hand", "numbers", 1, 5),
        Exercise("5.6", "loss_by_length", "code", 4, 30),
        Exercise("5.7", "clipped_distances", "code", 1, 8),
        Exercise("5.7", "rotary_scores", "code", 2, 25),
        Exercise("5.8", "extrapolation_explained", "text", 5, 65),
        Exercise("5.9", "log_n_scale", "code", 2, 7),
        Exercise("5.10", "needle_explained", "text", 2, 25),
    ),
    "week6_relative_bias": (
        Exercise("6.1", "conventions_by_hand", "numbers", 2, 17),
        Exercise("6.2", "relative_positions", "code", 2, 8),
        Exercise("6.3", "shaw_attention", "code", 4, 35),
        Exercise("6.4", "rel_shift", "code", 3, 20),
        Exercise("6.5", "transformer_xl_scores", "code", 4, 30),
        Exercise("6.6", "t5_bucket", "code", 4, 25),
        Exercise("6.7", "t5_attention", "code", 3, 20),
        Exercise("6.8", "deberta_scores", "code", 4, 25),
        Exercise("6.9", "costs_by_hand", "numbers", 2, 12),
        Exercise("6.10", "t5_against_deberta", "text", 3, 30),
        Exercise("6.11", "pull_and_push", "text", 3, 55),
    ),
    "week7_capstone": (
        Exercise("7.1", "grouped_query_attention", "code", 3, 20),
        Exercise("7.2", "cache_sizes", "numbers", 3, 15),
        Exercise("7.3", "CachedAttention", "code", 6, 55),
        Exercise("7.4", "padded_causal", "code", 3, 20),
        Exercise("7.4", "generate", "code", 3, 25),
        Exercise("7.5", "shift_cached_keys", "code", 2, 10),
        Exercise("7.6", "CrossAttention", "code", 4, 30),
        Exercise("7.7", "HybridDecoderBlock", "code", 4, 25),
        Exercise("7.8", "copying_explained", "text", 4, 50),
        Exercise("7.9", "interview", "text", 2, 25),
        Exercise("7.10", "design_memo", "text", 4, 90),
    ),
    "week8_production": (
        Exercise("8.1", "partial_rotary_emb", "code", 3, 15),
        Exercise("8.2", "mrope_positions", "code", 3, 20),
        Exercise("8.2", "apply_mrope", "code", 4, 30),
        Exercise("8.3", "sliding_window_mask", "code", 2, 10),
        Exercise("8.3", "softmax_with_sink", "code", 2, 10),
        Exercise("8.3", "streaming_cache", "code", 2, 13),
        Exercise("8.4", "mla_attention", "code", 5, 40),
        Exercise("8.4", "absorption_explained", "text", 3, 35),
        Exercise("8.5", "layers_that_turn", "code", 3, 30),
        Exercise("8.6", "stream_explained", "text", 3, 35),
    ),
}

OUTLINES: dict[str, Outline] = {
    "week1_permutation_equivariance": Outline(
        "attention from scratch, why it has no order, and what a causal mask gives away", 70
    ),
    "week2_sinusoidal": Outline(
        "sinusoids by hand, the shift matrix, learned tables, and what the dot product tells you", 75
    ),
    "week3_rope": Outline("rotary position embeddings: by hand, both layouts, proof, precision, and a bug hunt", 100),
    "week4_alibi": Outline(
        "ALiBi: slopes, the bias and its per-key form, reach, and what a symmetric bias cannot see", 85
    ),
    "week5_extrapolation": Outline(
        "what happens beyond the training length: new distances or more keys; interpolation, NTK, YaRN, clipped "
        "distances, measured over seeds; and needles",
        100,
    ),
    "week6_relative_bias": Outline(
        "relative positions: Shaw, Transformer-XL, T5, DeBERTa; which terms a score keeps, and what a layer can learn "
        "from them",
        55,
    ),
    "week7_capstone": Outline(
        "grouped queries, a KV cache that works however a text is cut, a batch of prompts and a model that writes, cross-attention, "
        "a hybrid block; and a design memo",
        60,
    ),
    "week8_production": Outline(
        "positions in production: partial rotary, three axes for video, windows and sinks, latent attention, "
        "configurations of released models, and a stream",
        65,
    ),
}

# Files that students receive with every notebook. The first is in source/; the second is part of the grader.
SIMULATED_DEVICE = "simulated_device.py"
SHARED_FILES = ("lab.py", SIMULATED_DEVICE)

# Further files that students receive with one week's notebook. They are in source/, like lab.py.
RELEASED_FILES: dict[str, tuple[str, ...]] = {
    "week5_extrapolation": ("ready_encodings.py", "week5_results.json", "week5_rope.npz", "week5_needle.npz"),
    "week6_relative_bias": ("relative_tasks.py", "week6_results.json"),
    "week7_capstone": (
        "ready_blocks.py",
        "ready_encodings.py",
        "week5_rope.npz",
        "week7_results.json",
        "week7_copy.npz",
    ),
    "week8_production": (
        "ready_encodings.py",
        "serving_lab.py",
        "week5_rope.npz",
        "week8_results.json",
        "week8_configs.json",
    ),
}


def entry(assignment: str, grade_id: str) -> Exercise:
    """The manifest's entry of one answer cell. Raises ``KeyError`` with the known names if there is none."""
    for candidate in MANIFEST[assignment]:
        if candidate.grade_id == grade_id:
            return candidate
    known = ", ".join(e.grade_id for e in MANIFEST[assignment])
    raise KeyError(f"{assignment} has no exercise {grade_id!r} in autograder/manifest.py; it has {known}")


# For exercises to be written from scratch: library names that are a ready-made answer. A person is told of their use.
FROM_SCRATCH: dict[str, dict[str, frozenset[str]]] = {
    "week1_permutation_equivariance": {
        "scaled_dot_product_attention": frozenset(
            {
                "scaled_dot_product_attention",
                "_scaled_dot_product_attention_math",
                "MultiheadAttention",
                "multi_head_attention_forward",
                "sdpa_kernel",
            }
        ),
    },
}
READY_MADE_LIBRARIES = frozenset({"transformers", "rotary_embedding_torch", "x_transformers", "xformers", "flash_attn"})
