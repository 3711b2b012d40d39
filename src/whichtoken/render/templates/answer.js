"use strict";
// Choosing a part of an answer colours the prompt. Texts are set as text, never as markup. Without this script, the
// colours of the whole answer stay.

function classOf(share, steps) {
  const step = Math.round(Math.max(-1, Math.min(1, share)) * steps);
  return step ? (step > 0 ? "f" : "a") + Math.abs(step) : "";
}

function signed(value, digits) {
  return (value < 0 ? "\u2212" : "+") + Math.abs(value).toFixed(digits);
}

function describe(name, share, strongest) {
  const score = share * strongest;
  return `${name}: ${score < 0 ? "\u2212" : "+"}${Math.abs(score).toPrecision(3)} (${signed(100 * share, 0)} % of the strongest)`;
}

// What the page shows of one method, and how to change and restore it.
function rowOf(element, number, data) {
  const cells = [...element.querySelectorAll(".words > span")];
  const beside = ["top", "reach", "trust"].map((name) => [name, element.querySelector(`.${name}`)]);
  const before = cells.map((cell) => [cell.className, cell.title, cell.nextElementSibling?.textContent]);
  const texts = beside.map(([, part]) => part?.textContent);

  function numberOf(cell) {
    return cell.nextElementSibling?.tagName === "SMALL" ? cell.nextElementSibling : null;
  }

  function restore() {
    cells.forEach((cell, i) => {
      [cell.className, cell.title] = before[i];
      if (numberOf(cell)) numberOf(cell).textContent = before[i][2];
    });
    beside.forEach(([, part], i) => part && (part.textContent = texts[i]));
  }

  function show(part) {
    const map = part.rows[number];
    const uncertain = new Set(map.uncertain);
    cells.forEach((cell, i) => {
      const share = map.shares[i] / 1000;
      cell.className = `${classOf(share, data.steps)}${uncertain.has(i) ? " uncertain" : ""}`;
      cell.title = describe(data.names[i], share, map.strongest);
      if (numberOf(cell)) numberOf(cell).textContent = signed(share, 2);
    });
    for (const [name, slot] of beside) if (slot) slot.textContent = map[name];
  }
  return { restore, show };
}

function animate(section) {
  const source = section.querySelector("script.maps-of-parts");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const box = section.querySelector(".parts");
  const options = [...box.querySelectorAll(":scope > span")];
  const status = section.querySelector(".chosen");
  const rows = [...section.querySelectorAll(":scope > .row")].slice(0, data.methods).map((row, i) => rowOf(row, i, data));
  const whole = document.createElement("button");
  let chosen = -1;

  function choose(place) {
    chosen = place;
    options.forEach((option, i) => option.setAttribute("aria-selected", String(i === place)));
    options.forEach((option, i) => (option.tabIndex = i === Math.max(place, 0) ? 0 : -1));
    whole.setAttribute("aria-pressed", String(place < 0));
    if (place < 0) rows.forEach((row) => row.restore());
    else rows.forEach((row) => row.show(data.parts[place]));
    const part = data.parts[place];
    const best = part?.rows.map((row) => row.top).join("; ");
    status.textContent = part
      ? `\u201c${part.text}\u201d, probability ${part.chance}. Strongest: ${best}`
      : "The prompt below is coloured by what led to the whole answer.";
  }

  function move(event) {
    const last = options.length - 1;
    const to = {
      ArrowRight: Math.min(chosen + 1, last),
      ArrowDown: Math.min(chosen + 1, last),
      ArrowLeft: Math.max(chosen - 1, 0),
      ArrowUp: Math.max(chosen - 1, 0),
      Home: 0,
      End: last,
      Enter: options.indexOf(event.target),
      " ": options.indexOf(event.target),
      Escape: -1,
    }[event.key];
    if (to === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    choose(to);
    if (to >= 0) options[to].focus();
  }

  box.setAttribute("role", "listbox");
  box.setAttribute("aria-label", "Parts of the answer");
  box.setAttribute("aria-orientation", "horizontal");
  options.forEach((option, i) => {
    option.setAttribute("role", "option");
    option.addEventListener("click", () => {
      option.focus();
      choose(i === chosen ? -1 : i);
    });
  });
  box.addEventListener("keydown", move);
  whole.type = "button";
  whole.textContent = "whole answer";
  whole.addEventListener("click", () => choose(-1));
  const bar = document.createElement("p");
  bar.className = "keys quiet";
  bar.append(whole, " or choose a part of it: click, or \u2190 \u2192 when it has the focus; Esc for the whole answer");
  box.after(bar);
  section.classList.add("live");
  choose(-1);
}

for (const section of document.querySelectorAll("section.answered")) animate(section);
