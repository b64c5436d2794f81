// The panel: the fields of an event, a slice or a gap; the statistics of a range; the kernel's log; the kinds of events.

import { Digits, isEnumeration, NO_BEGIN, NO_END, NONE, UNSURE } from "view/data.js";
import { byId, make, table } from "view/dom.js";
import { threadName } from "view/rows.js";
import { quoted } from "view/search.js";
import { duration } from "view/time.js";

const TABS = [["details", "Details"], ["statistics", "Statistics"], ["log", "Kernel log"], ["about", "Account of losses"]];

export class Panel {
  constructor(app) {
    this.app = app;
    this.open = "details";
    this.asked = 0;
    const tabs = TABS.filter(([key]) => key !== "log" || app.data.head.log.length > 0);
    byId("tabs").replaceChildren(...tabs.map(([key, text]) => make("button", { type: "button", role: "tab", id: `tab-${key}`, onclick: () => this.show(key) }, text)));
    this.details = [make("p", { class: "soft" }, "Click an event or a slice for all its fields. Drag over the timeline for the statistics of a range.")];
    this.show("statistics");
  }

  show(key) {
    this.open = key;
    for (const tab of byId("tabs").children) tab.setAttribute("aria-selected", String(tab.id === `tab-${key}`));
    const contents = { details: () => this.details, statistics: () => this.statistics(), log: () => this.log(), about: () => this.about() };
    byId("content").replaceChildren(...contents[key]());
  }

  setDetails(...elements) {
    this.details = elements;
    this.show("details");
  }

  // Shows all fields of an event.
  async event(row) {
    const asked = ++this.asked;
    const { app } = this;
    const { data } = app;
    const kind = data.head.kinds[data.kinds[row]];
    let fields;
    try {
      fields = await data.fields.of(row);
    } catch (error) {
      fields = { value: { fields: {} }, error: String(error.message ?? error) };
    }
    if (asked !== this.asked) return;
    const { ticks, context = {}, specific = {}, fields: payload } = fields.value;
    const [text, others] = message(context);
    const parts = [make("h2", {}, kind.name)];
    if (fields.value.cut) parts.push(make("p", { class: "level-error" }, `The fields of this event take ${fields.value.cut} bytes and are not on the page: lastwords report shows them.`));
    if (fields.error) parts.push(make("p", { class: "level-error" }, fields.error));
    if (text) parts.push(make("pre", {}, text));
    const cpu = data.head.cpus[data.cpus[row]];
    const thread = data.head.threads[data.threads[row]];
    const facts = [...app.timeRows(data.timeOf(row), kind.timed), ["Trace", data.head.traces[kind.trace]], ["Channel", kind.channel]];
    if (kind.level) facts.push(["Level", kind.level]);
    if (cpu) facts.push(["CPU", cpu.cpu]);
    if (thread) facts.push(["Thread", threadName(thread)]);
    if (thread && thread.pid !== null) facts.push(["Process", String(thread.pid)]);
    if (ticks !== undefined) facts.push(["Clock reading", String(ticks)]);
    const shown = (object) => Object.entries(object).map(([name, value]) => [name, valueText(value)]);
    const columns = [valueTable("Event", facts), valueTable("Fields", shown(payload))];
    if (Object.keys(others).length > 0) columns.push(valueTable("Context", shown(others)));
    if (Object.keys(specific).length > 0) columns.push(valueTable("Context of this event class", shown(specific)));
    this.setDetails(...parts, make("div", { class: "columns" }, ...columns));
  }

