// Reads the data of the page: JSON, and columns of numbers that are compressed.

async function inflated(text) {
  const stream = new Blob([await bytesOf(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

async function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return new Uint8Array(await (await fetch(`data:application/octet-stream;base64,${text}`)).arrayBuffer());
}

const column = async (id, Type) => {
  const element = document.getElementById(id);
  const values = new Type(await inflated(element.textContent));
  element.remove();
  return values;
};

export const NONE = 0xffffffff;
export const NO_BEGIN = 1;
export const NO_END = 2;

// Returns what the page says besides its columns.
export function head() {
  return JSON.parse(document.getElementById("head").textContent);
}

// Returns the columns of events and slices. Times are nanoseconds from the page's beginning.
export async function load(head) {
  const names = ["tracks", "labels", "threads", "events"];
  const [deltas, kinds, threads, cpus, begins, ends, flags, ...words] = await Promise.all([
    column("times", Uint32Array), column("kinds", Uint32Array), column("threads", Uint32Array), column("cpus", Uint32Array),
    column("slice-begins", Float64Array), column("slice-ends", Float64Array), column("slice-flags", Uint8Array),
    ...names.map((name) => column(`slice-${name}`, Uint32Array)),
  ]);
  const order = document.getElementById("order") ? await column("order", Uint32Array) : null;
  const times = new Float64Array(deltas.length);
  for (let row = 0, time = 0; row < deltas.length; row++) times[row] = time += deltas[row];
  if (head.wide.length > 0) addWide(times, deltas, head.wide);
  const slices = { begins, ends, flags, ...Object.fromEntries(names.map((name, at) => [name, words[at]])) };
  return { head, times, kinds, threads, cpus, order, slices, fields: new Fields(head, order) };
}

function addWide(times, deltas, wide) {
  const differences = new Map(wide);
  for (let row = 0, time = 0; row < times.length; row++) times[row] = time += differences.get(row) ?? deltas[row];
}

// The fields of events, in blocks of text. A block is decompressed when one of its events is asked for.
class Fields {
  constructor(head, order) {
    this.size = head.block;
    this.count = head.blocks;
    this.skip = head.skip;
    this.order = order;
    this.kept = new Map();
  }

  // Returns the lines of a block.
  async lines(block) {
    let lines = this.kept.get(block);
    if (!lines) {
      lines = await this.read(block);
      this.kept.set(block, lines);
      if (this.kept.size > 8) this.kept.delete(this.kept.keys().next().value);
    }
    return lines;
  }

  // Decompresses a block into its lines, each of which ends with a line feed.
  async read(block) {
    // The blocks follow the program; while the page is still arriving, a block may not be there.
    let elements = document.getElementsByClassName("block");
    while (elements.length <= block && document.readyState === "loading") {
      await new Promise((done) => setTimeout(done, 20));
    }
    if (elements.length <= block) throw new Error("the page is cut off: the fields of this event are missing");
    return new TextDecoder().decode(await inflated(elements[block].textContent)).slice(0, -1).split("\n");
  }

  // Returns the place of a row: its block, and its line there.
  place(row) {
    const at = (this.order ? this.order[row] : row) + this.skip;
    return [Math.floor(at / this.size), at % this.size];
  }

  // Returns the fields of an event as text, and as an object whose large numbers keep their digits.
  async of(row) {
    const [block, line] = this.place(row);
    const text = (await this.lines(block))[line];
    return { text, value: parse(text) };
  }
}

// Parses JSON. An integer that JavaScript's numbers do not hold becomes a BigInt.
export function parse(text) {
  return JSON.parse(text, (_, value, context) => {
    const isLarge = typeof value === "number" && !Number.isSafeInteger(value) && context && /^-?\d+$/.test(context.source);
    return isLarge ? BigInt(context.source) : value;
  });
}
