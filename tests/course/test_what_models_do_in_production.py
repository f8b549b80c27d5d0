"""Week 8's configurations and its table of models, read again from the classes of the pinned transformers."""

import ast
import inspect
import re

import pytest
from helpers import COURSE

transformers = pytest.importorskip("transformers")

import torch  # noqa: E402
from transformers.generation.continuous_batching import cache, input_outputs  # noqa: E402
from transformers.generation.continuous_batching.cache_allocators import cache_allocator  # noqa: E402
from transformers.models.cohere2.modeling_cohere2 import Cohere2Attention  # noqa: E402
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention  # noqa: E402
from transformers.models.deepseek_v32 import modeling_deepseek_v32  # noqa: E402
from transformers.models.exaone4.modeling_exaone4 import Exaone4Attention  # noqa: E402
from transformers.models.glm4 import modeling_glm4  # noqa: E402
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention  # noqa: E402
from transformers.models.llama4.modeling_llama4 import Llama4TextAttention  # noqa: E402
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VLModel  # noqa: E402
from transformers.models.qwen2_vl import modeling_qwen2_vl  # noqa: E402
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRotaryEmbedding  # noqa: E402
from transformers.models.qwen3_vl import modeling_qwen3_vl  # noqa: E402
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor  # noqa: E402
from transformers.models.smollm3.modeling_smollm3 import SmolLM3Attention  # noqa: E402

from autograder.reference import mrope_positions  # noqa: E402

pytestmark = pytest.mark.nightly

WINDOW, ALL = "sliding_attention", "full_attention"
TEXT = (COURSE / "source" / "week8_production.py").read_text(encoding="utf-8")


def fresh(name):
    return getattr(transformers, name)()


def stated():
    """The dictionary of the notebook, by running the cell that makes it, and the version it names."""
    tree = ast.parse(TEXT)
    wanted = {"configurations", "VERSION"}
    names: dict[str, object] = {"window": WINDOW, "full": ALL}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in wanted:
            exec(compile(ast.Module([node], []), "week8", "exec"), names)
    return names["configurations"], names["VERSION"]


def test_the_week_names_the_pinned_version():
    assert stated()[1] == transformers.__version__
    named = set(re.findall(r"`transformers` (\d+\.\d+)", TEXT))
    assert named == {".".join(transformers.__version__.split(".")[:2])}


def contains(found, fields):
    return all(
        contains(found[key], value) if isinstance(value, dict) else found[key] == value for key, value in fields.items()
    )


@pytest.mark.parametrize("name", stated()[0])
def test_the_fields_stated_are_those_of_the_class(name):
    assert contains(fresh(name).to_dict(), stated()[0][name])


def answers():
    """What exercise 8.5 asks, from the classes alone."""
    smol, cohere, gemma, neox, qwen = map(
        fresh, ("SmolLM3Config", "Cohere2Config", "Gemma3TextConfig", "GPTNeoXConfig", "Qwen3NextConfig")
    )
    bases = [gemma.rope_parameters[kind]["rope_theta"] for kind in gemma.layer_types]
    return {
        "smollm3_layers": sum(SmolLM3Attention(smol, layer).use_rope for layer in range(smol.num_hidden_layers)),
        "cohere2_layers": cohere.layer_types.count(WINDOW),
        "gemma3_base_17": bases[17],
        "gemma3_layers_1e4": bases.count(10_000.0),
        "neox_channels": neox.hidden_size // neox.num_attention_heads * neox.rope_parameters["partial_rotary_factor"],
        "qwen3_next_layers": qwen.layer_types.count(ALL),
        "qwen3_next_channels": 2 * len(Qwen3NextRotaryEmbedding(qwen).inv_freq),
    }


def test_the_answers_of_8_5_are_those_of_the_classes():
    (solution,) = (
        ast.literal_eval(ast.unparse(node.value))
        for node in ast.parse(TEXT).body
        if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "configurations_by_hand"
    )
    assert solution == answers()


def test_what_the_text_says_of_the_code():
    """Where a layer rotates."""
    assert "self.use_rope = config.no_rope_layers[layer_idx]" in inspect.getsource(SmolLM3Attention)
    assert "self.use_rope = config.no_rope_layers[layer_idx]" in inspect.getsource(Llama4TextAttention)
    for attention, condition in (
        (Cohere2Attention, "if self.sliding_window is not None:"),
        (Exaone4Attention, "if self.sliding_window is None or self.is_sliding:"),
    ):
        rotated = re.escape(condition) + r"\s+query_states, key_states = apply_rotary_pos_emb"
        assert re.search(rotated, inspect.getsource(attention.forward))


def test_every_class_of_the_table_is_read_here():
    rows = "\n".join(line for line in TEXT.splitlines() if line.startswith("# |") and "Config`" in line)
    named = set(re.findall(r"`(\w+Config)`", rows))
    read = set(re.findall(r'"(\w+Config)"', inspect.getsource(inspect.getmodule(fresh))))
    assert named and named <= read


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
    """Two tokens, five frames of 2 x 2 patches, one token: it goes on at 4, by the paper's rule at 7."""
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
