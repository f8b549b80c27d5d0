// Conveniences; every page is complete without them.
"use strict";

// A button makes the clocks of the title page turn; they stop by themselves.
for (const place of document.querySelectorAll("[data-turns]")) {
  const root = place.querySelector("[data-lab] > div")?.shadowRoot;
  const step = root?.querySelector('button[aria-label="move both on by one"]');
  if (!step) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button";
  place.after(button);
  let timer = 0;
  const stop = () => { clearInterval(timer); timer = 0; button.textContent = "Let both tokens move on"; };
  button.addEventListener("click", () => {
    if (timer) return stop();
    let left = 40;
    button.textContent = "Stop";
    timer = setInterval(() => { step.click(); if (--left === 0) stop(); }, 400);
  });
  stop();
}

// On a phone, show two clocks side by side, so that they and their sliders fit one screen.
const narrow = new CSSStyleSheet();
narrow.replaceSync("@media (max-width: 30rem) { .card { padding: 8px 10px; } .clock { flex-basis: 120px; } }");
for (const place of document.querySelectorAll("[data-lab] > div")) place.shadowRoot?.adoptedStyleSheets.push(narrow);

// Open all folded parts for printing.
addEventListener("beforeprint", () => { for (const fold of document.querySelectorAll("details")) fold.open = true; });
