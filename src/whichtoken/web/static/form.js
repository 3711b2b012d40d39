/** The form: model, kind of input, texts, image, examples. */

import { choice, find, h, menu, put } from "./dom.js";
import { getInfo, modelOf } from "./session.js";

const EXAMPLES = {
  text: [
    { text: "The acting is not great, but the music saves it." },
    { text: "Some of the actors were good, but overall the movie was boring." },
    { text: "It is very slow." },
  ],
  pair: [{ text: "A man plays the guitar on a stage.", pair: "Somebody makes music." }],
  question: [
    {
      question: "Who wrote the letter?",
      context: "The letter was written by Ada in the spring, and Charles read it in July.",
    },
  ],
  prompt: [{ prompt: "The capital of France is" }],
  image: [],
};
const KINDS = { text: "Text", pair: "Two texts", question: "Question", image: "Image", prompt: "Prompt to continue" };
const FIELDS = {
  text: [["text", "Text", "Type or paste a text", 3]],
  pair: [
    ["text", "First text", "for example a premise", 2],
    ["pair", "Second text", "for example a hypothesis", 2],
  ],
  question: [
    ["question", "Question", "What do you want to know?", 1],
    ["context", "Context", "the text that contains the answer", 4],
  ],
  prompt: [
    ["prompt", "Prompt", "The model continues this text", 3],
    ["continuation", "Answer to explain (optional)", "empty: the model writes it", 1],
    ["foil", "Rather than (optional)", "why the answer and not this", 1],
  ],
};

const OPTIONAL = ["continuation", "foil"];

const draft = { model: "", kind: "", values: {}, image: null, token: "" };
let submit = () => {};

/** Draws the form; `ask` is called with (model, input, token) when the reader wants an explanation. */
export function startForm(ask) {
  submit = ask;
  find("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  find("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send();
    }
  });
  draft.model = getInfo().models[0].id;
  draft.kind = modelOf(draft.model).inputs[0];
  draw();
}

/** Shows an input in the form, for example that of a link. */
export function showInput(model, input, token) {
  draft.model = modelOf(model).id;
  draft.kind = input.kind;
  draft.token = token;
  for (const [name] of FIELDS[input.kind] ?? []) draft.values[name] = input[name] ?? "";
  if (input.kind === "image") draft.image = { data: input.data, name: "image" };
  draw();
}

export const firstExample = (model) => {
  const [kind] = model.inputs;
  return EXAMPLES[kind]?.length ? { kind, ...EXAMPLES[kind][0] } : null;
};

export const draftModel = () => modelOf(draft.model);

/** Takes an image that was dropped or chosen. */
export async function takeImage(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (let at = 0; at < bytes.length; at += 32768) binary += String.fromCharCode(...bytes.subarray(at, at + 32768));
  draft.image = { data: btoa(binary), name: file.name };
  draft.kind = "image";
  draw();
  send();
}

/** Returns the input as the server takes it, or what is missing. */
function read() {
  if (draft.kind === "image")
    return draft.image
      ? { input: { kind: "image", data: draft.image.data } }
      : { missing: "Choose or drop an image first." };
  const input = { kind: draft.kind };
  for (const [name, title] of FIELDS[draft.kind] ?? []) {
    const value = draft.values[name] ?? "";
    if (value.trim()) input[name] = value;
    else if (!OPTIONAL.includes(name)) return { missing: `Fill in: ${title.toLowerCase()}.`, field: name };
  }
  return { input };
}

function send() {
  const { input, missing, field } = read();
  complain(missing ?? "", field);
  if (input) submit(draft.model, input, draft.token);
}

function complain(message, field) {
  find("ask-problem").textContent = message;
  if (field) find(`field-${field}`).focus();
}

function draw() {
  const { models } = getInfo();
  const model = modelOf(draft.model);
  if (!model.inputs.includes(draft.kind)) [draft.kind] = model.inputs;
  const pickModel = (id) => {
    draft.model = id;
    draw();
    if (read().missing) find("ask").dispatchEvent(new CustomEvent("model"));
    else send();
  };
  const pickKind = (kind) => {
    draft.kind = kind;
    draw();
  };
  put(
    find("ask-top"),
    model.inputs.length > 1
      ? choice(
          "Kind of input",
          model.inputs.map((kind) => [kind, KINDS[kind] ?? kind]),
          draft.kind,
          pickKind,
        )
      : null,
    models.length > 1
      ? menu(
          "Model",
          models.map((each) => [each.id, each.id]),
          draft.model,
          pickModel,
        )
      : h("p", { class: "quiet model" }, `${model.id} ${model.purpose}`),
  );
  put(
    find("ask-fields"),
    draft.kind === "image" ? imageField() : FIELDS[draft.kind].map(field),
    model.token ? tokenField() : null,
  );
  put(find("examples"), examples());
}

function field([name, title, hint, rows]) {
  const limit = getInfo().limits?.text_characters;
  const area = h("textarea", {
    id: `field-${name}`,
    rows,
    placeholder: hint,
    dir: "auto",
    maxlength: limit,
    spellcheck: "false",
    value: draft.values[name] ?? "",
  });
  area.addEventListener("input", () => (draft.values[name] = area.value));
  return h("label", { class: FIELDS[draft.kind].length > 1 ? "" : "only" }, h("span", {}, title), area);
}

function tokenField() {
  const input = h("input", { type: "text", value: draft.token, placeholder: "all of them", autocomplete: "off" });
  input.addEventListener("input", () => (draft.token = input.value.trim()));
  return h("label", { class: "short" }, h("span", {}, "Word whose label is explained"), input);
}

function imageField() {
  const input = h("input", {
    type: "file",
    class: "hidden",
    accept: "image/png,image/jpeg,image/gif,image/webp,image/bmp",
    onchange: (event) => event.target.files[0] && takeImage(event.target.files[0]),
  });
  return h(
    "label",
    { class: "drop" },
    h("span", {}, draft.image ? draft.image.name : "Drop an image here"),
    h("span", { class: "button" }, "Choose a file"),
    input,
  );
}

function examples() {
  const list = EXAMPLES[draft.kind] ?? [];
  if (!list.length) return null;
  return [
    h("span", { class: "quiet" }, "Try"),
    list.map((example) => {
      const title = Object.values(example)[0];
      const act = () => {
        Object.assign(draft.values, example);
        draw();
        send();
      };
      return h(
        "button",
        { type: "button", class: "example", title, onclick: act },
        title.length > 40 ? `${title.slice(0, 38).trimEnd()}…` : title,
      );
    }),
  ];
}
