"""Week 8's demonstration: RoPE (half layout) as one Triton kernel, which reads every number once and writes it once.

Triton is optional. Without it this file still imports, and ``demonstration`` returns one sentence. Without a GPU
Triton's interpreter runs the kernel in NumPy; that has to be said before Triton is imported.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def rotate(x, out, cos, sin, n_rows, seq_len, HALF: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]  # a row: one head of one token
        pair = tl.arange(0, HALF)[None, :]
        inside = row < n_rows
        at, angle = row * 2 * HALF + pair, (row % seq_len) * HALF + pair
        first, second = tl.load(x + at, inside), tl.load(x + at + HALF, inside)
        c, s = tl.load(cos + angle, inside), tl.load(sin + angle, inside)
        tl.store(out + at, first * c - second * s, inside)
        tl.store(out + at + HALF, second * c + first * s, inside)


BLOCK = 16  # rows per program


def fused_rope(x, cos, sin):
    """x (batch, heads, seq_len, head_dim), contiguous, head_dim a power of two; cos and sin (seq_len, head_dim/2).

    Every pair (i, i + head_dim/2) of x turned by its angle, in one pass over the memory.
    """
    out, n_rows = torch.empty_like(x), x.numel() // x.shape[-1]
    rotate[(triton.cdiv(n_rows, BLOCK),)](x, out, cos, sin, n_rows, x.shape[-2], HALF=x.shape[-1] // 2, BLOCK=BLOCK)
    return out


def tables(seq_len, head_dim, base=10000.0):
    """cos and sin of position times frequency: (seq_len, head_dim/2) float32, from angles in float64."""
    frequencies = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.arange(seq_len, dtype=torch.float64)[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def demonstration(partial_rotary_emb, seq_len=64, head_dim=32):
    """One sentence: how far the kernel is from the student's function, or that Triton is not installed."""
    if triton is None:
        return "Triton is not installed here: nothing to show."
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(2, 4, seq_len, head_dim, generator=torch.Generator().manual_seed(0)).to(device)
    cos, sin = (table.to(device) for table in tables(seq_len, head_dim))
    gap = (fused_rope(x, cos, sin) - partial_rotary_emb(x, torch.arange(seq_len, device=x.device), head_dim)).abs().max()
    return f"Triton {triton.__version__} on {device}: largest difference from your function {float(gap):.1e}"
