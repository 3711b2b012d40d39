/** Lists the references of Contrast-CAT that survived its refinement. */

import { h, put } from "./dom.js";
import { percent } from "./format.js";
import { answered, resultOf, session } from "./session.js";

/** Fills the tab. */
export function drawReferences(place) {
  const name = answered().find((each) => resultOf(each).references?.length);
  if (!name) {
    put(
      place,
      h(
        "p",
        { class: "quiet" },
        session.progress
          ? "The references appear after the explanation."
          : "Only Contrast-CAT compares the input with references. Add contrast-cat to see the ones it used.",
      ),
    );
    return;
  }
  const all = resultOf(name).references;
  const survived = all.filter((reference) => reference.survived);
  const isStored = all.some((reference) => reference.text);
  put(
    place,
    h(
      "p",
      { class: "quiet intro" },
      `${name} contrasted the input with ${all.length} references of other labels; ${survived.length} survived the refinement and are averaged.${isStored ? "" : " This library does not store their texts."}`,
    ),
    list(survived),
    all.length > survived.length
      ? h(
          "details",
          {},
          h("summary", {}, `${all.length - survived.length} discarded`),
          list(all.filter((reference) => !reference.survived)),
        )
      : null,
  );
}

function list(references) {
  return h(
    "ol",
    { class: "references" },
    references.map(({ text, label, probability, n_tokens: length, drop }) =>
      h(
        "li",
        {},
        h("p", { dir: "auto" }, text ? text.join(" / ") : `a text of ${length} tokens`),
        h(
          "p",
          { class: "quiet number" },
          `${label}, ${percent(probability)} for the explained label`,
          drop === null ? null : ` · drop ${drop.toFixed(2)}`,
        ),
      ),
    ),
  );
}
