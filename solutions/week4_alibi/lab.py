"""Code shared by every week's notebook: one style for the figures, interactive pictures, tables, help for the checks.

Nothing here solves an exercise. Change the look in this file and all figures follow.

Figures are numbered "week.number". The picture carries a title; the text cell below it begins with
"**Figure 3.1.**" and says what to see. Only the text cell has the number, so that it is written once.
"""

import base64
import hashlib
import html
import io
import json
import math
import os
import re
import traceback
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import display
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Wedge
from PIL import Image

# The palette of Okabe and Ito: distinct with every common form of colour blindness. In grey, the line styles differ.
BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, BLACK, GREY = "#CC79A7", "#56B4E9", "#000000", "#7A7A7A"
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK)
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 3)), (0, (1, 1)))

# Fixed meanings, the same in every week.
QUERY, KEY = BLUE, VERMILLION
DIVERGING, SEQUENTIAL = "RdBu_r", "cividis"  # colour maps: for values around zero; from low to high


def use_style():
    """Set one style for all figures: white and opaque (for dark mode), thin axes, Matplotlib's own fonts."""
    plt.rcParams.update({
        "figure.facecolor": "white", "axes.facecolor": "white",
        "savefig.facecolor": "white", "savefig.transparent": False,
        "figure.dpi": 110, "savefig.dpi": 110, "figure.constrained_layout.use": True,
        "font.family": "DejaVu Sans", "font.size": 10, "text.color": "#222222",
        "axes.titlesize": 10, "axes.titlelocation": "left", "axes.labelsize": 10, "axes.labelcolor": "#222222",
        "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#888888", "axes.linewidth": 0.8,
        "xtick.labelsize": 9, "ytick.labelsize": 9, "xtick.color": "#444444", "ytick.color": "#444444",
        "grid.color": "#DDDDDD", "grid.linewidth": 0.8,
        "lines.linewidth": 2.0, "legend.fontsize": 9, "legend.facecolor": "white", "legend.edgecolor": "none", "legend.framealpha": 1,
        "axes.prop_cycle": plt.cycler(color=COLOURS, linestyle=LINES),
        "image.cmap": SEQUENTIAL,
    })


class DescribedFigure(Figure):
    """A figure that Jupyter shows with an alternative text, which a bare PNG would lack: its title, and the words in it."""

    def _ipython_display_(self):
        """Show HTML and PNG from one drawing. Without this method, Matplotlib's formatter would draw the PNG again."""
        png = _png(self)
        markup = _image(png, self.described())
        display({"text/html": markup, "image/png": base64.b64encode(png).decode(), "text/plain": repr(self)}, raw=True)

    def described(self):
        """Return the title, then those of the panels, the axes' labels, the legend and what else is written in it."""
        bars = [ax for ax in self.axes if ax.get_label() == "<colorbar>"]
        panels = [ax for ax in self.axes if ax not in bars]
        legends = [*self.legends, *filter(None, (ax.get_legend() for ax in panels))]
        parts = {
            "Figure": [self.get_suptitle()],
            "Panels": [ax.get_title(place) for ax in panels for place in ("left", "center")],
            "Axes": [label for ax in panels for label in (ax.get_xlabel(), ax.get_ylabel())],
            "Colours": [words for ax in bars for words in (ax.get_title("left"), ax.get_title(), ax.get_ylabel())],
            "Legend": [text.get_text() for legend in legends for text in legend.get_texts()],
            "Labels": [text.get_text() for ax in panels for text in ax.texts],
        }
        words = {name: "; ".join(dict.fromkeys(filter(_has_letters, texts))) for name, texts in parts.items()}
        said = " ".join(f"{name}: {text}." for name, text in words.items() if text)
        said = re.sub(r"\\([A-Za-z]+)|\\.|[${}]", r" \1 ", said)  # formulas
        return re.sub(r"(?<=[?!])\.| +(?=[.;?!](?:\W|$))", "", " ".join(said.split()))


def _has_letters(text):
    return any(map(str.isalpha, text))


def figure(title, nrows=1, ncols=1, width=8.6, height=3.2, **options):
    """A figure with one bold title over all its panels. Returns it with its axes, as ``plt.subplots`` does."""
    fig, axes = plt.subplots(nrows, ncols, figsize=(width, height), FigureClass=DescribedFigure, **options)
    fig.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    return fig, axes


def dial(ax, hands, title="", note=""):
    """A clock face. ``hands``: up to two ``(angle in radians, colour, label)``, angles counterclockwise from the right.

    The smaller angle between two hands is shaded; ``note`` is printed below.
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
    for (angle, colour, label), width, aside in zip(hands, (4.5, 2.5), (0.11, -0.11)):  # broad, then thin on top
        c, s = math.cos(angle), math.sin(angle)
        ax.plot([0, 0.86 * c], [0, 0.86 * s], color=colour, linewidth=width, linestyle="-", solid_capstyle="round")
        c, s = math.cos(angle + aside), math.sin(angle + aside)  # keeps labels apart where hands coincide
        ax.text(1.18 * c, 1.18 * s, label, color=colour, ha="center", va="center", fontsize=11, fontweight="bold")
    ax.set_title(title, loc="center")
    ax.text(0, -1.4, note, ha="center", va="center", fontsize=10)


def heatmap(ax, values, title, limit, xlabel, ylabel):
    """Draw a matrix in square cells, row 0 on top, colours symmetric around zero up to ``limit``. Returns the image."""
    image = ax.imshow(values, cmap=DIVERGING, vmin=-limit, vmax=limit, interpolation="nearest")
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    for side in ("top", "right"):
        ax.spines[side].set_visible(True)
    return image


def table(header, rows):
    """Print rows under a header, the first column left-aligned, the others right-aligned."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for number, row in enumerate(cells):
        first, *rest = (cell.rjust(width) for cell, width in zip(row, widths))
        print("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def must_be_a_tensor(result):
    """Raise an ``AssertionError`` that says what a function has returned, unless it is a tensor."""
    if result is None:
        raise AssertionError("nothing was returned: is there a return statement?")
    if not isinstance(result, torch.Tensor):
        raise AssertionError(f"a torch tensor expected, got {type(result).__name__}.")


def must_be_numbers(answer, *keys):
    """Return the values of these keys as Python numbers, from NumPy's numbers or a tensor of one element, too. Raise an
    ``AssertionError`` that names the first entry that is not a finite number."""
    if not isinstance(answer, dict):
        raise AssertionError(f"the answer must stay a dictionary, and is {type(answer).__name__}: fill in its values.")
    numbers = {}
    for key in keys:
        if key not in answer:
            raise AssertionError(f"the key {key!r} is missing: keep the names of the cell above.")
        value = answer[key]
        if value is None:
            raise AssertionError(f"{key!r} is still None.")
        if isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and value.numel() == 1):
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise AssertionError(f"{key!r} must be a plain number such as 0.3125, not {type(value).__name__}.")
        if not math.isfinite(value):
            raise AssertionError(f"{key!r} must be finite, got {value}.")
        numbers[key] = value
    return numbers


def raises(error, function, *arguments):
    """True if ``function(*arguments)`` raises ``error``. Compares names: in grading the error comes as text."""
    try:
        function(*arguments)
    except Exception as caught:
        names = getattr(caught, "type_names", None) or [kind.__name__ for kind in type(caught).__mro__]
        return error.__name__ in names
    return False


is_grading = False  # the grader sets it to True: its hidden tests check devices already


def follows_the_device(function, *arguments):
    """Call ``function`` on a second device. Raise AssertionError for what stays on the CPU or works only there.

    The device is simulated, so no GPU is needed: see simulated_device.py. Other mistakes are ignored.
    """
    if is_grading:
        return
    if not hasattr(torch, "simulated"):
        import simulated_device  # noqa: F401  makes the device known
    moved = [value.to("simulated") if isinstance(value, torch.Tensor) else value for value in arguments]
    try:
        results = function(*moved)
    except Exception as error:
        complaint = _about_devices(error)
    else:
        results = results if isinstance(results, (tuple, list)) else [results]
        left = any(isinstance(result, torch.Tensor) and result.device.type == "cpu" for result in results)
        advice = "Make it with device=x.device, and leave .cpu() out."
        complaint = f"Your result is on the CPU, and the input is not. {advice}" if left else ""
    if complaint:
        raise AssertionError(complaint)


