/** Links, saved files and exports. */

import { post, postForFile } from "./api.js";
import { download, find, h, put } from "./dom.js";
import { adopt, answered, getInfo, level, resultOf, session } from "./session.js";
import { addressOf, change, isLinkable, START, state } from "./state.js";

const FORMATS = [
  ["json", "JSON", "the records, for the library"],
  ["html", "HTML", "a page of its own"],
  ["png", "PNG", "a picture"],
  ["svg", "SVG", "a picture that scales"],
];

/** Fills the tab. */
export function drawExport(place) {
  const said = h("p", { class: "quiet", role: "status" });
  const guard = (act) => async () => {
    try {
      said.textContent = (await act()) ?? "";
    } catch (error) {
      said.textContent = error.message;
    }
  };
  const records = () => answered().flatMap((name) => (resultOf(name) ? [resultOf(name).record] : []));
  const exported = FORMATS.filter(([format]) => getInfo().figures || !["png", "svg"].includes(format)).map(
    ([format, title, about]) =>
      h(
        "button",
        {
          type: "button",
          "data-format": format,
          title: about,
          disabled: !answered().length,
          onclick: guard(() => exportAs(format, records())),
        },
        title,
      ),
  );
  put(
    place,
    h(
      "div",
      { class: "exports" },
      h(
        "section",
        {},
        h("h4", {}, "A link"),
        h(
          "p",
          { class: "quiet" },
          isLinkable(state)
            ? "The address of this page opens the same view, on this server."
            : "This input is an image, or too long for a link. Save a file instead.",
        ),
        h(
          "button",
          { type: "button", id: "copy-link", disabled: !isLinkable(state), onclick: guard(copyLink) },
          "Copy the link",
        ),
      ),
      h(
        "section",
        {},
        h("h4", {}, "A file"),
        h(
          "p",
          { class: "quiet" },
          "Keeps the input, the choices and all explanations; opens without computing them again.",
        ),
        h("button", { type: "button", id: "save-file", disabled: !answered().length, onclick: guard(save) }, "Save"),
        h("button", { type: "button", onclick: () => find("open-file").click() }, "Open"),
      ),
      h(
        "section",
        {},
        h("h4", {}, "Export"),
        h("p", { class: "quiet" }, "What is shown above, with all chosen methods."),
        h("div", { class: "row" }, exported),
      ),
    ),
    said,
  );
}

async function copyLink() {
  const address = new URL(addressOf(state), location.href).href;
  await navigator.clipboard.writeText(address);
  return "The link is in the clipboard.";
}

function save() {
  const kept = {};
  for (const name of Object.keys(START)) kept[name] = state[name];
  const records = [...session.results.values()].flat().map((result) => result.record);
  const content = { whichtoken: "state", schema: 1, page: { ...kept, prediction: session.prediction }, records };
  download(new Blob([JSON.stringify(content)], { type: "application/json" }), "whichtoken-view.json");
  return "Saved as whichtoken-view.json.";
}

async function exportAs(format, records) {
  const [blob, name] = await postForFile("/api/export", { records, format, level: level(), differences: false });
  download(blob, name);
  return `Saved as ${name}.`;
}

/** Opens a saved view or the output of `whichtoken explain`; returns what the reader should know about it. */
export async function openFile(file) {
  const { page, results } = await post("/api/open", { content: await file.text() });
  if (!results.length) return "This file contains no explanation.";
  const shown = page ? results : results.filter(({ result }) => result.text === results[0].result.text);
  const asked = page ? savedState(page) : stateOf(results[0].result);
  const methods = [...new Set(shown.map((each) => each.method))];
  change({ ...START, ...asked, view: "explain", methods }, true);
  adopt(shown, page?.prediction ?? null);
  const others = results.length - shown.length;
  return others ? `The first text of this file is shown; ${others} other explanations in it are not.` : "";
}

function savedState(page) {
  const known = Object.keys(START).filter((name) => name in page && typeof page[name] === typeof START[name]);
  return Object.fromEntries(known.map((name) => [name, page[name]]));
}

/** Returns the state that shows a result of the command line. */
function stateOf({ record, label, predicted, picture }) {
  const [text, pair] = record.texts ?? [];
  const made = (each) => each.revision === record.revision && (record.processor ?? each.processor) === each.processor;
  const served = getInfo().models.find(made) ?? getInfo().models[0];
  const [kind] = served.inputs;
  const texts =
    kind === "question" ? { question: text, context: pair } : pair === undefined ? { text } : { text, pair };
  const isOther = predicted && predicted.label !== label && served.labels.includes(label);
  return {
    model: served.id,
    input: picture
      ? { kind: "image", data: picture.png }
      : { kind: kind === "text" && pair !== undefined ? "pair" : kind, ...texts },
    target: isOther ? { label } : null,
  };
}
