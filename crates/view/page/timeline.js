// The timeline: the range of time that is shown, its rows, and what the mouse does there.

import { drawGaps, drawMarks, drawSlices, fitted, gapPixels, hash, paletteOf, setPaper, Surface } from "view/canvas.js";
import { placeOf } from "view/cursor.js";
import { byId } from "view/dom.js";
import { threadName } from "view/rows.js";
import { lastPart } from "view/texts.js";
import { short, stepOf } from "view/time.js";

const LABELS = 210;
const AXIS = 24;
// The shortest range: a nanosecond has pixels of its own then.
const SHORTEST = 20;

export class Timeline {
  constructor(canvas, app) {
    this.app = app;
    this.surface = new Surface(canvas);
    this.canvas = canvas;
    this.rows = [];
    this.scroll = 0;
    this.range = null;
    this.chosen = null;
    this.hover = null;
    // The row and the part of it that show what is chosen.
    this.shownAt = null;
    const { labels, threads } = app.data.head;
    this.labelStyles = labels.map((text) => [...paletteOf(hash(text)), lastPart(text)]);
    this.threadStyles = threads.map((thread) => [...paletteOf(hash(`${thread.pid ?? thread.tid}${thread.name}`)), threadName(thread)]);
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.up(event));
    canvas.addEventListener("pointerleave", () => this.leave());
    canvas.addEventListener("dblclick", (event) => this.double(event));
  }

  setRows(rows) {
    this.rows = rows;
    let y = 0;
    for (const row of rows) {
      row.y = y;
      y += row.height;
    }
    this.total = y;
    this.findChosen();
  }

  choose(chosen) {
    this.chosen = chosen;
    this.findChosen();
  }

  findChosen() {
    this.shownAt = this.chosen && placeOf(this.app, this.chosen);
  }

  // Returns the pixels of a row's top below the top of the timeline.
  top(row) {
    return row.y - this.scroll + AXIS;
  }

  // Scrolls until a row is shown.
  showRow(row) {
    byId("tip").hidden = true;
    this.scroll = Math.max(Math.min(this.scroll, row.y), row.y + row.height - (this.surface.height - AXIS));
  }

  get scale() {
    const { from, to } = this.app.view;
    const [left, width] = [LABELS, Math.max(1, this.surface.width - LABELS)];
    return { from, to, left, width, x: (time) => left + ((time - from) / (to - from)) * width };
  }

  time(x) {
    const { from, to, left, width } = this.scale;
    return from + ((x - left) / width) * (to - from);
  }

  // Draws everything.
  draw(colours) {
    const { context, width, height } = this.surface;
    const scale = this.scale;
    setPaper(colours.paper);
    this.scroll = Math.max(0, Math.min(this.scroll, this.total - height + AXIS + 20));
    context.fillStyle = colours.paper;
    context.fillRect(0, 0, width, height);
    const step = this.grid(scale, colours);
    for (const row of this.rows) {
      const y = this.top(row);
      if (y + row.height >= AXIS && y <= height) this.row(row, y, scale, colours);
    }
    this.overlays(scale, colours);
    this.axis(scale, colours, step);
  }

  grid(scale, colours) {
    const { context, height } = this.surface;
    const step = stepOf(((scale.to - scale.from) / scale.width) * 110);
    context.fillStyle = colours.line;
    for (const time of this.ticks(scale, step)) context.fillRect(Math.round(scale.x(time)), AXIS, 0.5, height);
    return step;
  }

  // Returns the times of the axis's marks: round ones by the clock that is shown.
  ticks(scale, step) {
    const { times, data } = this.app;
    if (data.head.rows === 0) return [];
    const origin = times.as === "end" ? Number(times.end) : times.as === "start" ? 0 : -Number(times.start % BigInt(Math.round(step)));
    const first = Math.ceil((scale.from - origin) / step) * step + origin;
    const ticks = [];
    for (let at = 0; first + at * step <= scale.to && at < 100; at++) ticks.push(first + at * step);
    return ticks;
  }

  row(row, y, scale, colours) {
    const { context, width } = this.surface;
    if (row.group !== null) {
      context.fillStyle = colours.band;
      context.fillRect(0, y, width, row.height - 1);
    }
    if (row.gaps.length > 0) drawGaps(context, row.gaps, scale, y + 2, row.height - 4, colours, (left, right) => this.isEmpty(row, left, right));
    for (const part of row.parts) this.part(part, y + part.y, scale, colours);
    context.fillStyle = row.group !== null ? colours.band : colours.paper;
    context.fillRect(0, y, LABELS - 1, row.height);
    context.fillStyle = colours.line;
    context.fillRect(0, y + row.height - 0.5, width, 0.5);
    context.fillRect(LABELS - 1, y, 1, row.height);
    context.fillStyle = colours.ink;
    const arrow = row.group === null ? "" : row.isOpen ? "\u25be " : "\u25b8 ";
    const indent = 8 + row.indent * 12;
    const middle = Math.min(row.height / 2, 18);
    context.font = row.group !== null ? `600 ${context.font.replace(/^\d+ /, "")}` : context.font;
    context.fillText(fitted(context, arrow + row.label, LABELS - indent - 8), indent, y + middle + 0.5);
    context.font = context.font.replace(/^600 /, "");
    if (row !== this.app.cursor.row) return;
    context.strokeStyle = colours.accent;
    context.lineWidth = 2;
    context.strokeRect(1, y + 1, LABELS - 4, row.height - 2);
  }

  // Returns true if a row has no marks between two pixels.
  isEmpty(row, left, right) {
    return row.parts.every(({ all }) => !all || all.lower(this.time(left)) === all.lower(this.time(right)));
  }

  part(part, y, scale, colours) {
    const { context } = this.surface;
    const { slices, head, kinds } = this.app.data;
    const idle = [colours.idle, colours.soft, "idle"];
    const unknown = [colours.idle, colours.soft, "unknown"];
    const byThread = (slice) => {
      const thread = slices.threads[slice];
      return head.threads[thread]?.tid === 0 ? idle : this.threadStyles[thread] ?? unknown;
    };
    const byLabel = (slice) => this.labelStyles[slices.labels[slice]];
    const levelOf = (row) => this.app.marks.levels[kinds[row]];
    const nameOf = (row) => head.kinds[kinds[row]].name;
    switch (part.kind) {
      case "running": return drawSlices(context, slices, part.track, scale, y, part.height, byThread);
      case "slices": return drawSlices(context, slices, part.track, scale, y, part.height, byLabel, (slice) => this.app.texts.named(slice, true));
      case "strip": {
        const style = [colours.accent, colours.ink, ""];
        return drawSlices(context, slices, part.track, scale, y, part.height, () => style);
      }
      case "marks": return drawMarks(context, part, scale, y, part.height, colours, levelOf, nameOf);
      case "log": return this.log(part, y, scale, colours);
      default: return undefined;
    }
  }

  log(part, y, scale, colours) {
    const { log } = this.app;
    const bad = { items: part.index.items.filter((row) => (log.get(row)?.level ?? 7) <= 3), times: part.index.times };
    const levelled = part.levelled ??= new part.index.constructor(bad.items, bad.times);
    drawMarks(this.surface.context, { all: part.index, levelled }, scale, y, part.height, colours, () => 2, (row) => log.get(row)?.text ?? "");
  }

  overlays(scale, colours) {
    const { context, height } = this.surface;
    const edge = scale.left + scale.width;
    context.save();
    context.beginPath();
    context.rect(scale.left, AXIS, scale.width, height);
    context.clip();
    for (const { time, tone } of this.app.flags) {
      const x = scale.x(time);
      if (x < scale.left - 200 || x > edge) continue;
      context.fillStyle = colours[tone];
      context.fillRect(x - 1, AXIS, 2, height);
    }
    if (this.range) {
      const [a, b] = [scale.x(this.range[0]), scale.x(this.range[1])];
      context.fillStyle = colours.select;
      context.fillRect(a, AXIS, b - a, height);
      context.fillStyle = colours.accent;
      context.fillRect(a - 0.5, AXIS, 1, height);
      context.fillRect(b - 0.5, AXIS, 1, height);
    }
    if (this.chosen) this.outline(scale, colours);
    if (this.hover) {
      context.fillStyle = colours.soft;
      context.fillRect(this.hover.x, AXIS, 0.5, height);
    }
    context.restore();
  }

  // Marks the event or slice that is chosen.
  outline(scale, colours) {
    const { context, height } = this.surface;
    const [a, b] = [scale.x(this.chosen.begin), scale.x(this.chosen.end)];
    context.fillStyle = colours.ink;
    context.fillRect(a - 0.5, AXIS, 1, height);
    if (b - a > 2) context.fillRect(b - 0.5, AXIS, 1, height);
    if (!this.shownAt) return;
    const { row, part } = this.shownAt;
    const [left, right] = [Math.max(a, scale.left - 4), Math.min(b, scale.left + scale.width + 4)];
    context.strokeStyle = colours.ink;
    context.lineWidth = 2;
    context.strokeRect(left - 2, this.top(row) + part.y - 1, Math.max(right - left, 1) + 4, part.height + 2);
  }

  axis(scale, colours, step) {
    const { context, width } = this.surface;
    const { times, results } = this.app;
    context.fillStyle = colours.band;
    context.fillRect(0, 0, width, AXIS);
    context.fillStyle = colours.line;
    context.fillRect(0, AXIS - 0.5, width, 0.5);
    context.fillStyle = colours.soft;
    const shown = this.app.data.head.rows === 0 ? "no events" : `${short(scale.to - scale.from)} shown`;
    context.fillText(fitted(context, shown, LABELS - 16), 8, AXIS / 2);
    context.fillStyle = colours.ink;
    let last = LABELS - 40;
    for (const time of this.ticks(scale, step)) {
      const text = times.tick(time, step);
      const half = context.measureText(text).width / 2;
      const x = scale.x(time);
      if (x - half < last + 10 || x + half > width) continue;
      context.fillText(text, x - half, AXIS / 2);
      last = x + half;
    }
    if (results) this.results(scale, results);
    for (const { time, word, tone } of this.app.flags) {
      const x = scale.x(time);
      if (x >= scale.left && x <= width) this.flag(x, word, colours[tone], colours.paper);
    }
  }

  flag(x, word, colour, paper) {
    const { context, width } = this.surface;
    const size = context.measureText(word).width + 10;
    const left = Math.min(x - 1, width - size);
    context.fillStyle = colour;
    context.fillRect(left, 3, size, AXIS - 6);
    context.fillStyle = paper;
    context.fillText(word, left + 5, AXIS / 2);
  }

  results(scale, results) {
    const { context } = this.surface;
    context.fillStyle = "#e69f00";
    const { items, times } = results;
    const perPixel = (scale.to - scale.from) / scale.width;
    for (let at = results.lower(scale.from), end = results.lower(scale.to); at < end;) {
      const pixel = Math.floor(scale.x(times[items[at]]));
      context.fillRect(pixel - 1, AXIS - 7, 3, 7);
      at = Math.max(at + 1, results.lower(scale.from + (pixel + 1 - scale.left) * perPixel));
    }
  }

  // Returns what is at a place: a row, and there a slice, an event or a gap.
  at(x, y) {
    if (y < AXIS) return null;
    const top = y - AXIS + this.scroll;
    const row = this.rows.find((row) => top >= row.y && top < row.y + row.height);
    if (!row || x < LABELS) return row ? { row } : null;
    const scale = this.scale;
    const inside = top - row.y;
    const part = row.parts.find((part) => inside >= part.y && inside <= part.y + part.height);
    const slice = part?.track && this.sliceAt(part.track, x, scale);
    if (slice !== undefined) return { row, slice };
    const index = part?.index ?? part?.all;
    const event = index && this.eventAt(index, x, scale);
    if (event !== undefined) return { row, event };
    // A gap lies under what is drawn on it.
    const gap = row.gaps.find((gap) => {
      const pixels = gapPixels(gap, scale);
      return pixels && x >= pixels[0] && x <= pixels[1];
    });
    return gap ? { row, gap } : { row };
  }

  sliceAt(track, x, scale) {
    const { slices } = this.app.data;
    const slice = track.items[track.ends.lower(this.time(x - 1))];
    return slice !== undefined && scale.x(slices.begins[slice]) <= x + 1 ? slice : undefined;
  }

  eventAt(index, x, scale) {
    const at = index.lower(this.time(x));
    const near = [at - 1, at].filter((at) => at >= 0 && at < index.items.length);
    const distance = (at) => Math.abs(scale.x(index.times[index.items[at]]) - x);
    const best = near.sort((a, b) => distance(a) - distance(b))[0];
    return best !== undefined && distance(best) < 5 ? index.items[best] : undefined;
  }

  wheel(event) {
    event.preventDefault();
    const rect = this.canvas.getBoundingClientRect();
    const unit = event.deltaMode === 1 ? 16 : 1;
    const { from, to } = this.app.view;
    if (event.ctrlKey || event.metaKey) {
      this.app.zoom(Math.exp((event.deltaY * unit) / 300), this.time(Math.max(LABELS, event.clientX - rect.left)));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.app.pan(((event.deltaX || event.deltaY) * unit * (to - from)) / this.scale.width);
    } else {
      this.scroll += event.deltaY * unit;
      this.app.redraw();
    }
  }

  place(event) {
    const rect = this.canvas.getBoundingClientRect();
    return [event.clientX - rect.left, event.clientY - rect.top];
  }

  down(event) {
    const [x, y] = this.place(event);
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { x, y, time: this.time(x), isPan: event.shiftKey || event.button === 1, moved: false, view: { ...this.app.view }, scroll: this.scroll };
  }

  move(event) {
    const [x, y] = this.place(event);
    const drag = this.drag;
    this.hover = x > LABELS ? { x } : null;
    if (drag && Math.hypot(x - drag.x, y - drag.y) > 3) drag.moved = true;
    if (drag?.moved && drag.isPan) {
      const shift = ((drag.x - x) * (drag.view.to - drag.view.from)) / this.scale.width;
      this.scroll = drag.scroll + drag.y - y;
      this.app.show(drag.view.from + shift, drag.view.to + shift);
    } else if (drag?.moved && drag.x > LABELS) {
      const time = this.time(Math.min(this.surface.width, Math.max(LABELS, x)));
      this.range = [Math.min(drag.time, time), Math.max(drag.time, time)];
    }
    this.app.tip(drag?.moved ? null : this.at(x, y), x, y);
    this.app.redraw();
  }

  up(event) {
    const [x, y] = this.place(event);
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    if (drag.moved) {
      if (!drag.isPan && this.range) this.app.chooseRange(this.range);
      return;
    }
    const hit = this.at(x, y);
    if (hit?.row?.group !== null && hit?.row && x < LABELS) this.app.toggle(hit.row.group);
    else if (hit) this.app.choose(hit, x >= LABELS ? this.time(x) : null);
    event.preventDefault();
  }

  leave() {
    this.hover = null;
    byId("tip").hidden = true;
    this.app.redraw();
  }

  // A double click shows the slice in full width.
  double(event) {
    const hit = this.at(...this.place(event));
    if (hit?.slice === undefined) return;
    const { begins, ends } = this.app.data.slices;
    const margin = (ends[hit.slice] - begins[hit.slice]) * 0.1 + 1;
    this.app.show(begins[hit.slice] - margin, ends[hit.slice] + margin);
  }
}

export { SHORTEST };
