//! Reads histograms out of a kernel's memory: the triggers `hist:keys=…` of the events of all trace
//! arrays, with their rows.
//!
//! A trace array lists the files of its events (`struct trace_event_file`), each of which lists the
//! event's triggers (`struct event_trigger_data`). A histogram's trigger has fields, which name its
//! keys and values, and a table. What the image lacks costs only itself: the word `unknown` is in
//! its place, and the account has the loss.

mod field;
mod hash;
#[cfg(test)]
mod made;
mod map;
mod rows;
mod trigger;

use super::arrays;
use super::formats::NameFlags;
use crate::histogram::Histogram;
use crate::print::Names;
use crate::{HeaderPage, Tracing, UNKNOWN};
use field::Bits;
use lastwords_bytes::Error as BytesError;
use lastwords_kernel::{Error, Kernel, Object};
use lastwords_trace::evidence::{Evidence, Gap};
use map::Map;
use rows::Context;
use std::collections::HashSet;
use std::sync::Arc;
use trigger::{Kind, Trigger};

/// The histograms of a kernel.
#[derive(Debug, Default)]
pub struct Histograms {
    /// The histograms: those of the top level first, then those of the instances.
    pub histograms: Vec<Histogram>,
    /// The parts that could not be read.
    pub evidence: Evidence,
}

/// Reads the histograms of a kernel.
#[must_use]
pub fn histograms(kernel: &Arc<Kernel>) -> Histograms {
    let mut read = Histograms::default();
    let gaps = &mut read.evidence.gaps;
    let places = places(kernel, gaps);
    if places.is_empty() {
        return read;
    }
    let bits = Bits::new(kernel);
    let stack = stack_name(kernel);
    let mut context =
        Context { kernel, names: Names::new(&tracing(kernel), false), system_calls: None };
    let from_zero = places.iter().find_map(|place| {
        let data = place.trigger.address("private_data").ok()?;
        let map = kernel.object("hist_trigger_data", data).ok()?.pointer("map").ok()?;
        Map::counts_from_zero(kernel, map)
    });
    let form = (bits, stack, from_zero.unwrap_or_default());
    for place in places {
        match histogram(&mut context, &place, form, gaps) {
            Ok(histogram) => read.histograms.push(histogram),
            Err(error) => gaps.push(lost(&place.words(), &error)),
        }
    }
    read
}

/// Counts the histograms of a kernel. The gaps tell where there may be more.
#[must_use]
pub fn count_histograms(kernel: &Kernel) -> (usize, Vec<Gap>) {
    let mut gaps = Vec::new();
    (places(kernel, &mut gaps).len(), gaps)
}

/// The place of a histogram.
struct Place<'k> {
    instance: String,
    event: String,
    trigger: Object<'k>,
}

impl Place<'_> {
    fn words(&self) -> String {
        match self.instance.as_str() {
            "" => format!("the histogram of {}", self.event),
            name => format!("the histogram of {} in instance {name}", self.event),
        }
    }
}

/// Lists the triggers that are histograms.
fn places<'k>(kernel: &'k Kernel, gaps: &mut Vec<Gap>) -> Vec<Place<'k>> {
    let mut evidence = Evidence::default();
    let arrays = kernel.symbol("global_trace").and_then(|top| {
        let (arrays, _) = arrays::addresses(kernel, top, &mut evidence)?;
        Ok((top, arrays))
    });
    gaps.append(&mut evidence.gaps);
    let (top, arrays) = match arrays {
        Ok(arrays) => arrays,
        Err(error) => {
            gaps.push(lost("the list of histograms", &error));
            return Vec::new();
        }
    };
    let (flags, kind) = (NameFlags::from_kernel(kernel), kernel.types.enum_value("ETT_EVENT_HIST"));
    // A kernel without the type has no histograms.
    let Some(kind) = kind.map(i64::cast_unsigned) else { return Vec::new() };
    let mut places = Vec::new();
    for address in arrays {
        let instance = match address == top {
            true => String::new(),
            false => {
                let name =
                    kernel.object("trace_array", address).and_then(|array| text(&array, "name"));
                name.unwrap_or_else(|error| {
                    gaps.push(Gap::not_known(None, &format!("the name of an instance: {error}")));
                    UNKNOWN.to_owned()
                })
            }
        };
        let files = kernel.object("trace_array", address).and_then(|array| array.at("events"));
        let files = files.map(|files| files.place());
        let of_instance = match instance.as_str() {
            "" => String::new(),
            name => format!(" of instance {name}"),
        };
        let what = format!("the events{of_instance}");
        for file in entries(kernel, files, ("trace_event_file", "list"), &what, gaps) {
            let head = file.at("triggers").map(|head| head.place());
            // Most events have no trigger, and their names are not needed.
            let what = format!("the triggers of an event{of_instance}");
            for trigger in entries(kernel, head, ("event_trigger_data", "list"), &what, gaps) {
                let event = event(&file, &flags).unwrap_or_else(|error| {
                    gaps.push(lost("the event of a trigger", &error));
                    UNKNOWN.to_owned()
                });
                match trigger.pointer("cmd_ops").and_then(|kind| kind.u64("trigger_type")) {
                    // A page that reads as zero has no kind.
                    Ok(0) => {
                        let error = damaged(&trigger, 0, "the kind of a trigger");
                        gaps.push(lost(&format!("a trigger of {event}"), &error));
                    }
                    Ok(own) if own == kind => {
                        places.push(Place { instance: instance.clone(), event, trigger });
                    }
                    Ok(_) => {}
                    Err(error) => gaps.push(lost(&format!("a trigger of {event}"), &error)),
                }
            }
        }
    }
    places
}

