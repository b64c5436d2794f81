// Searches and filters events. Names are looked at first; fields are decompressed block by block, in the background.

import { members, parse } from "view/data.js";
import { valueText } from "view/details.js";
import { byId, make, visible } from "view/dom.js";
import { bind } from "view/fields.js";
import { FilterError, parseFilter, quoted } from "view/filter.js";
import { holds } from "view/judge.js";
import { Index } from "view/rows.js";

// An event whose fields are not on the page.
const CUT = /"cut":\d+\}$/m;

// Returns two tests of the fields of events: whether a name or a value of an event contains a text in small letters, and
// whether one of several events may. Most events are judged by their JSON as it is; the others are parsed, and judged by
// what the page shows of them.
export function contains(wanted) {
  // In the text of the fields, quotes, backslashes and characters that control a terminal are escaped.
  const code = (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;
  const escaped = JSON.stringify(wanted).slice(1, -1).replace(/[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g, code);
  const isIn = (text) => text.toLowerCase().includes(wanted) || visible(text).toLowerCase().includes(wanted);
  const isShown = ({ fields, context = {}, specific = {} }) => [fields, context, specific].some((part) => members(part).some(([name, value]) => isIn(name) || isIn(valueText(value))));
  // Such a text may be a part of the JSON, or of what is shown in place of the JSON: `A (0)`.
  const isPlain = !/[(){}[\]:,"\\]| $/.test(wanted);
  const isSyntax = ["context", "specific", "fields", "cut"].some((word) => word.includes(wanted));
  const mayShowOthers = (lines) => !isPlain && (lines.includes("\\") || lines.includes('{"":'));
  const isOf = (line) => {
    const text = line.toLowerCase();
    // The clock's reading is the first member.
    const isThere = text.includes(escaped) && text.includes(escaped, text.indexOf(","));
    if (!isThere && !mayShowOthers(line)) return false;
    return (isThere && isPlain && !isSyntax && !line.includes("\\")) || isShown(parse(line));
  };
  return { isOf, mayBeIn: (lines) => lines.toLowerCase().includes(escaped) || mayShowOthers(lines) };
}

// Calls `visit` with the row and the text of the fields of each wanted event, and now and then lets the page go on. In place
// of the text is null where `isToRead` refuses the text of all events of a block.
async function eachRow(data, wanted, isToRead, visit, progress, isOver) {
  const { fields, times } = data;
  let shown = performance.now();
  for (let block = 0; block < fields.count && !isOver(); block++) {
    const first = block * fields.size - fields.skip;
    if (data.order === null && !any(first, Math.min(first + fields.size, times.length), wanted)) continue;
    const text = await fields.text(block);
    const lines = isToRead(text) ? text.split("\n") : null;
    for (let line = 0; line < fields.size; line++) {
      const place = first + line;
      if (place < 0 || place >= times.length) continue;
      const row = data.places ? data.places[place] : place;
      if (wanted(row)) visit(row, lines && lines[line]);
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
    const { isOf, mayBeIn } = contains(wanted);
    const isToRead = (lines) => mayBeIn(lines) || CUT.test(lines);
    const byName = data.head.kinds.map(({ name }) => [name, visible(name)].some((shown) => shown.toLowerCase().includes(wanted)));
    const rows = [];
    let cut = 0;
    this.unsearched = "";
    const say = (more) => { byId("found").textContent = `${rows.length.toLocaleString("en")} found${more}${this.unsearched}`; };
    const seen = (row) => this.app.isVisible(row);
    const visit = (row, line) => {
      if (byName[data.kinds[row]] || (line !== null && isOf(line))) rows.push(row);
      else if (line !== null && CUT.test(line)) cut++;
    };
    await eachRow(data, seen, isToRead, visit, (part) => say(`, ${Math.round(part * 100)} % searched`), () => run !== this.run);
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

  // Hides all events for which the filter is not true.
  async filter(text) {
    if (text === this.filterText) return;
    const run = ++this.filterRun;
    this.filterText = text;
    const { data } = this.app;
    const output = byId("filtered");
    showError(null);
    if (text.trim() === "") {
      output.textContent = "";
      await this.app.setVisible(null);
      return;
    }
    let judge;
    try {
      judge = new Judge(data, parseFilter(text));
    } catch (error) {
      if (!(error instanceof FilterError)) throw error;
      output.textContent = "not applied";
      showError(error);
      return;
    }
    const visible = new Uint8Array(data.times.length);
    for (let row = 0; row < visible.length; row++) visible[row] = judge.byKind[data.kinds[row]] === true ? 1 : 0;
    const isOpen = (row) => judge.byKind[data.kinds[row]] === undefined;
    const visit = (row, line) => { visible[row] = judge.isTrue(row, line) ? 1 : 0; };
    const progress = (part) => { output.textContent = `${Math.round(part * 100)} % filtered`; };
    if (judge.readsFields) await eachRow(data, isOpen, () => true, visit, progress, () => run !== this.filterRun);
    else for (let row = 0; row < visible.length; row++) if (isOpen(row)) visit(row, null);
    if (run !== this.filterRun) return;
    const searched = this.app.setVisible(visible);
    output.textContent = `${this.app.counted().toLocaleString("en")} of ${data.head.counted.toLocaleString("en")} events${judge.remarks()}`;
    await searched;
  }
}

// A filter that is bound to the events of the page.
class Judge {
  constructor(data, filter) {
    const { head } = data;
    Object.assign(this, { data, filter, bound: bind(data, filter), cut: 0 });
    this.isKnown = filter.names.map(() => false);
    // What is not decided without the fields of an event stays unknown: more values never change what is known.
    this.byKind = head.kinds.map((_, kind) => holds(filter, (place) => this.bound.read(place, kind, null, null)));
    this.readsFields = this.bound.sources.some((own, kind) => this.byKind[kind] === undefined && own.some((source) => source?.paths));
    this.isLookedAt = false;
  }

  // Returns true if the filter is true for an event. `line` has its fields, if they are read.
  isTrue(row, line) {
    this.isLookedAt = true;
    const event = line === null ? null : parse(line);
    const kind = this.data.kinds[row];
    const verdict = holds(this.filter, (place) => {
      const value = this.bound.read(place, kind, row, event);
      if (value !== undefined) this.isKnown[place] = true;
      return value;
    });
    if (verdict === undefined && event?.cut && this.bound.sources[kind].some((source) => source?.paths)) this.cut++;
    return verdict === true;
  }

  // Returns what is to be said of the result.
  remarks() {
    const { names } = this.filter;
    const unknown = this.isLookedAt ? names.filter((_, place) => !this.isKnown[place]) : [];
    const cut = this.cut > 0 ? `; not judged: ${this.cut.toLocaleString("en")} whose fields are not on the page` : "";
    return cut + unknown.map(({ text }) => `; no event that was looked at has a value of ${text}`).join("");
  }
}

// Shows why a filter is refused, or hides that.
function showError(error) {
  const box = byId("filter-error");
  box.hidden = error === null;
  byId("filter").setAttribute("aria-invalid", String(error !== null));
  if (error === null) return;
  // A glob alone is no expression, as people may think.
  const [glob] = /^[\w:.-]*[*?[]\S*/.exec(error.expression.trim()) ?? [];
  const hint = glob ? [make("p", {}, `Events by their names: event ~ ${quoted(glob)}`)] : [];
  box.replaceChildren(make("p", {}, error.message), make("pre", {}, error.caret), ...hint);
}
