// The flame graph of a range of time: spans from their opening to their end, each below its parent; the spans and calls
// that threads were in, each below the one that it was called in; or the stacks that the kernel recorded. A frame is as wide
// as the time that it took, or as the number of its stacks.

import { hash, paletteOf } from "view/canvas.js";
import { NONE } from "view/data.js";
import { message, timeIn } from "view/details.js";
import { byId, make } from "view/dom.js";
import { lastPart } from "view/texts.js";
import { short } from "view/time.js";

// What is narrower than this part of the whole is counted, not drawn; most stacks that are read; height of a frame.
const [NARROW, STACKS, HEIGHT] = [0.001, 20_000, 18];
const STACK = /(?:^|:)(?:kernel|user)_stack$/;

// A frame: the sum of all slices or stacks with one path. `best` is the longest slice or the newest stack.
class Frame {
  constructor(name, parent) {
    Object.assign(this, { name, parent, children: new Map(), total: 0, count: 0, most: -1, best: null, isLeast: false });
  }

  child(name) {
    if (!this.children.has(name)) this.children.set(name, new Frame(name, this));
    return this.children.get(name);
  }

  add(value, item, order, isLeast = false) {
    this.total += value;
    this.count++;
    this.isLeast ||= isLeast;
    if (order > this.most) [this.most, this.best] = [order, item];
  }

  // Sets the width of all in it. Spans may run beside each other or after the end of their parent: then the frame of the
  // parent is as wide as they are together.
  weigh() {
    let sum = 0;
    for (const child of this.children.values()) sum += child.weigh();
    return this.weight = Math.max(this.total, sum);
  }

  // Returns what none of its children has.
  get own() {
    return Math.max(0, this.total - [...this.children.values()].reduce((sum, { total }) => sum + total, 0));
  }

  get path() {
    return this.parent ? [...this.parent.path, this.name] : [];
  }
}

// Returns the sum of spans, or of the spans and calls that threads were in, in a range.
export function slicesIn({ data, slices: { tracks } }, of, from, to) {
  const { head, slices } = data;
  const root = new Frame("All", null);
  const frames = new Map([[NONE, root]]);
  const label = (slice) => head.labels[slices.labels[slice]];
  // A parent may have ended before the range.
  const frameOf = (slice) => {
    if (!frames.has(slice)) frames.set(slice, frameOf(slices.parents[slice]).child(label(slice)));
    return frames.get(slice);
  };
  const byOwner = Map.groupBy([...head.tracks.keys()].filter((track) => head.tracks[track].of === of), (track) => head.tracks[track].owner);
  for (const own of byOwner.values()) {
    own.sort((a, b) => head.tracks[a].depth - head.tracks[b].depth);
    own.forEach((track, at) => {
      const { items, ends } = tracks[track];
      const above = own.slice(0, at).reverse().map((outer) => tracks[outer]);
      for (let next = ends.lower(from); next < items.length && slices.begins[items[next]] <= to; next++) {
        const slice = items[next];
        if (of === "thread") frames.set(slice, frames.get(outer(slices, above, slice)).child(label(slice)));
        const time = timeIn(slices, slice, from, to);
        frameOf(slice).add(time, slice, time, slices.flags[slice] !== 0);
      }
    });
  }
  for (const frame of root.children.values()) {
    root.total += frame.total;
    root.count += frame.count;
    root.isLeast ||= frame.isLeast;
  }
  return root;
}

// Returns the innermost slice of these tracks in which a slice lies.
function outer({ begins, ends: endOf }, above, slice) {
  for (const { items, ends } of above) {
    const around = items[ends.lower(endOf[slice])];
    if (around !== undefined && begins[around] <= begins[slice]) return around;
  }
  return NONE;
}

// Returns the functions of a stack as the kernel prints it, the outermost first.
export function functionsOf(text) {
  const lines = text.split("\n").map((line) => /^ *=> *(.*)$/.exec(line)?.[1]).filter(Boolean);
  return lines.map((line) => line.replace(/\+0x[0-9a-f]+.*$/, "").trim()).reverse();
}

