const tokens = slider("tokens read", 1, data.maxTokens, data.tokens);
const sinks = slider("sinks", 0, data.maxSinks, data.sinks);
const size = slider("window", 1, data.maxWindow, data.window);
const view = drawing(element(stage, "div", {class: "wide"}), "", data.alt);
const numbers = (packed) => Array.from(packed, (digit) => parseInt(digit, 36));
return () => {
  const n = tokens.value, [kept, positions] = data.cases[sinks.value][size.value - 1][n - 1].map(numbers);
  const width = Math.max(view.svg.parentNode.clientWidth, 240), left = 56;
  const [narrow, cell] = [data.maxTokens, data.maxSinks + data.maxWindow].map((count) => Math.min(28, (width - left) / count));
  const top = 6, low = top + narrow + 44, svg = view.clear(width, low + cell + 26), small = {"font-size": 11};
  const colour = (token) => token < sinks.value ? colours.query : colours.angle;
  function square(place, y, side, token, more) {
    shape(svg, "rect", {x: left + side * place + 1, y, width: side - 2, height: side - 2, stroke: grey, ...more});
    const fill = more.fill === colours.query ? "#fff" : ink;
    if (side > 15) write(svg, left + side * (place + 0.5), y + side / 2 - 1, token, "middle", {...small, fill});
  }
  write(svg, 0, top + narrow / 2, "text");
  write(svg, 0, low + cell / 2, "cache");
  write(svg, 0, low + cell + 12, "position");
  kept.forEach((token, place) => {
    const ends = [[left + narrow * (token + 0.5), top + narrow], [left + cell * (place + 0.5), low]];
    stroke(svg, ends, colour(token), 1.2);
  });
  for (const token of range(n)) {
    const held = kept.includes(token);
    square(token, top, narrow, token, held ? {fill: colour(token)} : {fill: "#fff", "stroke-dasharray": "3 2"});
  }
  kept.forEach((token, place) => {
    square(place, low, cell, token, {fill: colour(token), "data-token": token});
    write(svg, left + cell * (place + 0.5), low + cell + 12, positions[place], "middle", {...small, class: "position"});
  });
  const last = positions.length - 1, far = positions[last] - positions[0], true_far = kept[last] - kept[0];
  say(`${kept.length} of ${n} tokens are kept. The newest stands at position ${positions[last]} of the cache, `
    + `${far} after the oldest kept one; in the text it is ${true_far} after it.`);
};