def _about_devices(error):
    """Return what to change if the error is about devices, else an empty string."""
    steps = [step for step in traceback.walk_tb(error.__traceback__) if _is_theirs(step[0].f_code.co_filename)]
    line = traceback.StackSummary.extract(iter(steps[-1:]))[0].line if steps else ""
    where = f" in this line:\n    {line}\n" if line else ". "
    if "same device" in str(error):
        x, made, kept = _on_the_cpu([frame for frame, _ in steps])
        if kept:
            return (f"`{kept}` stays on the CPU when the module moves to another device. "
                    "Make it a buffer: self.register_buffer(name, tensor, persistent=False).")
        if made:
            return f"`{made}` was made on the CPU, and {x} is elsewhere. Give it device={x}.device."
        return f"A tensor is made on the CPU{where}The others are elsewhere. Give it device={x}.device."
    if "to numpy" in str(error):
        return f"A tensor goes to NumPy{where}NumPy works on the CPU only. Use PyTorch's functions instead."
    if "not implemented for 'int" in str(error):
        return f"Matrices of whole numbers are multiplied{where}A GPU cannot do that. Make them floating first."
    return ""


def _is_theirs(file):
    return os.path.basename(file) not in ("lab.py", "simulated_device.py") and os.path.dirname(torch.__file__) not in file


def _on_the_cpu(frames):
    """Return the names of a tensor on the device, of one made on the CPU, and of one that a module holds on the CPU.
    A function did not make its own arguments: its caller did."""
    x, made = "x", ""
    for frame in reversed(frames):
        values, code = frame.f_locals, frame.f_code
        given = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount] + code.co_freevars
        x = next((name for name, value in values.items() if isinstance(value, torch.Tensor) and not value.is_cpu), x)
        module = values.get("self")
        if isinstance(module, torch.nn.Module) and (kept := _cpu_tensors(vars(module))):
            return x, "", f"self.{kept[0]}"
        found = _cpu_tensors(values)
        made = next((name for name in found if name not in given), "")
        if made or not found:
            break
    return x, made, ""


def _cpu_tensors(values):
    return [name for name, value in values.items() if isinstance(value, torch.Tensor) and value.is_cpu and value.dim()]


class Moving:
    """An interactive picture: a small script draws it and its controls from ``data`` alone.

    Where scripts do not run (JupyterLab in an untrusted notebook, formgrader), the still picture ``fig`` replaces it.
    """

    def __init__(self, name, title, alt, fig, data):
        self.alt, self.png = alt, _still(fig)
        colours = {"query": QUERY, "key": KEY, "angle": ORANGE, "third": GREEN}
        self.data = {"title": title, "alt": alt, "colours": colours} | data
        content = json.dumps(self.data, separators=(",", ":")).replace("</", r"<\/")  # "</script>" would end the script
        name_in_page = f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"
        script = PICTURES["frame"].replace("PICTURE", PICTURES[name].strip())
        script = script.replace("NAME", name_in_page).replace("DATA", content)
        self.html = f'<div data-lab="{name_in_page}">{_image(self.png, alt)}</div>\n<script>{script}</script>'

    def _repr_mimebundle_(self, include=None, exclude=None):
        png = base64.b64encode(self.png).decode()
        return {"text/html": self.html, "image/png": png, "text/plain": self.alt}, {"image/png": {"alt": self.alt}}


def _png(fig):
    file = io.BytesIO()
    fig.savefig(file, format="png", bbox_inches="tight")
    return file.getvalue()


def _still(fig):
    """Return a PNG of at most 64 colours, a third of the size, since a notebook stores it twice. Closes ``fig``."""
    file = io.BytesIO()
    with Image.open(io.BytesIO(_png(fig))) as picture:
        picture.convert("RGB").quantize(64, dither=Image.Dither.NONE).save(file, format="png", optimize=True)
    plt.close(fig)
    return file.getvalue()


def _image(png, alt):
    return f'<img alt="{html.escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def _rounded(values):
    """Plain floats of six significant digits: enough for any screen, and the same on every machine."""
    return [float(f"{float(value):.6g}") for value in values]


