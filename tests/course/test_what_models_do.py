"""Check week 5's table "what released models do" against the configuration classes of the pinned transformers."""

import inspect
import re

import pytest
from helpers import COURSE

transformers = pytest.importorskip("transformers")

from transformers.models.cohere2.modeling_cohere2 import Cohere2Attention  # noqa: E402
from transformers.models.exaone4.modeling_exaone4 import Exaone4Attention  # noqa: E402
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssAttention  # noqa: E402
from transformers.models.llama4.modeling_llama4 import Llama4TextAttention  # noqa: E402

pytestmark = pytest.mark.nightly

WINDOW, ALL = "sliding_attention", "full_attention"


def fresh(name):
    return getattr(transformers, name)()


def rope(name):
    return fresh(name).rope_parameters


def text() -> str:
    return (COURSE / "source" / "week5_extrapolation.py").read_text(encoding="utf-8")


def test_the_week_names_the_pinned_version():
    named = re.search(r"in the code of `transformers` (\d+\.\d+)", text()).group(1)
    assert transformers.__version__.startswith(named + ".")


def test_every_class_of_the_table_is_read_here():
    rows = [line for line in text().splitlines() if line.startswith("# |") and "Config`" in line]
    named = set(re.findall(r"`(\w+Config)`", "\n".join(rows)))
    read = set(re.findall(r'"(\w+Config)"', inspect.getsource(inspect.getmodule(fresh))))
    assert named and named == read


def test_gpt_oss():
    config = fresh("GptOssConfig")
    found = config.rope_parameters
    assert (found["rope_type"], found["factor"], found["original_max_position_embeddings"]) == ("yarn", 32.0, 4096)
    assert found["truncate"] is False
    assert config.sliding_window == 128 and config.layer_types[:4] == [WINDOW, ALL, WINDOW, ALL]
    sinks = GptOssAttention(config, layer_idx=0).sinks
    assert sinks.requires_grad and tuple(sinks.shape) == (config.num_attention_heads,)


def test_llama4_has_layers_without_positions_and_a_temperature_there():
    config = fresh("Llama4TextConfig")
    assert config.no_rope_layers[:8] == [1, 1, 1, 0, 1, 1, 1, 0]  # 0: without positions
    assert config.layer_types[:4] == 3 * ["chunked_attention"] + [ALL] and config.attention_chunk_size == 8192
    assert config.attn_temperature_tuning and (config.floor_scale, config.attn_scale) == (8192, 0.1)
    forward = inspect.getsource(Llama4TextAttention.forward)
    assert "self.attn_temperature_tuning and not self.use_rope" in forward
    assert "torch.log1p(torch.floor((positions.float() + 1.0) / self.floor_scale)) * self.attn_scale + 1.0" in forward


@pytest.mark.parametrize(
    ("name", "attention", "condition"),
    [
        ("Cohere2Config", Cohere2Attention, "if self.sliding_window is not None:"),
        ("Exaone4Config", Exaone4Attention, "if self.sliding_window is None or self.is_sliding:"),
    ],
)
def test_three_layers_with_rope_in_a_window_then_one_without_positions(name, attention, condition):
    config = fresh(name)
    assert config.sliding_window == 4096 and config.layer_types[:4] == [WINDOW, WINDOW, WINDOW, ALL]
    forward = inspect.getsource(attention.forward)
    assert re.search(re.escape(condition) + r"\s+query_states, key_states = apply_rotary_pos_emb", forward)


def test_gemma3_has_two_bases():
    config = fresh("Gemma3TextConfig")
    assert config.rope_parameters[WINDOW]["rope_theta"] == 10_000
    assert config.rope_parameters[ALL]["rope_theta"] == 1_000_000
    assert config.layer_types[:6] == 5 * [WINDOW] + [ALL]


def test_phi3_switches_its_factors_with_the_length():
    """A long text changes the frequencies of all positions, those of cached keys included."""
    import torch
    from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

    pairs = fresh("Phi3Config").hidden_size // fresh("Phi3Config").num_attention_heads // 2
    config = transformers.Phi3Config(
        max_position_embeddings=131_072,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10_000.0,
            "short_factor": [1.0] * pairs,
            "long_factor": [4.0] * pairs,
            "original_max_position_embeddings": 4096,
        },
    )
    assert rope("Phi3Config")["rope_type"] == "default"
    assert fresh("Phi3Config").original_max_position_embeddings == 4096
    embedding = Phi3RotaryEmbedding(config)
    first = [embedding(torch.zeros(1), torch.tensor([[100, last]]))[0][0, 0] for last in (4095, 4096)]
    assert not torch.allclose(*first, atol=1e-2)
    assert "past_key_values = None" in inspect.getsource(transformers.Phi3ForCausalLM.prepare_inputs_for_generation)
