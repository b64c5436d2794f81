// Makes elements. Texts of traces become text nodes only, never HTML.

// Characters that reorder the text around them, so that it would look like another.
const REORDERS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// Returns a text with visible escapes in place of such characters. Every text of a trace is shown so.
export const visible = (text) => text.replace(REORDERS, (sign) => `\\u{${sign.charCodeAt(0).toString(16)}}`);

export const byId = (id) => document.getElementById(id);

// Returns an element with properties and children; a child that is no node becomes text.
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "class") element.className = value;
    else if (value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map((child) => (child instanceof Node ? child : visible(String(child)))));
  return element;
}

// Returns a table. A cell that is a number is aligned to the right. `pick` takes the number of a row that is chosen.
export function table(caption, heads, rows, pick) {
  const textOf = (value) => value?.number ?? (typeof value === "number" ? value.toLocaleString("en") : value);
  const cell = (...content) => make("td", { class: typeof content[0] === "number" || content[0]?.number ? "number" : "" }, ...content.map(textOf));
  const body = rows.map((row, at) => {
    if (!pick) return make("tr", {}, ...row.map((value) => cell(value)));
    // The button is for the keyboard and for screen readers; the mouse has all of the row.
    const [first, ...others] = row;
    const button = make("button", { type: "button", class: "plain" }, textOf(first));
    return make("tr", { class: "link", onclick: () => pick(at) }, cell(button), ...others.map((value) => cell(value)));
  });
  const sample = rows[0] ?? [];
  const head = heads.map((text, at) => make("th", { scope: "col", class: typeof sample[at] === "number" || sample[at]?.number ? "number" : "" }, text));
  return make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
}

// Returns the value of a colour of the style sheet.
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
