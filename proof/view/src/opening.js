// Looks at a page of a made trace as it opens: its end, its list of events, what Esc closes, and what screen readers say.
// Returns what is not as expected, a text for each.

const wrong = [];
const check = (what, actual, expected) => {
  if (String(actual) !== String(expected)) wrong.push(`${what} is ${actual}, expected ${expected}`);
};
const app = window.lastwords;
const { data, list, timeline } = app;
const byId = (id) => document.getElementById(id);
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const settled = async () => {
  for (let at = 0; at < 200 && (app.texts.isReading || app.asked); at++) await new Promise((done) => setTimeout(done, 10));
  app.draw();
};

async function run() {
  opening();
  await listed();
  await linked();
  await filtered();
  closing();
  names();
  app.clear();
  app.showEnd();
  return wrong;
}

// The last second or the last 200 events are in the left two thirds.
function opening() {
  const { from, to } = app.view;
  const last = data.times.at(-1);
  check("the place of the end", ((last - from) / (to - from)).toFixed(4), (2 / 3).toFixed(4));
  const first = Math.max(0, data.times.length - 200);
  check("the range before the end", Math.round(last - from), Math.round(Math.min(1e9, last - data.times[first])));
  check("the tab that is open", app.panel.open, "ending");
  check("the tab's title", byId("tab-ending").textContent, "At the end");
  app.showAll();
  check("All shows all", app.view.from <= data.times[0] && app.view.to >= last, true);
  press("e");
  check("E shows the end again", [app.view.from, app.view.to], [from, to]);
}

const shown = () => [...byId("list-rows").children].filter(({ hidden }) => !hidden);

// The list has a row for each event, however many there are.
async function listed() {
  const count = data.times.length;
  check("rows of the list", list.count, count);
  check("few rows are elements", byId("list-rows").children.length < 100, true);
  const last = shown().find((line) => Number(line.dataset.at) === count - 1);
  const box = byId("list").getBoundingClientRect();
  check("the last event is seen", last !== undefined && last.getBoundingClientRect().bottom <= box.bottom + 1, true);
  for (const at of [0, Math.floor(count / 3), count - 1]) {
    list.show(at);
    app.draw();
    await settled();
    const line = shown().find((own) => Number(own.dataset.at) === at);
    check(`the name of event ${at}`, line?.querySelector("b").textContent, data.head.kinds[data.kinds[at]].name);
    const { value } = await data.fields.of(at);
    const [name, first] = Object.entries(value.fields)[0];
    check(`the fields of event ${at}`, line.textContent.includes(`${name}=${first[""] ?? first}`), true);
    check(`the position of event ${at}`, [line.getAttribute("aria-posinset"), line.getAttribute("aria-setsize")], [at + 1, count]);
    const { top, bottom } = line.getBoundingClientRect();
    check(`event ${at} is within the list`, top >= box.top - 1 && bottom <= box.bottom + 1, true);
  }
  // The scroll bar reaches the first and the last row.
  byId("list").scrollTop = 0;
  list.scrolled();
  check("the first row by the scroll bar", Math.round(list.top), 0);
  byId("list").scrollTop = 1e9;
  list.scrolled();
  check("the last row by the scroll bar", Math.round(list.top + list.seen), count);
}

// What is chosen on one side is chosen on the other.
async function linked() {
  byId("list").focus();
  list.scrollTo(100);
  app.draw();
  press("ArrowDown");
  check("the first event that the keys choose", timeline.chosen?.row, list.items[100]);
  press("ArrowDown");
  press("PageDown");
  press("ArrowUp");
  check("the event that the keys chose", timeline.chosen?.row, list.items[list.at]);
  check("the list keeps the focus", document.activeElement.id, "list");
  app.draw();
  check("the row that is marked", document.querySelectorAll("#list-rows [aria-selected=true]").length, 1);
  const marked = document.querySelector("#list-rows [aria-selected=true]");
  check("the row that screen readers are at", byId("list").getAttribute("aria-activedescendant"), marked.id);
  press("Home");
  check("Home", timeline.chosen?.row, 0);
  press("End");
  check("End", timeline.chosen?.row, data.times.length - 1);
  check("the timeline shows the event", app.view.from <= data.times.at(-1) && data.times.at(-1) <= app.view.to, true);
  list.scrollTo(50);
  app.draw();
  shown()[3].click();
  check("a click", timeline.chosen?.row, Number(shown()[3].dataset.at));
  const middle = Math.floor(data.times.length / 2);
  await app.goTo(middle);
  check("what the timeline chooses is chosen in the list", list.items[list.at], middle);
  check("and is seen", list.at >= list.top && list.at + 1 <= list.top + list.seen, true);
  check("a screen reader says it", byId("said").textContent.startsWith(data.head.kinds[data.kinds[middle]].name), true);
  const slice = data.slices.events.findIndex((event) => event < data.times.length);
  app.goToSlice(slice);
  check("a slice goes to its event in the list", list.items[list.at], data.slices.events[slice]);
  check("the slice's row is shown", timeline.shownAt !== null && timeline.top(timeline.shownAt.row) >= 0, true);
  app.choose({ row: timeline.rows[0] }, data.times[middle]);
  check("an empty place goes to its time", [list.at, list.top <= middle && middle <= list.top + list.seen], [-1, true]);
}

