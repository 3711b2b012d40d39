/** The review of a file of texts: a table with search, filters and mistakes first; each row opens its explanation. */

import { stream } from "./api.js";
import { find, h, menu, put } from "./dom.js";
import { count, percent } from "./format.js";
import { getInfo, model, modelOf } from "./session.js";
import { comparing, sortHeading } from "./table.js";
import { drawLegend, drawWords } from "./words.js";

const AT_ONCE = 200; // rows drawn before the reader asks for more
const COLUMNS = [
  { name: "row", title: "Row" },
  { name: "text", title: "Text" },
  { name: "gold", title: "Gold" },
  { name: "predicted", title: "Predicted" },
  { name: "output", title: "Confidence", first: "descending", class: "right" },
];
const SAMPLE = `text,label
The acting is not great but the music saves it.,positive
It is very slow.,negative
Some of the actors were good but overall the movie was boring.,negative
A film so dull that I watched the exit sign.,positive
rare birds has more than enough charm to make it memorable.,positive
Not a masterpiece but I was never bored.,positive
`;

const asked = { model: "", method: "", content: "", name: "", format: "csv", columns: "", label: "" };
const filters = { search: "", predicted: "", gold: "", decision: "" };
let sort = { by: "mistakes", way: "ascending" };
let rows = [];
let bad = [];
let totals = null;
let total = 0;
let limit = AT_ONCE;
let job = null;
let explore = () => {};
const opened = new Set();

/** Starts the view; `open` is called with (model, input, method, result) to explore a row. */
export function startReview(open) {
  explore = open;
  asked.model = model().id;
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
  const models = getInfo().models.filter((each) => each.inputs.includes("text") || each.inputs.includes("pair"));
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
  [rows, bad, totals, total, limit] = [[], [], null, 0, AT_ONCE];
  opened.clear();
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
      else if (event === "row") rows.push(data);
      else if (event === "bad_row") bad.push(data);
      else if (event === "totals") totals = data;
      else if (event === "queued" && data.position > 0) say(`waiting: ${data.position} before this one`);
      if (event === "row" && performance.now() - drawnAt > 300) {
        drawnAt = performance.now();
        say(`${rows.length} of ${total}`);
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
        ? [h("progress", { max: total || 1, value: rows.length, "aria-label": "rows done" }), h("span", {}, text), stop]
        : text,
    );
}

const values = {
  mistakes: (row) => (row.correct === false ? 0 : 1) + (row.output ?? 0) / 10,
  row: (row) => row.row,
  text: (row) => row.text,
  gold: (row) => row.gold,
  predicted: (row) => row.predicted ?? row.label,
  output: (row) => row.output,
};

