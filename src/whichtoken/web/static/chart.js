/** Draws line charts by hand as SVG, at the width of their place, with the numbers as a table beside them. */

import { h, put, svg } from "./dom.js";

const SIDE = { left: 46, right: 14, top: 12, bottom: 38 };
const DASHES = ["", "7 4", "2 3", "9 3 2 3", "5 2 1 2 1 2", "12 4"];

/** The class and dash of the line with this number: colour is never the only difference. */
export const look = (number) => ({ class: `c${(number % 6) + 1}`, dash: DASHES[Math.floor(number / 6 + number) % 6] });

/** Returns the small line that stands for a series in a legend. */
export function swatch(number) {
  const { class: name, dash } = look(number);
  return svg(
    "svg",
    { class: `swatch ${name}`, width: 28, height: 10, "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 27, y1: 5, y2: 5, "stroke-dasharray": dash }),
  );
}

const widths = new Map(); // of charts that were drawn before, by key: drawn again, they do not blink
const opened = new Set(); // keys of charts whose numbers are open

/**
 * Returns a figure that redraws itself when its width changes.
 * `spec`: { key, label, legend, x: {title, format}, y: {title, format, low, high}, height,
 *   series: [{name, class, dash, xs, ys}], bands: [{name, class, xs, low, high}], points: [{x, y, name, class, r}], path: bool }
 */
export function drawChart(spec) {
  const canvas = h("div", { class: "canvas" });
  const readout = h("p", { class: "chart-readout number", "aria-hidden": "true" });
  const figure = h(
    "figure",
    { class: "chart" },
    canvas,
    readout,
    h(
      "div",
      { class: "chart-foot" },
      spec.legend ? h("p", { class: "keyline quiet" }, spec.legend) : null,
      numbers(spec),
    ),
  );
  let width = widths.get(spec.key) ?? 0;
  if (width) put(canvas, paint(spec, width, readout));
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now === width || now === 0) return;
    width = now;
    widths.set(spec.key, width);
    put(canvas, paint(spec, width, readout));
  }).observe(canvas);
  return figure;
}

function scales(spec, width) {
  const height = spec.height ?? 260;
  const values = [
    ...spec.series.flatMap((line) => line.ys),
    ...(spec.bands ?? []).flatMap((band) => [...band.low, ...band.high]),
    ...(spec.points ?? []).map((point) => point.y),
  ].filter(Number.isFinite);
  const [low, high] = [spec.y.low, spec.y.high].includes(undefined)
    ? round(Math.min(...values, 0), Math.max(...values, 1e-9))
    : [spec.y.low, spec.y.high];
  const x = (value) => SIDE.left + value * (width - SIDE.left - SIDE.right);
  const y = (value) => height - SIDE.bottom - ((value - low) / (high - low)) * (height - SIDE.top - SIDE.bottom);
  return { x, y, low, high, height };
}

/** Returns bounds that contain these, and that four equal steps divide into round numbers. */
function round(low, high) {
  const rough = (high - low) / 4;
  const unit = 10 ** Math.floor(Math.log10(rough));
  for (const factor of [1, 2, 2.5, 5, 10, 20]) {
    const step = factor * unit;
    const first = Math.floor(low / step + 1e-9) * step;
    if (first + 4 * step >= high - 1e-9) return [first, first + 4 * step];
  }
  return [low, high];
}

