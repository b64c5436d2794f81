// The histogram of all events over the whole range, with the part that the timeline shows. Dragging chooses another part.

import { drawGaps, Surface } from "view/canvas.js";
import { byId } from "view/dom.js";

const LEFT = 210;

export class Histogram {
  constructor(canvas, app) {
    this.app = app;
    this.surface = new Surface(canvas);
    this.canvas = canvas;
    this.drag = null;
    canvas.addEventListener("pointerdown", (event) => this.down(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", () => { this.drag = null; });
    canvas.addEventListener("dblclick", () => app.showAll());
  }

  get scale() {
    const [from, to] = this.app.whole;
    const width = Math.max(1, this.surface.width - LEFT);
    return { from, to, left: LEFT, width, x: (time) => LEFT + ((time - from) / (to - from)) * width };
  }

  time(x) {
    const { from, to, left, width } = this.scale;
    return from + ((x - left) / width) * (to - from);
  }

  draw(colours) {
    const { context, height } = this.surface;
    const scale = this.scale;
    const bins = Math.max(1, Math.floor(scale.width / 3));
    const all = counts(this.app.marks.every.all, scale, bins);
    const levelled = counts(this.app.marks.every.levelled, scale, bins);
    const most = drawBins(this.surface, scale, all, levelled, colours);
    drawGaps(context, this.app.data.head.gaps.filter((gap) => gap.begin !== null), scale, height - 7, 6, colours);
    this.window(scale, colours, height);
    context.fillStyle = colours.ink;
    context.fillText("Events over time", 8, 14);
    context.fillStyle = colours.soft;
    const span = most > 0 ? ` in ${this.app.span((scale.to - scale.from) / bins)}` : "";
    context.fillText(`highest: ${most.toLocaleString("en")}${span}`, 8, 32);
    for (const { time, tone } of this.app.flags) {
      context.fillStyle = colours[tone];
      context.fillRect(scale.x(time) - 1, 0, 2, height);
    }
  }

  window(scale, colours, height) {
    const { context } = this.surface;
    const { from, to } = this.app.view;
    const [left, right] = [Math.max(scale.left, scale.x(from)), Math.min(scale.left + scale.width, scale.x(to))];
    context.fillStyle = colours.select;
    context.fillRect(left, 0, Math.max(2, right - left), height);
    context.fillStyle = colours.accent;
    context.fillRect(left, 0, 1.5, height);
    context.fillRect(Math.max(left, right - 1.5), 0, 1.5, height);
  }

  down(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    if (x < LEFT) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { time: this.time(x), x };
    const { from, to } = this.app.view;
    if (this.drag.time < from || this.drag.time > to) this.app.show(this.drag.time - (to - from) / 2, this.drag.time + (to - from) / 2);
  }

  move(event) {
    byId("tip").hidden = true;
    if (!this.drag) return;
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    if (Math.abs(x - this.drag.x) < 3) return;
    const time = this.time(Math.min(this.surface.width, Math.max(LEFT, x)));
    this.app.show(Math.min(time, this.drag.time), Math.max(time, this.drag.time));
  }
}

// Draws a bar for each part of the range, and returns the highest number of events.
function drawBins({ context, width, height }, scale, all, levelled, colours) {
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, height);
  const most = all.reduce((most, count) => Math.max(most, count), 0);
  const bar = (count) => (count ? Math.max(2, (count / most) * (height - 14)) : 0);
  const binWidth = scale.width / all.length;
  for (let bin = 0; bin < all.length; bin++) {
    const x = scale.left + bin * binWidth;
    context.fillStyle = colours.mark;
    context.fillRect(x, height - 2 - bar(all[bin]), binWidth - 0.7, bar(all[bin]));
    if (!levelled?.[bin]) continue;
    context.fillStyle = colours.bad;
    context.fillRect(x, height - 2 - bar(levelled[bin]), binWidth - 0.7, bar(levelled[bin]));
  }
  return most;
}

// Draws the numbers of events that the page has ready, until its columns are read.
export function preview(head, colours) {
  const [histogram, timeline] = ["histogram", "timeline"].map((id) => new Surface(byId(id)));
  const margin = histogram.width * 0.01;
  const scale = { left: LEFT + margin, width: Math.max(1, histogram.width - LEFT - 2 * margin) };
  drawBins(histogram, scale, head.preview, null, colours);
  const { context, width, height } = timeline;
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, height);
  context.fillStyle = colours.soft;
  context.fillText(`Reading ${head.rows.toLocaleString("en")} events\u2026`, LEFT + 20, 40);
}

// Returns the number of events in each part of the range.
export function counts(index, { from, to }, bins) {
  const numbers = new Uint32Array(bins);
  let at = index.lower(from);
  for (let bin = 0; bin < bins; bin++) {
    const next = bin + 1 === bins ? index.lower(to + 1) : index.lower(from + ((bin + 1) * (to - from)) / bins);
    numbers[bin] = next - at;
    at = next;
  }
  return numbers;
}
