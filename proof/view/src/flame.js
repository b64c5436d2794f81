// Looks at a flame graph of a page. The first argument says which one. The second has the number of stacks of each path, or
// is null: then the times of spans, or of threads in them, are added up here from their events. Returns what is not as
// expected, a text for each.

const [of, stacks] = arguments;
const wrong = [];
const check = (what, actual, expected) => {
  if (String(actual) !== String(expected)) wrong.push(`${what} is ${actual}, expected ${expected}`);
};
const app = window.lastwords;
const { data, panel } = app;
const { flame } = panel;
const byId = (id) => document.getElementById(id);
const drawn = async () => {
  for (let at = 0; at < 500 && (app.asked || !byId("flame")); at++) await new Promise((done) => setTimeout(done, 10));
};
const pathOf = (frame) => frame.path.join(";");
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

async function run() {
  app.clear();
  app.showAll();
  byId("tab-flame").click();
  await drawn();
  check("the graphs", flame.sources.includes(of), true);
  if (flame.of !== of) {
    const select = document.querySelector("#content select");
    select.value = of;
    byId("flame").remove();
    select.dispatchEvent(new Event("change"));
    await drawn();
  }
  if (stacks) widths(stacks);
  else await ranges();
  await keyboard();
  app.clear();
  panel.show("ending");
  check("the panel fits the page", byId("content").scrollWidth <= byId("content").clientWidth, true);
  return wrong;
}

// The whole, and a part whose edges cut spans.
async function ranges() {
  const { items } = app.marks.every.all;
  const parts = [[0, items.length - 1], [items.length >> 2, items.length - (items.length >> 2)], [items.length >> 1, (items.length >> 1) + 40]];
  for (const [first, last] of parts) {
    const range = [data.times[items[first]] + 100, data.times[items[Math.min(last, items.length - 1)]]];
    byId("flame").remove();
    app.chooseRange(range);
    await drawn();
    widths(await (of === "spans" ? spans : entered)(...range));
  }
  byId("flame").remove();
  app.clear();
  await drawn();
}

// Compares the widths that are drawn, and what they stand for, with sums by path. A frame is at least as wide as those in it.
function widths(sums) {
  const inside = (path) => Object.keys(sums).filter((other) => other.startsWith(path) && other.slice(path.length).split(";").length === (path ? 2 : 1));
  const weight = (path) => Math.max(sums[path] ?? 0, inside(path).reduce((sum, other) => sum + weight(other), 0));
  const [total, all] = [inside("").reduce((sum, path) => sum + sums[path], 0), weight("")];
  const near = (a, b) => Math.abs(a - b) < 1e-4 * Math.max(1, Math.abs(b));
  const shown = new Map([...flame.buttons].map(([frame, button]) => [pathOf(frame), [frame, parseFloat(button.style.width), parseFloat(button.style.left)]]));
  check("the sum", near(flame.root.total, total), true);
  for (const [path, value] of Object.entries(sums)) {
    const [frame, width] = shown.get(path) ?? [];
    const part = weight(path) / all;
    if (part < 0.0011) continue;
    if (!frame) wrong.push(`${path} is not drawn: ${value} of ${total}`);
    else if (!near(frame.total, value) || !near(width, part * 100)) wrong.push(`${path} is ${frame.total} and ${width} %, expected ${value} of ${total} and ${part * 100} %`);
  }
  check("frames that are none", [...shown.keys()].filter((path) => path !== "" && !(path in sums)), "");
  check("there are frames", shown.size > 3, true);
  // A frame lies within the one around.
  for (const [path, [frame, width, left]] of shown) {
    const [, outer, begin] = shown.get(frame.parent ? pathOf(frame.parent) : path);
    if (left < begin - 1e-6 || left + width > begin + outer + 1e-6) wrong.push(`${path} reaches out of ${pathOf(frame.parent)}`);
  }
}

