"""Check week 8's configurations and its table of models against the classes of the pinned transformers."""

import copy
import inspect
import json
import re

import pytest
from helpers import COURSE

transformers = pytest.importorskip("transformers")

import torch  # noqa: E402
from transformers import CONFIG_MAPPING  # noqa: E402
from transformers.generation.continuous_batching import cache, input_outputs  # noqa: E402
from transformers.generation.continuous_batching.cache_allocators import cache_allocator  # noqa: E402
from transformers.models.cohere2.modeling_cohere2 import Cohere2Attention  # noqa: E402
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention  # noqa: E402
from transformers.models.deepseek_v32 import modeling_deepseek_v32  # noqa: E402
from transformers.models.deepseek_v32.modeling_deepseek_v32 import DeepseekV32Attention  # noqa: E402
from transformers.models.exaone4.modeling_exaone4 import Exaone4Attention  # noqa: E402
from transformers.models.gemma3.modeling_gemma3 import Gemma3Attention  # noqa: E402
from transformers.models.glm4 import modeling_glm4  # noqa: E402
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention  # noqa: E402
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention  # noqa: E402
from transformers.models.llama4.modeling_llama4 import Llama4TextAttention  # noqa: E402
from transformers.models.moonshine.modeling_moonshine import MoonshineAttention  # noqa: E402
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel  # noqa: E402
from transformers.models.qwen2_vl import modeling_qwen2_vl  # noqa: E402
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextAttention  # noqa: E402
from transformers.models.qwen3_vl import modeling_qwen3_vl  # noqa: E402
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor  # noqa: E402
from transformers.models.smollm3.modeling_smollm3 import SmolLM3Attention  # noqa: E402
from transformers.models.stablelm.modeling_stablelm import StableLmAttention  # noqa: E402

from autograder.checks import week8  # noqa: E402
from autograder.reference import layers_that_turn, mrope_positions  # noqa: E402

pytestmark = pytest.mark.nightly

WINDOW, ALL = "sliding_attention", "full_attention"
TEXT = (COURSE / "source" / "week8_production.py").read_text(encoding="utf-8")


def fresh(name):
    return getattr(transformers, name)()


CONFIGS = json.loads((COURSE / "source" / "week8_configs.json").read_text(encoding="utf-8"))
HIDDEN = {name: fields for name, fields in vars(week8).items() if isinstance(fields, dict) and "model_type" in fields}
ATTENTION = {  # the class of a layer's attention
    "gpt_neox": GPTNeoXAttention,
    "stablelm": StableLmAttention,
    "moonshine": MoonshineAttention,
    "llama4_text": Llama4TextAttention,
    "smollm3": SmolLM3Attention,
    "exaone4": Exaone4Attention,
    "cohere2": Cohere2Attention,
    "gemma3_text": Gemma3Attention,
    "qwen3_next": Qwen3NextAttention,
    "deepseek_v32": DeepseekV32Attention,
}


def test_the_week_names_the_pinned_version():
    named = set(re.findall(r"`transformers` (\d+\.\d+)", TEXT))
    assert named == {".".join(transformers.__version__.split(".")[:2])}


def turned(fields):
    """Return how many channels each layer rotates, as transformers' rotary embedding and attention classes say."""
    config = CONFIG_MAPPING[fields["model_type"]](**copy.deepcopy(fields))
    attention = ATTENTION[fields["model_type"]]
    module = inspect.getmodule(attention)
    rotary = next(
        value for name, value in vars(module).items() if name.endswith("RotaryEmbedding") and isinstance(value, type)
    )
    frequencies = rotary(config)
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    inv_freq = getattr(frequencies, "inv_freq", None)
    if inv_freq is None:  # Gemma 3 has one for each kind of layer
        inv_freq = getattr(frequencies, f"{kinds[0]}_inv_freq")
    channels = 2 * len(inv_freq)
    rotates = {
        "smollm3": lambda layer: bool(config.no_rope_layers[layer]),
        "llama4_text": lambda layer: bool(config.no_rope_layers[layer]),
        "cohere2": lambda layer: built(layer).sliding_window is not None,
        "exaone4": lambda layer: built(layer).sliding_window is None or built(layer).is_sliding,
        "qwen3_next": lambda layer: kinds[layer] == ALL,
    }.get(fields["model_type"], lambda layer: True)

    def built(layer):
        with torch.device("meta"):
            return attention(config, layer_idx=layer)

    return [channels if rotates(layer) else 0 for layer in range(config.num_hidden_layers)]


@pytest.mark.parametrize("fields", [*CONFIGS.values(), *HIDDEN.values()], ids=[*CONFIGS, *HIDDEN])
def test_layers_that_turn_is_what_the_classes_build(fields):
    fields = {name: value for name, value in fields.items() if not name.startswith("_")}
    assert layers_that_turn(fields) == turned(fields)


def test_what_the_text_says_of_the_code():
    """Which layers rotate."""
    assert "self.use_rope = config.no_rope_layers[layer_idx]" in inspect.getsource(SmolLM3Attention)
    assert "self.use_rope = config.no_rope_layers[layer_idx]" in inspect.getsource(Llama4TextAttention)
    for attention, condition in (
        (Cohere2Attention, "if self.sliding_window is not None:"),
        (Exaone4Attention, "if self.sliding_window is None or self.is_sliding:"),
    ):
        rotated = re.escape(condition) + r"\s+query_states, key_states = apply_rotary_pos_emb"
        assert re.search(rotated, inspect.getsource(attention.forward))


