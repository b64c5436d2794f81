// Starts the page: shows its head, reads the columns, draws the timeline.

import { theme } from "view/canvas.js";
import { Cursor, groupsOf, step } from "view/cursor.js";
import { head as readHead, load, NONE } from "view/data.js";
import { lengthText, Panel } from "view/details.js";
import { byId, visible } from "view/dom.js";
import { openingRange } from "view/ending.js";
import { showHead } from "view/head.js";
import { Histogram, preview } from "view/histogram.js";
import { listen } from "view/keys.js";
import { List } from "view/list.js";
import { chosen, Marks, rowsOf, Slices, threadName } from "view/rows.js";
import { Search } from "view/search.js";
import { Texts } from "view/texts.js";
import { short, Times } from "view/time.js";
import { SHORTEST, Timeline } from "view/timeline.js";

class App {
  constructor(data, times) {
    const { head } = data;
    Object.assign(this, { data, times, results: null, visible: null, collapsed: new Set() });
    this.log = new Map(head.log.map(([row, level, text]) => [row, { level, text }]));
    const timed = (deaths, tone) => deaths.filter(({ offset }) => offset !== null).map(({ offset, word }) => ({ time: offset, word, tone }));
    this.deaths = timed(head.deaths, "bad");
    this.flags = [...this.deaths, ...timed(head.survived, "warn")];
    const [from, to] = head.home;
    const margin = Math.max((to - from) * 0.01, SHORTEST);
    this.whole = [from - margin, to + margin];
    // Lines of a kernel's log may be much older than the events.
    this.outer = [Math.min(0, from) - margin, Math.max(head.end, to) + margin];
    // Pixels of a shorter range would be one and the same of JavaScript's numbers.
    this.shortest = Math.max(SHORTEST, ...this.outer.map((time) => Math.abs(time) * 2 ** -49));
    this.machineOf = (row) => head.machine_of[head.kinds[data.kinds[row]].trace];
    this.marks = this.everything = new Marks(data, null, this.machineOf);
    const [begin, end] = this.opening = openingRange(this);
    const more = (end - begin) * 0.01;
    this.outer = [Math.min(this.outer[0], begin - more), Math.max(this.outer[1], end + more)];
    this.view = { from: begin, to: end };
    this.slices = new Slices(data);
    this.texts = new Texts(data, this.log, () => this.textsArrived());
    this.cursor = new Cursor(this);
    this.timeline = new Timeline(byId("timeline"), this);
    this.histogram = new Histogram(byId("histogram"), this);
    this.colours = theme();
    this.search = new Search(this);
    this.setRows();
    this.list = new List(this);
    this.setList();
    this.panel = new Panel(this);
    this.list.showEnd(this.deaths[0]?.time ?? head.last);
    listen(this);
    this.controls();
  }

  controls() {
    byId("zoom-in").addEventListener("click", () => this.zoom(1 / 1.5));
    byId("zoom-out").addEventListener("click", () => this.zoom(1.5));
    byId("fit").addEventListener("click", () => this.showAll());
    byId("to-end").addEventListener("click", () => this.showEnd());
    byId("to-end").textContent = this.deaths.length > 0 ? "Death" : "End";
    const select = byId("times-as");
    if (!this.data.head.absolute) select.options[0].textContent = "by the trace's clock";
    select.options[1].textContent = this.times.before;
    select.value = this.times.as;
    select.addEventListener("change", () => this.setTimes(select.value));
    new ResizeObserver(() => {
      this.timeline.surface.resize();
      this.histogram.surface.resize();
      this.draw();
    }).observe(byId("main"));
    const recolour = () => {
      this.colours = theme();
      this.redraw();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    // Paper is light, whatever the screen is.
    window.addEventListener("beforeprint", () => {
      document.documentElement.dataset.print = "yes";
      this.colours = theme();
      this.timeline.surface.resize();
      this.histogram.surface.resize();
      this.draw();
    });
    window.addEventListener("afterprint", () => {
      delete document.documentElement.dataset.print;
      recolour();
    });
  }

  setRows() {
    this.timeline.setRows(rowsOf(this.data, this.marks, this.slices, this.collapsed));
  }

  // Lists the events that are visible, and the lines of the kernel's log among them.
  setList() {
    this.list.setItems(chosen(this.data.times.length, (row) => this.isVisible(row)));
  }

  // Lines that were asked for are there.
  textsArrived() {
    this.redraw();
    // What the keyboard is at stays.
    const focused = document.activeElement;
    const at = [...byId("content").querySelectorAll("button")].indexOf(focused);
    if (this.panel.open !== "ending" || !this.endingWaits) return;
    const { scrollTop } = byId("content");
    this.panel.show("ending");
    byId("content").scrollTop = scrollTop;
    if (at >= 0) byId("content").querySelectorAll("button")[at]?.focus();
  }

  redraw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  draw() {
    this.timeline.draw(this.colours);
    this.histogram.draw(this.colours);
    this.list.draw();
    this.frames = (this.frames ?? 0) + 1;
  }

  // Shows a range of time.
  show(from, to) {
    const [first, last] = this.outer;
    const size = Math.max(this.shortest, Math.min(to - from, last - first));
    const begin = Math.max(first, Math.min(from + (to - from - size) / 2, last - size));
    this.view = { from: begin, to: begin + size };
    // It shows what was under the mouse.
    byId("tip").hidden = true;
    this.changed();
  }

  changed() {
    this.redraw();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.panel?.isOfRange && !this.timeline.range && this.panel.show(this.panel.open), 250);
  }

