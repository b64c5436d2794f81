// Binds the names of a filter to the fields of events, as the command line does: fields of the payload first, then contexts,
// then the names that all traces have.

import { enumeration, keyOf, numberText } from "view/data.js";
import { backquoted, FilterError, textOf } from "view/filter.js";

const BUILT_IN = ["cpu", "CPU", "comm", "COMM", "pid", "tid", "level", "event", "channel"];
const MEANINGS = { cpu: "cpu", CPU: "cpu", cpu_id: "cpu", comm: "comm", COMM: "comm", pid: "pid", tid: "tid", common_pid: "tid", level: "level", event: "event", channel: "channel" };
// The scopes of an event by their positions in `scopes` of a kind, and their members in the JSON of an event.
const [COMMON, SPECIFIC, PAYLOAD] = [0, 1, 2];
const MEMBERS = ["context", "specific", "fields"];

// Returns the steps behind a member of this name, if they lead to it. A name may have dots (`http.method`).
function behind(steps, name) {
  for (let count = 1; count <= steps.length && typeof steps[count - 1] === "string"; count++) {
    if (steps.slice(0, count).join(".") === name) return steps.slice(count);
  }
  return null;
}

// Adds the paths of a scope to which steps lead: the keys in the JSON, and the kind of the value at the end.
function find(shape, steps, keys, paths) {
  if (typeof shape === "string") {
    if (steps.length === 0) paths.push({ keys, leaf: shape });
    return;
  }
  const [of, ...inner] = shape;
  if (of === "struct") {
    for (const [name, member] of inner) {
      const rest = behind(steps, name);
      if (rest) find(member, rest, [...keys, keyOf(name)], paths);
    }
  } else if (of === "array") {
    if (typeof steps[0] === "bigint") find(inner[0], steps.slice(1), [...keys, steps[0]], paths);
  } else {
    // An option has no name of its own.
    for (const option of inner) find(option, steps, keys, paths);
  }
}

// Returns the value at a path in the fields of an event.
function at(fields, { keys, leaf }) {
  let value = fields;
  for (const key of keys) {
    if (typeof key === "bigint") value = typeof value === "string" ? octet(value, key) : value?.[key];
    else value = value !== null && typeof value === "object" && Object.hasOwn(value, key) ? value[key] : undefined;
  }
  return valueOf(value, leaf);
}

// Returns an element of an array of bytes, which the page has as hexadecimal digits.
function octet(digits, index) {
  const place = Number(index) * 2;
  return place + 2 <= digits.length ? parseInt(digits.slice(place, place + 2), 16) : undefined;
}

// Returns a value of an event for a filter.
function valueOf(value, leaf) {
  switch (typeof value) {
    case "boolean": return value;
    case "number": return BigInt(value);
    case "string": return leaf === "bytes" ? textOf(Uint8Array.from(value.match(/../g) ?? [], (digits) => parseInt(digits, 16))) : textValue(value);
    default:
  }
  if (value === undefined || value === null) return undefined;
  const pair = enumeration(value);
  if (pair) return { number: BigInt(numberText(pair[0]) ?? 0), label: pair[1] === null ? null : textValue(pair[1]) };
  const text = numberText(value);
  return text === null ? undefined : numberOf(text, leaf);
}

// What is not UTF-8 is U+FFFD on the page.
const textValue = (text) => (text.includes("\ufffd") ? { lossy: text } : text);

function numberOf(text, leaf) {
  if (/^-?\d+$/.test(text)) return BigInt(text);
  const number = Number(text.replace("inf", "Infinity"));
  return leaf === "float32" ? Math.fround(number) : number;
}

// Finds the source of a name in the events of a kind: a constant, paths to fields, or what the page has in columns. Returns
// null if the events do not have it.
function sourceOf(data, kind, name) {
  const { head } = data;
  const plain = name.steps.length === 1 ? name.steps[0] : null;
  const isAbove = plain === "CPU" || plain === "COMM";
  const inScope = (scope, steps) => {
    const paths = [];
    if (kind.scopes[scope] !== null) find(head.shapes[kind.scopes[scope]], steps, [], paths);
    return paths.length > 0 ? { paths, member: MEMBERS[scope] } : null;
  };
  const inContext = (steps) => inScope(SPECIFIC, steps) ?? inScope(COMMON, steps);
  const context = (...names) => names.map((own) => inContext([own])).find(Boolean) ?? null;
  const found = (name.isContext || isAbove ? null : inScope(PAYLOAD, name.steps)) ?? (isAbove ? null : inContext(name.steps));
  if (found) return found;
  const meaning = plain !== null && Object.hasOwn(MEANINGS, plain) && (!name.isContext || MEANINGS[plain] === "cpu") ? MEANINGS[plain] : null;
  const trace = head.filter_of[kind.trace];
  switch (meaning) {
    case "cpu": return { column: "cpu" };
    case "comm": return context("comm", "procname") ?? (trace.threads.length > 0 && context("tid", "vtid") ? { ...context("tid", "vtid"), threads: trace.threadNames ??= new Map(trace.threads) } : null);
    case "pid": return context("pid", "vpid") ?? (trace.pid === null ? null : { constant: BigInt(trace.pid) });
    case "tid": return context("tid", "vtid") ?? (trace.ftrace ? context("pid") : null);
    case "level": return kind.severity && { constant: { number: BigInt(kind.severity[0]), label: kind.severity[1] } };
    case "event": return { constant: kind.name };
    case "channel": return { constant: kind.channel };
    default: return null;
  }
}

