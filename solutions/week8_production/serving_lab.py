"""Week 8's helper: a stream through a small model, a memory meter, and the interactive pictures of the week.

Nothing here is an exercise. In the course, experiments/production.py made the shipped results with this same file, so
the stream that runs in the notebook is the one that the tables report.
"""

import math
from pathlib import Path

import lab
import matplotlib.pyplot as plt
import numpy as np
import ready_encodings as ready
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

# ---- a stream -------------------------------------------------------------------------------------------------------

TRAINED, LENGTH, TARGETS = 64, 512, 32  # length of the training texts; of the stream; scored tokens at its end


def trained_model(name="week5_rope.npz"):
    """Week 5's language model with RoPE, two layers, trained on 64 characters. ``name``: NumPy file of its weights."""
    model = ready.SmallTransformer(len(ready.ALPHABET), "rope")
    with np.load(name) as arrays:
        model.load_state_dict({key: torch.from_numpy(arrays[key].astype(np.float32)) for key in arrays.files})
    return model.eval()


def texts(count=96):
    """``count`` pieces of the test text: (count, LENGTH + 1) tokens."""
    return ready.windows(ready.english()[1], LENGTH, count)


@torch.no_grad()
def stream(model, tokens, policy):
    """Feed the tokens one at a time through a cache that ``policy`` keeps small; return the loss of every prediction.

    policy(n_tokens) returns which of the tokens 0 .. n_tokens-1 are kept (ascending, including the newest) and their
    positions: one per token, (m,), or one per token and pair of channels, (m, head_dim/2). Keys are cached before the
    rotation, so positions may change at every step. A token's keys and values are computed once, from what was in the
    cache then. Returns (texts, tokens - 1). Uses one CPU thread: steps this small gain nothing from more.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    n_steps = tokens.shape[1] - 1
    room = (len(tokens), model.n_heads, n_steps, model.head_dim)
    caches = [(torch.empty(room), torch.empty(room)) for _ in model.blocks]  # of all tokens; the policy selects
    losses = []
    for step in range(n_steps):
        kept, positions = policy(step + 1)
        x = model.embed(tokens[:, step : step + 1])
        for block, (keys, values) in zip(model.blocks, caches):
            q, keys[:, :, step : step + 1], values[:, :, step : step + 1] = _projected(block, x)
            q, k = _rotated(q, positions[-1:]), _rotated(keys[:, :, kept], positions)
            mixed = F.scaled_dot_product_attention(q, k, values[:, :, kept])
            x = x + block.attention.out(mixed.transpose(1, 2).flatten(2))
            x = x + block.mlp(block.norm2(x))
        logits = model.read(model.norm(x))[:, 0]
        losses.append(F.cross_entropy(logits, tokens[:, step + 1], reduction="none"))
    torch.set_num_threads(threads)
    return torch.stack(losses, dim=1)


def _projected(block, x):
    """A block's queries, keys and values of x: three times (batch, heads, seq_len, head_dim)."""
    attention = block.attention
    return attention.qkv(block.norm1(x)).unflatten(-1, (3, attention.n_heads, -1)).permute(2, 0, 3, 1, 4)


def _rotated(x, positions):
    """Like ``ready.rotate``, but positions may also differ by pair of channels: (seq_len, pairs)."""
    frequencies = ready.frequencies_of(x.shape[-1])
    if positions.ndim == 1:
        return ready.rotate(x, positions, frequencies)
    cos, sin = (positions * frequencies).cos().float(), (positions * frequencies).sin().float()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


@torch.no_grad()
def dense(model, tokens):
    """The losses of ``stream`` if no token is dropped: every token sees all tokens before it."""
    logits = torch.cat([model(part[:, :-1]) for part in tokens.split(32)])
    return F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")


@torch.no_grad()
def recomputed(model, tokens, window=TRAINED, targets=TARGETS):
    """The last ``targets`` losses if every step recomputes a ``window`` of tokens from scratch: (texts, targets)."""
    losses = []
    for end in range(tokens.shape[1] - targets, tokens.shape[1]):
        logits = model(tokens[:, end - window : end])[:, -1]
        losses.append(F.cross_entropy(logits, tokens[:, end], reduction="none"))
    return torch.stack(losses, dim=1)


def at_the_end(losses):
    """Mean loss of the last TARGETS predictions."""
    return float(losses[:, -TARGETS:].mean())