function passes(row) {
  const words = filters.search.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${row.text} ${row.id ?? ""}`.toLowerCase();
  return (
    words.every((word) => text.includes(word)) &&
    (!filters.predicted || row.predicted === filters.predicted) &&
    (!filters.gold || row.gold === filters.gold) &&
    (!filters.decision || row.correct === (filters.decision === "right"))
  );
}

function drawTable() {
  find("review-result").hidden = !rows.length && !bad.length;
  put(
    find("review-totals"),
    totals?.known
      ? [
          h("b", { class: "figure" }, totals.accuracy),
          ` correct: ${totals.correct} of ${totals.known} with a gold label`,
          confusions(),
        ]
      : null,
  );
  drawFilters();
  drawRows();
  put(
    find("review-bad"),
    bad.length
      ? h(
          "details",
          {},
          h("summary", {}, `${count(bad.length, "rows")} could not be used`),
          h(
            "ul",
            {},
            bad.map(({ row, message }) => h("li", {}, `row ${row}: ${message}`)),
          ),
        )
      : null,
  );
}

function confusions() {
  if (!totals.confusions.length) return null;
  return h(
    "div",
    { class: "chips", role: "group", "aria-label": "Mistakes by kind" },
    totals.confusions.slice(0, 8).map(([gold, predicted, n]) => {
      const isOn = filters.gold === gold && filters.predicted === predicted;
      const act = () => {
        Object.assign(filters, isOn ? { gold: "", predicted: "" } : { gold, predicted });
        drawTable();
      };
      return h(
        "button",
        {
          type: "button",
          class: "chip",
          "data-key": `${gold}/${predicted}`,
          "aria-pressed": String(isOn),
          onclick: act,
        },
        `gold ${gold}, predicted ${predicted} `,
        h("small", {}, String(n)),
      );
    }),
  );
}

function drawFilters() {
  const place = find("review-filters");
  const names = (key) =>
    [...new Set(rows.map((row) => row[key]).filter((value) => value !== null && value !== undefined))].sort();
  const set = (key) => (value) => {
    filters[key] = value;
    limit = AT_ONCE;
    drawRows();
  };
  const search = h("input", {
    type: "search",
    id: "review-search",
    "data-key": "search",
    value: filters.search,
    autocomplete: "off",
  });
  search.addEventListener("input", () => set("search")(search.value));
  const options = (key) => [["", "any"], ...names(key).map((name) => [name, name])];
  put(
    place,
    h("label", { class: "grow" }, h("span", {}, "Search"), search),
    names("predicted").length ? menu("Predicted", options("predicted"), filters.predicted, set("predicted")) : null,
    names("gold").length ? menu("Gold", options("gold"), filters.gold, set("gold")) : null,
    names("gold").length
      ? menu(
          "Decisions",
          [
            ["", "right and wrong"],
            ["wrong", "wrong"],
            ["right", "right"],
          ],
          filters.decision,
          set("decision"),
        )
      : null,
    menu(
      "Sort",
      [
        ["mistakes", "mistakes first"],
        ["row", "file order"],
        ["output", "confidence"],
        ["text", "text"],
        ["predicted", "predicted"],
        ["gold", "gold"],
      ],
      sort.by,
      (by) => {
        sort = { by, way: by === "output" ? "descending" : "ascending" };
        drawRows();
      },
    ),
  );
}

function drawRows() {
  const shown = rows.filter(passes).sort(comparing(values[sort.by], sort.way));
  const hasGold = rows.some((row) => row.gold !== null && row.gold !== undefined);
  const columns = COLUMNS.filter((column) => hasGold || column.name !== "gold");
  const pick = (next) => {
    sort = next;
    drawRows();
  };
  find("review-count").textContent = `${shown.length} of ${count(rows.length, "rows")} shown`;
  const body = h(
    "tbody",
    {},
    shown.slice(0, limit).map((row) => lines(row, columns)),
  );
  put(
    find("review-table"),
    h(
      "table",
      { class: "review" },
      h("caption", { class: "hidden" }, "Reviewed texts"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map((column) => sortHeading(column, sort, pick)),
        ),
      ),
      body,
    ),
    shown.length > limit
      ? h(
          "p",
          {},
          h(
            "button",
            {
              type: "button",
              onclick: () => {
                limit += AT_ONCE;
                drawRows();
              },
            },
            "Show more",
          ),
        )
      : null,
  );
}

function lines(row, columns) {
  const mark = row.correct === false ? "mistake" : row.correct ? "correct" : "";
  const button = h(
    "button",
    { type: "button", class: "link", "aria-expanded": String(opened.has(row.row)), dir: "auto" },
    row.text,
  );
  const cells = {
    row: () => h("td", { class: "number" }, String(row.row)),
    text: () => h("td", {}, button),
    gold: () => h("td", { "data-label": "gold" }, row.gold ?? ""),
    predicted: () =>
      h(
        "td",
        { "data-label": "predicted" },
        row.predicted ?? row.label,
        mark === "mistake" ? h("span", { class: "tag bad" }, "mistake") : null,
      ),
    output: () => h("td", { class: "number right" }, row.shown ?? percent(row.output)),
  };
  const line = h(
    "tr",
    { class: mark, "data-row": row.row },
    columns.map((column) => cells[column.name]()),
  );
  button.addEventListener("click", () => {
    if (opened.delete(row.row)) line.nextSibling.remove();
    else {
      opened.add(row.row);
      line.after(detail(row, columns.length));
    }
    button.setAttribute("aria-expanded", String(opened.has(row.row)));
  });
  return opened.has(row.row) ? [line, detail(row, columns.length)] : [line];
}

function detail(row, width) {
  const { result } = row;
  const shown = result.rows.word ?? result.rows.token;
  return h(
    "tr",
    { class: "detail" },
    h(
      "td",
      { colspan: width },
      drawWords(shown, { effects: result.effects, tokens: false }),
      drawLegend(result.effects, shown),
      shown.trust ? h("p", { class: "trust" }, shown.trust) : null,
      row.columns?.length
        ? h(
            "dl",
            { class: "facts" },
            row.columns.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
          )
        : null,
      h(
        "button",
        { type: "button", class: "primary explore", onclick: () => explore(asked.model, row.input, result.name) },
        "Explore this text",
      ),
    ),
  );
}
