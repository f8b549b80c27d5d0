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
