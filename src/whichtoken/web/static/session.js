/** Holds what the server said about the current input (prediction, explanations, curves), and asks it for more. */

import { post, stream } from "./api.js";
import { change, state } from "./state.js";

const RANDOM_ORDERS = 20;
const watchers = [];
let job = null; // AbortController of the running job
let asking = null; // AbortController of the running prediction
let info = { models: [] };

export let session = empty("");

function empty(key) {
  return {
    key,
    prediction: null, // answer of /api/predict for the whole input
    results: new Map(), // method -> one RESULT for each part
    failed: new Map(), // method -> message
    states: new Map(), // which tokens are off -> what the model says then
    trail: [], // the states that were visited, oldest first
    curves: null, // { key, methods, band, bounds }
    noCurves: "", // why there are none
    progress: null, // { what, done, of, position } while a job runs
    error: "",
  };
}

/** Calls `act` after each event with one of these names: reset, result, progress, state, curves, error. */
export const listen = (names, act) => watchers.push([names, act]);

function tell(name) {
  for (const [names, act] of watchers) if (names.includes(name)) act();
}

export const setInfo = (found) => (info = found);
export const getInfo = () => info;
export const modelOf = (id) => info.models.find((model) => model.id === id) ?? info.models[0];
export const model = () => modelOf(state.model);
export const methodFacts = (name) => model().methods.find((method) => method.name === name.split("@")[0]);

const keyOf = () => JSON.stringify([model().id, state.input, state.target, state.token]);

const request = (more) => ({
  model: model().id,
  input: state.input,
  target: state.target,
  token: state.token || null,
  ...more,
});

export const removal = () => (model().removals.includes(state.removal) ? state.removal : model().removals[0]);
export const level = () => (model().levels.includes(state.level) ? state.level : model().levels[0]);

/** Returns the explained part: the only one, or the chosen entity. */
export const explained = () => session.prediction?.explained[state.part] ?? session.prediction?.explained[0] ?? null;

/** Returns the names of methods that have answered, in the order chosen. */
export const answered = () => state.methods.filter((name) => session.results.has(name));

/** Returns the method whose words are coloured, or "" if none has answered. */
export function leading() {
  const ready = answered();
  return ready.includes(state.method) ? state.method : (ready[0] ?? "");
}

export const resultOf = (method) => {
  const results = session.results.get(method) ?? [];
  return results[state.part] ?? results[0] ?? null;
};

/** Returns the words with the scores of a method: for the whole output, or for the chosen part of a generated answer. */
export function rowOf(method) {
  const result = resultOf(method);
  return (result?.answer?.parts[state.answer] ?? result)?.rows[level()] ?? null;
}

/** Returns the words to draw: with the scores of the leading method, or without scores until one has answered. */
export function currentRow() {
  const row = leading() && rowOf(leading());
  if (row) return row;
  const cells = explained()?.cells ?? [];
  return {
    name: "",
    cells: cells.map((cell) => ({ score: null, share: 0, shade: "", interval: null, uncertain: false, ...cell })),
    trust: "",
    note: "",
  };
}

export const stateKey = (off) => JSON.stringify([state.part, removal(), level(), off]);
export const currentState = () => session.states.get(stateKey(state.off)) ?? null;

/** Explains the input with the chosen methods; what is known already is not asked again. */
export async function run() {
  job?.abort();
  const mine = (job = new AbortController());
  try {
    if (session.key !== keyOf() || !session.prediction) await predictWhole(mine.signal);
    if (state.off.length) askState();
    await explainMissing(mine.signal);
    if (answered().length) await askCurves(state.tab === "curves", mine);
  } catch (error) {
    if (error.name !== "AbortError") fail(error);
  } finally {
    if (job === mine) finish();
  }
}

function finish() {
  job = null;
  session.progress = null;
  tell("progress");
}

function fail(error) {
  session.error = error.message;
  tell("error");
}

/** Stops the running job. */
export function cancel() {
  job?.abort();
  finish();
}

async function predictWhole(signal) {
  const fresh = empty(keyOf());
  if (session.key === fresh.key) fresh.results = session.results; // of an opened file
  session.progress = { what: "prediction", done: 0, of: 1, position: 0 };
  session.error = "";
  tell("progress");
  try {
    fresh.prediction = await post("/api/predict", request({ level: level(), removal: removal(), off: [] }), signal);
  } catch (error) {
    if (error.name !== "AbortError" && session.key !== fresh.key) {
      session = fresh;
      session.key = ""; // asked again at the next try
      tell("reset");
    }
    throw error;
  }
  session = fresh;
  const parts = fresh.prediction.explained.length;
  if (state.part >= parts) change({ part: 0 });
  keepState([], fresh.prediction);
  tell("reset");
}