// A filter hides rows of the list, and errors are said as on the command line.
async function filtered() {
  const middle = Math.floor(data.times.length / 2);
  await app.goTo(middle);
  const { name } = data.head.kinds[data.kinds[middle]];
  await app.search.filter(`event == "${name}"`);
  const own = [...data.kinds].filter((kind) => data.head.kinds[kind].name === name).length;
  check("the rows of a filter", [list.count, list.items[list.at]], [own, middle]);
  for (const [text, message] of [
    ["syscall_*", "byte 8: found `*`; expected an operator ("],
    ["prev_tid = 1", "byte 9: found `=`; expected `==`: one `=` does not compare"],
    ["prev_tod == 1", "byte 0: found the name `prev_tod`; expected a field, a context that an event of the page has, such as prev_tid"],
  ]) {
    await app.search.filter(text);
    const box = byId("filter-error");
    if (!box.textContent.startsWith(message)) wrong.push(`the error of ${text} is ${box.textContent}, expected ${message}`);
    check("the field is marked", byId("filter").getAttribute("aria-invalid"), "true");
    check(`what the filter ${text} leaves`, list.count, own);
  }
  press("Escape");
  check("Esc hides the error", byId("filter-error").hidden, true);
  await app.search.filter("");
  check("the rows without a filter", list.count, data.times.length);
}

// Esc closes one thing at a time, and then chooses nothing.
function closing() {
  byId("timeline").focus();
  app.clear();
  press(".");
  check("an event is chosen", timeline.chosen !== null, true);
  press("?");
  check("the help is open", byId("keys").open, true);
  press("Escape");
  check("Esc closes the help", [byId("keys").open, timeline.chosen !== null], [false, true]);
  byId("legend-button").click();
  check("the legend is open", [byId("legend").hidden, byId("legend-button").getAttribute("aria-expanded")], [false, "true"]);
  press("Escape");
  check("Esc closes the legend", [byId("legend").hidden, timeline.chosen !== null], [true, true]);
  const inputs = document.querySelector("#header details");
  inputs.open = true;
  byId("tip").hidden = true;
  press("Escape");
  check("Esc closes details", [inputs.open, timeline.chosen !== null], [false, true]);
  press("Escape");
  check("then it chooses nothing", timeline.chosen, null);
}

// All that has the focus has a role and a name.
function names() {
  app.panel.show("ending");
  const all = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex]")].filter((one) => one.tabIndex >= 0 && one.checkVisibility());
  check("enough has the focus", all.length > 12, true);
  for (const one of all) {
    const name = one.getAttribute("aria-label") ?? one.labels?.[0]?.textContent ?? (one.getAttribute("aria-labelledby") ? byId(one.getAttribute("aria-labelledby"))?.textContent : one.textContent);
    check(`${one.outerHTML.slice(0, 60)} has a name`, Boolean(name?.trim()), true);
    const isNative = one.matches("a, button, input, select, summary");
    check(`${one.outerHTML.slice(0, 60)} has a role`, isNative || Boolean(one.getAttribute("role")), true);
  }
  const ids = all.map(({ id }) => id);
  for (const id of ["search", "filter", "times-as", "zoom-in", "fit", "to-end", "legend-button", "help", "histogram", "timeline", "list", "tab-ending", "content"]) check(`the keyboard reaches ${id}`, ids.includes(id), true);
}

return run();
