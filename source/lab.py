"""What every week's notebook shares: one look for the figures, text tables, a helper for the checks.

Nothing here solves an exercise. Change the look in this file and all figures follow.

Figures are numbered "week.number". The picture carries a title; the text cell below it begins with
"**Figure 3.1.**" and says what is to be seen. The number stands in the text only, so that it is written once.
"""

import base64
import html
import io
import math
import re

import matplotlib.pyplot as plt
from matplotlib.patches import Wedge

# The palette of Okabe and Ito: told apart with every common form of colour blindness, and in grey by line style.
BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#7A7A7A"
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK)
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)), (0, (1, 1)))

# Fixed meanings, the same in every week.
QUERY, KEY = BLUE, VERMILLION
DIVERGING, SEQUENTIAL = "RdBu_r", "cividis"  # colour maps: around zero; from little to much


def use_style():
    """One style for all figures: white and opaque (for dark mode), thin axes, Matplotlib's own fonts."""
    plt.rcParams.update({
        "figure.facecolor": "white", "axes.facecolor": "white",
        "savefig.facecolor": "white", "savefig.transparent": False,
        "figure.dpi": 110, "savefig.dpi": 110, "figure.constrained_layout.use": True,
        "font.family": "DejaVu Sans", "font.size": 10, "text.color": "#222222",
        "axes.titlesize": 10, "axes.titlelocation": "left", "axes.labelsize": 10, "axes.labelcolor": "#222222",
        "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#888888", "axes.linewidth": 0.8,
        "xtick.labelsize": 9, "ytick.labelsize": 9, "xtick.color": "#444444", "ytick.color": "#444444",
        "grid.color": "#DDDDDD", "grid.linewidth": 0.8,
        "lines.linewidth": 2.0, "legend.frameon": False, "legend.fontsize": 9,
        "axes.prop_cycle": plt.cycler(color=COLOURS, linestyle=LINES),
        "image.cmap": SEQUENTIAL,
    })


def figure(title, nrows=1, ncols=1, width=8.6, height=3.2, **options):
    """A figure with one bold title over all its panels. Returns it with its axes, as ``plt.subplots`` does."""
    fig, axes = plt.subplots(nrows, ncols, figsize=(width, height), **options)
    fig.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    return fig, axes


def dial(ax, hands, title="", note=""):
    """A clock face. ``hands``: ``(angle in radians, colour, label)`` each; angle 0 points right, turns go to the left.

    With two hands the shorter way between them is shaded; ``note`` stands below.
    """
    ax.set_aspect("equal")
    ax.set(xlim=(-1.3, 1.3), ylim=(-1.45, 1.3))
    ax.axis("off")
    ax.add_patch(plt.Circle((0, 0), 1, fill=False, color="#888888", linewidth=1))
    for hour in range(12):
        c, s = math.cos(hour * math.pi / 6), math.sin(hour * math.pi / 6)
        ax.plot([0.94 * c, c], [0.94 * s, s], color="#888888", linewidth=1, linestyle="-")
    if len(hands) == 2:
        start, end = sorted(angle % (2 * math.pi) for angle, _, _ in hands)
        if end - start > math.pi:
            start, end = end, start + 2 * math.pi
        ax.add_patch(Wedge((0, 0), 0.72, math.degrees(start), math.degrees(end), color=ORANGE, alpha=0.7, linewidth=0))
    for (angle, colour, label), width, aside in zip(hands, (4.5, 2.5), (0.11, -0.11)):  # the broader one shows below
        c, s = math.cos(angle), math.sin(angle)
        ax.plot([0, 0.86 * c], [0, 0.86 * s], color=colour, linewidth=width, linestyle="-", solid_capstyle="round")
        c, s = math.cos(angle + aside), math.sin(angle + aside)  # labels a little apart, also when the hands are not
        ax.text(1.18 * c, 1.18 * s, label, color=colour, ha="center", va="center", fontsize=11, fontweight="bold")
    ax.set_title(title, loc="center")
    ax.text(0, -1.4, note, ha="center", va="center", fontsize=10)


