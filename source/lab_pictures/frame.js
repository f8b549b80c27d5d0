// Shared by all pictures: elements, shapes, axes, sliders. A picture is in a shadow tree, so the page's styles do not
// reach it, and on white like all figures. Nothing moves by itself.
(function () {
"use strict";
const data = DATA, colours = data.colours, ink = "#222222", grey = "#888888";
const letters = (colour) => colour === colours.key ? "#A84300" : colour;  // small letters need more contrast than lines
const STYLE = `
  .card { box-sizing: border-box; max-width: 780px; padding: 12px 16px 14px; border-radius: 6px; text-align: left;
    background: #fff; color: ${ink}; color-scheme: light; font: 13px/1.45 "DejaVu Sans", Verdana, sans-serif; }
  .title { margin: 0 0 8px; font-size: 14px; font-weight: bold; }
  .controls { display: grid; grid-template-columns: repeat(auto-fit, minmax(230px, 1fr)); gap: 4px 28px;
    margin-bottom: 14px; }
  .control { display: grid; grid-template-columns: 1fr auto; align-items: baseline; }
  .control input { grid-column: 1 / -1; width: 100%; margin: 2px 0 6px; }
  .choice { display: flex; flex-wrap: wrap; gap: 4px 14px; align-items: center; }
  input { accent-color: ${colours.query}; }
  button { font: inherit; color: inherit; padding: 2px 10px; border: 1px solid ${grey}; border-radius: 4px;
    background: #fff; }
  input:focus-visible, button:focus-visible { outline: 2px solid ${colours.query}; outline-offset: 2px; }
  output { font-weight: bold; }
  output, table, .sum { font-variant-numeric: tabular-nums; }
  .stage { display: flex; flex-wrap: wrap; gap: 8px; align-items: center; justify-content: center; }
  .wide { flex: 1 1 300px; min-width: 0; }
  .values { flex: 0 1 auto; max-width: 100%; margin: 0 6px; overflow-x: auto; }
  .clock { flex: 0 1 150px; text-align: center; font-size: 12px; white-space: nowrap; }
  svg { display: block; width: 100%; overflow: visible; fill: ${ink}; font-size: 12px; }
  svg.read { touch-action: pan-y; cursor: crosshair; }
  svg.sign { display: inline-block; width: 12px; height: 12px; margin-right: 7px; }
  table { border-collapse: collapse; }
  th, td { padding: 1px 8px; text-align: right; font-weight: normal; }
  thead th { border-bottom: 1px solid ${grey}; }
  th:first-child { text-align: left; }
  .sum { display: flex; gap: 10px; align-items: center; justify-content: center; }
  .factor { text-align: center; font-weight: bold; }
  .brackets { display: grid; gap: 2px 14px; padding: 4px 9px; margin-bottom: 4px; text-align: right;
    font-weight: normal; color: ${ink}; border: solid ${ink}; border-width: 0 1px;
    --end: linear-gradient(${ink}, ${ink}) no-repeat; background: var(--end) 0 0 / 5px 1px,
      var(--end) 0 100% / 5px 1px, var(--end) 100% 0 / 5px 1px, var(--end) 100% 100% / 5px 1px; }
  .said { margin: 10px 0 0; min-height: 1.45em; }
`;

function fill(made, attributes, text) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}
function element(parent, tag, attributes = {}, text = "") {
  return parent.appendChild(fill(document.createElement(tag), attributes, text));
}
function shape(parent, tag, attributes = {}, text = "") {
  return parent.appendChild(fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, text));
}
function stroke(svg, points, colour, width = 1, more = {}) {
  const d = "M" + points.map(([x, y]) => x.toFixed(1) + " " + y.toFixed(1)).join("L");
  return shape(svg, "path", {d, stroke: colour, "stroke-width": width, fill: "none", ...more});
}
const dot = (svg, cx, cy, r, colour) => shape(svg, "circle", {cx, cy, r, fill: colour});
const ring = (svg, cx, cy, r, colour) => shape(svg, "circle", {cx, cy, r, fill: "none", stroke: colour});
function write(svg, x, y, text, anchor = "start", more = {}) {
  return shape(svg, "text", {x, y: y + 4, "text-anchor": anchor, ...more}, text);
}

const minus = (text) => String(text).replace("-", "\u2212");
const digits = (value, count = 3) => minus(Number(value.toPrecision(count)));
const decimals = (value, count) => minus((Math.abs(value) < 0.5 / 10 ** count ? 0 : value).toFixed(count));
const commas = (value) => value.toLocaleString("en");
const range = (count, make = (index) => index) => Array.from({length: count}, (_, index) => make(index));

