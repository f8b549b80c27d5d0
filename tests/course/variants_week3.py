"""Wrong answers to week 3 that the diagnosis was not built from, to measure how often it names the cause.

Other styles, slightly different mistakes, two mistakes at once, and mistakes that no bank entry makes. Each carries a
pattern that at least one named sentence must match. Do not add these to the banks: they would no longer measure.
"""

import math

import torch
import torch.nn.functional as F
from course.variants import registry
from torch import nn

VARIANTS, variant = registry()


# ---- rope_frequencies -----------------------------------------------------------------------------------------------


@variant("rope_frequencies", r"half as fast|exponent")
def arange_over_whole_dim(head_dim, base=10000.0):
    if head_dim & 1:
        raise ValueError("even, please")
    return torch.tensor([1 / base ** (i / head_dim) for i in range(head_dim)][: head_dim // 2])


@variant("rope_frequencies", r"head_dim - 2|last frequency")
def linspace_with_both_ends(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("odd")
    steps = torch.linspace(0, 1, head_dim // 2, dtype=torch.float64)
    return torch.pow(torch.tensor(base, dtype=torch.float64), -steps).float()


@variant("rope_frequencies", r"own base|argument `base`")
def default_written_out(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("odd")
    return torch.tensor([math.exp(-2 * i * math.log(10_000) / head_dim) for i in range(head_dim // 2)])


@variant("rope_frequencies", r"per channel|one frequency per channel|per pair")
def repeated_as_blocks(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("odd")
    f = 1.0 / base ** (torch.arange(0, head_dim, 2) / head_dim)
    return torch.cat([f, f])


@variant("rope_frequencies", r"wavelength|2 pi")
def in_turns(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("odd")
    return base ** (-torch.arange(0, head_dim, 2) / head_dim) / (2 * math.pi)


@variant("rope_frequencies", r"ValueError")
def asserts_instead(head_dim, base=10000.0):
    assert head_dim % 2 == 0, "head_dim must be even"
    return base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)


@variant("rope_frequencies", r"minus sign|grow")
def grows_and_half_speed(head_dim, base=10000.0):
    if head_dim % 2:
        raise ValueError("odd")
    return base ** (torch.arange(head_dim // 2) / head_dim)


# ---- apply_rotary_emb -----------------------------------------------------------------------------------------------


@variant("apply_rotary_emb", r"half-split")
def numpy_style_halves(x, positions, base=10000.0):
    half = x.size(-1) // 2
    w = torch.exp(-math.log(base) * torch.arange(half) / half)
    phase = torch.einsum("...n,d->...nd", positions.float(), w)
    phase = phase if positions.dim() == 1 else phase[:, None]
    left, right = x.split(half, dim=-1)
    c, s = phase.cos(), phase.sin()
    return torch.cat([left * c - right * s, right * c + left * s], -1).type_as(x)


@variant("apply_rotary_emb", r"half-split")
def halves_and_backwards(x, positions, base=10000.0):
    half = x.size(-1) // 2
    w = base ** (-torch.arange(half) / half)
    phase = positions[..., None] * w
    phase = phase if positions.dim() == 1 else phase[:, None]
    left, right = x.split(half, dim=-1)
    c, s = phase.cos(), phase.sin()
    return torch.cat([left * c + right * s, right * c - left * s], -1).to(x.dtype)


@variant("apply_rotary_emb", r"wrong way|counter-clockwise")
def conjugated(x, positions, base=10000.0):
    if x.shape[-1] % 2:
        raise ValueError("odd")
    w = base ** (-torch.arange(0, x.shape[-1], 2, dtype=torch.float64) / x.shape[-1])
    turn = torch.exp(-1j * positions.double()[..., None] * w)
    turn = turn[:, None] if positions.ndim == 2 else turn
    z = torch.complex(x[..., ::2].double(), x[..., 1::2].double()) * turn
    return torch.stack((z.real, z.imag), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"wrong way|half as fast")
def clockwise_and_half_speed(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.float()[..., None] * torch.tensor([base ** (-i / d) for i in range(d // 2)])
    a = a.unsqueeze(-3) if positions.ndim == 2 else a
    p = x.float().reshape(*x.shape[:-1], d // 2, 2)
    u = p[..., 0] * a.cos() + p[..., 1] * a.sin()
    v = p[..., 1] * a.cos() - p[..., 0] * a.sin()
    return torch.stack([u, v], -1).reshape(x.shape).to(x.dtype)


@variant("apply_rotary_emb", r"one too high")
def loop_counts_from_one_and_ignores(x, positions, base=10000.0):
    b, h, n, d = x.shape
    if d % 2:
        raise ValueError("odd")
    rows = []
    for t in range(n):
        a = (t + 1) * base ** (-torch.arange(0, d, 2) / d)
        e, o = x[:, :, t, 0::2], x[:, :, t, 1::2]
        rows.append(torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2))
    return torch.stack(rows, 2).to(x.dtype)


@variant("apply_rotary_emb", r"does not depend on `positions`|positions given")
def cached_by_length(x, positions, base=10000.0):
    b, h, n, d = x.shape
    if d % 2:
        raise ValueError("odd")
    table = torch.stack([t * base ** (-torch.arange(0, d, 2) / d) for t in range(n)])
    e, o = x.unflatten(-1, (-1, 2)).unbind(-1)
    c, s = table.cos(), table.sin()
    return torch.stack((e * c - o * s, e * s + o * c), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"negative|fractional|whole")
def table_lookup(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    table = torch.arange(10_000).float()[:, None] * base ** (-torch.arange(0, d, 2) / d)
    a = table[positions.long()]
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"whole numbers|fractional")
def rounds_positions(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.float().round()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"negative|sign of the positions")
def clamps_negative(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.clamp(min=0)[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"row b belongs|first row|rows? of positions")
def last_row_for_all(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    p = positions.reshape(-1)[-x.shape[2]:]
    a = p.double()[:, None] * base ** (-torch.arange(0, d, 2) / d)
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"row b belongs|batch")
def rows_broadcast_wrong(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = torch.einsum("...i,j->...ij", positions.double(), base ** (-torch.arange(0, d, 2).double() / d))
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"half precision|half-precision")
def only_frequencies_low(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    w = torch.tensor([base ** (-2 * i / d) for i in range(d // 2)], dtype=x.dtype)
    a = positions.double()[..., None] * w.double()
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"half precision|half-precision")
def only_angles_low(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = torch.outer(positions.flatten().float(), base ** (-torch.arange(0, d, 2) / d)).to(x.dtype)
    a = a.view(*positions.shape, d // 2)
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2)


@variant("apply_rotary_emb", r"sequence|wrong axis|axis")
def turned_by_head_number(x, positions, base=10000.0):
    b, h, n, d = x.shape
    if d % 2:
        raise ValueError("odd")
    a = torch.arange(h)[:, None, None] * base ** (-torch.arange(0, d, 2) / d)
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"side by side|put back")
def forgets_to_weave(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = a[:, None] if positions.ndim == 2 else a
    z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous()) * torch.exp(1j * a)
    return torch.cat((z.real, z.imag), -1).to(x.dtype)


@variant("apply_rotary_emb", r"layouts are mixed")
def neox_tables_gptj_turn(x, positions, base=10000.0):
    d = x.shape[-1]
    w = 1.0 / base ** (torch.arange(0, d, 2) / d)
    w = w.repeat(2)
    a = positions.double().unsqueeze(-1) * w
    a = a.unsqueeze(1) if positions.ndim == 2 else a
    turned = torch.empty_like(x)
    turned[..., 0::2], turned[..., 1::2] = -x[..., 1::2], x[..., 0::2]
    return (a.cos() * x + a.sin() * turned).to(x.dtype)


@variant("apply_rotary_emb", r"layouts are mixed|half-split")
def gptj_tables_neox_turn(x, positions, base=10000.0):
    d = x.shape[-1]
    w = (1.0 / base ** (torch.arange(0, d, 2) / d)).repeat_interleave(2)
    a = positions.double().unsqueeze(-1) * w
    a = a.unsqueeze(1) if positions.ndim == 2 else a
    return (a.cos() * x + a.sin() * torch.cat((-x[..., d // 2:], x[..., :d // 2]), -1)).to(x.dtype)


@variant("apply_rotary_emb", r"old values|after its rotation")
def in_place_on_a_copy(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    y = x.clone().double()
    for i in range(d // 2):
        a = positions.double() * base ** (-2 * i / d)
        a = a[:, None] if positions.ndim == 2 else a
        y[..., 2 * i] = y[..., 2 * i] * a.cos() - y[..., 2 * i + 1] * a.sin()
        y[..., 2 * i + 1] = y[..., 2 * i] * a.sin() + y[..., 2 * i + 1] * a.cos()
    return y.to(x.dtype)


@variant("apply_rotary_emb", r"mirrored|wrong sign")
def second_line_wrong(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), o * a.cos() - e * a.sin()), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"degrees|radians")
def through_math_radians(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2) / d) * math.pi / 180
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"gradient|autograd")
def rebuilt_from_lists(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0::2], x[..., 1::2]
    pairs = torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1)
    return torch.tensor(pairs.flatten(-2).tolist()).to(x.dtype)


@variant("apply_rotary_emb", r"dtype|must return a")
def promotes_to_double(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2)


@variant("apply_rotary_emb", r"in place|gradient")
def multiplies_in_place(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = a[:, None] if positions.ndim == 2 else a
    turned = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2) * a.sin().repeat_interleave(2, -1)
    x *= a.cos().repeat_interleave(2, -1)
    x += turned
    return x


@variant("apply_rotary_emb", r"first position|positions given")
def distance_to_first_token(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    p = (positions - positions[..., 0:1]).double()
    a = p[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0::2], x[..., 1::2]
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2).to(x.dtype)


@variant("apply_rotary_emb", r"half of the channels|first|rest")  # partial rotation, as in GPT-NeoX: in no bank
def rotates_a_quarter(x, positions, base=10000.0):
    d = x.shape[-1] // 4 * 2
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = a[:, None] if positions.ndim == 2 else a
    e, o = x[..., 0:d:2], x[..., 1:d:2]
    turned = torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2)
    return torch.cat((turned.to(x.dtype), x[..., d:]), -1)


@variant("apply_rotary_emb", r"nothing may change|lengths")  # week 2 again: in no bank
def adds_sinusoids(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = a[:, None] if positions.ndim == 2 else a
    return (x + torch.stack((a.sin(), a.cos()), -1).flatten(-2)).to(x.dtype)


# ---- apply_rotary_emb_half ------------------------------------------------------------------------------------------


@variant("apply_rotary_emb_half", r"interleaved")
def old_function_again(x, positions, base=10000.0):
    d = x.shape[-1]
    w = torch.tensor([base ** (-k / d) for k in range(0, d, 2)])
    a = positions.float()[..., None] * w
    a = a[:, None] if positions.ndim == 2 else a
    y = torch.empty_like(x)
    y[..., ::2] = x[..., ::2] * a.cos() - x[..., 1::2] * a.sin()
    y[..., 1::2] = x[..., 1::2] * a.cos() + x[..., ::2] * a.sin()
    return y


@variant("apply_rotary_emb_half", r"wrong way|interleaved")
def old_function_backwards(x, positions, base=10000.0):
    d = x.shape[-1]
    a = positions.float()[..., None] * torch.tensor([base ** (-k / d) for k in range(0, d, 2)])
    a = a[:, None] if positions.ndim == 2 else a
    y = torch.empty_like(x)
    y[..., ::2] = x[..., ::2] * a.cos() + x[..., 1::2] * a.sin()
    y[..., 1::2] = x[..., 1::2] * a.cos() - x[..., ::2] * a.sin()
    return y


@variant("apply_rotary_emb_half", r"wrong way|counter-clockwise")
def rotate_half_sign_forgotten_twice(x, positions, base=10000.0):
    d = x.shape[-1]
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = torch.cat((a, a), -1)
    a = a[:, None] if positions.ndim == 2 else a
    return (x * a.cos() - torch.cat((-x[..., d // 2:], x[..., :d // 2]), -1) * a.sin()).to(x.dtype)


@variant("apply_rotary_emb_half", r"layouts are mixed")
def stacked_tables(x, positions, base=10000.0):
    d = x.shape[-1]
    a = positions.double()[..., None] * base ** (-torch.arange(0, d, 2) / d)
    a = torch.stack((a, a), -1).flatten(-2)
    a = a[:, None] if positions.ndim == 2 else a
    return (x * a.cos() + torch.cat((-x[..., d // 2:], x[..., :d // 2]), -1) * a.sin()).to(x.dtype)


@variant("apply_rotary_emb_half", r"row b belongs|batch")
def flattens_rows(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    a = positions.reshape(-1)[: x.shape[-2], None].double() * base ** (-torch.arange(0, d, 2) / d)
    l, r = x.chunk(2, -1)
    return torch.cat((l * a.cos() - r * a.sin(), r * a.cos() + l * a.sin()), -1).to(x.dtype)


@variant("apply_rotary_emb_half", r"half precision|half-precision")
def tables_in_bfloat16(x, positions, base=10000.0):
    d = x.shape[-1]
    if d % 2:
        raise ValueError("odd")
    p = positions.to(x.dtype).double()
    a = p[..., None] * base ** (-torch.arange(0, d, 2).double() / d)
    a = a[:, None] if positions.ndim == 2 else a
    l, r = x.chunk(2, -1)
    return torch.cat((l * a.cos() - r * a.sin(), r * a.cos() + l * a.sin()), -1).to(x.dtype)


@variant("apply_rotary_emb_half", r"half as fast|exponent")
def divides_by_pairs_wrongly(x, positions, base=10000.0):
    n_pairs = x.shape[-1] // 2
    a = positions.double()[..., None] * base ** (-torch.arange(n_pairs) / (2 * n_pairs))
    a = a[:, None] if positions.ndim == 2 else a
    l, r = x[..., :n_pairs], x[..., n_pairs:]
    return torch.cat((l * a.cos() - r * a.sin(), r * a.cos() + l * a.sin()), -1).to(x.dtype)


# ---- interleaved_to_half --------------------------------------------------------------------------------------------


@variant("interleaved_to_half", r"inverse|interleaved one")
def argsort_of_the_right_one(weight, n_heads):
    hd = weight.shape[0] // n_heads
    order = torch.cat((torch.arange(0, hd, 2), torch.arange(1, hd, 2))).argsort()
    return weight.reshape(n_heads, hd, -1)[:, order].reshape(weight.shape)


@variant("interleaved_to_half", r"within that head|over all heads")
def stride_two_over_everything(weight, n_heads):
    return weight.view(-1, 2, weight.shape[1]).permute(1, 0, 2).reshape(weight.shape)


@variant("interleaved_to_half", r"columns")
def permutes_features(weight, n_heads):
    out, features = weight.shape
    hd = features // n_heads
    order = [h * hd + r for h in range(n_heads) for s in (0, 1) for r in range(s, hd, 2)]
    return weight[:, order]


@variant("interleaved_to_half", r"odd rows|odds")
def odd_then_even(weight, n_heads):
    hd = weight.shape[0] // n_heads
    order = [h * hd + r for h in range(n_heads) for s in (1, 0) for r in range(s, hd, 2)]
    return weight[order]


@variant("interleaved_to_half", r"inverse|over all heads")
def inverse_over_everything(weight, n_heads):
    return weight.view(2, -1, weight.shape[1]).transpose(0, 1).reshape(weight.shape)


@variant("interleaved_to_half", r"autograd|gradient")
def makes_a_parameter(weight, n_heads):
    rows, d = weight.shape
    if rows % n_heads or rows // n_heads % 2:
        raise ValueError("no pairs")
    return nn.Parameter(weight.view(n_heads, -1, 2, d).transpose(1, 2).reshape(rows, d))


@variant("interleaved_to_half", r"dtype|must return")
def in_float32(weight, n_heads):
    rows, d = weight.shape
    if rows % n_heads or rows // n_heads % 2:
        raise ValueError("no pairs")
    p = torch.eye(rows).view(n_heads, -1, 2, rows).transpose(1, 2).reshape(rows, rows)
    return p @ weight.float()


# ---- RotaryMultiHeadAttention ---------------------------------------------------------------------------------------


class Attention(nn.Module):
    """The common part of the variants below; each changes one method or two."""

    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        if d_model % n_heads or d_model // n_heads % 2:
            raise ValueError("bad sizes")
        self.H, self.D, self.base = n_heads, d_model // n_heads, base
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            self.add_module(name, nn.Linear(d_model, d_model, bias=False))

    def angles(self, positions, x):
        return positions.double()[..., None] * self.base ** (-torch.arange(0, self.D, 2).double() / self.D)

    def turn(self, x, positions):
        a = self.angles(positions, x)
        a = a[:, None] if a.ndim == 3 else a
        z = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous()) * torch.exp(1j * a)
        return torch.view_as_real(z).flatten(-2).to(x.dtype)

    def heads(self, x):
        return x.unflatten(-1, (self.H, self.D)).transpose(1, 2)

    def attend(self, q, k, v, positions, is_causal):
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    def forward(self, x, positions=None, is_causal=False):
        positions = torch.arange(x.shape[1]) if positions is None else positions
        q, k, v = self.heads(self.q_proj(x)), self.heads(self.k_proj(x)), self.heads(self.v_proj(x))
        out = self.attend(self.turn(q, positions), self.turn(k, positions), v, positions, is_causal)
        return self.o_proj(out.transpose(1, 2).flatten(2))


@variant("RotaryMultiHeadAttention", r"values")
class TurnsEverything(Attention):
    def attend(self, q, k, v, positions, is_causal):
        return super().attend(q, k, self.turn(v, positions), positions, is_causal)


@variant("RotaryMultiHeadAttention", r"values|half-split")
class TurnsEverythingInHalves(Attention):
    def turn(self, x, positions):
        a = self.angles(positions, x)
        a = a[:, None] if a.ndim == 3 else a
        l, r = x.double().chunk(2, -1)
        return torch.cat((l * a.cos() - r * a.sin(), r * a.cos() + l * a.sin()), -1).to(x.dtype)

    def attend(self, q, k, v, positions, is_causal):
        return super().attend(q, k, self.turn(v, positions), positions, is_causal)


@variant("RotaryMultiHeadAttention", r"before the heads are split|d_model")
class FrequenciesOfTheModel(Attention):
    def forward(self, x, positions=None, is_causal=False):
        p = torch.arange(x.shape[1]) if positions is None else positions
        d = x.shape[-1]
        a = p.double()[..., None] * self.base ** (-torch.arange(0, d, 2).double() / d)

        def turn(y):
            e, o = y[..., ::2], y[..., 1::2]
            return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2).to(y.dtype)

        q, k, v = self.heads(turn(self.q_proj(x))), self.heads(turn(self.k_proj(x))), self.heads(self.v_proj(x))
        return self.o_proj(self.attend(q, k, v, p, is_causal).transpose(1, 2).flatten(2))


@variant("RotaryMultiHeadAttention", r"d_model|exponent|frequenc")  # head_dim and d_model confused in the exponent alone
class ExponentOverModel(Attention):
    def angles(self, positions, x):
        return positions.double()[..., None] * self.base ** (-torch.arange(0, self.D, 2).double() / (self.D * self.H))


@variant("RotaryMultiHeadAttention", r"not depend on `positions`|positions given")
class AlwaysCounts(Attention):
    def angles(self, positions, x):
        return super().angles(torch.arange(x.shape[-2]), x)


@variant("RotaryMultiHeadAttention", r"not divided|scale")
class NoScale(Attention):
    def attend(self, q, k, v, positions, is_causal):
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=1.0)


@variant("RotaryMultiHeadAttention", r"d_model")
class ModelScale(Attention):
    def attend(self, q, k, v, positions, is_causal):
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=(self.H * self.D) ** -0.5)


@variant("RotaryMultiHeadAttention", r"compares positions|indices")
class PositionMask(Attention):
    def attend(self, q, k, v, positions, is_causal):
        bias = None
        if is_causal:
            p = positions.float()
            later = (p.unsqueeze(-2) - p.unsqueeze(-1)) > 0
            later = later.unsqueeze(1) if later.ndim == 3 else later
            bias = torch.zeros(later.shape).masked_fill(later, -math.inf).to(q.dtype)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


@variant("RotaryMultiHeadAttention", r"later tokens|is_causal")
class ForgetsTheFlag(Attention):
    def attend(self, q, k, v, positions, is_causal):
        return F.scaled_dot_product_attention(q, k, v)


@variant("RotaryMultiHeadAttention", r"is_causal|index|indices")  # sees the future instead of the past
class UpperTriangle(Attention):
    def attend(self, q, k, v, positions, is_causal):
        n = q.shape[-2]
        mask = torch.ones(n, n, dtype=torch.bool).triu() if is_causal else None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@variant("RotaryMultiHeadAttention", r"merged|tokens and heads")
class ReshapesHeads(Attention):
    def forward(self, x, positions=None, is_causal=False):
        p = torch.arange(x.shape[1]) if positions is None else positions
        q, k, v = self.heads(self.q_proj(x)), self.heads(self.k_proj(x)), self.heads(self.v_proj(x))
        out = self.attend(self.turn(q, p), self.turn(k, p), v, p, is_causal)
        return self.o_proj(out.contiguous().view(x.shape))


@variant("RotaryMultiHeadAttention", r"state_dict|saved")
class SavesTables(Attention):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__(d_model, n_heads, base)
        self.register_buffer("cos", torch.zeros(4096, self.D // 2))


@variant("RotaryMultiHeadAttention", r"bfloat16|buffer|half precision")
class FrequenciesInBuffer(Attention):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__(d_model, n_heads, base)
        self.register_buffer("w", base ** (-torch.arange(0, self.D, 2) / self.D), persistent=False)

    def angles(self, positions, x):
        return positions.double()[..., None] * self.w.double()


@variant("RotaryMultiHeadAttention", r"bfloat16|buffer|half precision")
class PositionsInModelDtype(Attention):
    def forward(self, x, positions=None, is_causal=False):
        positions = torch.arange(x.shape[1]) if positions is None else positions
        return super().forward(x, positions.to(x.dtype), is_causal)


@variant("RotaryMultiHeadAttention", r"bias")
class Biased(Attention):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__(d_model, n_heads, base)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(d_model, d_model) for _ in range(4))


@variant("RotaryMultiHeadAttention", r"called q_proj|names|state_dict")
class NamesWithUnderscores(nn.Module):
    def __init__(self, d_model, n_heads, base=10000.0):
        super().__init__()
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x, positions=None, is_causal=False):
        return self.w_o(self.w_v(x))


@variant("RotaryMultiHeadAttention", r"gradient|autograd")
class NoGradThroughRotation(Attention):
    @torch.no_grad()
    def turn(self, x, positions):
        return super().turn(x, positions)


# ---- rotate_half, rotary_tables, decode_step_scores -----------------------------------------------------------------


@variant("rotate_half", r"still there|neighbouring")
def still_neighbours(x):
    y = x.reshape(*x.shape[:-1], -1, 2).flip(-1)
    return (y * torch.tensor([-1, 1]).to(x.dtype)).reshape(x.shape)


@variant("rotate_half", r"minus sign")
def sign_on_the_other_half(x):
    h = x.shape[-1] // 2
    return torch.cat([x.narrow(-1, h, h), x.narrow(-1, 0, h).neg()], -1)


@variant("rotate_half", r"neighbouring|still there|minus sign")
def neighbours_other_sign(x):
    return torch.stack((x[..., 1::2], -x[..., ::2]), -1).flatten(-2)


@variant("rotate_half", r"side by side|put back")
def splits_right_joins_wrong(x):
    h = x.shape[-1] // 2
    y = torch.empty_like(x)
    y[..., ::2], y[..., 1::2] = -x[..., h:], x[..., :h]
    return y


@variant("rotary_tables", r"rounded|half precision")
def widened_too_late(positions, head_dim, dtype=torch.float32, base=10000.0):
    w = torch.pow(base, -torch.arange(0, head_dim, 2) / head_dim).to(dtype)
    a = torch.outer(positions.to(dtype), w).double()
    return torch.cos(a).to(dtype), torch.sin(a).to(dtype)


@variant("rotary_tables", r"rounded|half precision")
def only_the_product(positions, head_dim, dtype=torch.float32, base=10000.0):
    a = (positions.float()[:, None] / base ** (torch.arange(0, head_dim, 2) / head_dim)).to(dtype)
    return a.cos(), a.sin()


@variant("rotary_tables", r"wrong order")
def sine_first(positions, head_dim, dtype=torch.float32, base=10000.0):
    a = positions.float()[:, None] / base ** (torch.arange(0, head_dim, 2) / head_dim)
    return tuple(f(a).to(dtype) for f in (torch.sin, torch.cos))


@variant("rotary_tables", r"too wide|one column per pair")
def repeated_columns(positions, head_dim, dtype=torch.float32, base=10000.0):
    a = (positions.float()[:, None] / base ** (torch.arange(0, head_dim, 2) / head_dim)).repeat_interleave(2, 1)
    return a.cos().to(dtype), a.sin().to(dtype)


@variant("rotary_tables", r"base")
def fixed_but_base_lost(positions, head_dim, dtype=torch.float32, base=10000.0):
    a = positions.double()[:, None] * torch.exp(-9.210340371976184 * torch.arange(0, head_dim, 2) / head_dim)
    return a.cos().to(dtype), a.sin().to(dtype)


def spin(x, p, base):
    a = p.double()[:, None] * base ** (-torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
    e, o = x[..., 0::2].double(), x[..., 1::2].double()
    return torch.stack((e * a.cos() - o * a.sin(), e * a.sin() + o * a.cos()), -1).flatten(-2)


@variant("decode_step_scores", r"position 0|still there")
def query_left_alone(q, k_cache, base=10000.0):
    return (q.double() @ spin(k_cache, torch.arange(k_cache.shape[2]), base).mT).to(q.dtype)


@variant("decode_step_scores", r"one position too far")
def position_is_the_length(q, k_cache, base=10000.0):
    n = k_cache.shape[2]
    return (spin(q, torch.full((1,), n), base) @ spin(k_cache, torch.arange(n), base).mT).to(q.dtype)


@variant("decode_step_scores", r"one position too far|one too high")
def keys_one_early(q, k_cache, base=10000.0):
    n = k_cache.shape[2]
    return (spin(q, torch.tensor([n - 1]), base) @ spin(k_cache, torch.arange(-1, n - 1), base).mT).to(q.dtype)


@variant("decode_step_scores", r"scaled")
def scaled_as_usual(q, k_cache, base=10000.0):
    n, d = k_cache.shape[2:]
    return (spin(q, torch.tensor([n - 1]), base) @ spin(k_cache, torch.arange(n), base).mT * d**-0.5).to(q.dtype)


@variant("decode_step_scores", r"position of the query|key j stands")
def everything_at_the_end(q, k_cache, base=10000.0):
    p = torch.tensor([k_cache.shape[2] - 1])
    return (spin(q, p, base) @ spin(k_cache, p, base).mT).to(q.dtype)


@variant("decode_step_scores", r"keys are not rotated")
def keys_forgotten(q, k_cache, base=10000.0):
    return (spin(q, torch.tensor([k_cache.shape[2] - 1]), base) @ k_cache.double().mT).to(q.dtype)


@variant("decode_step_scores", r"scaled|softmax")
def position_and_scale(q, k_cache, base=10000.0):
    n, d = k_cache.shape[2:]
    return (spin(q, torch.tensor([0]), base) @ spin(k_cache, torch.arange(n), base).mT / math.sqrt(d)).to(q.dtype)


# ---- serving_test ---------------------------------------------------------------------------------------------------


@variant("serving_test", r"listing")
def promises_of_shapes(rotate_llama, prompt_scores, decode_step_scores):
    x = torch.randn(2, 2, 7, 8)
    shapes = rotate_llama(x, torch.arange(7)).shape, prompt_scores(x, x).shape, decode_step_scores(x[:, :, :1], x).shape
    return shapes == ((2, 2, 7, 8), (2, 2, 7, 7), (2, 2, 1, 7))


@variant("serving_test", r"refuses a right file")
def bit_for_bit(rotate_llama, prompt_scores, decode_step_scores):
    x = torch.randn(1, 1, 9, 8, generator=torch.Generator().manual_seed(4)).to(torch.bfloat16)
    at = 77 * torch.arange(9)
    return bool(torch.equal(rotate_llama(x, at).float(), rotate_llama(x.float(), at)))


@variant("serving_test", r"takes the newest token for the first")
def decodes_at_the_start_only(rotate_llama, prompt_scores, decode_step_scores):
    x = torch.randn(1, 1, 9, 4, generator=torch.Generator().manual_seed(4))
    far = 999 * torch.arange(9)
    close = lambda a, b: bool((a - b).abs().max() < 0.1)
    near = close(decode_step_scores(x[:, :, :1], x[:, :, :1]), prompt_scores(x, x)[:, :, :1, :1])
    lengths = close(rotate_llama(x, far).norm(dim=-1), x.norm(dim=-1))
    return near and lengths and close(rotate_llama(x.bfloat16(), far).float(), rotate_llama(x, far))


# ---- look_back_head -------------------------------------------------------------------------------------------------


@variant("look_back_head", r"looks ahead")
def query_turned_ahead(back, head_dim, n_keys):
    k = torch.tensor([1.0, 0.0]).repeat(head_dim // 2)
    q = spin(k.view(1, 1, 1, -1), torch.tensor([back]), 1e4)[0, 0, 0]
    return 50 * q, k


@variant("look_back_head", r"newest token itself")
def the_same_random_content(back, head_dim, n_keys):
    content = torch.randn(head_dim, generator=torch.Generator().manual_seed(back))
    return 10 * content, content


@variant("look_back_head", r"turn up the strength")
def unit_query(back, head_dim, n_keys):
    q = torch.nn.functional.normalize(torch.ones(head_dim), dim=0)
    return q, spin(q.view(1, 1, 1, -1), torch.tensor([back]), 1e4)[0, 0, 0]


# ---- hand computations ----------------------------------------------------------------------------------------------

NUMBERS = [
    ("rotate_by_hand", r"degrees|radians", {  # another rounding than the bank's
        "q3_0": 0.9986, "q3_1": 0.0523, "k1_0": -0.0175, "k1_1": 0.9998, "score_3_1": 0.0349, "score_12_10": 0.0349}),
    ("rotate_by_hand", r"clockwise", {
        "q3_0": -0.99, "q3_1": -0.1411, "k1_0": 0.8415, "k1_1": 0.5403, "score_3_1": -0.9093, "score_12_10": -0.9093}),
    ("rotate_by_hand", r"sum", {
        "q3_0": -0.98999, "q3_1": 0.14112, "k1_0": -0.84147, "k1_1": 0.5403,
        "score_3_1": math.sin(4), "score_12_10": math.sin(22)}),
    ("rotate_by_hand", r"one position too far", {
        "q3_0": math.cos(4), "q3_1": math.sin(4), "k1_0": -math.sin(2), "k1_1": math.cos(2),
        "score_3_1": math.sin(2), "score_12_10": math.sin(2)}),
    ("bfloat16_positions", r"float16", {"distinct": 3073, "first_collision": 257}),
    ("bfloat16_positions", r"256", {"distinct": 769, "first_collision": 256.0}),
]
VARIANTS += NUMBERS
