// The list of events beside the timeline. Only the rows that are seen are elements, so that it may have millions.

import { byId, make, visible } from "view/dom.js";
import { Index, threadName } from "view/rows.js";
import { lastPart } from "view/texts.js";

export const ROW = 20;
// Browsers cannot scroll higher elements.
const HIGHEST = 8_000_000;

export class List {
  constructor(app) {
    Object.assign(this, { app, box: byId("list"), top: 0, at: -1, lines: [], set: 0 });
    this.box.addEventListener("scroll", () => this.scrolled());
    this.box.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("click", (event) => {
      const line = event.target.closest("[data-at]");
      if (line) this.choose(Number(line.dataset.at));
    });
    new ResizeObserver(() => this.resize()).observe(this.box);
    const { kinds, threads } = app.data.head;
    this.names = kinds.map(({ name }) => visible(lastPart(name)));
    this.classes = kinds.map(({ level }) => ({ error: "level-error", warn: "level-warn" })[level] ?? "");
    this.threads = threads.map((thread) => visible(threadName(thread)));
  }

  // Shows these rows, in order of time. What was shown stays.
  setItems(items) {
    const row = this.items?.[Math.floor(this.top)];
    const chosen = this.items?.[this.at];
    this.items = items;
    this.index = new Index(items, this.app.data.times);
    this.at = chosen === undefined ? -1 : this.exactly(chosen);
    byId("list-space").style.height = `${Math.min(HIGHEST, items.length * ROW)}px`;
    this.scrollTo(row === undefined ? 0 : this.place(row));
  }

  // Returns the position of the first item that is this row or a later one.
  place(row) {
    return lower(this.items, row);
  }

  exactly(row) {
    const at = this.place(row);
    return this.items[at] === row ? at : -1;
  }

  get count() {
    return this.items.length;
  }

  // Number of rows that are seen.
  get seen() {
    return this.box.clientHeight / ROW;
  }

  // Makes a position the first that is seen.
  scrollTo(top) {
    const most = Math.max(0, this.count - this.seen);
    this.top = Math.max(0, Math.min(top, most));
    const room = byId("list-space").offsetHeight - this.box.clientHeight;
    this.box.scrollTop = most > 0 ? (this.top / most) * room : 0;
    // The browser rounds it, and says so later.
    this.set = this.box.scrollTop;
    this.app.redraw();
  }

  scrolled() {
    if (Math.abs(this.box.scrollTop - this.set) < 1) return;
    this.set = this.box.scrollTop;
    const room = byId("list-space").offsetHeight - this.box.clientHeight;
    this.top = room > 0 ? (this.set / room) * Math.max(0, this.count - this.seen) : 0;
    this.app.redraw();
  }

  // Where the scroll bar is too short for all rows, the wheel moves as far as elsewhere all the same.
  wheel(event) {
    if (event.ctrlKey || event.metaKey || this.count * ROW <= HIGHEST) return;
    event.preventDefault();
    this.scrollTo(this.top + (event.deltaY * (event.deltaMode === 1 ? 16 : 1)) / ROW);
  }

  resize() {
    if (this.items) this.scrollTo(this.top);
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || this.count === 0) return;
    const page = Math.max(1, Math.floor(this.seen) - 1);
    // Without a choice, the keys begin at what is seen.
    const from = this.at < 0 ? Math.floor(this.top) : this.at;
    const step = this.at < 0 ? 0 : 1;
    const next = { ArrowUp: from - step, ArrowDown: from + step, PageUp: from - page, PageDown: from + page, Home: 0, End: this.count - 1, Enter: from, " ": from }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    this.choose(Math.max(0, Math.min(next, this.count - 1)));
  }

  // Chooses a position, and shows its event in the timeline.
  choose(at) {
    return this.app.goTo(this.items[at]);
  }

  // Marks the event that was chosen elsewhere, and scrolls to it.
  follow(row) {
    this.at = this.exactly(row);
    this.show(this.at < 0 ? this.place(row) : this.at);
  }

  // Scrolls to a time. Nothing is marked.
  followTime(time) {
    this.at = -1;
    this.show(this.index.lower(time));
  }

  clear() {
    this.at = -1;
  }

  // Scrolls until a position is seen, to the middle if it was not.
  show(at) {
    const isSeen = at >= this.top && at + 1 <= this.top + this.seen;
    if (isSeen) this.app.redraw();
    else this.scrollTo(at - this.seen / 2);
  }

  // Scrolls so that a time is at two thirds of the height.
  showEnd(time) {
    this.scrollTo(this.after(time) - (this.seen * 2) / 3);
  }

  // Returns the number of items at or before a time.
  after(time) {
    let at = this.index.lower(time);
    while (at < this.count && this.app.data.times[this.items[at]] <= time) at++;
    return at;
  }

  // Makes the rows that are seen, if anything has changed.
  draw() {
    const { app } = this;
    const state = [this.items, this.top, this.seen, this.at, app.texts.version, app.results, app.times.as];
    if (this.drawn?.every((own, place) => own === state[place])) return;
    this.drawn = state;
    const first = Math.floor(this.top);
    const number = Math.min(this.count - first, Math.ceil(this.seen) + 1);
    const rows = byId("list-rows");
    while (this.lines.length < number) this.lines.push(rows.appendChild(this.line()));
    rows.style.transform = `translateY(${(first - this.top) * ROW}px)`;
    const death = app.deaths[0];
    const last = death ? this.after(death.time) - 1 : -1;
    this.lines.forEach((line, place) => {
      line.hidden = place >= number;
      if (place < number) this.fill(line, first + place, first + place === last);
    });
    const active = this.at - first;
    if (active >= 0 && active < number) this.box.setAttribute("aria-activedescendant", this.lines[active].id);
    else this.box.removeAttribute("aria-activedescendant");
    byId("list-count").textContent = `${this.count.toLocaleString("en")} ${app.visible ? "that pass the filter" : "in all"}`;
  }

  line() {
    const parts = ["time", "thread", "text"].map((name) => make("span", { class: name }));
    return make("div", { role: "option", id: `event-${this.lines.length}` }, ...parts);
  }

  fill(line, at, isLast) {
    const { data, times, texts, results, log } = this.app;
    const row = this.items[at];
    const kind = data.kinds[row];
    const isLog = log.has(row);
    const fields = texts.get(row);
    const isFound = results !== null && results.items[lower(results.items, row)] === row;
    line.dataset.at = at;
    line.className = [isLog ? "" : this.classes[kind], isFound ? "found" : "", isLast ? "last" : ""].join(" ");
    line.setAttribute("aria-posinset", at + 1);
    line.setAttribute("aria-setsize", this.count);
    line.setAttribute("aria-selected", String(at === this.at));
    const [time, thread, text] = line.children;
    time.textContent = times.inList(data.timeOf(row));
    thread.textContent = isLog ? "kernel log" : this.threads[data.threads[row]] ?? "";
    text.replaceChildren(make("b", {}, isLog ? "" : this.names[kind]), ` ${fields === undefined ? "\u2026" : visible(fields)}`);
  }
}

// Returns the position of the first of sorted items that is not below a row.
function lower(items, row) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle] < row) low = middle + 1;
    else high = middle;
  }
  return low;
}
