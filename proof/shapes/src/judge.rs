//! Judges whether the recovered events are the recorded ones: every value is computed anew from the
//! event's number.

use std::collections::HashMap;
use std::ops::Range;

use anyhow::{Context as _, Result, bail, ensure};

use super::form::{Form, revealed};
use super::found::{Event, Found, built_in};
use super::shape::{Format, Shape, class_of};
use super::value::{Value, key};

/// Two threads, and a signal handler on each.
pub(super) const WRITERS: usize = 4;
/// Bytes of the longest event header.
const HEADER: u64 = 18;

/// The report in a program's page.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    /// Events whose calls returned, by writer.
    pub(super) returned: [u64; WRITERS],
    /// Events whose calls began.
    pub(super) begun: [u64; WRITERS],
    pub(super) pid: u32,
    pub(super) tids: [u64; 2],
    /// CPUs to which the threads are bound.
    pub(super) cpus: [Option<u32>; 2],
    /// Events that the recorder counts as lost.
    pub(super) lost: u64,
    /// Sub-buffers that a lockless ring passed over, because a recorder lived in their older lap:
    /// that lap is still read.
    pub(super) skipped: u64,
}

/// Figures of what was judged.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) events: u64,
    pub(super) values: u64,
    pub(super) refused: u64,
}

/// An event whose values are right.
#[derive(Debug, Clone, Copy)]
struct Known {
    number: u64,
    /// Its place among all events that were found.
    place: usize,
    /// Bytes that it takes, with the longest header.
    bytes: u64,
    /// CPU of its ring, where it is known.
    ring: Option<u32>,
}

/// Judges all events of a shape.
pub(super) fn judge(
    shape: &Shape,
    format: Format,
    events: &[Event],
    report: &Report,
) -> Result<Sum> {
    let mut sum = Sum { events: events.len() as u64, ..Sum::default() };
    let mut known: [Vec<Known>; WRITERS] = Default::default();
    let mut unnumbered = 0;
    let mut bytes = [0u64; 2];
    for (place, event) in events.iter().enumerate() {
        let class = &shape.classes[event.class];
        let Some(at) = class.number else {
            unnumbered += 1;
            continue;
        };
        let (name, found) = event.fields.get(at).context("the field of the number is missing")?;
        let found_number =
            found.integer().and_then(|found| revealed(&class.fields[at].form, shape.seed, found));
        let (writer, number) = found_number.with_context(|| {
            format!(
                "INVENTED: class {}, field {name} holds the number of no event: {found:?}",
                event.class
            )
        })?;
        let shown = || format!("class {}, writer {writer}, event {number}", event.class);
        let of_class = class_of(shape.seed, number, shape.classes.len() as u64);
        ensure!(of_class == event.class as u64, "INVENTED: {}: it is of class {of_class}", shown());
        ensure!(
            number < report.begun[writer as usize],
            "INVENTED: {}: {:?} began",
            shown(),
            report.begun
        );
        let size = check(shape, format, event, writer, number, report).with_context(shown)?;
        sum.values += class.fields.len() as u64;
        bytes[writer as usize / 2] += size + HEADER;
        let ring = report.cpus[writer as usize / 2].or(event.cpu);
        known[writer as usize].push(Known { number, place, bytes: size + HEADER, ring });
    }
    order(shape, format, events, report, &known, &mut sum)?;
    if !shape.discard && shape.pinned {
        few_evicted(shape, report, &known, bytes)?;
        if report.skipped == 0 {
            without_numbers(shape, report, &known, unnumbered)?;
        }
    }
    Ok(sum)
}

/// Compares fields and contexts; the bytes that they took.
fn check(
    shape: &Shape,
    format: Format,
    event: &Event,
    writer: u64,
    number: u64,
    report: &Report,
) -> Result<u64> {
    let rust = shape.language.is_rust();
    let key = key(shape.seed, writer, number);
    let own = &shape.classes[event.class].fields;
    ensure!(
        own.len() == event.fields.len(),
        "{} fields, expected {}",
        event.fields.len(),
        own.len()
    );
    let mut bytes = 0;
    for (at, (field, (name, found))) in own.iter().zip(&event.fields).enumerate() {
        ensure!(
            field.name == *name || is_quoted_name(format, &field.name, name),
            "field {at}: it is called {name}, expected {}",
            field.name
        );
        let expected = field.form.value(rust, key, at as u64);
        bytes += size_of(&field.form, &expected);
        if !matches!(field.form, Form::Number { .. }) && !found.is(&expected, format) {
            bail!(
                "WRONG VALUE: field {at} ({}: {:?}):\nexpected {expected:?}\nfound    {found:?}",
                field.name,
                field.form
            );
        }
    }
    Ok(bytes + contexts(shape, format, event, writer, key, report).context("contexts")?)
}

/// A reader of CTF 1.8 may show a name without the `_` that it begins with.
fn is_quoted_name(format: Format, name: &str, found: &str) -> bool {
    format == Format::Ctf && name.trim_start_matches('_') == found.trim_start_matches('_')
}