  slice(slice) {
    const { app } = this;
    const { slices, head } = app.data;
    const track = head.tracks[slices.tracks[slice]];
    const thread = head.threads[slices.threads[slice]];
    const flags = slices.flags[slice];
    const [begin, end] = [slices.beginOf(slice), slices.endOf(slice)];
    const name = track.of === "running" ? threadName(thread) : head.labels[slices.labels[slice]];
    const what = { running: "Runs on a CPU", interrupts: "Interrupt", thread: "Of a thread", spans: "Span" }[track.of];
    const rows = [
      ["What", what],
      ["Duration", `${duration(slices.lengthOf(slice))}${flags & (NO_BEGIN | NO_END) ? " at least" : ""}`],
      ["Begin", `${app.times.full(begin)}${flags & NO_BEGIN ? " or earlier: the begin is not recorded" : ""}`],
      ["End", `${app.times.full(end)}${endNote(flags)}`],
      ["Before the end", app.times.beforeEnd(begin)],
    ];
    if (track.of === "running" || track.of === "interrupts") rows.push(["CPU", String(head.cpus[track.owner]?.cpu)]);
    if (thread) rows.push(["Thread", threadName(thread)]);
    const event = slices.events[slice];
    const more = event !== NONE ? make("button", { type: "button", onclick: () => app.chooseEvent(event) }, "The event that began it") : null;
    this.setDetails(make("h2", {}, name), valueTable("Slice", rows), ...(more ? [more] : []));
    this.asked++;
  }

  gap(gap) {
    this.asked++;
    const { times } = this.app;
    const rows = [
      ["Missing", gap.what], ["Stream", gap.stream],
      ["From", gap.begin === null ? "before the first event" : times.full(gap.begin)],
      ["To", gap.end === null ? "behind the last event" : times.full(gap.end)],
      ["Counts as a loss", gap.loss ? "yes" : "no"],
    ];
    this.setDetails(make("h2", {}, "Gap"), valueTable("Gap", rows));
  }

  // Shows what is in the chosen range, or in what is shown.
  statistics() {
    const { app } = this;
    const [from, to] = app.timeline.range ?? [app.view.from, app.view.to];
    const { data } = app;
    const { head } = data;
    const isAll = !app.timeline.range;
    const title = isAll ? "What is shown" : "The chosen range";
    const index = app.marks.every.all;
    const counts = new Uint32Array(head.kinds.length);
    const [first, last] = [index.lower(from), index.lower(to + 1e-6)];
    for (let at = first; at < last; at++) counts[data.kinds[index.items[at]]]++;
    const byName = new Map();
    head.kinds.forEach((kind, at) => counts[at] && byName.set(kind.name, (byName.get(kind.name) ?? 0) + counts[at]));
    const names = [...byName].sort((a, b) => b[1] - a[1]);
    const tables = [];
    if (names.length > 0) tables.push(table("Events", ["Name", "Count"], names, (at) => this.filterBy(names[at][0])));
    tables.push(...this.durations(from, to));
    const summary = `${title}: ${duration(to - from)}, from ${app.times.full(from)} to ${app.times.full(to)}; ${(last - first).toLocaleString("en")} events`;
    return [make("h2", {}, summary), make("div", { class: "columns", id: "statistics" }, ...tables)];
  }

  filterBy(name) {
    byId("filter").value = /^[\w:.-]+$/.test(name) && !isPartOfOther(name, this.app.data.head.kinds) ? name : quoted(name);
    this.app.search.filter(byId("filter").value);
  }

  // Returns tables of how long threads ran, and how long interrupts, system calls and spans took.
  durations(from, to) {
    const { data, slices } = this.app;
    const { head } = data;
    const sums = { running: new Map(), interrupts: new Map(), thread: new Map(), spans: new Map() };
    head.tracks.forEach((track, number) => {
      const { items, ends } = slices.tracks[number];
      const sum = sums[track.of];
      for (let at = ends.lower(from); at < items.length && data.slices.begins[items[at]] <= to; at++) {
        const slice = items[at];
        const time = timeIn(data.slices, slice, from, to);
        const key = track.of === "running" ? data.slices.threads[slice] : data.slices.labels[slice];
        const own = sum.get(key) ?? { count: 0, total: 0, most: 0 };
        own.count++;
        own.total += time;
        own.most = Math.max(own.most, time);
        sum.set(key, own);
      }
    });
    const titles = { running: "Threads on CPUs", interrupts: "Interrupts", thread: "In threads", spans: "Spans" };
    return Object.entries(sums).filter(([, sum]) => sum.size > 0).map(([of, sum]) => {
      const name = (key) => (of === "running" ? threadName(head.threads[key]) : head.labels[key]);
      const rows = [...sum].sort((a, b) => b[1].total - a[1].total).slice(0, 200);
      const number = (value) => ({ number: duration(value) });
      return table(titles[of], ["Name", "Count", "Total", "Mean", "Longest"], rows.map(([key, own]) => [name(key), own.count, number(own.total), number(own.total / own.count), number(own.most)]));
    });
  }

