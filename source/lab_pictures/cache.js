const cached = slider("tokens in the cache", 0, data.maxCached, data.cached);
const fresh = slider("new tokens", 1, data.maxNew, data.new);
const view = drawing(element(stage, "div", {class: "wide"}), "", data.alt);
return () => {
  const c = cached.value, n = fresh.value, width = Math.max(stage.clientWidth, 280), left = 86, top = 20;
  const cell = Math.min(34, (width - left - 4) / (data.maxCached + data.maxNew));
  const svg = view.clear(width, top + cell * data.maxNew + 44);
  for (const [first, count, name] of [[0, c, "in the cache"], [c, n, "new"]]) {
    const above = {x: left + cell * (first + count / 2), y: 14, "text-anchor": "middle", fill: "#444"};
    if (count) shape(svg, "text", above, count * cell > 70 || name === "new" ? name : "cache");
  }
  for (let row = 0; row < n; row++) {
    const place = {x: left - 8, y: top + cell * (row + 0.5) + 4, "text-anchor": "end", class: "position"};
    shape(svg, "text", place, `position ${c + row}`);
    for (let key = 0; key < c + n; key++) {
      const seen = key <= c + row, fill = !seen ? "#fff" : key < c ? colours.query : colours.angle;
      const [x, y] = [left + cell * key, top + cell * row];
      shape(svg, "rect", {x: x + 1, y: y + 1, width: cell - 2, height: cell - 2, fill,
        stroke: "#888", "data-seen": seen ? (key < c ? "cached" : "new") : "hidden"});
      const dashed = {fill: "none", stroke: "#fff", "stroke-width": 1.5, "stroke-dasharray": "3 2"};
      if (key <= row) shape(svg, "rect", {x: x + 4, y: y + 4, width: cell - 8, height: cell - 8, ...dashed});
    }
  }
  for (let key = 0; key < c + n; key++) {
    const below = {x: left + cell * (key + 0.5), y: top + cell * n + 16, "text-anchor": "middle", fill: "#444"};
    shape(svg, "text", below, key);
  }
  shape(svg, "text", {x: left, y: top + cell * n + 34, fill: "#444"}, "position of the key");
  view.svg.setAttribute("aria-label", `${n} rows, ${c + n} columns; row r sees the keys 0 to ${c} + r`);
  say(`The first new token stands at position ${c} and sees ${c + 1} key${c ? "s" : ""}; `
    + `the last one sees all ${c + n}.`);
};
