// The fields of events as one line of text. A line is made when something asks for it, in the background.

import { members, NONE } from "view/data.js";
import { message, valueText } from "view/details.js";

// Most lines that are kept, and most that wait: what was asked for long ago has been scrolled away.
const [KEPT, WAITING] = [20_000, 1000];
// The fields of spans that only lead to other spans.
const IDS = new Set(["span_id", "parent_id"]);

// Returns the name of a span or an event without the paths of modules: `service:charging`, `span:new charge`.
export const lastPart = (name) => name.replace(/(?:[A-Za-z_]\w*::)+/g, "");

// Most elements of an array in a line: backtraces have many.
const ELEMENTS = 8;
const shortText = (value) => (Array.isArray(value) && value.length > ELEMENTS ? `[${value.length} values]` : valueText(value));
// Returns the text of a span without the path of its name.
const shortSpan = (text) => valueText(text).replace(/^[^{]*/, lastPart);

// Returns the fields of an event as one line: its message first.
export function lineOf({ context = {}, fields, cut }, isOfSpan) {
  const [text] = message(context);
  if (text) return text;
  if (cut) return `(${cut} bytes that are not on the page)`;
  const { message: own, ...others } = fields;
  const isMessage = typeof own === "string";
  // The id of a span is of no use beside its text.
  const hidesIds = isOfSpan || typeof fields.span === "string";
  const rest = members(isMessage ? others : fields).filter(([name]) => !hidesIds || !IDS.has(name)).map(([name, value]) => `${name}=${name === "span" && hidesIds ? shortSpan(value) : shortText(value)}`);
  return [...(isMessage ? [own] : []), ...rest].join(" ");
}

export class Texts {
  // `arrived` is called when lines that were asked for are there.
  constructor(data, log, arrived) {
    Object.assign(this, { data, log, arrived, kept: new Map(), wanted: new Set(), isReading: false, version: 0 });
    this.isOfSpan = data.head.kinds.map(({ name }) => name.startsWith("span:"));
    this.texts = new Map(data.head.open.filter(({ text }) => text).map(({ slice, text }) => [slice, text]));
  }

  // Returns the line of an event, or undefined: then it is made.
  get(row) {
    const line = this.log.get(row)?.text ?? this.kept.get(row);
    if (line !== undefined) return line;
    this.wanted.delete(row);
    this.wanted.add(row);
    if (this.wanted.size > WAITING) this.wanted.delete(this.wanted.values().next().value);
    if (!this.isReading) {
      this.isReading = true;
      setTimeout(() => this.read());
    }
    return undefined;
  }

  async read() {
    const { fields, kinds } = this.data;
    try {
      while (this.wanted.size > 0) {
        const rows = [...this.wanted];
        this.wanted.clear();
        for (const [block, own] of Map.groupBy(rows, (row) => fields.place(row)[0])) {
          const values = await fields.parsed(block, own).catch(() => []);
          own.forEach((row, at) => this.keep(row, values[at] ? lineOf(values[at], this.isOfSpan[kinds[row]]) : ""));
        }
        this.version++;
        this.arrived();
      }
    } finally {
      this.isReading = false;
    }
  }

  keep(row, line) {
    this.kept.set(row, line);
    if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
  }

  // Returns the fields of a span: those that it had at the end, if they are known, else those that it was opened with.
  ofSlice(slice) {
    const known = this.texts.get(slice);
    if (known !== undefined) return known;
    const opening = this.data.slices.openings[slice];
    return opening === NONE ? "" : this.get(opening);
  }

  // Returns the name of a slice with its fields: `orders::charge{order=7}`; with `isShort`, without the path of the name.
  named(slice, isShort = false) {
    const { head, slices } = this.data;
    const fields = this.ofSlice(slice);
    const name = head.labels[slices.labels[slice]];
    return `${isShort ? lastPart(name) : name}${fields ? `{${fields}}` : ""}`;
  }
}
