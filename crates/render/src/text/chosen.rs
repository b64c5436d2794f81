//! Writes lines of fields that the user has chosen, in the order of the user, separated by a text.
//!
//! Names mean the same as in filters ([`crate::filter`]), for traces of all kinds. Besides, there
//! are names of what a line has beside fields ([`OWN`]); `$fields.NAME` is the field of such a
//! name. A field that an event does not have is a hyphen. A text that could be mistaken for
//! something else, because it has the separator in it, is empty or a hyphen, stands in double
//! quotes.

use super::Zone;
use super::columns::{self, Class, Fields, Form, Mark, Values, Writing};
use super::escape::bare;
use super::message;
use super::one_value::One;
use super::time::TimeOfDay;
use crate::Totals;
use crate::choose::Chosen;
use crate::events::{self, Line, Note, Out};
use crate::filter::names::{Lookup, SCOPES, Source, Target, Targets};
use crate::filter::unknown_names;
use crate::select::Selection;
use crate::streams::{StreamInfo, scope_code};
use lastwords_ctf::read::{Due, Reader, Trace, Watch};
use lastwords_filter::{Filter, Name};
use lastwords_trace::class::{EventClass, Origin, Scope};
use lastwords_trace::clock::Rounding;
use lastwords_trace::syscalls;
use lastwords_trace::text::number::{signed, unsigned};
use lastwords_trace::text::put_seconds;
use lastwords_trace::visit::Ignore;
use std::collections::HashMap;
use std::io::Write;

/// Names of what a line has beside fields: the time, the seconds since the line before, the clock's
/// reading, the name of the session or instance, and what follows the event's name in the other
/// styles.
pub const OWN: &[&str] = &["time", "delta", "ticks", "trace", "message"];

/// Names of the place in the source that an event comes from: its file and its line.
pub const PLACE: &[&str] = &["file", "line"];

/// The name of the system call that an event of `raw_syscalls` enters or leaves, which has only its
/// number.
pub const SYSCALL: &str = "syscall";

/// Most columns of a line.
const MOST: usize = 256;
/// The text of a value that an event does not have.
const NONE: &[u8] = b"-";

/// The columns of a line.
#[derive(Debug, Clone)]
pub struct Columns {
    columns: Vec<Column>,
    separator: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Column {
    name: String,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Time,
    Delta,
    Ticks,
    Trace,
    /// The message, or a field of that name. The expression has only the name.
    Message(Filter),
    Name(Filter),
    /// A field, and nothing else.
    Field(Filter),
}

impl Columns {
    /// Parses names, such as `["time", "cpu", "args[0]"]`.
    ///
    /// # Errors
    /// A name is not one, or there are too many.
    pub fn parse<S: AsRef<str>>(names: &[S], separator: &str) -> Result<Self, String> {
        if names.len() > MOST {
            return Err(format!("{} fields are too many: a line has at most {MOST}", names.len()));
        }
        let columns = names
            .iter()
            .map(|name| Column::parse(name.as_ref().trim()))
            .collect::<Result<_, _>>()?;
        Ok(Self { columns, separator: separator.as_bytes().to_vec() })
    }

    /// Returns the names, separated.
    #[must_use]
    pub fn head(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name.as_str()).collect();
        names.join(&String::from_utf8_lossy(&self.separator))
    }

    /// Returns the name at a position.
    #[must_use]
    pub fn name(&self, at: usize) -> Option<&str> {
        self.columns.get(at).map(|column| column.name.as_str())
    }

    /// Checks that an event class of the traces has each name. The errors name the unknown ones,
    /// and the known names that are nearest.
    #[must_use]
    pub fn unknown(&self, traces: &[Trace]) -> Vec<String> {
        let filters = self.columns.iter().filter_map(|column| match &column.kind {
            Kind::Name(filter) | Kind::Field(filter) => Some((column, filter)),
            _ => None,
        });
        let has_place = any_class(traces, |class| message::place(class).is_some());
        let has_raw_syscalls = any_class(traces, |class| is_raw_syscall(class.name.as_deref()));
        let own = [OWN, if has_place { PLACE } else { &[] }].concat();
        let unknown = |(column, filter): (&Column, &Filter)| {
            let near = unknown_names(filter, traces, &own)?;
            let name = column.name.as_str();
            if has_place && PLACE.contains(&name) || has_raw_syscalls && name == SYSCALL {
                return None;
            }
            let near = if near.is_empty() {
                String::new()
            } else {
                format!("; did you mean {}?", near.join(", "))
            };
            Some(format!("no event has a field {}{near}", column.name))
        };
        filters.filter_map(unknown).collect()
    }
}

