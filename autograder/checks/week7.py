"""Hidden tests of week 7, the capstone: a cache, two sequences, and everything before put together.

Modules are tested with weights that make scores of order 2. With the constructor's weights all scores are near zero, so
attention is a mean and a wrong position changes nothing.
"""

import math
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from autograder import reference
from autograder.checks.attention_functions import (
    FAR_BELOW,
    NO_KEY,
    as_heads,
    like_queries,
    mixed_mask,
)
from autograder.checks.attention_modules import FOUR_WEIGHTS, far_below, like_tokens, loaded
from autograder.checks.framework import Check, Hint, Probe, calling, differentiating, exercise, gradient
from autograder.checks.probes import copies, less, made_there
from autograder.checks.rotations import FRACTION, ROWS
from autograder.grading.sandbox.worker.pullback import uneven
from autograder.script.compare import CUT, FOUR_DIGITS, Tolerance, difference, kind
from autograder.script.script import Gate

WEEK = "week7_capstone"

# Right functions in float32 were off by at most 7e-7 for inputs of order 1; the bank's mistakes move some value by more
# than 0.05. Modules add products with three matrices.
CLOSE = Tolerance(rtol=0, atol=1e-4)
MODULE = Tolerance(rtol=0, atol=2e-4)
BLOCK = Tolerance(rtol=0, atol=5e-3)  # GELU's tanh approximation moves outputs by up to 2e-3: it has its own criterion
WHOLE = Tolerance(rtol=0, atol=0)
# Student and reference may each round values below 6 once, by 2^-9; float32 angles up to 10,000 are off by 1e-3.
ROUNDED = Tolerance(rtol=0, atol=0.06)
# The whole module in bfloat16 on 330 tokens: over 12 seeds and five ways to write it, right modules were off by at most
# 0.08; positions counted in bfloat16 move some output by 1.6 or more.
MODULE_BFLOAT16 = Tolerance(rtol=0, atol=0.4)

BASE = "The default base is right, another one is not. (The frequencies follow the argument `base`.)"


