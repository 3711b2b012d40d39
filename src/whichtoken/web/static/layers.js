/** Draws what each layer adds to each word, as a table in the colours of the scores. */

import { h, menu, put } from "./dom.js";
import { signed } from "./format.js";
import { drawSmall } from "./patches.js";
import { answered, leading, level, methodFacts, resultOf } from "./session.js";

let chosen = "";

/** Fills the tab. */
export function drawLayers(place) {
  const names = answered().filter((name) => (resultOf(name).layers?.[level()] ?? []).length);
  if (!names.length) {
    const able = answered().some((name) => methodFacts(name)?.layers);
    put(
      place,
      h(
        "p",
        { class: "quiet" },
        able
          ? "There are no layers for this input."
          : "None of the chosen methods says what each layer adds. Add one that does, for example attcat.",
      ),
    );
    return;
  }
  const name = names.includes(chosen) ? chosen : names.includes(leading()) ? leading() : names[0];
  const pick = (value) => {
    chosen = value;
    drawLayers(place);
  };
  put(
    place,
    names.length > 1
      ? menu(
          "Method",
          names.map((each) => [each, each]),
          name,
          pick,
        )
      : null,
    map(name),
  );
}

function map(name) {
  const rows = resultOf(name).layers[level()];
  const { picture, effects } = resultOf(name);
  return picture ? gallery(rows, picture, effects) : table(rows, name);
}

function gallery(rows, picture, effects) {
  return h(
    "div",
    { class: "gallery" },
    rows.map((row) => h("figure", {}, drawSmall(row, picture, effects), h("figcaption", {}, row.name))),
  );
}

function table(rows, name) {
  const words = rows[0].cells;
  const head = h(
    "tr",
    {},
    h("td", {}),
    words.map((cell) => h("th", { scope: "col" }, h("span", {}, cell.text))),
  );
  const lines = rows.map((row) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, row.name),
      row.cells.map((cell) =>
        h("td", { class: cell.shade, title: `${row.name}, ${cell.text}: ${signed(cell.score)}` }),
      ),
    ),
  );
  return h(
    "div",
    { class: "box plain", tabIndex: 0, role: "region", "aria-label": `What each layer adds, ${name}` },
    h(
      "table",
      { class: "layers" },
      h(
        "caption",
        {},
        `What each layer adds to the score of each ${level() === "word" ? "word" : "token"} (${name}); the last row is the sum.`,
      ),
      h("thead", {}, head),
      h("tbody", {}, lines),
    ),
  );
}
