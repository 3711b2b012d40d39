/** Switches words off and on, with undo; the state is a set of token positions, so it survives a change of level. */

import { askState, currentRow, session } from "./session.js";
import { change, state } from "./state.js";

let earlier = []; // sets of tokens that were off before, for undo

export const isOff = (cell) => cell.tokens.length > 0 && cell.tokens.every((token) => state.off.includes(token));
export const removable = () => currentRow().cells.filter((cell) => cell.removable);
export const canUndo = () => earlier.length > 0;

export function forget() {
  earlier = [];
}

/** Sets which tokens are off, remembers the set before, and asks the model. */
export function setOff(tokens, isUndo = false) {
  const off = [...new Set(tokens)].sort((a, b) => a - b);
  if (JSON.stringify(off) === JSON.stringify(state.off)) return;
  if (!isUndo) earlier.push(state.off);
  change({ off });
  if (session.prediction) askState();
}

export function toggle(cell) {
  if (!cell.removable) return;
  setOff(isOff(cell) ? state.off.filter((token) => !cell.tokens.includes(token)) : [...state.off, ...cell.tokens]);
}

/** Returns the cells with the highest scores, the strongest support first. */
export function top(number) {
  const ranked = removable().filter((cell) => cell.score !== null);
  return ranked.sort((a, b) => b.score - a.score).slice(0, number);
}

export const removeTop = (number) => setOff(top(number).flatMap((cell) => cell.tokens));

export function keepTop(number) {
  const kept = new Set(top(number));
  setOff(
    removable()
      .filter((cell) => !kept.has(cell))
      .flatMap((cell) => cell.tokens),
  );
}

export const reset = () => setOff([]);

export function undo() {
  if (earlier.length) setOff(earlier.pop(), true);
}
