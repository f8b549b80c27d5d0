"""Right answers that call earlier ones, for every week that has such answers."""

# As students write them.
CALLING = {
    "week2_sinusoidal": {
        "similarity_counterexample": """
def similarity_counterexample(d_model):
    table = sinusoidal_positional_encoding(400, d_model).double()
    products = table @ table[0]
    for k in range(1, 399):
        if products[k + 1] > products[k] + 1e-3:
            return k, k + 1
"""
    },
    "week3_rope": {
        "apply_rotary_emb": """
def apply_rotary_emb(x, positions, base=10000.0):
    angles = positions.double()[..., None] * rope_frequencies(x.shape[-1], base).double().to(x.device)
    if positions.ndim == 2:
        angles = angles[:, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2).to(x.dtype)
""",
        "apply_rotary_emb_half": """
def apply_rotary_emb_half(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("pairs")
    first, second = x.chunk(2, dim=-1)
    turned = apply_rotary_emb(torch.stack((first, second), dim=-1).flatten(-2), positions, base)
    return torch.cat((turned[..., 0::2], turned[..., 1::2]), dim=-1)
""",
        "RotaryMultiHeadAttention": """
class RotaryMultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or d_model // n_heads % 2:
            raise ValueError("sizes")
        self.n_heads, self.base = n_heads, base
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x, positions=None, is_causal=False):
        split = lambda t: t.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        positions = torch.arange(x.shape[1], device=x.device) if positions is None else positions
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        q, k = apply_rotary_emb(q, positions, self.base), apply_rotary_emb(k, positions, self.base)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if is_causal:
            scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))
""",
        "rotary_tables": """
def rotary_tables(positions, head_dim, dtype=torch.float32, base=10000.0):
    angles = positions.double()[:, None] * rope_frequencies(head_dim, base).double().to(positions.device)
    return angles.cos().to(dtype), angles.sin().to(dtype)
""",
        "decode_step_scores": """
def decode_step_scores(q, k_cache, base=10000.0):
    positions = torch.arange(k_cache.shape[-2], device=q.device)
    return apply_rotary_emb(q, positions[-1:], base) @ apply_rotary_emb(k_cache, positions, base).mT
""",
    },
    "week4_alibi": {
        "alibi_bias": """
def alibi_bias(n_heads, n_queries, n_keys=None):
    n_keys = n_queries if n_keys is None else n_keys
    i, j = torch.arange(n_keys - n_queries, n_keys)[:, None], torch.arange(n_keys)
    return -alibi_slopes(n_heads).float()[:, None, None] * (i - j).abs()
""",
        "ALiBiMultiHeadAttention": """
class ALiBiMultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        if d_model % n_heads:
            raise ValueError("sizes")
        self.n_heads = n_heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x, is_causal=True):
        split = lambda t: t.unflatten(-1, (self.n_heads, -1)).transpose(1, 2).to(torch.promote_types(x.dtype, torch.float32))
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        scores = q @ k.mT / q.shape[-1] ** 0.5 + alibi_bias(self.n_heads, x.shape[1]).to(x.device)
        if is_causal:
            scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -math.inf)
        return self.o_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2).to(x.dtype))
""",
    },
    "week5_extrapolation": {
        "dynamic_ntk_base": """
def dynamic_ntk_base(base, scale, head_dim, seq_len, original_len):
    if seq_len <= original_len:
        return float(base)
    return ntk_base(base, scale * seq_len / original_len - (scale - 1), head_dim)
"""
    },
    "week6_relative_bias": {
        "shaw_attention": """
def shaw_attention(q, k, v, rel_k, rel_v, mask=None):
    clip = rel_k.shape[0] // 2
    row = relative_positions(q.shape[-2], k.shape[-2]).clamp(-clip, clip) + clip
    scores = (q @ k.mT + torch.einsum("bhid,ijd->bhij", q, rel_k[row])) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(-1).nan_to_num()
    return weights @ v + torch.einsum("bhij,ijd->bhid", weights, rel_v[row]), weights
""",
        "transformer_xl_scores": """
def transformer_xl_scores(q, k, r, content_bias, position_bias):
    content = (q + content_bias[:, None]) @ k.mT
    position = rel_shift((q + position_bias[:, None]) @ r.flip(1).mT)
    scores = (content + position) / math.sqrt(q.shape[-1])
    return scores.masked_fill(relative_positions(q.shape[-2], k.shape[-2]).to(q.device) > 0, -math.inf)
""",
        "t5_attention": """
def t5_attention(q, k, v, table, is_causal=False, max_distance=128):
    offset = relative_positions(q.shape[-2], k.shape[-2]).to(q.device)
    scores = q @ k.mT + table[t5_bucket(offset, not is_causal, len(table), max_distance)].permute(2, 0, 1)
    if is_causal:
        scores = scores.masked_fill(offset > 0, -math.inf)
    weights = scores.softmax(-1)
    return weights @ v, weights
""",
    },
    "week7_capstone": {
        "generate": """
def generate(decode, prompts, n_new):
    longest = max(map(len, prompts))
    tokens = torch.tensor([(longest - len(prompt)) * [0] + list(prompt) for prompt in prompts])
    keep = torch.tensor([(longest - len(prompt)) * [False] + len(prompt) * [True] for prompt in prompts])
    cache, rows = None, []
    while len(rows) < n_new:
        logits, cache = decode(tokens, *padded_causal(keep, tokens.shape[1]), cache)
        tokens = logits[:, -1:].argmax(-1)
        rows.append(tokens)
        keep = F.pad(keep, (0, 1), value=True)
    return torch.cat(rows, dim=1)
""",
        "CrossAttention": """
class CrossAttention(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or d_model // n_heads % 2:
            raise ValueError("sizes")
        self.n_heads, self.base = n_heads, base
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x, memory, memory_mask=None, positions=None, memory_positions=None):
        if (positions is None) != (memory_positions is None):
            raise ValueError("both or none")
        split = lambda t: t.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
        q, k, v = split(self.q_proj(x)), split(self.k_proj(memory)), split(self.v_proj(memory))
        if positions is not None:
            q, k = apply_rotary_emb(q, positions, self.base), apply_rotary_emb(k, memory_positions, self.base)
        out, _ = grouped_query_attention(q, k, v, None if memory_mask is None else memory_mask[:, None, None, :])
        return self.o_proj(out.transpose(1, 2).flatten(-2))
""",
        "CachedAttention": """
class CachedAttention(nn.Module):
    def __init__(self, d_model, n_heads, n_kv_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or n_heads % n_kv_heads or d_model // n_heads % 2:
            raise ValueError("sizes")
        self.head_dim, self.base = d_model // n_heads, base
        self.q_proj, self.o_proj = (nn.Linear(d_model, d_model, bias=False) for _ in range(2))
        self.k_proj, self.v_proj = (nn.Linear(d_model, n_kv_heads * self.head_dim, bias=False) for _ in range(2))

    def forward(self, x, cache=None):
        split = lambda t: t.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        start, n = 0 if cache is None else cache[0].shape[2], x.shape[1]
        positions = torch.arange(start, start + n, device=x.device)
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        q, k = apply_rotary_emb(q, positions, self.base), apply_rotary_emb(k, positions, self.base)
        if cache is not None:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        out, _ = grouped_query_attention(q, k, v, torch.arange(start + n, device=x.device) <= positions[:, None])
        return self.o_proj(out.transpose(1, 2).flatten(-2)), (k, v)
""",
        "HybridDecoderBlock": """
class HybridDecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.self_attn, self.cross_attn = ALiBiMultiHeadAttention(d_model, n_heads), CrossAttention(d_model, n_heads)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))
        self.ffn = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))

    def forward(self, x, memory, memory_mask=None):
        x = x + self.self_attn(self.norm1(x))
        x = x + self.cross_attn(self.norm2(x), memory, memory_mask)
        return x + self.ffn(self.norm3(x))
""",
    },
}
CALLED = {
    "week2_sinusoidal": ["sinusoidal_positional_encoding"],
    "week3_rope": ["rope_frequencies", "apply_rotary_emb"],
    "week4_alibi": ["alibi_slopes", "alibi_bias"],
    "week5_extrapolation": ["ntk_base"],
    "week6_relative_bias": ["relative_positions", "rel_shift", "t5_bucket"],
    "week7_capstone": ["grouped_query_attention", "padded_causal", "CrossAttention"],
}
