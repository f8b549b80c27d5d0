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
