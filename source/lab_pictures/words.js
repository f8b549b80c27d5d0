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
