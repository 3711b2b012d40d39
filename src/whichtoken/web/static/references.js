/** Lists the references of Contrast-CAT that survived its refinement. */

import { h, put } from "./dom.js";
import { percent } from "./format.js";
import { answered, resultOf } from "./session.js";

export const hasReferences = () => answered().some((name) => resultOf(name).references?.length);

/** Fills the tab. */
export function drawReferences(place) {
  const name = answered().find((each) => resultOf(each).references?.length);
  if (!name) {
    put(
      place,
      h(
        "p",
        { class: "quiet" },
        "Only Contrast-CAT compares the input with references. Add contrast-cat to see the ones it used.",
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
    h(
      "ol",
      { class: "references" },
      [...survived, ...all.filter((reference) => !reference.survived)].map((reference) =>
        h(
          "li",
          { class: reference.survived ? "" : "dropped" },
          h(
            "p",
            { dir: "auto" },
            reference.text
              ? reference.text.join(" / ")
              : h("span", { class: "quiet" }, `a text of ${reference.n_tokens} tokens`),
          ),
          h(
            "p",
            { class: "quiet number" },
            `${reference.label}, ${percent(reference.probability)} for the explained label`,
            reference.drop === null ? null : ` · drop ${reference.drop.toFixed(2)}`,
            reference.survived ? null : " · discarded",
          ),
        ),
      ),
    ),
  );
}
