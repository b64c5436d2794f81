// Shows times and durations. A time is a number of nanoseconds from the page's beginning, or a BigInt where JavaScript's
// numbers do not hold it; the beginning itself is a BigInt, because they do not hold the nanoseconds since the epoch.

const GIGA = 1_000_000_000n;

export class Times {
  constructor(head) {
    this.start = BigInt(head.start);
    this.absolute = head.absolute;
    // The last event, and the moment before which times are counted: that of the death, if it is known.
    this.end = this.last = head.last;
    this.origin = "last event";
    this.as = head.absolute ? "clock" : "start";
  }

  // Returns the nanoseconds since the clock's origin.
  exact(time) {
    return this.start + whole(time);
  }

  // Returns a time by the clock, with nine digits of a second.
  clock(time) {
    const exact = this.exact(time);
    if (!this.absolute) return `${decimal(exact)} s`;
    const nanoseconds = String(((exact % GIGA) + GIGA) % GIGA).padStart(9, "0");
    const seconds = (exact - BigInt(nanoseconds)) / GIGA;
    const date = new Date(Number(seconds) * 1000);
    if (Number.isNaN(date.getTime())) return `${exact} ns`;
    return `${date.toISOString().slice(0, 19).replace("T", " ")}.${nanoseconds} UTC`;
  }

  // Returns what `beforeEnd` counts.
  get before() {
    return `before the ${this.origin}`;
  }

  beforeEnd(time) {
    return signed(later(time, -this.end), true);
  }

  sinceStart(time) {
    return signed(time, true);
  }

  // Returns how long before the end a time is, as people read it.
  beforeEndShort(time) {
    const passed = later(time, -this.end);
    return passed > 0 ? `${short(passed)} after it` : short(-passed);
  }

  // Returns a time in the form that was chosen, as the list of events has it.
  inList(time) {
    if (this.as === "clock") return this.tick(time, 1000);
    const passed = this.as === "end" ? later(time, -this.end) : time;
    return `${passed < 0 ? "\u2212" : passed > 0 ? "+" : ""}${short(passed < 0 ? -passed : passed)}`;
  }

  // Returns a time in the form that was chosen, with as many digits as a step of the axis needs.
  tick(time, step) {
    if (this.as === "end") return signed(Number(later(time, -this.end)), false, step);
    if (this.as === "start") return signed(Number(time), false, step);
    const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / 1e9))));
    const text = this.clock(time);
    if (!this.absolute) return `${text.slice(0, text.indexOf(".") + (digits && digits + 1))} s`;
    // Steps of an hour and more may pass midnight.
    if (step >= 36e11) return text.slice(5, 16);
    return text.slice(11, 19 + (digits && digits + 1));
  }

  // Returns a time in the form that was chosen, with all its digits.
  full(time) {
    if (this.as === "end") return `${this.beforeEnd(time)} (${this.before})`;
    if (this.as === "start") return `${this.sinceStart(time)} (since the start)`;
    return this.clock(time);
  }
}

// Returns nanoseconds as seconds, with a sign and nine digits: `-0.000000001`.
function decimal(nanoseconds) {
  const size = nanoseconds < 0n ? -nanoseconds : nanoseconds;
  return `${nanoseconds < 0n ? "-" : ""}${size / GIGA}.${String(size % GIGA).padStart(9, "0")}`;
}

// Returns a time that is so much later than another. Each of them is a number or a BigInt.
export function later(time, by) {
  if (typeof time === "number" && typeof by === "number") return time + by;
  return whole(time) + whole(by);
}

function signed(time, all, step = 0) {
  const size = time < 0 ? -time : time;
  return (time < 0 ? "\u2212" : time > 0 ? "+" : "") + (all ? duration(size) : rounded(size, step));
}

const whole = (time) => (typeof time === "bigint" ? time : BigInt(Math.round(time)));

const UNITS = [["s", 1e9], ["ms", 1e6], ["\u00b5s", 1e3], ["ns", 1]];

// Returns a duration to the nanosecond: `1.234567 ms`.
export function duration(time) {
  const nanoseconds = whole(time);
  const [unit, size] = UNITS.find(([, size]) => nanoseconds >= size) ?? UNITS[3];
  if (size === 1) return `${nanoseconds} ns`;
  const digits = String(size).length - 1;
  const part = String(nanoseconds % BigInt(size)).padStart(digits, "0").replace(/0+$/, "");
  return `${nanoseconds / BigInt(size)}${part && "."}${part} ${unit}`;
}

// Units above the second, with the number of the next smaller unit in each.
const LONG_UNITS = [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]];

// Returns a duration as people read it: three digits of one unit, or two units above a minute: `4.86 s`, `12 ms`, `2 min 5 s`.
export function short(time) {
  const number = Number(time);
  const seconds = Math.round(number / 1e9);
  const long = LONG_UNITS.find(([, size]) => seconds >= size);
  if (number >= 60e9 && long) {
    const [unit, size, smaller, part] = long;
    const rest = Math.floor((seconds % size) / part);
    return `${Math.floor(seconds / size)} ${unit}${rest > 0 ? ` ${rest} ${smaller}` : ""}`;
  }
  const at = UNITS.findIndex(([, size]) => number >= size);
  const [[unit, size], larger] = at < 0 ? [UNITS[3]] : [UNITS[at], UNITS[at - 1]];
  const digits = Number((number / size).toPrecision(3));
  // 999.9 ms are 1 s.
  return digits >= 1000 && larger ? `1 ${larger[0]}` : `${digits} ${unit}`;
}

function rounded(time, step) {
  const [unit, size] = UNITS.find(([, size]) => Math.max(time, step) >= size) ?? UNITS[3];
  const digits = Math.max(0, Math.min(9, Math.ceil(Math.log10(size / step) - 1e-9)));
  return `${(time / size).toFixed(digits)} ${unit}`;
}

// Steps in seconds: parts of minutes, hours and days.
const LONG = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

// Returns the distance of the axis's marks: 1, 2 or 5 times a power of ten, at least `least` nanoseconds.
export function stepOf(least) {
  if (least > 5e9 && least <= 864e11) return LONG.find((seconds) => seconds * 1e9 >= least) * 1e9;
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? 10 * power;
}
