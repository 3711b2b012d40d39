/** Draws words or tokens in the colours of their scores: as switches, or only to read. */

import { h, put, rove, svg } from "./dom.js";
import { signed } from "./format.js";
import { isOff, toggle } from "./switches.js";

/** Returns what a score says, as one line. `effects`: from the result. */
export function describe(cell, row, effects) {
  const name = cell.hint || cell.text;
  if (cell.score === null) return name;
  const effect = cell.score === 0 ? "no effect" : cell.score > 0 ? effects.above : effects.below;
  const share = row.unit || `${Math.round(100 * cell.share)} % of the strongest`;
  const interval = cell.interval ? `; ${cell.interval.hint}` : "";
  return `${name}: ${effect} ${signed(cell.score)} (${share})${interval}`;
}

const classOf = (cell) =>
  ["word", cell.shade, cell.uncertain && "uncertain", !cell.removable && "fixed"].filter(Boolean).join(" ");

/** Returns words as switches; `show` is called with the cell under the pointer or the keyboard. */
export function drawSwitches(row, { effects, tokens, show, label }) {
  const line = h("p", {
    class: `words switches${tokens ? " tokens" : ""}`,
    dir: "auto",
    role: "group",
    "aria-label": label,
  });
  const items = row.cells.map((cell) => {
    const item = h(
      "span",
      { class: classOf(cell), role: "switch", "aria-label": describe(cell, row, effects) },
      cell.text,
    );
    if (!cell.removable) item.setAttribute("aria-disabled", "true");
    item.addEventListener("click", () => toggle(cell));
    item.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(cell);
    });
    for (const name of ["pointerenter", "focus"]) item.addEventListener(name, () => show(cell));
    line.append(cell.before, item);
    return item;
  });
  if (items.length) rove(line, items);
  return { element: line, items, cells: row.cells };
}

/** Shows which words are off, without drawing them again: the focus stays where it is. */
export function markOff(drawn) {
  drawn.items.forEach((item, place) => {
    const off = isOff(drawn.cells[place]);
    item.setAttribute("aria-checked", String(!off));
    item.classList.toggle("off", off);
  });
}

/** Returns words to read; scores appear as hints. `point` is called with the place of the word under the pointer, or -1. */
export function drawWords(row, { effects, tokens, point }) {
  const line = h("p", { class: `words${tokens ? " tokens" : ""}`, dir: "auto" });
  row.cells.forEach((cell, place) => {
    const word = h(
      "span",
      { class: classOf(cell), title: describe(cell, row, effects), "data-place": place },
      cell.text,
    );
    line.append(cell.before, word);
  });
  if (point) {
    line.addEventListener("pointerover", (event) => point(Number(event.target.dataset?.place ?? -1)));
    line.addEventListener("pointerleave", () => point(-1));
  }
  return line;
}

/** Fills the line that shows the score of one word, with its interval as a small picture. */
export function showScore(place, cell, row, effects) {
  if (!cell || cell.score === null) {
    put(
      place,
      h(
        "span",
        { class: "quiet" },
        cell ? cell.hint || cell.text : "Click a word to switch it off or on; point at it to see its score.",
      ),
    );
    return;
  }
  const parts = describe(cell, row, effects).split(/: (.*)/s);
  put(
    place,
    h("b", {}, parts[0]),
    " ",
    h("span", { class: "number" }, parts[1]),
    cell.interval ? drawInterval(cell) : null,
  );
}

function drawInterval({ share, interval }) {
  const reach = Math.max(1, Math.abs(interval.low_share), Math.abs(interval.high_share));
  const x = (value) => 80 + (72 * value) / reach;
  return svg(
    "svg",
    { class: "interval", width: 160, height: 16, viewBox: "0 0 160 16", "aria-hidden": "true" },
    svg("line", { class: "zero", x1: 80, x2: 80, y1: 1, y2: 15 }),
    svg("line", { class: "reach", x1: x(interval.low_share), x2: x(interval.high_share), y1: 8, y2: 8 }),
    svg("circle", { cx: x(share), cy: 8, r: 3.5 }),
  );
}

/** Returns the legend of the colours. */
export function drawLegend(effects, row) {
  const scale = ["a20", "a10", "", "f10", "f20"].map((shade) => h("i", { class: shade }));
  const legend = h(
    "p",
    { class: "legend quiet" },
    `${effects.below} ${effects.what} `,
    h("span", { class: "scale", "aria-hidden": "true" }, scale),
    ` ${effects.above} it`,
  );
  if (row?.uncertain) legend.append(" · ", h("span", { class: "uncertain" }, "dotted"), `: ${row.uncertain}`);
  if (row?.tuned_on_deletion) legend.append(" · * tuned on the deletion curve, which flatters its removal curves");
  return legend;
}
