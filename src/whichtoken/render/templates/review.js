"use strict";
// Texts, labels and names enter the page as text nodes and attribute values, never as markup.
const page = JSON.parse(document.getElementById("data").textContent);
const AT_ONCE = 40; // texts drawn before the reader scrolls
const STEPS = 20; // shades on each side, as in palette.py
const find = (id) => document.getElementById(id);
const feed = find("texts");
const controls = ["search", "sort", "method", "numbers", "predicted", "gold", "decision", "low", "high"];
const used = Object.fromEntries(controls.map((id) => [id, find(id)]));
const cards = new Map(); // texts that were drawn before
let shown = []; // texts that pass the filters, in order
let current = null; // the text that the keyboard is at

for (const text of page.texts) text.found = `${text.words.join("")}\n${text.id ?? ""}`.toLowerCase();

function make(tag, name, ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...children);
  return element;
}

// --- which texts are shown ---

const valueOf = (id) => used[id]?.value ?? "";
const numberOf = (id) => (valueOf(id) === "" ? null : Number(valueOf(id)) / (page.values ? 1 : 100));

function passes() {
  const words = valueOf("search").toLowerCase().split(/\s+/).filter(Boolean);
  const [low, high] = [numberOf("low"), numberOf("high")];
  const [predicted, gold, decision] = ["predicted", "gold", "decision"].map(valueOf);
  return (text) =>
    words.every((word) => text.found.includes(word)) &&
    (!predicted || `=${text.predicted}` === predicted) &&
    (!gold || (text.correct !== null && `=${text.gold}` === gold)) &&
    (!decision || text.correct === (decision === "right")) &&
    (low === null || text.measure >= low) &&
    (high === null || text.measure <= high);
}

function dropOf(text) {
  const views = methods().map((method) => viewOf(text, text.main, method));
  return Math.max(...views.map((view) => view?.drop ?? -Infinity));
}

const orders = {
  mistakes: (a, b) => (a.correct === false ? 0 : 1) - (b.correct === false ? 0 : 1) || (page.values ? 0 : a.measure - b.measure),
  up: (a, b) => a.measure - b.measure,
  down: (a, b) => b.measure - a.measure,
  file: () => 0,
};

function compare() {
  const order = used.sort.value;
  if (order !== "drop") return (a, b) => orders[order](a, b) || a.at - b.at;
  const drops = new Map(shown.map((text) => [text, dropOf(text)]));
  // Texts without removals are last; their drops are infinite, and the difference of two is not a number.
  return (a, b) => drops.get(b) - drops.get(a) || a.at - b.at;
}

function update() {
  shown = page.texts.filter(passes());
  shown.sort(compare());
  feed.replaceChildren();
  draw(AT_ONCE);
  if (!shown.length) feed.append(make("p", "note", `No ${page.unit} match; clear the search and filters to see all.`));
  find("count").textContent = `${shown.length} of ${page.texts.length} shown`;
  for (const button of document.querySelectorAll("#confusions [data-gold]")) {
    const { gold, predicted } = button.dataset;
    button.setAttribute("aria-pressed", String(valueOf("gold") === gold && valueOf("predicted") === predicted));
  }
  setCurrent(shown[0] ?? null);
}

function draw(count) {
  const first = feed.querySelectorAll("article").length;
  for (const text of shown.slice(first, first + count)) {
    const card = cards.get(text) ?? newCard(text);
    cards.set(text, card);
    fill(text);
    feed.append(card);
  }
  feed.querySelectorAll("article").forEach((card, place) => {
    card.setAttribute("aria-posinset", String(place + 1));
    card.setAttribute("aria-setsize", String(shown.length));
  });
  watch.unobserve(find("more")); // observed again, it reports at once if there is still room for more
  if (feed.children.length < shown.length) watch.observe(find("more"));
}

const watch = new IntersectionObserver((entries) => entries.some((entry) => entry.isIntersecting) && draw(AT_ONCE), {
  rootMargin: "1200px",
});

// --- one text ---

const methods = () => {
  const chosen = used.method?.value ?? "0";
  return chosen === "all" ? page.methods : [page.methods[Number(chosen)]];
};

function viewOf(text, target, method) {
  const { views } = text.targets[target];
  return method && Object.hasOwn(views, method.name) ? views[method.name] : null;
}