fn event(file: &Object<'_>, flags: &NameFlags) -> Result<String, Error> {
    let call = file.pointer("event_call")?;
    let (system, name) = (call.pointer("class")?.text("system")?, flags.name(&call)?);
    if system.is_empty() || name.is_empty() {
        return Err(damaged(&call, 0, "the name of an event"));
    }
    Ok(format!("{system}:{name}"))
}

/// Reads the entries of a list. If it has a hole, those behind it are found from the end.
fn entries<'k>(
    kernel: &'k Kernel,
    head: Result<u64, Error>,
    of: (&str, &str),
    what: &str,
    gaps: &mut Vec<Gap>,
) -> Vec<Object<'k>> {
    let (found, hole) = head
        .and_then(|head| kernel.entries(head, of.0, of.1))
        .unwrap_or_else(|error| (Vec::new(), Some(error)));
    if let Some(error) = hole {
        gaps.push(Gap {
            events: None,
            ..lost(&format!("histograms, because {what} have a hole"), &error)
        });
    }
    found
}

fn histogram<'k>(
    context: &mut Context<'k>,
    place: &Place<'k>,
    (bits, stack, from_zero): (Bits, &str, bool),
    gaps: &mut Vec<Gap>,
) -> Result<Histogram, Error> {
    let kernel = context.kernel;
    let trigger = Trigger::new(kernel, place.trigger, bits, stack)?;
    let map = Map::new(kernel, trigger.data.pointer("map")?, from_zero)?;
    let mut unknown = |error: &Error, what: &str| {
        gaps.push(Gap::not_known(None, &format!("{what} of {}: {error}", place.words())));
    };
    for field in trigger.fields() {
        field.missing.iter().for_each(|error| unknown(error, "the name of a field"));
    }
    let mut part = |text: Result<String, Error>| {
        text.unwrap_or_else(|error| {
            unknown(&error, "a part of the trigger");
            UNKNOWN.to_owned()
        })
    };
    let text = trigger.head(&mut part) + &trigger.tail(&mut part);
    let state = part(trigger.state().map(str::to_owned));
    if trigger.actions.iter().any(|action| action.kind == Kind::Snapshot) {
        let fact = format!("whether the action of {} took a snapshot", place.words());
        gaps.push(Gap::not_known(None, &fact));
    }
    let entries = map.entries(trigger.sums().len());
    for (error, rows) in &entries.lost {
        let what = match rows {
            Some(1) => format!("a row of {}", place.words()),
            Some(rows) => format!("{rows} rows of {}", place.words()),
            None => format!("rows of {}", place.words()),
        };
        gaps.push(Gap { events: rows.map(|_| 0), ..lost(&what, error) });
    }
    let is_whole = entries.lost.is_empty();
    let made = context.rows(&trigger, &map, entries);
    // A page has many of one kind.
    let mut told = HashSet::new();
    for error in made.missing {
        let message = format!("a part of a row of {}: {error}", place.words());
        if told.insert(message.clone()) {
            gaps.push(Gap::not_known(None, &message));
        }
    }
    let rows = made.rows;
    Ok(Histogram {
        instance: place.instance.clone(),
        event: place.event.clone(),
        trigger: text,
        state,
        entries: if is_whole { rows.len() as u64 } else { map.claimed.max(rows.len() as u64) },
        rows,
        hits: map.hits,
        dropped: map.dropped,
    })
}

/// The name of a stack that is a key. Linux 6.3 made stacks fields of events, and renamed it then
/// (from 6.3.5 on).
fn stack_name(kernel: &Kernel) -> &'static str {
    match kernel.types.enum_value("HIST_FIELD_FN_STACK") {
        Some(_) => "common_stacktrace",
        None => "stacktrace",
    }
}

/// A tracer without events, for the names of addresses.
fn tracing(kernel: &Arc<Kernel>) -> Tracing {
    let header = HeaderPage::of_word_size(kernel.memory.word_size());
    Tracing {
        symbols: Arc::new(super::names::Names::new(kernel.clone())),
        ..Tracing::from_uname("", header, kernel.memory.byte_order())
    }
}

/// The error of a value that a structure of the kernel does not have.
fn damaged(object: &Object<'_>, value: u64, expected: &str) -> Error {
    BytesError::value(&object.type_name(), object.place(), value, expected).into()
}

