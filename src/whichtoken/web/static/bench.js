/** The view of a benchmark folder: a table that sorts, curves, agreement, and the texts where two methods disagree most. */

import { get } from "./api.js";
import { drawChart, look, swatch } from "./chart.js";
import { find, h, menu, put } from "./dom.js";
import { output, percent, plain } from "./format.js";
import { comparing, sortHeading } from "./table.js";

const PROMINENT = 6; // lines of a chart that the eye can follow
let data = null;
let sort = null;
let trend = 0;
let shownMethods = [];
let explore = () => {};

/** Shows the folder; `open` is called with (texts, methods) to explore an input of it. */
export async function openBench(open) {
  explore = open;
  if (data) return;
  put(find("bench"), h("p", { class: "quiet" }, "Reading the benchmark …"));
  try {
    data = await get("/api/benchmark");
  } catch (error) {
    put(find("bench"), h("p", { class: "problem", role: "alert" }, error.message));
    return;
  }
  const first = data.columns[0];
  sort = { by: first?.name ?? "method", way: first?.better === "lower" ? "ascending" : "descending" };
  shownMethods = ranked()
    .slice(0, PROMINENT)
    .map((line) => line.method);
  draw();
}

const valueOf = (line, by) => (by === "method" ? line.method : (line.cells[by]?.mean ?? null));
const ranked = () => [...data.lines].sort(comparing((line) => valueOf(line, sort.by), sort.way));

function draw() {
  put(
    find("bench"),
    h("h2", {}, data.title),
    data.verdict ? h("p", { class: "lead" }, data.verdict) : null,
    h(
      "dl",
      { class: "facts" },
      data.facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
    ),
    h("div", { id: "bench-table" }),
    data.legend?.length ? h("p", { class: "quiet" }, data.legend.join(" · ")) : null,
    h(
      "details",
      {},
      h("summary", {}, "How it was measured"),
      data.notes.map((note) => h("p", { class: "quiet" }, note)),
    ),
    data.trends.length ? [h("h3", {}, "Curves"), h("div", { id: "bench-curves" })] : null,
    data.drill ? [h("h3", {}, "Where two methods disagree most"), h("div", { id: "bench-drill" })] : null,
    data.agreement ? [h("h3", {}, "Agreement of the rankings (Kendall's tau)"), agreement()] : null,
    h("p", { class: "quiet" }, h("a", { href: "/benchmark" }, "The whole report as a page of its own")),
  );
  drawTable();
  if (data.trends.length) drawCurves();
  if (data.drill) drawDrill();
}

function drawTable() {
  const pick = (next) => {
    sort = next;
    drawTable();
  };
  const columns = [
    { name: "method", title: "Method" },
    ...data.columns.map((column) => ({
      name: column.name,
      title: column.title,
      about: [column.about, column.better ? `${column.better} is better` : ""].filter(Boolean).join("; "),
      first: column.better === "lower" ? "ascending" : "descending",
      class: "right",
    })),
  ];
  const rows = ranked().map((line) =>
    h(
      "tr",
      { class: line.control ? "control" : "", "data-method": line.method },
      h(
        "th",
        { scope: "row" },
        line.method,
        line.tuned_on_deletion && " *",
        line.control ? h("small", {}, " control") : null,
      ),
      data.columns.map(({ name }) => benchCell(line.cells[name])),
    ),
  );
  put(
    find("bench-table"),
    h(
      "div",
      { class: "box", tabIndex: 0, role: "region", "aria-label": "Scores of the methods" },
      h(
        "table",
        { class: "bench" },
        h("caption", { class: "hidden" }, data.title),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            columns.map((column) => sortHeading(column, sort, pick)),
          ),
        ),
        h("tbody", {}, rows),
      ),
    ),
  );
}

function benchCell(cell) {
  if (!cell) return h("td", { class: "right quiet" }, "–");
  const classes = ["right", cell.best && "best", cell.flattered && "flattered"].filter(Boolean).join(" ");
  return h(
    "td",
    { class: classes, title: cell.about },
    h(
      "span",
      { class: "mean number" },
      cell.close && !cell.best ? "• " : "",
      cell.text,
      cell.best ? h("span", { class: "hidden" }, " best") : null,
    ),
    h("small", { class: "number" }, cell.interval),
  );
}

