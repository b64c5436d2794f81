// Calls the modules of a page with what traces seldom have. Returns what is not as expected, a text for each.

const wrong = [];
const check = (what, actual, expected) => {
  if (String(actual) !== String(expected)) wrong.push(`${what} is ${actual}, expected ${expected}`);
};

async function run() {
  const [data, time, search, details, filter, judge, canvas] = await Promise.all(["data", "time", "search", "details", "filter", "judge", "canvas"].map((name) => import(`view/${name}.js`)));
  sums(data);
  times(time);
  filters(filter, judge);
  searches(search);
  values(data, details);
  comparisons(filter, judge);
  texts(canvas);
  ends(data, details);
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

function times({ Times, duration, short }) {
  const clock = (start) => new Times({ start, absolute: false, home: [0, 0], last: 0 }).clock(0);
  check("a time before zero", clock("-9500000000"), "-9.500000000 s");
  check("a nanosecond before zero", clock("-1"), "-0.000000001 s");
  check("a time after zero", clock("1500000000"), "1.500000000 s");
  const epoch = new Times({ start: "-1", absolute: true, last: 0 });
  check("a nanosecond before the epoch", epoch.clock(0), "1969-12-31 23:59:59.999999999 UTC");
  for (const [size, text] of [[0, "0 ns"], [1500, "1.5 \u00b5s"], [1e9, "1 s"], [9007199254740993n, "9007199.254740993 s"]]) check("a duration", duration(size), text);
  const readable = [
    [0, "0 ns"], [999, "999 ns"], [1234, "1.23 \u00b5s"], [12_000_000, "12 ms"], [999_999_999, "1 s"], [4_863_217_123n, "4.86 s"], [59_999_999_999, "60 s"], [125e9, "2 min 5 s"],
    [7200e9, "2 h"], [90061e9, "1 d 1 h"],
  ];
  for (const [size, text] of readable) check(`a duration of ${size} ns for people`, short(size), text);
}

// What `quoted` makes of a name lets this name pass and no other.
function filters({ parseFilter, quoted }, { holds }) {
  const names = ["a", "x:a", "a b", "std::vector<int>", "k=v", "[x]", "[!", "a*", "", "\"", "b\\s", "b\\\\s", "new\nline", "\\u0041", "A", "\u2028", "\x7f"];
  for (const name of names) {
    const filter = parseFilter(`event == ${quoted(name)}`);
    check(`the filter ${quoted(name)}`, JSON.stringify(names.filter((other) => holds(filter, () => other))), JSON.stringify([name]));
    check(`the filter ${quoted(name)} in one line`, /[\n\r\u2028]/.test(quoted(name)), false);
  }
  const { names: read } = parseFilter('comm == "a b" && path ~ "/x *" || odd.name[2] == 1 && $ctx.tid > 4 && comm != "x"');
  check("the names of a filter", read.map(({ text }) => text), "comm,path,odd.name[2],$ctx.tid");
  check("a value with a space", holds(parseFilter('comm == "a b"'), () => "a b"), true);
  check("a glob with a space", holds(parseFilter('path ~ "/x *"'), () => "/x y"), true);
}

// A search finds names and values of fields, not the JSON around them.
function searches({ contains }) {
  const line = '{"ticks":1029,"context":{"tid":7},"specific":{"tid":8},"fields":{"state":{"":[1,"RUNNING"]},"say":"a \\"b\\", c"}}';
  const isIn = (text, line) => {
    const { isOf, mayBeIn } = contains(text);
    if (isOf(line)) check(`lines with ${text}`, mayBeIn(`{}\n${line}\n{}`), true);
    return isOf(line);
  };
  for (const text of ["running", "state", "tid", "a \"b\", c"]) check(`a search for ${text}`, isIn(text, line), true);
  for (const text of ["ticks", "1029", "fields", "context", "specific", "value", "label", "},", "\":"]) check(`a search for ${text}`, isIn(text, line), false);
  for (const [text, isFound] of [["running (1)", true], ["(1)", true], ["running (2)", false], ["b\", c", true]]) check(`a search for ${text}`, isIn(text, line), isFound);
  const escaped = '{"ticks":1,"fields":{"a":"\\u001b[1m","b":"x\\u202ey"}}';
  for (const [text, isFound] of [["u001b", false], ["[1m", true], ["u202e", false], ["x\\u{202e}y", true]]) check(`a search for ${text}`, isIn(text, escaped), isFound);
  check("a search for a field's name", isIn("value", '{"ticks":1,"fields":{"value":2}}'), true);
}

function values({ parse, members }, { valueText }) {
  const texts = [
    ['{"":[5,"lab"]}', "lab (5)"], ['{"":[18446744073709551615,null]}', "18446744073709551615"], ['{"value":5,"label":"lab"}', '{"value":5,"label":"lab"}'],
    ["1e22", "1e22"], ["[0.1,5.0]", "[0.1,5.0]"], ['{"":"inf"}', "inf"], ['{"e":{"":[5,"lab"]}}', '{"e":lab (5)}'], ['"1e5, 12345678901234567890"', "1e5, 12345678901234567890"],
    ['{"label":"lab","value":5,"unit":"kg"}', '{"label":"lab","value":5,"unit":"kg"}'],
    ["[18446744073709551615,3]", "[18446744073709551615,3]"], ["-0.0", "-0.0"], ['"text"', "text"], ["null", "null"], ["true", "true"],
  ];
  for (const [json, text] of texts) check(`the value ${json}`, valueText(parse(json)), text);
  const names = ["10", "\u0000" + "2", "1", "a"];
  check("the order of fields", JSON.stringify(members(parse(JSON.stringify(Object.fromEntries(names.map((name) => [name, 1]))))).map(([name]) => name).sort()), JSON.stringify([...names].sort()));
  check("fields in the order of the trace", members(parse('{"10":1,"a":1,"2":1,"1":1}')).map(([name]) => name), "10,a,2,1");
}

// Integers and floats compare exactly.
function comparisons({ parseFilter }, { holds }) {
  const order = [-Infinity, -9007199254740993n, -1e15, -0.5, 0n, 1e-300, 0.1, 5n, 9007199254740992, 9007199254740993n, 1e22, Infinity];
  const judge = (sign, a, b) => holds(parseFilter(`a ${sign} b`), (place) => [a, b][place]);
  order.forEach((a, at) => order.forEach((b, other) => {
    check(`${a} compared with ${b}`, ["<", "<=", "==", "!=", ">=", ">"].map((sign) => judge(sign, a, b)), [at < other, at <= other, at === other, at !== other, at >= other, at > other]);
  }));
  check("equal numbers", [judge("==", 5n, 5), judge("==", -0, 0n), judge("==", 1000, 1000n), judge("==", true, 1n)], "true,true,true,true");
  check("a NaN", ["<", "<=", "==", ">=", ">", "!="].map((sign) => judge(sign, NaN, 1n)), "false,false,false,false,false,true");
  check("a number and a text", ["<", "==", "!="].map((sign) => String(judge(sign, 5n, "5"))), "undefined,undefined,undefined");
  check("an enumeration", [judge("==", { number: 2n, label: "A" }, 2n), judge("==", { number: 2n, label: "A" }, "A"), String(judge("<", { number: 2n, label: "A" }, "A"))], "true,true,undefined");
  check("bytes that the page does not have", String(judge("==", { lossy: "a\ufffd" }, { lossy: "a\ufffd", bytes: Uint8Array.of(97, 255) })), "undefined");
  check("other bytes", [judge("==", { lossy: "b\ufffd" }, "b"), judge("!=", { lossy: "b\ufffd" }, "b")], "false,true");
}

// A text that is cut has whole characters.
function texts({ fitted }) {
  const context = document.createElement("canvas").getContext("2d");
  for (let width = 12; width < 200; width++) check(`emoji in ${width} pixels`, fitted(context, "\u{1f600}".repeat(30), width).isWellFormed(), true);
}

// What may be shorter is not called longer.
function ends({ NO_BEGIN, NO_END, UNSURE }, { endNote, lengthText }) {
  const length = (flags) => lengthText({ flags: [flags], lengthOf: () => 5 }, 0);
  for (const [flags, text] of [[0, "5 ns"], [NO_END, "at least 5 ns"], [NO_BEGIN, "at least 5 ns"], [UNSURE, "5 ns, if its end is its own"]]) check(`the length of a slice with the flags ${flags}`, length(flags), text);
  for (const flags of [UNSURE | NO_END, UNSURE | NO_BEGIN]) check(`the length of a slice with the flags ${flags}`, length(flags), "about 5 ns: events are missing");
  check("an end that is not certain", endNote(UNSURE | NO_END), ", or earlier or later: events are missing there");
}

return run();