/// Compares the contexts that the format shows.
fn contexts(
    shape: &Shape,
    format: Format,
    event: &Event,
    writer: u64,
    key: u64,
    report: &Report,
) -> Result<u64> {
    let thread = writer as usize / 2;
    let mut names: Vec<&str> = built_in(shape);
    let own = names.iter().map(|name| if *name == "procname" { 16 } else { 4 }).sum::<u64>();
    if format == Format::Text {
        // The columns show the thread; of the CPU they show the stream's.
        names.retain(|name| *name != "cpu");
    }
    names.extend(shape.user_contexts.iter().map(|field| field.name.as_str()));
    let mut bytes = own;
    if format == Format::Pages {
        // A record has the thread alone, or 0 in its place.
        let has_thread = names.contains(&"vtid");
        bytes += shape.user_contexts.iter().map(|field| field.form.most()).sum::<u64>();
        names.retain(|name| *name == "vtid");
        let is_none = event.contexts == [("vtid".to_owned(), Found::Integer(0))];
        if !has_thread && is_none {
            return Ok(bytes);
        }
    }
    ensure!(
        names.len() == event.contexts.len(),
        "{:?} are there, expected {names:?}",
        event.contexts
    );
    for name in names {
        let found = event.contexts.iter().find(|(other, _)| other == name);
        let (_, found) =
            found.with_context(|| format!("{name} is missing: {:?}", event.contexts))?;
        let number = found.integer();
        let is_right = match name {
            "vpid" => number == Some(i128::from(report.pid)),
            "vtid" => number == Some(i128::from(report.tids[thread])),
            "procname" => *found == Found::Text(format!("shape \u{e9} {thread}").into_bytes()),
            "cpu" => match report.cpus[thread] {
                Some(cpu) => number == Some(i128::from(cpu)),
                None => number.is_some_and(|cpu| (0..4096).contains(&cpu)),
            },
            _ => {
                let place = shape
                    .user_contexts
                    .iter()
                    .position(|field| field.name == name)
                    .context("a context")?;
                let form = &shape.user_contexts[place].form;
                let expected = form.value(shape.language.is_rust(), key, 100 + place as u64);
                bytes += size_of(form, &expected);
                ensure!(
                    found.is(&expected, format),
                    "WRONG VALUE: {name}: {form:?}:\nexpected {expected:?}\nfound    {found:?}"
                );
                true
            }
        };
        ensure!(is_right, "WRONG VALUE: {name}: {found:?}, reported {report:?}");
    }
    if let (Some(found), Some(expected)) = (event.cpu, report.cpus[thread]) {
        ensure!(found == expected, "it is in the stream of CPU {found}, recorded on {expected}");
    }
    Ok(bytes)
}

/// Bytes of a value in an event.
fn size_of(form: &Form, value: &Value) -> u64 {
    match (form, value) {
        (Form::Padded { .. }, _) => form.most(),
        (_, Value::Text(text)) => text.len() as u64 + 1,
        (Form::Bytes { .. }, Value::Bytes(bytes)) => 4 + bytes.len() as u64,
        (Form::Sequence { of, .. }, Value::List(list)) => 4 + list.len() as u64 * of.bytes(),
        (Form::Standard { .. }, Value::List(list)) => 4 + 8 * list.len() as u64,
        _ => form.most(),
    }
}

/// Events of a writer that are missing.
struct Gap {
    writer: usize,
    numbers: Range<u64>,
    /// Number of events that would be known by a number.
    count: u64,
    /// The event of the writer before them, if there is one.
    behind: Option<Known>,
}

impl Gap {
    /// Returns true if the events were evicted in their turn, and the older events before them were
    /// kept in sub-buffers that a lockless ring passed over. All events up to the gap must fit in
    /// such sub-buffers: one for each other recorder of the ring, and not more than
    /// the ring counts.
    fn is_of_passing_over(
        &self,
        shape: &Shape,
        report: &Report,
        known: &[Vec<Known>; WRITERS],
    ) -> bool {
        let Some(behind) = self.behind.filter(|_| report.skipped > 0) else { return false };
        let older = known
            .iter()
            .flatten()
            .filter(|event| event.ring == behind.ring && event.place <= behind.place);
        // A header may be shorter than the longest.
        let kept: u64 = older.map(|event| event.bytes - HEADER).sum();
        kept <= report.skipped.min(WRITERS as u64 - 1) * shape.sub_buffer_size
    }
}

