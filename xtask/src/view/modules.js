// Calls the modules of a page with what traces seldom have. Returns what is not as expected, a text for each.

const wrong = [];
const check = (what, actual, expected) => {
  if (String(actual) !== String(expected)) wrong.push(`${what} is ${actual}, expected ${expected}`);
};

async function run() {
  const [data, time, search, details] = await Promise.all(["data", "time", "search", "details"].map((name) => import(`view/${name}.js`)));
  sums(data);
  times(time);
  filters(search);
  searches(search);
  values(data, details);
  return wrong;
}

// Times are exact where JavaScript's numbers are too short.
function sums({ sum }) {
  const sums = new Float64Array(6);
  const far = 1_700_000_000_000_000_000n;
  const at = sum(sums, Uint32Array.of(0, 0, 1, 9, 53, 5), [[1, Number(far)]]);
  [0n, far, far + 1n, far + 10n, far + 63n, far + 68n].forEach((time, row) => {
    check(`time ${row}`, at(row), time);
    check(`rounded time ${row}`, sums[row], Number(time));
  });
  check("a difference that is a text", sum(sums, new Uint32Array(6), [[2, "9007199254740993"]])(5), 9007199254740993n);
  check("a small sum", sum(sums, Uint32Array.of(1, 2, 3, 0, 4, 5), [[3, 2 ** 40]])(5), 2 ** 40 + 15);
  check("a sum of many differences", sum(new Float64Array(3e6), new Uint32Array(3e6).fill(NONE), [])(3e6 - 1), 3_000_000n * BigInt(NONE));
}

const NONE = 0xffffffff;

function times({ Times, duration }) {
  const clock = (start) => new Times({ start, absolute: false, home: [0, 0], last: 0 }).clock(0);
  check("a time before zero", clock("-9500000000"), "-9.500000000 s");
  check("a nanosecond before zero", clock("-1"), "-0.000000001 s");
  check("a time after zero", clock("1500000000"), "1.500000000 s");
  const epoch = new Times({ start: "-1", absolute: true, last: 0 });
  check("a nanosecond before the epoch", epoch.clock(0), "1969-12-31 23:59:59.999999999 UTC");
  for (const [size, text] of [[0, "0 ns"], [1500, "1.5 \u00b5s"], [1e9, "1 s"], [9007199254740993n, "9007199.254740993 s"]]) check("a duration", duration(size), text);
}

// What `quoted` makes of a name lets this name pass and no other.
function filters({ parseFilter, quoted }) {
  const names = ["a", "x:a", "a b", "std::vector<int>", "k=v", "[x]", "[!", "a*", "", "\"", "b\\s", "b\\\\s", "new\nline", "\\u0041", "A"];
  for (const name of names) {
    const { globs, conditions, wrong } = parseFilter(quoted(name));
    const passed = names.filter((other) => globs.length === 1 && globs[0](other));
    check(`the filter ${quoted(name)}`, JSON.stringify([passed, conditions.length, wrong.length]), JSON.stringify([[name], 0, 0]));
  }
  const { conditions } = parseFilter("comm=\"a b\" path~\"/x *\" \"odd=name\"=1");
  check("conditions", conditions.map(({ name }) => name), "comm,path,odd=name");
  check("a value with a space", conditions[0].test("a b"), true);
  check("a glob with a space", conditions[1].test("/x y"), true);
}

// A search finds names and values of fields, not the JSON around them.
function searches({ contains }) {
  const line = '{"ticks":1029,"context":{"tid":7},"specific":{"tid":8},"fields":{"state":{"value":1,"label":"RUNNING"},"say":"a \\"b\\", c"}}';
  for (const text of ["running", "state", "tid", "a \"b\", c"]) check(`a search for ${text}`, contains(text)(line), true);
  for (const text of ["ticks", "1029", "fields", "context", "specific", "value", "label", "},", "\":"]) check(`a search for ${text}`, contains(text)(line), false);
  check("a search for a field's name", contains("value")('{"ticks":1,"fields":{"value":2}}'), true);
}

function values({ parseExactly }, { valueText }) {
  const texts = [
    ['{"value":5,"label":"lab"}', "lab (5)"], ['{"value":18446744073709551615,"label":null}', "18446744073709551615"],
    ['{"label":"lab","value":5,"unit":"kg"}', '{"label":"lab","value":5,"unit":"kg"}'],
    ["[18446744073709551615,3]", "[18446744073709551615,3]"], ["-0.0", "-0.0"], ['"text"', "text"], ["null", "null"], ["true", "true"],
  ];
  for (const [json, text] of texts) check(`the value ${json}`, valueText(parseExactly(json)), text);
}

return run();