function newCard(text) {
  text.target = text.main;
  const mark = text.correct === null ? "" : text.correct ? "correct" : "mistake";
  const head = make("header", "", ...(text.predicted === null ? [] : [make("span", "quiet", "predicted"), " "]), make("b", "label", text.label), " ", make("span", "output", text.shown));
  if (mark) head.append(" ", make("span", mark, mark));
  if (text.gold !== null) head.append(" ", make("span", "gold", make("span", "quiet", "gold"), " ", make("b", "", text.gold)));
  const place = make("span", "place", text.place);
  if (text.id !== null) place.append(" · ", make("span", "id", text.id));
  head.append(place);
  const card = make("article", mark, head);
  card.tabIndex = -1;
  const gold = text.gold === null ? "" : `, gold ${text.gold}, ${mark}`;
  card.setAttribute("aria-label", `${text.place}: ${text.label} ${text.shown}${gold}`);
  if (text.targets.length > 1 || text.targets[0].label !== text.label) card.append(targetButtons(text));
  card.append(make("div", "views"));
  if (text.columns.length) {
    const pairs = text.columns.map(([name, value]) => make("div", "", make("dt", "", name), make("dd", "", value)));
    card.append(make("dl", "columns", ...pairs));
  }
  for (const note of text.notes) card.append(make("p", "note", note));
  const readout = make("p", "readout");
  readout.setAttribute("role", "status");
  card.append(readout);
  card.addEventListener("focusin", () => setCurrent(text));
  card.addEventListener("click", ({ target }) => target.dataset?.word && readOut(card, target));
  return card;
}

function targetButtons(text) {
  const row = make("p", "targets", text.targets.length > 1 ? "why, or why not: " : "explained: ");
  text.targets.forEach(({ label, shown: output }, place) => {
    const button = make("button", "", label, " ", make("small", "", output));
    button.type = "button";
    button.addEventListener("click", () => {
      text.target = place;
      fill(text);
    });
    row.append(button, " ");
  });
  return row;
}

function fill(text) {
  const card = cards.get(text);
  const several = methods().length > 1;
  card.querySelectorAll(".targets button").forEach((button, place) => {
    button.setAttribute("aria-pressed", String(place === text.target));
  });
  const parts = methods().flatMap((method) => {
    const view = viewOf(text, text.target, method);
    if (!view) return several ? [] : [make("p", "note", `not explained by ${method.name}`)];
    const name = several ? [make("p", "name", nameOf(method))] : [];
    const note = view.note ? [make("p", "note", view.note)] : [];
    const trust = view.trust ? [make("p", "trust", view.trust)] : [];
    return [...name, drawWords(text, view, method), ...drawSteps(view), ...trust, ...note];
  });
  card.querySelector(".views").replaceChildren(...parts);
  card.querySelector(".readout").textContent = "";
}

const nameOf = (method) => method.name + (method.tuned ? " *" : "");
const signed = (number, digits) => (number < 0 ? "" : "+") + number.toFixed(digits);

// Returns the bounds of a score as text, and whether its sign is uncertain.
function intervalOf(view, place) {
  if (!view.low) return ["", false];
  const [low, high] = [view.low[place], view.high[place]];
  const uncertain = low <= 0 && high >= 0 && low < high;
  const bounds = [low, high].map((bound) => `${bound < 0 ? "" : "+"}${bound}`).join(" to ");
  return [`; ${view.level} interval ${bounds}${uncertain ? ", which includes 0" : ""}`, uncertain];
}

function drawWords(text, view, method) {
  const words = view.words ?? text.words;
  const strongest = method.unit ? 1 : Math.max(...view.scores.map(Math.abs)) || 1;
  const line = make("p", "words");
  line.dir = "auto";
  view.scores.forEach((score, place) => {
    const share = score / strongest;
    const step = Math.round(Math.max(-1, Math.min(1, share)) * STEPS);
    const word = make("span", step ? (step > 0 ? "f" : "a") + Math.abs(step) : "", words[2 * place + 1]);
    const [interval, uncertain] = intervalOf(view, place);
    const about = method.unit || `${signed(100 * share, 0)} % of the strongest`;
    word.title = `${words[2 * place + 1]}: ${score < 0 ? "" : "+"}${score} (${about})${interval}`;
    if (uncertain) word.classList.add("uncertain");
    word.dataset.word = "1";
    line.append(words[2 * place], word);
    if (used.numbers.checked) line.append(make("small", "", signed(share, 2)));
  });
  return line;
}

