/** The table of reviewed texts: search, filters, mistakes first; each row opens its explanation. */

import { find, h, menu, put } from "./dom.js";
import { count, percent } from "./format.js";
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

/** What the server has said so far. */
export const found = { model: "", rows: [], bad: [], totals: null };

const filters = { search: "", predicted: "", gold: "", decision: "" };
const opened = new Set();
let sort = { by: "mistakes", way: "ascending" };
let limit = AT_ONCE;
let explore = () => {};

/** Sets what happens when a row is explored: `act` is called with (model, input, method). */
export const whenExplored = (act) => (explore = act);

/** Forgets the rows of the file before. */
export function clear(model) {
  Object.assign(found, { model, rows: [], bad: [], totals: null });
  opened.clear();
  limit = AT_ONCE;
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

/** Draws the totals, the filters and the rows. */
export function drawTable() {
  find("review-result").hidden = !found.rows.length && !found.bad.length;
  put(
    find("review-totals"),
    found.totals?.known
      ? [
          h("b", { class: "figure" }, found.totals.accuracy),
          ` correct: ${found.totals.correct} of ${found.totals.known} with a gold label`,
          confusions(),
        ]
      : null,
  );
  drawFilters();
  drawRows();
  put(
    find("review-bad"),
    found.bad.length
      ? h(
          "details",
          {},
          h("summary", {}, `${count(found.bad.length, "rows")} could not be used`),
          h(
            "ul",
            {},
            found.bad.map(({ row, message }) => h("li", {}, `row ${row}: ${message}`)),
          ),
        )
      : null,
  );
}

function confusions() {
  if (!found.totals.confusions.length) return null;
  return h(
    "div",
    { class: "chips", role: "group", "aria-label": "Mistakes by kind" },
    found.totals.confusions.slice(0, 8).map(([gold, predicted, n]) => {
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
    [...new Set(found.rows.map((row) => row[key]).filter((value) => value !== null && value !== undefined))].sort();
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
  const shown = found.rows.filter(passes).sort(comparing(values[sort.by], sort.way));
  const hasGold = found.rows.some((row) => row.gold !== null && row.gold !== undefined);
  const columns = COLUMNS.filter((column) => hasGold || column.name !== "gold");
  const pick = (next) => {
    sort = next;
    drawRows();
  };
  find("review-count").textContent = `${shown.length} of ${count(found.rows.length, "rows")} shown`;
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
        { type: "button", class: "primary explore", onclick: () => explore(found.model, row.input, result.name) },
        "Explore this text",
      ),
    ),
  );
}