def gradients(output: torch.Tensor, **leaves: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradients with respect to several arguments in one pass; zeros where no graph leads back."""
    if not output.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    weighed = (output * uneven(output)).sum()
    found = torch.autograd.grad(weighed, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def leaf(value: torch.Tensor) -> torch.Tensor:
    return value.detach().clone().requires_grad_()


# ---- 7.2 by hand ----------------------------------------------------------------------------------------------------

CACHE_SIZES = {"gqa_token": 131072.0, "gqa_gib": 1.0, "mha_gib": 4.0, "mla_token": 70272.0, "expanded_token": 4997120.0}


@exercise(WEEK, "cache_sizes", reference=CACHE_SIZES)
def cache_sizes(check: Check) -> None:
    # Catches query heads counted instead of key heads, keys without values, layers or bytes left out.
    with check.criterion("grouped queries: per token, and at 8,192 tokens", 1, golden=True):
        check.entries("gqa_token", "gqa_gib", tolerance=FOUR_DIGITS)
    # Catches a division by groups where there are none.
    with check.criterion("with as many key heads as query heads", 0.5, golden=True):
        check.entries("mha_gib", tolerance=FOUR_DIGITS)
    # Catches the latent counted once per head, or twice for keys and values.
    with check.criterion("a latent instead of the heads", 1, golden=True):
        check.entries("mla_token", tolerance=FOUR_DIGITS)
    # Catches one width for keys and values, and a missing rotated part.
    with check.criterion("the same model with keys and values written out", 0.5, golden=True):
        check.entries("expanded_token", tolerance=FOUR_DIGITS)


# ---- 7.1 grouped_query_attention ------------------------------------------------------------------------------------

BROADCAST = Hint(
    "A mask of this shape goes wrong. (It broadcasts to (batch, n_heads, n_queries, n_keys), also with a head axis.)",
    form=True,
)
TRANSPOSED, TRANSPOSED_KEYS = (
    Hint(
        f"Right for contiguous {given}, wrong for transposed ones, as they come out of a projection. (`view` needs "
        "contiguous memory, `reshape` does not.)",
        form=True,
    )
    for given in ("q, k and v", "keys")
)
FLOAT16 = Hint(
    "With a mask all is right in float32, in float16 it is not. (Both results have the dtype of the inputs; -1e9 is too "
    "large for float16, -inf is not.)",
    form=True,
)
NO_KEY_SLOPES = Hint(
    "With a row of the mask that is all False the gradients are not finite. (They are finite there, too: give such a row "
    "finite scores before the softmax.)",
    lambda got, expected: not all(bool(slope.isfinite().all()) for slope in got.values()),
    otherwise=CUT,
)
# Right functions in float16 were off by at most 0.002 here, over 24 seeds.
HALF_HEADS = Tolerance(rtol=0, atol=0.05, exact_dtype=True)


def grouped(check: Check, *sizes: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, str]:
    """Return q, k, v with scores of order 2, and the description of their call."""
    batch, n_heads, n_kv_heads, n_queries, n_keys, head_dim, v_dim = sizes
    q = 2 * check.randn(batch, n_heads, n_queries, head_dim)
    k, v = check.randn(batch, n_kv_heads, n_keys, head_dim), check.randn(batch, n_kv_heads, n_keys, v_dim)
    return q, k, v, f"grouped_query_attention(q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"


def grouped_slopes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> Probe:
    """The gradients of the output with respect to q, k and v; with a mask those of the output and the weights."""

    def probe(f: Any) -> dict[str, torch.Tensor]:
        leaves = {"q": leaf(q), "k": leaf(k), "v": leaf(v)}
        if mask is None:
            return gradients(f(*leaves.values())[0], **leaves)
        out, weights = f(*leaves.values(), mask.clone())
        return gradients(torch.cat((out.flatten(), weights.flatten())), **leaves)

    return probe


@exercise(WEEK, "grouped_query_attention", returns=("out", "weights"))
def grouped_query_attention(check: Check) -> None:
    # Catches `repeat` for `repeat_interleave`, a scale of d_model, a softmax over queries, `view` on transposed heads.
    with check.criterion("several query heads for each key head", 1.25, golden=True):
        # 12/3 heads: with one key head, or with all, `repeat` and `repeat_interleave` are the same. Without a causal mask
        # there may be more queries than keys.
        for shape in ((4, 4, 2, 4, 4, 4, 4), (3, 12, 3, 7, 4, 6, 5)):
            q, k, v, call = grouped(check, *shape)
            check.agrees(calling(q, k, v), f"{call})", CLOSE)
        q, k, v = as_heads(check, 2, 8, 5, 8), as_heads(check, 2, 2, 7, 8), as_heads(check, 2, 2, 7, 6)
        check.agrees(
            calling(q, k, v),
            "grouped_query_attention(q (2, 8, 5, 8), k (2, 2, 7, 8), v (2, 2, 7, 6), transposed)",
            CLOSE,
            TRANSPOSED,
        )
    # Catches a mask after the softmax, inverted or of one shape only, a low number for -inf, NaN in rows without a key.
    with check.criterion("masks, also one for every head; rows without a key", 0.75, golden=True):
        q, k, v, call = grouped(check, 4, 8, 2, 4, 4, 6, 5)
        for mask_shape in ((4, 4), (4,), (4, 1, 1, 4), (1, 8, 1, 4), (8, 4, 4)):
            mask = mixed_mask(check, *mask_shape)
            check.agrees(calling(q, k, v, mask), f"{call}, mask {mask_shape})", CLOSE, BROADCAST)
        mask = mixed_mask(check, 4, 8, 4, 4)
        mask[1, 3, 2], mask[2] = False, False
        check.agrees(calling(q, k, v, mask), f"{call}, mask (4, 8, 4, 4), some rows all False)", CLOSE, NO_KEY)
        q, k, v, call = grouped(check, 2, 4, 2, 4, 4, 8, 5)
        q = like_queries(q)
        itself = torch.eye(4, dtype=torch.bool, device=check.device)
        words = f"{call}, k against q, scores far below 0, mask: each query sees its own key)"
        check.agrees(calling(q, -q[:, ::2], v, itself), words, CLOSE, FAR_BELOW)
    # Catches wrong shortcuts for one group and for groups of one.
    with check.criterion("one key head, and as many as query heads", 0.5):
        for shape in ((2, 6, 1, 4, 5, 4, 3), (2, 4, 4, 3, 5, 4, 6)):
            q, k, v, call = grouped(check, *shape)
            check.agrees(calling(q, k, v), f"{call})", CLOSE)
    # Catches indivisible head counts accepted, gradients cut off or NaN in a row without a key, k or v changed in place
    # where nothing is repeated, -1e9 in float16.
    with check.criterion("refuses heads that do not divide; passes gradients, leaves its arguments alone", 0.25):
        q, k, v, call = grouped(check, 1, 4, 2, 3, 3, 4, 4)
        check.agrees(grouped_slopes(q, k, v), f"the gradients of {call})", CLOSE, CUT)
        # With as many key heads as query heads nothing is repeated, so writing to k or v changes an argument.
        q, k, v, call = grouped(check, 1, 4, 4, 3, 3, 4, 4)
        seen = torch.ones(3, 3, dtype=torch.bool, device=check.device).tril()
        with check.holds(calling(q, k, v, seen), f"{call}, causal mask)", CLOSE):
            mask = seen.clone()
            mask[1] = False
            check.unchanged(lambda f: f(q, k, v, mask), f"{call}, mask (3, 3), row 1 all False)", mask, q, k, v)
            check.agrees(grouped_slopes(q, k, v, seen), f"the gradients of {call}, causal mask)", CLOSE, CUT)
            words = f"the gradients of {call}, mask (3, 3), row 1 all False)"
            check.agrees(grouped_slopes(q, k, v, mask), words, CLOSE, NO_KEY_SLOPES)
            half = calling(q.half(), k.half(), v.half(), seen)
            check.agrees(half, f"{call}, causal mask) in float16", HALF_HEADS, FLOAT16)
        for n_heads, n_kv_heads in ((4, 3), (2, 4)):
            *heads, call = grouped(check, 1, n_heads, n_kv_heads, 2, 3, 4, 4)
            check.raises(calling(*heads), ValueError, f"{call})")

    # Catches a mask or scale created on the CPU.
    with check.follows_device(0.25):
        heads = [check.randn(2, *shape) for shape in ((4, 3, 8), (2, 5, 8), (2, 5, 6))]
        visible = torch.ones(3, 5, dtype=torch.bool, device=check.device).tril(2)
        call = "grouped_query_attention(q (2, 4, 3, 8), k (2, 2, 5, 8), v (2, 2, 5, 6)"
        check.follows(calling(*heads), f"{call})")
        check.follows(calling(*heads, visible), f"{call}, mask (3, 5))")


# ---- modules --------------------------------------------------------------------------------------------------------


def drawn_weights(check: Check, right: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Values for every parameter of the right module, sized to make scores of order 2."""
    weights = {}
    for name, parameter in right.state_dict().items():
        value = check.randn(*parameter.shape)
        weights[name] = value * 1.4 / math.sqrt(parameter.shape[1]) if parameter.ndim == 2 else 0.3 * value
        if "norm" in name and name.endswith("weight"):
            weights[name] = 1 + weights[name]
    return weights


def same_parts(
    check: Check, arguments: tuple[Any, ...], call: str, hint: Hint | str, inputs: tuple[Any, ...] = ()
) -> None:
    """Compare the names and shapes of the state_dict. With ``inputs`` the module is called first: a call may add a
    table to its buffers."""

    def shapes(cls: Any) -> dict[str, Any]:
        module = cls(*arguments)
        if inputs:  # on the CPU, where the module is
            module(*[value if value is None else value.cpu().clone() for value in inputs])
        return {key: tuple(value.shape) for key, value in module.state_dict().items()}

    check.agrees(shapes, f"{call}.state_dict(){' after a call' if inputs else ''}", hint=hint)


# ---- 7.3 CachedAttention --------------------------------------------------------------------------------------------

WITH_A_CACHE = Hint(
    "The first call is right, those with a cache are not. (Look at the positions of the new tokens, the mask, "
    "and which cached keys and values are used.)",
    form=True,
)
LATER_PIECES = Hint(
    "Pieces of one token are right, longer ones with a cache are not. (Cached tokens come first, then the new ones, and the "
    "causal mask is aligned at the end.)",
    form=True,
)
NEW_TEXT = Hint(
    "A first text is right, one that follows on it is not. (Without a cache a text begins anew: no tokens, positions or mask of an "
    "earlier one are kept.)",
    form=True,
)
CONTINUED = Hint(
    "The first continuation of a prefix is right, another one is not. (A call knows earlier tokens from the cache it is given "
    "alone, and leaves that cache as it is.)",
    lambda got, expected: not difference(got["continuation 1"], expected["continuation 1"], MODULE),
    otherwise=WITH_A_CACHE.says,
    form=True,
)


def _other_dtypes(got: dict[str, str], expected: dict[str, str]) -> bool:
    """Whether only the dtypes of the two parts differ."""
    return got["cache"] == expected["cache"] and all(
        got[at].split()[2:] == expected[at].split()[2:] for at in ("k", "v")
    )


CACHE_SHAPE = Hint(
    "The cache must keep the dtype of the projections.",
    _other_dtypes,
    otherwise="The cache must be a tuple (k, v), each of shape (batch, n_kv_heads, n_cached, head_dim): the key and value heads "
    "of all tokens so far, not repeated.",
)
CONTENT = (
    "What is in the cache has the right shape and serves its own module, but it is not k and v. (The first part holds the "
    "keys, rotated or not, the second the values, both as they were projected.)"
)
BASE_IN_PIECES = Hint(
    "With another base a whole text is right, with a cache it is not. (Every piece is turned with the same base.)",
    form=True,
)
ANGLES = (
    "The module is right in float32, but not after .to(torch.bfloat16). (Positions, frequencies and angles "
    "stay in at least float32.)"
)
SCALED, CHANGE = "2,000 times the output", "what .to(torch.bfloat16) changes"
ANGLES_AFTER = Hint(
    ANGLES,
    lambda got, expected: not difference(got[SCALED], expected[SCALED], MODULE_BFLOAT16),
)
LATE_ANGLES = (
    "After .to(torch.bfloat16) a whole text is right, a piece behind 263 cached tokens is not. (All of them "
    "count. Positions stay whole numbers or float32: bfloat16 cannot count beyond 256.)"
)


def outputs_of(module: Any, pieces: list[torch.Tensor]) -> dict[str, Any]:
    """The module's outputs for the pieces of a text, each with the cache of the piece before."""
    outputs, cache, start = {}, None, 0
    for piece in pieces:
        n = piece.shape[1]
        out, cache = module(piece) if cache is None else module(piece, cache)
        outputs[f"token {start}" if n == 1 else f"tokens {start} to {start + n - 1}"] = out
        start += n
    return outputs


def in_pieces(
    arguments: tuple[Any, ...], weights: dict[str, torch.Tensor], x: torch.Tensor, sizes: list[int], **options: Any
) -> Probe:
    def probe(cls: Any) -> dict[str, Any]:
        module = loaded(cls, arguments, weights, **options)
        if x.dtype != torch.float32:
            module.to(x.dtype)
        return outputs_of(module, list(x.clone().split(sizes, dim=1)))

    return probe


def continued(
    arguments: tuple[Any, ...],
    weights: dict[str, torch.Tensor],
    prefix: torch.Tensor,
    continuations: list[torch.Tensor],
) -> Probe:
    """The outputs for several continuations of one prefix, in turn from the module that read it and from another with
    its weights. Each gets a copy of the cache, as over the wire; another criterion asks that a cache is left alone."""

    def probe(cls: Any) -> dict[str, Any]:
        modules = [loaded(cls, arguments, weights) for _ in range(2)]
        _, cache = modules[0](prefix.clone())
        return {
            f"continuation {number + 1}": modules[number % 2](
                piece.clone(), tree_map_only(torch.Tensor, torch.clone, cache)
            )[0]
            for number, piece in enumerate(continuations)
        }

    return probe


def new_texts(
    arguments: tuple[Any, ...],
    weights: dict[str, torch.Tensor],
    prefix: torch.Tensor,
    more: torch.Tensor,
    x: torch.Tensor,
) -> Probe:
    """The output for x of a module that has read another text in two pieces."""

    def probe(cls: Any) -> torch.Tensor:
        module = loaded(cls, arguments, weights)
        _, cache = module(prefix.clone())
        module(more.clone(), cache)
        return module(x.clone())[0]

    return probe


def cache_after(
    arguments: tuple[Any, ...], weights: dict[str, torch.Tensor], x: torch.Tensor, sizes: list[int]
) -> Probe:
    """The cache after these pieces: its type, the shapes and dtypes in it. Keys may be stored rotated or raw."""

    def probe(cls: Any) -> dict[str, str]:
        module, cache = loaded(cls, arguments, weights).to(x.dtype), None
        for piece in x.clone().split(sizes, dim=1):
            _, cache = module(piece) if cache is None else module(piece, cache)
        if not isinstance(cache, (tuple, list)) or len(cache) != 2:
            size = f" of {len(cache)}" if isinstance(cache, (tuple, list)) else ""
            return {"cache": kind(cache) + size, "k": "", "v": ""}
        return {"cache": f"{kind(cache)} of 2", "k": kind(cache[0]), "v": kind(cache[1])}

    return probe


def behind(
    arguments: tuple[Any, ...], weights: dict[str, torch.Tensor], x: torch.Tensor, cache: tuple[torch.Tensor, ...]
) -> Probe:
    """The answer for x after the tokens of a cache, both passed without a copy."""
    return lambda cls: loaded(cls, arguments, weights)(x, cache)


def content_of_cache(arguments: tuple[Any, ...], weights: dict[str, torch.Tensor], x: torch.Tensor) -> Probe:
    """The norms of the keys in the cache, which no rotation changes, and the values."""

    def probe(cls: Any) -> tuple[torch.Tensor, torch.Tensor]:
        _, (k, v) = loaded(cls, arguments, weights)(x.clone())
        return k.norm(dim=-1), v

    return probe


def before_and_changed_by_bfloat16(
    arguments: tuple[Any, ...], weights: dict[str, torch.Tensor], x: torch.Tensor, base: float
) -> Probe:
    """The output for x, and its change after the module is converted to bfloat16: only rounding, whatever its values.
    The output is multiplied by 2,000, so that MODULE_BFLOAT16 allows it what MODULE would."""

    def probe(cls: Any) -> dict[str, torch.Tensor]:
        module = loaded(cls, arguments, weights, base=base)
        before = module(x.clone())[0]
        module.to(torch.bfloat16)
        return {SCALED: 2000 * before, CHANGE: less(module(x.bfloat16())[0].float(), before)}

    return probe


def slope_in_pieces(
    arguments: tuple[Any, ...], weights: dict[str, torch.Tensor], x: torch.Tensor, sizes: list[int]
) -> Probe:
    """The gradient of the output for x with respect to x, through the cache where there are several pieces."""

    def probe(cls: Any) -> torch.Tensor:
        text = leaf(x)
        outputs = outputs_of(loaded(cls, arguments, weights), list(text.split(sizes, dim=1)))
        return gradient(torch.cat(list(outputs.values()), dim=1), text)

    return probe


Module = tuple[tuple[Any, ...], dict[str, torch.Tensor], torch.Tensor, str]  # sizes, weights, x, and their description


def _cached(check: Check, batch: int, n: int, *arguments: int) -> Module:
    weights = drawn_weights(check, reference.CachedAttention(*arguments))
    x = check.randn(batch, n, arguments[0])
    return arguments, weights, x, f"CachedAttention{arguments} on x {tuple(x.shape)}"


@exercise(WEEK, "CachedAttention")
def CachedAttention(check: Check) -> None:
    # A check that combines several things runs only where each of them is right.
    # Catches rotated values, rotation along the wrong axis or before the head split, a low number instead of -inf.
    with check.criterion("a whole text at once", 1.5, golden=True):
        _cached_whole(check)
        whole = check.reached()
    # Catches new tokens that start at position 0 again, and a cache that is not used or not passed on.
    with check.criterion("a text and then single tokens", 1.25, golden=True):
        arguments, weights, x, call = _cached(check, 3, 6, 48, 12, 3)
        with ~whole:
            check.agrees(in_pieces(arguments, weights, x[:, :4], [4]), f"{call}, the first 4 alone", MODULE)
        probe = in_pieces(arguments, weights, x, [4, 1, 1])
        check.agrees(probe, f"{call} in pieces of [4, 1, 1]", MODULE, WITH_A_CACHE)
    # Catches a causal mask that is aligned at the top left, or missing.
    with check.criterion("pieces of any length", 1, golden=True):
        arguments, weights, x, call = _cached(check, 2, 24, 32, 8, 2)
        probe = in_pieces(arguments, weights, x, [17, 3, 4])
        check.agrees(probe, f"{call} in pieces of [17, 3, 4]", MODULE, LATER_PIECES)
        any_cut = check.reached()
    # Catches a module that remembers the text in a buffer or an attribute.
    with check.criterion("two continuations of one prefix, and new texts", 0.5, golden=True):
        arguments, weights, x, call = _cached(check, 2, 5, 32, 8, 2)
        one, two, three = check.randn(2, 1, 32), check.randn(2, 1, 32), check.randn(2, 3, 32)
        probe = continued(arguments, weights, x, [one, two, three])
        check.agrees(probe, f"{call}, then three continuations of it", MODULE, CONTINUED)
        probe = new_texts(arguments, weights, x, three, check.randn(2, 8, 32))
        check.agrees(probe, f"{call}, then 3 tokens more, then another text of 8 tokens", MODULE, NEW_TEXT)
        with any_cut:
            cached = check.reached()
    # Catches repeated heads in the cache, values before keys, another dtype, a cache changed in place.
    with check.criterion("what the cache holds, and that the one given stays as it is", 0.5):
        _cached_content(check, cached)
    # Catches a hard-coded base of 10,000, and a base ignored where there is a cache.
    with check.criterion("another base", 0.25, golden=True):
        arguments, weights, x, call = _cached(check, 2, 9, 32, 8, 2)
        with ~whole:
            check.agrees(in_pieces(arguments, weights, x, [9]), call, MODULE)
        check.agrees(in_pieces(arguments, weights, x, [9], base=50.5), f"{call}, base=50.5", MODULE, BASE)
        with cached:
            probe = in_pieces(arguments, weights, x, [5, 4], base=50.5)
            check.agrees(probe, f"{call}, base=50.5, in pieces of [5, 4]", MODULE, BASE_IN_PIECES)
        other_base = check.reached()
    # Catches frequencies in a buffer that .to() rounds, and positions counted in the dtype of x.
    with check.criterion("bfloat16 does not change the angles", 0.5, golden=True):
        _cached_bfloat16(check, cached, other_base)
        right_angles = check.reached()
    # Catches biases, a table in the state_dict, gradients that end at the cache, indivisible sizes accepted.
    with check.criterion("four bias-free projections; gradients; sizes that do not fit", 0.25):
        for gate, inputs in ((right_angles, (check.randn(1, 2, 32),)), (~right_angles, ())):
            with gate:
                same_parts(check, (32, 8, 2), "CachedAttention(32, 8, 2)", FOUR_WEIGHTS, inputs)
        arguments, weights, x, call = _cached(check, 2, 4, 16, 4, 2)
        for gate, pieces in ((~cached, [4]), (cached, [3, 1])):
            with gate:
                slope = slope_in_pieces(arguments, weights, x, pieces)
                check.agrees(slope, f"the gradient of {call} in pieces of {pieces}", MODULE, CUT)
        for refused in ((10, 4, 2), (24, 6, 4), (18, 6, 2), (16, 4, 8)):
            check.raises(calling(*refused), ValueError, f"CachedAttention{refused}")

    # Catches positions or a mask created on the CPU.
    with check.follows_device(0.25):
        check.follows(made_there((16, 4, 2), check.randn(2, 4, 16)), "CachedAttention(16, 4, 2)(x (2, 4, 16))")


def _cached_whole(check: Check) -> None:
    for sizes in ((4, 4, 16, 4, 4), (2, 9, 32, 4, 2)):
        arguments, weights, x, call = _cached(check, *sizes)
        check.agrees(in_pieces(arguments, weights, x, [x.shape[1]]), call, MODULE)
    arguments, weights, _, call = _cached(check, 2, 2, 32, 2, 1)
    x = like_tokens(check, 2, 2, 32)
    low = in_pieces(arguments, far_below(weights, x, 2, 1), x, [2])
    check.agrees(
        lambda cls: low(cls)["tokens 0 to 1"][:, 0], f"{call}, scores far below 0, the first row", MODULE, FAR_BELOW
    )


def _cached_content(check: Check, cached: Gate) -> None:
    arguments, weights, x, call = _cached(check, 2, 7, 32, 8, 2)
    probe: Probe = cache_after(arguments, weights, x.bfloat16(), [5, 2])
    check.agrees(probe, f"the cache of {call} in bfloat16 in pieces of [5, 2]", hint=CACHE_SHAPE)
    with cached:
        probe = content_of_cache(arguments, weights, x)
        check.agrees(probe, f"(norms of k, v) in the cache of {call}", MODULE, CONTENT)
    arguments, weights, x, call = _cached(check, 1, 2, 4, 2, 1)
    cache = check.randn(1, 1, 3000, 2), check.randn(1, 1, 3000, 2)  # tables of angles often end at 2,048
    check.unchanged(behind(arguments, weights, x, cache), f"{call} with a cache of 3,000 tokens", x, *cache)


def _cached_bfloat16(check: Check, cached: Gate, other_base: Gate) -> None:
    # bfloat16 cannot count to 266. The default base gives powers of ten as frequencies, which bfloat16 rounds little.
    # With base 3, over 150 seeds, frequencies in bfloat16 move some output by 0.56 or more, positions or angles by
    # 0.69; right modules change by at most 0.25. The text is short, the passes few: some right answers are loops.
    arguments, weights, x, call = _cached(check, 1, 266, 16, 2, 1)
    both = before_and_changed_by_bfloat16(arguments, weights, x, 3.0)
    with other_base:
        words = f"{call}, base=3: the output, and what .to(torch.bfloat16) changes"
        check.agrees(both, words, MODULE_BFLOAT16, ANGLES_AFTER)
    with ~other_base:  # a wrong base is paid for above
        check.agrees(in_pieces(arguments, weights, x, [266]), call, MODULE)
        words = f"{call}, base=3: the output after .to(torch.bfloat16) less the output before"
        check.agrees(lambda cls: both(cls)[CHANGE], words, MODULE_BFLOAT16, ANGLES)
    with cached, other_base:
        pieces_in_bfloat16 = in_pieces(arguments, weights, x.bfloat16(), [263, 3], base=3.0)

        def last_piece(cls: Any) -> Any:
            return pieces_in_bfloat16(cls)["tokens 263 to 265"]

        call = f"{call}, base=3, in bfloat16, the last piece of [263, 3]"
        # Three tokens: right modules are off by at most 0.1, over 150 seeds, positions in bfloat16 by 0.3 or more.
        check.agrees(last_piece, call, replace(MODULE_BFLOAT16, atol=0.2), LATE_ANGLES)
        check.has_dtype(last_piece, torch.bfloat16, call)


# ---- 7.4 padded_causal ----------------------------------------------------------------------------------------------

LAST_ONES = Hint("With all tokens it is right, with the last few only it is not.", form=True)
LONG = Hint("Short texts are right, one of 600 tokens is not. (A text may have any length.)", form=True)


def masked_parts(keep: torch.Tensor, n_queries: int, part: int) -> Probe:
    """The positions (part 0) or the mask (part 1). Rows of padding queries are set to zero: they do not count."""
    real = keep[:, keep.shape[1] - n_queries :]
    real = real[:, None, :, None] if part else real

    def probe(f: Any) -> Any:
        positions, mask = f(keep.clone(), n_queries)
        value = mask if part else positions
        due = (len(keep), 1, n_queries, keep.shape[1]) if part else (len(keep), n_queries)
        if not isinstance(value, torch.Tensor) or value.shape != due:
            return value
        return torch.where(real, value, torch.zeros_like(value))

    return probe


@exercise(WEEK, "padded_causal")
def padded_causal(check: Check) -> None:
    def kept(*padding: int, n: int) -> torch.Tensor:
        return torch.arange(n, device=check.device) >= torch.tensor(padding, device=check.device)[:, None]

    def compared(part: int, cases: list[tuple[Any, ...]], hint: Hint | str = "") -> None:
        for padding, n, n_queries in cases:
            check.agrees(
                masked_parts(kept(*padding, n=n), n_queries, part),
                f"the {('positions', 'mask')[part]} of padded_causal(keep, {n_queries}), {n} tokens, padding "
                f"{list(padding)}",
                WHOLE,
                hint,
            )

    # Some batches start with a padded row: the positions of an unpadded one are plain indices.
    whole = [((0, 0, 0, 0), 4, 4), ((1, 2, 0, 3), 4, 4), ((4, 0, 7), 8, 8)]
    last = [((1, 2, 0, 3), 4, 4), ((2, 0), 6, 3), ((1, 6, 3), 7, 1), ((0,), 5, 4)]
    # Catches positions that count the padding.
    with check.criterion("positions of all tokens", 1, golden=True):
        compared(0, whole)
    # Catches visible padding, and a mask that is not causal or has no axis for the heads.
    with check.criterion("mask of all tokens", 1, golden=True):
        compared(1, whole)
    # Catches the first n_queries columns instead of the last.
    with check.criterion("positions of the last tokens", 0.5, golden=True):
        compared(0, last, LAST_ONES)
    # Catches rows of the first queries, a square mask, a mask cut from a fixed table.
    with check.criterion("mask of the last tokens", 0.25, golden=True):
        compared(1, last, LAST_ONES)
        compared(1, [((0, 3), 600, 2)], LONG)
    # Catches positions of a dtype that cannot index, a float mask, keep changed in place.
    with check.criterion("int64 and bool; keep left alone", 0.125):
        keep = kept(0, 2, n=5)
        for part, n_queries, dtype in ((0, 3, torch.int64), (1, 3, torch.bool), (0, 5, torch.int64)):
            words = f"padded_causal: the {('positions', 'mask')[part]}{' of all tokens' if n_queries == 5 else ''}"
            check.has_dtype(masked_parts(keep, n_queries, part), dtype, words)
        check.unchanged(lambda f: f(keep, 3), "padded_causal(keep, 3)", keep)

    # Catches positions created on the CPU.
    with check.follows_device(0.125):
        real = torch.ones(2, 4, dtype=torch.bool, device=check.device).triu(-2)
        check.follows(calling(real, 2), "padded_causal(keep (2, 4), 2)")


# ---- 7.4 generate ---------------------------------------------------------------------------------------------------

VOCABULARY = 97
PADDED = Hint(
    "For prompts of one length the first token is right, for different lengths it is not. (Pad on the left, and take positions "
    "and mask from padded_causal.)",
    form=True,
)
ALONE = Hint(
    "Prompts of one length are continued rightly, prompts of different lengths are not. (At each step the mask has a column for "
    "every token so far; padding stays hidden, and positions leave it out.)",
    form=True,
)
TOKEN_0 = "Prompts are continued rightly, one that holds the token 0 is not. (What is padding follows from the lengths of the prompts.)"
WRITTEN_0 = Hint(
    "All is right until a 0 is written, and wrong after it. (0 is a token like all others: no end, and no padding.)",
    form=True,
)
READ_AGAIN = (
    "Your function gives decode tokens that it has had before. (The first call gets the prompts, all together; each later one "
    "gets the newest token of every text and the cache.)"
)


class CountingModel:
    """A model of whole numbers, so that rounding does not decide what it writes. The next token depends on each key
    that the mask shows and its distance, and on the query and its position; the cache holds tokens and positions. It
    never writes a 0 by chance; with ``writes_0`` it writes one after each third token of a text."""

    def __init__(self, step: int, writes_0: bool = False) -> None:
        self.step, self.writes_0, self.columns = step, writes_0, 0

    def decode(self, tokens: Any, positions: Any, mask: Any, cache: Any) -> tuple[torch.Tensor, Any]:
        n_cached = 0 if cache is None else cache[0].shape[1]
        due: dict[str, tuple[Any, torch.dtype, tuple[int, ...]]] = {
            "tokens": (tokens, torch.int64, (len(tokens), tokens.shape[1])),
            "positions": (positions, torch.int64, tuple(tokens.shape)),
            "mask": (mask, torch.bool, (len(tokens), 1, tokens.shape[1], n_cached + tokens.shape[1])),
        }
        for name, (value, dtype, shape) in due.items():
            if not isinstance(value, torch.Tensor) or value.dtype != dtype or tuple(value.shape) != shape:
                again = "; beside a cache, each call gets the newest token alone" * (n_cached and tokens.shape[1] > 1)
                raise ValueError(
                    f"decode wants {name} of dtype {dtype} and shape {shape}, and got {kind(value)}{again}"
                )
        if not bool(((tokens >= 0) & (tokens < VOCABULARY)).all()):
            raise ValueError(f"decode wants tokens from 0 to {VOCABULARY - 1}; pad with 0")
        self.columns += tokens.shape[1]
        keys, at = (tokens, positions) if cache is None else (
            torch.cat((cache[0], tokens), dim=1), torch.cat((cache[1], positions), dim=1)
        )  # fmt: skip
        distance = positions[:, :, None] - at[:, None, :]
        read = (mask[:, 0] * (keys[:, None, :] + 1) * (self.step * distance + 1)).sum(dim=-1)
        following = 1 + (read + 5 * positions + 7 * tokens) % (VOCABULARY - 1)
        if self.writes_0:
            following = following.masked_fill(positions % 3 == 1, 0)
        return torch.nn.functional.one_hot(following, VOCABULARY).float(), (keys, at)


@exercise(WEEK, "generate")
def generate(check: Check) -> None:
    def written(
        lengths: tuple[int, ...], n_new: int, hint: Hint | str = "", holds_0: bool = False, writes_0: bool = False
    ) -> None:
        prompts = [check.randint(1, VOCABULARY, (length,)).tolist() for length in lengths]
        step = int(check.randint(2, 40))
        if holds_0:
            prompts[0][0] = 0

        def probe(f: Any) -> Any:
            return f(CountingModel(step, writes_0).decode, [list(prompt) for prompt in prompts], n_new)

        check.agrees(probe, f"generate(decode, prompts of {list(lengths)} tokens, {n_new})", WHOLE, hint)

    lengths: tuple[int, ...]
    # Catches padding on the right, and positions and a mask that ignore the padding.
    with check.criterion("the first token after prompts of different lengths", 0.75, golden=True):
        for lengths in ((4, 4), (7, 3, 5)):
            written(lengths, 1, PADDED if len(set(lengths)) > 1 else "")
    # Catches a cache, positions or a mask that do not grow.
    with check.criterion("the tokens after it, for prompts of one length", 0.75, golden=True):
        written((4, 4), 3)
    # Catches a mask without the padding, and positions that count it, from the second step on.
    with check.criterion("both: every prompt is continued as if it were alone", 0.75, golden=True):
        written((7, 3, 5), 6, ALONE)
        written((6, 2), 3, TOKEN_0, holds_0=True)
        # With one prompt a loop that ends when all rows have written 0 ends too early.
        written((6,), 5, WRITTEN_0, writes_0=True)
    prompts = [[5, 17, 60], [88], [2, 40, 7, 31]]
    call = "generate(decode, prompts of [3, 1, 4] tokens, 6)"
    # Catches the whole text read again at each step.
    with check.criterion("every token is read once: the cache is used", 0.5):

        def columns(f: Any) -> int:
            model = CountingModel(3)
            f(model.decode, [list(prompt) for prompt in prompts], 6)
            return max(model.columns, 4 + 6)  # reading the last token is optional

        check.agrees(columns, f"the columns that decode is given by {call}", WHOLE, READ_AGAIN)
    # Catches tokens in a list or as floats, and padding added to the caller's own lists.
    with check.criterion("int64; the prompts left alone", 0.25):
        check.has_dtype(lambda f: f(CountingModel(3).decode, [list(p) for p in prompts], 6), torch.int64, call)
        check.unchanged(lambda f: f(CountingModel(3).decode, prompts, 6), call, prompts)


# ---- 7.5 shift_cached_keys ------------------------------------------------------------------------------------------

NEGATIVE = "Positive offsets are right, negative ones are not. (They turn back by the same formula.)"
FAR = "Near offsets are right, far ones are not."
HALF = (
    "Right in float32, but not for bfloat16 keys. (The angles must be computed in at least float32, and the "
    "result be rounded once, at the end.)"
)


@exercise(WEEK, "shift_cached_keys")
def shift_cached_keys(check: Check) -> None:
    def moved(
        shape: tuple[int, ...], offset: int, hint: Hint | str = "", tolerance: Tolerance = CLOSE, **options: Any
    ) -> None:
        k = check.randn(*shape)
        shown = "".join(f", {name}={value:g}" for name, value in options.items())
        check.agrees(calling(k, offset, **options), f"shift_cached_keys(k {shape}, {offset}{shown})", tolerance, hint)

    # Catches the wrong sign, the other layout of pairs, the index instead of the offset.
    with check.criterion("keys moved ahead", 1, golden=True):
        for shape, offset in (((4, 4, 4, 4), 1), ((2, 3, 5, 8), 3), ((2, 1, 1, 6), 100)):
            moved(shape, offset)
    # Catches abs() of the offset, a hard-coded base of 10,000, a rotation in float16.
    with check.criterion("back, far, with another base", 0.5, golden=True):
        moved((2, 3, 5, 8), 3)
        moved((2, 3, 5, 8), -40, NEGATIVE)
        moved((1, 2, 4, 16), 9_999, FAR, Tolerance(rtol=0, atol=1e-2))  # float32 angles up to 10,000 are off by 1e-3
        moved((2, 3, 5, 8), 11, BASE, base=50.5)
    # Catches angles or products in the dtype of the keys, and a result always in float32.
    with check.criterion("bfloat16 keys", 0.25, golden=True):
        k = check.randn(2, 2, 6, 16)
        check.agrees(calling(k, 9_999), "shift_cached_keys(k (2, 2, 6, 16), 9999)", Tolerance(rtol=0, atol=1e-2))
        probe, call = calling(k.bfloat16(), 9_999), "shift_cached_keys(bfloat16 k (2, 2, 6, 16), 9999)"
        check.agrees(probe, call, ROUNDED, HALF)
        check.has_dtype(probe, torch.bfloat16, call)
        check.has_dtype(calling(k.half(), 777), torch.float16, "shift_cached_keys(float16 k (2, 2, 6, 16), 777)")
    # Catches an odd width accepted, gradients cut off, k changed in place, k itself returned where nothing moves.
    with check.criterion(
        "refuses an odd head_dim; passes gradients, returns a new tensor, leaves its argument alone", 0.125
    ):
        k, call = check.randn(1, 2, 3, 6), "shift_cached_keys(k (1, 2, 3, 6), 5)"
        check.agrees(differentiating(k, 5), f"the gradient of {call}", CLOSE, CUT)
        turned = as_heads(check, 2, 2, 3, 6)
        check.agrees(calling(turned, 5), "shift_cached_keys(k (2, 2, 3, 6), transposed, 5)", CLOSE, TRANSPOSED_KEYS)
        check.keeps(lambda f, k: f(k, 5), call, k)
        # With an offset of 0 it is tempting to return k at once.
        check.returns_new("shift_cached_keys(k (1, 2, 3, 6), 0)", k, 0, tolerance=CLOSE)
        check.raises(calling(check.randn(1, 2, 3, 5), 0), ValueError, "shift_cached_keys(k (1, 2, 3, 5), 0)")

    # Catches angles created on the CPU.
    with check.follows_device(0.125):
        check.follows(calling(check.randn(2, 2, 5, 8), 3), "shift_cached_keys(k (2, 2, 5, 8), 3)")


# ---- 7.6 CrossAttention ---------------------------------------------------------------------------------------------

TOGETHER = Hint(
    "memory_mask alone is right, and so are positions alone; both together are not.",
    form=True,
)
ANOTHER_MEMORY = Hint(
    "The first call of a module is right, one that follows with another memory is not. (What you keep from one call must not "
    "change the next.)",
    form=True,
)
CROSSING_BFLOAT16 = Hint(
    "With memory_mask and positions all is right in float32, after .to(torch.bfloat16) with positions near 1,000 it is "
    "not. (Positions and angles stay in at least float32; the result has the dtype of x.)",
    form=True,
)
WHERE_THE_MEMORY_STANDS = "Positions 0, 1, 2, ... on both sides are right, others are not. (Queries turn by `positions`, keys by `memory_positions`.)"


def crossing(
    arguments: tuple[Any, ...],
    weights: dict[str, torch.Tensor],
    x: torch.Tensor,
    memory: torch.Tensor,
    *rest: Any,
    **named: Any,
) -> Probe:
    """The output of the student's module, made with these arguments, for x and memory. 7.7 uses it as well."""

    def probe(cls: Any) -> Any:
        module = loaded(cls, arguments, weights)
        if x.dtype != torch.float32:
            module.to(x.dtype)
        return module(*copies((x, memory, *rest)), **dict(zip(named, copies(named.values()), strict=True)))

    return probe


def crossing_again(
    arguments: tuple[Any, ...], weights: dict[str, torch.Tensor], x: torch.Tensor, memory: torch.Tensor
) -> Probe:
    """The output of a module that was called before with another memory of this shape."""

    def probe(cls: Any) -> torch.Tensor:
        module = loaded(cls, arguments, weights)
        module(x.clone(), memory.flip(0))
        return module(x.clone(), memory.clone())

    return probe


def real_tokens(check: Check, *lengths: int) -> torch.Tensor:
    """The mask of a memory whose texts have these numbers of real tokens."""
    at = torch.arange(max(lengths), device=check.device)
    return at < torch.tensor(lengths, device=check.device)[:, None]


def crossing_slopes(
    arguments: tuple[Any, ...],
    weights: dict[str, torch.Tensor],
    x: torch.Tensor,
    memory: torch.Tensor,
    *rest: Any,
    last: bool = False,
) -> Probe:
    """The gradients of the output, or of its last token, with respect to x and the memory."""

    def probe(cls: Any) -> dict[str, torch.Tensor]:
        leaves = {"x": leaf(x), "memory": leaf(memory)}
        out = loaded(cls, arguments, weights)(*leaves.values(), *copies(rest))
        return gradients(out[:, -1] if last else out, **leaves)

    return probe


Crossing = tuple[tuple[Any, ...], dict[str, torch.Tensor], torch.Tensor, torch.Tensor, str]


def empty_row_kept(check: Check, drawn: Crossing) -> None:
    """Check that a call leaves alone x, the memory with its padding, and a mask that hides a whole text."""
    arguments, weights, x, memory, call = drawn
    mask = torch.ones(memory.shape[:2], dtype=torch.bool, device=check.device)
    mask[1] = False
    words = f"{call}, memory_mask {tuple(mask.shape)}, row 1 all False)"
    check.unchanged(lambda cls: loaded(cls, arguments, weights)(x, memory, mask), words, mask, x, memory)


def _crossing(check: Check, name: str, batch: int, n: int, n_memory: int, *arguments: int) -> Crossing:
    """Return sizes, weights, x and a memory for this class, and the description of the call."""
    weights = drawn_weights(check, getattr(reference, name)(*arguments))
    x, memory = check.randn(batch, n, arguments[0]), check.randn(batch, n_memory, arguments[0])
    return arguments, weights, x, memory, f"{name}{arguments}(x {tuple(x.shape)}, memory {tuple(memory.shape)}"


@exercise(WEEK, "CrossAttention")
def CrossAttention(check: Check) -> None:
    name = "CrossAttention"

    def at(*values: int) -> torch.Tensor:
        return torch.tensor(values, device=check.device)

    # Catches keys or values from x, a causal mask, heads that are not split, a memory that the module caches.
    with check.criterion("queries from x, keys and values from the memory", 1, golden=True):
        for sizes in ((4, 4, 4, 16, 4), (2, 5, 7, 12, 2), (1, 1, 9, 8, 1)):
            arguments, weights, x, memory, call = _crossing(check, name, *sizes)
            check.agrees(crossing(arguments, weights, x, memory), f"{call})", MODULE)
        arguments, weights, x, memory, call = _crossing(check, name, 2, 3, 5, 16, 2)
        anew = crossing_again(arguments, weights, x, memory)
        check.agrees(anew, f"{call}) after another memory", MODULE, ANOTHER_MEMORY)
    # Catches a mask of the wrong axis, inverted or with a low number; NaN or a mean for a memory without a real token.
    with check.criterion("the memory's padding; a memory without a real token", 1, golden=True):
        _crossing_padding(check)
        padded = check.reached()
    # Catches one side rotated, both rotated by one side's positions, rows of positions broadcast along the heads.
    with check.criterion("positions on both sides", 1.25, golden=True):
        _crossing_positions(check, padded)
        turned = check.reached()
    # Catches positions for one side only and indivisible sizes accepted in silence.
    with check.criterion("refuses positions for one side only, and sizes that do not fit", 0.25):
        arguments, weights, x, memory, call = _crossing(check, name, 1, 3, 3, 8, 2)
        for side in ("positions", "memory_positions"):
            probe = crossing(arguments, weights, x, memory, **{side: at(0, 1, 2)})
            check.raises(probe, ValueError, f"{call}, {side} alone)")
        for refused in ((10, 4), (18, 6)):
            check.raises(calling(*refused), ValueError, f"CrossAttention{refused}")
    # Catches biases, and a table in the state_dict.
    with check.criterion("four bias-free projections and nothing else in the state_dict", 0.25):
        one = check.randn(1, 2, 12)
        for gate, inputs in ((turned, (one, one, None, at(0, 1), at(0, 1))), (~turned, ())):
            with gate:
                same_parts(check, (12, 2), "CrossAttention(12, 2)", FOUR_WEIGHTS, inputs)
    # Catches gradients cut off, the memory's padding zeroed in place, positions or a mask in the dtype of x.
    with check.criterion("passes gradients to x and to the memory, leaves both alone", 0.125):
        _crossing_form(check, padded, turned)

    # Catches angles or a mask created on the CPU.
    with check.follows_device(0.125):
        x, memory = check.randn(2, 4, 16), check.randn(2, 4, 16)
        keep = torch.ones(2, 4, dtype=torch.bool, device=check.device).triu(-2)
        steps = torch.arange(4, device=check.device)
        call = "CrossAttention(16, 2)(x (2, 4, 16), memory (2, 4, 16), keep (2, 4), positions 0..3 for both)"
        check.follows(made_there((16, 2), x, memory, keep, steps, steps), call)


def _crossing_padding(check: Check) -> None:
    def agrees(drawn: Crossing, mask: torch.Tensor, words: str, hint: Hint | str = "") -> None:
        check.agrees(crossing(*drawn[:4], mask), f"{drawn[4]}, {words})", MODULE, hint)

    square = _crossing(check, "CrossAttention", 4, 4, 4, 16, 4)
    agrees(square, mixed_mask(check, 4, 4), "memory_mask (4, 4)")
    drawn, mask = _crossing(check, "CrossAttention", 3, 5, 7, 12, 2), mixed_mask(check, 3, 7)
    mask[1] = False
    agrees(drawn, mask, "memory_mask (3, 7), row 1 all False", NO_KEY)
    arguments, weights, _, _, call = _crossing(check, "CrossAttention", 2, 1, 2, 32, 2)
    memory = like_tokens(check, 2, 2, 32)
    mask = torch.tensor([True, False], device=check.device).expand(2, 2)
    low = arguments, far_below(weights, memory, 2), memory[:, :1], memory, call
    words = "x = memory[:, :1], scores far below 0, memory_mask hides the second token"
    agrees(low, mask, words, FAR_BELOW)


def _crossing_positions(check: Check, padded: Gate) -> None:
    def at(values: Any) -> torch.Tensor:
        return torch.tensor(values, device=check.device)

    name, there = "CrossAttention", WHERE_THE_MEMORY_STANDS
    square, other = _crossing(check, name, 4, 4, 4, 16, 4), _crossing(check, name, 3, 4, 6, 24, 3)
    rows = [[0, 1, 2, 3], [4, 2, 3, 9], [-1, 0, 6, 2]]
    memory_rows = [[row + 2 * step for step in range(6)] for row in (0, 7, -3)]
    for drawn, x_at, memory_at, words, hint in (
        (square, [0, 1, 2, 3], [0, 1, 2, 3], "0..3 for both", ""),
        (square, [3, 0, 7, 1], [9, 4, 0, 2], "3, 0, 7, 1 and 9, 4, 0, 2", there),
        (other, rows, memory_rows, "(3, 4) and (3, 6)", ROWS),
        (other, [0, 1.5, 2, 3], [0.25, 1, 2, 3, 4, 5], "0, 1.5, 2, 3 and 0.25, 1, ..., 5", FRACTION),
    ):
        probe = crossing(*drawn[:4], None, at(x_at), at(memory_at))
        check.agrees(probe, f"{drawn[4]}, positions {words})", MODULE, hint)
    arguments, weights, x, memory, call = other
    steps, memory_steps = at([0, 1, 2, 3]), at([0, 1, 2, 3, 4, 5])
    based = crossing((*arguments, 50.5), weights, x, memory, None, steps, memory_steps)
    check.agrees(based, f"{call}, positions 0..3 and 0..5), base=50.5", MODULE, BASE)
    with padded:
        mask = mixed_mask(check, 3, 6)
        mask[1] = False
        both = crossing(arguments, weights, x, memory, mask, steps, memory_steps)
        words = f"{call}, memory_mask (3, 6), row 1 all False, positions 0..3 and 0..5)"
        check.agrees(both, words, MODULE, TOGETHER)


def _crossing_form(check: Check, padded: Gate, turned: Gate) -> None:
    arguments, weights, x, memory, call = drawn = _crossing(check, "CrossAttention", 2, 3, 4, 12, 2)
    empty_row_kept(check, drawn)
    both = torch.tensor([0, 2, 5], device=check.device), torch.tensor([1, 0, 7, 3], device=check.device)
    for gate, rest, shown in ((~turned, (), ""), (turned, (None, *both), ", positions 0, 2, 5 and 1, 0, 7, 3")):
        with gate:
            slopes = crossing_slopes(arguments, weights, x, memory, *rest)
            check.agrees(slopes, f"the gradients of {call}{shown})", MODULE, CUT)
    with padded:
        slopes = crossing_slopes(arguments, weights, x, memory, real_tokens(check, 4, 0))
        check.agrees(slopes, f"the gradients of {call}, memory_mask (2, 4), row 1 all False)", MODULE, NO_KEY_SLOPES)
    with padded, turned:
        mask = real_tokens(check, 4, 3)
        low = crossing(arguments, weights, x.bfloat16(), memory.bfloat16(), mask, *[1000 + at for at in both])
        words = f"{call}, memory_mask (2, 4), positions 1000 and more) in bfloat16"
        check.agrees(low, words, replace(MODULE_BFLOAT16, exact_dtype=True), CROSSING_BFLOAT16)


# ---- 7.7 HybridDecoderBlock -----------------------------------------------------------------------------------------

PARTS = Hint(
    "The block must have the parts self_attn, cross_attn, norm1, norm2, norm3 and ffn, with ffn = "
    "Sequential(Linear, GELU, Linear), so that weights can be loaded.",
    form=True,
)
MEMORY_MASK = Hint(
    "Without a memory_mask all is right, with one it is not. (It must be handed on to cross_attn as it is.)",
    form=True,
)


def _last_is_right(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(got[:, -1].double(), expected[:, -1].double(), rtol=0, atol=MODULE.atol)


NOT_CAUSAL = Hint(
    "The last token is right, others are not. (Each token sees itself and the ones before it: is_causal=True.)",
    _last_is_right,
)
CAUSAL_WITH_A_MASK = Hint(
    "With a memory_mask the last token is right, others are not. (The self-attention is causal with it, too.)",
    _last_is_right,
    otherwise=MEMORY_MASK.says,
)
PADDING_ANYWHERE = Hint(
    "With padding at the end of the memory all is right, with padding elsewhere, or beside a memory of padding alone, it is not.",
    form=True,
)


@exercise(WEEK, "HybridDecoderBlock")
def HybridDecoderBlock(check: Check) -> None:
    name = "HybridDecoderBlock"

    def last(probe: Probe) -> Probe:
        return lambda cls: probe(cls)[:, -1]

    # Catches norms after the layers, a missing residual, parts in another order. The last token sees all others anyway,
    # so a block that is not causal passes here.
    with check.criterion("the output of the last token", 1.5, golden=True):
        for sizes in ((4, 4, 4, 16, 4), (2, 1, 7, 32, 4)):
            arguments, weights, x, memory, call = _crossing(check, name, *sizes)
            check.agrees(last(crossing(arguments, weights, x, memory)), f"{call}), the last token", BLOCK)
        unmasked = check.reached()
    # Catches is_causal=True left out, or given to both attentions.
    with check.criterion("the output of all tokens: causal", 1, golden=True):
        arguments, weights, x, memory, call = _crossing(check, name, 2, 7, 5, 32, 4)
        check.agrees(crossing(arguments, weights, x, memory), f"{call})", BLOCK, NOT_CAUSAL)
        _first_token_far_below(check)
        causal = check.reached()
    # Catches a memory_mask that is not passed on, or passed to the self-attention.
    with check.criterion("the memory's padding", 0.75, golden=True):
        arguments, weights, x, memory, call = _crossing(check, name, 4, 4, 4, 16, 4)
        with ~unmasked:
            check.agrees(last(crossing(arguments, weights, x, memory)), f"{call}), the last token", BLOCK)
        short_ones = crossing(arguments, weights, x, memory, real_tokens(check, 4, 1, 3, 2))
        words = f"{call}, memory_mask (4, 4))"
        with causal:
            check.agrees(short_ones, words, BLOCK, CAUSAL_WITH_A_MASK)
        with ~causal:
            check.agrees(last(short_ones), f"{words}, the last token", BLOCK, MEMORY_MASK)
        anywhere = mixed_mask(check, 4, 4)
        anywhere[3] = False  # this text is not compared
        out = last(crossing(arguments, weights, x, memory, anywhere))
        words = f"{call}, memory_mask (4, 4), padding anywhere, row 3 all False), the last token of texts 0 to 2"
        check.agrees(lambda cls: out(cls)[:3], words, BLOCK, PADDING_ANYWHERE)
        padded = check.reached()
    # Catches parts with other names, a feed-forward network of other layers, and GELU's tanh approximation.
    with check.criterion("the parts by their names, the exact GELU", 0.25):
        same_parts(check, (8, 2), "HybridDecoderBlock(8, 2)", PARTS)
        arguments, weights, x, memory, call = _crossing(check, name, 4, 4, 4, 16, 4)
        check.agrees(last(crossing(arguments, weights, x, memory)), f"{call}), the last token to four digits", MODULE)
    # Catches gradients cut off, padding zeroed in place, `x +=`, a hard-coded dtype.
    with check.criterion("passes gradients, leaves its arguments alone, refuses sizes that do not fit", 0.25):
        arguments, weights, x, memory, call = drawn = _crossing(check, name, 2, 3, 4, 8, 2)
        empty_row_kept(check, drawn)
        for gate, rest, shown in ((~padded, (), ""), (padded, (real_tokens(check, 4, 3),), ", memory_mask (2, 4)")):
            with gate:
                slopes = crossing_slopes(arguments, weights, x, memory, *rest, last=True)
                check.agrees(slopes, f"the gradients of {call}{shown}), the last token", BLOCK, CUT)
        wide = crossing(arguments, weights, x.double(), memory.double())
        check.has_dtype(wide, torch.float64, f"{call}) in float64")
        check.raises(lambda cls: cls(10, 4), ValueError, "HybridDecoderBlock(10, 4)")

    # Catches a mask created on the CPU.
    with check.follows_device(0.25):
        x, memory = check.randn(2, 4, 16), check.randn(2, 4, 16)
        keep = torch.ones(2, 4, dtype=torch.bool, device=check.device).triu(-2)
        call = "HybridDecoderBlock(16, 2)(x (2, 4, 16), memory (2, 4, 16)"
        check.follows(made_there((16, 2), x, memory, keep), f"{call}, keep (2, 4))")


def _first_token_far_below(check: Check) -> None:
    """Compare the first token where all scores of the self-attention, also of hidden tokens, are far below 0."""
    arguments, weights, _, memory, call = _crossing(check, "HybridDecoderBlock", 2, 4, 3, 32, 2)
    x = like_tokens(check, 2, 4, 32)
    normed = torch.nn.functional.layer_norm(x, (32,), weights["norm1.weight"], weights["norm1.bias"])
    own = {name.removeprefix("self_attn."): weights[name] for name in weights if name.startswith("self_attn.")}
    weights |= {f"self_attn.{name}": value for name, value in far_below(own, normed, 2).items()}
    low = crossing(arguments, weights, x, memory)
    words = f"{call}), scores of self_attn far below 0, the first token"
    check.agrees(lambda cls: low(cls)[:, 0], words, BLOCK, FAR_BELOW)
