/** Sorts the rows of a table by a click on a heading; missing values stay last. */

import { h } from "./dom.js";

/** Returns a heading that sorts. `sort`: { by, way } as now; `pick` is called with the new one. */
export function sortHeading(column, sort, pick) {
  const isSorted = sort.by === column.name;
  const way = isSorted ? (sort.way === "ascending" ? "descending" : "ascending") : (column.first ?? "ascending");
  return h(
    "th",
    { scope: "col", "aria-sort": isSorted ? sort.way : null, class: column.class, title: column.about },
    h(
      "button",
      {
        type: "button",
        "data-column": column.name,
        "data-key": `column ${column.name}`,
        onclick: () => pick({ by: column.name, way }),
      },
      column.title,
    ),
  );
}

/** Returns a function that compares two rows by `value(row)`. */
export function comparing(value, way) {
  const sign = way === "ascending" ? 1 : -1;
  return (one, other) => {
    const [a, b] = [value(one), value(other)];
    const [isNone, isOtherNone] = [a === null || a === undefined, b === null || b === undefined];
    if (isNone || isOtherNone) return isNone - isOtherNone;
    return sign * (typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b);
  };
}
