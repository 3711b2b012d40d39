/** Shows what a language model wrote; a click on a part of it colours the words that led to this part. */

import { h, put } from "./dom.js";
import { change, state } from "./state.js";

/** Fills the place of the answer; `answer` is null for models that do not write. */
export function drawAnswer(place, answer) {
  if (!answer) {
    put(place);
    return;
  }
  const button = (at, text, about) =>
    h(
      "button",
      {
        type: "button",
        class: "answer-part",
        "data-key": `answer ${at}`,
        "aria-pressed": String(at === state.answer),
        title: about,
        onclick: () => change({ answer: at }),
      },
      text,
    );
  put(
    place,
    h(
      "p",
      { class: "eyebrow", id: "answer-title" },
      answer.is_given
        ? "the given answer; click a part to see what led to it"
        : "the model wrote; click a part to see what led to it",
    ),
    h(
      "div",
      { class: "answer", dir: "auto", role: "group", "aria-labelledby": "answer-title" },
      button(-1, "whole answer", "what led to the answer as a whole"),
      answer.parts.map((part, at) => button(at, part.text.trim() || part.text, `probability ${part.shown}`)),
    ),
  );
}
