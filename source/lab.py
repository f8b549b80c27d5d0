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
PICTURES = {file.stem: file.read_text("utf-8") for file in Path(__file__).with_name("lab_pictures").glob("*.js")}
