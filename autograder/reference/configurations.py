"""What a released model's configuration says about positions."""

from collections.abc import Mapping
from typing import Any

NO_ROTATION_WITHOUT_A_WINDOW = ("cohere2", "exaone4")


def layers_that_turn(config: Mapping[str, Any]) -> list[int]:
    """For every layer, how many channels of a query or key head RoPE turns; 0 where the layer has no rotation.

    config: the fields of a config.json. The width of a head is head_dim, or without it hidden_size //
    num_attention_heads. Channels: qk_rope_head_dim where it is given (latent attention), otherwise int(width * share).
    The share is partial_rotary_factor, at the top or in rope_parameters, or GPT-NeoX's older rotary_pct, or 1. Three
    kinds of layers do not turn: those with a false entry in no_rope_layers, linear attention, and full attention in
    Cohere 2 and EXAONE 4 with a sliding_window. A field that is null counts as missing, also inside rope_parameters.

    Source: the attention classes of transformers 5.23 (SmolLM3Attention, Llama4TextAttention, Cohere2Attention,
    Exaone4Attention, Qwen3NextDecoderLayer, DeepseekV3Attention; compute_default_rope_parameters for the share).
    """
    given = {field: value for field, value in config.items() if value is not None}
    n_layers = given["num_hidden_layers"]
    width = given.get("head_dim", given["hidden_size"] // given["num_attention_heads"])
    rope = {field: value for field, value in given.get("rope_parameters", {}).items() if value is not None}
    share = (given | rope).get("partial_rotary_factor", given.get("rotary_pct", 1))
    channels = given.get("qk_rope_head_dim", int(width * share))
    kinds = given.get("layer_types", ["full_attention"] * n_layers)
    without = {"linear_attention"}
    if given.get("model_type") in NO_ROTATION_WITHOUT_A_WINDOW and "sliding_window" in given:
        without.add("full_attention")
    rotates = given.get("no_rope_layers", [1] * n_layers)
    return [channels if rotates[layer] and kinds[layer] not in without else 0 for layer in range(n_layers)]