export class Flame {
  constructor(app) {
    const { head } = app.data;
    this.app = app;
    this.isStack = head.kinds.map(({ name }) => STACK.test(name));
    const has = { spans: head.tracks.some(({ of }) => of === "spans"), thread: head.tracks.some(({ of }) => of === "thread"), stacks: this.isStack.includes(true) };
    this.sources = Object.keys(has).filter((key) => has[key]);
    // What is shown, and the path of the frame that has the full width.
    this.of = this.sources[0];
    this.path = [];
    this.asked = 0;
  }

  // Returns the elements of the panel.
  elements() {
    if (!this.of) return [make("p", { class: "soft" }, "No thread was in a span or call, and no stack was recorded.")];
    const { timeline, view } = this.app;
    const [from, to] = timeline.range ?? [view.from, view.to];
    const asked = ++this.asked;
    const place = make("div", { id: "flames" });
    // The keyboard stays where it was.
    const had = this.focused?.button.isConnected && this.focused.button === document.activeElement ? this.focused.frame.path : null;
    const show = (root, note) => {
      if (asked !== this.asked) return;
      Object.assign(this, { root, note, place });
      this.draw(had);
    };
    if (this.of !== "stacks") queueMicrotask(() => show(slicesIn(this.app, this.of, from, to), ""));
    else this.stacksIn(from, to).then(({ root, note }) => show(root, note), (error) => place.append(String(error.message ?? error)));
    const title = timeline.range ? "The chosen range" : "What is shown";
    const names = { spans: "spans", thread: "spans and calls that threads were in", stacks: "stacks" };
    const pick = (event) => Object.assign(this, { of: event.target.value, path: [] }).app.panel.show("flame");
    const select = make("select", { "aria-label": "Flame graph of", onchange: pick }, ...this.sources.map((key) => make("option", { value: key, selected: key === this.of ? "" : undefined }, names[key])));
    const heading = make("h2", {}, `${title}: ${short(to - from)}, ${this.sources.length > 1 ? "" : names[this.of]}`, this.sources.length > 1 ? select : null);
    return [heading, place];
  }

  // Returns the sum of the stacks of a range, of the newest if there are many.
  async stacksIn(from, to) {
    const { app } = this;
    const { data } = app;
    const index = app.marks.every.all;
    const all = index.items.slice(index.lower(from), index.lower(to + 1e-6)).filter((row) => this.isStack[data.kinds[row]]);
    const root = new Frame("All stacks", null);
    for (const [block, rows] of Map.groupBy(all.slice(-STACKS), (row) => data.fields.place(row)[0])) {
      const values = await data.fields.parsed(block, rows);
      rows.forEach((row, at) => {
        const [text] = message(values[at].context ?? {});
        root.add(1, row, row);
        functionsOf(text).reduce((frame, name) => {
          const child = frame.child(name);
          child.add(1, row, row);
          return child;
        }, root);
      });
    }
    return { root, note: all.length > STACKS ? `the newest ${STACKS.toLocaleString("en")} of ${all.length.toLocaleString("en")} stacks` : "" };
  }

  // Draws what was added up. `focus` is the path of the frame that takes the keyboard.
  draw(focus) {
    const { root, place } = this;
    if (root.weigh() === 0) return place.replaceChildren(make("p", { class: "soft" }, "Nothing of it is in this range."));
    const find = (path) => path.reduce((frame, name) => frame?.children.get(name), root);
    while (!find(this.path)) this.path.pop();
    const top = this.top = find(this.path);
    this.buttons = new Map();
    const above = [];
    for (let frame = top.parent; frame; frame = frame.parent) above.unshift(frame);
    above.forEach((frame, depth) => this.add(frame, 0, 1, depth, "above"));
    const narrow = this.lay(top, 0, 1, above.length);
    const depth = Math.max(...[...this.buttons.values()].map((button) => Number(button.getAttribute("aria-level"))));
    const graph = make("div", { id: "flame", role: "tree", "aria-label": "Flame graph. Arrow down goes to the widest frame inside, up to the one around, left and right beside; Enter shows a frame in full width, Esc goes back." }, ...this.buttons.values());
    graph.style.height = `${depth * HEIGHT}px`;
    graph.addEventListener("keydown", (event) => this.key(event));
    const notes = [this.note, narrow > 0 ? `${narrow.toLocaleString("en")} frames are too narrow to be drawn` : ""].filter(Boolean);
    this.said = make("p", { id: "flame-said" });
    place.replaceChildren(this.said, graph, ...notes.map((text) => make("p", { class: "soft" }, text)));
    this.show(top);
    if (focus) this.buttons.get(find(focus) ?? top)?.focus();
    return undefined;
  }

