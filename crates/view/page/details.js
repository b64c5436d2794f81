// The panel: the fields of an event, a slice or a gap; the statistics of a range; the kernel's log; the kinds of events.

import { enumeration, members, NO_BEGIN, NO_END, NONE, numberText, UNSURE } from "view/data.js";
import { byId, make, table } from "view/dom.js";
import { endingElements } from "view/ending.js";
import { quoted } from "view/filter.js";
import { Flame } from "view/flame.js";
import { machineName, onMachine, threadName } from "view/rows.js";
import { duration, short } from "view/time.js";

const TABS = [["ending", "At the death"], ["details", "Details"], ["statistics", "Statistics"], ["flame", "Flame graph"], ["log", "Kernel log"], ["about", "Account of losses"]];

export class Panel {
  constructor(app) {
    this.app = app;
    this.flame = new Flame(app);
    this.open = "details";
    this.asked = 0;
    const tabs = TABS.filter(([key]) => key !== "log" || app.data.head.log.length > 0).map(([key, text]) => [key, key === "ending" && app.deaths.length === 0 ? "At the end" : text]);
    byId("tabs").replaceChildren(...tabs.map(([key, text]) => make("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "content", onclick: () => this.show(key) }, text)));
    byId("tabs").addEventListener("keydown", (event) => this.moveTab(event));
    this.details = () => [make("p", { class: "soft" }, "Click an event or a slice for all its fields. Drag over the timeline for the statistics of a range.")];
    this.show("ending");
  }

  show(key) {
    this.open = key;
    for (const tab of byId("tabs").children) {
      const isOpen = tab.id === `tab-${key}`;
      tab.setAttribute("aria-selected", String(isOpen));
      // The Tab key reaches the open tab, arrows the others.
      tab.tabIndex = isOpen ? 0 : -1;
    }
    byId("content").setAttribute("aria-labelledby", `tab-${key}`);
    const contents = { ending: () => endingElements(this.app), details: this.details, statistics: () => this.statistics(), flame: () => this.flame.elements(), log: () => this.log(), about: () => this.about() };
    byId("content").replaceChildren(...contents[key]());
  }

  // Returns true if what is open is of the chosen range, or of what is shown.
  get isOfRange() {
    return this.open === "statistics" || this.open === "flame";
  }

  // Opens the next tab or the one before.
  moveTab(event) {
    const tabs = [...byId("tabs").children];
    const at = tabs.findIndex((tab) => tab.tabIndex === 0);
    const next = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (next === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const tab = tabs[(next + tabs.length) % tabs.length];
    tab.click();
    tab.focus();
  }

  // Shows details. `build` makes the elements again when times are shown in another form.
  setDetails(build) {
    this.details = build;
    this.show("details");
  }

  // Shows all fields of an event.
  async event(row) {
    const asked = ++this.asked;
    const { data } = this.app;
    let fields;
    try {
      fields = await data.fields.of(row);
    } catch (error) {
      fields = { value: { fields: {} }, error: String(error.message ?? error) };
    }
    if (asked === this.asked) this.setDetails(() => this.eventDetails(row, fields));
  }

  eventDetails(row, fields) {
    const { app } = this;
    const { data } = app;
    const kind = data.head.kinds[data.kinds[row]];
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
    facts.push(...machineFact(data.head, data.head.machine_of[kind.trace]));
    if (ticks !== undefined) facts.push(["Clock reading", valueText(ticks)]);
    const shown = (structure) => members(structure).map(([name, value]) => [name, valueText(value)]);
    const columns = [valueTable("Event", facts), valueTable("Fields", shown(payload))];
    if (Object.keys(others).length > 0) columns.push(valueTable("Context", shown(others)));
    if (Object.keys(specific).length > 0) columns.push(valueTable("Context of this event class", shown(specific)));
    return [...parts, make("div", { class: "columns" }, ...columns)];
  }

  async slice(slice) {
    const asked = ++this.asked;
    const { slices, fields } = this.app.data;
    const opening = slices.openings[slice];
    this.setDetails(() => this.sliceDetails(slice));
    if (opening === NONE) return;
    const event = await fields.of(opening).catch(() => null);
    if (event && asked === this.asked) this.setDetails(() => this.sliceDetails(slice, event.value));
  }

  sliceDetails(slice, event) {
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
      ["Duration", lengthText(slices, slice)],
      ["Begin", `${app.times.full(begin)}${flags & NO_BEGIN ? " or earlier: the begin is not recorded" : ""}`],
      ["End", `${app.times.full(end)}${endNote(flags)}`],
      [`Before the ${app.times.origin}`, app.times.beforeEnd(begin)],
    ];
    if (track.of === "running" || track.of === "interrupts") rows.push(["CPU", String(head.cpus[track.owner]?.cpu)]);
    if (thread) rows.push(["Thread", threadName(thread)]);
    rows.push(...machineFact(head, machineOf(head, track)));
    const begun = slices.events[slice];
    const more = begun !== NONE ? make("button", { type: "button", onclick: () => app.goTo(begun) }, "The event that began it") : null;
    const known = app.texts.texts.get(slice);
    const columns = [valueTable("Slice", rows)];
    if (known) columns.push(valueTable("At the end of recording", [["Fields", known]]));
    if (event) columns.push(valueTable("Fields", members(event.fields).map(([own, value]) => [own, valueText(value)])));
    return [make("h2", {}, name), make("div", { class: "columns" }, ...columns), ...(more ? [more] : [])];
  }

  gap(gap) {
    this.asked++;
    const { times } = this.app;
    const rows = () => [
      ["Missing", gap.what], ["Stream", gap.stream],
      ["From", gap.begin === null ? "before the first event" : times.full(gap.begin)],
      ["To", gap.end === null ? "behind the last event" : times.full(gap.end)],
      ["Counts as a loss", gap.loss ? "yes" : "no"],
    ];
    this.setDetails(() => [make("h2", {}, "Gap"), valueTable("Gap", rows())]);
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
    const nameOf = ({ name, trace }) => `${name}${onMachine(head, head.machine_of[trace])}`;
    const [first, last] = [index.lower(from), index.lower(to + 1e-6)];
    for (let at = first; at < last; at++) counts[data.kinds[index.items[at]]]++;
    const byName = new Map();
    head.kinds.forEach((kind, at) => counts[at] && byName.set(nameOf(kind), { name: kind.name, count: (byName.get(nameOf(kind))?.count ?? 0) + counts[at] }));
    const names = [...byName].sort((a, b) => b[1].count - a[1].count);
    const tables = [];
    if (names.length > 0) tables.push(table("Events", ["Name", "Count"], names.map(([text, { count }]) => [text, count]), (at) => this.filterBy(names[at][1].name)));
    tables.push(...this.durations(from, to));
    if (head.rows === 0) return [make("h2", {}, "No events")];
    const summary = `${title}: ${short(to - from)}, from ${app.times.full(from)} to ${app.times.full(to)}; ${(last - first).toLocaleString("en")} events`;
    return [make("h2", {}, summary), make("div", { class: "columns", id: "statistics" }, ...tables)];
  }

  filterBy(name) {
    byId("filter").value = `event == ${quoted(name)}`;
    this.app.search.filter(byId("filter").value);
  }

  // Returns tables of how long threads ran, and how long interrupts, system calls and spans took. Only slices that are
  // whole in the range have a mean and a longest one: how long the others took is not known.
  durations(from, to) {
    const { data, slices } = this.app;
    const { head } = data;
    const nameOf = (track, slice) => `${track.of === "running" ? threadName(head.threads[data.slices.threads[slice]]) : head.labels[data.slices.labels[slice]]}${onMachine(head, machineOf(head, track))}`;
    const sums = { running: new Map(), interrupts: new Map(), thread: new Map(), spans: new Map() };
    head.tracks.forEach((track, number) => {
      const { items, ends } = slices.tracks[number];
      const sum = sums[track.of];
      for (let at = ends.lower(from); at < items.length && data.slices.begins[items[at]] <= to; at++) {
        const slice = items[at];
        const time = timeIn(data.slices, slice, from, to);
        const key = track.of === "running" ? data.slices.threads[slice] : `${machineOf(head, track)} ${data.slices.labels[slice]}`;
        const own = sum.get(key) ?? { name: nameOf(track, slice), count: 0, others: 0, unsure: 0, total: 0, whole: 0, most: 0 };
        own.count++;
        own.total += time;
        if (data.slices.flags[slice] === 0 && data.slices.begins[slice] >= from && data.slices.ends[slice] <= to) {
          own.whole += time;
          own.most = Math.max(own.most, time);
        } else {
          own.others++;
        }
        if (data.slices.flags[slice] & UNSURE) own.unsure++;
        sum.set(key, own);
      }
    });
    const titles = { running: "Threads on CPUs", interrupts: "Interrupts", thread: "In threads", spans: "Spans" };
    return Object.entries(sums).filter(([, sum]) => sum.size > 0).map(([of, sum]) => {
      const rows = [...sum.values()].sort((a, b) => b.total - a.total).slice(0, 200);
      const number = (text) => ({ number: text });
      const mean = ({ count, others, whole }) => (count > others ? short(whole / (count - others)) : "-");
      // A slice whose end may be that of another may be shorter.
      const total = ({ unsure, others, total }) => `${unsure > 0 ? "about " : others > 0 ? "at least " : ""}${short(total)}`;
      const cells = (own) => [own.name, own.count, number(total(own)), number(mean(own)), number(own.count > own.others ? short(own.most) : "-"), own.others];
      return table(titles[of], ["Name", "Count", "Total", "Mean", "Longest", "Not whole"], rows.map(cells));
    });
  }

  log() {
    const { app } = this;
    const { head, timeOf } = app.data;
    const isOne = head.machines.length < 2;
    const rows = head.log.map(([row, level, text]) => [...(isOne ? [] : [machineName(head, app.machineOf(row))]), app.times.tick(timeOf(row), 1000), app.times.beforeEnd(timeOf(row)), level, text]);
    const element = table("Kernel log", [...(isOne ? [] : ["Machine"]), "Time", `Before the ${app.times.origin}`, "Level", "Text"], rows, (at) => app.goTo(head.log[at][0]));
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

// Returns what is not known of a slice's end.
export function endNote(flags) {
  if (flags & NO_END && flags & UNSURE) return ", or earlier or later: events are missing there";
  if (flags & NO_END) return " or later: it was open when recording ended, or events are missing";
  return flags & UNSURE ? ", if this end is its own: events are missing there" : "";
}

// The names of the context that a kernel's ftrace has: with the text that the kernel prints of the event.
const FTRACE = /^flags,pid,(tgid,)?comm,lost,text$/;

// Returns the text that the kernel prints of an event, and the rest of the context. Other contexts have no such text,
// even if one of their fields has its name.
export function message(context) {
  const { text, ...others } = context;
  const isMessage = typeof text === "string" && FTRACE.test(Object.keys(context).join());
  return isMessage ? [text, others] : ["", context];
}

// Returns how much of a slice lies in a range.
export function timeIn({ begins, ends, lengthOf }, slice, from, to) {
  if (begins[slice] >= from && ends[slice] <= to) return Number(lengthOf(slice));
  return Math.min(ends[slice], to) - Math.max(begins[slice], from);
}

// Returns the text of a value. An enumeration shows its label and number.
export const valueText = (value) => (typeof value === "string" ? value : jsonText(value));

// Returns a value as JSON, in which numbers are as they are written.
function jsonText(value) {
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(jsonText).join(",")}]`;
  if (enumeration(value)) {
    const [number, label] = enumeration(value);
    return label === null ? jsonText(number) : `${label} (${jsonText(number)})`;
  }
  if (value === null || typeof value !== "object") return String(value);
  return numberText(value) ?? `{${members(value).map(([name, inner]) => `${JSON.stringify(name)}:${jsonText(inner)}`).join(",")}}`;
}

// Returns the machine of a track.
const machineOf = (head, { of, owner }) => (of === "running" || of === "interrupts" ? head.cpus : head.threads)[owner]?.machine ?? 0;

const machineFact = (head, machine) => (head.machines.length > 1 ? [["Machine", machineName(head, machine)]] : []);

// Returns how long a slice took, as far as that is known: to the nanosecond, or with another form.
export function lengthText(slices, slice, form = exactly) {
  const flags = slices.flags[slice];
  const text = form(slices.lengthOf(slice));
  if (flags & UNSURE && flags & (NO_BEGIN | NO_END)) return `about ${text}: events are missing`;
  if (flags & (NO_BEGIN | NO_END)) return `at least ${text}`;
  return flags & UNSURE ? `${text}, if its end is its own` : text;
}

// Returns a duration as people read it, and to the nanosecond where that is more.
function exactly(time) {
  const [readable, exact] = [short(time), duration(time)];
  return readable === exact ? exact : `${readable} (${exact})`;
}

function valueTable(caption, rows) {
  const lines = rows.map(([name, value]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "value" }, value)));
  return make("table", {}, make("caption", {}, caption), make("tbody", {}, ...lines));
}
