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
