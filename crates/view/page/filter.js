// Parses filter expressions: the language of `--filter` on the command line (docs/FILTER.md). The grammar, the checks and
// the errors are those of the crate `lastwords-filter`; `cargo xtask view` compares both with generated expressions.

// Most bytes of an expression, parentheses in each other, and values that wait for their operator.
const [MAX_LENGTH, MAX_NESTING, MAX_HEIGHT] = [4096, 64, 128];

const AN_OPERAND = "a name, a number, text in double quotes or `(`";
const AN_OPERATOR = "an operator (`&&`, `||`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `~`, `!~`, `&`, `|`, `^`, `<<`, `>>`) or the end";

// Operators behind an operand. One that begins like another stands before it.
const OPERATORS = ["||", "&&", "==", "!=", "!~", "<<", ">>", "<=", ">=", "<", ">", "|", "^", "&", "~", ")"];
const LEVELS = { "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "~": 6, "!~": 6, "<": 7, "<=": 7, ">": 7, ">=": 7, "<<": 8, ">>": 8 };
const [EQUALITY, ORDER] = [6, 7];
const ESCAPES = { n: 10, t: 9, r: 13, 0: 0, a: 7, b: 8, f: 12, v: 11, e: 27, "\\": 92, "\"": 34, "'": 39 };

const encoder = new TextEncoder();
const bytesBefore = (text, at) => encoder.encode(text.slice(0, at)).length;

// Returns a character, or a mark in place of one that would move the caret.
const shown = (text) => text.replace(/[\0-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]/g, "\ufffd");
export const backquoted = (text) => `\`${shown(text)}\``;

// An expression that cannot be used: where, what was found there, what was expected.
export class FilterError extends Error {
  constructor(expression, at, found, expected) {
    const offset = bytesBefore(expression, at);
    super(`byte ${offset}: found ${found}; expected ${expected}`);
    Object.assign(this, { expression, at, offset, found, expected });
  }

  // Returns two lines: the expression around the place, and a caret below the place.
  get caret() {
    const [before, after] = [[...this.expression.slice(0, this.at)], [...this.expression.slice(this.at)]];
    const begin = (before.length > 48 ? "\u2026" : "") + shown(before.slice(-48).join(""));
    const end = shown(after.slice(0, 48).join("")) + (after.length > 48 ? "\u2026" : "");
    return `  ${begin}${end}\n  ${" ".repeat([...begin].length)}^`;
  }
}

class Lexer {
  constructor(text) {
    Object.assign(this, { text, at: 0 });
  }

  // Returns the next character, which may have two units; "" at the end.
  peek() {
    return this.at < this.text.length ? String.fromCodePoint(this.text.codePointAt(this.at)) : "";
  }

  take() {
    const next = this.peek();
    this.at += next.length;
    return next;
  }

  takeIf(wanted) {
    const isThere = this.text[this.at] === wanted;
    if (isThere) this.at++;
    return isThere;
  }

  takeAll(sticky) {
    sticky.lastIndex = this.at;
    const [all] = sticky.exec(this.text) ?? [""];
    this.at += all.length;
    return all;
  }

  skipSpace() {
    this.takeAll(/[ \t\n\f\r]*/y);
    return this.at;
  }

  error(at, found, expected) {
    return new FilterError(this.text, at, found, expected);
  }

  // Returns the error for what stands at a place.
  unexpected(at, expected) {
    const found = at < this.text.length ? backquoted(String.fromCodePoint(this.text.codePointAt(at))) : "the end";
    return this.error(at, found, expected);
  }

  // Takes the next operand: `open`, a sign before an operand, a constant or a name.
  operand() {
    const at = this.skipSpace();
    const next = this.peek();
    if (next === "(") return this.one({ open: true });
    if (next !== "" && "!~-".includes(next)) return this.one({ unary: next });
    if (next === "\"") return { constant: textOf(this.string()) };
    if (next === "'") return { constant: this.character() };
    if (next === "$") return { name: this.context() };
    if (/^[A-Za-z_]/.test(next)) {
      const word = this.word();
      return word === "true" || word === "false" ? { constant: word === "true" } : { name: this.name(false, word) };
    }
    if (/^[0-9.]/.test(next)) return { constant: this.number() };
    const symbol = this.operatorHere();
    throw symbol ? this.error(at, backquoted(symbol), AN_OPERAND) : this.unexpected(at, AN_OPERAND);
  }

  one(operand) {
    this.at++;
    return operand;
  }

  operatorHere() {
    return OPERATORS.find((symbol) => this.text.startsWith(symbol, this.at));
  }

  // Takes the next operator; "" is the end.
  operator() {
    const at = this.skipSpace();
    const symbol = this.operatorHere();
    if (symbol) {
      this.at += symbol.length;
      return symbol;
    }
    const next = this.peek();
    if (next === "") return "";
    if (next === "=") throw this.unexpected(at, "`==`: one `=` does not compare");
    throw this.unexpected(at, "+-*/%".includes(next) ? `${AN_OPERATOR}; there is no arithmetic` : AN_OPERATOR);
  }

  word() {
    return this.takeAll(/[A-Za-z0-9_]*/y);
  }

  // Takes `$ctx.NAME`.
  context() {
    const { at } = this;
    this.at++;
    if (this.word() !== "ctx" || !this.takeIf(".")) throw this.error(at, "`$`", "`$ctx.NAME`, the name of a context");
    return this.name(true, this.wordOfName());
  }

  wordOfName() {
    if (!/^[A-Za-z_]/.test(this.peek())) throw this.unexpected(this.at, "a name: a letter or `_`, then letters, digits and `_`");
    return this.word();
  }

  // Takes the rest of a name behind its first member. A step is the name of a member, or the number of an element.
  name(isContext, first) {
    const steps = [first];
    for (;;) {
      if (this.takeIf(".")) {
        steps.push(this.wordOfName());
      } else if (this.takeIf("[")) {
        const { at } = this;
        const digits = this.takeAll(/[0-9]*/y);
        if (digits === "") throw this.unexpected(at, "the number of an element, as in `a[3]`");
        if (BigInt(digits) >= 1n << 64n) throw this.error(at, backquoted(digits), "the number of an element, below 2^64");
        steps.push(BigInt(digits));
        if (!this.takeIf("]")) throw this.unexpected(this.at, "`]` behind the number of the element");
      } else {
        return { isContext, steps, text: textOfName(isContext, steps) };
      }
    }
  }

  // Takes a number: a BigInt, or a float as one of JavaScript's numbers.
  number() {
    const begin = this.at;
    const radix = { x: 16, b: 2 }[this.text[begin] === "0" ? this.text[begin + 1]?.toLowerCase() : ""];
    if (radix) {
      this.at += 2;
      return this.integer(begin, this.word(), radix);
    }
    const whole = this.takeAll(/[0-9]*/y);
    let isFloat = false;
    if (this.takeIf(".")) {
      isFloat = true;
      if (this.takeAll(/[0-9]*/y) === "" && whole === "") throw this.error(begin, "`.`", AN_OPERAND);
    }
    if (this.takeAll(/[eE]/y) !== "") {
      isFloat = true;
      this.takeAll(/[+-]/y);
      if (this.takeAll(/[0-9]*/y) === "") throw this.unexpected(this.at, "the digits of an exponent, as in `1e9`");
    }
    const text = this.text.slice(begin, this.at);
    if (/^[A-Za-z0-9_.]/.test(this.peek())) throw this.unexpected(this.at, `the end of the number ${backquoted(text)}, which takes no suffix`);
    if (isFloat) {
      if (!Number.isFinite(Number(text))) throw this.error(begin, backquoted(text), "a float below 1.8e308");
      return Number(text);
    }
    return whole.length > 1 && whole[0] === "0" ? this.integer(begin, whole.slice(1), 8) : this.integer(begin, whole, 10);
  }

  integer(begin, digits, radix) {
    const [what, others] = {
      2: ["binary digits, as in `0b101`", /[^01]/],
      8: ["octal digits, because the number begins with 0, as in `0644`", /[^0-7]/],
      10: ["digits", /[^0-9]/],
      16: ["hexadecimal digits, as in `0x1f`", /[^0-9a-fA-F]/],
    }[radix];
    const at = digits.search(others);
    if (at >= 0) throw this.unexpected(this.at - digits.length + at, what);
    if (digits === "") throw this.unexpected(this.at, what);
    const number = BigInt({ 2: "0b", 8: "0o", 10: "", 16: "0x" }[radix] + digits);
    if (number >= 1n << 64n) throw this.error(begin, backquoted(digits), "a number of 64 bits");
    return number;
  }

  // Takes the character behind a backslash, and returns its byte.
  escape() {
    const at = this.at - 1;
    const next = this.take();
    if (next === "x") {
      const digits = this.text.slice(this.at, this.at + 2);
      if (!/^[0-9a-fA-F]{2}$/.test(digits)) throw this.error(at, "`\\x`", "two hexadecimal digits behind it, as in `\\x1f`");
      this.at += 2;
      return parseInt(digits, 16);
    }
    if (next !== "" && Object.hasOwn(ESCAPES, next)) return ESCAPES[next];
    throw this.error(at, "`\\`", "one of \\n \\t \\r \\0 \\a \\b \\f \\v \\e \\\\ \\\" \\' \\xHH");
  }

  // Takes text in double quotes, and returns its bytes.
  string() {
    const begin = this.at++;
    const bytes = [];
    for (;;) {
      const next = this.take();
      if (next === "\"") return Uint8Array.from(bytes);
      if (next === "") throw this.error(begin, "text without its end", "a second `\"`");
      if (next === "\\") bytes.push(this.escape());
      else bytes.push(...encoder.encode(next));
    }
  }

  // Takes a character between single quotes, and returns its number.
  character() {
    const begin = this.at++;
    const next = this.take();
    if (next === "" || next === "'") throw this.error(begin, "`'`", "one character in single quotes, as in `'a'`");
    const number = BigInt(next === "\\" ? this.escape() : next.codePointAt(0));
    if (!this.takeIf("'")) throw this.error(begin, "`'`", "one character in single quotes, as in `'a'`; text stands in double quotes");
    return number;
  }
}

const textOfName = (isContext, steps) => steps.reduce((text, step) => `${text}${typeof step === "bigint" ? `[${step}]` : `${text && "."}${step}`}`, isContext ? "$ctx" : "");

// Returns bytes as the text that they are; as their lossy text and themselves where they are not UTF-8.
export function textOf(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return { lossy: new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes), bytes };
  }
}

