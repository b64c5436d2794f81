// Reads the data of the page: JSON, and columns of numbers that are compressed.

import { later } from "view/time.js";

async function inflated(text) {
  const stream = new Blob([await bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return new Uint8Array(await (await fetch(`data:application/octet-stream;base64,${text}`)).arrayBuffer());
}

// Waits for an element of the page, which may still be arriving.
async function arrived(find) {
  for (;;) {
    // Read before the search: what comes last is there when the page is whole.
    const isWhole = document.readyState !== "loading";
    const element = find();
    // An element is whole when another one follows it.
    if (element && (isWhole || element.nextElementSibling)) return element;
    if (isWhole) throw new Error("the page is cut off: a part of its data is missing");
    await new Promise((done) => setTimeout(done, 10));
  }
}

const column = async (id, Type) => {
  const element = await arrived(() => document.getElementById(id));
  const values = new Type(await inflated(element.textContent));
  element.remove();
  return values;
};

export const NONE = 0xffffffff;
export const NO_BEGIN = 1;
export const NO_END = 2;
export const UNSURE = 4;

// Returns what the page says besides its columns.
export function head() {
  return JSON.parse(document.getElementById("head").textContent);
}

// Returns the columns of events and slices. Times are nanoseconds from the page's beginning: `times`, `begins` and `ends`
// are JavaScript's numbers, from which is drawn; `timeOf`, `beginOf`, `endOf` and `lengthOf` are for what is read.
export async function load(head) {
  const names = ["tracks", "labels", "threads", "events", "openings", "parents"];
  const [deltas, kinds, threads, cpus, starts, durations, flags, ...words] = await Promise.all([
    column("times", Uint32Array), column("kinds", Uint32Array), column("threads", Uint32Array), column("cpus", Uint32Array),
    column("slice-begins", Uint32Array), column("slice-lengths", Uint32Array), column("slice-flags", Uint8Array),
    ...names.map((name) => column(`slice-${name}`, Uint32Array)),
  ]);
  const order = head.sorted ? null : await column("order", Uint32Array);
  const times = new Float64Array(deltas.length);
  const timeOf = sum(times, deltas, head.wide);
  const begins = new Float64Array(starts.length);
  const beginOf = sum(begins, starts, head.wide_begins);
  const lengths = new Map(head.wide_lengths.map(([slice, length]) => [slice, numberOf(length)]));
  const lengthOf = (slice) => lengths.get(slice) ?? durations[slice];
  const endOf = (slice) => later(beginOf(slice), lengthOf(slice));
  const ends = Float64Array.from(begins, (_, slice) => Number(endOf(slice)));
  const slices = { begins, ends, beginOf, endOf, lengthOf, flags, ...Object.fromEntries(names.map((name, at) => [name, words[at]])) };
  return { head, times, timeOf, kinds, threads, cpus, order, slices, fields: new Fields(head, order) };
}

// Adds differences up. Those that do not fit 32 bits are in a list of positions and differences. Returns a function that
// returns the sum at a position: a number where numbers hold all sums, else a BigInt.
export function sum(sums, differences, wide) {
  let [at, value] = [0, 0];
  let isExact = true;
  for (const [place, difference] of [...wide, [differences.length, 0]]) {
    for (; at < place; at++) sums[at] = value += differences[at];
    if (at < sums.length) sums[at++] = value += Number(difference);
    isExact &&= Math.abs(value) <= Number.MAX_SAFE_INTEGER;
  }
  return isExact ? (at) => sums[at] : sumExactly(sums, differences, wide);
}

// Adds differences up as `sum` does, where JavaScript's numbers are too short. Each part has a base, from which its sums
// are small numbers: a part begins at each wide difference, and where the numbers would become large.
function sumExactly(sums, differences, wide) {
  const locals = new Float64Array(sums.length);
  const parts = [{ first: 0, base: 0n }];
  let value = 0;
  const begin = (first, difference) => {
    parts.push({ first, base: parts.at(-1).base + BigInt(value) + BigInt(difference) });
    value = 0;
  };
  const far = new Map(wide);
  for (let at = 0; at < sums.length; at++) {
    if (far.has(at)) begin(at, far.get(at));
    else if (value > LONG) begin(at, differences[at]);
    else value += differences[at];
    locals[at] = value;
  }
  parts.forEach((part, number) => round(part, parts[number + 1]?.first ?? sums.length, locals, sums));
  return (at) => partOf(parts, at).base + BigInt(locals[at]);
}

const LONG = 2 ** 52;

// Sets the sums of a part to the nearest of JavaScript's numbers.
function round({ first, base }, end, locals, sums) {
  const near = Number(base);
  const isExact = BigInt(near) === base;
  for (let at = first; at < end; at++) sums[at] = isExact ? near + locals[at] : Number(base + BigInt(locals[at]));
}

// Returns the last part that begins at or before a position.
function partOf(parts, at) {
  let [low, high] = [0, parts.length];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (parts[middle].first <= at) low = middle;
    else high = middle;
  }
  return parts[low];
}

// Returns a difference of the page's head as a number, or as a BigInt where it is a text because no number holds it.
const numberOf = (difference) => (typeof difference === "string" ? BigInt(difference) : difference);

// The fields of events, in blocks of text. A block is decompressed when one of its events is asked for.
class Fields {
  constructor(head, order) {
    this.size = head.block;
    this.count = head.blocks;
    this.skip = head.skip;
    this.order = order;
    this.kept = new Map();
  }

  // Returns the lines of a block.
  async lines(block) {
    let lines = this.kept.get(block);
    if (!lines) {
      lines = await this.read(block);
      this.kept.set(block, lines);
      if (this.kept.size > 8) this.kept.delete(this.kept.keys().next().value);
    }
    return lines;
  }

  // Decompresses a block into its lines.
  async read(block) {
    return (await this.text(block)).split("\n");
  }

  // Decompresses a block into its text, in which each line ends with a line feed, but for the last.
  async text(block) {
    const element = await arrived(() => document.getElementsByClassName("block")[block]);
    return new TextDecoder().decode(await inflated(element.textContent)).slice(0, -1);
  }

  // Returns the place of a row: its block, and its line there.
  place(row) {
    const at = (this.order ? this.order[row] : row) + this.skip;
    return [Math.floor(at / this.size), at % this.size];
  }

  // Returns the fields of events of one block, as `parse` returns them.
  async parsed(block, rows) {
    const lines = await this.lines(block);
    return rows.map((row) => parse(lines[this.place(row)[1]]));
  }

  // Returns the fields of an event as text, and as `parse` returns them.
  async of(row) {
    const [block, line] = this.place(row);
    const text = (await this.lines(block))[line];
    return { text, value: parse(text) };
  }
}

// JSON has no form for some values of fields. They are objects of one member without a name, which no structure of a trace
// has: `{"":[value,label]}` is an enumeration, `{"":"18446744073709551615"}` a number as it is written, `{"":"inf"}` a
// float that is not finite. `view` writes the first and the last; `parse` makes the numbers.

// Strings, with the colon that follows names; and numbers that JavaScript's numbers may not hold, or would show otherwise.
const TOKEN = /"(?:[^"\\]|\\.)*"(:?)|(?<![\w.+-])-?(?:\d{16,}|\d+(?=[.eE]))[\d.eE+-]*/g;
const NUMERAL = /^"(?:\\u0000)*\d+":$/;

// Most fields have none of these, and are parsed as they are.
const SPECIAL = /\d{16}|\d[.eE]|"(?:\\u0000)*\d+":/;

// Parses the JSON of an event's fields.
export function parse(text) {
  if (!SPECIAL.test(text)) return JSON.parse(text);
  return JSON.parse(text.replace(TOKEN, (match, colon) => {
    if (match[0] !== '"') return `{"":"${match}"}`;
    return colon && NUMERAL.test(match) ? `"\\u0000${match.slice(1)}` : match;
  }));
}

// Returns the key of a name in what was parsed. JavaScript would put keys that are numbers before all others.
export const keyOf = (name) => (/^\0*\d+$/.test(name) ? `\0${name}` : name);

// Returns the names and values of a structure, in the order of the trace.
export const members = (structure) => Object.entries(structure).map(([key, value]) => [/^\0+\d+$/.test(key) ? key.slice(1) : key, value]);

// Returns the text of a number that was parsed, or null if the value is no number.
export function numberText(value) {
  if (typeof value === "number") return String(value);
  return typeof value?.[""] === "string" ? value[""] : null;
}

// Returns the value and the label of an enumeration, or null if the value is none.
export const enumeration = (value) => (Array.isArray(value?.[""]) ? value[""] : null);
