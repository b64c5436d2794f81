// Uses the page of a trace that was made: its keys, its rows, its mouse. Returns what is not as expected, a text for each.

const wrong = [];
const check = (what, actual, expected) => {
  if (String(actual) !== String(expected)) wrong.push(`${what} is ${actual}, expected ${expected}`);
};
const app = window.lastwords;
const { timeline, data } = app;
const byId = (id) => document.getElementById(id);
const press = (key) => {
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  document.activeElement.dispatchEvent(new KeyboardEvent("keyup", { key, bubbles: true }));
};

async function run() {
  keys();
  rows();
  mouse();
  await results();
  app.clear();
  app.showAll();
  return wrong;
}

// All can be reached without a mouse.
function keys() {
  byId("timeline").focus();
  app.clear();
  app.showAll();
  press(".");
  check("the first event by the full stop", timeline.chosen?.row, app.marks.every.all.items[0]);
  press("Escape");
  byId("timeline").focus();
  timeline.scroll = 0;
  press("ArrowDown");
  check("the first row", app.cursor.row, timeline.rows[0]);
  check("the first row's name", byId("tip").hidden ? "" : byId("tip").textContent, timeline.rows[0].title);
  const count = timeline.rows.length;
  press("Enter");
  check("Enter on a group closes it", timeline.rows.length < count, true);
  press(" ");
  check("Space on a group opens it", timeline.rows.length, count);
  press("ArrowDown");
  press("Enter");
  const first = timeline.chosen?.slice;
  check("Enter on a CPU chooses a slice of it", data.head.tracks[data.slices.tracks[first]]?.of, "running");
  press(".");
  check("the next slice", data.slices.begins[timeline.chosen?.slice] >= data.slices.ends[first], true);
  for (const [as, text] of [["start", "(since the start)"], ["end", "(before the last event)"], ["clock", " UTC"]]) {
    app.setTimes(as);
    check(`a slice's time by ${as}`, byId("content").textContent.includes(text), true);
  }
  app.panel.show("details");
  byId("tab-details").focus();
  press("ArrowRight");
  check("the tab by an arrow", [document.activeElement.id, app.panel.open], "tab-statistics,statistics");
  byId("content").focus();
  const before = [timeline.scroll, app.cursor.at];
  for (const key of ["ArrowDown", "PageDown", "End", " "]) press(key);
  check("the keys that scroll the panel leave the rows", [timeline.scroll, app.cursor.at], before);
  document.activeElement.blur();
}

// What is chosen from elsewhere is scrolled to, and its group is opened.
function rows() {
  const last = timeline.rows.at(-1);
  const part = last.parts.find(({ all }) => all);
  app.toggle("threads");
  app.goTo(part.all.items[0]);
  const { row } = timeline.shownAt;
  check("the row of an event that was gone to", row.label, last.label);
  check("that row is shown", timeline.top(row) >= 24 && timeline.top(row) + row.height <= timeline.surface.height, true);
  timeline.scroll = 0;
  // A gap lies under a slice. The first slice may have no length.
  app.showAll();
  app.draw();
  const cpu = timeline.rows.find(({ label }) => label === "CPU 0");
  const { track, y } = cpu.parts[0];
  const slice = track.items[1];
  app.show(data.slices.begins[slice], data.slices.ends[slice]);
  const gap = { begin: data.slices.begins[slice], end: data.slices.ends[slice] };
  cpu.gaps.push(gap);
  const x = timeline.surface.width / 2;
  check("a slice on a gap", timeline.at(x, timeline.top(cpu) + y + 4).slice, slice);
  check("a gap beside a slice", timeline.at(x, timeline.top(cpu) + 1).gap === gap, true);
  cpu.gaps.pop();
}

function mouse() {
  app.showAll();
  const { canvas } = timeline;
  canvas.setPointerCapture = () => {};
  const { left, top } = canvas.getBoundingClientRect();
  const go = (type, x) => canvas.dispatchEvent(new PointerEvent(type, { clientX: left + x, clientY: top + 60, bubbles: true }));
  go("pointerdown", 600);
  for (const type of ["pointermove", "pointermove", "pointerup"]) go(type, timeline.surface.width + 500);
  check("the end of a range that was dragged too far", timeline.range?.[1], app.view.to);
  app.clear();
  app.zoom(0.5);
  go("pointermove", 600);
  app.pan((app.view.to - app.view.from) / 10);
  check("the tooltip after moving", byId("tip").hidden, true);
  const time = timeline.time(600);
  app.zoom(0.5);
  check("the time under the mouse stays", Math.abs(timeline.time(600) - time) < 1, true);
  go("pointerleave", 600);
  delete canvas.setPointerCapture;
}

// The results of a search are events that the filter lets pass.
async function results() {
  await app.search.find("syscall");
  const { length } = app.results.items;
  await app.search.filter("event == \"syscall_exit_read\"");
  const { items } = app.results;
  check("the results of a search are visible", items.every((row) => app.isVisible(row)) && items.length > 0 && items.length < length, true);
  await app.search.find("");
  await app.search.filter("");
}

return run();
