//! Writes a histogram as the kernel's file `hist` has it (`Documentation/trace/histogram.rst`).

use super::row::{Form, Part};
use super::{Histogram, Key, Row, UNKNOWN, Value};
use std::fmt::{self, Write as _};

/// Writes one histogram, without a heading. A part that is not known is the word `unknown`.
impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trigger, state, rows, hits, entries, dropped, .. } = self;
        writeln!(f, "# event histogram\n#\n# trigger info: {trigger} [{state}]\n#\n")?;
        let form = Form::parse(trigger);
        rows.iter().try_for_each(|row| write_row(f, &form, row))?;
        writeln!(f, "\nTotals:\n    Hits: {hits}\n    Entries: {entries}\n    Dropped: {dropped}")
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, form: &Form, row: &Row) -> fmt::Result {
    f.write_str("{ ")?;
    let mut is_multiline = false;
    for (at, (name, key)) in row.keys.iter().enumerate() {
        if at > 0 {
            f.write_str(", ")?;
        }
        is_multiline |= form.keys.get(at).is_some_and(Part::is_stack);
        write_key(f, form.keys.get(at), name, key)?;
    }
    f.write_str(if is_multiline { "}" } else { " }" })?;
    let has_hitcount = form.values.first().is_some_and(|first| first.name == "hitcount");
    let mut forms = form.values.iter();
    for (at, (name, value)) in row.values.iter().enumerate() {
        // Two values may have one name and different modifiers.
        let own = name.strip_suffix(PERCENT).unwrap_or(name);
        let is_hex = forms.find(|part| part.name == own).is_some_and(|part| part.is("hex"));
        f.write_str(if at == 0 && has_hitcount { " " } else { "  " })?;
        write_value(f, name, value, is_hex)?;
    }
    row.more.iter().try_for_each(|line| write!(f, "\n\t{line}"))?;
    f.write_char('\n')
}

/// What follows the name of a value that is a part of the total.
pub(crate) const PERCENT: &str = " (%)";

fn write_key(
    f: &mut fmt::Formatter<'_>,
    part: Option<&Part>,
    name: &str,
    key: &Key,
) -> fmt::Result {
    let has = |modifier: &str| part.is_some_and(|part| part.is(modifier));
    match key {
        Key::Number(number) if has("hex") => write!(f, "{name}: {number:x}"),
        Key::Number(number) => write!(f, "{name}: {number:>10}"),
        Key::Text(text) => write!(f, "{name}: {text:<50}"),
        Key::Named { name: of, number } if has("sym") => {
            write!(f, "{name}: [{number:x}] {of:<45}")
        }
        Key::Named { name: of, number } if has("sym-offset") => {
            write!(f, "{name}: [{number:x}] {of:<55}")
        }
        Key::Named { name: of, number } if has("execname") => {
            write!(f, "{name}: {of:<16}[{number:>10}]")
        }
        Key::Named { name: of, number } => write!(f, "{name}: {of:<30}[{number:>3}]"),
        Key::Power(power) => write!(f, "{name}: ~ 2^{power:<2}"),
        Key::Range { first, last } => write!(f, "{name}: ~ {first}-{last}"),
        Key::Stack(functions) => {
            // The stack of a field has no line of its own for the name.
            let end = if name.ends_with(".stacktrace") { "" } else { ":\n" };
            write!(f, "{name}{end}")?;
            functions.iter().try_for_each(|function| writeln!(f, "         {function}"))
        }
        Key::Unknown => write!(f, "{name}: {UNKNOWN:>10}"),
    }
}

fn write_value(f: &mut fmt::Formatter<'_>, name: &str, value: &Value, is_hex: bool) -> fmt::Result {
    let is_percent = name.ends_with(PERCENT);
    match value {
        Value::Number(number) if is_hex => write!(f, "{name}: {number:>10x}"),
        Value::Number(number) => write!(f, "{name}: {number:>10}"),
        Value::Text(text) if is_percent && text.starts_with('[') => write!(f, "{name}:{text}"),
        Value::Text(text) if is_percent => write!(f, "{name}: {text:>6}"),
        // A bar is filled up behind, an error before.
        Value::Text(text) if text.starts_with('[') => write!(f, "{name}: {text:>20}"),
        Value::Text(text) => write!(f, "{name}: {text:<20}"),
        Value::Unknown => write!(f, "{name}: {UNKNOWN:>10}"),
    }
}
