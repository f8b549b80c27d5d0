const most = data.maxOffset;
const offset = slider("offset: key position \u2212 query position", -most, most, data.offset);
const view = drawing(element(stage, "div", {class: "wide"}), "read", data.alt);
const table = element(element(stage, "div", {class: "values"}), "table");
const kinds = [["two sides", data.twoSides, colours.query, "none"], ["causal", data.causal, colours.key, "6 4"]];
const inside = (at) => Math.max(-most, Math.min(most, at));
let scale;
follow(view.svg, (event) => inside(scale.read(event)), offset);
function sharing(buckets) {  // the run of offsets around the chosen one that share its bucket
  const chosen = offset.value + most, bucket = buckets[chosen];
  let from = chosen, to = chosen;
  while (from > 0 && buckets[from - 1] === bucket) from--;
  while (to < 2 * most && buckets[to + 1] === bucket) to++;
  const low = from === 0 ? "\u2026" : minus(from - most), high = to === 2 * most ? "\u2026" : minus(to - most);
  return {bucket, from: from - most, to: to - most, text: from === to ? minus(offset.value) : `${low} to ${high}`};
}
return () => {
  const width = Math.max(view.svg.parentNode.clientWidth, 240), height = 330, svg = view.clear(width, height);
  const box = {left: 40, right: width - 12, top: 28, bottom: height - 44};
  const ticks = [-most, -most / 2, 0, most / 2, most].map(minus);
  scale = axes(svg, box, {from: -most, to: most, ticks: [], label: "offset"},
    {from: 0, to: data.buckets, ticks: range(5, (quarter) => quarter * data.buckets / 4), label: "bucket"});
  ticks.forEach((tick, index) => write(svg, scale.px((index / 2 - 1) * most), box.bottom + 13, tick, "middle"));
  const x = scale.px(offset.value), body = rows(table, ["buckets", "bucket", "offsets that share it"]);
  stroke(svg, [[x, box.top], [x, box.bottom]], grey);
  const found = kinds.map(([name, buckets, colour, dashes]) => {
    const shared = sharing(buckets), y = scale.py(shared.bucket);
    const [left, right] = [inside(shared.from - 0.5), inside(shared.to + 0.5)].map(scale.px);
    shape(svg, "rect", {x: left, y: y - 5, width: Math.max(right - left, 2), height: 10, fill: colours.angle,
      "fill-opacity": 0.5});
    const steps = buckets.flatMap((bucket, index) =>
      [-0.5, 0.5].map((side) => [scale.px(inside(index - most + side)), scale.py(bucket)]));
    stroke(svg, steps, colour, 1.8, {"stroke-dasharray": dashes});
    dot(svg, x, y, 4, colour);
    const row = element(body, "tr"), head = element(row, "th", {scope: "row"});
    sign(head, "M0 6h12", {stroke: colour, "stroke-width": 4, "stroke-dasharray": dashes});
    head.append(name);
    element(row, "td", {}, String(shared.bucket));
    element(row, "td", {}, shared.text);
    return shared.bucket;
  });
  const at = offset.value, side = at < 0 ? "behind" : "ahead of";
  const where = at === 0 ? "at the query" : `${Math.abs(at)} ${side} the query`;
  say(`A key ${where}: bucket ${found[0]} with two sides, ${found[1]} when causal.`);
};
