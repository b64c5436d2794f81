//! Writes events of applications as trace.dat: each kind of event becomes an event of a kernel's
//! tracer, with a format made of its fields.

use crate::say;
use anyhow::Context;
use lastwords_ctf::Totals;
use lastwords_ctf::read::{Trace, Watch, readers};
use lastwords_ftrace::Tracing;
use lastwords_ftrace::dat::made::{Head, Kind, Maker, Value};
use lastwords_render::events::Note;
use lastwords_render::iter::{self, Event, Events, Field, Order};
use lastwords_render::missing::count;
use lastwords_render::select::Selection;
use lastwords_render::streams::stream_infos;
use std::collections::HashMap;

/// The thread of events whose thread is not known; 0 is the idle thread.
const NO_THREAD: i32 = -1;

/// The names and types of the fields of an event.
type Shape = Vec<(String, Kind)>;

/// What a file of this format cannot hold.
#[derive(Debug, Default)]
struct Left {
    /// Events without a time, before the origin of the file's clock, or of more kinds than a file
    /// can have.
    events: u64,
    /// Events with texts that were cut, or in which bytes were replaced.
    changed: u64,
    /// Events that have the name of their thread as a field.
    renamed: u64,
}

/// Makes a tracer of the selected events. Returns it with the counts; events that it cannot hold as
/// they are were told on stderr, and are among the faults.
///
/// # Errors
/// The temporary file cannot be written.
pub(super) fn make(
    traces: &[Trace],
    selection: &Selection,
    watch: Watch<'_>,
    notes: &mut dyn FnMut(Note),
) -> anyhow::Result<(Tracing, Totals)> {
    let cpus = stream_infos(traces, &readers(traces)).into_iter().filter_map(|info| info.cpu);
    let mut making = Making {
        maker: Maker::new().context("a temporary file")?,
        formats: HashMap::new(),
        base: None,
        no_cpu: cpus.max().map_or(0, |cpu| cpu.saturating_add(1)),
        left: Left::default(),
    };
    let is_dated = |event: &Event| {
        let clock = traces.get(event.trace).and_then(|trace| trace.class().clocks.first());
        clock.is_some_and(|clock| clock.to_clock().absolute)
    };
    let mut events = Events::new(traces, selection, Order::Time, watch);
    loop {
        match events.advance() {
            Some(mut event) => {
                let event = event.to_event();
                making.add(&event, is_dated(&event)).context("a temporary file")?;
            }
            None => match events.fault() {
                Some(fault) => notes(Note::Fault(fault)),
                None => break,
            },
        }
    }
    let mut totals = events.finish(None, 0, notes)?;
    let Left { events, changed, renamed } = making.left;
    for (number, what) in [
        (
            events,
            "have no time that trace.dat can hold, or are of too many kinds for it, and are left out",
        ),
        (changed, "have texts that trace.dat cannot hold: they were cut, or bytes were replaced"),
        (
            renamed,
            "have the name of their thread in the field procname: the file has another for it, or none",
        ),
    ] {
        if number > 0 {
            say::warning(format_args!("{} {what}", count(number, "event")));
        }
    }
    totals.events = totals.events.saturating_sub(events);
    totals.faults = totals.faults.saturating_add(events).saturating_add(changed);
    let real_time = making.base.filter(|base| base.is_dated).map(|base| base.nanoseconds);
    Ok((making.maker.finish(real_time).context("a temporary file")?, totals))
}

/// What is subtracted from times, so that the file has readings of the clock where it counts
/// nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Base {
    nanoseconds: i64,
    is_dated: bool,
}

struct Making {
    maker: Maker,
    /// The format of each kind and shape that was met.
    formats: HashMap<(String, String, Shape), Option<u16>>,
    base: Option<Base>,
    /// The number under which events are that no CPU is known of.
    no_cpu: u32,
    left: Left,
}