impl Column {
    fn parse(text: &str) -> Result<Self, String> {
        let name = |text: &str| {
            let filter = Filter::parse(text)
                .ok()
                .filter(|filter| matches!(filter.names(), [name] if name.to_string() == text));
            filter.ok_or_else(|| format!("\"{text}\" is not the name of a field: names are such as prev_pid, args[0], request.path, $ctx.vtid"))
        };
        let kind = match text {
            "" => return Err("the name of a field is missing".to_owned()),
            "time" => Kind::Time,
            "delta" => Kind::Delta,
            "ticks" => Kind::Ticks,
            "trace" => Kind::Trace,
            "message" => Kind::Message(name(text)?),
            _ => match text.strip_prefix("$fields.") {
                Some(field) => Kind::Field(name(field)?),
                None => Kind::Name(name(text)?),
            },
        };
        Ok(Self { name: text.to_owned(), kind })
    }
}

/// The totals of the output, and the positions of columns of which no event had a value.
#[derive(Debug, Default)]
pub struct Written {
    /// The counts.
    pub totals: Totals,
    /// The positions.
    pub unused: Vec<usize>,
}

/// Writes the chosen fields of the selected events of `traces`, merged by time.
///
/// # Errors
/// `out` cannot be written.
pub fn write(
    traces: &[Trace],
    columns: &Columns,
    selection: &Selection,
    zone: &Zone,
    out: &mut dyn Write,
    watch: Watch<'_>,
    notes: &mut dyn FnMut(Note),
) -> crate::Result<Written> {
    let chosen = Chosen::last(traces, selection, Rounding::Floor, watch);
    let mut lines = Lines {
        traces,
        streams: chosen.facts.clone(),
        columns,
        time: TimeOfDay::new(zone, b"", b""),
        previous: None,
        classes: HashMap::new(),
        // One more for the id of a thread whose name is looked up.
        values: vec![Value::default(); columns.columns.len().saturating_add(1)],
        is_used: vec![false; columns.columns.len()],
        values_of_message: Vec::new(),
        marks: Vec::new(),
    };
    let totals = events::write(chosen, &mut lines, Out::File(out), notes)?;
    let unused =
        lines.is_used.iter().enumerate().filter(|(_, is_used)| !**is_used).map(|(at, _)| at);
    Ok(Written { totals, unused: unused.collect() })
}

/// The value of a column in an event.
#[derive(Debug, Clone, Default)]
struct Value {
    text: Vec<u8>,
    is_there: bool,
}

struct Lines<'t> {
    traces: &'t [Trace],
    streams: Vec<StreamInfo>,
    columns: &'t Columns,
    time: TimeOfDay,
    /// Time of the line before.
    previous: Option<i64>,
    /// The event classes of each trace and stream class. A class is bound when its first event is
    /// written.
    classes: HashMap<(usize, usize), Vec<Option<Box<Bound<'t>>>>>,
    values: Vec<Value>,
    is_used: Vec<bool>,
    values_of_message: Vec<u8>,
    marks: Vec<Mark>,
}