// The kinds of operands that were parsed.
const [TEXT, FLOAT, CONSTANT, COMPARISON, OTHER] = ["text", "float", "constant", "comparison", "other"];

class Parser {
  constructor(text) {
    Object.assign(this, { lexer: new Lexer(text), ops: [], names: [], places: [], height: 0, nesting: 0, next: null });
  }

  // Returns the next operator and its place, and leaves it to be read again.
  operator() {
    if (!this.next) {
      const at = this.lexer.skipSpace();
      this.next = { at, symbol: this.lexer.operator() };
    }
    return this.next;
  }

  // Parses operands and the operators between them that bind at least as strongly as `least`.
  expression(least) {
    let left = this.unary();
    for (;;) {
      const { at, symbol } = this.operator();
      const level = LEVELS[symbol];
      if (level === undefined || level < least) return left;
      this.next = null;
      left = { ...this.infix(at, symbol, left), at: left.at };
    }
  }

  infix(at, symbol, left) {
    if (symbol === "~" || symbol === "!~") return this.glob(at, symbol, left);
    return symbol === "&&" || symbol === "||" ? this.logic(symbol, left) : this.binary(at, symbol, left);
  }

  logic(symbol, left) {
    this.checkCondition(left);
    const shortcut = { op: "shortcut", skipsOn: symbol === "||", to: 0 };
    this.ops.push(shortcut);
    const right = this.expression(LEVELS[symbol] + 1);
    this.checkCondition(right);
    this.putBinary(symbol);
    shortcut.to = this.ops.length;
    return { kind: OTHER };
  }

