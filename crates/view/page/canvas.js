// Draws slices, marks, gaps and the axis. What is narrower than a pixel is drawn once for each pixel: the cost of a
// frame follows the pixels, not the events.

import { NO_BEGIN, NO_END, UNSURE } from "view/data.js";
import { colour, visible } from "view/dom.js";

// Colours that people with each kind of colour blindness can tell apart (Okabe and Ito 2008), with the colour of text.
const PALETTE = [
  ["#56b4e9", "#000"], ["#e69f00", "#000"], ["#009e73", "#000"], ["#cc79a7", "#000"], ["#0072b2", "#fff"], ["#d55e00", "#000"], ["#f0e442", "#000"],
  ["#9ad1f2", "#000"], ["#f2c766", "#000"], ["#66c4ab", "#000"], ["#e2b3cc", "#000"], ["#5c9fcb", "#000"], ["#eba06a", "#000"],
];

export const FONT = '11px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

// The colours of the style sheet, read once for each change of them.
export function theme() {
  const names = ["paper", "ink", "soft", "line", "band", "accent", "bad", "mark", "select", "hatch", "hatch-soft", "idle", "warn"];
  return Object.fromEntries(names.map((name) => [name.replace("-", "_"), colour(name)]));
}

export function paletteOf(number) {
  return PALETTE[number % PALETTE.length];
}

// Returns a number that is the same for the same text on every page.
export function hash(text) {
  let value = 7;
  for (let at = 0; at < text.length; at++) value = (value * 31 + text.charCodeAt(at)) >>> 0;
  return value;
}

// A canvas with as many pixels as the screen has for it.
export class Surface {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.resize();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    [this.width, this.height] = [width, height];
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (this.canvas.width !== w || this.canvas.height !== h) [this.canvas.width, this.canvas.height] = [w, h];
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.font = FONT;
    this.context.textBaseline = "middle";
  }
}

const widths = new Map();

// Returns a text that is cut to a width, or nothing if not even one letter fits.
export function fitted(context, whole, width) {
  if (width < 12) return "";
  const text = visible(whole);
  const letter = 5.2;
  if (text.length * 4 <= width && text.length * 9 <= width) return text;
  let full = widths.get(text);
  if (full === undefined) {
    full = context.measureText(text).width;
    if (widths.size > 20000) widths.clear();
    widths.set(text, full);
  }
  if (full <= width) return text;
  let count = Math.floor((width - 8) / Math.max(letter, full / text.length));
  // A character of two units is not cut in half.
  if (/[\ud800-\udbff]/.test(text[count - 1])) count--;
  return count > 0 ? `${text.slice(0, count)}\u2026` : "";
}

// Draws the slices of a track. `scale` has `from`, `to`, `left`, `width` and `x(time)`; `styleOf(slice)` returns the
// colour, the colour of the text, and the text; `textOf(slice)`, if it is there, returns a longer text.
export function drawSlices(context, slices, track, scale, y, height, styleOf, textOf) {
  const { items, ends } = track;
  const perPixel = (scale.to - scale.from) / scale.width;
  let at = ends.lower(scale.from);
  let last = null;
  while (at < items.length) {
    const slice = items[at];
    if (slices.begins[slice] > scale.to) break;
    const exact = Math.max(scale.left, scale.x(slices.begins[slice]));
    const end = Math.min(scale.left + scale.width, scale.x(slices.ends[slice]));
    const [fill, ink, text] = styleOf(slice);
    // A colour is a text that the canvas parses each time that it is set.
    if (fill !== last) context.fillStyle = last = fill;
    if (end - exact < 1) {
      const pixel = Math.floor(exact);
      context.fillRect(pixel, y, 1, height);
      // Go on with the first slice that reaches into the next pixel.
      const next = ends.lower(scale.from + (pixel + 1 - scale.left) * perPixel);
      at = Math.max(next, at + 1);
      continue;
    }
    // Whole pixels are drawn faster, and their edges are sharp.
    const left = Math.round(exact);
    const right = Math.max(left + 1, Math.round(end));
    context.fillRect(left, y, right - left - (right - left > 3 ? 1 : 0), height);
    const flags = slices.flags[slice];
    if (flags) {
      drawOpenEnds(context, flags, left, right, y, height);
      last = null;
    }
    if (text && height >= 10) {
      const width = right - left - 6;
      const shown = fitted(context, textOf && width > 40 ? textOf(slice) : text, width);
      if (shown) {
        context.fillStyle = last = ink;
        context.fillText(shown, left + 3, y + height / 2 + 0.5);
      }
    }
    at++;
  }
}

