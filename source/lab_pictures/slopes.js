const heads = slider("number of heads", 1, data.slopes.length, data.heads);
const distance = slider("distance", 0, data.maxDistance, data.distance);
const choice = element(controls, "div", {class: "choice", role: "radiogroup", "aria-label": "what to draw"});
const [weights, bias] = ["factor on the weight", "bias"].map((name) => {
  const label = element(choice, "label"), input = element(label, "input", {type: "radio", name: "what"});
  label.append(" " + name);
  input.addEventListener("input", () => redraw());
  return input;
});
(data.weights ? weights : bias).checked = true;
const view = drawing(element(stage, "div", {class: "wide"}), "read", data.alt);
const table = element(element(stage, "div", {class: "values"}), "table");
let scale;
follow(view.svg, (event) => scale.read(event), distance);
function fraction(slope) {
  const whole = Math.round(1 / slope);
  return Math.abs(1 / slope - whole) < 1e-4 * whole ? `1/${whole}` : digits(slope, 4);
}
return () => {
  const width = Math.max(view.svg.parentNode.clientWidth, 240), height = 330, svg = view.clear(width, height);
  const slopes = data.slopes[heads.value - 1], last = slopes.length - 1;
  const value = (slope, at) => weights.checked ? Math.exp(-slope * at) : -slope * at;
  const lowest = weights.checked ? 0 : -data.maxDistance / 4, quarters = [0, 0.25, 0.5, 0.75, 1];
  const y = weights.checked ? {from: 0, to: 1, ticks: quarters, label: "factor exp(\u2212slope \u00b7 distance)"}
    : {from: lowest, to: 0, ticks: quarters.map((q) => q * lowest), label: "bias \u2212slope \u00b7 distance"};
  const box = {left: 44, right: width - 12, top: 28, bottom: height - 44};
  const ticks = quarters.map((part) => part * data.maxDistance);
  scale = axes(svg, box, {from: 0, to: data.maxDistance, ticks, label: "distance"}, y);
  const x = scale.px(distance.value);
  const second = slopes.findIndex((slope, head) => head > 0 && slope > slopes[head - 1]);  // -1 if they only fall
  stroke(svg, [[x, box.top], [x, box.bottom]], grey);
  const body = rows(table, ["head", "slope", `at ${distance.value}`]);
  slopes.forEach((slope, head) => {
    const colour = data.lines[Math.floor(head * (data.lines.length - 1) / Math.max(last, 1))];
    const isSecond = second > 0 && head >= second, dashes = {"stroke-dasharray": isSecond ? "5 3" : "none"};
    const end = Math.min(data.maxDistance, weights.checked ? Infinity : -lowest / slope);
    const curve = range(201, (step) => step / 200 * end).map((at) => [scale.px(at), scale.py(value(slope, at))]);
    stroke(svg, curve, colour, 1.8, dashes);
    const level = value(slope, distance.value);
    if (level >= lowest) dot(svg, x, scale.py(level), 3.5, colour);
    const row = element(body, "tr"), name = element(row, "th", {scope: "row"});
    sign(name, "M0 6h12", {stroke: colour, "stroke-width": 4, ...dashes});
    name.append(String(head));
    element(row, "td", {}, fraction(slope));
    element(row, "td", {}, !weights.checked ? digits(level) : level < 0.0005 ? "< 0.001" : decimals(level, 3));
  });
  const [steep, shallow] = [slopes[0], slopes[last]].map((slope) => digits(Math.exp(-slope * distance.value)));
  say(second > 0 ? `From head ${second} on (dashed) a second series of slopes fills the gaps of the first.`
    : `At distance ${distance.value}, head 0 multiplies a weight by ${steep}, head ${last} by ${shallow}.`);
};
