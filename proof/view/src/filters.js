// Judges filters as the page does. Each has an expression and events, whose values are in the order of the names. Returns
// the error of each, or its verdicts.

const [names, filters] = arguments;

return Promise.all(["view/filter.js", "view/judge.js"].map((name) => import(name))).then(([{ parseFilter, textOf }, { holds }]) => {
  const text = (bytes) => textOf(Uint8Array.from(bytes));
  const value = (encoded) => {
    if (encoded === null) return undefined;
    const [kind, own, label] = encoded;
    switch (kind) {
      case "integer": return BigInt(own);
      case "float": return Number(own.replace("inf", "Infinity"));
      case "bool": return own;
      case "text": return text(own);
      default: return { number: BigInt(own), label: label === null ? null : text(label) };
    }
  };
  return filters.map(([expression, events]) => {
    let filter;
    try {
      filter = parseFilter(expression);
    } catch (error) {
      return error.caret === undefined ? `${error.stack}` : `${error.message}\n${error.caret}`;
    }
    const places = filter.names.map((name) => names.indexOf(name.text));
    return events.map((event) => holds(filter, (place) => value(event[places[place]] ?? null)) ?? null);
  });
});
