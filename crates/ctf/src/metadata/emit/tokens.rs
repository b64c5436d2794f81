//! Tokens of TSDL: identifiers, string literals, and the words for byte orders.

use crate::names::identifier;
use lastwords_bytes::ByteOrder;
use std::fmt::Write;

/// Returns the name, or the first of `name_2`, `name_3`, … that is accepted.
pub(super) fn unique(name: String, mut accept: impl FnMut(&str) -> bool) -> String {
    if accept(&name) {
        return name;
    }
    (2u64..).map(|number| format!("{name}_{number}")).find(|name| accept(name)).unwrap_or(name)
}

pub(super) fn order(order: ByteOrder) -> &'static str {
    match order {
        ByteOrder::Little => "le",
        ByteOrder::Big => "be",
    }
}

/// Words that cannot be identifiers in TSDL, and words that name a block.
const KEYWORDS: [&str; 33] = [
    "_Bool",
    "_Complex",
    "_Imaginary",
    "align",
    "callsite",
    "char",
    "clock",
    "const",
    "double",
    "enum",
    "env",
    "event",
    "float",
    "floating_point",
    "int",
    "integer",
    "long",
    "short",
    "signed",
    "stream",
    "string",
    "struct",
    "trace",
    "typealias",
    "typedef",
    "unsigned",
    "variant",
    "void",
    "volatile",
    "auto",
    "extern",
    "static",
    "inline",
];

/// Returns true if the text can be used as an identifier without changes.
pub(super) fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !KEYWORDS.contains(&text)
}

/// Replaces characters that an identifier cannot have. Puts `_` in front of a keyword or a digit.
pub(super) fn member_identifier(key: &str) -> String {
    let key = identifier(key);
    if is_identifier(&key) { key } else { format!("_{key}") }
}

/// Returns the text as a TSDL string literal.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len().saturating_add(2));
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_ascii_control() => push(&mut out, format_args!("\\{:03o}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Appends formatted text. Appending to a `String` cannot fail.
pub(super) fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(what);
}
