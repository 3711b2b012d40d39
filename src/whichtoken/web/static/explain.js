/** The view of one input: prediction, coloured words that can be switched off, and the tabs below. */

import { drawCompare } from "./compare.js";
import { drawCurves, drawTried } from "./curves.js";
import { choice, find, h, menu, put } from "./dom.js";
import { drawExport } from "./files.js";
import { draftModel, firstExample, showInput, startForm } from "./form.js";
import { clock, count } from "./format.js";
import { drawLayers } from "./layers.js";
import { drawPatches } from "./patches.js";
import { drawChosen } from "./picker.js";
import { drawPrediction } from "./prediction.js";
import { drawReferences } from "./references.js";
import {
  adopt,
  answered,
  askState,
  cancel,
  currentRow,
  leading,
  level,
  listen,
  model,
  removal,
  resultOf,
  run,
  session,
} from "./session.js";
import { change, START, state, watch } from "./state.js";
import { canUndo, forget, keepTop, removable, removeTop, reset, undo } from "./switches.js";
import { drawLegend, drawSwitches, markOff, showScore } from "./words.js";

const TABS = [
  ["compare", "Compare methods", drawCompare],
  ["curves", "Removal curves", drawCurves],
  ["layers", "Layers", drawLayers],
  ["references", "References", drawReferences],
  ["export", "Save and export", drawExport],
];
const EFFECTS = { below: "opposes", above: "supports", what: "the label" };
let drawn = null; // the words as drawn
let number = 3; // of "remove the top 3"

/** Starts the view. Without an input in the address, the first example is explained. */
export function startExplain() {
  startForm(ask);
  watch(["methods", "model"], drawMethods);
  watch(["level", "part", "removal"], () => refresh());
  watch(["method"], () => drawAll());
  watch(["off"], drawOff);
  watch(["tab"], () => {
    drawTab();
    if (state.tab === "curves" && session.prediction) run();
  });
  listen(["reset", "result"], drawAll);
  listen(["state"], drawOff);
  listen(["curves"], () => {
    drawTried(find("tried"));
    if (state.tab === "curves") drawTab();
  });
  listen(["progress"], drawProgress);
  listen(["error"], drawError);
  find("ask").addEventListener("model", () => {
    change({ ...START, model: draftModel().id, methods: usual(draftModel()) });
    adopt([], null);
    drawMethods();
  });
  find("prediction").addEventListener("click", (event) => {
    const chip = event.target.closest("[data-part]");
    if (chip) change({ part: Number(chip.dataset.part), off: [] });
  });
}

/** Shows the state of the address, or the first example. */
export function openExplain() {
  if (!state.input) {
    const first = model();
    const input = firstExample(first);
    change({ model: first.id, methods: state.methods.length ? state.methods : usual(first), input });
    if (!input) return;
  }
  if (!state.methods.length) change({ methods: usual(model()) });
  showInput(state.model, state.input, state.token);
  drawMethods();
  forget();
  run();
}

const usual = (of) => [...new Set([...of.default_methods, ...(of.quick_method ? [of.quick_method] : [])])];

function ask(id, input, token) {
  forget();
  const isSame = id === state.model && JSON.stringify(input) === JSON.stringify(state.input) && token === state.token;
  const methods = id === state.model && state.methods.length ? state.methods : usual(draftModel());
  change({ model: id, input, token, methods, part: 0, off: [], target: isSame ? state.target : null }, !isSame);
  run();
}

function retarget(target) {
  change({ target, off: [], part: 0 }, true);
  forget();
  run();
}

function refresh() {
  drawAll();
  if (!session.prediction) return;
  askState();
  run();
}

function drawMethods() {
  drawChosen(find("chosen"), draftModel(), state.methods, (methods) => {
    change({ methods });
    if (session.prediction || session.results.size) run();
    drawAll();
  });
}

function drawAll() {
  const isReady = Boolean(session.prediction || session.results.size);
  find("outcome").hidden = !isReady;
  if (!isReady) return;
  drawReading();
  drawOff();
  drawTab();
  drawError();
}

function drawReading() {
  const row = currentRow();
  const result = leading() ? resultOf(leading()) : null;
  const effects = result?.effects ?? EFFECTS;
  const held = document.activeElement?.closest("#words") ? drawn?.items.indexOf(document.activeElement) : -1;
  const options = {
    effects,
    tokens: level() === "token",
    show: (cell) => showScore(find("score"), cell, row, effects),
    label: `${model().parts}; move with the arrow keys, press Space to switch one off or on`,
  };
  drawn = result?.picture ? drawPatches(row, result.picture, options) : drawSwitches(row, options);
  put(find("words"), drawn.element);
  if (held >= 0) drawn.items[held]?.focus();
  showScore(find("score"), null, row, effects);
  put(find("legend"), drawLegend(effects, row));
  const about = result
    ? [
        result.source,
        ...(result.notes ?? []),
        row.note,
        row.nothing && !row.cells.some((cell) => cell.score > 0) ? row.nothing : "",
      ]
    : [];
  put(
    find("trust"),
    row.trust ? [h("b", {}, "How far to trust it: "), row.trust] : null,
    about.filter(Boolean).map((text) => h("span", { class: "quiet block" }, text)),
  );
  drawChoices();
}