@torch.no_grad()
def weight_on_the_first(model, tokens):
    """The share of attention that each head gives to token 0 of a text of the training length: one number per head.

    It is the mean over texts and over the queries in the second half. Heads are listed layer by layer.
    """
    x, shares = model.embed(tokens[:, :TRAINED]), []
    at = torch.arange(TRAINED)
    for block in model.blocks:
        q, k, v = _projected(block, x)
        q, k = (ready.rotate(part, at, ready.frequencies_of(model.head_dim)) for part in (q, k))
        scores = q @ k.transpose(-2, -1) / math.sqrt(model.head_dim)
        weights = scores.masked_fill(at > at[:, None], -math.inf).softmax(-1)
        shares += weights[:, :, TRAINED // 2 :, 0].mean((0, 2)).tolist()
        x = x + block.attention.out((weights @ v).transpose(1, 2).flatten(2))
        x = x + block.mlp(block.norm2(x))
    return shares


# ---- memory ---------------------------------------------------------------------------------------------------------


class _Written(TorchDispatchMode):
    """Watches every PyTorch operation and records how many numbers each new memory block holds; views add none."""

    def __init__(self, arguments):
        super().__init__()
        self.known = {part.untyped_storage().data_ptr() for part in arguments if isinstance(part, torch.Tensor)}
        self.alive = []  # keeps tensors alive, so that no address is used twice
        self.sizes = [0]

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        out = function(*arguments, **(options or {}))
        for made in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() not in self.known:
                self.known.add(made.untyped_storage().data_ptr())
                self.alive.append(made)
                self.sizes.append(made.untyped_storage().nbytes() // made.element_size())
        return out


def largest_tensor(function, *arguments):
    """How many numbers the largest tensor made by ``function(*arguments)`` holds."""
    with torch.no_grad(), _Written(arguments) as seen:
        function(*arguments)
    return max(seen.sizes)


# ---- pictures that move ---------------------------------------------------------------------------------------------
# As in lab.py, Python prepares the data; a script draws it and needs neither a kernel nor a network.

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def _packed(numbers):
    """Small whole numbers as one string, a character each, to keep a page small."""
    return "".join(DIGITS[int(number) % len(DIGITS)] for number in numbers)


def moving_conveyor(streaming_cache, n_tokens=12, n_sinks=2, window=5, max_tokens=24, max_sinks=5, max_window=8):
    """Which tokens a streaming cache holds, and at which positions, as the text grows.

    ``streaming_cache``: the student's function.
    """
    title = "A cache as a conveyor belt"
    alt = ("Two rows of squares. Above, the tokens of the text: the first ones and the last ones are filled, those "
           "between are dashed, they have been dropped. Below, the tokens in the cache side by side, each with its "
           "position there.")
    cases = [[[[_packed(part) for part in streaming_cache(tokens, sinks, size)]
               for tokens in range(1, max_tokens + 1)] for size in range(1, max_window + 1)]
             for sinks in range(max_sinks + 1)]
    kept, positions = (part.tolist() for part in streaming_cache(n_tokens, n_sinks, window))
    fig, ax = lab.figure(title, height=2.6)
    for token in range(n_tokens):
        colour = lab.QUERY if token < n_sinks else lab.ORANGE
        _square(ax, token, 1.6, colour if token in kept else "white", token, dashed=token not in kept)
    for place, (token, position) in enumerate(zip(kept, positions)):
        _square(ax, place, 0, lab.QUERY if token < n_sinks else lab.ORANGE, token)
        ax.text(place, -0.75, str(position), ha="center", va="center")
    for height, name in ((1.6, "text"), (0, "cache"), (-0.75, "position")):
        ax.text(-0.9, height, name, ha="right", va="center")
    ax.set(xlim=(-3, n_tokens), ylim=(-1.1, 2.2))
    ax.set_aspect("equal")
    ax.axis("off")
    return lab.Moving("conveyor", title, alt, fig, {
        "cases": cases, "tokens": n_tokens, "sinks": n_sinks, "window": window, "maxTokens": max_tokens,
        "maxSinks": max_sinks, "maxWindow": max_window})


def _square(ax, x, y, colour, text="", dashed=False):
    ax.add_patch(plt.Rectangle((x - 0.42, y - 0.42), 0.84, 0.84, facecolor=colour, edgecolor="#888888",
                               linestyle="--" if dashed else "-"))
    ax.text(x, y, str(text), ha="center", va="center", fontsize=9, color="white" if colour == lab.QUERY else "#222222")


def moving_axes(mrope_positions, before=3, grid=(2, 2, 3), after=2, token=6, max_side=5):
    """The three positions of every token of a text, a video and another text.

    ``mrope_positions``: the student's function.
    """
    title = "A token on three axes: time, height, width"
    alt = ("Squares in reading order: text tokens, the frames of a small video side by side, text tokens again; one is "
           "marked. Below, three scales, time, height and width, each with a mark at the position of that token.")
    sides = range(1, max_side + 1)
    cases = [[[[_packed(axis) for axis in mrope_positions([before, (t, h, w), after])] for w in sides] for h in sides]
             for t in sides]
    positions = mrope_positions([before, grid, after])
    n_tokens = positions.shape[1]
    fig, (tokens, scales) = lab.figure(title, nrows=2, height=3.6, height_ratios=(1, 1.2))
    for number, (x, y, is_text) in enumerate(_places(before, grid, after)):
        colour = lab.ORANGE if number == token else "#E4E4E4" if is_text else "#C9DFEE"
        tokens.add_patch(plt.Rectangle((x, -y), 0.9, 0.9, facecolor=colour, edgecolor="#888888"))
    words = {0: "text", before + math.prod(grid): "text"}
    words |= {before + frame * grid[1] * grid[2]: f"frame {frame}" for frame in range(grid[0])}
    for number, word in words.items():
        x, y, is_text = _places(before, grid, after)[number]
        tokens.text(x, (0 if is_text else 1 - grid[1]) - 0.15, word, va="top", fontsize=9)
    tokens.set(xlim=(-0.5, 22), ylim=(-grid[1], 1.5))
    tokens.set_aspect("equal", anchor="W")
    tokens.axis("off")
    for row, (axis, colour) in enumerate(zip(positions, (lab.KEY, lab.QUERY, lab.GREEN))):
        scales.plot([0, int(positions.max())], [-row, -row], color="#888888", linestyle="-", linewidth=1)
        scales.plot(axis.tolist(), [-row] * n_tokens, "|", color="#888888", markersize=8)
        scales.plot(int(axis[token]), -row, "o", color=colour, markersize=9)
    scales.set(yticks=[0, -1, -2], yticklabels=["time", "height", "width"], xlabel="position",
               xticks=range(int(positions.max()) + 1), ylim=(-2.5, 0.5))
    return lab.Moving("axes", title, alt, fig, {
        "cases": cases, "before": before, "after": after, "grid": list(grid), "token": token, "maxSide": max_side})


def _places(before, grid, after):
    """The column and row where each token is drawn, and whether it is text."""
    t, h, w = grid
    places = [(column, 0, True) for column in range(before)]
    start = before + 0.6
    for _ in range(t):
        places += [(start + column, row, False) for row in range(h) for column in range(w)]
        start += w + 0.6
    return places + [(start + column, 0, True) for column in range(after)]


W_UK = [[0.8, -0.5, 0.3], [0.2, 0.9, -0.7]]
TURN = 0.5  # radians per position


def moving_absorbed(m=5, n=2, max_position=16):
    """The matrix between a query and a latent, without and with a rotation."""
    title = "The matrix between a query and a latent"
    alt = ("Two panels, each with a matrix of two rows and three columns: as it is, and after a rotation. Where the "
           "picture moves, a query stands before it, a latent behind it, and a dial shows the rotation.")
    angle = (n - m) * TURN
    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    fig, axes = lab.figure(title, ncols=2, height=2.6)
    for ax, name, matrix in zip(axes, ("without a rotation", "with a rotation"),
                                (np.array(W_UK), rotation @ np.array(W_UK))):
        lab.heatmap(ax, matrix, name, 2.5, "", "")
        for (row, column), value in np.ndenumerate(matrix):
            ax.text(column, row, f"{value:.2f}", ha="center", va="center")
        ax.set(xticks=[], yticks=[])
    return lab.Moving("absorbed", title, alt, fig, {"matrix": W_UK, "turn": TURN, "m": m, "n": n, "most": max_position})


lab.PICTURES |= {"absorbed": r"""
const m = slider("query position m", 0, data.most, data.m), n = slider("key position n", 0, data.most, data.n);
const names = ["without a rotation", "with a rotation"];
const panels = names.map((name) => {
  const box = element(stage, "div", {class: "wide"});
  element(box, "strong", {}, name);
  return drawing(box, "", name);
});
function box(svg, x, y, text, colour) {
  shape(svg, "rect", {x: x - 24, y: y - 16, width: 48, height: 32, rx: 4, fill: "#fff", stroke: colour, "stroke-width": 2});
  write(svg, x, y, text, "middle", {"font-weight": "bold"});
}
return () => {
  const offset = n.value - m.value, angle = offset * data.turn, c = Math.cos(angle), s = Math.sin(angle);
  const [upper, lower] = data.matrix;
  const turned = [upper.map((value, at) => c * value - s * lower[at]), upper.map((value, at) => s * value + c * lower[at])];
  panels.forEach(({svg: outer, clear}, kind) => {
    const width = Math.max(outer.parentNode.clientWidth, 240), svg = clear(width, 222), y = 46;
    const ends = [width * 0.1, width * 0.9];
    stroke(svg, [[ends[0] + 12, y], [ends[1] - 12, y]], grey);
    write(svg, ends[0], y, "q", "middle", {fill: colours.query, "font-weight": "bold", "font-size": 15});
    write(svg, ends[1], y, "c", "middle", {fill: letters(colours.key), "font-weight": "bold", "font-size": 15});
    box(svg, width * (kind ? 0.66 : 0.5), y, "W", ink);
    if (kind) {  // the rotation: a dial
      const x = width * 0.36, hand = [x + 19 * Math.cos(angle), y - 19 * Math.sin(angle)];
      shape(svg, "circle", {cx: x, cy: y, r: 24, fill: "#fff", stroke: colours.angle, "stroke-width": 3});
      stroke(svg, [[x, y], [x + 24, y]], grey);
      stroke(svg, [[x, y], hand], ink, 3, {"stroke-linecap": "round"});
      write(svg, x, y + 36, "rotation", "middle");
    }
    const matrix = kind ? turned : data.matrix, wide = Math.min(72, (width - 20) / 3), left = width / 2 - 1.5 * wide;
    matrix.forEach((row, at) => row.forEach((value, column) => {
      const place = {x: left + column * wide + 1, y: 112 + at * 38, width: wide - 2, height: 36, stroke: grey};
      const fill = value < 0 ? colours.query : colours.key;
      shape(svg, "rect", {...place, fill, "fill-opacity": Math.min(Math.abs(value), 1.2) * 0.35});
      write(svg, left + (column + 0.5) * wide, 130 + at * 38, decimals(value, 2), "middle", {class: "entry"});
    }));
    const count = kind ? m.value + 1 : 1, plural = count > 1 ? "matrices" : "matrix";
    write(svg, width / 2, 206, `keys 0 to ${m.value}: ${count} ${plural}`, "middle");
    outer.setAttribute("aria-label", `${names[kind]}: ${matrix.flat().map((value) => decimals(value, 2)).join(", ")}`);
  });
  say(`Query at ${m.value}, key at ${n.value}: with a rotation the matrix is ${offset ? "not W" : "W itself"}.`);
};
""", "axes": r"""
const token = slider("token", 0, data.before + data.grid[0] * data.grid[1] * data.grid[2] + data.after - 1, data.token);
const sides = ["frames", "rows", "columns"].map((name, axis) => slider(name, 1, data.maxSide, data.grid[axis]));
const view = drawing(element(stage, "div", {class: "wide"}), "", data.alt);
const numbers = (packed) => Array.from(packed, (digit) => parseInt(digit, 36));
const names = ["time", "height", "width"], hues = [colours.key, colours.query, colours.third];
return () => {
  const [frames, rows_, columns] = sides.map((side) => side.value), patches = frames * rows_ * columns;
  const positions = data.cases[frames - 1][rows_ - 1][columns - 1].map(numbers), n = positions[0].length;
  const input = controls.querySelector("input");
  if (Number(input.max) !== n - 1) {  // the video changed size: fit the slider to the tokens
    input.max = n - 1;
    token.value = token.value;  // the setter redraws
    return;
  }
  const chosen = token.value, patch = chosen - data.before, width = Math.max(view.svg.parentNode.clientWidth, 240);
  const across = data.before + data.after + 1.2 + frames * (columns + 0.6), cell = Math.min(24, width / across);
  const highest = Math.max(...positions.flat()), scales = rows_ * cell + 44, left = 56;
  const svg = view.clear(width, scales + 2 * 34 + 26);
  function square(column, row, number, fill) {
    const marked = number === chosen ? {stroke: ink, "stroke-width": 2, fill: colours.angle} : {stroke: grey, fill};
    const place = {x: column * cell + 1, y: row * cell + 1, width: cell - 2, height: cell - 2, "data-number": number};
    shape(svg, "rect", {...place, ...marked});
  }
  let column = 0, number = 0;
  for (let word = 0; word < data.before; word++) square(column++, 0, number++, "#e4e4e4");
  for (const frame of range(frames)) {
    column += 0.6;
    write(svg, column * cell, rows_ * cell + 12, frames > 3 && cell < 16 ? frame : `frame ${frame}`, "start", {"font-size": 11});
    for (const row of range(rows_)) for (const at of range(columns)) square(column + at, row, number++, "#c9dfee");
    column += columns;
  }
  column += 0.6;
  for (let word = 0; word < data.after; word++) square(column++, 0, number++, "#e4e4e4");
  names.forEach((name, axis) => {
    const y = scales + 34 * axis, px = (at) => left + 8 + at / Math.max(highest, 1) * (width - left - 24);
    write(svg, 0, y, name);
    stroke(svg, [[px(0), y], [px(highest), y]], grey);
    for (const at of new Set(positions[axis])) stroke(svg, [[px(at), y - 5], [px(at), y + 5]], grey);
    dot(svg, px(positions[axis][chosen]), y, 6, hues[axis]);
    const value = {class: "value", "font-weight": "bold"};
    write(svg, px(positions[axis][chosen]), y + 15, positions[axis][chosen], "middle", value);
  });
  const inside = patch >= 0 && patch < patches, frame = Math.floor(patch / (rows_ * columns));
  const row = Math.floor(patch / columns) % rows_, goes = positions[0][data.before + patches];
  say((inside ? `Token ${chosen} is frame ${frame}, row ${row}, column ${patch % columns}.` : `Token ${chosen} is text.`)
    + ` ${patches} patches; the text behind them goes on at ${goes}.`);
};
""", "conveyor": r"""
const tokens = slider("tokens read", 1, data.maxTokens, data.tokens);
const sinks = slider("sinks", 0, data.maxSinks, data.sinks);
const size = slider("window", 1, data.maxWindow, data.window);
const view = drawing(element(stage, "div", {class: "wide"}), "", data.alt);
const numbers = (packed) => Array.from(packed, (digit) => parseInt(digit, 36));
return () => {
  const n = tokens.value, [kept, positions] = data.cases[sinks.value][size.value - 1][n - 1].map(numbers);
  const width = Math.max(view.svg.parentNode.clientWidth, 240), left = 56;
  const [narrow, cell] = [data.maxTokens, data.maxSinks + data.maxWindow].map((count) => Math.min(28, (width - left) / count));
  const top = 6, low = top + narrow + 44, svg = view.clear(width, low + cell + 26), small = {"font-size": 11};
  const colour = (token) => token < sinks.value ? colours.query : colours.angle;
  function square(place, y, side, token, more) {
    shape(svg, "rect", {x: left + side * place + 1, y, width: side - 2, height: side - 2, stroke: grey, ...more});
    const fill = more.fill === colours.query ? "#fff" : ink;
    if (side > 15) write(svg, left + side * (place + 0.5), y + side / 2 - 1, token, "middle", {...small, fill});
  }
  write(svg, 0, top + narrow / 2, "text");
  write(svg, 0, low + cell / 2, "cache");
  write(svg, 0, low + cell + 12, "position");
  kept.forEach((token, place) => {
    const ends = [[left + narrow * (token + 0.5), top + narrow], [left + cell * (place + 0.5), low]];
    stroke(svg, ends, colour(token), 1.2);
  });
  for (const token of range(n)) {
    const held = kept.includes(token);
    square(token, top, narrow, token, held ? {fill: colour(token)} : {fill: "#fff", "stroke-dasharray": "3 2"});
  }
  kept.forEach((token, place) => {
    square(place, low, cell, token, {fill: colour(token), "data-token": token});
    write(svg, left + cell * (place + 0.5), low + cell + 12, positions[place], "middle", {...small, class: "position"});
  });
  const last = positions.length - 1, far = positions[last] - positions[0], true_far = kept[last] - kept[0];
  say(`${kept.length} of ${n} tokens are kept. The newest stands at position ${positions[last]} of the cache, `
    + `${far} after the oldest kept one; in the text it is ${true_far} after it.`);
};
"""}