  // Multiplies the length of what is shown; the time under the mouse stays where it is.
  zoom(factor, around) {
    const { from, to } = this.view;
    const { hover } = this.timeline;
    const middle = around ?? (hover ? this.timeline.time(hover.x) : (from + to) / 2);
    if ((to - from) * factor < this.shortest && factor < 1) factor = this.shortest / (to - from);
    this.show(middle - (middle - from) * factor, middle + (to - middle) * factor);
  }

  pan(time) {
    this.show(this.view.from + time, this.view.to + time);
  }

  scroll(pixels) {
    this.timeline.scroll += pixels;
    this.redraw();
  }

  showAll() {
    this.show(...this.whole);
  }

  // Shows the death, or the end, as the page does when it opens.
  showEnd() {
    this.show(...this.opening);
    this.list.showEnd(this.deaths[0]?.time ?? this.data.head.last);
  }

  // Shows a time, in the middle if it was not shown.
  reveal(time) {
    const { from, to } = this.view;
    if (time < from || time > to) this.show(time - (to - from) / 2, time + (to - from) / 2);
  }

  // Chooses an event, and shows its time and its row.
  goTo(row) {
    this.reveal(this.data.times[row]);
    const isOpened = groupsOf(this, { row }).map((group) => this.collapsed.delete(group)).includes(true);
    if (isOpened) this.setRows();
    const chosen = this.chooseEvent(row);
    const { shownAt } = this.timeline;
    if (shownAt) this.timeline.showRow(shownAt.row);
    return chosen;
  }

  // Chooses a slice, and shows its begin and its row.
  goToSlice(slice) {
    this.reveal(this.data.slices.begins[slice]);
    const isOpened = groupsOf(this, { slice }).map((group) => this.collapsed.delete(group)).includes(true);
    if (isOpened) this.setRows();
    this.chooseSlice(slice);
    const { shownAt } = this.timeline;
    if (shownAt) this.timeline.showRow(shownAt.row);
  }

  fit() {
    const { range, chosen } = this.timeline;
    const [from, to] = range ?? (chosen ? [chosen.begin, chosen.end] : this.whole);
    const margin = Math.max((to - from) * 0.05, to > from ? 1 : 500);
    this.show(from - margin, to + margin);
  }

  // Chooses what was clicked on. Where there is nothing, the list goes to the time.
  choose(hit, time) {
    if (hit.gap) return this.chooseGap(hit.gap);
    if (hit.slice !== undefined) return this.chooseSlice(hit.slice);
    if (hit.event !== undefined) return this.chooseEvent(hit.event);
    this.clear();
    if (time !== null) this.list.followTime(time);
    return undefined;
  }

  // Says to a screen reader what was chosen.
  say(hit) {
    byId("said").textContent = visible(this.tipText(hit));
  }

  chooseEvent(row) {
    const time = this.data.times[row];
    this.timeline.choose({ begin: time, end: time, row });
    this.list.follow(row);
    this.say({ event: row });
    this.redraw();
    return this.panel.event(row);
  }

  chooseSlice(slice) {
    const { begins, ends } = this.data.slices;
    this.timeline.choose({ begin: begins[slice], end: ends[slice], slice });
    const event = this.data.slices.events[slice];
    if (event === NONE) this.list.followTime(begins[slice]);
    else this.list.follow(event);
    this.panel.slice(slice);
    this.say({ slice });
    this.redraw();
  }

  chooseGap(gap) {
    this.timeline.choose({ begin: gap.begin ?? this.outer[0], end: gap.end ?? this.outer[1], gap });
    this.panel.gap(gap);
    if (gap.begin !== null) this.reveal(gap.begin);
    this.list.followTime(gap.begin ?? this.outer[0]);
    this.say({ gap });
    this.redraw();
  }

  // Chooses what comes next in the same row, or before.
  step(by) {
    return step(this, by);
  }

  chooseRange(range) {
    this.timeline.range = range;
    this.panel.show(this.panel.isOfRange ? this.panel.open : "statistics");
    this.redraw();
  }

  clear() {
    this.timeline.range = null;
    this.timeline.choose(null);
    this.list.clear();
    if (this.panel.isOfRange) this.panel.show(this.panel.open);
    this.redraw();
  }