impl Making {
    fn add(&mut self, event: &Event, is_dated: bool) -> std::io::Result<()> {
        let Some(time) = event.time else {
            self.left.events = self.left.events.saturating_add(1);
            return Ok(());
        };
        let base = *self.base.get_or_insert_with(|| Base::new(event, time, is_dated));
        let time = u64::try_from(time.saturating_sub(base.nanoseconds));
        let Ok(time) = time else {
            self.left.events = self.left.events.saturating_add(1);
            return Ok(());
        };
        let (mut shape, mut values) = (Shape::new(), Vec::new());
        let mut is_changed = false;
        let level = event.kind.level.map(|level| level.name().to_owned());
        let level = level.map(|name| ("level".to_owned(), iter::Value::Text(name.into_bytes())));
        let pid = event.pid.map(|pid| ("pid".to_owned(), iter::Value::Signed(pid)));
        for Field { name, is_hexadecimal, value } in event.fields.iter().chain(&event.contexts) {
            is_changed |= push(name, *is_hexadecimal, value, &mut shape, &mut values);
        }
        for (name, value) in [pid, level].into_iter().flatten() {
            is_changed |= push(&name, false, &value, &mut shape, &mut values);
        }
        let tid = event.tid.and_then(|tid| i32::try_from(tid).ok()).unwrap_or(NO_THREAD);
        if let Some(comm) = &event.comm
            && !self.maker.name_thread(tid, comm)
        {
            let own = iter::Value::Text(comm.clone().into_bytes());
            is_changed |= push("procname", false, &own, &mut shape, &mut values);
            self.left.renamed = self.left.renamed.saturating_add(1);
        }
        let system = event.kind.provider.clone().unwrap_or_else(|| event.kind.channel.clone());
        let key = (system, event.kind.name.clone(), shape);
        let maker = &mut self.maker;
        let format = self
            .formats
            .entry(key)
            .or_insert_with_key(|(system, name, shape)| maker.format(system, name, shape));
        let Some(format) = *format else {
            self.left.events = self.left.events.saturating_add(1);
            return Ok(());
        };
        let cpu = event.cpu.unwrap_or(self.no_cpu);
        let is_whole = maker.add(Head { cpu, time, format, tid }, &values)?;
        let changed = u64::from(is_changed || !is_whole);
        self.left.changed = self.left.changed.saturating_add(changed);
        Ok(())
    }
}

impl Base {
    /// Takes the first event of a trace. If the clock is related to real time, times are since the
    /// epoch: the distance of the clock's readings from them is the base, in whole microseconds as
    /// the file has it.
    fn new(event: &Event, time: i64, is_dated: bool) -> Self {
        let reading = i64::try_from(event.ticks).unwrap_or(0);
        let between = time.saturating_sub(reading).max(0);
        let whole = between.saturating_sub(between.checked_rem(1000).unwrap_or(0));
        Self { nanoseconds: if is_dated { whole } else { 0 }, is_dated }
    }
}

/// Appends a field. Returns true if its text was changed. An absent field is left out.
fn push(
    name: &str,
    is_hexadecimal: bool,
    value: &iter::Value,
    shape: &mut Shape,
    values: &mut Vec<Value>,
) -> bool {
    let (kind, value) = match value {
        iter::Value::Absent => return false,
        iter::Value::Unsigned(number) if is_hexadecimal => {
            (Kind::Hexadecimal, Value::Number(*number))
        }
        iter::Value::Unsigned(number) => (Kind::Unsigned, Value::Number(*number)),
        iter::Value::Signed(number) => (Kind::Signed, Value::Number(number.cast_unsigned())),
        other => (Kind::Text, Value::Text(other.to_string())),
    };
    let mut is_changed = false;
    let value = match value {
        Value::Text(text) if text.contains('\0') => {
            is_changed = true;
            Value::Text(text.replace('\0', "\u{fffd}"))
        }
        other => other,
    };
    shape.push((name.to_owned(), kind));
    values.push(value);
    is_changed
}
