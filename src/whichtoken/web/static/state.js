/** Holds what the reader chose, and writes it into the address, so that a link opens the same view. */

const LONGEST = 4000; // characters of an address; longer texts go into a saved file
const TEXTS = ["text", "pair", "question", "context", "prompt", "continuation", "foil"]; // parts of an input that fit into an address

export const START = {
  view: "explain",
  model: "",
  input: null, // as the server takes it; null before anything was explained
  methods: [],
  target: null,
  token: "", // the token to explain, for models that label tokens
  level: "word",
  removal: "",
  method: "", // the method whose words are coloured; "" for the first that has answered
  part: 0, // which entity, for models that label tokens
  answer: -1, // which part of a generated answer; -1 for the whole
  off: [], // positions of tokens that are switched off
  tab: "compare",
};

export const state = { ...START };
const watchers = [];

/** Calls `act` after each change of one of these parts of the state. */
export const watch = (names, act) => watchers.push([names, act]);

/** Changes the state, its address, and whatever watches it. `isNew`: the browser's Back button returns to the old state. */
export function change(parts, isNew = false) {
  const changed = Object.keys(parts).filter((name) => JSON.stringify(state[name]) !== JSON.stringify(parts[name]));
  Object.assign(state, parts);
  if (changed.length) {
    const address = addressOf(state);
    if (isNew) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
  }
  for (const [names, act] of watchers) if (names.some((name) => changed.includes(name))) act();
}

/** Returns the state as the last part of an address; images and long texts are left out. */
export function addressOf(of) {
  const query = new URLSearchParams();
  const set = (name, value) => value !== "" && value !== null && value !== undefined && query.set(name, value);
  if (of.view === "explain" && isLinkable(of)) {
    set("model", of.model);
    set("kind", of.input.kind);
    for (const name of TEXTS) set(name, of.input[name]);
    set("methods", of.methods.join(","));
    if (of.target) set("target", of.target.label);
    if (of.target) set("than", of.target.rather_than);
    set("tokens", of.input.tokens);
    if (of.answer >= 0) set("answer", of.answer);
    set("token", of.token);
    set("method", of.method);
    for (const name of ["level", "removal", "tab"]) if (of[name] !== START[name]) set(name, of[name]);
    if (of.part) set("part", of.part);
    set("off", of.off.join("."));
  }
  const text = query.toString();
  return `#${of.view}${text ? `?${text}` : ""}`;
}

/** Whether the input fits into an address. */
export function isLinkable(of) {
  if (!of.input || of.input.kind === "image") return false;
  return TEXTS.reduce((sum, name) => sum + encodeURIComponent(of.input[name] ?? "").length, 0) <= LONGEST;
}

/** Returns the parts of the state that an address sets. */
export function fromAddress(hash) {
  const [view, text] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const parts = { view: ["explain", "review", "benchmark"].includes(view) ? view : "explain" };
  const query = new URLSearchParams(text ?? "");
  if (!query.has("kind")) return parts;
  const input = { kind: query.get("kind") };
  for (const name of TEXTS) if (query.has(name)) input[name] = query.get(name);
  const numbers = (query.get("off") ?? "")
    .split(".")
    .filter((number) => /^\d+$/.test(number))
    .map(Number);
  if (query.has("tokens")) input.tokens = Number(query.get("tokens")) || 32;
  const [target, than] = ["target", "than"].map((name) => query.get(name));
  return {
    ...START,
    ...parts,
    input,
    model: query.get("model") ?? "",
    methods: (query.get("methods") ?? "").split(",").filter(Boolean),
    target: target === null ? null : { label: target, ...(than === null ? {} : { rather_than: than }) },
    token: query.get("token") ?? "",
    method: query.get("method") ?? "",
    level: query.get("level") ?? START.level,
    removal: query.get("removal") ?? START.removal,
    tab: query.get("tab") ?? START.tab,
    part: Number(query.get("part") ?? 0) || 0,
    answer: Number(query.get("answer") ?? -1),
    off: numbers,
  };
}
