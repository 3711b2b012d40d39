/** Draws an image with its patches as switches, in the colours of their scores. */

import { h, rove } from "./dom.js";
import { toggle } from "./switches.js";
import { describe } from "./words.js";

/** Returns the image with a grid of switches over it; `show` is called with the patch under the pointer or the keyboard. */
export function drawPatches(row, picture, { effects, show, label }) {
  const grid = h("div", { class: "patches", role: "group", "aria-label": label });
  grid.style.gridTemplateColumns = `repeat(${picture.columns}, 1fr)`;
  const items = [];
  const patches = row.cells.filter((cell) => cell.tokens.length);
  patches.forEach((cell, place) => {
    const item = h("span", {
      class: `patch ${cell.shade}`,
      role: "switch",
      "aria-label": `row ${Math.floor(place / picture.columns) + 1}, column ${(place % picture.columns) + 1}, ${describe(cell, row, effects)}`,
    });
    item.style.opacity = String(Math.abs(cell.share) * 0.75);
    item.addEventListener("click", () => toggle(cell));
    item.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(cell);
    });
    for (const name of ["pointerenter", "focus"]) item.addEventListener(name, () => show(cell));
    items.push(item);
  });
  grid.append(...items);
  rove(grid, items, picture.columns);
  const image = h("img", { src: `data:image/png;base64,${picture.png}`, alt: "the image as the model reads it" });
  return { element: h("div", { class: "picture" }, image, grid), items, cells: patches };
}

/** Returns patches to look at, without the image. */
export function drawSmall(row, picture, effects) {
  const grid = h("div", { class: "small-patches", role: "img", "aria-label": `scores of the patches, ${row.name}` });
  grid.style.gridTemplateColumns = `repeat(${picture.columns}, 1fr)`;
  grid.append(
    ...row.cells
      .filter((cell) => cell.tokens.length)
      .map((cell) => h("i", { class: cell.shade, title: describe(cell, row, effects) })),
  );
  return grid;
}

/** Returns the image with the scores over it. */
export const drawOverlay = (picture, name) =>
  h("img", {
    class: "overlay",
    src: `data:image/png;base64,${picture.overlay}`,
    alt: `the image with the scores of ${name} over it`,
  });
