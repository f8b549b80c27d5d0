const token = slider("token", 0, data.before + data.grid[0] * data.grid[1] * data.grid[2] + data.after - 1, data.token);
const sides = ["frames", "rows", "columns"].map((name, axis) => slider(name, 1, data.maxSide, data.grid[axis]));
const view = drawing(element(stage, "div", {class: "wide"}), "", data.alt);
const numbers = (packed) => Array.from(packed, (digit) => parseInt(digit, 36));
const names = ["time", "height", "width"], hues = [colours.key, colours.query, colours.third];
return () => {
  const [frames, rows_, columns] = sides.map((side) => side.value), patches = frames * rows_ * columns;
  const positions = data.cases[frames - 1][rows_ - 1][columns - 1].map(numbers), n = positions[0].length;
  const input = controls.querySelector("input");
  if (Number(input.max) !== n - 1) {  // the video changed size: fit the slider to the tokens
    input.max = n - 1;
    token.value = token.value;  // the setter redraws
    return;
  }
  const chosen = token.value, patch = chosen - data.before, width = Math.max(view.svg.parentNode.clientWidth, 240);
  const across = data.before + data.after + 1.2 + frames * (columns + 0.6), cell = Math.min(24, width / across);
  const highest = Math.max(...positions.flat()), scales = rows_ * cell + 44, left = 56;
  const svg = view.clear(width, scales + 2 * 34 + 26);
  function square(column, row, number, fill) {
    const marked = number === chosen ? {stroke: ink, "stroke-width": 2, fill: colours.angle} : {stroke: grey, fill};
    const place = {x: column * cell + 1, y: row * cell + 1, width: cell - 2, height: cell - 2, "data-number": number};
    shape(svg, "rect", {...place, ...marked});
  }
  let column = 0, number = 0;
  for (let word = 0; word < data.before; word++) square(column++, 0, number++, "#e4e4e4");
  for (const frame of range(frames)) {
    column += 0.6;
    write(svg, column * cell, rows_ * cell + 12, frames > 3 && cell < 16 ? frame : `frame ${frame}`, "start", {"font-size": 11});
    for (const row of range(rows_)) for (const at of range(columns)) square(column + at, row, number++, "#c9dfee");
    column += columns;
  }
  column += 0.6;
  for (let word = 0; word < data.after; word++) square(column++, 0, number++, "#e4e4e4");
  names.forEach((name, axis) => {
    const y = scales + 34 * axis, px = (at) => left + 8 + at / Math.max(highest, 1) * (width - left - 24);
    write(svg, 0, y, name);
    stroke(svg, [[px(0), y], [px(highest), y]], grey);
    for (const at of new Set(positions[axis])) stroke(svg, [[px(at), y - 5], [px(at), y + 5]], grey);
    dot(svg, px(positions[axis][chosen]), y, 6, hues[axis]);
    const value = {class: "value", "font-weight": "bold"};
    write(svg, px(positions[axis][chosen]), y + 15, positions[axis][chosen], "middle", value);
  });
  const inside = patch >= 0 && patch < patches, frame = Math.floor(patch / (rows_ * columns));
  const row = Math.floor(patch / columns) % rows_, goes = positions[0][data.before + patches];
  say((inside ? `Token ${chosen} is frame ${frame}, row ${row}, column ${patch % columns}.` : `Token ${chosen} is text.`)
    + ` ${patches} patches; the text behind them goes on at ${goes}.`);
};
