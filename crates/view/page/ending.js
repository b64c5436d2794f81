// What was at work at the death, or at the end of the trace: open spans, system calls and running threads, and the last
// event of each thread.

import { NO_BEGIN } from "view/data.js";
import { make, table } from "view/dom.js";
import { onMachine, threadName } from "view/rows.js";
import { lastPart } from "view/texts.js";
import { later, short } from "view/time.js";

// The page opens with the last second, or with as many events if these are shorter.
const [SECOND, EVENTS] = [1e9, 200];
// Most rows of a table, and most characters of an event in it.
const [MOST, LONGEST] = [200, 200];

// Returns the range of time that is shown first: the death, or the last event if nothing died, is at two thirds.
export function openingRange({ data, deaths, marks, shortest, whole }) {
  const { all } = marks.every;
  if (all.items.length === 0) return whole;
  const time = deaths[0]?.time ?? data.head.last;
  let upto = all.lower(time);
  while (upto < all.items.length && data.times[all.items[upto]] <= time) upto++;
  const before = (count) => time - data.times[all.items[Math.max(0, upto - count)]];
  if (upto === 0) return whole;
  // If the last second has no event, the last event is in view all the same.
  const length = Math.max(Math.min(SECOND, before(EVENTS)), before(1) * 1.25, (shortest * 2) / 3);
  return [time - length, time + length / 2];
}

// Returns the elements of the panel.
export function endingElements(app) {
  const { data, deaths } = app;
  if (data.head.rows === 0) return [make("h2", {}, "No events")];
  // Whether the elements are to be made again when more lines are there.
  app.endingWaits = false;
  const title = deaths.length > 0 ? "At work at the death" : "At work at the end";
  const tables = [spans(app), others(app), lastEvents(app)].filter(Boolean);
  return [make("h2", {}, title), make("div", { class: "columns", id: "ending" }, ...tables)];
}

// Returns for how long a slice had been open.
function age({ data, times }, slice) {
  const passed = later(times.end, -data.slices.beginOf(slice));
  return { number: `${data.slices.flags[slice] & NO_BEGIN ? "at least " : ""}${short(passed < 0 ? 0 : passed)}` };
}

// Returns a line of text, or a sign that it is not there yet.
function awaited(app, line) {
  if (line === undefined) app.endingWaits = true;
  return line ?? "\u2026";
}

// Returns the spans that were open, each below its parent, with the threads that were in them.
function spans(app) {
  const { head, slices } = app.data;
  const key = ({ slice }, span) => `${head.threads[slices.threads[slice]]?.pid} ${span}`;
  const isSpan = ({ slice, span }) => span !== null && head.tracks[slices.tracks[slice]].of === "spans";
  const open = head.open.filter(isSpan);
  if (open.length === 0) return null;
  const inside = Map.groupBy(head.open.filter((one) => one.span !== null && !isSpan(one)), (one) => key(one, one.span));
  const known = new Map(open.map((one) => [key(one, one.span), one]));
  const children = Map.groupBy(open, (one) => (known.has(key(one, one.parent)) ? key(one, one.parent) : ""));
  const rows = [];
  const add = (one, depth) => {
    rows.push({ one, depth });
    for (const child of depth < 64 ? children.get(key(one, one.span)) ?? [] : []) add(child, depth + 1);
  };
  // Those that a thread was in come first, and of these that of the thread with the latest event; then the newest.
  const threadsOf = (one) => (inside.get(key(one, one.span)) ?? []).map(({ slice }) => head.threads[slices.threads[slice]]);
  const isIn = (one) => ((one.threads ?? threadsOf(one).length) > 0 ? 1 : 0);
  const latest = new Map(lastRows(app).toReversed().map(({ thread, row }) => [head.threads[thread].tid, row]));
  const rank = ({ last }) => latest.get(last) ?? -1;
  const order = (a, b) => isIn(b) - isIn(a) || rank(b) - rank(a) || slices.begins[b.slice] - slices.begins[a.slice];
  for (const list of children.values()) list.sort(order);
  for (const one of children.get("") ?? []) add(one, 0);
  const cells = ({ one, depth }) => {
    const fields = awaited(app, app.texts.ofSlice(one.slice));
    return [`${"\u2003".repeat(depth)}${lastPart(head.labels[slices.labels[one.slice]])}`, fields, age(app, one.slice), threadsIn(head, one, threadsOf(one))];
  };
  return limited("Open spans", ["Span", "Fields", "Open for", "In it"], rows, cells, ({ one }) => app.goToSlice(one.slice));
}