  toggle(group) {
    if (!this.collapsed.delete(group)) this.collapsed.add(group);
    this.setRows();
    this.redraw();
  }

  setResults(results) {
    this.results = results;
    this.redraw();
  }

  isVisible(row) {
    return !this.visible || this.visible[row] === 1;
  }

  // Shows only some events, and searches these again.
  async setVisible(visible) {
    this.visible = visible;
    this.marks = new Marks(this.data, visible, this.machineOf);
    this.setRows();
    this.setList();
    if (this.panel.isOfRange) this.panel.show(this.panel.open);
    this.redraw();
    if (this.search.text) await this.search.find(this.search.text, false);
  }

  // Returns the number of events that are visible.
  counted() {
    return this.marks.every.all.items.length;
  }

  setTimes(as) {
    this.times.as = as;
    byId("times-as").value = as;
    this.panel.show(this.panel.open);
    this.redraw();
  }

  nextTimes() {
    const all = ["clock", "end", "start"];
    this.setTimes(all[(all.indexOf(this.times.as) + 1) % all.length]);
  }

  span(time) {
    return time < 1 ? `${Number(time.toPrecision(1))} ns` : short(time);
  }

  // Returns a time in all forms.
  timeRows(time, timed) {
    if (!timed) return [["Time", "none: its stream has no clock"]];
    return [["Time", this.times.clock(time)], [`Before the ${this.times.origin}`, `${this.times.beforeEndShort(time)} (${this.times.beforeEnd(time)})`], ["Since the start", this.times.sinceStart(time)]];
  }

  // Shows what is under the mouse.
  tip(hit, x, y) {
    const tip = byId("tip");
    const text = hit && this.tipText(hit);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = visible(text);
    const top = byId("timeline").offsetTop;
    const { offsetWidth: width, offsetHeight: height } = tip;
    const [right, bottom] = [this.timeline.surface.width, this.timeline.surface.height];
    tip.style.left = `${Math.max(0, x + 14 + width > right ? x - width - 10 : x + 14)}px`;
    tip.style.top = `${top + (y + 18 + height > bottom ? y - height - 8 : y + 18)}px`;
  }

  tipText({ row, gap, slice, event, isNamed = this.timeline.hover === null }) {
    const { head, slices, kinds, timeOf } = this.data;
    if (gap) return `Gap: ${gap.what}\n${gap.stream}`;
    if (slice !== undefined) {
      const track = head.tracks[slices.tracks[slice]];
      const name = track.of === "running" ? threadName(head.threads[slices.threads[slice]]) : head.labels[slices.labels[slice]];
      const named = track.of === "running" || track.of === "interrupts" ? name : this.texts.named(slice);
      return `${named}\n${lengthText(slices, slice, short)} from ${this.times.full(slices.beginOf(slice))}`;
    }
    if (event !== undefined) {
      const line = this.log.get(event);
      const fields = line ? "" : this.texts.get(event);
      return `${line ? line.text : head.kinds[kinds[event]].name}${fields ? ` ${fields.slice(0, 500)}` : ""}\n${this.times.full(timeOf(event))}`;
    }
    return row && isNamed ? row.title : "";
  }
}

// Returns the exact time of the last event that is shown at first. The page's head has it only as JavaScript's numbers do.
function lastTime({ head, times, timeOf }) {
  // As much as the sum of a few numbers that are rounded may differ.
  const most = head.last + head.last * 2 ** -50;
  let row = times.length - 1;
  while (row > 0 && times[row] > most) row--;
  const isNear = row >= 0 && times[row] >= head.last - head.last * 2 ** -50;
  return isNear ? timeOf(row) : head.last;
}

// Returns a time of the page as a number, if JavaScript's numbers hold it.
const fromStart = (time) => (Number.isSafeInteger(Number(time)) ? Number(time) : time);

async function start() {
  const head = readHead();
  const begin = BigInt(head.start);
  head.last = head.home[1];
  for (const death of [...head.deaths, ...head.survived]) death.offset = death.time === null ? null : Number(BigInt(death.time) - begin);
  const times = new Times(head);
  const death = head.deaths.find(({ time }) => time !== null);
  if (death) Object.assign(times, { end: fromStart(BigInt(death.time) - begin), origin: death.word });
  showHead(head, times);
  preview(head, theme());
  performance.mark("head");
  const data = await load(head);
  if (!head.exact) {
    times.last = lastTime(data);
    if (!death) times.end = times.last;
    showHead(head, times);
  }
  const app = new App(data, times);
  app.draw();
  performance.mark("drawn");
  window.lastwords = app;
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  document.documentElement.dataset.ready = "failed";
  byId("died").prepend(Object.assign(document.createElement("div"), { className: "death", textContent: `This page cannot be shown: ${error.message ?? error}` }));
});