async function explainMissing(signal) {
  for (const name of state.methods) {
    const reason = methodFacts(name)?.cannot_run;
    if (reason) session.failed.set(name, reason);
  }
  const missing = state.methods.filter((name) => !session.results.has(name) && !session.failed.has(name));
  if (!missing.length || !session.prediction?.explained.length) return;
  const into = session;
  into.progress = { what: missing[0], done: 0, of: missing.length, position: 0 };
  tell("progress");
  for await (const [event, data] of stream("/api/explain", request({ methods: missing, layers: true }), signal)) {
    if (event === "result") {
      const results = into.results.get(data.method) ?? [];
      results[data.part] = data.result;
      into.results.set(data.method, results);
      tell("result");
    } else if (event === "failed") {
      into.failed.set(data.method, data.error.message);
      tell("result");
    } else if (event === "nothing") {
      into.error = data.note;
      tell("error");
    } else note(into, event, data);
  }
}

function note(into, event, data) {
  if (event === "queued") into.progress = { ...into.progress, position: data.position };
  else if (event === "started") into.progress = { ...into.progress, position: 0 };
  else if (event === "progress") into.progress = { ...into.progress, ...data };
  else return;
  tell("progress");
}

/** Asks what the model says with some tokens off, and shows it. */
export async function askState() {
  const off = [...state.off];
  const key = stateKey(off);
  asking?.abort();
  if (session.states.has(key)) {
    visit(key);
    return;
  }
  asking = new AbortController();
  const into = session;
  try {
    const answer = await post("/api/predict", request({ level: level(), removal: removal(), off }), asking.signal);
    if (into !== session) return;
    keepState(off, answer);
  } catch (error) {
    if (error.name !== "AbortError") fail(error);
  }
}

function keepState(off, answer) {
  const part = answer.explained[state.part] ?? answer.explained[0];
  if (!part) return;
  const key = stateKey(off);
  const labels = off.length ? answer.labels : answer.whole_labels;
  session.states.set(key, {
    off,
    output: off.length ? part.outputs[0] : part.whole,
    removed: off.length ? part.removed[0] : 0,
    shown: off.length ? part.shown[0] : part.whole_shown,
    labels,
  });
  visit(key);
}

function visit(key) {
  if (session.trail.at(-1) !== key) session.trail.push(key);
  tell("state");
}

/** Returns the visited states that belong to the present part, level and removal, oldest first, each once. */
export function visited() {
  const keys = [...new Set(session.trail)].filter((key) => stateKey(session.states.get(key).off) === key);
  return keys.map((key) => session.states.get(key));
}

const curvesKey = () => JSON.stringify([state.part, removal(), level()]);

/** Returns the curves that belong to what is shown now, or null. */
export const currentCurves = () => (session.curves?.key === curvesKey() ? session.curves : null);

/** Asks for the removal curves of all methods that have answered, with the best possible order if `bounds`. */
async function askCurves(bounds, mine) {
  const names = answered();
  const known = currentCurves();
  if (known && names.every((name) => known.methods.has(name)) && (known.bounds || !bounds)) return;
  const into = session;
  const records = names.map((name) => resultOf(name).record);
  const found = { key: curvesKey(), methods: new Map(), band: known?.band ?? null, bounds: known?.bounds ?? null };
  const body = { model: model().id, records, level: level(), removal: removal(), random: RANDOM_ORDERS, bounds };
  into.progress = {
    what: bounds ? "curves and the best possible order" : "curves",
    done: 0,
    of: names.length,
    position: 0,
  };
  into.noCurves = "";
  try {
    await readCurves(stream("/api/curves", body, mine.signal), into, found);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    into.noCurves = error.message;
    tell("curves");
  }
}

async function readCurves(events, into, found) {
  const names = answered();
  for await (const [event, data] of events) {
    if (event === "curve")
      found.methods.set(
        names.find((name) => !found.methods.has(name) && sameMethod(name, data.method)) ?? data.method,
        data,
      );
    else if (event === "band") found.band = data;
    else if (event === "bounds") found.bounds = data;
    else note(into, event, data);
    const isShown = into.curves?.key !== found.key || names.every((name) => found.methods.has(name));
    if (isShown && ["curve", "band", "bounds"].includes(event)) {
      into.curves = found;
      tell("curves");
    }
  }
}

const sameMethod = (asked, answer) =>
  answer === asked || answer === asked.split("@")[0] || resultOf(asked)?.name === answer;

/** Shows results of a saved file or of a table, without asking the server again. */
export function adopt(results, prediction) {
  job?.abort();
  session = empty(results.length ? keyOf() : "");
  session.prediction = prediction;
  for (const { method, part, result } of results) {
    const of = session.results.get(method) ?? [];
    of[part] = result;
    session.results.set(method, of);
  }
  if (prediction) keepState([], prediction);
  tell("reset");
}
