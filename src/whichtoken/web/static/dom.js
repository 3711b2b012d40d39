/** Builds elements. Texts enter as text nodes and attribute values, never as markup. */

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set([
  "value",
  "checked",
  "disabled",
  "hidden",
  "tabIndex",
  "open",
  "selected",
  "readOnly",
  "textContent",
]);

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (PROPERTIES.has(name)) element[name] = value;
    else if (value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Returns a new HTML element. Properties named `on...` are listeners; a value of null or false leaves an attribute out. */
export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);

/** Returns a new SVG element. */
export const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);

export const find = (id) => document.getElementById(id);

/** Replaces what is inside an element, and returns the element. The focus stays on the control with the same `data-key`. */
export function put(element, ...children) {
  const held = element.contains(document.activeElement) ? document.activeElement.dataset?.key : undefined;
  element.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  if (held !== undefined)
    [...element.querySelectorAll("[data-key]")].find((item) => item.dataset.key === held && !item.disabled)?.focus();
  return element;
}

/** Returns a row of buttons of which one is pressed. `options`: [value, title] pairs; `pick` is called with a value. */
export function choice(label, options, chosen, pick) {
  const group = h("div", { class: "segments", role: "group", "aria-label": label });
  for (const [value, title] of options) {
    const pressed = String(value === chosen);
    group.append(
      h(
        "button",
        { type: "button", "aria-pressed": pressed, "data-value": value, "data-key": value, onclick: () => pick(value) },
        title,
      ),
    );
  }
  return group;
}

/** Returns a select in a label. `options`: [value, title, reason why it cannot be chosen or null] triples. */
export function menu(label, options, chosen, pick) {
  const select = h("select", { "data-key": label, onchange: (event) => pick(event.target.value) });
  for (const [value, title, reason] of options) {
    select.append(h("option", { value, selected: value === chosen, disabled: Boolean(reason), title: reason }, title));
  }
  return h("label", { class: "menu" }, h("span", {}, label), select);
}

/** Lets the arrow keys move between the items of a container, of which the Tab key reaches one. `columns`: of a grid, or 0. */
export function rove(container, items, columns = 0) {
  let at = 0;
  const move = (to) => {
    if (to < 0 || to >= items.length) return;
    items[at].tabIndex = -1;
    at = to;
    items[at].tabIndex = 0;
    items[at].focus();
  };
  items.forEach((item, place) => {
    item.tabIndex = place ? -1 : 0;
    item.addEventListener("focus", () => {
      items[at].tabIndex = -1;
      at = place;
      item.tabIndex = 0;
    });
  });
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns || 1, ArrowUp: -(columns || 1) };
  container.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const sign = getComputedStyle(container).direction === "rtl" && event.key.match(/Right|Left/) ? -1 : 1;
    if (event.key in steps) move(at + sign * steps[event.key]);
    else if (event.key === "Home") move(0);
    else if (event.key === "End") move(items.length - 1);
    else return;
    event.preventDefault();
  });
}

/** Offers a file to save. */
export function download(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = h("a", { href: address, download: name, hidden: true });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
