/** Starts the page: facts of the server, views, theme, files dropped on it. */

import { get, setToken, takeToken } from "./api.js";
import { openBench } from "./bench.js";
import { find, h, put } from "./dom.js";
import { openExplain, startExplain } from "./explain.js";
import { openFile } from "./files.js";
import { showInput, takeImage } from "./form.js";
import { startReview, takeTable } from "./review.js";
import { getInfo, model, run, session, setInfo } from "./session.js";
import { addressOf, change, fromAddress, START, state, watch } from "./state.js";

const THEMES = { "": "light", light: "dark", dark: "" }; // what a click on the button makes of each
const NAMES = { "": "as the system", light: "light", dark: "dark" };

async function start() {
  takeToken();
  drawTheme();
  try {
    setInfo(await get("/api/info"));
  } catch (error) {
    if (error.status === 401) askToken();
    else put(find("start-problem"), h("p", { class: "problem", role: "alert" }, error.message));
    return;
  }
  document.body.classList.add("ready");
  find("nav-benchmark").hidden = !getInfo().benchmark;
  find("nav-corpus").hidden = !getInfo().corpus;
  find("version").textContent = `whichtoken ${getInfo().version}`;
  startExplain();
  startReview(exploreRow);
  watch(["view"], drawView);
  addEventListener("popstate", follow);
  addEventListener("hashchange", follow);
  acceptFiles();
  Object.assign(state, fromAddress(location.hash));
  drawView();
}

/** Follows a link or the Back button to another state. */
function follow() {
  if (location.hash === addressOf(state)) return;
  const parts = fromAddress(location.hash);
  change(parts);
  if (parts.input) openExplain();
}

function drawView() {
  for (const name of ["explain", "review", "benchmark"]) {
    find(`view-${name}`).hidden = state.view !== name;
    const link = find(`nav-${name}`);
    if (state.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${{ explain: "Explain", review: "Review", benchmark: "Benchmark" }[state.view]} · whichtoken`;
  if (state.view === "benchmark") openBench(exploreTexts);
  if (state.view === "explain" && !session.prediction && !session.results.size) openExplain();
}

function exploreRow(id, input, method) {
  const methods = state.methods.includes(method) || !method ? state.methods : [method, ...state.methods];
  change({ ...START, view: "explain", model: id, input, methods, method: method ?? "" }, true);
  openExplain();
  scrollTo(0, 0);
}

function exploreTexts(texts, methods) {
  const able = methods.filter((name) =>
    model().methods.some((method) => method.name === name.split("@")[0] && !method.cannot_run),
  );
  const input =
    texts.length === 2 ? { kind: "pair", text: texts[0], pair: texts[1] } : { kind: "text", text: texts.join(" ") };
  change({ ...START, view: "explain", model: model().id, input, methods: able }, true);
  openExplain();
  scrollTo(0, 0);
}

async function openSaved(file) {
  const note = await openFile(file);
  put(find("start-problem"), note ? h("p", { class: "quiet", role: "status" }, note) : null);
  if (state.input) showInput(state.model, state.input, state.token);
  run();
}

function acceptFiles() {
  const open = (file) => {
    if (file.type.startsWith("image/")) {
      change({ view: "explain" });
      return takeImage(file);
    }
    if (/\.json$/i.test(file.name)) return openSaved(file);
    change({ view: "review" });
    return takeTable(file);
  };
  const guard = (file) =>
    open(file).catch((error) => put(find("start-problem"), h("p", { class: "problem", role: "alert" }, error.message)));
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    const [file] = event.dataTransfer?.files ?? [];
    if (file) guard(file);
  });
  find("open-file").addEventListener("change", (event) => {
    const [file] = event.target.files;
    if (file) guard(file);
    event.target.value = "";
  });
}

function askToken() {
  const field = h("input", { type: "password", autocomplete: "off", required: true });
  const submit = (event) => {
    event.preventDefault();
    setToken(field.value.trim());
    location.reload();
  };
  put(
    find("start-problem"),
    h(
      "form",
      { class: "inline token", onsubmit: submit },
      h("label", {}, h("span", {}, "This server needs the token that it printed when it started"), field),
      h("button", { class: "primary" }, "Continue"),
    ),
  );
  field.focus();
}

function drawTheme() {
  const button = find("theme");
  const show = () => {
    const now = document.documentElement.getAttribute("theme") ?? "";
    button.textContent = { "": "◐", light: "☀", dark: "☾" }[now];
    button.setAttribute("aria-label", `Colours: ${NAMES[now]}; change to ${NAMES[THEMES[now]]}`);
    button.title = button.getAttribute("aria-label");
  };
  button.addEventListener("click", () => {
    const next = THEMES[document.documentElement.getAttribute("theme") ?? ""];
    if (next) document.documentElement.setAttribute("theme", next);
    else document.documentElement.removeAttribute("theme");
    localStorage.setItem("whichtoken-theme", next);
    show();
  });
  show();
}

start();