  binary(at, symbol, left) {
    const level = LEVELS[symbol];
    this.checkChain(at, symbol, level, left);
    const right = this.expression(level + 1);
    if (level !== EQUALITY && level !== ORDER) {
      this.checkBits(symbol, left);
      this.checkBits(symbol, right);
    } else if (level === ORDER) {
      for (const side of [left, right]) this.checkNumber(side, symbol, "a number: text is compared by `==`, `!=`, `~` and `!~`");
    }
    this.putBinary(symbol);
    if (level !== EQUALITY && level !== ORDER) return { kind: OTHER };
    return { kind: COMPARISON, level, isConstant: [left, right].every(({ kind }) => [TEXT, FLOAT, CONSTANT].includes(kind)) };
  }

  glob(at, symbol, left) {
    this.checkChain(at, symbol, EQUALITY, left);
    if (left.kind === FLOAT || left.kind === CONSTANT) throw this.lexer.error(left.at, "a number", `text on the left of \`${symbol}\``);
    const right = this.expression(EQUALITY + 1);
    const last = this.ops.at(-1);
    if (right.kind !== TEXT || last?.op !== "push") throw this.lexer.error(right.at, "another operand", `a glob in double quotes behind \`${symbol}\`, as in \`comm ${symbol} "kworker*"\``);
    if (typeof last.value !== "string") throw this.lexer.error(right.at, "bytes that are not UTF-8", "a glob of characters");
    this.ops.pop();
    this.height--;
    this.ops.push({ op: "glob", glob: last.value, isNegated: symbol === "!~" });
    return { kind: COMPARISON, level: EQUALITY, isConstant: false };
  }

