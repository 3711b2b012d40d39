/** Draws removal curves: what the model says while words go, in the order of each method, against random and the best order. */

import { drawChart, look, swatch } from "./chart.js";
import { h, put } from "./dom.js";
import { output, plain } from "./format.js";
import { answered, currentCurves, currentState, explained, leading, model, run, session, visited } from "./session.js";

const isValue = () => explained()?.reading === "value";
const yAxis = () => ({
  title: isValue() ? "value" : "probability",
  format: (value) => (isValue() ? value.toPrecision(3) : `${Math.round(100 * value)} %`),
  ...(isValue() ? {} : { low: 0, high: 1 }),
});
const xAxis = () => ({ title: `${model().parts} removed` });

/** Fills the small chart beside the words: the curve of the leading method and the states that the reader tried. */
export function drawTried(place) {
  const curves = currentCurves();
  const own = curves?.methods.get(leading());
  const now = currentState();
  const points = visited().map((tried) => ({
    x: tried.removed,
    y: tried.output,
    name: `${tried.off.length ? `${tried.off.length} tokens off` : "the whole input"}: ${output(tried.output, explained()?.reading)}`,
    class: tried === now ? "now" : "",
    r: tried === now ? 6 : 3.5,
  }));
  const series = own
    ? [{ name: `${leading()}, strongest first`, ...look(0), xs: own.morf.removed, ys: own.morf.outputs }]
    : [];
  const bands = curves?.band
    ? [
        {
          name: "random orders",
          class: "random",
          xs: curves.band.removed,
          low: curves.band.low,
          high: curves.band.high,
        },
      ]
    : [];
  const legend = [
    own ? [swatch(0), ` ${leading()} order `] : null,
    bands.length ? [h("i", { class: "key random" }), " random orders "] : null,
    h("i", { class: "key tried" }),
    " tried by you",
  ];
  const spec = {
    key: "tried",
    legend,
    label: `Deletion curve of ${leading() || "no method yet"} and ${points.length} states tried by hand`,
    x: xAxis(),
    y: yAxis(),
    height: 190,
    series,
    bands,
    points,
  };
  put(place, drawChart(spec));
}

/** Fills the tab with the curves of all methods. */
export function drawCurves(place) {
  const curves = currentCurves();
  if (!curves) {
    put(
      place,
      h(
        "p",
        { class: "quiet" },
        session.noCurves ||
          (session.progress
            ? "The curves appear after the explanations."
            : "There are no curves yet; explain an input first."),
      ),
    );
    return;
  }
  const names = answered().filter((name) => curves.methods.has(name));
  put(
    place,
    h(
      "p",
      { class: "quiet intro" },
      `How the ${isValue() ? "value" : "probability"} changes as ${model().parts} are removed. A faithful order makes it fall fast when the strongest go first (MoRF), and stay high when the weakest go first (LeRF).`,
    ),
    h(
      "div",
      { class: "pair" },
      chartOf(curves, names, "morf", "Strongest first (MoRF)"),
      chartOf(curves, names, "lerf", "Weakest first (LeRF)"),
    ),
    table(curves, names),
    boundsLine(curves),
  );
}

function chartOf(curves, names, order, title) {
  const { band, bounds } = curves;
  const series = names.map((name, number) => ({
    name,
    ...look(number),
    xs: curves.methods.get(name)[order].removed,
    ys: curves.methods.get(name)[order].outputs,
  }));
  if (bounds)
    series.push({
      name: order === "morf" ? "best possible" : "best possible (keeps most)",
      class: "best",
      dash: "",
      xs: bounds.removed,
      ys: order === "morf" ? bounds.best : bounds.worst,
    });
  const bands = band
    ? [{ name: "random orders", class: "random", xs: band.removed, low: band.low, high: band.high }]
    : [];
  return h(
    "section",
    {},
    h("h4", {}, title),
    drawChart({ key: order, label: `${title}: ${names.join(", ")}`, x: xAxis(), y: yAxis(), series, bands }),
  );
}

function table(curves, names) {
  const normalised = curves.bounds?.normalised ?? {};
  const head = h(
    "tr",
    {},
    ["method", "MoRF AOPC", "normalised", "LeRF AOPC", "normalised"].map((title) => h("th", { scope: "col" }, title)),
  );
  const rows = names.map((name, number) => {
    const { morf, lerf, tuned_on_deletion: tuned, method } = curves.methods.get(name);
    const scaled = normalised[method] ?? normalised[name] ?? {};
    return h(
      "tr",
      {},
      h(
        "th",
        { scope: "row" },
        swatch(number),
        " ",
        name,
        tuned && h("abbr", { title: "tuned on the deletion curve: its deletion scores flatter it" }, " *"),
      ),
      [morf.aopc, scaled.morf ?? morf.normalised, lerf.aopc, scaled.lerf ?? lerf.normalised].map((value) =>
        h("td", {}, value === null || value === undefined ? "–" : plain(value)),
      ),
    );
  });
  if (curves.band)
    rows.push(
      h(
        "tr",
        {},
        h("th", { scope: "row" }, h("i", { class: "key random" }), ` random orders (${curves.band.n})`),
        [curves.band.aopc, curves.bounds?.random].map((value) =>
          h("td", {}, value === null || value === undefined ? "–" : plain(value)),
        ),
        h("td", {}, "–"),
        h("td", {}, "–"),
      ),
    );
  if (curves.bounds)
    rows.push(
      h(
        "tr",
        {},
        h(
          "th",
          { scope: "row" },
          h("i", { class: "key best" }),
          curves.bounds.exact ? " best possible" : " best order found",
        ),
        [curves.bounds.upper, 1, curves.bounds.lower, 0].map((value) => h("td", {}, plain(value))),
      ),
    );
  return h(
    "div",
    { class: "box", tabIndex: 0, role: "region", "aria-label": "Scores of the curves" },
    h(
      "table",
      { class: "scores" },
      h("caption", {}, "MoRF: high is good. LeRF: low is good. Normalised: 0 is the worst possible order, 1 the best."),
      h("thead", {}, head),
      h("tbody", {}, rows),
    ),
  );
}

function boundsLine(curves) {
  const tuned = [...curves.methods.values()].some((curve) => curve.tuned_on_deletion);
  const note = tuned
    ? h("p", { class: "quiet" }, "* tuned on the deletion curve: its deletion scores flatter it.")
    : null;
  if (session.noCurves) return [h("p", { class: "problem" }, session.noCurves), note];
  if (curves.bounds || session.progress) return note;
  return [h("p", {}, h("button", { type: "button", onclick: run }, "Find the best possible order")), note];
}