/// Each writer's events: in order, none twice, none missing but the oldest.
fn order(
    shape: &Shape,
    format: Format,
    events: &[Event],
    report: &Report,
    known: &[Vec<Known>; WRITERS],
    sum: &mut Sum,
) -> Result<()> {
    // From this place on, every ring has what was recorded.
    let mut firsts: HashMap<Option<u32>, usize> = HashMap::new();
    for (place, event) in events.iter().enumerate() {
        firsts.entry(event.cpu).or_insert(place);
    }
    let since = match (shape.pinned, format) {
        (true, _) => 0,
        (false, Format::Perfetto) => usize::MAX,
        (false, _) => firsts.values().copied().max().unwrap_or(0),
    };
    let mut gaps = Vec::new();
    let has_number = |number: &u64| {
        let class = class_of(shape.seed, *number, shape.classes.len() as u64);
        shape.classes[class as usize].number.is_some()
    };
    for (writer, known) in known.iter().enumerate() {
        let mut gap = |older: Option<&Known>, from: u64, to: u64| {
            let count = (from..to).filter(has_number).count() as u64;
            gaps.push(Gap { writer, numbers: from..to, count, behind: older.copied() });
        };
        for pair in known.windows(2) {
            let [older, newer] = pair else { continue };
            ensure!(
                older.number < newer.number,
                "ORDER: writer {writer}: {} comes behind {}",
                newer.number,
                older.number
            );
            if shape.discard || older.place >= since {
                gap(Some(older), older.number + 1, newer.number);
            }
        }
        let returned = report.returned[writer];
        match known.last() {
            Some(newest) if shape.discard || newest.place >= since => {
                gap(Some(newest), newest.number + 1, returned)
            }
            None if shape.discard => gap(None, 0, returned),
            None if writer == 0 && shape.threads == 1 => gap(None, 0, returned.min(1)),
            _ => {}
        }
        if let Some(oldest) = known.first().filter(|_| shape.discard) {
            gap(None, 0, oldest.number);
        }
    }
    gaps.retain(|gap| gap.count > 0 && !gap.is_of_passing_over(shape, report, known));
    let missing = gaps.iter().map(|gap| gap.count).sum();
    sum.refused = missing;
    ensure!(
        missing <= report.lost,
        "LOST: {missing} committed events are missing, first {}; the recorder counts {} lost and passed over {} times",
        gaps.first().map_or_else(String::new, |gap| format!(
            "events {:?} of writer {}",
            gap.numbers, gap.writer
        )),
        report.lost,
        report.skipped
    );
    // What was not recorded in discard mode is told, but for classes without a number and calls
    // that were under way.
    if shape.discard && shape.classes.iter().all(|class| class.number.is_some()) {
        ensure!(
            report.lost <= missing + WRITERS as u64,
            "the recorder counts {} lost events, {missing} are missing",
            report.lost
        );
    }
    Ok(())
}

/// Where events were evicted, the rings are full of newer ones.
fn few_evicted(
    shape: &Shape,
    report: &Report,
    known: &[Vec<Known>; WRITERS],
    bytes: [u64; 2],
) -> Result<()> {
    let same = report.cpus[0] == report.cpus[1];
    for thread in 0..shape.threads {
        let writers = if same { 0..WRITERS } else { thread * 2..thread * 2 + 2 };
        let kept = if same { bytes[0] + bytes[1] } else { bytes[thread] };
        let has_evicted = |writer: usize| match known[writer].first() {
            Some(first) => first.number >= shape.classes.len() as u64,
            None => report.returned[writer] > shape.classes.len() as u64,
        };
        let evicted = report.skipped == 0 && writers.clone().any(has_evicted);
        let largest =
            shape.classes.iter().map(|class| class.most()).max().unwrap_or(0) + 192 + 2 * HEADER;
        let of_one = shape.sub_buffer_size.saturating_sub(100 + largest);
        let least = of_one * u64::from(shape.sub_buffers - 1) / 2;
        ensure!(
            !evicted || kept >= least,
            "EVICTED TOO MUCH: thread {thread} has {kept} bytes left of {} x {}, expected {least} at least",
            shape.sub_buffers,
            shape.sub_buffer_size
        );
    }
    Ok(())
}

/// Events without fields are counted: those between others of their writer must be there.
fn without_numbers(
    shape: &Shape,
    report: &Report,
    known: &[Vec<Known>; WRITERS],
    found: u64,
) -> Result<()> {
    let without = |number: u64| {
        let class = class_of(shape.seed, number, shape.classes.len() as u64);
        shape.classes[class as usize].number.is_none()
    };
    let (mut least, mut most) = (0, 0);
    for (writer, known) in known.iter().enumerate() {
        let (Some(first), Some(last)) = (known.first(), known.last()) else {
            most += (0..report.begun[writer]).filter(|number| without(*number)).count() as u64;
            continue;
        };
        let between = (first.number..last.number).filter(|number| without(*number)).count() as u64;
        least += between;
        most += between;
        most += (0..first.number).rev().take_while(|number| without(*number)).count() as u64;
        most += (last.number + 1..report.begun[writer])
            .take_while(|number| without(*number))
            .count() as u64;
    }
    ensure!(
        (least.saturating_sub(report.lost)..=most).contains(&found),
        "{found} events without fields, expected {least} to {most}"
    );
    Ok(())
}
