const offset = slider("offset m \u2212 n", 0, data.maxOffset, data.offset);
const back = slider("look exactly this far back: K", 0, Math.min(16, data.maxOffset), data.back);
const view = drawing(element(stage, "div", {class: "wide"}), "read", data.alt);
const pairs = data.frequencies.length, row = 27, height = pairs * row + 170;
const at = range(4 * data.maxOffset + 1, (index) => index / 4);
const wave = (pair, x) => Math.cos((x - back.value) * data.frequencies[pair]);
const score = (x) => data.frequencies.reduce((sum, _, pair) => sum + wave(pair, x), 0);
let scale;
follow(view.svg, (event) => scale.read(event), offset);
return () => {
  const width = Math.max(view.svg.parentNode.clientWidth, 240), svg = view.clear(width, height);
  const box = {left: 52, right: width - 58, top: pairs * row + 30, bottom: height - 42};
  const step = width < 480 ? 16 : 8, ticks = range(Math.floor(data.maxOffset / step) + 1, (index) => index * step);
  scale = axes(svg, box, {from: 0, to: data.maxOffset, ticks, label: "offset m \u2212 n"},
    {from: -pairs, to: pairs, ticks: [-pairs, 0, pairs], label: ""});
  const x = scale.px(offset.value), peak = scale.px(back.value), total = score(offset.value);
  stroke(svg, [[peak, 0], [peak, box.bottom]], colours.key, 1.2, {"stroke-dasharray": "5 4"});
  stroke(svg, [[x, 0], [x, box.bottom]], grey);
  for (const pair of range(pairs)) {
    const middle = row * (pair + 0.5), value = wave(pair, offset.value);
    write(svg, 0, middle, `pair ${pair}`);
    stroke(svg, at.map((place) => [scale.px(place), middle - 10 * wave(pair, place)]), colours.query, 1.6);
    dot(svg, x, middle - 10 * value, 3.5, colours.query);
    write(svg, width, middle, decimals(value, 2), "end", {class: "value"});
  }
  write(svg, 0, box.top - 12, "sum", "start", {"font-weight": "bold"});
  stroke(svg, at.map((place) => [scale.px(place), scale.py(score(place))]), ink, 2.2);
  dot(svg, x, scale.py(total), 4.5, ink);
  write(svg, width, scale.py(total), decimals(total, 2), "end", {class: "total", "font-weight": "bold"});
  say(`At offset ${offset.value} the ${pairs} cosines add up to ${decimals(total, 2)}. `
    + `At offset ${back.value} each is 1.`);
};
