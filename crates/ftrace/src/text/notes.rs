//! Notes on events that cannot be shown as the kernel shows them.

use crate::Format;
use crate::print::{Fault, Unknown};

/// Returns a note on the parts of a print format that only the kernel can evaluate, if there are
/// any.
pub(super) fn unknown_parts(format: &Format, parts: &[Unknown]) -> Option<String> {
    let kind = |what, of: fn(&Unknown) -> Option<&str>| {
        let all: Vec<&str> = parts.iter().filter_map(of).collect();
        let first = all.first_chunk::<3>().map_or(&*all, |first| &first[..]).join(", ");
        let more = all.len().saturating_sub(3);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!all.is_empty()).then(|| format!("{what}{first}{more}"))
    };
    let all = [
        kind("names whose values are not known: ", |part| {
            if let Unknown::Name(name) = part { Some(name) } else { None }
        }),
        kind("functions that only the kernel can run: ", |part| {
            if let Unknown::Function(name) = part { Some(name) } else { None }
        }),
        kind("", |part| if let Unknown::Other(words) = part { Some(words) } else { None }),
    ];
    let all: Vec<String> = all.into_iter().flatten().collect();
    let (system, name) = (&format.system, &format.name);
    let note = format!(
        "{system}:{name}: its print format has {}; raw values stand in their place",
        all.join("; ")
    );
    (!parts.is_empty()).then_some(note)
}

/// The note on user stacks where the option `sym-userobj` is set and memory of processes is not
/// there.
pub(super) const FILES_UNKNOWN: &str =
    "the files of some addresses are not known (option sym-userobj); addresses stand there";

/// Returns a note on an event of which a part could not be printed.
pub(super) fn faulty(format: &Format, fault: &Fault) -> String {
    let (system, name) = (&format.system, &format.name);
    let shown =
        if *fault == Fault::TooLong { "its fields are shown" } else { "raw values stand there" };
    format!(
        "{system}:{name}: a part of an event cannot be printed by its format ({fault:?}); {shown}"
    )
}