// Marks by a ragged edge a slice whose begin or end is not recorded, or whose end may be that of another.
function drawOpenEnds(context, flags, left, right, y, height) {
  if (right - left < 8) return;
  context.fillStyle = colourOfPaper;
  for (let step = 0; step < height; step += 4) {
    if (flags & NO_BEGIN) triangle(context, left, y + step, 3);
    if (flags & (NO_END | UNSURE)) triangle(context, right, y + step, -3);
  }
}

let colourOfPaper = "#fff";
export const setPaper = (paper) => { colourOfPaper = paper; };

function triangle(context, x, y, width) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x + width, y + 2);
  context.lineTo(x, y + 4);
  context.fill();
}

// Draws marks: a bar for each pixel that has events, higher where there are more. Those with a level are drawn again on
// top, so that no number of others hides them. `textOf(row)` is shown where there is room.
export function drawMarks(context, { all, levelled }, scale, y, height, colours, levelOf, textOf) {
  context.fillStyle = colours.mark;
  bars(context, all, scale, y, height);
  bars(context, levelled, scale, y, height, (highest) => (highest === 2 ? colours.bad : colours.warn), levelOf);
  const from = all.lower(scale.from);
  const to = all.lower(scale.to);
  if (to - from > scale.width / 30) return;
  context.fillStyle = colours.ink;
  for (let at = from; at < to; at++) {
    const x = scale.x(all.times[all.items[at]]);
    const edge = scale.left + scale.width;
    const next = at + 1 < all.items.length ? Math.min(edge, scale.x(all.times[all.items[at + 1]])) : edge;
    const shown = fitted(context, textOf(all.items[at]), Math.min(next - x - 8, 220));
    if (shown) context.fillText(shown, x + 4, y + height / 2 + 0.5);
  }
}

// With `levelOf`, the colour of a bar is that of its highest level.
function bars(context, index, scale, y, height, colourOf, levelOf) {
  const { items, times } = index;
  const perPixel = (scale.to - scale.from) / scale.width;
  let at = index.lower(scale.from);
  const end = index.lower(scale.to);
  while (at < end) {
    const pixel = Math.floor(scale.x(times[items[at]]));
    const next = Math.max(at + 1, Math.min(end, index.lower(scale.from + (pixel + 1 - scale.left) * perPixel)));
    if (levelOf) context.fillStyle = colourOf(highest(items, at, next, levelOf));
    const size = Math.round(height * Math.min(1, 0.45 + Math.log2(next - at) / 14));
    context.fillRect(pixel, y + height - size, next - at === 1 ? 2 : 1, size);
    at = next;
  }
}

function highest(items, from, to, levelOf) {
  let most = 0;
  for (let at = from; at < to && most < 2; at++) most = Math.max(most, levelOf(items[at]));
  return most;
}

const hatches = new Map();

// Returns a pattern of slanted lines.
export function hatch(context, ink) {
  if (!hatches.has(ink)) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 8;
    const own = tile.getContext("2d");
    own.strokeStyle = ink;
    own.lineWidth = 1.5;
    own.beginPath();
    for (const shift of [-8, 0, 8]) {
      own.moveTo(shift, 8);
      own.lineTo(shift + 8, 0);
    }
    own.stroke();
    hatches.set(ink, context.createPattern(tile, "repeat"));
  }
  return hatches.get(ink);
}

// Returns the pixels of a gap. A gap without a begin or an end reaches to the edge.
export function gapPixels(gap, scale) {
  const edge = scale.left + scale.width;
  const begin = gap.begin === null ? scale.left : scale.x(gap.begin);
  const end = gap.end === null ? edge : scale.x(gap.end);
  if (end < scale.left || begin > edge) return null;
  const [left, right] = [Math.max(scale.left, Math.min(begin, end - 5)), Math.min(edge, Math.max(end, begin + 5))];
  return right > left ? [left, right] : null;
}

// `isEmpty(left, right)` tells whether a text may stand between these pixels.
export function drawGaps(context, gaps, scale, y, height, colours, isEmpty = () => true) {
  for (const gap of gaps) {
    const pixels = gapPixels(gap, scale);
    if (!pixels) continue;
    const [left, right] = pixels;
    const ink = gap.loss ? colours.hatch : colours.hatch_soft;
    context.fillStyle = hatch(context, ink);
    context.fillRect(left, y, right - left, height);
    const shown = right - left > 60 && height >= 14 && isEmpty(left, Math.min(right, left + 200)) ? fitted(context, gap.what, right - left - 16) : "";
    if (shown) {
      const width = context.measureText(shown).width + 8;
      context.fillStyle = colours.paper;
      context.fillRect(left + 4, y + height / 2 - 7, width, 14);
      context.fillStyle = gap.loss ? colours.hatch : colours.soft;
      context.fillText(shown, left + 8, y + height / 2 + 0.5);
    }
  }
}