function paint(spec, width, readout) {
  const { x, y, low, high, height } = scales(spec, width);
  const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spec.label });
  for (let step = 0; step <= 4; step += 1) {
    const value = low + ((high - low) * step) / 4;
    root.append(
      svg("line", { class: step ? "grid" : "axis", x1: SIDE.left, x2: width - SIDE.right, y1: y(value), y2: y(value) }),
    );
    root.append(
      svg("text", { class: "tick", x: SIDE.left - 7, y: y(value) + 4, "text-anchor": "end" }, spec.y.format(value)),
    );
  }
  for (let step = 0; step <= 4; step += 1) {
    const anchor = step === 4 ? "end" : step ? "middle" : "start";
    root.append(
      svg(
        "text",
        { class: "tick", x: x(step / 4), y: height - SIDE.bottom + 16, "text-anchor": anchor },
        `${25 * step} %`,
      ),
    );
  }
  root.append(svg("text", { class: "title", x: SIDE.left, y: height - 4 }, spec.x.title));
  for (const band of spec.bands ?? []) root.append(svg("path", { class: `band ${band.class}`, d: area(band, x, y) }));
  for (const line of spec.series)
    root.append(
      svg("path", { class: `line ${line.class}`, d: trace(line.xs, line.ys, x, y), "stroke-dasharray": line.dash }),
    );
  if (spec.path)
    root.append(
      svg("path", {
        class: "trail",
        d: trace(
          spec.points.map((point) => point.x),
          spec.points.map((point) => point.y),
          x,
          y,
        ),
      }),
    );
  for (const point of spec.points ?? [])
    root.append(
      svg(
        "circle",
        { class: `point ${point.class}`, cx: x(point.x), cy: y(point.y), r: point.r },
        svg("title", {}, point.name),
      ),
    );
  follow(root, spec, { x, width, height }, readout);
  return root;
}

const trace = (xs, ys, x, y) =>
  xs.map((value, at) => `${at ? "L" : "M"}${x(value).toFixed(1)} ${y(ys[at]).toFixed(1)}`).join("");

function area(band, x, y) {
  const back = [...band.xs].reverse();
  return `${trace(band.xs, band.high, x, y)}${trace(back, [...band.low].reverse(), x, y).replace("M", "L")}Z`;
}

/** Shows the values below the pointer. */
function follow(root, spec, { x, height }, readout) {
  const cursor = svg("line", { class: "cursor", y1: SIDE.top, y2: height - SIDE.bottom, visibility: "hidden" });
  root.append(cursor);
  root.addEventListener("pointermove", (event) => {
    const at = Math.max(0, Math.min(1, (event.clientX - root.getBoundingClientRect().left - x(0)) / (x(1) - x(0))));
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    cursor.setAttribute("visibility", "visible");
    const parts = spec.series.map((line) => `${line.name} ${spec.y.format(between(line, at))}`);
    put(readout, h("span", {}, `${Math.round(100 * at)} % removed: ${parts.join(" · ")}`));
  });
  root.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    put(readout);
  });
}

function between({ xs, ys }, at) {
  const after = xs.findIndex((value) => value >= at);
  if (after <= 0) return ys[Math.max(after, 0)];
  const share = (at - xs[after - 1]) / (xs[after] - xs[after - 1] || 1);
  return ys[after - 1] + share * (ys[after] - ys[after - 1]);
}

/** Returns the numbers of a chart as a table that can be opened; it is also what a screen reader reads. */
function numbers(spec) {
  const details = h("details", { class: "numbers" }, h("summary", {}, "Numbers"));
  details.addEventListener("toggle", () => {
    if (details.open) opened.add(spec.key);
    else opened.delete(spec.key);
    if (!details.open || details.querySelector("table")) return;
    const lines = [
      ...spec.series,
      ...(spec.bands ?? []).flatMap((band) => [
        { name: `${band.name}, 5 %`, xs: band.xs, ys: band.low },
        { name: `${band.name}, 95 %`, xs: band.xs, ys: band.high },
      ]),
    ];
    const rows = lines.map((line) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, line.name),
        Array.from({ length: 11 }, (_, step) => h("td", {}, spec.y.format(between(line, step / 10)))),
      ),
    );
    for (const point of spec.points ?? [])
      rows.push(
        h(
          "tr",
          {},
          h("th", { scope: "row" }, point.name),
          h("td", { colspan: 11 }, `${Math.round(100 * point.x)} % removed: ${spec.y.format(point.y)}`),
        ),
      );
    const head = h(
      "tr",
      {},
      h("th", { scope: "col" }, spec.x.title),
      Array.from({ length: 11 }, (_, step) => h("th", { scope: "col" }, `${10 * step} %`)),
    );
    details.append(
      h(
        "div",
        { class: "box", tabIndex: 0, role: "region", "aria-label": spec.label },
        h("table", { class: "small" }, h("thead", {}, head), h("tbody", {}, rows)),
      ),
    );
  });
  details.open = opened.has(spec.key);
  return details;
}
