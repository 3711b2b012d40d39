/** The list of methods: those chosen as chips, all of them in a dialog. */

import { find, h, put } from "./dom.js";

const dialog = () => find("methods-dialog");

/** Draws the chosen methods. `model`: facts of the model; `pick` is called with the new list of names. */
export function drawChosen(place, model, chosen, pick) {
  const chips = chosen.map((name) =>
    h(
      "span",
      { class: "chip" },
      name,
      chosen.length > 1
        ? h(
            "button",
            {
              type: "button",
              "aria-label": `Remove ${name}`,
              onclick: () => pick(chosen.filter((other) => other !== name)),
            },
            "×",
          )
        : null,
    ),
  );
  put(
    place,
    h("span", { class: "quiet" }, "Methods"),
    chips,
    h("button", { type: "button", class: "quietly", onclick: () => open(model, chosen, pick) }, "Choose methods"),
  );
}

function open(model, chosen, pick) {
  const names = new Set(chosen);
  const filter = h("input", {
    type: "search",
    placeholder: "Search methods",
    "aria-label": "Search methods",
    autocomplete: "off",
  });
  const groups = [
    ["fast", "Answer at once"],
    ["slow", "Evaluate many inputs; with progress"],
  ].map(([cost, title]) => {
    const items = model.methods.filter((method) => method.cost === cost).map((method) => item(method, names));
    return items.length ? h("fieldset", {}, h("legend", {}, title), items) : null;
  });
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const each of dialog().querySelectorAll(".method-item"))
      each.hidden = !each.textContent.toLowerCase().includes(wanted);
  });
  const close = () => dialog().close();
  const apply = () => {
    close();
    const kept = chosen.filter((name) => names.has(name));
    const added = [...names].filter((name) => !chosen.includes(name));
    if (kept.length + added.length) pick([...kept, ...added]);
  };
  put(
    dialog(),
    h("header", {}, h("h2", { id: "methods-title" }, "Methods"), filter),
    h("div", { class: "method-list", tabIndex: 0, role: "region", "aria-label": "All methods" }, groups),
    h(
      "footer",
      {},
      h("p", { class: "quiet" }, "* tuned on the deletion curve"),
      h("button", { type: "button", onclick: close }, "Cancel"),
      h("button", { type: "button", class: "primary", onclick: apply }, "Use these"),
    ),
  );
  dialog().showModal();
  filter.focus();
}

function item(method, names) {
  const box = h("input", {
    type: "checkbox",
    value: method.name,
    checked: isChosen(method, names),
    disabled: Boolean(method.cannot_run),
  });
  const preset = method.presets?.length
    ? h(
        "select",
        { "aria-label": `Settings of ${method.name}`, disabled: Boolean(method.cannot_run) },
        [["", "usual settings"], ...method.presets.map((name) => [`@${name}`, name])].map(([value, title]) =>
          h("option", { value, selected: names.has(method.name + value) && Boolean(value) }, title),
        ),
      )
    : null;
  const update = () => {
    for (const name of [...names]) if (name.split("@")[0] === method.name) names.delete(name);
    if (box.checked) names.add(method.name + (preset?.value ?? ""));
  };
  box.addEventListener("change", update);
  preset?.addEventListener("change", () => {
    box.checked = true;
    update();
  });
  return h(
    "div",
    { class: `method-item${method.cannot_run ? " off" : ""}` },
    h(
      "label",
      {},
      box,
      h(
        "span",
        {},
        h("b", {}, method.name, method.tuned_on_deletion && " *"),
        h("small", {}, method.about, method.paper ? ` · ${method.paper}` : ""),
        method.cannot_run ? h("small", { class: "reason" }, method.cannot_run) : null,
      ),
    ),
    preset,
  );
}

const isChosen = (method, names) => [...names].some((name) => name.split("@")[0] === method.name);