function drawCurves() {
  const chosen = data.trends[trend];
  const names = data.methods.filter((name) => shownMethods.includes(name) && name in chosen.means);
  const isValue = data.reading === "value";
  const format = (value) => (chosen.metric === "probability" && !isValue ? percent(value, 0) : value.toPrecision(3));
  const series = names.map((name) => ({
    name,
    ...look(data.methods.indexOf(name)),
    xs: chosen.removed,
    ys: chosen.means[name],
  }));
  const bands = names
    .slice(0, 3)
    .filter((name) => chosen.low?.[name])
    .map((name) => ({
      name,
      class: look(data.methods.indexOf(name)).class,
      xs: chosen.removed,
      low: chosen.low[name],
      high: chosen.high[name],
    }));
  const titles = data.trends.map((each, at) => [
    String(at),
    `${each.metric}, ${each.perturbation}, ${each.order === "morf" ? "strongest first" : each.order === "lerf" ? "weakest first" : each.order}`,
  ]);
  const toggle = (name) => {
    shownMethods = shownMethods.includes(name)
      ? shownMethods.filter((other) => other !== name)
      : [...shownMethods, name];
    drawCurves();
  };
  put(
    find("bench-curves"),
    menu("Curve", titles, String(trend), (value) => {
      trend = Number(value);
      drawCurves();
    }),
    drawChart({
      key: "bench",
      label: `${titles[trend][1]}: ${names.join(", ")}`,
      x: { title: "removed" },
      y: { title: chosen.metric, format },
      height: 320,
      series,
      bands,
    }),
    h(
      "div",
      { class: "chips", role: "group", "aria-label": "Methods shown" },
      data.methods.map((name, number) =>
        h(
          "button",
          {
            type: "button",
            class: "chip",
            "data-method": name,
            "data-key": name,
            "aria-pressed": String(shownMethods.includes(name)),
            onclick: () => toggle(name),
          },
          swatch(number),
          " ",
          name,
        ),
      ),
    ),
  );
}

function agreement() {
  const { methods, tau } = data.agreement;
  const shade = (value) => {
    const step = Math.round(20 * value);
    return step > 0 ? `f${step}` : step < 0 ? `a${-step}` : "";
  };
  return h(
    "div",
    { class: "box plain", tabIndex: 0, role: "region", "aria-label": "Agreement of the rankings" },
    h(
      "table",
      { class: "layers tau" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("td", {}),
          methods.map((name) => h("th", { scope: "col" }, h("span", {}, name))),
        ),
      ),
      h(
        "tbody",
        {},
        tau.map((row, at) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, methods[at]),
            row.map((value) =>
              h("td", { class: value === null ? "" : shade(value) }, value === null ? "" : value.toFixed(2)),
            ),
          ),
        ),
      ),
    ),
  );
}

const pair = { first: "", second: "" };

/** Returns the best method that is not another setting of this one. */
function unlike(method) {
  const family = (name) => name.split(/[(@]/)[0];
  const others = ranked().filter((line) => !line.control && family(line.method) !== family(method));
  return (others[0] ?? ranked().find((line) => line.method !== method)).method;
}

function drawDrill() {
  const names = data.methods;
  if (!names.includes(pair.first)) [pair.first] = ranked().map((line) => line.method);
  if (!names.includes(pair.second) || pair.second === pair.first) pair.second = unlike(pair.first);
  const set = (key) => (value) => {
    pair[key] = value;
    drawDrill();
  };
  const list = h("ol", { class: "drill", id: "bench-inputs" });
  put(
    find("bench-drill"),
    h(
      "div",
      { class: "row" },
      menu(
        "First",
        names.map((name) => [name, name]),
        pair.first,
        set("first"),
      ),
      menu(
        "Second",
        names.map((name) => [name, name]),
        pair.second,
        set("second"),
      ),
    ),
    h("p", { class: "quiet", id: "bench-plan", role: "status" }),
    list,
  );
  fillDrill(list, pair.first, pair.second);
}

async function fillDrill(list, first, second) {
  try {
    const found = await get(`/api/benchmark/disagreements?${new URLSearchParams({ first, second, limit: "8" })}`);
    if (!list.isConnected) return;
    find("bench-plan").textContent =
      `The ${found.inputs.length} of ${found.n} inputs with the largest difference of AOPC (${found.plan}).`;
    put(
      list,
      found.inputs.map((input) => drillItem(input, found)),
    );
  } catch (error) {
    put(list, h("li", { class: "problem", role: "alert" }, error.message));
  }
}

function drillItem(input, { first, second }) {
  const series = [
    [first, input.first_curve, 0],
    [second, input.second_curve, 1],
  ].map(([name, ys, number]) => ({ name, ...look(number), xs: input.removed, ys }));
  const isValue = data.reading === "value";
  const curves = drawChart({
    key: `drill ${input.number}`,
    legend: [swatch(0), ` ${first} `, swatch(1), ` ${second}`],
    label: `Curves of ${first} and ${second}`,
    x: { title: "removed" },
    y: {
      title: "probability",
      format: (value) => (isValue ? value.toPrecision(3) : percent(value, 0)),
      ...(isValue ? {} : { low: 0, high: 1 }),
    },
    height: 170,
    series,
  });
  return h(
    "li",
    {},
    h(
      "p",
      { dir: "auto", class: "drill-text" },
      input.text
        ? input.text.join(" / ")
        : h("span", { class: "quiet" }, `row ${input.row}: its text is not in the folder`),
    ),
    h(
      "p",
      { class: "quiet number" },
      `${input.label} ${output(input.whole, data.reading)} · ${first} ${plain(input.first)}, ${second} ${plain(input.second)}, difference ${plain(input.difference)}`,
      Number.isFinite(input.tau) ? ` · tau ${input.tau.toFixed(2)}` : null,
    ),
    curves,
    input.text
      ? h(
          "button",
          { type: "button", class: "explore", onclick: () => explore(input.text, [first, second]) },
          "Explore this text",
        )
      : null,
  );
}
