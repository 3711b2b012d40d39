/** Shows what the model says, before and after words are switched off, and lets the reader explain another label. */

import { find, h, put } from "./dom.js";
import { output, percent } from "./format.js";
import { currentState, explained, leading, model, resultOf, session } from "./session.js";
import { state } from "./state.js";

/** Fills the headline: what is explained, and what the model says with the words that are on. */
export function drawHeadline(place) {
  const part = explained();
  const now = currentState();
  if (!part) {
    const result = resultOf(leading());
    const note = session.prediction?.note || "There is nothing to explain.";
    put(
      place,
      result
        ? h("p", { class: "headline" }, h("b", { class: "label" }, result.head))
        : h("p", { class: "quiet" }, note),
    );
    return;
  }
  const isChanged = state.off.length > 0;
  const isWritten = state.input.kind === "prompt";
  const eyebrow = isWritten
    ? "answer and its log-probability"
    : state.target
      ? "explained"
      : model().targets === "answer"
        ? "answer"
        : "prediction";
  put(
    place,
    h("p", { class: "eyebrow" }, isChanged ? `with ${model().parts} switched off` : eyebrow),
    h(
      "p",
      { class: "headline" },
      h("b", { class: "label", dir: "auto" }, part.label),
      " ",
      h(
        "span",
        { id: "output", class: "number", "data-output": now ? now.output : "" },
        now ? output(now.output, part.reading) : "…",
      ),
    ),
  );
  find("change").textContent = isChanged && now ? changeText(part, now) : "";
}

/** Fills the list of labels that can be explained instead. `retarget` is called with a new target. */
export function drawTargets(place, retarget) {
  const part = explained();
  put(
    place,
    part ? [entities(), labels(currentState(), retarget), contrast(part, retarget), otherTarget(retarget)] : null,
  );
}

function changeText(part, now) {
  const [from, to] = [part.whole, now.output].map((number) => output(number, part.reading));
  if (part.reading === "value") return `was ${from}, now ${to}`;
  const points = 100 * (now.output - part.whole);
  return `was ${from}, now ${to}: ${points >= 0 ? "+" : ""}${points.toFixed(1)} points`;
}

function entities() {
  const parts = session.prediction.explained;
  if (parts.length < 2) return null;
  return h(
    "div",
    { class: "chips", role: "group", "aria-label": "Which part is explained" },
    parts.map((part, at) =>
      h(
        "button",
        {
          type: "button",
          class: "chip",
          "data-part": at,
          "data-key": `part ${at}`,
          "aria-pressed": String(at === state.part),
        },
        part.label,
        " ",
        h("small", {}, part.whole_shown),
      ),
    ),
  );
}

function labels(now, retarget) {
  const shown = now?.labels ?? [];
  if (!shown.length) return null;
  const whole = new Map((session.prediction.whole_labels ?? []).map((each) => [each.label, each.probability]));
  const current = explained().label;
  const list = h("ul", { class: "labels" });
  const order = [...shown].sort((a, b) => (whole.get(b.label) ?? 0) - (whole.get(a.label) ?? 0));
  for (const { label, probability } of order) {
    const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span", {}), h("i", {}));
    bar.firstChild.style.width = `${100 * probability}%`;
    bar.lastChild.style.left = `${100 * (whole.get(label) ?? probability)}%`;
    const about = label === current ? "explained" : `explain ${label} instead`;
    list.append(
      h(
        "li",
        {},
        h(
          "button",
          {
            type: "button",
            class: "target",
            "data-key": `label ${label}`,
            "aria-pressed": String(label === current),
            title: about,
            onclick: () => retarget({ label }),
          },
          h("span", { class: "name" }, label),
          bar,
          h("span", { class: "number" }, percent(probability)),
        ),
      ),
    );
  }
  return [h("h3", {}, "Explain another label"), list];
}

function contrast(part, retarget) {
  const known = model().labels;
  if (!model().contrast || known.length < 2 || known.length > 100) return null;
  const label = state.target?.label ?? part.label.split(" rather than ")[0];
  if (!known.includes(label)) return null; // entities are explained as they were found
  const others = known.filter((each) => each !== label);
  const pick = (event) => retarget(event.target.value ? { label, rather_than: event.target.value } : { label });
  const option = (value, title) => h("option", { value, selected: value === (state.target?.rather_than ?? "") }, title);
  return h(
    "label",
    { class: "contrast" },
    h("span", {}, `Why ${label} rather than`),
    h(
      "select",
      { "data-key": "than", onchange: pick },
      option("", "anything else"),
      others.map((each) => option(each, each)),
    ),
  );
}

function otherTarget(retarget) {
  const isAnswer = model().targets === "answer";
  if (state.input.kind === "prompt" || (!isAnswer && model().labels.length <= 10)) return null;
  const field = h("input", {
    type: "text",
    list: isAnswer ? null : "all-labels",
    placeholder: isAnswer ? "words of the context" : "name of a label",
    autocomplete: "off",
  });
  const list = isAnswer
    ? null
    : h(
        "datalist",
        { id: "all-labels" },
        model().labels.map((label) => h("option", { value: label })),
      );
  const submit = (event) => {
    event.preventDefault();
    if (field.value.trim()) retarget({ label: field.value.trim() });
  };
  return h(
    "form",
    { class: "inline", onsubmit: submit },
    h("label", {}, h("span", {}, isAnswer ? "Explain another answer" : "Explain any label"), field),
    list,
    h("button", {}, "Explain"),
    state.target ? h("button", { type: "button", onclick: () => retarget(null) }, "Back to the prediction") : null,
  );
}
