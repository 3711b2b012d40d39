"use strict";
// Rows are moved, never rebuilt from strings, so user content cannot become markup.
const table = document.querySelector("table.bench");
const headers = [...table.tHead.rows[0].cells];

function valueOf(row, column, kind) {
  const value = row.cells[column].dataset.value;
  if (kind === "text") return value;
  return value === undefined || Number.isNaN(Number(value)) ? null : Number(value);
}

function compare(a, b, kind) {
  return kind === "text" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
}

function sort(header) {
  const { kind, first = "ascending" } = header.dataset;
  const column = headers.indexOf(header);
  const turned = { ascending: "descending", descending: "ascending" };
  const way = turned[header.getAttribute("aria-sort")] ?? first;
  const sign = way === "ascending" ? 1 : -1;
  const body = table.tBodies[0];
  const pairs = [...body.rows].map((row) => [valueOf(row, column, kind), row]);
  // Missing values come last in both directions.
  pairs.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b, kind)));
  body.append(...pairs.map(([, row]) => row));
  for (const other of headers) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", way);
}

// Buttons are created here, so that there are none if scripts are disabled.
for (const header of headers) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...header.childNodes);
  button.addEventListener("click", () => sort(header));
  header.append(button);
}
document.querySelector(".sorting").hidden = false;