function drawSteps(view) {
  if (view.nothing) return [make("p", "steps", view.nothing)];
  if (!view.steps) return [];
  const steps = make("p", "steps");
  const gone = [];
  for (const [word, output] of view.steps) {
    if (gone.length) steps.append("; ");
    gone.push(word);
    const words = gone.flatMap((name, place) => [place ? ", " : "", make("em", "", name)]);
    steps.append(make("span", "step", "without ", ...words, `: ${view.whole} to `, make("b", "", output)));
  }
  return [steps];
}

function readOut(card, word) {
  for (const other of card.querySelectorAll(".at")) other.classList.remove("at");
  word.classList.add("at");
  card.querySelector(".readout").textContent = word.title;
}

// --- keyboard ---

function setCurrent(text) {
  if (current !== null && cards.has(current)) cards.get(current).tabIndex = -1;
  current = text;
  if (text !== null && cards.has(text)) cards.get(text).tabIndex = 0;
}

function move(step) {
  const inside = document.activeElement?.closest("article") !== null;
  const place = inside ? Math.max(0, Math.min(shown.length - 1, shown.indexOf(current) + step)) : shown.indexOf(current);
  if (place < 0) return;
  while (feed.querySelectorAll("article").length <= place) draw(AT_ONCE);
  const card = cards.get(shown[place]);
  card.focus({ preventScroll: true });
  card.scrollIntoView({ block: "nearest" });
}

function moveWord(step) {
  const card = cards.get(current);
  const words = [...card.querySelectorAll("[data-word]")];
  const at = words.findIndex((word) => word.classList.contains("at"));
  const next = at < 0 ? (step > 0 ? 0 : words.length - 1) : Math.max(0, Math.min(words.length - 1, at + step));
  if (words.length) readOut(card, words[next]);
  card.scrollIntoView({ block: "nearest" });
}

function nextMethod() {
  if (!used.method) return;
  used.method.selectedIndex = (used.method.selectedIndex + 1) % used.method.options.length;
  used.method.dispatchEvent(new Event("change"));
}

const keys = { j: () => move(1), k: () => move(-1), m: nextMethod, "/": () => used.search.focus() };
const keysInTexts = {
  ArrowDown: () => move(1),
  ArrowUp: () => move(-1),
  ArrowRight: () => moveWord(1),
  ArrowLeft: () => moveWord(-1),
};

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.target === used.search && (event.key === "Escape" || event.key === "Enter")) {
    if (event.key === "Escape") used.search.value = "";
    update();
    move(0);
  } else if (event.target.matches("input:not([type=checkbox]), select")) {
    return;
  } else {
    const act = keys[event.key] ?? (event.target.closest("article") ? keysInTexts[event.key] : undefined);
    if (!act) return;
    act();
  }
  event.preventDefault();
});

// --- controls ---

function redraw() {
  const [method] = methods();
  const tuned = methods().some(({ tuned: is }) => is) ? " * tuned on the deletion curve, which flatters what removals of its words show." : "";
  find("about").textContent = methods().length > 1 ? tuned.trim() : `${method.about}.${tuned}`;
  shown.slice(0, feed.querySelectorAll("article").length).forEach(fill);
  document.activeElement?.closest("article")?.scrollIntoView({ block: "nearest" }); // cards above may have grown
}

for (const id of ["sort", "predicted", "gold", "decision"]) used[id]?.addEventListener("change", update);
for (const id of ["search", "low", "high"]) used[id].addEventListener("input", update);
used.numbers.addEventListener("change", redraw);
used.method?.addEventListener("change", () => {
  if (used.sort.value === "drop") update();
  redraw();
});
find("clear").addEventListener("click", () => {
  for (const id of ["search", "predicted", "gold", "decision", "low", "high"]) if (used[id]) used[id].value = "";
  update();
});
find("confusions")?.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (button?.id === "rare") {
    const open = find("confusions").classList.toggle("all");
    button.setAttribute("aria-expanded", String(open));
  } else if (button) {
    const pressed = button.getAttribute("aria-pressed") === "true";
    for (const id of ["gold", "predicted"]) used[id].value = pressed ? "" : button.dataset[id];
    used.decision.value = "";
    update();
  }
});
addEventListener("beforeprint", () => draw(shown.length));
find("controls").hidden = false;
find("filters").open = matchMedia("(min-width: 50rem)").matches;
update();
redraw();
