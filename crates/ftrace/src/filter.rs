//! Evaluates a filter on the bytes of a kernel's events.
//!
//! The names are those of the event's format (`events/*/*/format`), `common_pid` and its like among
//! them, as in the kernel's own filters. A field that is an array of numbers is read by element
//! (`args[0]`).

use super::text::Common;
use super::text::Slot;
use super::values::{Column, Element, Kind, columns};
use crate::{Format, Tracing};
use lastwords_bytes::{ByteOrder, low_u32};
use lastwords_filter::BuiltIn;
use lastwords_filter::{Filter, Name, Step, Value};
use lastwords_trace::nul;
use std::collections::BTreeSet;

/// Evaluates a filter on the events of a kernel.
pub(crate) struct RawFilter<'a> {
    filter: &'a Filter,
    tracing: &'a Tracing,
    /// The sources of the names by event id. They are found when the first event of the id is
    /// read.
    kinds: Vec<Option<Box<[Option<Source<'a>>]>>>,
}

/// The value of a name in events of one id.
enum Source<'a> {
    /// A field, or an element of one.
    Column(Column<'a>, Option<u64>),
    /// One of the fields that all events have.
    Common {
        slot: Slot,
        is_signed: bool,
    },
    Event(String),
    Cpu,
    Comm,
    Pid,
    Tgid,
    Flags,
    PreemptCount,
}

impl<'a> RawFilter<'a> {
    pub(crate) fn new(filter: &'a Filter, tracing: &'a Tracing) -> Self {
        Self { filter, tracing, kinds: Vec::new() }
    }

    /// Returns true if the filter is true for the event of this payload. `comm` returns the name of
    /// a task.
    pub(crate) fn matches<'c>(
        &mut self,
        payload: &[u8],
        cpu: u32,
        comm: impl Fn(u32) -> &'c str,
    ) -> bool {
        let (tracing, order) = (self.tracing, self.tracing.byte_order);
        let common = Common::read(payload, order);
        let at = usize::from(common.id);
        if self.kinds.len() <= at {
            self.kinds.resize_with(at.saturating_add(1), || None);
        }
        let Some(place) = self.kinds.get_mut(at) else { return false };
        let filter = self.filter;
        let sources = place.get_or_insert_with(|| {
            let format = tracing.formats.get(&common.id);
            filter.names().iter().map(|name| source(name, format, tracing)).collect()
        });
        let result = filter.eval(&mut |position| match sources.get(position)?.as_ref()? {
            Source::Column(column, element) => value(column, *element, payload, order),
            Source::Common { slot, is_signed } => {
                payload.get(slot.offset as usize..)?.get(..slot.size as usize)?;
                Some(match is_signed {
                    true => Value::Signed(slot.signed(payload, order)),
                    false => Value::Unsigned(slot.unsigned(payload, order)),
                })
            }
            Source::Event(name) => Some(Value::Text(name.as_bytes())),
            Source::Cpu => Some(Value::Unsigned(cpu.into())),
            Source::Comm => Some(Value::Text(comm(common.pid).as_bytes())),
            Source::Pid => Some(Value::Signed(common.pid.cast_signed().into())),
            Source::Tgid => {
                tracing.tgids.get(&common.pid).map(|tgid| Value::Signed(tgid.cast_signed().into()))
            }
            Source::Flags => Some(Value::Unsigned(common.flags.into())),
            Source::PreemptCount => Some(Value::Unsigned(common.preempt.into())),
        });
        result == Some(true)
    }
}