def test_the_table():
    oss, llama, exaone = fresh("GptOssConfig"), fresh("Llama4TextConfig"), fresh("Exaone4Config")
    assert oss.sliding_window == 128 and oss.layer_types[:4] == [WINDOW, ALL, WINDOW, ALL]
    assert tuple(GptOssAttention(oss, layer_idx=1).sinks.shape) == (
        oss.num_attention_heads,
    )  # a full layer has them, too
    assert llama.no_rope_layers[:8] == 2 * [1, 1, 1, 0] and llama.attention_chunk_size == 8192
    assert exaone.layer_types[:4] == [WINDOW, WINDOW, WINDOW, ALL] and exaone.sliding_window == 4096
    bert = fresh("ModernBertConfig")
    assert [bert.rope_parameters[kind]["rope_theta"] for kind in (WINDOW, ALL)] == [10_000.0, 160_000.0]
    assert bert.layer_types[:4] == [ALL, WINDOW, WINDOW, ALL]
    for name, factor in (("PhiConfig", 0.5), ("Glm4Config", 0.5), ("StableLmConfig", 0.25)):
        assert fresh(name).rope_parameters["partial_rotary_factor"] == factor
    pairs = modeling_glm4.rotate_half(torch.arange(4.0))
    assert pairs.tolist() == [-1.0, 0.0, -3.0, 2.0]  # neighbours
    gptj = fresh("GPTJConfig")
    assert (gptj.rotary_dim, gptj.n_embd // gptj.n_head) == (64, 256)
    deepseek = fresh("DeepseekV3Config")
    assert (deepseek.kv_lora_rank, deepseek.qk_rope_head_dim, deepseek.qk_nope_head_dim) == (512, 64, 128)
    assert (deepseek.num_attention_heads, deepseek.num_hidden_layers) == (128, 61)
    assert "kv_a_proj_with_mqa" in inspect.getsource(DeepseekV3Attention)  # one rotated key for all heads


def test_deepseek_v32_turns_halves_in_the_indexer_and_neighbours_beside_it():
    config, module = fresh("DeepseekV32Config"), modeling_deepseek_v32
    assert (config.index_topk, config.index_n_heads) == (2048, 64)
    assert "apply_rotary_pos_emb(" in inspect.getsource(module.DeepseekV32Indexer.forward)
    assert "apply_rotary_pos_emb_interleave(" in inspect.getsource(module.DeepseekV32Attention.forward)
    one = torch.zeros(1, 1, 1, 4)
    one[..., 0] = 1.0
    quarter = torch.zeros(1, 1, 4), torch.ones(1, 1, 4)  # cos, sin
    assert module.apply_rotary_pos_emb(one, one, *quarter)[0].flatten().nonzero().tolist() == [[2]]


def test_what_the_text_says_of_servers():
    assert "cu_seq_lens_q" in inspect.getsource(input_outputs) and "block_table" in inspect.getsource(cache)
    hashed = cache_allocator.compute_block_hash
    assert hashed(hashed(None, [1]), [2]) != hashed(hashed(None, [3]), [2])  # the same block behind another prefix
    assert not hasattr(transformers, "SinkCache")


def test_the_axis_of_time_changes_with_the_generation():
    assert "tokens_per_second * next(second_per_grid_ts)" in inspect.getsource(Qwen2_5_VLModel.get_rope_index)
    assert not hasattr(fresh("Qwen2VLConfig").vision_config, "tokens_per_second")
    assert "seconds>" in inspect.getsource(Qwen3VLProcessor.replace_video_token)
    assert "video_grid_thw[:, 0] = 1" in inspect.getsource(modeling_qwen3_vl.Qwen3VLModel.get_rope_index)


def test_sections_of_the_vision_models():
    for module, config, sections in (
        (modeling_qwen2_vl.Qwen2VLRotaryEmbedding, "Qwen2VLTextConfig", [16, 24, 24]),
        (modeling_qwen3_vl.Qwen3VLTextRotaryEmbedding, "Qwen3VLTextConfig", [24, 20, 20]),
    ):
        assert module(fresh(config)).mrope_section == sections


def test_transformers_forgets_time_where_a_text_follows_a_video():
    """Two tokens, five frames of 2 x 2 patches, one token: transformers puts the last at 4, the paper's rule at 7."""
    config = transformers.Qwen2VLConfig()
    merge = config.vision_config.spatial_merge_size

    class Model:
        get_vision_position_ids = modeling_qwen2_vl.Qwen2VLModel.get_vision_position_ids

    model = Model()
    model.config = config
    kinds = torch.tensor([[0, 0, *20 * [2], 0]])
    grid = torch.tensor([[5, 2 * merge, 2 * merge]])
    found, _ = modeling_qwen2_vl.Qwen2VLModel.get_rope_index(model, torch.zeros_like(kinds), kinds, video_grid_thw=grid)
    ours = mrope_positions([2, (5, 2, 2), 1])
    assert torch.equal(found[:, 0, :22], ours[:, :22])
    assert found[:, 0, 22].tolist() == [4, 4, 4] and ours[:, 22].tolist() == [7, 7, 7]