/// The value of a column in events of a class.
enum Of<'t> {
    Time,
    Delta,
    Ticks,
    DeltaOfTicks,
    Text(Vec<u8>),
    Cpu,
    /// The value that a visitor has written.
    Field,
    ThreadName(HashMap<i64, &'t str>),
    /// The fields in the form of a message.
    Message,
    /// The system call whose number a visitor has written, on this machine.
    Syscall(&'t str),
    None,
}

/// The columns in an event class.
struct Bound<'t> {
    of: Vec<Of<'t>>,
    /// The scopes up to the last that is read.
    scopes: Vec<(Fields<'t>, Vec<Target>)>,
    /// The class, if a column shows its message.
    message: Option<Class<'t>>,
}

impl<'t> Bound<'t> {
    fn new(columns: &'t Columns, trace: &'t Trace, stream: usize, event: usize) -> Self {
        let mut targets = Targets { with_containers: true, ..Targets::default() };
        let count = columns.columns.len();
        let mut has_message = false;
        let mut of = Vec::new();
        let in_ticks = !trace.class().counts_nanoseconds();
        let class = (stream, event);
        let mut lookup = Lookup { trace, class, thread: count, targets: &mut targets };
        for (slot, column) in columns.columns.iter().enumerate() {
            of.push(match &column.kind {
                Kind::Time if in_ticks => Of::Ticks,
                Kind::Time => Of::Time,
                Kind::Delta if in_ticks => Of::DeltaOfTicks,
                Kind::Delta => Of::Delta,
                Kind::Ticks => Of::Ticks,
                Kind::Trace => Of::Text(escaped(trace.title().as_bytes())),
                Kind::Name(filter) => match found(filter, slot, &mut lookup) {
                    Of::None if column.name == SYSCALL => syscall(slot, &mut lookup),
                    Of::None => place(&column.name, trace, class),
                    found => found,
                },
                Kind::Field(filter) => {
                    let before = lookup.targets.of.each_ref().map(Vec::len);
                    let found = found(filter, slot, &mut lookup);
                    // Only a field of the payload counts.
                    let of = &mut lookup.targets.of;
                    let is_field = of[0].len() == before[0] && of[1].len() == before[1];
                    match (found, is_field) {
                        (Of::Field, true) => Of::Field,
                        _ => {
                            of.iter_mut().zip(before).for_each(|(of, before)| of.truncate(before));
                            Of::None
                        }
                    }
                }
                Kind::Message(filter) => {
                    // A kernel's text is in the context.
                    let is_there = |of: &Of<'_>| matches!(of, Of::Field);
                    let field = found(filter, slot, &mut lookup);
                    if is_there(&field) {
                        field
                    } else {
                        let text =
                            Filter::parse("$ctx.text").ok().filter(|_| trace.class().is_ftrace());
                        let text = text.map(|text| found(&text, slot, &mut lookup));
                        text.filter(is_there).unwrap_or_else(|| {
                            has_message = true;
                            Of::Message
                        })
                    }
                }
            });
        }
        let scope = |scope| scope_code(trace, scope, stream, event).map(columns::fields);
        // What only serves decoding has no text.
        for (which, of) in SCOPES.into_iter().zip(&mut targets.of) {
            let fields = scope(which);
            of.retain(|target| fields.as_ref().is_some_and(|fields| fields.shows(target.node)));
        }
        let mut scopes: Vec<(Fields<'t>, Vec<Target>)> = Vec::new();
        let last = if has_message {
            3
        } else {
            targets.of.iter().rposition(|of| !of.is_empty()).map_or(0, |at| at.saturating_add(1))
        };
        for (which, targets) in SCOPES.into_iter().zip(targets.of).take(last) {
            scopes.extend(scope(which).map(|fields| (fields, targets)));
        }
        let class = event_class(trace, class).filter(|_| has_message);
        let message = class
            .map(|class| columns::of_event(class, None, scope(Scope::Payload), b"", Form::Plain));
        Self { of, scopes, message }
    }
}

/// Finds the source of a name. `slot` is the position of its value.
fn found<'t>(filter: &Filter, slot: usize, lookup: &mut Lookup<'t, '_>) -> Of<'t> {
    let Some(name): Option<&Name> = filter.names().first() else { return Of::None };
    let number = |number: i64| {
        let mut text = Vec::new();
        signed(&mut text, number);
        Of::Text(text)
    };
    match lookup.name(name, slot) {
        Some(Source::Field) => Of::Field,
        Some(Source::Text(text)) => Of::Text(escaped(text.as_bytes())),
        Some(Source::Integer(value)) => number(value),
        Some(Source::Level(_, word)) => Of::Text(word.as_bytes().to_vec()),
        Some(Source::Cpu) => Of::Cpu,
        Some(Source::ThreadName(names)) => Of::ThreadName(names),
        None => Of::None,
    }
}

/// Finds the number of the system call in events that all calls share.
fn syscall<'t>(slot: usize, lookup: &mut Lookup<'t, '_>) -> Of<'t> {
    let trace = lookup.trace;
    let is_raw =
        event_class(trace, lookup.class).is_some_and(|class| is_raw_syscall(class.name.as_deref()));
    let (Some(machine), true) = (trace.class().text("machine"), is_raw) else { return Of::None };
    let Ok(number) = Filter::parse("id") else { return Of::None };
    match found(&number, slot, lookup) {
        Of::Field => Of::Syscall(machine),
        _ => Of::None,
    }
}

fn is_raw_syscall(name: Option<&str>) -> bool {
    matches!(name, Some("raw_syscalls:sys_enter" | "raw_syscalls:sys_exit"))
}

/// Returns the event class at these positions of a stream class and of an event class in it.
fn event_class(trace: &Trace, (stream, event): (usize, usize)) -> Option<&EventClass> {
    trace.class().streams.get(stream)?.events.get(event)
}

fn any_class(traces: &[Trace], is: impl Fn(&EventClass) -> bool) -> bool {
    let mut streams = traces.iter().flat_map(|trace| &trace.class().streams);
    streams.any(|stream| stream.events.iter().any(&is))
}

/// Returns the file or the line from which the events of a class come.
fn place<'t>(name: &str, trace: &Trace, class: (usize, usize)) -> Of<'t> {
    let Some(at) =
        event_class(trace, class).filter(|_| PLACE.contains(&name)).and_then(message::place)
    else {
        return Of::None;
    };
    let (file, line) = at.rsplit_once(':').unwrap_or((&at, ""));
    Of::Text(escaped(if name == "line" { line } else { file }.as_bytes()))
}

fn escaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    bare(&mut out, text);
    out
}

impl<'t> Lines<'t> {
    /// Reads the values of an event. Returns none if the event cannot be read.
    fn read(&mut self, facts: &StreamInfo, reader: &mut Reader<'_>, event: &Due) -> Option<()> {
        let trace = self.traces.get(facts.trace)?;
        let classes = self.classes.entry((facts.trace, facts.class)).or_default();
        if classes.len() <= event.class {
            classes.resize_with(event.class.saturating_add(1), || None);
        }
        let columns = self.columns;
        let bound = classes.get_mut(event.class)?;
        let bound = &**bound
            .get_or_insert_with(|| Box::new(Bound::new(columns, trace, facts.class, event.class)));
        for value in &mut self.values {
            value.text.clear();
            value.is_there = false;
        }
        let (program, decoder, part) = reader.parts();
        let mut at = event.body;
        self.values_of_message.clear();
        self.marks.clear();
        for (number, (fields, targets)) in bound.scopes.iter().enumerate() {
            let begin = at;
            let mut end = None;
            // Values may lie in each other, so that each has a pass of its own.
            for target in targets {
                let Some(value) = self.values.get_mut(target.slot).filter(|value| !value.is_there)
                else {
                    continue;
                };
                let values = Values::of_value(fields, &mut value.text);
                let mut one =
                    One { target, values, elements: Vec::new(), inside: 0, is_there: false };
                end = Some(program.visit(decoder, fields.code, &part, begin, &mut one).ok()?);
                value.is_there = one.is_there;
            }
            at = match end {
                Some(end) => end,
                None => program.visit(decoder, fields.code, &part, begin, &mut Ignore).ok()?,
            };
            // The payload is the last scope.
            let is_last = number.saturating_add(1) == bound.scopes.len();
            if let Some(class) = bound.message.as_ref().filter(|_| is_last)
                && let Some(payload) = &class.payload
            {
                let writing = Writing { out: &mut self.values_of_message, marks: &mut self.marks };
                let mut values = Values::of_payload(payload, class, writing);
                program.visit(decoder, payload.code, &part, begin, &mut values).ok()?;
            }
        }
        Some(())
    }

    /// Appends the columns of the event that was read.
    fn put(&mut self, facts: &StreamInfo, event: &Due, out: &mut Vec<u8>) -> Option<()> {
        let bound = &**self.classes.get(&(facts.trace, facts.class))?.get(event.class)?.as_ref()?;
        let class = self.traces.get(facts.trace)?.class();
        let clock =
            class.streams.get(facts.class).and_then(|stream| class.clocks.get(stream.clock?));
        let time = event.nanoseconds.filter(|_| clock.is_some());
        let is_absolute = clock.is_some_and(|clock| clock.origin == Origin::UnixEpoch);
        let delta = time.zip(self.previous).map(|(time, previous)| time.saturating_sub(previous));
        self.previous = time.or(self.previous);
        for (at, of) in bound.of.iter().enumerate() {
            if at > 0 {
                out.extend_from_slice(&self.columns.separator);
            }
            let begin = out.len();
            let thread = || {
                let id = self.values.last().filter(|value| value.is_there)?;
                std::str::from_utf8(&id.text).ok()?.parse::<i64>().ok()
            };
            let mut is_text = false;
            match of {
                Of::Time => match time {
                    Some(time) if is_absolute || self.time.is_relative() => {
                        self.time.put(time, out)
                    }
                    Some(time) => put_seconds(time, out),
                    None => {}
                },
                Of::Delta => delta.into_iter().for_each(|delta| put_seconds(delta, out)),
                Of::Ticks => unsigned(out, event.clock),
                Of::DeltaOfTicks => delta.into_iter().for_each(|delta| signed(out, delta)),
                Of::Cpu => facts.cpu.into_iter().for_each(|cpu| unsigned(out, cpu.into())),
                Of::Text(text) => {
                    is_text = true;
                    out.extend_from_slice(text);
                }
                Of::ThreadName(names) => {
                    let name = thread().and_then(|id| names.get(&id));
                    is_text = name.is_some();
                    name.into_iter().for_each(|name| bare(out, name.as_bytes()));
                }
                Of::Field => {
                    let value = self.values.get(at).filter(|value| value.is_there);
                    is_text = value.is_some();
                    value.into_iter().for_each(|value| out.extend_from_slice(&value.text));
                }
                Of::Syscall(machine) => {
                    let value = self.values.get(at).filter(|value| value.is_there);
                    let text = value.map_or("", |value| str::from_utf8(&value.text).unwrap_or(""));
                    let name = text.parse().ok().and_then(|number| syscalls::name(machine, number));
                    out.extend_from_slice(name.unwrap_or(text).as_bytes());
                }
                Of::Message => {
                    is_text = true;
                    let mut text = Vec::new();
                    if let Some(class) = &bound.message {
                        columns::message(&mut text, class, &self.values_of_message, &self.marks);
                    }
                    out.extend_from_slice(text.strip_prefix(b" ").unwrap_or(&text));
                }
                Of::None => {}
            }
            let is_used = out.len() > begin || is_text;
            self.is_used.get_mut(at).into_iter().for_each(|used| *used |= is_used);
            if is_used { self.quote(out, begin) } else { out.extend_from_slice(NONE) }
        }
        Some(())
    }

    /// Puts the value that begins at a position of a line into double quotes if it could be
    /// mistaken for something else.
    fn quote(&self, out: &mut Vec<u8>, begin: usize) {
        let value = out.get(begin..).unwrap_or_default();
        let separator = self.columns.separator.as_slice();
        let has_separator =
            !separator.is_empty() && value.windows(separator.len()).any(|part| part == separator);
        if !(has_separator || value.is_empty() || value == NONE || value.starts_with(b"\"")) {
            return;
        }
        let value = out.split_off(begin);
        out.push(b'"');
        for byte in value {
            // The backslash and control characters are escaped already.
            if byte == b'"' {
                out.push(b'\\');
            }
            out.push(byte);
        }
        out.push(b'"');
    }
}

impl Line for Lines<'_> {
    fn line(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due, out: &mut Vec<u8>) {
        let Some(facts) = self.streams.get(stream).cloned() else { return };
        // The reader has accepted the same bytes.
        if self.read(&facts, reader, event).is_some() && self.put(&facts, event, out).is_some() {
            out.push(b'\n');
        }
    }
}