  // Lays a frame and all in it out, and returns how many are too narrow.
  lay(frame, left, width, depth) {
    this.add(frame, left, width, depth, "");
    let [at, narrow] = [left, 0];
    for (const child of [...frame.children.values()].sort((a, b) => b.weight - a.weight)) {
      const part = frame.weight > 0 ? (child.weight / frame.weight) * width : 0;
      if (part < NARROW) narrow++;
      else narrow += this.lay(child, at, part, depth + 1);
      at += part;
    }
    return narrow;
  }

  add(frame, left, width, depth, name) {
    const button = make("button", { type: "button", role: "treeitem", class: name, "aria-level": depth + 1, "aria-label": this.text(frame), title: this.text(frame) }, lastPart(frame.name));
    const [fill, ink] = frame.parent ? paletteOf(hash(frame.name)) : ["var(--band)", "var(--ink)"];
    Object.assign(button.style, { left: `${left * 100}%`, width: `${width * 100}%`, top: `${depth * HEIGHT}px`, background: fill, color: ink });
    button.tabIndex = this.buttons.size === 0 ? 0 : -1;
    button.addEventListener("click", () => this.zoom(frame));
    button.addEventListener("focus", () => this.show(frame));
    button.addEventListener("mouseenter", () => this.show(frame));
    this.buttons.set(frame, button);
  }

  text({ name, total, own, count, isLeast }) {
    const { root } = this;
    const share = `${((total / root.total) * 100).toFixed(1)} %`;
    if (this.of === "stacks") return `${name}: ${total.toLocaleString("en")} ${total === 1 ? "stack" : "stacks"}, ${share}, ${own.toLocaleString("en")} end here`;
    return `${name}: ${isLeast ? "about " : ""}${short(total)}, ${share}, ${count.toLocaleString("en")} ${count === 1 ? "time" : "times"}, ${short(own)} in nothing else`;
  }

  // Says what a frame is, with a way to the timeline.
  show(frame) {
    const button = this.buttons.get(frame);
    this.focused = { frame, button };
    for (const other of this.buttons.values()) other.tabIndex = other === button ? 0 : -1;
    const { app } = this;
    const isStack = this.of === "stacks";
    const go = () => (isStack ? app.goTo(frame.best) : app.goToSlice(frame.best));
    const link = frame.best === null ? null : make("button", { type: "button", onclick: go }, isStack ? "The newest in the timeline" : "The longest in the timeline");
    const back = this.path.length > 0 ? make("button", { type: "button", onclick: () => this.back() }, "Back (Esc)") : null;
    this.said.replaceChildren(...[back, link].filter(Boolean), make("span", {}, ` ${this.text(frame)}`));
  }

  // Shows a frame in full width, or the one around it if it has it already.
  zoom(frame) {
    this.path = (frame === this.top && frame.parent ? frame.parent : frame).path;
    this.draw(frame.path);
  }

  // Goes back to the frame around. Returns false if there is none.
  back() {
    if (this.path.length === 0 || !byId("flame")) return false;
    const { path } = this;
    this.path = path.slice(0, -1);
    this.draw(path);
    return true;
  }

  // Goes from frame to frame.
  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !this.focused) return;
    const { frame } = this.focused;
    const drawn = (frame) => [...(frame?.children.values() ?? [])].filter((child) => this.buttons.has(child)).sort((a, b) => b.weight - a.weight);
    const beside = drawn(frame.parent);
    const at = beside.indexOf(frame);
    const ways = { ArrowDown: () => drawn(frame)[0], ArrowUp: () => frame.parent, ArrowRight: () => beside[at + 1], ArrowLeft: () => beside[at - 1], Home: () => this.root };
    if (!ways[event.key]) return;
    event.preventDefault();
    this.buttons.get(ways[event.key]())?.focus();
  }
}