def heatmap(ax, values, title, limit, xlabel, ylabel):
    """A square picture of a matrix, row 0 on top, colours symmetric around zero up to ``limit``. Returns the image."""
    image = ax.imshow(values, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    for side in ("top", "right"):
        ax.spines[side].set_visible(True)
    return image


def table(header, rows):
    """Print rows under a header, first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for number, row in enumerate(cells):
        first, *rest = (cell.rjust(width) for cell, width in zip(row, widths))
        print("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def raises(error, function, *arguments):
    """True if ``function(*arguments)`` raises ``error``. In grading the error arrives as text from another process."""
    try:
        function(*arguments)
    except Exception as caught:
        names = getattr(caught, "type_names", None) or [kind.__name__ for kind in type(caught).__mro__]
        return error.__name__ in names
    return False


class Moving:
    """A picture that is moved by hand. Where scripts do not run, a still picture stands in its place."""

    def __init__(self, name, title, alt, fig, data):
        self.name, self.title, self.alt, self.data = name, title, alt, data
        self.png, self.svg = _png(fig), _svg(fig)

    def _repr_mimebundle_(self, include=None, exclude=None):
        still = f'<img src="data:image/svg+xml;base64,{base64.b64encode(self.svg).decode()}" alt="{html.escape(self.alt)}">'
        return ({"text/html": still, "image/png": base64.b64encode(self.png).decode(), "text/plain": self.alt},
                {"image/png": {"alt": self.alt}})


def _png(fig):
    file = io.BytesIO()
    fig.savefig(file, format="png", dpi=110)
    return file.getvalue()


def _svg(fig):
    """The figure as SVG, the same bytes at every run and on every machine: text stays text, numbers have one decimal."""
    file = io.BytesIO()
    with plt.rc_context({"svg.hashsalt": "lab", "svg.fonttype": "none"}):
        fig.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(fig)
    return re.sub(r"-?\d+\.\d{2,}", lambda found: f"{float(found[0]):.1f}", file.getvalue().decode()).encode()


def moving_clocks(head_dim=8, base=10000.0, m=3, n=1, keys=True):
    """One clock per pair of channels: the query's hand at m times the pair's frequency, the key's at n times.

    ``keys=False``: one hand per clock, at position m (the sinusoidal encoding).
    """
    frequencies = _frequencies(head_dim, base)
    fig, axes = figure("", ncols=len(frequencies), height=2.6)
    for pair, (ax, frequency) in enumerate(zip(axes, frequencies)):
        hands = [(m * frequency, QUERY, "q" if keys else "p")] + [(n * frequency, KEY, "k")] * keys
        dial(ax, hands, title=f"pair {pair}")
    return Moving("clocks", "", "Clocks, one per pair of channels.", fig, {})


def moving_shift(shift_matrix, d_model=8, pair=1, p=2, k=3, base=10000.0):
    """The matrix M_k turns the arrow PE(p) of one pair into PE(p + k). ``shift_matrix``: the student's function."""
    shift_matrix(k, d_model, base)
    fig, _ = figure("")
    return Moving("shift", "", "The matrix turns the arrow.", fig, {})


def moving_score(head_dim=16, base=10000.0, offset=6, back=3, max_offset=48):
    """The rotary score against the offset m - n: a sum of cosines, one per pair, that all peak at ``back``."""
    fig, _ = figure("")
    return Moving("score", "", "The score is a sum of cosines.", fig, {})


def moving_slopes(alibi_slopes, n_heads=8, distance=16, max_heads=16, max_distance=64, weights=True):
    """ALiBi against the distance, a line per head. ``alibi_slopes``: the student's function."""
    alibi_slopes(n_heads)
    fig, _ = figure("")
    return Moving("slopes", "", "ALiBi against the distance.", fig, {})


def moving_frequencies(ntk_base, yarn_frequencies, head_dim=16, base=10000.0, original_len=64, scale=4, max_scale=16):
    """Wavelengths of the pairs under PI, NTK and YaRN for a slider of scales. The first two: the student's functions."""
    ntk_base(base, scale, head_dim), yarn_frequencies(head_dim, scale, original_len, base)
    fig, _ = figure("")
    return Moving("frequencies", "", "Wavelengths of the pairs.", fig, {})


def _frequencies(dim, base):
    """The frequencies of the pairs: a geometric series from 1."""
    ratio = base ** (-2 / dim)
    return [ratio**pair for pair in range(dim // 2)]
