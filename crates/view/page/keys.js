// The keys: as in Perfetto, W and S zoom, A and D move, for as long as they are held.

import { byId, make } from "view/dom.js";

const HELP = [
  ["W, S", "zoom in and out, around the mouse"],
  ["A, D (or \u2190, \u2192)", "move to earlier and to later times"],
  ["\u2191, \u2193", "go from row to row; the row has a frame"],
  ["Enter, Space", "open or close the group of the row, or choose what the row shows first; again: what is nested in it"],
  ["Page up, Page down", "scroll the rows"],
  ["0, Home", "show all events"],
  ["E, End", "show the death, or the end"],
  ["F", "show what is chosen, or the chosen range, in full width"],
  [".  ,", "choose the next event or slice of the same row, the one before"],
  ["/", "search; Enter and Shift+Enter, or ] and [, go to the next result and to the one before"],
  ["T", "times by the clock, before the death or the last event, since the start"],
  ["L", "the legend"],
  ["Esc", "close what is open: this help, the legend, an error, details, a frame of the flame graph; then choose nothing"],
  ["?", "this help"],
  ["In the list", "\u2191, \u2193, Page up, Page down, Home, End: choose an event, which the timeline shows"],
  ["In the flame graph", "\u2191, \u2193, \u2190, \u2192: go from frame to frame; Enter: a frame in full width; Esc: back"],
  ["Mouse", "drag: choose a range for its statistics and its flame graph; Shift and drag: move; wheel: scroll the rows; Ctrl and wheel: zoom; click: all fields of an event; double click: a slice in full width; drag in the histogram: what is shown; click in the list: the timeline shows the event"],
];

const MOVES = { w: ["zoom", -1], s: ["zoom", 1], a: ["pan", -1], d: ["pan", 1], arrowleft: ["pan", -1], arrowright: ["pan", 1] };

export function listen(app) {
  const held = new Map();
  let last = 0;
  const frame = (now) => {
    const passed = Math.min(60, now - last);
    last = now;
    for (const [what, direction] of held.values()) move(app, what, direction * passed);
    if (held.size > 0) requestAnimationFrame(frame);
  };
  const press = (event) => {
    if (event.key === "Escape") {
      event.preventDefault();
      escape(app, event.target);
      return;
    }
    if (isTyped(event)) return;
    const key = event.key.toLowerCase();
    if (MOVES[key] && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      if (held.has(key)) return;
      move(app, MOVES[key][0], MOVES[key][1] * 40);
      held.set(key, MOVES[key]);
      last = performance.now();
      if (held.size === 1) requestAnimationFrame(frame);
      return;
    }
    const act = actions(app)[key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  };
  document.addEventListener("keydown", press);
  document.addEventListener("keyup", (event) => held.delete(event.key.toLowerCase()));
  window.addEventListener("blur", () => held.clear());
  byId("help").addEventListener("click", help);
  byId("legend-button").addEventListener("click", () => showLegend(byId("legend").hidden));
}

// Closes what is open, one thing at a time; then chooses nothing.
function escape(app, target) {
  const details = [...document.querySelectorAll("#header details[open]")].at(-1);
  if (byId("keys").open) byId("keys").close();
  else if (!byId("legend").hidden) showLegend(false);
  else if (!byId("filter-error").hidden) byId("filter-error").hidden = true;
  else if (!byId("tip").hidden) byId("tip").hidden = true;
  else if (target.matches?.("input, select")) target.blur();
  else if (details) details.open = false;
  else if (app.panel.open !== "flame" || !app.panel.flame.back()) app.clear();
}

function showLegend(isShown) {
  byId("legend").hidden = !isShown;
  byId("legend-button").setAttribute("aria-expanded", String(isShown));
}

// Moves as far as a key that was held for so many milliseconds.
function move(app, what, passed) {
  if (what === "zoom") app.zoom(Math.exp(passed / 260));
  else app.pan((app.view.to - app.view.from) * (passed / 900));
}

function isTyped(event) {
  const { target } = event;
  if (target.matches?.("input, select, textarea")) return true;
  if (target.matches?.("button, tr, summary") && ["Enter", " "].includes(event.key)) return true;
  return target.closest?.("dialog, #content, #header, #tabs, #legend, #list") && SCROLLING.test(event.key);
}

// The keys that scroll what has the focus.
const SCROLLING = /^(Arrow.*|Page.*|Home|End| )$/;

function actions(app) {
  return {
    arrowup: () => app.cursor.move(-1),
    arrowdown: () => app.cursor.move(1),
    enter: () => app.cursor.enter(),
    " ": () => app.cursor.enter(),
    pageup: () => app.scroll(-400),
    pagedown: () => app.scroll(400),
    "0": () => app.showAll(),
    home: () => app.showAll(),
    end: () => app.showEnd(),
    e: () => app.showEnd(),
    l: () => showLegend(byId("legend").hidden),
    f: () => app.fit(),
    ".": () => app.step(1),
    ",": () => app.step(-1),
    "/": () => byId("search").focus(),
    "]": () => app.search.step(1),
    "[": () => app.search.step(-1),
    t: () => app.nextTimes(),
    "?": help,
  };
}

function help() {
  const dialog = byId("keys");
  const rows = HELP.map(([keys, what]) => make("tr", {}, make("td", {}, ...keys.split(/(?<=,) /).map((key) => make("kbd", {}, key))), make("td", {}, what)));
  dialog.replaceChildren(make("h2", {}, "Keys and mouse"), make("table", {}, make("tbody", {}, ...rows)), make("form", { method: "dialog" }, make("button", {}, "Close")));
  dialog.showModal();
}
