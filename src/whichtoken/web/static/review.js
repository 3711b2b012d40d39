/** The review of a file of texts: which file, model and method, and the job. */

import { stream } from "./api.js";
import { find, h, menu, put } from "./dom.js";
import { getInfo, model, modelOf } from "./session.js";
import { clear, drawTable, found, whenExplored } from "./reviewed.js";

const SAMPLE = `text,label
The acting is not great but the music saves it.,positive
It is very slow.,negative
Some of the actors were good but overall the movie was boring.,negative
A film so dull that I watched the exit sign.,positive
rare birds has more than enough charm to make it memorable.,positive
Not a masterpiece but I was never bored.,positive
`;

const asked = { model: "", method: "", content: "", name: "", format: "csv", columns: "", label: "" };
let total = 0; // rows of the file
let job = null;

const textModels = () => getInfo().models.filter(({ inputs }) => inputs.includes("text") || inputs.includes("pair"));

/** Starts the view; `open` is called with (model, input, method) to explore a row. */
export function startReview(open) {
  whenExplored(open);
  const able = textModels();
  find("nav-review").hidden = !able.length;
  if (!able.length) return;
  asked.model = (able.find((each) => each.id === model().id) ?? able[0]).id;
  drawForm();
}

/** Takes a file that was dropped or chosen, and reviews it. */
export async function takeTable(file) {
  const ending = /\.(csv|tsv|jsonl|txt)$/i.exec(file.name)?.[1].toLowerCase() ?? "csv";
  Object.assign(asked, { content: await file.text(), name: file.name, format: ending });
  drawForm();
  await review();
}

function drawForm() {
  const of = modelOf(asked.model);
  const models = textModels();
  const able = of.methods.filter((method) => !method.cannot_run);
  const file = h("input", {
    type: "file",
    id: "review-file",
    class: "hidden",
    accept: ".csv,.tsv,.jsonl,.txt,text/csv",
    onchange: (event) => event.target.files[0] && takeTable(event.target.files[0]),
  });
  const column = (name, title, hint) => {
    const input = h("input", { type: "text", value: asked[name], placeholder: hint, autocomplete: "off" });
    input.addEventListener("input", () => (asked[name] = input.value.trim()));
    return h("label", {}, h("span", {}, title), input);
  };
  put(
    find("review-form"),
    h(
      "label",
      { class: "drop" },
      h("span", {}, asked.name || "Drop a CSV, TSV, JSON lines or text file here"),
      h("span", { class: "button" }, "Choose a file"),
      file,
    ),
    h(
      "div",
      { class: "row" },
      models.length > 1
        ? menu(
            "Model",
            models.map((each) => [each.id, each.id]),
            asked.model,
            (id) => {
              asked.model = id;
              drawForm();
            },
          )
        : null,
      menu(
        "Method",
        [["", `quick (${of.quick_method})`], ...able.map((method) => [method.name, method.name])],
        asked.method,
        (name) => (asked.method = name),
      ),
      column("columns", "Text column", "found by its name"),
      column("label", "Gold column", "label, labels"),
      h("button", { type: "button", onclick: () => sampleFile() }, "Try a small sample"),
      h("button", { type: "button", class: "primary", disabled: !asked.content, onclick: review }, "Review"),
    ),
  );
}

function sampleFile() {
  Object.assign(asked, { content: SAMPLE, name: "sample.csv (6 reviews)", format: "csv" });
  drawForm();
  return review();
}

async function review() {
  job?.abort();
  const mine = (job = new AbortController());
  clear(asked.model);
  total = 0;
  drawTable();
  say("starting");
  const body = {
    model: asked.model,
    content: asked.content,
    format: asked.format,
    method: asked.method || null,
    columns: asked.columns ? asked.columns.split(",").map((name) => name.trim()) : null,
    label: asked.label || null,
    id: null,
  };
  try {
    let drawnAt = 0;
    for await (const [event, data] of stream("/api/review", body, mine.signal)) {
      if (event === "summary") total = data.rows;
      else if (event === "row") found.rows.push(data);
      else if (event === "bad_row") found.bad.push(data);
      else if (event === "totals") found.totals = data;
      else if (event === "queued" && data.position > 0) say(`waiting: ${data.position} before this one`);
      if (event === "row" && performance.now() - drawnAt > 300) {
        drawnAt = performance.now();
        say(`${found.rows.length} of ${total}`);
        drawTable();
      }
    }
    say("");
  } catch (error) {
    if (error.name !== "AbortError") say(error.message, true);
    else say("stopped");
  } finally {
    if (job === mine) job = null;
    drawTable();
  }
}

function say(text, isProblem = false) {
  const stop = h("button", { type: "button", class: "quietly", onclick: () => job?.abort() }, "Stop");
  if (isProblem) put(find("review-progress"), h("p", { class: "problem", role: "alert" }, text));
  else
    put(
      find("review-progress"),
      text && job
        ? [
            h("progress", { max: total || 1, value: found.rows.length, "aria-label": "rows done" }),
            h("span", {}, text),
            stop,
          ]
        : text,
    );
}
