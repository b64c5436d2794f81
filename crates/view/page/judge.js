// Evaluates filter expressions as the crate `lastwords-filter` does. A value is undefined (unknown), a boolean, a BigInt (an
// integer), a number (a float), a text, `{ lossy, bytes }` (a text that is not UTF-8, whose bytes may be unknown), or
// `{ number, label }` (an enumeration).

// Returns whether a value is true; undefined if that is unknown. Text has no truth.
function truth(value) {
  if (typeof value === "boolean") return value;
  if (typeof value === "number") return value !== 0;
  const number = integer(value);
  return number === undefined ? undefined : number !== 0n;
}

// Returns a value as an integer; undefined for floats and text.
function integer(value) {
  if (typeof value === "bigint") return value;
  if (typeof value === "boolean") return BigInt(value);
  return value?.number;
}

// Returns the text of a value, or the label of an enumeration, which is null if the number has none.
function label(value) {
  if (typeof value === "string" || value?.lossy !== undefined) return value;
  return value?.number === undefined ? undefined : value.label;
}

// Returns true if two texts are equal; undefined if the page does not have the bytes that decide it.
function isSame(a, b) {
  if (a === null || b === null || (typeof a === "string" && typeof b === "string")) return a === b;
  if (a.bytes && b.bytes) return a.bytes.length === b.bytes.length && a.bytes.every((byte, at) => byte === b.bytes[at]);
  return (a.lossy ?? a) === (b.lossy ?? b) ? undefined : false;
}

const isNumeric = (value) => typeof value === "number" || integer(value) !== undefined;

// Compares two values. Numbers have an order; texts are equal or not; undefined is unknown.
function compare(left, right) {
  if (isNumeric(left) && isNumeric(right)) {
    const [a, b] = [left, right].map((side) => (typeof side === "number" ? side : integer(side)));
    // A BigInt and a number compare exactly, and nothing is equal to NaN.
    return { isEqual: a == b, isLess: a < b, isGreater: a > b };
  }
  const [a, b] = [label(left), label(right)];
  return a === undefined || b === undefined ? {} : { isEqual: isSame(a, b) };
}

// Returns true if one is true, false if both are false, and else undefined.
function any(left, right) {
  if (left === true || right === true) return true;
  return left === false && right === false ? false : undefined;
}

const not = (value) => (value === undefined ? undefined : !value);

function binary(symbol, left, right) {
  switch (symbol) {
    case "||": return any(truth(left), truth(right));
    case "&&": return not(any(not(truth(left)), not(truth(right))));
    case "==": return compare(left, right).isEqual;
    case "!=": return not(compare(left, right).isEqual);
    case "<": return compare(left, right).isLess;
    case ">": return compare(left, right).isGreater;
    case "<=":
    case ">=": {
      const { isEqual, isLess, isGreater } = compare(left, right);
      return isLess === undefined ? undefined : isEqual || (symbol === "<=" ? isLess : isGreater);
    }
    default: {
      const [a, b] = [integer(left), integer(right)];
      return a === undefined || b === undefined ? undefined : bits(symbol, a, b);
    }
  }
}

function bits(symbol, left, right) {
  if (symbol === "|") return left | right;
  if (symbol === "^") return left ^ right;
  if (symbol === "&") return left & right;
  if (right < 0n || right > 63n) return undefined;
  if (symbol === ">>") return left >> right;
  // What leaves the 64 bits is dropped. A negative number stays a signed one.
  return left < 0n ? BigInt.asIntN(64, left << right) : BigInt.asUintN(64, left << right);
}

function unary(symbol, value) {
  if (symbol === "!") return not(truth(value));
  if (symbol === "-" && typeof value === "number") return -value;
  const number = integer(value);
  if (number === undefined) return undefined;
  return symbol === "-" ? -number : ~number;
}

// Evaluates an expression. `valueOf(place)` returns the value of the name at a position. The result is undefined if it
// depends on a value that is not there; such an event does not match.
export function holds({ ops }, valueOf) {
  const stack = [];
  for (let at = 0; at < ops.length; at++) {
    const op = ops[at];
    switch (op.op) {
      case "name": stack.push(valueOf(op.place)); break;
      case "push": stack.push(op.value); break;
      case "unary": stack.push(unary(op.symbol, stack.pop())); break;
      case "binary": {
        const right = stack.pop();
        stack.push(binary(op.symbol, stack.pop(), right));
        break;
      }
      case "glob": {
        const text = label(stack.pop());
        stack.push(text === undefined ? undefined : (text !== null && matches(op.glob, text.lossy ?? text)) !== op.isNegated);
        break;
      }
      default: {
        const value = truth(stack.pop());
        if (value === op.skipsOn) at = Math.max(at, op.to - 1);
        stack.push(value);
      }
    }
  }
  return truth(stack.pop());
}

const SURROGATE = /[\ud800-\udfff]/;
const signs = (text) => (SURROGATE.test(text) ? [...text] : text);

// Returns true if a glob matches all of a text: `*`, `?`, `[a-z]`, `[!a-z]`. A bracket without its end stands for itself.
export function matches(glob, text) {
  const [pattern, name] = [signs(glob), signs(text)];
  let [at, of, star, from] = [0, 0, -1, 0];
  for (;;) {
    if (pattern[at] === "*") {
      [star, from] = [++at, of];
      continue;
    }
    if (of === name.length) return at === pattern.length;
    const next = one(pattern, at, name[of]);
    of++;
    if (next >= 0) {
      at = next;
      continue;
    }
    // The last star takes one more character.
    if (star < 0) return false;
    [at, of] = [star, ++from];
  }
}

// Matches one character; the place behind in the glob, or -1.
function one(glob, at, sign) {
  if (at >= glob.length) return -1;
  if (glob[at] === "?") return at + 1;
  if (glob[at] === "[") {
    const [isIn, after] = classAt(glob, at + 1, sign) ?? [sign === "[", at + 1];
    return isIn ? after : -1;
  }
  return glob[at] === sign ? at + 1 : -1;
}

// Matches a class from behind its opening bracket: whether the character is in it, and the place behind its end.
function classAt(glob, begin, sign) {
  const isNegated = glob[begin] === "!" || glob[begin] === "^";
  const first = begin + (isNegated ? 1 : 0);
  const code = sign.codePointAt(0);
  let isFound = false;
  for (let at = first; at < glob.length; at++) {
    const low = glob[at];
    if (low === "]" && at > first) return [isFound !== isNegated, at + 1];
    let high = low;
    if (glob[at + 1] === "-" && at + 2 < glob.length && glob[at + 2] !== "]") high = glob[at += 2];
    isFound ||= low.codePointAt(0) <= code && code <= high.codePointAt(0);
  }
  return null;
}
