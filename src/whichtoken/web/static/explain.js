/** The view of one input: prediction, coloured words that can be switched off, and the tabs below. */

import { drawAnswer } from "./answer.js";
import { drawCompare } from "./compare.js";
import { drawCurves, drawTried } from "./curves.js";
import { choice, find, h, menu, put } from "./dom.js";
import { drawExport } from "./files.js";
import { draftModel, firstExample, showInput, startForm } from "./form.js";
import { clock, count } from "./format.js";
import { drawLayers } from "./layers.js";
import { drawPatches } from "./patches.js";
import { drawChosen } from "./picker.js";
import { drawHeadline, drawTargets } from "./prediction.js";
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
  resultOf,
  run,
  session,
} from "./session.js";
import { change, START, state, watch } from "./state.js";
import { forget } from "./switches.js";
import { drawRemoval, drawTools } from "./tools.js";
import { drawLegend, drawSwitches, markOff, showScore } from "./words.js";

const TABS = [
  ["compare", "Compare methods", drawCompare],
  ["curves", "Removal curves", drawCurves],
  ["layers", "Layers", drawLayers],
  ["references", "References", drawReferences],
  ["export", "Save and export", drawExport],
];
const LONG = 60; // words: longer texts are set in smaller letters
const EFFECTS = { below: "opposes", above: "supports", what: "the label" };
let drawn = null; // the words as drawn

/** Starts the view. Without an input in the address, the first example is explained. */
export function startExplain() {
  startForm(ask);
  watch(["methods", "model"], drawMethods);
  watch(["level", "part", "removal"], () => refresh());
  watch(["method", "answer"], () => drawAll());
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
  change(
    { model: id, input, token, methods, part: 0, answer: -1, off: [], target: isSame ? state.target : null },
    !isSame,
  );
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
  drawTitle();
  const isReady = Boolean(session.prediction || session.results.size);
  find("outcome").hidden = !isReady;
  if (!isReady) return;
  drawReading();
  drawOff();
  drawTab();
  drawError();
}

function drawTitle() {
  const { parts } = model();
  const title = `Which ${parts} decide?`;
  if (find("explain-title").textContent === title) return;
  find("explain-title").textContent = title;
  find("explain-lead").textContent =
    `Orange ${parts} support what the model says, blue ${parts} oppose it. Switch ${parts} off to check.`;
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
  find("outcome").classList.toggle("long", row.cells.length > LONG && !result?.picture);
  drawAnswer(find("answer"), result?.answer ?? null);
  put(find("words"), drawn.element);
  if (held >= 0) drawn.items[held]?.focus();
  showScore(find("score"), null, row, effects);
  put(find("legend"), drawLegend(effects, row));
  put(find("trust"), drawTrust(row, result));
  drawChoices();
}

/** Returns how far the explanation can be trusted, as far as its method says that, and notes about the input. */
function drawTrust(row, result) {
  if (!result) return null;
  const isNothing = row.nothing && !row.cells.some((cell) => cell.score > 0);
  const notes = [result.source, ...(result.notes ?? []), row.note, isNothing ? row.nothing : ""].filter(Boolean);
  const unsaid = `${leading()} does not say how sure it is. Check it: switch the words off, and see its removal curve.`;
  return [
    h("h3", {}, "How far to trust it"),
    h("p", { class: `trust${row.trust ? "" : " quiet"}` }, row.trust || unsaid),
    notes.map((text) => h("p", { class: result.warnings?.includes(text) ? "problem" : "quiet" }, text)),
  ];
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
  );
}

function drawOff() {
  if (!drawn || find("outcome").hidden) return;
  markOff(drawn);
  drawTools(find("tools"), drawn.cells);
  drawRemoval(find("removal"));
  drawHeadline(find("headline"));
  drawTargets(find("prediction"), retarget);
  drawTried(find("tried"));
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
  const now = find(`tab-${chosen[0]}`);
  if (now.offsetLeft < bar.scrollLeft || now.offsetLeft + now.offsetWidth > bar.scrollLeft + bar.clientWidth)
    bar.scrollLeft = now.offsetLeft - 16;
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