/// The text of a member that is never empty: empty is of a page that reads as zero.
fn text(object: &Object<'_>, path: &str) -> Result<String, Error> {
    match object.text(path)? {
        text if text.is_empty() => Err(damaged(object, 0, &format!("a text as {path}"))),
        text => Ok(text),
    }
}

/// Returns the gap of something that cannot be read. It costs no event.
fn lost(what: &str, error: &Error) -> Gap {
    lastwords_kernel::lost(what, error).with_events(Some(0))
}

#[cfg(test)]
mod tests {
    use super::made::{BASE, Made, Types};
    use super::*;

    const HEAD: u64 = BASE;
    const TOP: u64 = BASE + 0x100;
    const OTHER: u64 = BASE + 0x200;
    const FILE: u64 = BASE + 0x300;
    const TRIGGER: u64 = BASE + 0x400;
    const KIND: u64 = BASE + 0x500;
    const NAME: u64 = BASE + 0x1000;
    const TYPES: Types = Types {
        structures: "list_head 16: void* next@0, void* prev@8
             trace_array 40: list_head list@0, char* name@16, list_head events@24
             trace_event_file 32: list_head list@0, list_head triggers@16
             event_command 8: u64 trigger_type@0
             event_trigger_data 24: list_head list@0, event_command* cmd_ops@16",
        enumerations: &[("event_trigger_type", &[("ETT_EVENT_HIST", 64)])],
    };

    /// An instance with one event that has a trigger `hist`.
    fn made() -> Made {
        let mut made = Made::new(0x2000);
        // The arrays: the one of all events, and the instance.
        for (at, next, before) in [(HEAD, TOP, OTHER), (TOP, OTHER, HEAD), (OTHER, HEAD, TOP)] {
            made.put(at, next);
            made.put(at + 8, before);
        }
        made.put(OTHER + 16, NAME);
        made.text(NAME, b"h4\0");
        let list = |made: &mut Made, head: u64, entry: u64| {
            let links =
                if entry == 0 { vec![(head, head)] } else { vec![(head, entry), (entry, head)] };
            for (at, other) in links {
                made.put(at, other);
                made.put(at + 8, other);
            }
        };
        list(&mut made, TOP + 24, 0);
        list(&mut made, OTHER + 24, FILE);
        list(&mut made, FILE + 16, TRIGGER);
        made.put(TRIGGER + 16, KIND);
        made.put(KIND, 64);
        made
    }

    /// The name of an instance that reads as zero is not known, and not the one of all events; a
    /// trigger whose kind reads as zero is none of another kind.
    #[test]
    fn what_reads_as_zero_is_not_known() {
        let symbols = [(HEAD, "ftrace_trace_arrays"), (TOP, "global_trace")];
        let read = |made: &Made| {
            let kernel = made.kernel(&TYPES, &symbols);
            let mut gaps = Vec::new();
            let places = places(&kernel, &mut gaps);
            let names: Vec<String> = places.into_iter().map(|place| place.instance).collect();
            (names, gaps.into_iter().map(|gap| gap.place).collect::<Vec<_>>())
        };
        let (names, of_whole) = read(&made());
        assert_eq!(names, ["h4"]);
        let mut nameless = made();
        nameless.zero(NAME, 0x1000);
        let (names, gaps) = read(&nameless);
        assert_eq!(names, [UNKNOWN]);
        let of_name = |gaps: &[String]| {
            gaps.iter().filter(|gap| gap.contains("the name of an instance")).count()
        };
        assert_eq!((of_name(&of_whole), of_name(&gaps)), (0, 1), "{gaps:?}");
        let mut kindless = made();
        kindless.zero(KIND, 8);
        let (names, gaps) = read(&kindless);
        assert!(names.is_empty() && gaps.len() == of_whole.len() + 1, "{gaps:?}");
        assert!(gaps.iter().any(|gap| gap.contains("a trigger of")), "{gaps:?}");
        // The first event of the instance leads nowhere.
        let mut cut = made();
        cut.put(OTHER + 24, 0);
        let (_, gaps) = read(&cut);
        let told = "histograms, because the events of instance h4 have a hole: ";
        assert!(gaps.iter().any(|gap| gap.contains(told)), "{gaps:?}");
    }

    /// Names of system calls: one that is missing because the list is not whole is not what the kernel
    /// has no name for.
    #[test]
    fn a_system_call_that_may_be_missing_is_not_unknown_to_the_kernel() {
        let kernel = Arc::new(made().kernel(&TYPES, &[]));
        let missing = kernel.symbol("none").unwrap_err();
        let name = |missing: Option<Error>, number: u64| {
            let names = Names::new(&tracing(&kernel), false);
            let known = [(1, "write".to_owned())].into();
            let system_calls = Some((known, missing));
            Context { kernel: &kernel, names, system_calls }.system_call(number)
        };
        assert_eq!(name(Some(missing.clone()), 1).unwrap(), "write");
        assert!(name(Some(missing), 2).is_err());
        assert_eq!(name(None, 2).unwrap(), "unknown_syscall");
    }
}
