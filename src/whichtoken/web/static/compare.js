/** Shows the methods side by side on the same words, and as differences. */

import { post } from "./api.js";
import { choice, h, put } from "./dom.js";
import { answered, leading, level, resultOf, rowOf, session } from "./session.js";
import { change, state } from "./state.js";
import { drawOverlay, drawSmall } from "./patches.js";
import { drawWords } from "./words.js";

let mode = "side";

/** Fills the tab. */
export function drawCompare(place) {
  const names = answered();
  const failed = state.methods.filter((name) => session.failed.has(name));
  const waiting = state.methods.filter((name) => !session.results.has(name) && !session.failed.has(name));
  const rows = h("div", { class: "compared" });
  if (mode === "difference" && names.length > 1) differences(rows, names);
  else {
    put(
      rows,
      names.map((name) => line(rowOf(name), name, resultOf(name).effects, rows, () => change({ method: name }))),
    );
    rows.append(
      ...failed.map((name) =>
        h(
          "div",
          { class: "compared-row" },
          h("div", { class: "method" }, name),
          h("p", { class: "problem" }, session.failed.get(name)),
        ),
      ),
    );
    rows.append(
      ...(session.progress ? waiting : []).map((name) =>
        h(
          "div",
          { class: "compared-row waiting" },
          h("div", { class: "method" }, name),
          h("p", { class: "quiet" }, "waiting"),
        ),
      ),
    );
  }
  const pick = (value) => {
    mode = value;
    drawCompare(place);
  };
  put(
    place,
    names.length > 1
      ? choice(
          "How methods are compared",
          [
            ["side", "Side by side"],
            ["difference", "Difference"],
          ],
          mode,
          pick,
        )
      : h("p", { class: "quiet" }, "Add a second method above to compare."),
    rows,
  );
}

/** Returns a row as words, or as an image with its scores: for a method its overlay, for a difference the patches. */
function drawn(row, title, effects, point) {
  const picture = resultOf(leading())?.picture;
  if (!picture) return drawWords(row, { effects, tokens: level() === "token", point });
  const own = resultOf(title)?.picture;
  return own ? drawOverlay(own, title) : drawSmall(row, picture, effects);
}

function line(row, title, effects, rows, choose) {
  if (!row) return null;
  const point = (at) => {
    for (const word of rows.querySelectorAll(".word")) word.classList.toggle("at", Number(word.dataset.place) === at);
  };
  const name = choose
    ? h(
        "button",
        {
          type: "button",
          class: "link",
          "data-key": `method ${title}`,
          "aria-pressed": String(title === leading()),
          title: `${row.about}; click to colour the words above with it`,
          onclick: choose,
        },
        title,
        row.tuned_on_deletion && " *",
      )
    : title;
  return h(
    "div",
    { class: "compared-row" },
    h("div", { class: "method" }, name),
    h(
      "div",
      {},
      drawn(row, title, effects, point),
      row.trust ? h("p", { class: "trust" }, row.trust) : null,
      row.note ? h("p", { class: "quiet" }, row.note) : null,
    ),
  );
}

async function differences(rows, names) {
  const effects = { below: "lower", above: "higher", what: "" };
  const ordered = [leading(), ...names.filter((name) => name !== leading())];
  put(
    rows,
    h(
      "p",
      { class: "quiet" },
      `${ordered[0]} minus each other method, in shares of the strongest word: orange where ${ordered[0]} gives the word more support.`,
    ),
  );
  try {
    const { panels } = await post("/api/render", {
      records: ordered.map((name) => resultOf(name).record),
      level: level(),
      differences: true,
    });
    rows.append(...panels.flatMap((panel) => panel.differences.map((row) => line(row, row.name, effects, rows, null))));
  } catch (error) {
    rows.append(h("p", { class: "problem", role: "alert" }, error.message));
  }
}
