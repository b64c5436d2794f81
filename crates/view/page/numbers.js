// Compares numbers as they are written: exactly, however many digits they have.

const NUMBER = /^([+-]?)(?:(\d+)(?:\.(\d*))?|\.(\d+))(?:e([+-]?\d{1,4}))?$/i;

// Returns a number as digits and a power of ten; as one of JavaScript's numbers if it is infinite; or null.
function read(text) {
  if (/^[+-]?inf(inity)?$/i.test(text)) return text[0] === "-" ? -Infinity : Infinity;
  const parts = NUMBER.exec(text);
  if (!parts) return null;
  const [, sign, whole = "", part = parts[4] ?? "", , power = "0"] = parts;
  const digits = BigInt(whole + part);
  return { digits: sign === "-" ? -digits : digits, power: Number(power) - part.length };
}

export const isNumber = (text) => read(text) !== null;

// Returns less than 0, 0 or more than 0, as two numbers compare; NaN if one of the texts is no number.
export function compare(a, b) {
  const [left, right] = [read(a), read(b)];
  if (left === null || right === null) return NaN;
  if (typeof left === "number" || typeof right === "number") {
    const [x, y] = [left, right].map((side) => (typeof side === "number" ? side : 0));
    return x === y ? 0 : x < y ? -1 : 1;
  }
  const power = Math.min(left.power, right.power);
  const [x, y] = [left, right].map((side) => side.digits * 10n ** BigInt(side.power - power));
  return x === y ? 0 : x < y ? -1 : 1;
}