  // Parses operators before an operand, and the operand.
  unary() {
    const signs = [];
    const begin = this.lexer.skipSpace();
    for (;;) {
      const at = this.lexer.skipSpace();
      const token = this.lexer.operand();
      if (token.unary) {
        signs.push(token.unary);
        continue;
      }
      const operand = { ...this.operand(at, token), at };
      const { kind } = operand;
      for (const sign of signs.toReversed()) {
        const expected = sign === "~" ? "an integer: `~` is for bits" : "a number or a condition";
        this.checkNumber(operand, sign, expected);
        if (sign === "~" && kind === FLOAT) throw this.lexer.error(at, "a float", expected);
        this.ops.push({ op: "unary", symbol: sign });
      }
      if (signs.length === 0) return operand;
      // `!1.5` and `!!1.5` are conditions.
      if (kind === FLOAT && signs.includes("!")) return { at: begin, kind: CONSTANT };
      return { at: begin, kind: kind === FLOAT || kind === CONSTANT ? kind : OTHER };
    }
  }

  operand(at, token) {
    if (token.open) return this.parenthesized(at);
    if (token.name) return this.name(at, token.name);
    const { constant } = token;
    this.push(at, { op: "push", value: constant });
    if (typeof constant === "number") return { kind: FLOAT };
    return { kind: typeof constant === "bigint" || typeof constant === "boolean" ? CONSTANT : TEXT };
  }

  // Parses the rest of `(…)`.
  parenthesized(at) {
    if (this.nesting >= MAX_NESTING) throw this.lexer.error(at, "`(`", `at most ${MAX_NESTING} parentheses in each other`);
    this.nesting++;
    const { kind } = this.expression(1);
    const { at: end, symbol } = this.operator();
    if (symbol !== ")") throw this.lexer.error(end, "the end", `\`)\` for the \`(\` at byte ${bytesBefore(this.lexer.text, at)}`);
    this.next = null;
    this.nesting--;
    return { kind: kind === COMPARISON ? OTHER : kind };
  }

  name(at, name) {
    let place = this.names.findIndex(({ text }) => text === name.text);
    if (place < 0) {
      place = this.names.push(name) - 1;
      this.places.push(at);
    }
    this.push(at, { op: "name", place });
    return { kind: OTHER };
  }

  // Adds an operation that pushes a value.
  push(at, op) {
    this.ops.push(op);
    if (++this.height > MAX_HEIGHT) throw this.lexer.error(at, `${this.height} operands that wait for their operator`, `at most ${MAX_HEIGHT}: fewer parentheses on the right`);
  }

  putBinary(symbol) {
    this.ops.push({ op: "binary", symbol });
    this.height--;
  }

  // Refuses text as a condition.
  checkCondition(side) {
    this.checkNumber(side, "a condition", "a comparison, as in `comm == \"text\"`");
  }

  // Refuses text where it has no meaning.
  checkNumber({ at, kind }, of, expected) {
    if (kind === TEXT) throw this.lexer.error(at, `text as an operand of ${backquoted(of)}`, expected);
  }

  // Refuses what has no bits, and a comparison of constants, where C's precedence was overlooked.
  checkBits(symbol, side) {
    this.checkNumber(side, symbol, "an integer");
    if (side.kind === FLOAT) throw this.lexer.error(side.at, `a float as an operand of \`${symbol}\``, "an integer");
    if (side.kind !== COMPARISON || !side.isConstant) return;
    throw this.lexer.error(side.at, `a comparison of two constants beside \`${symbol}\``, `parentheses: \`==\` binds more strongly than \`${symbol}\`, as in C; write \`(flags ${symbol} 4) == 4\``);
  }

  // Refuses `a < b < c`.
  checkChain(at, symbol, level, left) {
    if (left.kind !== COMPARISON || left.level !== level) return;
    throw this.lexer.error(at, `\`${symbol}\` behind another comparison`, "`&&` between two comparisons, as in `1 < a && a < 5`, or parentheses");
  }
}

// Compiles an expression. Throws a `FilterError` for what the command line refuses.
export function parseFilter(text) {
  const { length } = encoder.encode(text);
  if (length > MAX_LENGTH) throw new FilterError(text, lastWithin(text, MAX_LENGTH), `${length} bytes`, `an expression of at most ${MAX_LENGTH} bytes`);
  const parser = new Parser(text);
  parser.checkCondition(parser.expression(1));
  const { at, symbol } = parser.operator();
  if (symbol !== "") throw parser.lexer.error(at, "`)`", "an operator or the end: no parenthesis is open");
  const { ops, names, places } = parser;
  return { text, ops, names, places };
}

// Returns the last place in a text that is at most so many bytes from its begin.
function lastWithin(text, most) {
  let [at, bytes] = [0, 0];
  for (const sign of text) {
    bytes += encoder.encode(sign).length;
    if (bytes > most) break;
    at += sign.length;
  }
  return at;
}

// Returns a text in double quotes, which a filter reads as the text again. An input field would drop the ends of lines.
export function quoted(text) {
  const code = (sign) => [...encoder.encode(sign)].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
  return `"${text.replace(/["\\]/g, "\\$&").replace(/[\0-\x1f\x7f-\x9f\u2028\u2029]/g, code)}"`;
}
