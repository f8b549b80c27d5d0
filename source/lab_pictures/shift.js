const p = slider("position p", 0, 40, data.p), k = slider("offset k", -data.maxOffset, data.maxOffset, data.k);
const face = drawing(element(stage, "div", {style: "width: 260px"}), "", data.alt);
const sum = element(stage, "div", {class: "sum"});
const point = (angle, radius) => [130 + radius * Math.cos(angle), 130 - radius * Math.sin(angle)];
function arrow(svg, [sine, cosine], colour, width, label) {
  const tip = [130 + 82 * cosine, 130 - 82 * sine];
  stroke(svg, [[130, 130], tip], colour, width, {"stroke-linecap": "round"});
  dot(svg, ...tip, width + 1.5, colour);
  const anchor = cosine > 0.4 ? "start" : cosine < -0.4 ? "end" : "middle";
  write(svg, 130 + 96 * cosine, 130 - 102 * sine, label, anchor, {fill: letters(colour), "font-weight": "bold"});
}
function brackets(block, name, colour) {
  const box = element(sum, "div", {class: "factor", style: `color: ${letters(colour)}`});
  const columns = `grid-template-columns: repeat(${block[0].length}, auto)`;
  const inner = element(box, "div", {class: "brackets", style: columns});
  for (const value of block.flat()) element(inner, "span", {}, decimals(value, 3));
  element(box, "div", {}, name);
}
return () => {
  const svg = face.clear(260, 260), block = data.blocks[k.value];
  const angle = p.value * data.frequency, turn = k.value * data.frequency;
  const before = [Math.sin(angle), Math.cos(angle)];
  const after = block.map((row) => row[0] * before[0] + row[1] * before[1]);
  ring(svg, 130, 130, 82, grey);
  stroke(svg, range(61, (step) => point(angle + turn * step / 60, 40)), colours.angle, 7);
  ring(svg, ...point(angle + turn, 82), 10, ink);
  arrow(svg, before, colours.query, 4, "PE(p)");
  arrow(svg, after, colours.key, 2.5, k.value === 0 ? "" : "M PE(p)");  // else on top of the other label
  sum.replaceChildren();
  brackets(block, "M", ink);
  sum.append("\u00b7");
  brackets(before.map((value) => [value]), "PE(p)", colours.query);
  sum.append("=");
  brackets(after.map((value) => [value]), "M PE(p)", colours.key);
  say(`Offset k = ${minus(k.value)} turns the arrow by ${digits(turn)} rad. The ring marks PE(p + k).`);
};
