//! Lines for people: the kernel's layout, and ours.

mod lines;
mod values;

use super::escape::bare;
use super::line::Line;
use super::look::Look;
use super::message::{self, Piece, pieces, shown_name};
use super::number::Constant;
use crate::events::{StreamInfo, scope_code};
use crate::fields::{self, Role};
use lastwords_bytes::ByteOrder;
use lastwords_ctf::program::{Code, Flat};
use lastwords_ctf::read::Trace;
use lastwords_trace::class::{EventClass, LogLevel, Origin as ClockOrigin, Scope, StreamClass};
use lastwords_trace::integer::{extend, take_integer};
use lastwords_trace::visit::Node;
use std::collections::HashMap;

pub(super) use lines::Lines;

/// What is known of some traces before the first event.
pub(super) struct Plan<'t> {
    kernel: bool,
    /// By stream class, those of all traces one behind the other.
    classes: Vec<Columns<'t>>,
    /// By trace: names by thread id, for events whose contexts have none.
    names: Vec<HashMap<i64, &'t str>>,
    /// By stream: `CPU]`.
    cpus: Vec<Option<Constant>>,
}

/// A stream class.
struct Columns<'t> {
    /// The clock leads to the time of day.
    absolute: bool,
    context: Option<Fields<'t>>,
    /// The context, where its fields are at fixed offsets.
    places: Option<Places>,
    events: Vec<Class<'t>>,
}

/// The fields of a scope.
struct Fields<'t> {
    code: &'t Code,
    /// By node: ` name=`, if it is shown.
    prefixes: Vec<Option<Constant>>,
    looks: Vec<Look<'t>>,
    roles: Vec<Role>,
}

/// Fields of a context at fixed offsets.
#[derive(Default)]
struct Places {
    /// Bytes of the whole context.
    len: usize,
    name: Option<(usize, usize)>,
    thread: Option<Place>,
    cpu: Option<Place>,
    others: Vec<(Constant, Place)>,
}

/// An integer at a fixed offset.
#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    size: u8,
    signed: bool,
    order: ByteOrder,
}

/// An event class.
struct Class<'t> {
    /// Five columns of severity.
    level: &'static [u8; 5],
    /// ` LEVEL [`.
    before_cpu: [u8; 8],
    /// ` provider:name:`.
    name: Constant,
    /// The message, where there is a format string.
    pieces: Vec<Piece>,
    specific: Option<Fields<'t>>,
    payload: Option<Fields<'t>>,
    /// The name and the payload, where its fields are of simple forms and no message shows them; and the line feed, where
    /// no context is shown behind them.
    line: Option<Line<'t>>,
}

/// Five columns for a severity.
fn level(level: Option<LogLevel>) -> &'static [u8; 5] {
    match level.map(LogLevel::number) {
        Some(0..=3) => b"ERROR",
        Some(4) => b"WARN ",
        Some(5 | 6) => b"INFO ",
        Some(7..=12 | 14) => b"DEBUG",
        Some(_) => b"TRACE",
        None => b"-    ",
    }
}

impl<'t> Plan<'t> {
    /// `kernel`: the layout of the kernel's `trace` file.
    pub(super) fn new(traces: &'t [Trace], streams: &[StreamInfo], kernel: bool) -> Self {
        let cpu = |facts: &StreamInfo| facts.cpu.map(|cpu| Constant::new(format!("{cpu:03}]").as_bytes()));
        Self {
            kernel,
            classes: traces.iter().flat_map(|trace| columns(trace, kernel)).collect(),
            names: traces.iter().map(|trace| trace.class().thread_names()).collect(),
            cpus: streams.iter().map(cpu).collect(),
        }
    }
}

fn columns(trace: &Trace, kernel: bool) -> Vec<Columns<'_>> {
    let class = trace.class();
    let of = |(position, stream): (usize, &StreamClass)| {
        let clock = stream.clock.and_then(|clock| class.clocks.get(clock));
        let scope = |scope, event| scope_code(trace, scope, position, event).map(fields);
        let context = scope(Scope::CommonContext, 0);
        let mut places = match &context {
            None => Some(Places::default()),
            Some(context) => places(context),
        };
        if let Some(places) = places.as_mut().filter(|_| kernel) {
            // The kernel's layout shows no other contexts.
            places.others.clear();
        }
        let is_last = places.as_ref().is_none_or(|places| places.others.is_empty());
        let tail: &[u8] = if is_last { b"\n" } else { b"" };
        Columns {
            absolute: clock.is_some_and(|clock| clock.origin == ClockOrigin::UnixEpoch),
            places,
            context,
            events: stream
                .events
                .iter()
                .enumerate()
                .map(|(at, event)| {
                    let specific = scope(Scope::SpecificContext, at);
                    of_event(event, specific, scope(Scope::Payload, at), tail)
                })
                .collect(),
        }
    };
    class.streams.iter().enumerate().map(of).collect()
}

