// Searches and filters events. Names are looked at first; fields are decompressed block by block, in the background.

import { enumeration, keyOf, members, numberText, parse } from "view/data.js";
import { valueText } from "view/details.js";
import { byId, visible } from "view/dom.js";
import { compare, isNumber } from "view/numbers.js";
import { Index } from "view/rows.js";

// Returns a test of texts for a glob: `*`, `?`, `[a-z]`, `[!a-z]`.
export function glob(text) {
  const escaped = text.replace(/\[!/g, "[^").replace(/[.+^${}()|\\]/g, (sign, at, all) => (sign === "^" && all[at - 1] === "[" ? "^" : `\\${sign}`));
  const pattern = escaped.replace(/\*/g, ".*").replace(/\?/g, ".");
  try {
    return new RegExp(`^(?:${pattern})$`, "s");
  } catch {
    return null;
  }
}

// Returns a test of an event's name: a glob matches the whole name or the part after the last colon.
function named(text) {
  const pattern = glob(text);
  return pattern && ((name) => pattern.test(name) || pattern.test(name.slice(name.lastIndexOf(":") + 1)));
}

const FIELD = /^([^=!<>~]+)(==|!=|>=|<=|=|~|>|<)(.*)$/s;
// A word of a filter, and the parts of a word: those in quotes, in which a backslash may stand before a sign, and others.
const WORD = /(?:[^\s"]|"(?:[^"\\]|\\[^])*(?:"|\\?$))+/g;
const PART = /"((?:[^"\\]|\\[^])*)(?:"|\\?$)|[^"]+/g;

// Parses a filter: words are globs of names, of which one must match; conditions on fields must all hold. A word in
// quotes is a name as it is. Quotes in a condition keep its value together.
export function parseFilter(text) {
  const [globs, conditions, wrong] = [[], [], []];
  for (const word of text.match(WORD) ?? []) {
    const { plain, bare, isQuoted } = unquoted(word);
    const field = FIELD.exec(bare);
    const at = field ? field[1].length : 0;
    const made = field ? condition(plain.slice(0, at), field[2], plain.slice(at + field[2].length)) : isQuoted ? (name) => name === plain : named(plain);
    if (!made) wrong.push(word);
    else (field ? conditions : globs).push(made);
  }
  return { globs, conditions, wrong };
}

// Returns a word without its quotes; the same with a letter in place of each sign that was in quotes, so that these are
// no operators; and whether all of it was in quotes.
function unquoted(word) {
  const parts = [...word.matchAll(PART)].map(([part, inside]) => (inside === undefined ? { plain: part, bare: part } : hidden(inside)));
  const joined = (key) => parts.map((part) => part[key]).join("");
  return { plain: joined("plain"), bare: joined("bare"), isQuoted: parts.length === 1 && word.startsWith("\"") };
}

