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
