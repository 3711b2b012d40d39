/** Writes numbers as the rest of whichtoken does. */

export const percent = (number, digits = 1) => `${(100 * number).toFixed(digits)} %`;

/** Returns a number with its sign and four significant digits. */
export function signed(number) {
  const text = Number(number.toPrecision(4)).toString();
  return number < 0 ? text : `+${text}`;
}

export const plain = (number, digits = 3) => (number === null || number === undefined ? "" : number.toFixed(digits));

/** Returns an output as a percentage, or as a value for models that predict numbers. */
export const output = (number, reading) =>
  reading === "value" ? Number(number.toPrecision(4)).toString() : percent(number);

/** Returns "1 word" or "3 words"; `plural` is the plural form. */
export const count = (number, plural) => `${number} ${number === 1 ? plural.replace(/(?<=ch)es$|s$/, "") : plural}`;

export const clock = (seconds) => (seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds)} s`);
