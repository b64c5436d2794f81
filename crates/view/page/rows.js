// Makes the rows of the timeline: which events and slices are drawn where.

import { NONE } from "view/data.js";
import { later } from "view/time.js";

// Positions of events or slices in order of time, with a search that first looks into a table of equal steps of time.
export class Index {
  constructor(items, times) {
    this.items = items;
    this.times = times;
    const count = items.length;
    this.from = count ? times[items[0]] : 0;
    this.step = count ? (times[items[count - 1]] - this.from) / STEPS || 1 : 1;
    this.table = null;
    if (count > 4 * STEPS) {
      const table = new Uint32Array(STEPS + 2).fill(count);
      for (let step = 0, at = 0; step <= STEPS; step++) table[step] = at = this.before(this.from + step * this.step, at, count);
      this.table = table;
    }
  }

  // Returns the position of the first item at or after a time.
  lower(time) {
    let [low, high] = [0, this.items.length];
    if (this.table) {
      const step = Math.floor((time - this.from) / this.step);
      if (step < 0) return 0;
      // The neighbours too, because a quotient may be rounded over a border.
      [low, high] = [this.table[Math.min(Math.max(0, step - 1), STEPS)], this.table[Math.min(step + 2, STEPS + 1)]];
    }
    return this.before(time, low, high);
  }

