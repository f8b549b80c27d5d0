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
