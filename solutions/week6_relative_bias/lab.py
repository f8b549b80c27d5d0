"""What every week's notebook shares: one look for the figures, text tables, a helper for the checks.

Nothing here solves an exercise. Change the look in this file and all figures follow.

Figures are numbered "week.number". The picture carries a title; the text cell below it begins with
"**Figure 3.1.**" and says what is to be seen. The number stands in the text only, so that it is written once.
"""

import math

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