// Adds up from the events how long spans were open.
async function spans(from, to) {
  const { kinds } = data.head;
  const [sums, paths, open] = [{}, new Map(), new Map()];
  const end = (path, begin, time) => {
    if (time >= from && begin <= to) sums[path] = (sums[path] ?? 0) + Math.min(time, to) - Math.max(begin, from);
    // A parent that ended before the range has the frames of its children all the same.
    const outer = path.split(";").slice(0, -1);
    for (; outer.length > 0 && time >= from; outer.pop()) sums[outer.join(";")] ??= 0;
  };
  for (let row = 0; row < data.times.length; row++) {
    const [, what, name] = /^span:(new|close) (.*)$/.exec(kinds[data.kinds[row]].name) ?? [];
    if (!what) continue;
    const { span_id: own, parent_id: parent } = (await data.fields.of(row)).value.fields;
    const [id, outer] = [own, parent].map((one) => JSON.stringify(one));
    if (what === "new") {
      // A span that has ended may be no parent: its id may be that of another.
      const path = [...(open.has(outer) ? [paths.get(outer)] : []), name].join(";");
      paths.set(id, path);
      open.set(id, data.times[row]);
    } else if (open.has(id)) {
      end(paths.get(id), open.get(id), data.times[row]);
      open.delete(id);
    }
  }
  for (const [id, begin] of open) end(paths.get(id), begin, Infinity);
  return sums;
}

// Adds up from the events how long each thread was in which spans.
async function entered(from, to) {
  const { kinds } = data.head;
  const sums = {};
  const open = new Map();
  const end = (entry, time) => {
    const part = Math.min(time, to) - Math.max(entry.begin, from);
    if (time >= from && entry.begin <= to) sums[entry.path] = (sums[entry.path] ?? 0) + part;
  };
  for (let row = 0; row < data.times.length; row++) {
    const { name } = kinds[data.kinds[row]];
    const [, what, rest] = /^span:(enter|exit) (.*)$/.exec(name) ?? [];
    if (!what) continue;
    const id = JSON.stringify((await data.fields.of(row)).value.fields.span_id);
    const stack = open.get(data.threads[row]) ?? [];
    open.set(data.threads[row], stack);
    const time = data.times[row];
    if (what === "enter") {
      stack.push({ id, begin: time, path: [...stack.slice(-1).map(({ path }) => path), rest].join(";") });
    } else {
      const at = stack.findLastIndex((entry) => entry.id === id);
      if (at >= 0) end(stack.splice(at, 1)[0], time);
    }
  }
  for (const entry of [...open.values()].flat()) end(entry, Infinity);
  return sums;
}

// Keys go from frame to frame, and each says what it is.
async function keyboard() {
  const said = () => byId("flame-said").textContent;
  const frame = () => [...flame.buttons].find(([, button]) => button === document.activeElement)?.[0];
  const [first] = flame.buttons.values();
  check("frames that the Tab key reaches", [...flame.buttons.values()].filter(({ tabIndex }) => tabIndex === 0).length, 1);
  first.focus();
  press("ArrowDown");
  const inside = frame();
  check("the frame inside", [inside?.parent === flame.root, said().includes(inside?.name)], "true,true");
  check("what a screen reader says", [document.activeElement.role, document.activeElement.getAttribute("aria-label").startsWith(`${inside?.name}: `)], "treeitem,true");
  press("ArrowUp");
  check("the frame around", frame() === flame.root, true);
  press("ArrowDown");
  document.activeElement.click();
  check("a frame in full width", [flame.buttons.get(flame.top)?.style.width, pathOf(flame.top), frame() === inside], ["100%", pathOf(inside), true]);
  press("Escape");
  check("Esc goes back", [flame.top === flame.root, panel.open], "true,flame");
  // The timeline shows the longest slice, or the newest stack, of a frame.
  [...byId("flame-said").querySelectorAll("button")].at(-1).click();
  const { chosen } = app.timeline;
  check("the way to the timeline", stacks ? chosen?.row : chosen?.slice, inside.best);
  app.clear();
  byId("tab-flame").click();
  await new Promise((done) => setTimeout(done, 50));
  await drawn();
}

return run();
