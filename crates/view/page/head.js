// The head of the page: what died, when and why; how much is there, and what is missing.

import { byId, make } from "view/dom.js";

// Returns what is not exact where the times span more than JavaScript's numbers hold.
function inexact(head) {
  const differences = [head.wide, head.wide_begins, head.wide_lengths].flat().map(([, difference]) => difference);
  const isRounded = differences.some((difference) => typeof difference === "number" && !Number.isSafeInteger(difference));
  const rounded = "the times span more than 104 days: what is drawn, the times of gaps and the ends of ranges are rounded to JavaScript's numbers, to about a microsecond at worst";
  const exact = "the times and durations of events and slices differ by exact nanoseconds";
  const except = isRounded ? ", except where neighbours are more than 104 days apart; the clock's reading of each event is exact" : "";
  return `${rounded}; ${exact}${except}`;
}

// Most banners of what was survived.
const BANNERS = 3;

// Returns the banner of a death, or of what a process survived.
function banner(death, kind, heading) {
  const parts = [make(heading, {}, death.why), make("p", {}, [death.what, death.when].filter(Boolean).join(", "))];
  if (death.details.length > 0) parts.push(make("details", {}, make("summary", {}, "Backtrace and cause"), make("pre", {}, death.details.join("\n"))));
  return make("div", { class: kind }, ...parts);
}

export function showHead(head, times) {
  const deaths = head.deaths.map((death) => banner(death, "death", "h1"));
  const alive = make("div", { class: "alive" }, make("h1", {}, head.title));
  // The newest have banners of their own.
  const survived = head.survived.slice(-BANNERS).reverse().map((one) => banner(one, "survived", "h2"));
  const others = head.survived.slice(0, -BANNERS).reverse().map(({ why, when }) => `${when}: ${why}`);
  if (others.length > 0) survived.push(make("details", { class: "survived" }, make("summary", {}, `${others.length} more survived before`), make("pre", {}, others.join("\n"))));
  byId("died").replaceChildren(...(deaths.length > 0 ? deaths : [alive]), ...survived);
  const number = (value) => value.toLocaleString("en");
  const parts = [make("span", { id: "count" }, `${number(head.counted)} events`)];
  if (head.counted < head.read) parts.push(make("span", { class: "lost", id: "limit" }, `the newest of ${number(head.read)}: older ones are left out (--limit)`));
  parts.push(make("span", { id: "losses", class: head.lost ? "lost" : "whole" }, ...head.losses.map((line) => make("span", {}, line))));
  if (!head.exact) parts.push(make("span", { class: "lost" }, inexact(head)));
  if (head.slices_not_drawn > 0) parts.push(make("span", { class: "lost" }, `${number(head.slices_not_drawn)} spans and calls are not drawn: too many were open at a time`));
  if (head.without_row > 0) parts.push(make("span", { class: "lost" }, `${number(head.without_row)} events are of threads that have no row: there are too many threads`));
  if (head.cut > 0) parts.push(make("span", { class: "lost" }, `the fields of ${number(head.cut)} ${head.cut === 1 ? "event" : "events"} are longer than 64 KiB and are not on the page`));
  const untimed = head.kinds.filter((kind) => !kind.timed).length;
  if (untimed > 0) parts.push(make("span", { class: "lost" }, `events of ${number(untimed)} kinds have no time: they are drawn where they were read`));
  if (head.rows > 0) parts.push(make("span", { id: "range" }, `from ${times.clock(head.home[0])} to ${times.clock(times.last)}`));
  parts.push(make("details", {}, make("summary", {}, "Inputs"), make("pre", {}, head.machine.join("\n"))));
  byId("summary").replaceChildren(...parts);
}