function drawChoices() {
  const ready = answered();
  put(
    find("choices"),
    ready.length
      ? menu(
          "Coloured by",
          ready.map((name) => [name, name + (resultOf(name).rows[level()]?.tuned_on_deletion ? " *" : "")]),
          leading(),
          (name) => change({ method: name }),
        )
      : null,
    model().levels.length > 1
      ? choice(
          "Words or tokens",
          model().levels.map((name) => [name, `${name[0].toUpperCase()}${name.slice(1)}s`]),
          level(),
          (name) => change({ level: name }),
        )
      : null,
    model().removals.length > 1
      ? menu(
          "Switched off means",
          model().removals.map((name) => [name, name === "delete" ? "deleted" : `replaced by ${name}`]),
          removal(),
          (name) => change({ removal: name }),
        )
      : null,
  );
}

function drawOff() {
  if (!drawn || find("outcome").hidden) return;
  markOff(drawn);
  drawTools();
  drawPrediction(find("prediction"), retarget);
  drawTried(find("tried"));
}

function drawTools() {
  const isScored = Boolean(leading());
  const most = Math.max(1, removable().length);
  const field = h("input", {
    type: "number",
    min: 1,
    max: most,
    value: Math.min(number, most),
    "aria-label": "how many",
    "data-key": "many",
    onchange: (event) => (number = Math.max(1, Math.min(most, Number(event.target.value) || 3))),
  });
  const act = (title, name, run_, isDisabled) =>
    h("button", { type: "button", "data-tool": name, "data-key": name, disabled: isDisabled, onclick: run_ }, title);
  const n = () => number;
  put(
    find("tools"),
    h("label", { class: "stepper" }, "top ", field),
    act("Remove them", "remove", () => removeTop(n()), !isScored),
    act("Keep only them", "keep", () => keepTop(n()), !isScored),
    act("Undo", "undo", undo, !canUndo()),
    act("Reset", "reset", reset, !state.off.length),
    h(
      "span",
      { class: "quiet" },
      state.off.length
        ? `${count(drawn.cells.filter((cell) => cell.tokens.length && cell.tokens.every((token) => state.off.includes(token))).length, level() === "word" ? "words" : "tokens")} off`
        : `Click a ${level() === "word" ? "word" : "token"} to switch it off.`,
    ),
  );
}

function drawTab() {
  const bar = find("tabs");
  if (!bar.childElementCount) {
    for (const [name, title] of TABS) {
      bar.append(
        h(
          "button",
          {
            type: "button",
            role: "tab",
            id: `tab-${name}`,
            "aria-controls": "tab-panel",
            onclick: () => change({ tab: name }),
          },
          title,
        ),
      );
    }
    bar.addEventListener("keydown", moveTab);
  }
  const chosen = TABS.find(([name]) => name === state.tab) ?? TABS[0];
  for (const tab of bar.children) {
    tab.setAttribute("aria-selected", String(tab.id === `tab-${chosen[0]}`));
    tab.tabIndex = tab.id === `tab-${chosen[0]}` ? 0 : -1;
  }
  find("tab-panel").setAttribute("aria-labelledby", `tab-${chosen[0]}`);
  chosen[2](find("tab-panel"));
}

function moveTab(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const tabs = [...find("tabs").children];
  const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
  next.focus();
  next.click();
  event.preventDefault();
}

function drawProgress() {
  const { progress } = session;
  find("explain-button").setAttribute("aria-busy", String(Boolean(progress)));
  if (!progress) {
    put(find("progress"));
    if (state.tab !== "export") drawTab();
    return;
  }
  const text =
    progress.position > 0
      ? `waiting: ${progress.position} before this one`
      : `${progress.what}${progress.passes ? `, ${count(progress.passes, "passes")}` : ""}${progress.seconds ? `, ${clock(progress.seconds)}` : ""}`;
  put(
    find("progress"),
    h("progress", { max: Math.max(1, progress.of), value: progress.done, "aria-label": "progress" }),
    h("span", {}, text),
    h("button", { type: "button", class: "quietly", onclick: cancel }, "Stop"),
  );
}

function drawError() {
  put(find("problem"), session.error ? h("p", { class: "problem", role: "alert" }, session.error) : null);
}