fn fields(code: &Code) -> Fields<'_> {
    let roles = fields::roles(code);
    let prefix = |(node, role): (&Node, &Role)| {
        let mut text = vec![b' '];
        bare(&mut text, node.name.as_bytes());
        text.push(b'=');
        (*role != Role::Hidden).then(|| Constant::new(&text))
    };
    let look = |(node, role): (_, &Role)| if *role == Role::Hidden { Look::Hidden } else { Look::of(node) };
    Fields {
        code,
        prefixes: code.nodes().iter().zip(&roles).map(prefix).collect(),
        looks: code.nodes().iter().zip(&roles).map(look).collect(),
        roles,
    }
}

fn of_event<'t>(
    event: &EventClass,
    specific: Option<Fields<'t>>,
    payload: Option<Fields<'t>>,
    tail: &[u8],
) -> Class<'t> {
    let event_name = event.name.as_deref().unwrap_or("<unknown>");
    let format = message::format(event);
    let mut name = vec![b' '];
    bare(&mut name, shown_name(event_name, &format).as_bytes());
    name.push(b':');
    let shown = payload.as_ref().map_or_else(Vec::new, members);
    let pieces = pieces(&format, &shown);
    let level = level(event.log_level);
    let mut before_cpu = *b" -     [";
    before_cpu[1..6].copy_from_slice(level);
    let line = match &payload {
        Some(fields) if pieces.is_empty() && specific.is_none() => {
            Line::of_columns(&name, fields.code, &fields.prefixes, &fields.looks, tail)
        }
        _ => None,
    };
    Class { level, before_cpu, name: Constant::new(&name), pieces, specific, payload, line }
}

/// The names of a scope's own members that are shown.
fn members<'f>(fields: &Fields<'f>) -> Vec<&'f str> {
    let nodes = fields.code.nodes().iter().zip(&fields.roles);
    let own = nodes.filter(|(node, role)| node.depth == 1 && !node.name.is_empty() && **role != Role::Hidden);
    own.map(|(node, _)| node.name.as_str()).collect()
}

/// The places of a context's fields; none where one has no fixed place.
fn places(context: &Fields<'_>) -> Option<Places> {
    let mut places = Places::default();
    let mut process = None;
    for (number, flat) in context.code.flat()?.into_iter().enumerate() {
        let offset = places.len;
        match flat {
            Flat::Begin(_) if number == 0 => {}
            Flat::End => {}
            Flat::Begin(_) | Flat::Text(_) => return None,
            Flat::Skip(bytes) => places.len = places.len.checked_add(usize::try_from(bytes).ok()?)?,
            Flat::Chars(node, bytes) => {
                let bytes = usize::try_from(bytes).ok()?;
                if context.code.nodes().get(node as usize)?.name != "procname" {
                    return None;
                }
                places.name = Some((offset, bytes));
                places.len = places.len.checked_add(bytes)?;
            }
            Flat::Integer { node, size, signed, order } => {
                let at = node as usize;
                let place = Place { offset, size, signed, order };
                match context.code.nodes().get(at)?.name.as_str() {
                    "vtid" | "tid" => places.thread = Some(place),
                    "cpu" | "cpu_id" => places.cpu = Some(place),
                    name => {
                        if matches!(name, "vpid" | "pid") {
                            process = Some(place);
                        }
                        match (context.prefixes.get(at)?, context.looks.get(at)?) {
                            (Some(prefix), Look::Signed | Look::Unsigned) => {
                                places.others.push((prefix.clone(), place));
                            }
                            (None, _) => {}
                            _ => return None,
                        }
                    }
                }
                places.len = places.len.checked_add(usize::from(size))?;
            }
        }
    }
    places.thread = places.thread.or(process);
    Some(places)
}

impl Place {
    /// The integer here.
    #[inline]
    fn integer(self, context: &[u8]) -> Option<i64> {
        let raw = take_integer(&mut context.get(self.offset..)?, self.size, self.order)?;
        Some(if self.signed { extend(raw, self.size) } else { raw.cast_signed() })
    }
}