// Returns the threads that were in a span, as the account has them; else those whose events say so.
function threadsIn(head, { threads, last }, entered) {
  if (threads === 0) return "no thread";
  const known = entered.map(threadName);
  if (threads === null) return known.join(", ") || "unknown";
  if (last !== null && !entered.some(({ tid }) => tid === last)) known.unshift(nameOf(head, last));
  const more = threads - known.length;
  return `${known.join(", ")}${more > 0 ? `${known.length > 0 ? " and " : ""}${more} ${known.length > 0 ? "more" : more === 1 ? "thread" : "threads"}` : ""}`;
}

// Returns the name of a thread, of which only the id may be known.
const nameOf = (head, id) => threadName(head.threads.find(({ tid }) => tid === id) ?? { tid: id, name: "" });

// Returns what else had begun and not ended: threads on CPUs, interrupts, system calls.
function others(app) {
  const { head, slices } = app.data;
  const open = head.open.filter(({ span, slice }) => span === null && head.threads[slices.threads[slice]]?.tid !== 0);
  if (open.length === 0) return null;
  const cells = ({ slice }) => {
    const { of, owner } = head.tracks[slices.tracks[slice]];
    const thread = threadName(head.threads[slices.threads[slice]]);
    const isOfCpu = of === "running" || of === "interrupts";
    const where = isOfCpu ? `CPU ${head.cpus[owner]?.cpu}${onMachine(head, head.cpus[owner]?.machine)}` : thread;
    return [of === "running" ? `${thread} ran` : head.labels[slices.labels[slice]], where, age(app, slice)];
  };
  return limited("On CPUs and in calls", ["What", "Where", "For"], open, cells, ({ slice }) => app.goToSlice(slice));
}

// Returns the last event of each thread, the latest first.
function lastEvents(app) {
  const { data, texts, times } = app;
  const { head } = data;
  const rows = lastRows(app);
  if (rows.length === 0) return null;
  const cells = ({ thread, row }) => {
    const kind = head.kinds[data.kinds[row]];
    return [threadName(head.threads[thread]) + onMachine(head, head.threads[thread].machine), `${lastPart(kind.name)} ${cut(awaited(app, texts.get(row)))}`, { number: times.beforeEndShort(data.timeOf(row)) }];
  };
  return limited("Last events of threads", ["Thread", "Event", `Before the ${times.origin}`], rows, cells, ({ row }) => app.goTo(row));
}

// Backtraces and the like are long: the details have all of them.
const cut = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}\u2026` : text);

// Returns the last row of each thread at or before the death, the latest first.
function lastRows({ data, deaths, everything }) {
  const { head } = data;
  const end = deaths[0]?.time ?? Infinity;
  const rows = [];
  everything.byThread.forEach(({ all }, thread) => {
    let at = Number.isFinite(end) ? all.lower(end) : all.items.length;
    while (at < all.items.length && data.times[all.items[at]] <= end) at++;
    if (at > 0 && head.threads[thread].tid !== 0) rows.push({ thread, row: all.items[at - 1] });
  });
  return rows.sort((a, b) => b.row - a.row);
}

// Returns a table of the first rows, which says how many more there are.
function limited(caption, heads, rows, cells, pick) {
  const own = rows.slice(0, MOST);
  const more = rows.length > MOST ? ` (the first ${MOST} of ${rows.length.toLocaleString("en")})` : "";
  return table(`${caption}${more}`, heads, own.map(cells), (at) => pick(own[at]));
}
