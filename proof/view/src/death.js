// Looks at the page of a service that aborted in the middle of a request (`service.rs`). Returns what is not as expected, a
// text for each.

const wrong = [];
const check = (what, actual, expected) => {
  if (String(actual) !== String(expected)) wrong.push(`${what} is ${actual}, expected ${expected}`);
};
const app = window.lastwords;
const { data, list, timeline } = app;
const byId = (id) => document.getElementById(id);
const settled = async () => {
  for (let at = 0; at < 500 && (app.texts.isReading || app.asked); at++) await new Promise((done) => setTimeout(done, 10));
  app.draw();
};
const rowsOf = (caption) => {
  const table = [...document.querySelectorAll("#ending table")].find((own) => own.caption.textContent === caption);
  return [...(table?.tBodies[0].rows ?? [])].map((row) => [...row.cells].map((cell) => cell.textContent));
};

async function run() {
  banners();
  opening();
  await work();
  await fields();
  return wrong;
}

// The cause comes first, then the panic that the service survived.
function banners() {
  const [death, survived, ...others] = byId("died").children;
  check("the banner of the death", [death.className, /^orders: SIGABRT in thread worker-\d/.test(death.querySelector("h1").textContent)], ["death", true]);
  check("the banner of the panic", [survived?.className, survived?.querySelector("h2").textContent.startsWith("orders survived: panic in thread worker-"), survived?.textContent.includes("an order has a customer")], ["survived", true, true]);
  check("other banners", others.length, 0);
  check("their flags", app.flags.map(({ word, tone }) => `${word} ${tone}`), "signal bad,panic survived warn");
}

function opening() {
  const { from, to } = app.view;
  const { time } = app.deaths[0];
  check("the place of the death", ((time - from) / (to - from)).toFixed(4), (2 / 3).toFixed(4));
  const index = app.marks.every.all;
  let upto = index.lower(time);
  while (upto < index.items.length && data.times[index.items[upto]] <= time) upto++;
  check("the range before the death", Math.round(time - from), Math.round(Math.min(1e9, time - data.times[index.items[Math.max(0, upto - 200)]])));
  check("the tab", [app.panel.open, byId("tab-ending").textContent], "ending,At the death");
  check("the times of the list", data.times[list.items[list.after(time) - 1]] <= time, true);
  check("the last event before the death is marked", [...document.querySelectorAll("#list-rows .last")].map((line) => Number(line.dataset.at)), list.after(time) - 1);
}

// The panel has the spans that were open, with their fields, ages and threads.
async function work() {
  await settled();
  const spans = rowsOf("Open spans");
  const find = (name, field) => spans.filter((row) => row[0].trim() === name && row[1].includes(field));
  const [request] = find("request", "path=/orders/202/pay");
  check("the first span", spans[0], request);
  check("the request that failed", [request?.[1].includes("method=POST"), /^\d+(\.\d+)? ms$/.test(request?.[2]), /^worker-\d \d+$/.test(request?.[3])], "true,true,true");
  const [charge] = find("charge", "order=202");
  check("its charge", [charge?.[1].includes("currency=EUR"), charge?.[0].startsWith("\u2003"), charge?.[3] === request?.[3]], "true,true,true");
  const [gateway] = spans.filter((row) => row[0].endsWith("\u2003gateway") && row[3] === request?.[3]);
  check("its gateway", [gateway?.[1].includes("host=acme.example"), gateway?.[0].startsWith("\u2003\u2003")], "true,true");
  const last = rowsOf("Last events of threads");
  const own = last.find(([thread]) => thread === request?.[3]);
  check("the last event of its thread", own?.[1].startsWith("crash:signal"), true);
  check("threads with a last event", last.filter(([thread]) => thread.startsWith("worker-")).length, 4);
  check("no line is missing", rowsOf("Open spans").concat(last).some((row) => row.some((cell) => /^(?:.* )?\u2026$/.test(cell))), false);
  // The keyboard reaches each of them.
  const button = [...document.querySelectorAll("#ending button")].find((one) => one.textContent.endsWith("\u2003charge"));
  button.focus();
  button.click();
  check("a span is chosen by its button", data.head.labels[data.slices.labels[timeline.chosen?.slice]]?.endsWith("::charge"), true);
}

// Slices of spans have their fields, in the timeline and in the panel.
async function fields() {
  app.showEnd();
  app.draw();
  await settled();
  const { slices, head } = data;
  const open = head.open.filter(({ span }) => span !== null);
  check("open spans have fields", open.length > 5 && open.every(({ slice }) => app.texts.named(slice).includes("{")), true);
  // Those that have ended have the fields of their opening.
  const closed = slices.tracks.findIndex((track, slice) => head.tracks[track].of === "spans" && slices.flags[slice] === 0 && head.labels[slices.labels[slice]].endsWith("::charge"));
  app.texts.named(closed);
  await settled();
  check("a span that has ended has fields", /charge\{order=\d+ amount=\d+ currency=EUR\}$/.test(app.texts.named(closed)), true);
  app.chooseSlice(closed);
  for (let at = 0; at < 100 && !byId("content").textContent.includes("currency"); at++) await new Promise((done) => setTimeout(done, 10));
  const shown = [...document.querySelectorAll("#content tr")].map((row) => [...row.cells].map((cell) => cell.textContent).join("="));
  check("the fields of a slice", shown.includes("currency=EUR") && shown.some((row) => /^order=\d+$/.test(row)), true);
  app.clear();
  app.panel.show("ending");
}

return run();
