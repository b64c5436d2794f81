//! Binds a name of a filter to what an event has under it. The order is that of docs/FILTER.md: a
//! field, a context, a name that means the same for all events.

use lastwords_abi::context as bits;
use lastwords_filter::{CodeName, CodeStep};

use crate::process::kept_memory;
use crate::record::slot::RecorderSlot;
use crate::session::desc::{EventDesc, FieldDesc, FieldType};

/// Where the value of a name comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// The event has no such value.
    Unknown,
    Field(Place),
    /// A context of the application: its offset among these contexts, and its type.
    User(usize, FieldType),
    /// The name of the event or of the channel.
    Text(&'static [u8]),
    /// The severity: LTTng's number, and a word.
    Level(i128, &'static str),
    /// A context of all applications: its bit.
    Context(u32),
}

/// The place of a value among the fields of an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// The field from which readers walk on, and its offset in the payload: the last that always
    /// has the same offset, up to the wanted one.
    pub(super) from: usize,
    pub(super) at: usize,
    /// The wanted field.
    pub(super) field: usize,
    /// The wanted element of an array or sequence.
    pub(super) element: Option<u32>,
}

/// Returns the source of a name; none if there is no memory.
pub(super) fn source(name: &CodeName<'_>, slot: &RecorderSlot, desc: &EventDesc) -> Option<Source> {
    let plain = name.plain();
    match plain {
        Some("CPU") => return Some(Source::Context(bits::CPU)),
        Some("COMM") if !name.is_context() => return Some(Source::Context(bits::THREAD_NAME)),
        _ => {}
    }
    if !name.is_context()
        && let Some(place) = field(name, desc)
    {
        return Some(Source::Field(place));
    }
    let of_all = bits::KNOWN.into_iter().find(|context| plain == Some(context.name));
    if let Some(context) = of_all {
        return Some(Source::Context(context.bit));
    }
    Some(match plain {
        Some("cpu_id") => Source::Context(bits::CPU),
        _ if user(name, slot).is_some() => user(name, slot).unwrap_or(Source::Unknown),
        _ if name.is_context() => Source::Unknown,
        Some("pid") => Source::Context(bits::PID),
        Some("tid" | "common_pid") => Source::Context(bits::TID),
        Some("comm") => Source::Context(bits::THREAD_NAME),
        Some("level") => level(desc.level),
        Some("event") => Source::Text(event_name(desc)?),
        Some("channel") => Source::Text(crate::session::text::until_nul(&slot.entry.name)),
        _ => Source::Unknown,
    })
}

/// Returns the name of the event as readers show it.
pub(super) fn event_name(desc: &EventDesc) -> Option<&'static [u8]> {
    let parts = [desc.provider.as_bytes(), b":", desc.name.as_bytes()];
    let len = parts.iter().map(|part| part.len()).sum::<usize>();
    let mut bytes = parts.into_iter().flatten();
    // Readers show no control characters.
    let shown = |byte: &u8| if byte.is_ascii_control() { b'_' } else { *byte };
    kept_memory::keep_all((0..len).map(|_| bytes.next().map(shown)))
}

fn level(level: u8) -> Source {
    match level {
        1 => Source::Level(3, "error"),
        2 => Source::Level(4, "warn"),
        3 => Source::Level(6, "info"),
        4 => Source::Level(14, "debug"),
        5 => Source::Level(13, "trace"),
        _ => Source::Unknown,
    }
}

/// Returns the place of a field, or of an element of one.
fn field(name: &CodeName<'_>, desc: &EventDesc) -> Option<Place> {
    // The bits of optional fields are in front of all.
    let (mut from, mut at, mut fixed) = (0, 0, Some(mask_len(desc.fields)));
    for (index, field) in desc.fields.iter().enumerate() {
        if let Some(here) = fixed {
            (from, at) = (index, here);
        }
        if let Some(element) = element_of(name, field.name)
            && is_value(&field.ty, element)
        {
            return Some(Place { from, at, field: index, element });
        }
        fixed = fixed.zip(field.ty.fixed_size()).map(|(here, size)| here + size);
    }
    None
}

/// Returns the bytes of the bits of optional fields.
fn mask_len(fields: &[FieldDesc]) -> usize {
    fields.iter().filter(|field| matches!(field.ty, FieldType::Optional(_))).count().div_ceil(8)
}

/// Returns true if the field has a single value under the name: an array has some for its elements
/// only.
fn is_value(ty: &FieldType, element: Option<u32>) -> bool {
    match ty {
        FieldType::Array { count, .. } => element.is_some_and(|element| element < *count),
        FieldType::Sequence(_) | FieldType::Bytes => element.is_some(),
        _ => element.is_none(),
    }
}

/// Returns the element that a name means in a field of this name. The name of a field may have
/// dots.
fn element_of(name: &CodeName<'_>, field: &str) -> Option<Option<u32>> {
    let mut steps = name.steps();
    let mut rest = field;
    loop {
        let CodeStep::Member(member) = steps.next()? else { return None };
        rest = rest.strip_prefix(member)?;
        if rest.is_empty() {
            break;
        }
        rest = rest.strip_prefix('.')?;
    }
    match (steps.next(), steps.next()) {
        (None, _) => Some(None),
        (Some(CodeStep::Element(index)), None) => Some(Some(u32::try_from(index).ok()?)),
        _ => None,
    }
}

/// Returns the application's own context of this name.
fn user(name: &CodeName<'_>, slot: &RecorderSlot) -> Option<Source> {
    let mut at = 0;
    for context in &slot.user_contexts {
        if element_of(name, &context.name) == Some(None) && is_value(&context.ty, None) {
            return Some(Source::User(at, context.ty));
        }
        at += context.size;
    }
    None
}