  log() {
    const { app } = this;
    const { head, times, timeOf } = app.data;
    const rows = head.log.map(([row, level, text]) => [app.times.tick(timeOf(row), 1000), app.times.beforeEnd(timeOf(row)), level, text]);
    const element = table("Kernel log", ["Time", "Before the end", "Level", "Text"], rows, (at) => {
      app.chooseEvent(head.log[at][0]);
      app.reveal(times[head.log[at][0]]);
    });
    element.querySelectorAll("tbody tr").forEach((line, at) => {
      if (head.log[at][1] <= 3) line.classList.add("level-error");
    });
    return [element];
  }

  about() {
    const { head } = this.app.data;
    const accounts = head.accounts.map((text) => make("pre", { class: "account" }, text));
    const notes = head.notes.map((text) => make("p", {}, text));
    const gaps = head.gaps.map((gap) => [gap.stream, gap.what, gap.begin === null ? "before the first event" : this.app.times.full(gap.begin)]);
    const list = gaps.length > 0 ? [table("Gaps in the timeline", ["Stream", "Missing", "From"], gaps, (at) => this.app.chooseGap(head.gaps[at]))] : [];
    return [...accounts, ...notes, ...list];
  }
}

function endNote(flags) {
  if (flags & NO_END) return " or later: it was open when recording ended, or events are missing";
  return flags & UNSURE ? ", if this end is its own: events are missing there" : "";
}

// The names of the context that a kernel's ftrace has: with the text that the kernel prints of the event.
const FTRACE = /^flags,pid,(tgid,)?comm,lost,text$/;

// Returns the text that the kernel prints of an event, and the rest of the context. Other contexts have no such text,
// even if one of their fields has its name.
function message(context) {
  const { text, ...others } = context;
  const isMessage = typeof text === "string" && FTRACE.test(Object.keys(context).join());
  return isMessage ? [text, others] : ["", context];
}

// Returns true if a name as a filter would let other events pass, too: those that have it behind their last colon.
const isPartOfOther = (name, kinds) => kinds.some((kind) => kind.name.endsWith(`:${name}`));

// Returns how much of a slice lies in a range.
function timeIn({ begins, ends, lengthOf }, slice, from, to) {
  if (begins[slice] >= from && ends[slice] <= to) return Number(lengthOf(slice));
  return Math.min(ends[slice], to) - Math.max(begins[slice], from);
}

// Returns the text of a value. An enumeration shows its label and number.
export function valueText(value) {
  if (isEnumeration(value)) return value.label === null ? String(value.value) : `${value.label} (${value.value})`;
  return typeof value === "string" ? value : jsonText(value);
}

// Returns a value as JSON, in which large integers have all their digits, and a zero its sign.
function jsonText(value) {
  if (typeof value === "string") return JSON.stringify(value);
  if (Object.is(value, -0)) return "-0.0";
  if (Array.isArray(value)) return `[${value.map(jsonText).join(",")}]`;
  if (value === null || typeof value !== "object" || value instanceof Digits) return String(value);
  return `{${Object.entries(value).map(([name, inner]) => `${JSON.stringify(name)}:${jsonText(inner)}`).join(",")}}`;
}

function valueTable(caption, rows) {
  const lines = rows.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "value" }, value)));
  return make("table", {}, make("caption", {}, caption), make("tbody", {}, ...lines));
}
