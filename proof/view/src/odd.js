// Looks at the page of the trace that `odd.rs` writes. Returns what is not as expected, a text for each.

const wrong = [];
const check = (what, actual, expected) => {
  if (String(actual) !== String(expected)) wrong.push(`${what} is ${actual}, expected ${expected}`);
};
const app = window.lastwords;
const text = (id) => document.getElementById(id).textContent;

async function run() {
  const unsearched = ", 1 event not searched: its fields are not on the page";
  for (const [wanted, found] of [["A (0)", "1 of 1"], ["x y (2)", "1 of 1"], ["1e22", "1 of 1"], ["u001b", "0 found"], ["\\u{202e}", "1 of 6"], ["xx", "0 found"]]) {
    await app.search.find(wanted);
    check(`a search for ${wanted}`, text("found"), found + unsearched);
  }
  await app.search.find("");
  const counts = {
    "d > 1": 2, "d >= 1.7e308": 1, "d < 1e23": 1, "large > 9007199254740992.5": 1, "large == 9007199254740993.0": 1, "large == 9007199254740993": 1, "kind == 0": 1,
    "kind == \"A\"": 1, "kind != \"A\"": 1, "kind >= 2": 1, "same.value == 5": 1, "same.label ~ \"l?b\"": 2, "cpu == 0 && fd == 3": 3, "event == \"odd\" || ret": 3,
  };
  for (const [filter, count] of Object.entries(counts)) {
    await app.search.filter(filter);
    check(`the filter ${filter}`, text("filtered"), `${count} of 7 events`);
  }
  await app.search.filter("event == \"odd\" && lartge == 1");
  check("a field that is nowhere", text("filter-error").split("\n")[0].includes("byte 18: found the name `lartge`; expected a field, a context that an event of the page has, such as large"), true);
  await app.search.filter("large > \"x\"");
  check("a comparison with a text", text("filter-error").includes("byte 8: found text as an operand of `>`; expected a number"), true);
  check("a filter that is refused", text("filtered"), "not applied");
  for (const [filter, count] of [["text < 5", 0], ["text == \"xx\"", 0], ["$ctx.tid == 7", 6]]) {
    await app.search.filter(filter);
    check(`the filter ${filter} on fields that are not on the page`, text("filtered"), `${count} of 7 events; not judged: 1 whose fields are not on the page`);
  }
  await app.search.filter("");
  await app.chooseEvent(0);
  const rows = [...document.querySelectorAll("#content tr")].map((row) => [...row.cells].map((cell) => cell.textContent));
  const shown = (name) => rows.find(([own]) => own === name)?.[1];
  check("an enumeration", shown("kind"), "A (0)");
  check("a structure", shown("same"), '{"value":5,"label":"lab"}');
  check("a float that is not finite", shown("d"), "inf");
  check("the order of fields", rows.map(([name]) => name).filter((name) => /^\d+$/.test(name)), "10,2,1");
  check("a thread", shown("Thread"), "a\\u{202e}b 7");
  check("signs that reorder", /\u202e/.test(document.body.innerText), false);
  statistics();
  return wrong;
}

// Only slices that are whole in the range say how long they take.
function statistics() {
  const row = () => [...document.querySelectorAll("#statistics table")].at(-1).tBodies[0].rows[0].innerText.split(/\s*\t\s*/);
  app.clear();
  app.panel.show("statistics");
  check("the statistics of calls", row(), "read,3,at least 500 ns,500 ns,500 ns,2");
  const { begins } = app.data.slices;
  app.chooseRange([begins.at(-1) + 100, begins.at(-1) + 120]);
  check("the statistics of a part of a call", row(), "read,1,at least 20 ns,-,-,1");
  app.clear();
  const open = app.data.slices.flags.findIndex((flags) => flags !== 0);
  check("the tooltip of a call without an end", app.tipText({ slice: open }).split("\n")[1].startsWith("at least 0 ns from "), true);
}

return run();