// Returns the value of a source in an event. `event` is null where the fields are not read.
function read(data, source, row, event) {
  if (!source) return undefined;
  if (source.constant !== undefined) return source.constant;
  if (source.column) return row === null ? undefined : cpuOf(data, row);
  if (event === null) return undefined;
  let value;
  // Of the options of a variant, an event has one.
  for (const path of source.paths) value = at(event[source.member], path) ?? value;
  if (!source.threads) return value;
  const name = typeof value === "bigint" ? source.threads.get(String(value)) : undefined;
  return name === undefined ? undefined : textValue(name);
}

function cpuOf({ head, cpus }, row) {
  const cpu = head.cpus[cpus[row]]?.cpu;
  return cpu === undefined ? undefined : BigInt(cpu);
}

// Binds the names of a filter to all kinds of events. `read(place, kind, row, event)` returns the value of a name.
export function bind(data, filter) {
  const sources = data.head.kinds.map((kind) => filter.names.map((name) => sourceOf(data, kind, name)));
  filter.names.forEach((name, place) => {
    if (data.head.kinds.length > 0 && sources.every((own) => !own[place])) throw unknown(data, filter, place);
  });
  return { sources, read: (place, kind, row, event) => read(data, sources[kind][place], row, event) };
}

// Returns the error for a name that no event has.
function unknown(data, filter, place) {
  const { text, isContext } = filter.names[place];
  const near = nearest(text, known(data, isContext));
  const what = isContext ? "a context" : "a field, a context";
  const more = near.length > 0 ? `, such as ${near.join(", ")}` : isContext ? "" : `, or one of ${BUILT_IN.join(", ")}`;
  return new FilterError(filter.text, filter.places[place], `the name ${backquoted(text)}`, `${what} that an event of the page has${more}`);
}

// Returns the names that events have.
function known(data, isContext) {
  const { head } = data;
  const isThere = (name) => head.kinds.some((kind) => sourceOf(data, kind, { isContext: false, steps: [name] }));
  const names = new Set(isContext ? [] : BUILT_IN.filter(isThere));
  const add = (shape, name) => {
    if (typeof shape === "string") names.add(name);
    else if (shape[0] === "struct") shape.slice(1).forEach(([own, inner]) => add(inner, name ? `${name}.${own}` : own));
    else if (shape[0] === "array") add(shape[1], `${name}[0]`);
    else shape.slice(1).forEach((option) => add(option, name));
  };
  const of = (scope) => new Set(head.kinds.map(({ scopes }) => scopes[scope]).filter((at) => at !== null));
  if (!isContext) for (const at of of(PAYLOAD)) add(head.shapes[at], "");
  for (const scope of [COMMON, SPECIFIC]) for (const at of of(scope)) add(head.shapes[at], isContext ? "$ctx" : "");
  return names;
}

// Returns the names that someone may have meant, the nearest first.
export function nearest(wanted, names) {
  const limit = Math.min(Math.ceil([...wanted].length / 4), 2);
  const lower = wanted.toLowerCase();
  const near = [];
  for (const name of names) {
    const other = name.toLowerCase();
    const isPart = lower.length > 2 && (other.includes(lower) || (other.length > 2 && lower.includes(other)));
    const steps = other === lower ? 0 : distance(lower, other);
    if (steps <= limit || isPart) near.push([isPart ? Math.min(steps, limit) : steps, name]);
  }
  return near.sort(([a, x], [b, y]) => a - b || (x < y ? -1 : 1)).slice(0, 3).map(([, name]) => name);
}

// Returns the number of characters to insert, remove, replace or swap with a neighbour to get from one text to the other.
function distance(left, right) {
  const [a, b] = [left, right].map((text) => [...text].slice(0, 64));
  let before = [];
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  a.forEach((sign, i) => {
    const next = [i + 1];
    b.forEach((other, j) => {
      const isSwapped = i > 0 && j > 0 && a[i - 1] === other && b[j - 1] === sign;
      next.push(Math.min(row[j] + (sign === other ? 0 : 1), row[j + 1] + 1, next[j] + 1, isSwapped ? before[j - 1] + 1 : Infinity));
    });
    [before, row] = [row, next];
  });
  return row.at(-1);
}