def _frequencies(dim, base):
    """The frequencies of the pairs: a geometric series from 1."""
    ratio = base ** (-2 / dim)
    return [ratio**pair for pair in range(dim // 2)]


def moving_clocks(head_dim=8, base=10000.0, m=3, n=1, keys=True):
    """One clock per pair of channels: the query's hand at m times the pair's frequency, the key's at n times.

    ``keys=False``: one hand per clock, at position m (the sinusoidal encoding).
    """
    frequencies = _frequencies(head_dim, base)
    clocks = f"{len(frequencies)} clocks, one per pair of channels, from fast to slow."
    if keys:
        title = "A query and a key on the clocks of their pairs"
        alt = (f"{clocks} On each, the query's hand is turned by m and the key's by n times the pair's frequency; the "
               "angle between them is shaded and printed.")
    else:
        title = "One position on the clocks of its pairs"
        alt = (f"{clocks} One hand on each is turned by the position times the pair's frequency; the sine and the "
               "cosine it shows are printed.")
    rows = math.ceil(len(frequencies) / 4)
    fig, axes = figure(title, nrows=rows, ncols=min(len(frequencies), 4), height=0.4 + 2.5 * rows, squeeze=False)
    for ax in axes.flat:
        ax.axis("off")
    for pair, (ax, frequency) in enumerate(zip(axes.flat, frequencies)):
        q, k = m * frequency, n * frequency
        dial(ax, [(q, QUERY, "q"), (k, KEY, "k")] if keys else [(q, QUERY, "p")],
             title=f"pair {pair}: {frequency:.3g} rad\nper position",
             note=f"angle {q - k:.3g} rad" if keys else f"sin {math.sin(q):.2f}, cos {math.cos(q):.2f}")
    bases = sorted({10.0, 100.0, 1000.0, 10_000.0, 100_000.0, 500_000.0, 1_000_000.0, float(base)})
    return Moving("clocks", title, alt, fig, {
        "bases": bases, "base": bases.index(base), "m": m, "n": n, "keys": keys,
        "frequencies": [_rounded(_frequencies(head_dim, value)) for value in bases]})


def moving_shift(shift_matrix, d_model=16, pair=1, p=2, k=3, base=10000.0, max_offset=12):
    """One pair's block of M_k turns the arrow PE(p) towards PE(p + k). ``shift_matrix``: the student's function."""
    frequency, title = _frequencies(d_model, base)[pair], f"The shift matrix turns an arrow (pair {pair})"
    alt = ("A circle with three marks: the arrow PE(p) of one pair, the arrow that M_k makes of it, and a ring where "
           "PE(p + k) lies. The turn between the arrows is shaded; the four entries of M_k stand beside it.")
    start = 2 * pair
    blocks = {offset: [_rounded(row[start:start + 2]) for row in shift_matrix(offset, d_model, base)[start:start + 2]]
              for offset in range(-max_offset, max_offset + 1)}
    (a, b), (c, d) = blocks[k]
    sine, cosine = math.sin(p * frequency), math.cos(p * frequency)
    turned, target = math.atan2(a * sine + b * cosine, c * sine + d * cosine), (p + k) * frequency
    fig, (circle, entries) = figure(title, ncols=2, width=7.4, height=3.4)
    dial(circle, [(p * frequency, QUERY, "PE(p)"), (turned, KEY, "M PE(p)")])
    circle.plot(math.cos(target), math.sin(target), "o", color=BLACK, markerfacecolor="none", markersize=12,
                label="PE(p + k)")
    circle.legend(loc="lower center")
    circle.plot([-1.1, 1.1, math.nan, 0, 0], [0, 0, math.nan, -1.1, 1.1], color="#D4D4D4", linewidth=1, linestyle="-", zorder=0)
    circle.text(1.12, -0.2, "cosine →", fontsize=9)
    circle.text(-0.06, 1.3, "sine ↑", fontsize=9, ha="right")
    entries.axis("off")
    entries.text(0, 0.5, f"position p = {p}, offset k = {k}\n\nM's block:\n{a:6.3f}  {b:6.3f}\n{c:6.3f}  {d:6.3f}\n\n"
                 f"turn k·ω = {k * frequency:.3g} rad", family="DejaVu Sans Mono", va="center")
    return Moving("shift", title, alt, fig, {
        "frequency": _rounded([frequency])[0], "p": p, "k": k, "maxOffset": max_offset, "blocks": blocks})


def moving_score(head_dim=16, base=100.0, offset=6, back=3, strength=1, max_offset=48):
    """The rotary score against the offset m - n: a sum of cosines, one per pair, which all peak at ``back``.

    Bars below it: the softmax weight of each key at the offsets 0 to ``max_offset``; ``strength`` scales the query.
    """
    frequencies = _frequencies(head_dim, base)
    title, count = f"The score is a sum of cosines, one per pair (base {base:,.0f})", len(frequencies)
    alt = (f"{count} cosine curves against the offset m − n, one per pair of channels, fast to slow, and below them "
           f"their sum, the score. All of them peak at the offset K, here {back}; elsewhere the fast ones disagree. Bars "
           "below show the softmax weight of each offset, for a strength of the query.")
    offsets = [step / 4 for step in range(4 * max_offset + 1)]
    curves = [[math.cos((at - back) * frequency) for at in offsets] for frequency in frequencies]
    scores = torch.tensor([sum(column) for column in zip(*curves)])
    weights = (strength * scores[::4] / math.sqrt(head_dim)).softmax(0)
    fig, (pairs, total, bars) = figure(title, nrows=3, height=6, sharex=True, height_ratios=(4, 2, 2))
    for pair, curve in enumerate(curves):
        pairs.plot(offsets, [0.42 * value - pair for value in curve], color=QUERY, linestyle="-", linewidth=1.5)
    pairs.text(back, 0.6, f" offset {back}", color="#A84300", va="bottom")
    pairs.set(ylim=(0.4 - count, 0.6), yticks=[-pair for pair in range(count)], yticklabels=[f"pair {pair}" for pair in range(count)])
    total.plot(offsets, scores, color=BLACK, linestyle="-")
    total.set(ylabel="sum")
    bars.bar(range(max_offset + 1), weights, color=GREEN)
    bars.set(xlabel="offset m − n", ylabel=f"weight,\nstrength {strength}", xlim=(-0.5, max_offset + 0.5))
    for ax in (pairs, total):
        ax.axvline(back, color=KEY, linewidth=1.2, linestyle="--")
    return Moving("score", title, alt, fig, {
        "frequencies": _rounded(frequencies), "offset": offset, "back": back, "strength": strength, "maxOffset": max_offset})


def moving_words(words, weights, values):
    """A sentence whose words can be moved, its attention map, and how far the mean of its outputs moves.

    ``weights``: attention weights without a mask, (n, n); ``values``: (n, width). Both come from the student's head.
    """
    title, n = "Drag the words", len(words)
    alt = (f"The words {' '.join(words)} in a row, to be moved, and below them their attention map: a row per query, a column "
           "per key, darker for more weight. A switch hides later words; a line says how far the mean of the outputs moves.")
    fig, ax = figure(title, width=5, height=4.2)
    ax.imshow(weights, cmap="Blues", vmin=0, vmax=1)
    for i in range(n):
        for j in range(n):
            ax.text(j, i, f"{float(weights[i][j]):.2f}", ha="center", va="center", fontsize=9,
                    color="white" if weights[i][j] > 0.7 else BLACK)
    ax.set_xticks(range(n), words)
    ax.set_yticks(range(n), words)
    ax.set(xlabel="key", ylabel="query")
    return Moving("words", title, alt, fig, {
        "words": list(words), "weights": [_rounded(row) for row in weights], "values": [_rounded(row) for row in values]})


def moving_slopes(alibi_slopes, n_heads=8, distance=16, max_heads=16, max_distance=64, weights=True):
    """ALiBi against the distance, a line per head: ``exp(-slope * distance)``, or the bias with ``weights=False``.

    ``alibi_slopes``: the student's function.
    """
    slopes = [_rounded(alibi_slopes(heads)) for heads in range(1, max_heads + 1)]
    title = "What each head's slope does, by distance"
    alt = ("One falling curve per head against the distance of query and key: the factor exp(−slope · distance) on the "
           "weight, or the bias −slope · distance. A table gives each head's slope and its value at one distance.")
    viridis = plt.get_cmap("viridis")  # hues tell neighbours apart; the end is cut off: too light on white
    colours = [matplotlib.colors.to_hex(viridis(0.85 * head / max(max_heads - 1, 1))) for head in range(max_heads)]
    fig, ax = figure(title, height=3.6)
    at = [step / 4 for step in range(4 * max_distance + 1)]
    for head, slope in enumerate(slopes[n_heads - 1]):
        ax.plot(at, [math.exp(-slope * d) if weights else -slope * d for d in at], linestyle="-", linewidth=1.6,
                color=colours[head * (max_heads - 1) // max(n_heads - 1, 1)], label=f"head {head}: {slope:.4g}")
    ax.axvline(distance, color=GREY, linewidth=1.2, linestyle="--")
    handles, labels = ax.get_legend_handles_labels()
    ax.set(xlabel="distance", ylabel="factor on the weight" if weights else "bias", xlim=(0, max_distance))
    fig.legend(handles[::-1], labels[::-1], loc="outside right center", title="slope")  # in the order of the lines
    return Moving("slopes", title, alt, fig, {
        "slopes": slopes, "lines": colours, "heads": n_heads, "distance": distance, "maxDistance": max_distance,
        "weights": weights})


def moving_frequencies(ntk_base, yarn_frequencies, head_dim=16, base=10000.0, original_len=64, scale=4, max_scale=16):
    """Wavelengths of the pairs under PI, NTK and YaRN against unscaled ones, for a slider of scales.

    ``ntk_base`` and ``yarn_frequencies``: the student's functions.
    """
    unscaled, title = _frequencies(head_dim, base), "How long one turn takes, with the frequencies scaled"
    alt = (f"The wavelength of each of {len(unscaled)} pairs on a logarithmic axis: unscaled, and with PI, NTK and "
           f"YaRN at scale s. A band marks those of at most {original_len} positions.")
    scales = range(1, max_scale + 1)
    ntk = [_rounded(_frequencies(head_dim, ntk_base(base, s, head_dim))) for s in scales]
    yarn = [_rounded(yarn_frequencies(head_dim, s, original_len, base)) for s in scales]
    methods = {"unscaled": unscaled, f"PI, s = {scale}": [frequency / scale for frequency in unscaled],
               f"NTK, s = {scale}": ntk[scale - 1], f"YaRN, s = {scale}": yarn[scale - 1]}
    fig, ax = figure(title, height=3.6)
    ax.axhspan(1, original_len, color="#EEEEEE", zorder=0)
    ax.text(len(unscaled) - 1, 1.2, f"a full turn within {original_len} positions", ha="right", va="bottom")
    for (name, frequencies), colour, marker in zip(methods.items(), (BLACK, QUERY, GREEN, KEY), "os^D"):
        ax.semilogy([2 * math.pi / frequency for frequency in frequencies], color=colour, marker=marker, label=name,
                    linestyle="-", linewidth=1.2)
    ax.set(xlabel="pair", ylabel="wavelength (positions)", xticks=range(len(unscaled)))
    fig.legend(loc="outside right center")
    return Moving("frequencies", title, alt, fig, {
        "unscaled": _rounded(unscaled), "ntk": ntk, "yarn": yarn, "length": original_len, "scale": scale})


def moving_buckets(t5_bucket, offset=-40, max_offset=150, num_buckets=32, max_distance=128):
    """T5's bucket of the offset under the mouse, two-sided and causal, and which offsets share it.

    ``t5_bucket``: the student's function.
    """
    title = "The bucket of an offset, and who shares it"
    alt = (f"Two step curves against the offset from {-max_offset} to {max_offset}: T5's bucket with two sides, 0 to "
           f"{num_buckets - 1}, and the causal one, which is 0 for keys ahead. Near offsets have a step each, far ones "
           "share.")
    offsets = torch.arange(-max_offset, max_offset + 1)
    kinds = {kind: [int(bucket) for bucket in t5_bucket(offsets, both, num_buckets, max_distance)]
             for kind, both in (("two sides", True), ("causal", False))}
    fig, ax = figure(title, height=3.6)
    for (kind, buckets), colour, style in zip(kinds.items(), (QUERY, KEY), ("-", "--")):
        ax.step(offsets.tolist(), buckets, where="mid", color=colour, linestyle=style, label=kind)
        shared = [at for at, bucket in zip(offsets.tolist(), buckets) if bucket == buckets[offset + max_offset]]
        ax.plot([shared[0] - 0.5, shared[-1] + 0.5], [buckets[offset + max_offset]] * 2, color=ORANGE, alpha=0.5,
                linewidth=9, linestyle="-", solid_capstyle="butt", zorder=1, label="same bucket" if kind == "causal" else "")
        ax.plot(offset, buckets[offset + max_offset], "o", color=colour)
    ax.axvline(offset, color=GREY, linewidth=1.2, linestyle="--")
    ax.set(xlabel="offset: key position − query position", ylabel="bucket", xlim=(-max_offset, max_offset))
    ax.grid(axis="y")
    fig.legend(loc="outside right center")
    return Moving("buckets", title, alt, fig, {
        "twoSides": kinds["two sides"], "causal": kinds["causal"], "offset": offset, "maxOffset": max_offset,
        "buckets": num_buckets})


def moving_cache(cached=5, new=3, max_cached=10, max_new=6):
    """The mask and the positions of a piece of ``new`` tokens that meets a cache of ``cached`` tokens."""
    title = "A piece of text meets the cache"
    alt = ("A grid: one row per new token with its position, one column per key. Filled cells are seen: cached keys in "
           "one colour, keys of the piece itself in another, with a diagonal right edge. Empty cells are hidden. Dashed "
           "frames: seen with a mask aligned at the top left.")
    fig, ax = figure(title, width=7.2, height=1.9 + 0.4 * new)
    for row in range(new):
        for key in range(cached + new):
            colour = "white" if key > cached + row else QUERY if key < cached else ORANGE
            ax.add_patch(plt.Rectangle((key - 0.45, row - 0.45), 0.9, 0.9, facecolor=colour, edgecolor="#888888"))
            if key <= row:  # what a mask aligned at the top left would show
                ax.add_patch(plt.Rectangle((key - 0.35, row - 0.35), 0.7, 0.7, fill=False, edgecolor="white", linestyle="--"))
    for first, count, name in ((0, cached, "in the cache"), (cached, new, "new")):
        ax.text(first + count / 2 - 0.5, -0.65, name, ha="center", va="bottom")
    ax.set(xlim=(-0.6, cached + new - 0.4), ylim=(new - 0.4, -1.2), xticks=range(cached + new), yticks=range(new),
           xlabel="position of the key", yticklabels=[f"new token at position {cached + row}" for row in range(new)])
    ax.set_aspect("equal")
    handles = [Patch(facecolor=colour, edgecolor="#888888", label=name)
               for colour, name in ((QUERY, "seen, in the cache"), (ORANGE, "seen, new"), ("white", "hidden"))]
    handles.append(Patch(facecolor=QUERY, edgecolor="white", linestyle=(0, (2, 1.5)),
                         label="dashed: seen with a top-left mask"))
    fig.legend(handles=handles, loc="outside lower left", ncols=2, handlelength=1.6, handleheight=1.4)
    return Moving("cache", title, alt, fig, {"cached": cached, "new": new, "maxCached": max_cached, "maxNew": max_new})


# The scripts of the pictures, by name. They share "frame"; each of the others makes its controls and returns the
# function that draws. In the course repository they are files; the build copies their text into this module.
PICTURES = {"buckets": r"""
const most = data.maxOffset;
const offset = slider("offset: key position \u2212 query position", -most, most, data.offset);
const view = drawing(element(stage, "div", {class: "wide"}), "read", data.alt);
const table = element(element(stage, "div", {class: "values"}), "table");
const kinds = [["two sides", data.twoSides, colours.query, "none"], ["causal", data.causal, colours.key, "6 4"]];
const inside = (at) => Math.max(-most, Math.min(most, at));
let scale;
follow(view.svg, (event) => inside(scale.read(event)), offset);
function sharing(buckets) {  // the run of offsets around the chosen one that share its bucket
  const chosen = offset.value + most, bucket = buckets[chosen];
  let from = chosen, to = chosen;
  while (from > 0 && buckets[from - 1] === bucket) from--;
  while (to < 2 * most && buckets[to + 1] === bucket) to++;
  const low = from === 0 ? "\u2026" : minus(from - most), high = to === 2 * most ? "\u2026" : minus(to - most);
  return {bucket, from: from - most, to: to - most, text: from === to ? minus(offset.value) : `${low} to ${high}`};
}
return () => {
  const width = Math.max(view.svg.parentNode.clientWidth, 240), height = 330, svg = view.clear(width, height);
  const box = {left: 40, right: width - 12, top: 28, bottom: height - 44};
  const ticks = [-most, -most / 2, 0, most / 2, most].map(minus);
  scale = axes(svg, box, {from: -most, to: most, ticks: [], label: "offset"},
    {from: 0, to: data.buckets, ticks: range(5, (quarter) => quarter * data.buckets / 4), label: "bucket"});
  ticks.forEach((tick, index) => write(svg, scale.px((index / 2 - 1) * most), box.bottom + 13, tick, "middle"));
  const x = scale.px(offset.value), body = rows(table, ["buckets", "bucket", "offsets that share it"]);
  stroke(svg, [[x, box.top], [x, box.bottom]], grey);
  const found = kinds.map(([name, buckets, colour, dashes]) => {
    const shared = sharing(buckets), y = scale.py(shared.bucket);
    const [left, right] = [inside(shared.from - 0.5), inside(shared.to + 0.5)].map(scale.px);
    shape(svg, "rect", {x: left, y: y - 5, width: Math.max(right - left, 2), height: 10, fill: colours.angle,
      "fill-opacity": 0.5});
    const steps = buckets.flatMap((bucket, index) =>
      [-0.5, 0.5].map((side) => [scale.px(inside(index - most + side)), scale.py(bucket)]));
    stroke(svg, steps, colour, 1.8, {"stroke-dasharray": dashes});
    dot(svg, x, y, 4, colour);
    const row = element(body, "tr"), head = element(row, "th", {scope: "row"});
    sign(head, "M0 6h12", {stroke: colour, "stroke-width": 4, "stroke-dasharray": dashes});
    head.append(name);
    element(row, "td", {}, String(shared.bucket));
    element(row, "td", {}, shared.text);
    return shared.bucket;
  });
  const at = offset.value, side = at < 0 ? "behind" : "ahead of";
  const where = at === 0 ? "at the query" : `${Math.abs(at)} ${side} the query`;
  say(`A key ${where}: bucket ${found[0]} with two sides, ${found[1]} when causal.`);
};
""", "cache": r"""
const cached = slider("tokens in the cache", 0, data.maxCached, data.cached);
const fresh = slider("new tokens", 1, data.maxNew, data.new);
const view = drawing(element(stage, "div", {class: "wide"}), "", data.alt);
return () => {
  const c = cached.value, n = fresh.value, width = Math.max(stage.clientWidth, 280), left = 86, top = 20;
  const cell = Math.min(34, (width - left - 4) / (data.maxCached + data.maxNew));
  const svg = view.clear(width, top + cell * data.maxNew + 44);
  for (const [first, count, name] of [[0, c, "in the cache"], [c, n, "new"]]) {
    const above = {x: left + cell * (first + count / 2), y: 14, "text-anchor": "middle", fill: "#444"};
    if (count) shape(svg, "text", above, count * cell > 70 || name === "new" ? name : "cache");
  }
  for (let row = 0; row < n; row++) {
    const place = {x: left - 8, y: top + cell * (row + 0.5) + 4, "text-anchor": "end", class: "position"};
    shape(svg, "text", place, `position ${c + row}`);
    for (let key = 0; key < c + n; key++) {
      const seen = key <= c + row, fill = !seen ? "#fff" : key < c ? colours.query : colours.angle;
      const [x, y] = [left + cell * key, top + cell * row];
      shape(svg, "rect", {x: x + 1, y: y + 1, width: cell - 2, height: cell - 2, fill,
        stroke: "#888", "data-seen": seen ? (key < c ? "cached" : "new") : "hidden"});
      const dashed = {fill: "none", stroke: "#fff", "stroke-width": 1.5, "stroke-dasharray": "3 2"};
      if (key <= row) shape(svg, "rect", {x: x + 4, y: y + 4, width: cell - 8, height: cell - 8, ...dashed});
    }
  }
  for (let key = 0; key < c + n; key++) {
    const below = {x: left + cell * (key + 0.5), y: top + cell * n + 16, "text-anchor": "middle", fill: "#444"};
    shape(svg, "text", below, key);
  }
  shape(svg, "text", {x: left, y: top + cell * n + 34, fill: "#444"}, "position of the key");
  view.svg.setAttribute("aria-label", `${n} rows, ${c + n} columns; row r sees the keys 0 to ${c} + r`);
  say(`The first new token stands at position ${c} and sees ${c + 1} key${c ? "s" : ""}; `
    + `the last one sees all ${c + n}.`);
};
""", "clocks": r"""
const m = slider(data.keys ? "query position m" : "position p", 0, 100, data.m);
const n = data.keys && slider("key position n", 0, 100, data.n);
const base = slider("base", 0, data.bases.length - 1, data.base, (index) => commas(data.bases[index]));
if (data.keys) {
  const both = element(controls, "div", {class: "choice"}, "move both");
  const move = (step) => () => {
    if ([m, n].some((at) => at.value + step < 0 || at.value + step > 100)) return;  // their offset stays
    m.value += step;
    n.value += step;
  };
  button(both, "\u2212 1", "move both back by one", move(-1));
  button(both, "+ 1", "move both on by one", move(1));
}
const clocks = data.frequencies[0].map((_, pair) => {
  const box = element(stage, "div", {class: "clock"});
  element(box, "strong", {}, `pair ${pair}`);
  return {speed: element(box, "div"), face: drawing(box, "", ""), note: element(box, "div", {class: "note"})};
});
const point = (angle, radius) => [75 + radius * Math.cos(angle), 75 - radius * Math.sin(angle)];
function hand(svg, angle, colour, width, label, aside) {  // `aside` keeps labels apart where hands coincide
  stroke(svg, [[75, 75], point(angle, 50)], colour, width, {"stroke-linecap": "round"});
  write(svg, ...point(angle + aside, 68), label, "middle", {fill: letters(colour), "font-weight": "bold"});
}
function shade(svg, from, to) {  // the smaller angle between the hands
  const turn = Math.atan2(Math.sin(to - from), Math.cos(to - from)), end = point(from + turn, 40);
  const arc = `M75 75L${point(from, 40).join(" ")}A40 40 0 0 ${turn > 0 ? 0 : 1} ${end.join(" ")}Z`;
  shape(svg, "path", {d: arc, fill: colours.angle, "fill-opacity": 0.7});
}
return () => {
  clocks.forEach(({speed, face, note}, pair) => {
    const frequency = data.frequencies[base.value][pair], svg = face.clear(150, 150);
    const q = m.value * frequency, k = data.keys ? n.value * frequency : 0;
    speed.textContent = `${digits(frequency)} rad/position`;
    note.textContent = data.keys ? `angle ${digits(q - k)} rad`
      : `sin ${decimals(Math.sin(q), 2)}, cos ${decimals(Math.cos(q), 2)}`;
    svg.setAttribute("aria-label", `pair ${pair}: ${note.textContent}`);
    ring(svg, 75, 75, 58, grey);
    for (const hour of range(12)) stroke(svg, [54, 58].map((radius) => point(hour * Math.PI / 6, radius)), grey);
    if (data.keys) shade(svg, k, q);
    hand(svg, q, colours.query, 5, data.keys ? "q" : "p", data.keys ? 0.12 : 0);
    if (data.keys) hand(svg, k, colours.key, 2.5, "k", -0.12);
  });
  const turns = m.value * data.frequencies[base.value][0] / (2 * Math.PI);
  say(data.keys ? `Offset m \u2212 n = ${minus(m.value - n.value)}.`
    : `At position ${m.value}, pair 0 has turned ${digits(turns)} times.`);
};
""", "frame": r"""
// Shared by all pictures: elements, shapes, axes, sliders. A picture is in a shadow tree, so the page's styles do not
// reach it, and on white like all figures. Nothing moves by itself.
(function () {
"use strict";
const data = DATA, colours = data.colours, ink = "#222222", grey = "#888888";
const letters = (colour) => colour === colours.key ? "#A84300" : colour;  // small letters need more contrast than lines
const STYLE = `
  .card { box-sizing: border-box; max-width: 780px; padding: 12px 16px 14px; border-radius: 6px; text-align: left;
    background: #fff; color: ${ink}; color-scheme: light; font: 13px/1.45 "DejaVu Sans", Verdana, sans-serif; }
  .title { margin: 0 0 8px; font-size: 14px; font-weight: bold; }
  .controls { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 4px 28px;
    margin-bottom: 14px; }
  .control { display: grid; grid-template-columns: 1fr auto; align-items: baseline; }
  .control input { grid-column: 1 / -1; width: 100%; margin: 2px 0 6px; }
  .choice { display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center; }
  input { accent-color: ${colours.query}; }
  button { font: inherit; color: inherit; padding: 2px 10px; border: 1px solid ${grey}; border-radius: 4px;
    background: #fff; }
  input:focus-visible, button:focus-visible { outline: 2px solid ${colours.query}; outline-offset: 2px; }
  output { font-weight: bold; }
  output, table, .sum { font-variant-numeric: tabular-nums; }
  .stage { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; justify-content: center; }
  .wide { flex: 1 1 300px; min-width: 0; }
  .values { flex: 0 1 auto; max-width: 100%; margin: 0 6px; overflow-x: auto; }
  .clock { flex: 0 1 150px; text-align: center; font-size: 12px; white-space: nowrap; }
  svg { display: block; width: 100%; overflow: visible; fill: ${ink}; font-size: 12px; }
  svg.read { touch-action: pan-y; cursor: crosshair; }
  svg.sign { display: inline-block; width: 12px; height: 12px; margin-right: 7px; }
  table { border-collapse: collapse; }
  th, td { padding: 1px 8px; text-align: right; font-weight: normal; }
  thead th { border-bottom: 1px solid ${grey}; }
  th:first-child { text-align: left; }
  .sum { display: flex; gap: 10px; align-items: center; justify-content: center; }
  .factor { text-align: center; font-weight: bold; }
  .brackets { display: grid; gap: 2px 14px; padding: 4px 9px; margin-bottom: 4px; text-align: right;
    font-weight: normal; color: ${ink}; border: solid ${ink}; border-width: 0 1px;
    --end: linear-gradient(${ink}, ${ink}) no-repeat; background: var(--end) 0 0 / 5px 1px,
      var(--end) 0 100% / 5px 1px, var(--end) 100% 0 / 5px 1px, var(--end) 100% 100% / 5px 1px; }
  .said { margin: 10px 0 0; min-height: 1.45em; }
`;

function fill(made, attributes, text) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}
function element(parent, tag, attributes = {}, text = "") {
  return parent.appendChild(fill(document.createElement(tag), attributes, text));
}
function shape(parent, tag, attributes = {}, text = "") {
  return parent.appendChild(fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, text));
}
function stroke(svg, points, colour, width = 1, more = {}) {
  const d = "M" + points.map(([x, y]) => x.toFixed(1) + " " + y.toFixed(1)).join("L");
  return shape(svg, "path", {d, stroke: colour, "stroke-width": width, fill: "none", ...more});
}
const dot = (svg, cx, cy, r, colour) => shape(svg, "circle", {cx, cy, r, fill: colour});
const ring = (svg, cx, cy, r, colour) => shape(svg, "circle", {cx, cy, r, fill: "none", stroke: colour});
function write(svg, x, y, text, anchor = "start", more = {}) {
  return shape(svg, "text", {x, y: y + 4, "text-anchor": anchor, ...more}, text);
}

const minus = (text) => String(text).replace("-", "\u2212");
const digits = (value, count = 3) => minus(Number(value.toPrecision(count)));
const decimals = (value, count) => minus((Math.abs(value) < 0.5 / 10 ** count ? 0 : value).toFixed(count));
const commas = (value) => value.toLocaleString("en");
const range = (count, make = (index) => index) => Array.from({length: count}, (_, index) => make(index));

// A drawing. `clear` empties and resizes it before each redraw; `label` is what a screen reader says.
function drawing(parent, kind, label) {
  const svg = shape(parent, "svg", {role: "img", "aria-label": label, class: kind});
  return {svg, clear(width, height) {
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    return svg;
  }};
}

// Draw axes. Returns functions from values to pixels, and from a mouse event to a value.
function axes(svg, box, x, y) {
  const px = (value) => box.left + (value - x.from) / (x.to - x.from) * (box.right - box.left);
  const py = (value) => box.bottom - (value - y.from) / (y.to - y.from) * (box.bottom - box.top);
  for (const tick of y.ticks) {
    stroke(svg, [[box.left, py(tick)], [box.right, py(tick)]], "#e4e4e4");
    write(svg, box.left - 6, py(tick), (y.show || minus)(tick), "end");
  }
  stroke(svg, [[box.left, box.bottom], [box.right, box.bottom]], grey);
  for (const tick of x.ticks) write(svg, px(tick), box.bottom + 13, tick, "middle");
  write(svg, (box.left + box.right) / 2, box.bottom + 32, x.label, "middle");
  write(svg, box.left, box.top - 14, y.label);
  const read = (event) => {
    const place = svg.getBoundingClientRect();
    const at = (event.clientX - place.left) / place.width * svg.viewBox.baseVal.width;
    return x.from + (at - box.left) / (box.right - box.left) * (x.to - x.from);
  };
  return {px, py, read};
}

function start(place) {
  const host = document.createElement("div");
  host.dataset.lmSuppressShortcuts = "true";  // JupyterLab leaves the keys to the controls
  // But for those with Ctrl or Cmd, such as Ctrl+S.
  host.addEventListener("keydown", (event) => {
    const isForLab = event.ctrlKey || event.metaKey;
    host.toggleAttribute("data-lm-suppress-shortcuts", !isForLab);
    if (!isForLab) event.stopPropagation();
  });
  const root = host.attachShadow({mode: "open"});
  element(root, "style", {}, STYLE);
  const card = element(root, "div", {class: "card", role: "group", "aria-label": data.title});
  element(card, "p", {class: "title"}, data.title);
  const controls = element(card, "div", {class: "controls"});  // above the growing stage: sliders stay in place
  const stage = element(card, "div", {class: "stage"});
  const said = element(card, "p", {class: "said", role: "status"});
  const say = (text) => { if (said.textContent !== text) said.textContent = text; };
  let redraw = () => {}, count = 0;

  function slider(name, from, to, value, show = minus) {
    const row = element(controls, "div", {class: "control"}), id = "control-" + count++;
    element(row, "label", {for: id}, name);
    const output = element(row, "output", {for: id, "aria-live": "off"});  // screen readers ask the slider
    const input = element(row, "input", {type: "range", id, min: from, max: to, step: 1});
    const control = {
      get value() { return Number(input.value); },
      set value(wanted) {
        input.value = wanted;
        output.textContent = show(control.value);
        input.setAttribute("aria-valuetext", output.textContent);
        redraw();
      },
    };
    input.addEventListener("input", () => { control.value = input.value; });
    control.value = value;
    return control;
  }
  function button(parent, text, name, act) {
    element(parent, "button", {type: "button", "aria-label": name}, text).addEventListener("click", act);
  }
  function follow(svg, read, control) {  // sets the control to the value under mouse or finger
    const move = (event) => {
      const at = Math.round(read(event));
      if (at !== control.value) control.value = at;
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
  }
  function rows(table, names) {  // empties a table, adds a header, returns the body
    table.replaceChildren();
    const header = element(element(table, "thead"), "tr");
    for (const name of names) element(header, "th", {scope: "col"}, name);
    return element(table, "tbody");
  }
  function sign(cell, d, attributes) {  // the line or mark that identifies a row
    shape(shape(cell, "svg", {class: "sign", viewBox: "0 0 12 12", "aria-hidden": "true"}), "path", {d, ...attributes});
  }

  redraw = (function () {
PICTURE
  })();
  place.replaceChildren(host);
  const observer = new ResizeObserver(() => redraw());
  for (const drawn of [stage, ...stage.querySelectorAll(".wide")]) observer.observe(drawn);
}

const script = document.currentScript, page = script ? script.getRootNode() : document;
for (const place of page.querySelectorAll('[data-lab="NAME"]:not([data-started])')) {
  place.dataset.started = "true";
  start(place);
}
})();
""", "frequencies": r"""
const s = slider("scale s", 1, data.ntk.length, data.scale);
const view = drawing(element(stage, "div", {class: "wide"}), "", data.alt);
const table = element(element(stage, "div", {class: "values"}), "table");
const turn = 2 * Math.PI, pairs = data.unscaled.length;
const marks = {
  circle: ([x, y]) => `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z`,
  square: ([x, y]) => `M${x - 4} ${y - 4}h8v8h-8Z`,
  triangle: ([x, y]) => `M${x} ${y - 5}l5 9h-10Z`,
  diamond: ([x, y]) => `M${x} ${y - 6}l5 6l-5 6l-5 -6Z`,
};
function listed(found) {
  const [first, last] = [found[0], found[found.length - 1]];
  if (found.length < 2) return found.length ? `pair ${first}` : "none";
  return found.length === last - first + 1 ? `pairs ${first}\u2013${last}` : `pairs ${found.join(", ")}`;
}
return () => {
  const width = Math.max(view.svg.parentNode.clientWidth, 240), height = 330, svg = view.clear(width, height);
  const trained = data.length, length = s.value * trained;
  const methods = [
    ["unscaled", data.unscaled, ink, marks.circle],
    ["PI", data.unscaled.map((frequency) => frequency / s.value), colours.query, marks.square],
    ["NTK", data.ntk[s.value - 1], colours.third, marks.triangle],
    ["YaRN", data.yarn[s.value - 1], colours.key, marks.diamond],
  ];
  const top = Math.ceil(Math.log10(turn / data.unscaled[pairs - 1] * data.ntk.length));
  const box = {left: 70, right: width - 12, top: 28, bottom: height - 44}, every = Math.ceil(pairs / 10);
  const ticks = range(Math.ceil(pairs / every), (index) => index * every);
  const {px, py} = axes(svg, box, {from: -0.4, to: pairs - 0.6, ticks, label: "pair"}, {
    from: 0.5, to: top, ticks: range(top, (power) => power + 1), label: "wavelength, in positions",
    show: (power) => commas(10 ** power),
  });
  const edge = py(Math.log10(trained));
  shape(svg, "rect", {x: box.left, y: edge, width: box.right - box.left, height: box.bottom - edge,
    fill: colours.angle, "fill-opacity": 0.16});
  write(svg, box.right - 4, box.bottom - 11, `a full turn within ${trained} positions`, "end");
  const body = rows(table, ["method", "pairs with new angles"]);
  for (const [name, frequencies, colour, mark] of methods) {
    const points = frequencies.map((frequency, pair) => [px(pair), py(Math.log10(turn / frequency))]);
    stroke(svg, points, colour, 1.4);
    frequencies.forEach((frequency, pair) => {
      const shown = shape(svg, "path", {d: mark(points[pair]), fill: colour, "data-method": name});
      shape(shown, "title", {}, `${name}, pair ${pair}: ${digits(turn / frequency)} positions`);
    });
    // An angle is new if the pair made no full turn in training and now goes farther than it went then.
    const fresh = range(pairs).filter((pair) => {
      const seen = data.unscaled[pair] * trained;
      return seen < turn && frequencies[pair] * length > seen * (1 + 1e-4);
    });
    const row = element(body, "tr"), head = element(row, "th", {scope: "row"});
    sign(head, mark([6, 6]), {fill: colour});
    head.append(name);
    element(row, "td", {}, listed(fresh));
  }
  const whole = data.unscaled.filter((frequency) => frequency * trained >= turn).length;
  say(`Training on ${trained} positions shows a full turn of ${whole} of ${pairs} pairs. `
    + `An angle is new if ${commas(length)} positions reach it and training did not.`);
};
""", "score": r"""
const offset = slider("offset m \u2212 n", 0, data.maxOffset, data.offset);
const back = slider("look exactly this far back: K", 0, Math.min(16, data.maxOffset), data.back);
const strength = slider("strength of the query", 1, 40, data.strength);
const view = drawing(element(stage, "div", {class: "wide"}), "read", data.alt);
const pairs = data.frequencies.length, row = 23, height = pairs * row + 276;
const at = range(4 * data.maxOffset + 1, (index) => index / 4), keys = range(data.maxOffset + 1);
const wave = (pair, x) => Math.cos((x - back.value) * data.frequencies[pair]);
const score = (x) => data.frequencies.reduce((sum, _, pair) => sum + wave(pair, x), 0);
let scale;
follow(view.svg, (event) => scale.read(event), offset);
return () => {
  const width = Math.max(view.svg.parentNode.clientWidth, 240), svg = view.clear(width, height);
  const left = 52, right = width - 58, box = {left, right, top: pairs * row + 30, bottom: height - 162};
  const step = width < 480 ? 16 : 8, ticks = range(Math.floor(data.maxOffset / step) + 1, (index) => index * step);
  const x = {from: 0, to: data.maxOffset};
  scale = axes(svg, box, {...x, ticks: [], label: ""}, {from: -pairs, to: pairs, ticks: [-pairs, 0, pairs], label: ""});
  const here = scale.px(offset.value), peak = scale.px(back.value), total = score(offset.value);
  const lower = {left, right, top: height - 122, bottom: height - 42};
  const bars = axes(svg, lower, {...x, ticks, label: "offset m \u2212 n"}, {from: 0, to: 1, ticks: [0, 0.5, 1], label: ""});
  stroke(svg, [[peak, 0], [peak, lower.bottom]], colours.key, 1.2, {"stroke-dasharray": "5 4"});
  stroke(svg, [[here, 0], [here, lower.bottom]], grey);
  for (const pair of range(pairs)) {
    const middle = row * (pair + 0.5), value = wave(pair, offset.value);
    write(svg, 0, middle, `pair ${pair}`);
    stroke(svg, at.map((place) => [scale.px(place), middle - 9 * wave(pair, place)]), colours.query, 1.6);
    dot(svg, here, middle - 9 * value, 3.5, colours.query);
    write(svg, width, middle, decimals(value, 2), "end", {class: "value"});
  }
  write(svg, 0, box.top - 12, "sum", "start", {"font-weight": "bold"});
  stroke(svg, at.map((place) => [scale.px(place), scale.py(score(place))]), ink, 2.2);
  dot(svg, here, scale.py(total), 4.5, ink);
  write(svg, width, scale.py(total), decimals(total, 2), "end", {class: "total", "font-weight": "bold"});
  const sizes = keys.map((key) => Math.exp(strength.value * (score(key) - pairs) / Math.sqrt(2 * pairs)));
  const all = sizes.reduce((sum, size) => sum + size), weights = sizes.map((size) => size / all);
  const broad = Math.max((right - left) / keys.length - 1, 1.5);
  write(svg, 0, lower.top - 14, "weight", "start", {"font-weight": "bold"});
  for (const key of keys) shape(svg, "rect", {x: bars.px(key) - broad / 2, y: bars.py(weights[key]), width: broad,
    height: lower.bottom - bars.py(weights[key]), fill: colours.third});
  write(svg, width, bars.py(weights[offset.value]), decimals(weights[offset.value], 2), "end", {class: "weight"});
  say(`At offset ${offset.value} the ${pairs} cosines add up to ${decimals(total, 2)}. `
    + `Softmax gives offset ${back.value} ${decimals(weights[back.value], 2)} of the weight.`);
};
""", "shift": r"""
const p = slider("position p", 0, 40, data.p), k = slider("offset k", -data.maxOffset, data.maxOffset, data.k);
const face = drawing(element(stage, "div", {style: "width: 300px"}), "", data.alt);
const sum = element(stage, "div", {class: "sum"});
const point = (angle, radius) => [130 + radius * Math.cos(angle), 130 - radius * Math.sin(angle)];
function arrow(svg, [sine, cosine], colour, width, label, aside) {  // `aside` keeps labels apart where arrows coincide
  const tip = [130 + 82 * cosine, 130 - 82 * sine], at = Math.atan2(sine, cosine) + aside;
  stroke(svg, [[130, 130], tip], colour, width, {"stroke-linecap": "round"});
  dot(svg, ...tip, width + 1.5, colour);
  const anchor = Math.cos(at) > 0.4 ? "start" : Math.cos(at) < -0.4 ? "end" : "middle";
  write(svg, 130 + 96 * Math.cos(at), 130 - 102 * Math.sin(at), label, anchor, {fill: letters(colour), "font-weight": "bold"});
}
function brackets(block, name, colour) {
  const box = element(sum, "div", {class: "factor", style: `color: ${letters(colour)}`});
  const columns = `grid-template-columns: repeat(${block[0].length}, auto)`;
  const inner = element(box, "div", {class: "brackets", style: columns});
  for (const value of block.flat()) element(inner, "span", {}, decimals(value, 3));
  element(box, "div", {}, name);
}
return () => {
  const svg = face.clear(300, 260), block = data.blocks[k.value];
  const angle = p.value * data.frequency, turn = k.value * data.frequency;
  const before = [Math.sin(angle), Math.cos(angle)];
  const after = block.map((row) => row[0] * before[0] + row[1] * before[1]);
  ring(svg, 130, 130, 82, grey);
  for (const [from, to] of [[[40, 130], [220, 130]], [[130, 220], [130, 40]]]) stroke(svg, [from, to], "#d4d4d4");
  write(svg, 222, 146, "cosine \u2192", "start", {fill: "#444"});
  write(svg, 126, 14, "sine \u2191", "end", {fill: "#444"});
  stroke(svg, range(61, (step) => point(angle + turn * step / 60, 40)), colours.angle, 7);
  ring(svg, ...point(angle + turn, 82), 10, ink);
  const apart = Math.abs(Math.atan2(Math.sin(turn), Math.cos(turn))) < 0.8 ? 0.3 * (turn < 0 ? -1 : 1) : 0;
  arrow(svg, before, colours.query, 4, "PE(p)", -apart);
  arrow(svg, after, colours.key, 2.5, "M PE(p)", apart);
  sum.replaceChildren();
  brackets(block, "M", ink);
  sum.append("\u00b7");
  brackets(before.map((value) => [value]), "PE(p)", colours.query);
  sum.append("=");
  brackets(after.map((value) => [value]), "M PE(p)", colours.key);
  say(`Offset k = ${minus(k.value)} turns the arrow by ${digits(turn)} rad. The ring marks PE(p + k).`);
};
""", "slopes": r"""
const heads = slider("number of heads", 1, data.slopes.length, data.heads);
const distance = slider("distance", 0, data.maxDistance, data.distance);
const choice = element(controls, "div", {class: "choice", role: "radiogroup", "aria-label": "what to draw"});
const [weights, bias] = ["factor on the weight", "bias"].map((name) => {
  const label = element(choice, "label"), input = element(label, "input", {type: "radio", name: "what"});
  label.append(" " + name);
  input.addEventListener("input", () => redraw());
  return input;
});
(data.weights ? weights : bias).checked = true;
const view = drawing(element(stage, "div", {class: "wide"}), "read", data.alt);
const table = element(element(stage, "div", {class: "values"}), "table");
let scale;
follow(view.svg, (event) => scale.read(event), distance);
function fraction(slope) {
  const whole = Math.round(1 / slope);
  return Math.abs(1 / slope - whole) < 1e-4 * whole ? `1/${whole}` : digits(slope, 4);
}
return () => {
  const width = Math.max(view.svg.parentNode.clientWidth, 240), height = 330, svg = view.clear(width, height);
  const slopes = data.slopes[heads.value - 1], last = slopes.length - 1;
  const value = (slope, at) => weights.checked ? Math.exp(-slope * at) : -slope * at;
  const lowest = weights.checked ? 0 : -data.maxDistance / 4, quarters = [0, 0.25, 0.5, 0.75, 1];
  const y = weights.checked ? {from: 0, to: 1, ticks: quarters, label: "factor exp(\u2212slope \u00b7 distance)"}
    : {from: lowest, to: 0, ticks: quarters.map((q) => q * lowest), label: "bias \u2212slope \u00b7 distance"};
  const box = {left: 44, right: width - 12, top: 28, bottom: height - 44};
  const ticks = quarters.map((part) => part * data.maxDistance);
  scale = axes(svg, box, {from: 0, to: data.maxDistance, ticks, label: "distance"}, y);
  const x = scale.px(distance.value);
  const second = slopes.findIndex((slope, head) => head > 0 && slope > slopes[head - 1]);  // -1 if they only fall
  stroke(svg, [[x, box.top], [x, box.bottom]], grey);
  const body = rows(table, ["head", "slope", `at ${distance.value}`]);
  slopes.forEach((slope, head) => {
    const colour = data.lines[Math.floor(head * (data.lines.length - 1) / Math.max(last, 1))];
    const isSecond = second > 0 && head >= second, dashes = {"stroke-dasharray": isSecond ? "5 3" : "none"};
    const end = Math.min(data.maxDistance, weights.checked ? Infinity : -lowest / slope);
    const curve = range(201, (step) => step / 200 * end).map((at) => [scale.px(at), scale.py(value(slope, at))]);
    stroke(svg, curve, colour, 1.8, dashes);
    const level = value(slope, distance.value);
    if (level >= lowest) dot(svg, x, scale.py(level), 3.5, colour);
    const row = element(body, "tr"), name = element(row, "th", {scope: "row"});
    sign(name, "M0 6h12", {stroke: colour, "stroke-width": 4, ...dashes});
    name.append(String(head));
    element(row, "td", {}, fraction(slope));
    element(row, "td", {}, !weights.checked ? digits(level) : level < 0.0005 ? "< 0.001" : decimals(level, 3));
  });
  const [steep, shallow] = [slopes[0], slopes[last]].map((slope) => digits(Math.exp(-slope * distance.value)));
  say(second > 0 ? `From head ${second} on (dashed) a second series of slopes fills the gaps of the first.`
    : `At distance ${distance.value}, head 0 multiplies a weight by ${steep}, head ${last} by ${shallow}.`);
};
""", "words": r"""
const n = data.words.length, line = element(controls, "div", {class: "choice", "aria-label": "the sentence"});
const choice = element(controls, "div", {class: "choice", role: "radiogroup", "aria-label": "mask"});
const [open, causal] = ["no mask", "causal mask"].map((name) => {
  const label = element(choice, "label"), input = element(label, "input", {type: "radio", name: "mask"});
  label.append(" " + name);
  input.addEventListener("input", () => redraw());
  return input;
});
open.checked = true;
const view = drawing(element(stage, "div", {class: "wide", style: "max-width: 420px"}), "", data.alt);
let order = range(n), held = null;
function move(word, place) {  // the words in between shift
  if (place < 0 || place >= n || order[place] === word) return;
  order = order.filter((other) => other !== word);
  order.splice(place, 0, word);
  for (const other of order) line.append(tiles[other]);
  redraw();
}
const tiles = data.words.map((text, word) => {
  const tile = element(line, "button", {type: "button", style: "touch-action: none; cursor: grab",
    "aria-label": `${text}: the arrow keys move it`}, text);
  tile.addEventListener("keydown", (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step) return;
    event.preventDefault();
    move(word, order.indexOf(word) + step);
    tile.focus();
  });
  tile.addEventListener("pointerdown", (event) => { held = word; tile.setPointerCapture(event.pointerId); });
  tile.addEventListener("pointerup", () => { held = null; });
  tile.addEventListener("pointermove", (event) => {
    if (held !== word) return;
    const place = order.findIndex((other) => {
      const there = tiles[other].getBoundingClientRect();
      return event.clientX > there.left && event.clientX < there.right;
    });
    if (place >= 0) move(word, place);
  });
  return tile;
});
function weightsOf(words) {
  return words.map((query, i) => {
    const row = words.map((key, j) => causal.checked && j > i ? 0 : data.weights[query][key]);
    const all = row.reduce((sum, weight) => sum + weight);
    return row.map((weight) => weight / all);
  });
}
function mean(words) {
  const weights = weightsOf(words);
  return data.values[0].map((_, channel) => weights.reduce((sum, row) =>
    sum + row.reduce((part, weight, j) => part + weight * data.values[words[j]][channel], 0), 0) / n);
}
return () => {
  const width = Math.min(Math.max(view.svg.parentNode.clientWidth, 240), 420), left = 62, cell = (width - left) / n;
  const svg = view.clear(width, cell * n + 44), weights = weightsOf(order);
  order.forEach((query, i) => {
    write(svg, left - 8, cell * (i + 0.5), data.words[query], "end");
    write(svg, left + cell * (i + 0.5), cell * n + 14, data.words[query], "middle");
    order.forEach((_, j) => {
      const weight = weights[i][j], hidden = causal.checked && j > i;
      shape(svg, "rect", {x: left + cell * j + 1, y: cell * i + 1, width: cell - 2, height: cell - 2,
        fill: hidden ? "#fff" : colours.query, "fill-opacity": hidden ? 1 : 0.06 + 0.94 * weight, stroke: grey});
      if (!hidden) write(svg, left + cell * (j + 0.5), cell * (i + 0.5), decimals(weight, 2), "middle",
        {class: "value", fill: weight > 0.85 ? "#fff" : ink});
    });
  });
  write(svg, left + cell * n / 2, cell * n + 34, "key", "middle");
  const [first, now] = [mean(range(n)), mean(order)];
  const apart = Math.max(...first.map((value, channel) => Math.abs(value - now[channel])));
  say(`"${order.map((word) => data.words[word]).join(" ")}": the mean of the outputs is `
    + `${decimals(apart, 2)} away from that of the first sentence.`);
};
"""}
