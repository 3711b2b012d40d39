/** The buttons below the words: remove the top 3, keep only the top 3, undo, reset. */

import { h, put } from "./dom.js";
import { count } from "./format.js";
import { leading, model, removal } from "./session.js";
import { change, state } from "./state.js";
import { canUndo, isOff, keepTop, removable, removeTop, reset, undo } from "./switches.js";

let number = 3;

/** Fills the row of buttons. `cells`: the words as drawn. */
export function drawTools(place, cells) {
  const isScored = Boolean(leading());
  const most = Math.max(1, removable().length);
  number = Math.min(number, most);
  const pick = (event) => {
    number = Math.max(1, Math.min(most, Math.round(Number(event.target.value)) || 1));
    drawTools(place, cells);
  };
  const button = (title, name, act, isDisabled) =>
    h("button", { type: "button", "data-tool": name, "data-key": name, disabled: isDisabled, onclick: act }, title);
  put(
    place,
    button(`Remove top ${number}`, "remove", () => removeTop(number), !isScored),
    button(`Keep only top ${number}`, "keep", () => keepTop(number), !isScored),
    h(
      "label",
      { class: "stepper quiet" },
      "top ",
      h("input", {
        type: "number",
        min: 1,
        max: most,
        value: number,
        "aria-label": `how many ${model().parts}`,
        "data-key": "many",
        onchange: pick,
      }),
    ),
    button("Undo", "undo", undo, !canUndo()),
    button("Reset", "reset", reset, !state.off.length),
    state.off.length ? h("span", { class: "quiet" }, `${count(cells.filter(isOff).length, model().parts)} off`) : null,
  );
}

/** Fills the place of the choice what a removed word is replaced by. */
export function drawRemoval(place) {
  const names = model().removals;
  if (names.length < 2) {
    put(place);
    return;
  }
  const option = (name) =>
    h("option", { value: name, selected: name === removal() }, name === "delete" ? "deleted" : `replaced by ${name}`);
  const select = h(
    "select",
    { "data-key": "removal", onchange: (event) => change({ removal: event.target.value }) },
    names.map(option),
  );
  put(place, h("label", { class: "stepper quiet" }, "off means ", select));
}
