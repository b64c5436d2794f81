// Reaches rows, slices, events and gaps with the keyboard alone.

import { processKey } from "view/rows.js";

// Returns the slices, events or gaps of a row that the range of time shows first: one for each part of the row.
function firstOf(app, row) {
  const { view, data } = app;
  const firsts = row.parts.map((part) => {
    if (part.track) {
      const slice = part.track.items[part.track.ends.lower(view.from)];
      return slice !== undefined && data.slices.begins[slice] <= view.to ? { slice } : null;
    }
    const index = part.index ?? part.all;
    const event = index?.items[index.lower(view.from)];
    return event !== undefined && data.times[event] <= view.to ? { event } : null;
  });
  const gap = row.gaps.find((gap) => (gap.end ?? Infinity) >= view.from && (gap.begin ?? -Infinity) <= view.to);
  return [...firsts, gap && { gap }].filter(Boolean);
}

// The row that the keyboard is at.
export class Cursor {
  constructor(app) {
    this.app = app;
    this.at = null;
  }

  get row() {
    return this.at === null ? null : this.app.timeline.rows[this.at] ?? null;
  }

  // Goes to the row that is so many rows below.
  move(by) {
    const { timeline } = this.app;
    const last = timeline.rows.length - 1;
    const next = this.at === null ? timeline.rows.findIndex((row) => row.y >= timeline.scroll) : this.at + by;
    this.at = Math.max(0, Math.min(next, last));
    if (!this.row) return;
    timeline.showRow(this.row);
    this.app.draw();
    this.app.tip({ row: this.row, isNamed: true }, 0, timeline.top(this.row));
  }

  // Opens or closes the group that the cursor is at, or chooses what its row shows first; then what the next part of
  // the row shows, as a span in a system call.
  enter() {
    const { app, row } = this;
    if (!row) return this.move(0);
    if (row.group !== null) return app.toggle(row.group);
    const all = firstOf(app, row);
    const { chosen } = app.timeline;
    const at = chosen ? all.findIndex(({ slice, event, gap }) => slice === chosen.slice && event === chosen.row && gap === chosen.gap) : -1;
    if (all.length > 0) app.choose(all[(at + 1) % all.length]);
  }
}

// Chooses the next slice, event or gap of the same row, or the one before. If nothing is chosen, this is the first or the
// last event that is shown.
export function step(app, by) {
  const { data, marks, slices, timeline, view } = app;
  const { row, slice, gap } = timeline.chosen ?? {};
  if (gap) {
    const next = data.head.gaps[data.head.gaps.indexOf(gap) + by];
    return next && app.chooseGap(next);
  }
  if (slice !== undefined) {
    const { items } = slices.tracks[data.slices.tracks[slice]];
    const next = items[items.indexOf(slice) + by];
    if (next === undefined) return undefined;
    app.chooseSlice(next);
    return app.reveal(data.slices.begins[next]);
  }
  if (row === undefined) {
    const { all } = marks.every;
    const first = by > 0 ? all.items[all.lower(view.from)] : all.items[all.lower(view.to) - 1];
    return first !== undefined && app.goTo(first);
  }
  const { all } = indexes(app, row)[0];
  const next = all.items[all.items.indexOf(row) + by];
  return next !== undefined && app.goTo(next);
}

// Returns the marks that an event is one of: those of its thread first.
function indexes({ data, marks, log, machineOf }, row) {
  if (log.has(row)) return [{ all: marks.logs[machineOf(row)] }];
  return [marks.byThread[data.threads[row]], marks.byCpu[data.cpus[row]]].filter(Boolean);
}

// Returns the row of the timeline that shows an event or a slice, and the part of the row.
export function placeOf(app, { row, slice }) {
  const { slices, timeline, data } = app;
  if (row === undefined && slice === undefined) return null;
  const wanted = slice === undefined ? indexes(app, row).map(({ all }) => all) : [slices.tracks[data.slices.tracks[slice]]];
  for (const index of wanted) {
    for (const shown of timeline.rows) {
      const part = shown.parts.find((part) => (part.track ?? part.index ?? part.all) === index);
      if (part) return { row: shown, part };
    }
  }
  return null;
}

// Returns the groups that must be open for an event or a slice to be shown.
export function groupsOf({ data }, { row, slice }) {
  const { head } = data;
  const ofThread = (thread) => ["threads", processKey(head.threads[thread], thread)];
  const ofCpu = (cpu) => [`cpus ${head.cpus[cpu].machine}`];
  if (slice !== undefined) {
    const { of, owner } = head.tracks[data.slices.tracks[slice]];
    return of === "running" || of === "interrupts" ? ofCpu(owner) : ofThread(owner);
  }
  if (head.threads[data.threads[row]]) return ofThread(data.threads[row]);
  return head.cpus[data.cpus[row]] ? ofCpu(data.cpus[row]) : [];
}