function hidden(inside) {
  const plain = inside.replace(/\\(?:u([0-9a-f]{4})|(["\\]))/g, (_, code, sign) => sign ?? String.fromCharCode(parseInt(code, 16)));
  return { plain, bare: "q".repeat(plain.length) };
}

// Returns a name in quotes, which a filter reads as the name again. An input field would drop the ends of lines.
export function quoted(name) {
  const code = (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return `"${name.replace(/["\\]/g, "\\$&").replace(/[\0-\x1f\x7f-\x9f\u2028\u2029]/g, code)}"`;
}

// Returns a test of the values that a field has, or null if the condition has no meaning. Numbers compare exactly, and
// only numbers are smaller or larger.
function condition(name, operator, wanted) {
  const pattern = operator === "~" ? glob(wanted) : null;
  if (operator === "~" ? !pattern : /[<>]/.test(operator) && !isNumber(wanted)) return null;
  const order = (value) => compare(numberText(value) ?? "", wanted);
  const isEqual = (value) => (numberText(value) !== null && isNumber(wanted) ? order(value) === 0 : valueText(value) === wanted);
  const tests = {
    "=": isEqual,
    "==": isEqual,
    "!=": (value) => !isEqual(value),
    "~": (value) => pattern.test(valueText(value)),
    ">": (value) => order(value) > 0,
    "<": (value) => order(value) < 0,
    ">=": (value) => order(value) >= 0,
    "<=": (value) => order(value) <= 0,
  };
  return { name, key: keyOf(name), isKnown: false, isForAll: operator === "!=", test: tests[operator] };
}

// Returns the values of a field: of the payload first, then of the context. An enumeration has a number and a label.
function valuesOf(event, key) {
  const parts = [event.fields, event.context ?? {}, event.specific ?? {}];
  const part = parts.find((part) => Object.hasOwn(part, key));
  if (part === undefined) return [];
  return enumeration(part[key]) ?? [part[key]];
}

// Returns true if a condition holds for an event. Notes in the condition that an event has its field.
export function holds(condition, event) {
  const values = valuesOf(event, condition.key);
  condition.isKnown ||= values.length > 0;
  return condition.isForAll ? values.length > 0 && values.every(condition.test) : values.some(condition.test);
}

// An event whose fields are not on the page.
const CUT = /"cut":\d+\}$/;

// Returns a test of the text of an event's fields: whether a name or a value contains a text in small letters. Most
// events are judged by their JSON as it is; the others are parsed, and judged by what the page shows of them.
export function contains(wanted) {
  // In the text of the fields, quotes, backslashes and characters that control a terminal are escaped.
  const code = (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const escaped = JSON.stringify(wanted).slice(1, -1).replace(/[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, code);
  const isIn = (text) => text.toLowerCase().includes(wanted) || visible(text).toLowerCase().includes(wanted);
  const isShown = ({ fields, context = {}, specific = {} }) => [fields, context, specific].some((part) => members(part).some(([name, value]) => isIn(name) || isIn(valueText(value))));
  // Such a text may be a part of the JSON, or of what is shown in place of the JSON: `A (0)`.
  const isPlain = !/[(){}[\]:,"\\]| $/.test(wanted);
  const isSyntax = ["context", "specific", "fields", "cut"].some((word) => word.includes(wanted));
  return (line) => {
    const text = line.toLowerCase();
    const hasOthers = line.includes("\\") || line.includes('{"":');
    // The clock's reading is the first member.
    const isThere = text.includes(escaped) && text.includes(escaped, text.indexOf(","));
    if (!isThere && (isPlain || !hasOthers)) return false;
    return (isThere && isPlain && !isSyntax && !line.includes("\\")) || isShown(parse(line));
  };
}

// Calls `visit` with the row and the text of the fields of each wanted event, and now and then lets the page go on.
async function eachRow(data, wanted, visit, progress, isOver) {
  const { fields, times } = data;
  let shown = performance.now();
  for (let block = 0; block < fields.count && !isOver(); block++) {
    const first = block * fields.size - fields.skip;
    if (data.order === null && !any(first, Math.min(first + fields.size, times.length), wanted)) continue;
    const lines = await fields.read(block);
    for (let line = 0; line < lines.length; line++) {
      const place = first + line;
      if (place < 0 || place >= times.length) continue;
      const row = data.places ? data.places[place] : place;
      if (wanted(row)) visit(row, lines[line]);
    }
    if (performance.now() - shown < 40) continue;
    progress(block / fields.count);
    await new Promise((done) => setTimeout(done));
    shown = performance.now();
  }
}

function any(from, to, wanted) {
  for (let row = Math.max(0, from); row < to; row++) if (wanted(row)) return true;
  return false;
}

export class Search {
  constructor(app) {
    this.app = app;
    this.at = -1;
    this.run = 0;
    this.filterRun = 0;
    const { data } = app;
    if (data.order) {
      data.places = new Uint32Array(data.order.length);
      data.order.forEach((place, row) => { data.places[place] = row; });
    }
    const input = byId("search");
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      if (input.value === this.text) this.step(event.shiftKey ? -1 : 1);
      else this.find(input.value);
    });
    input.addEventListener("search", () => input.value === "" && this.find(""));
    byId("next").addEventListener("click", () => (input.value === this.text ? this.step(1) : this.find(input.value)));
    byId("previous").addEventListener("click", () => this.step(-1));
    const filter = byId("filter");
    filter.addEventListener("keydown", (event) => event.key === "Enter" && (event.preventDefault(), this.filter(filter.value)));
    filter.addEventListener("change", () => this.filter(filter.value));
    filter.addEventListener("search", () => this.filter(filter.value));
    byId("tools").addEventListener("submit", (event) => event.preventDefault());
  }

  // Finds the events whose name or fields contain a text, in small or capital letters alike. Goes to the first one, unless
  // the filter has changed and the search is not new.
  async find(text, isNew = true) {
    const run = ++this.run;
    this.text = text;
    this.at = -1;
    const { data } = this.app;
    if (text === "") {
      this.app.setResults(null);
      byId("found").textContent = "";
      return;
    }
    const wanted = text.toLowerCase();
    const isInFields = contains(wanted);
    const byName = data.head.kinds.map(({ name }) => [name, visible(name)].some((shown) => shown.toLowerCase().includes(wanted)));
    const rows = [];
    let cut = 0;
    this.unsearched = "";
    const say = (more) => { byId("found").textContent = `${rows.length.toLocaleString("en")} found${more}${this.unsearched}`; };
    const seen = (row) => this.app.isVisible(row);
    const visit = (row, line) => {
      if (byName[data.kinds[row]] || isInFields(line)) rows.push(row);
      else if (CUT.test(line)) cut++;
    };
    await eachRow(data, seen, visit, (part) => say(`, ${Math.round(part * 100)} % searched`), () => run !== this.run);
    if (run !== this.run) return;
    rows.sort((a, b) => a - b);
    this.app.setResults(new Index(Uint32Array.from(rows), data.times));
    if (cut > 0) this.unsearched = `, ${cut.toLocaleString("en")} ${cut === 1 ? "event" : "events"} not searched: ${cut === 1 ? "its" : "their"} fields are not on the page`;
    say("");
    if (isNew && rows.length > 0) this.step(1);
  }

  // Goes to another result.
  step(by) {
    const { results, view } = this.app;
    if (!results || results.items.length === 0) return;
    const count = results.items.length;
    if (this.at < 0) {
      // The first result at or after what is shown.
      this.at = results.lower(view.from) % count;
    } else {
      this.at = (this.at + by + count) % count;
    }
    const row = results.items[this.at];
    byId("found").textContent = `${(this.at + 1).toLocaleString("en")} of ${count.toLocaleString("en")}${this.unsearched}`;
    this.app.goTo(row);
  }

  // Hides all events for which the filter does not hold.
  async filter(text) {
    if (text === this.filterText) return;
    const run = ++this.filterRun;
    this.filterText = text;
    const { data } = this.app;
    const output = byId("filtered");
    const { globs, conditions, wrong } = parseFilter(text);
    if (wrong.length > 0) {
      output.textContent = `not understood: ${wrong.join(" ")}`;
      return;
    }
    if (globs.length === 0 && conditions.length === 0) {
      output.textContent = "";
      await this.app.setVisible(null);
      return;
    }
    const byKind = data.head.kinds.map((kind) => globs.length === 0 || globs.some((test) => test(kind.name)));
    const visible = new Uint8Array(data.times.length);
    const isNamed = (row) => byKind[data.kinds[row]];
    if (conditions.length === 0) {
      for (let row = 0; row < visible.length; row++) visible[row] = isNamed(row) ? 1 : 0;
    } else {
      const visit = (row, line) => {
        const event = parse(line);
        if (conditions.every((condition) => holds(condition, event))) visible[row] = 1;
      };
      const progress = (part) => { output.textContent = `${Math.round(part * 100)} % filtered`; };
      await eachRow(data, isNamed, visit, progress, () => run !== this.filterRun);
      if (run !== this.filterRun) return;
    }
    const searched = this.app.setVisible(visible);
    const unknown = conditions.filter(({ isKnown }) => !isKnown).map(({ name }) => `; no event that was looked at has the field ${name}`);
    output.textContent = `${this.app.counted().toLocaleString("en")} of ${data.head.counted.toLocaleString("en")} events${unknown.join("")}`;
    await searched;
  }
}