  before(time, low, high) {
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[this.items[middle]] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

const STEPS = 4096;

// Groups items by a number below `count`: returns a list of items for each group, in their order.
function grouped(items, keys, count) {
  const next = new Uint32Array(count + 1);
  for (let at = 0; at < items.length; at++) {
    const key = keys[items[at]];
    if (key < count) next[key + 1]++;
  }
  for (let group = 0; group < count; group++) next[group + 1] += next[group];
  const starts = next.slice();
  const sorted = new Uint32Array(starts[count]);
  for (let at = 0; at < items.length; at++) {
    const key = keys[items[at]];
    if (key < count) sorted[next[key]++] = items[at];
  }
  return Array.from({ length: count }, (_, group) => sorted.subarray(starts[group], starts[group + 1]));
}

// Returns those numbers below `count` for which `wanted` holds.
export function chosen(count, wanted) {
  const items = new Uint32Array(count);
  let next = 0;
  for (let at = 0; at < count; at++) if (wanted(at)) items[next++] = at;
  return items.subarray(0, next);
}

// The positions of events: of all, of those with a level, and by CPU and thread. `visible` has a 1 for each event that
// the filter lets pass.
export class Marks {
  constructor(data, visible, machineOf) {
    const { head, times, kinds, cpus, threads } = data;
    const levels = head.kinds.map((kind) => ({ error: 2, warn: 1 })[kind.level] ?? 0);
    const logs = head.kinds.map((kind) => kind.log);
    this.levels = levels;
    const isEvent = Uint8Array.from(head.kinds, (kind) => (kind.log ? 0 : 1));
    const every = chosen(times.length, visible ? (row) => visible[row] === 1 && isEvent[kinds[row]] === 1 : (row) => isEvent[kinds[row]] === 1);
    const levelled = levels.some((level) => level > 0) ? every.filter((row) => levels[kinds[row]] > 0) : every.subarray(0, 0);
    const index = (items) => new Index(items, times);
    const pairs = (keys, count) => {
      const own = grouped(levelled, keys, count);
      return grouped(every, keys, count).map((items, at) => ({ all: index(items), levelled: index(own[at]) }));
    };
    this.byCpu = pairs(cpus, head.cpus.length);
    this.byThread = pairs(threads, head.threads.length);
    this.every = { all: index(every), levelled: index(levelled) };
    const seen = (row) => !visible || visible[row] === 1;
    // The lines of each machine's log.
    this.logs = head.machines.map((_, machine) => index(Uint32Array.from(head.log.map(([row]) => row).filter((row) => seen(row) && machineOf(row) === machine)).sort()));
    this.hasLog = head.machines.map((_, machine) => head.log.some(([row]) => machineOf(row) === machine));
  }
}

// The slices of one track, or of one thread on all CPUs, in order of time.
class Track {
  constructor(items, slices) {
    this.items = items;
    this.ends = new Index(items, slices.ends);
  }
}

// The slices by track, and those of running threads by thread.
export class Slices {
  constructor(data) {
    const { head, slices, times } = data;
    const all = chosen(slices.tracks.length, () => true);
    this.tracks = grouped(all, slices.tracks, head.tracks.length).map((items) => new Track(items, slices));
    const running = Uint8Array.from(head.tracks, (track) => (track.of === "running" ? 1 : 0));
    // The events that begin slices are in order of time, so that only slices without such an event need to be sorted.
    const byEvent = new Uint32Array(times.length).fill(NONE);
    const rest = [];
    for (let slice = 0; slice < all.length; slice++) {
      if (running[slices.tracks[slice]] === 0) continue;
      if (slices.events[slice] < byEvent.length) byEvent[slices.events[slice]] = slice;
      else rest.push(slice);
    }
    const earlier = (a, b) => slices.begins[a] - slices.begins[b] || Number(later(slices.beginOf(a), -slices.beginOf(b)));
    const late = new Set(rest.map((slice) => slices.threads[slice]));
    const ordered = new Uint32Array(rest.length + byEvent.length);
    ordered.set(rest.sort(earlier));
    let next = rest.length;
    for (let row = 0; row < byEvent.length; row++) if (byEvent[row] !== NONE) ordered[next++] = byEvent[row];
    this.running = new Map();
    grouped(ordered.subarray(0, next), slices.threads, head.threads.length).forEach((items, thread) => {
      if (items.length === 0) return;
      if (late.has(thread)) items.sort(earlier);
      this.running.set(thread, new Track(items, slices));
    });
  }
}

export const RUNNING = 18;
export const NESTED = 16;
export const STRIP = 5;
export const MARKS = 13;
const PAD = 3;

// A row: parts of a height each, from top to bottom.
class Row {
  constructor(label, title, indent = 0) {
    Object.assign(this, { label, title, indent, parts: [], gaps: [], height: 0, y: 0, group: null });
  }

  add(kind, height, content) {
    this.parts.push({ kind, y: this.height + PAD, height, ...content });
    this.height += height + 1;
    return this;
  }

  end() {
    this.height = Math.max(this.height + 2 * PAD, 20);
    return this;
  }
}

export function threadName(thread) {
  if (!thread) return "unknown";
  if (thread.tid === null) return `channel ${thread.name}`;
  return `${thread.name || "thread"} ${thread.tid}`;
}

export const machineName = (head, machine) => head.machines[machine] || "a machine";

// Returns what follows a name where there are several machines.
export const onMachine = (head, machine) => (head.machines.length > 1 ? ` on ${machineName(head, machine)}` : "");

// Returns the name of the group of a thread's rows.
export const processKey = (thread, at) => (thread.tid === null ? `stream ${at}` : `${thread.machine} ${thread.pid ?? thread.tid}`);

// Returns all rows. `collapsed` has the names of the groups that are closed.
export function rowsOf(data, marks, slices, collapsed) {
  const { head } = data;
  const rows = [];
  marks.logs.forEach((index, machine) => {
    const of = onMachine(head, machine);
    if (marks.hasLog[machine]) rows.push(new Row(`Kernel log${of}`, `Lines of the kernel's log${of}`).add("log", NESTED, { index }).end());
  });
  const tracks = new Map();
  head.tracks.forEach((track, at) => {
    const key = `${track.of} ${track.owner}`;
    if (!tracks.has(key)) tracks.set(key, []);
    tracks.get(key)[track.depth] = slices.tracks[at];
  });
  const nested = (row, of, owner, height, kind = "slices") => {
    for (const track of tracks.get(`${of} ${owner}`) ?? []) if (track) row.add(kind, height, { track });
    return row;
  };
  cpuRows(data, marks, nested, collapsed, rows);
  threadRows(data, marks, slices, nested, collapsed, rows);
  const loose = head.gaps.filter((gap) => gap.cpu === null);
  if (loose.length > 0) {
    const row = new Row("Gaps", "Gaps of streams that are bound to no CPU").add("none", NESTED, {}).end();
    row.gaps = loose;
    rows.push(row);
  }
  return rows;
}

function header(label, key, collapsed, rows, title = label) {
  const row = new Row(label, title).end();
  row.group = key;
  row.isOpen = !collapsed.has(key);
  rows.push(row);
  return row.isOpen;
}

function cpuRows({ head }, marks, nested, collapsed, rows) {
  const order = head.cpus.map((_, at) => at).sort((a, b) => head.cpus[a].machine - head.cpus[b].machine || head.cpus[a].cpu - head.cpus[b].cpu);
  const many = head.machines.length > 1;
  let open = true;
  let machine = null;
  for (const at of order) {
    const cpu = head.cpus[at];
    if (machine !== cpu.machine) {
      machine = cpu.machine;
      open = header(many ? `CPUs of ${machineName(head, machine)}` : "CPUs", `cpus ${machine}`, collapsed, rows);
    }
    if (!open) continue;
    const row = new Row(`CPU ${cpu.cpu}`, `CPU ${cpu.cpu}`, 1);
    nested(row, "running", at, RUNNING, "running");
    nested(row, "interrupts", at, NESTED - 2);
    if (marks.byCpu[at].all.items.length > 0) row.add("marks", MARKS, marks.byCpu[at]);
    row.gaps = head.gaps.filter((gap) => gap.cpu === at);
    if (row.parts.length > 0 || row.gaps.length > 0) rows.push(row.end());
  }
}

function threadRows(data, marks, slices, nested, collapsed, rows) {
  const { head } = data;
  const processes = new Map();
  head.threads.forEach((thread, at) => {
    const row = new Row(threadName(thread), threadName(thread), 1);
    nested(row, "thread", at, NESTED);
    const running = thread.tid === 0 ? null : slices.running.get(at);
    if (running) row.add("strip", STRIP, { track: running });
    if (marks.byThread[at].all.items.length > 0) row.add("marks", MARKS, marks.byThread[at]);
    const spans = nested(new Row("Spans", "Spans, from their opening to their end", 1), "spans", at, NESTED);
    if (row.parts.length === 0 && spans.parts.length === 0) return;
    const key = processKey(thread, at);
    if (!processes.has(key)) processes.set(key, { key, thread, name: "", rows: [], weight: 0 });
    const process = processes.get(key);
    if (thread.pid === null || thread.tid === thread.pid || !process.name) process.name = thread.name;
    if (spans.parts.length > 0) process.rows.unshift(spans.end());
    if (row.parts.length > 0) process.rows.push(row.end());
    process.weight += marks.byThread[at].all.items.length + (running?.items.length ?? 0) + (spans.parts.length > 0 ? 1e9 : 0);
    if (thread.tid === 0) process.weight = -1;
  });
  for (const [machine, pid, name] of head.processes) {
    const process = processes.get(`${machine} ${pid}`);
    if (process) process.name = name;
  }
  const sorted = [...processes.values()].sort((a, b) => b.weight - a.weight);
  if (sorted.length === 0 || !header("Processes and threads", "threads", collapsed, rows)) return;
  for (const process of sorted) {
    const { thread } = process;
    const machine = onMachine(head, thread.machine);
    if (process.rows.length === 1) {
      const [row] = process.rows;
      Object.assign(row, { label: `${row.label}${machine}`, title: `${row.title}${machine}` });
      rows.push(row);
      continue;
    }
    const label = `${process.name || "process"} ${thread.pid ?? ""}${machine}`;
    if (!header(label, process.key, collapsed, rows, `Process ${label}: ${process.rows.length} rows`)) continue;
    rows.push(...process.rows);
  }
}