// A drawing. `clear` empties and resizes it before each redraw; `label` is what a screen reader says.
function drawing(parent, kind, label) {
  const svg = shape(parent, "svg", {role: "img", "aria-label": label, class: kind});
  return {svg, clear(width, height) {
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    return svg;
  }};
}

// Draw axes. Returns functions from values to pixels, and from a mouse event to a value.
function axes(svg, box, x, y) {
  const px = (value) => box.left + (value - x.from) / (x.to - x.from) * (box.right - box.left);
  const py = (value) => box.bottom - (value - y.from) / (y.to - y.from) * (box.bottom - box.top);
  for (const tick of y.ticks) {
    stroke(svg, [[box.left, py(tick)], [box.right, py(tick)]], "#e4e4e4");
    write(svg, box.left - 6, py(tick), (y.show || minus)(tick), "end");
  }
  stroke(svg, [[box.left, box.bottom], [box.right, box.bottom]], grey);
  for (const tick of x.ticks) write(svg, px(tick), box.bottom + 13, tick, "middle");
  write(svg, (box.left + box.right) / 2, box.bottom + 32, x.label, "middle");
  write(svg, box.left, box.top - 14, y.label);
  const read = (event) => {
    const place = svg.getBoundingClientRect();
    const at = (event.clientX - place.left) / place.width * svg.viewBox.baseVal.width;
    return x.from + (at - box.left) / (box.right - box.left) * (x.to - x.from);
  };
  return {px, py, read};
}

function start(place) {
  const host = document.createElement("div");
  host.dataset.lmSuppressShortcuts = "true";  // JupyterLab leaves the keys to the controls
  // But for those with Ctrl or Cmd, such as Ctrl+S.
  host.addEventListener("keydown", (event) => {
    const isForLab = event.ctrlKey || event.metaKey;
    host.toggleAttribute("data-lm-suppress-shortcuts", !isForLab);
    if (!isForLab) event.stopPropagation();
  });
  const root = host.attachShadow({mode: "open"});
  element(root, "style", {}, STYLE);
  const card = element(root, "div", {class: "card", role: "group", "aria-label": data.title});
  element(card, "p", {class: "title"}, data.title);
  const controls = element(card, "div", {class: "controls"});  // above the growing stage: sliders stay in place
  const stage = element(card, "div", {class: "stage"});
  const said = element(card, "p", {class: "said", role: "status"});
  const say = (text) => { if (said.textContent !== text) said.textContent = text; };
  let redraw = () => {}, count = 0;

  function slider(name, from, to, value, show = minus) {
    const row = element(controls, "div", {class: "control"}), id = "control-" + count++;
    element(row, "label", {for: id}, name);
    const output = element(row, "output", {for: id, "aria-live": "off"});  // screen readers ask the slider
    const input = element(row, "input", {type: "range", id, min: from, max: to, step: 1});
    const control = {
      get value() { return Number(input.value); },
      set value(wanted) {
        input.value = wanted;
        output.textContent = show(control.value);
        input.setAttribute("aria-valuetext", output.textContent);
        redraw();
      },
    };
    input.addEventListener("input", () => { control.value = input.value; });
    control.value = value;
    return control;
  }
  function button(parent, text, name, act) {
    element(parent, "button", {type: "button", "aria-label": name}, text).addEventListener("click", act);
  }
  function follow(svg, read, control) {  // sets the control to the value under mouse or finger
    const move = (event) => {
      const at = Math.round(read(event));
      if (at !== control.value) control.value = at;
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
  }
  function rows(table, names) {  // empties a table, adds a header, returns the body
    table.replaceChildren();
    const header = element(element(table, "thead"), "tr");
    for (const name of names) element(header, "th", {scope: "col"}, name);
    return element(table, "tbody");
  }
  function sign(cell, d, attributes) {  // the line or mark that identifies a row
    shape(shape(cell, "svg", {class: "sign", viewBox: "0 0 12 12", "aria-hidden": "true"}), "path", {d, ...attributes});
  }

  redraw = (function () {
PICTURE
  })();
  place.replaceChildren(host);
  const observer = new ResizeObserver(() => redraw());
  for (const drawn of [stage, ...stage.querySelectorAll(".wide")]) observer.observe(drawn);
}

const script = document.currentScript, page = script ? script.getRootNode() : document;
for (const place of page.querySelectorAll('[data-lab="NAME"]:not([data-started])')) {
  place.dataset.started = "true";
  start(place);
}
})();