/// Returns the source of a name in events of a format. An event without a format has only what all
/// events have.
fn source<'a>(name: &Name, format: Option<&'a Format>, tracing: &Tracing) -> Option<Source<'a>> {
    let field = format.filter(|_| !name.is_context() && !BuiltIn::is_above_fields(name));
    if let Some(source) = field.and_then(|format| field_of(name, format, tracing.word_size)) {
        return Some(source);
    }
    match (name.plain()?, BuiltIn::from_name(name)) {
        (_, Some(BuiltIn::Cpu)) | ("common_cpu", _) => Some(Source::Cpu),
        (_, Some(BuiltIn::Comm)) | ("common_comm", _) => Some(Source::Comm),
        // The kernel's `pid` is the id of a thread.
        (_, Some(BuiltIn::Pid | BuiltIn::Tid)) => Some(Source::Pid),
        (_, Some(BuiltIn::Event)) => {
            let name = format.map(|format| format!("{}:{}", format.system, format.name));
            Some(Source::Event(name.unwrap_or_else(|| "ftrace:unknown".to_owned())))
        }
        // A text that user space wrote has this name in the other formats.
        ("msg", _) => {
            let print = format.filter(|format| {
                format.system == "ftrace" && format.name == "print" && !name.is_context()
            })?;
            field_of(Filter::parse("buf").ok()?.names().first()?, print, tracing.word_size)
        }
        ("tgid", _) => (!tracing.tgids.is_empty()).then_some(Source::Tgid),
        ("flags", _) if name.is_context() => Some(Source::Flags),
        ("preempt_count", _) if name.is_context() => Some(Source::PreemptCount),
        _ => None,
    }
}

fn field_of<'a>(name: &Name, format: &'a Format, word_size: u8) -> Option<Source<'a>> {
    let (member, element) = match name.steps() {
        [Step::Member(member)] => (member, None),
        [Step::Member(member), Step::Element(element)] => (member, Some(*element)),
        _ => return None,
    };
    let field = format.fields.iter().find(|field| field.name == *member)?;
    if field.is_common {
        let slot = Slot { offset: field.offset, size: field.size };
        return element.is_none().then_some(Source::Common { slot, is_signed: field.is_signed });
    }
    let column =
        columns(format, word_size).into_iter().find(|column| std::ptr::eq(column.field, field))?;
    let is_array = matches!(column.kind, Kind::Numbers(_));
    let has_elements = is_array || column.kind == Kind::Bytes;
    (element.is_some() && has_elements || element.is_none() && !is_array)
        .then_some(Source::Column(column, element))
}

/// Returns the value of a field, or of an element of it; none if the payload does not hold it.
fn value<'p>(
    column: &Column<'_>,
    element: Option<u64>,
    payload: &'p [u8],
    order: ByteOrder,
) -> Option<Value<'p>> {
    let bytes = column.bytes(payload, order)?;
    match (column.kind, element) {
        (Kind::Number(of), _) => number(of, 0, bytes, order),
        // The `int` is in the lower half of the `long`.
        (Kind::Argument, _) => {
            let argument =
                Slot { offset: 0, size: low_u32(bytes.len() as u64) }.unsigned(bytes, order);
            Some(Value::Signed(low_u32(argument).cast_signed().into()))
        }
        (Kind::Bool, _) => bytes.first().map(|byte| Value::Bool(*byte != 0)),
        (Kind::Text, _) => Some(Value::Text(nul::until(bytes))),
        (Kind::Bytes, None) => Some(Value::Text(bytes)),
        (Kind::Bytes, Some(index)) => {
            number(Element { size: 1, signed: false }, index, bytes, order)
        }
        (Kind::Numbers(of), Some(index)) => number(of, index, bytes, order),
        (Kind::Numbers(_), None) => None,
    }
}

/// Returns the number at a position in an array.
fn number<'p>(of: Element, index: u64, bytes: &[u8], order: ByteOrder) -> Option<Value<'p>> {
    let begin = usize::try_from(index.checked_mul(of.size.into())?).ok()?;
    let bytes = bytes.get(begin..)?.get(..of.size.into())?;
    let slot = Slot { offset: 0, size: of.size.into() };
    Some(if of.signed {
        Value::Signed(slot.signed(bytes, order))
    } else {
        Value::Unsigned(slot.unsigned(bytes, order))
    })
}

/// Returns true if an event of the kernel has a value of this name.
pub(crate) fn is_known(name: &Name, tracing: &Tracing) -> bool {
    source(name, None, tracing).is_some()
        || tracing.formats.values().any(|format| source(name, Some(format), tracing).is_some())
}

/// Adds the names of all fields. Contexts are added with `$ctx.` before them.
pub(crate) fn add_names(tracing: &Tracing, names: &mut BTreeSet<String>) {
    for format in tracing.formats.values() {
        for field in &format.fields {
            names.insert(field.name.clone());
        }
    }
    names.extend(
        ["$ctx.cpu", "$ctx.pid", "$ctx.comm", "$ctx.flags", "$ctx.preempt_count"]
            .map(str::to_owned),
    );
}
