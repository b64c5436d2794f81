//! Reads the events of traces into columns and slices.

use crate::blocks::Blocks;
use crate::classes::{Class, Kind, prepare};
use crate::collected::{Collected, Columns, FilterFacts, LogRow, Options};
use crate::gaps::Gaps;
use crate::machines::{machines, processes};
use crate::names::{Cpu, NONE, Names, Owner};
use crate::scheduling::{CallId, Scheduling};
use crate::shapes::Shapes;
use crate::slices::{Begun, NO_BEGIN, Slices, SpanEnd, SpanOf, UNSURE};
use crate::span_lanes::SpanLanes;
use lastwords_ctf::read::{Due, Loss, Reader, Trace, Watch};
use lastwords_render::events::{self, Note, Take};
use lastwords_render::json::Fields;
use lastwords_render::meaning::Meaning;
use lastwords_render::missing::{Edge, StreamKey};
use lastwords_render::picks::{Number, Picked, Picking, Words};
use lastwords_render::select::Selection;
use lastwords_render::spans::Step;
use lastwords_render::streams::{StreamInfo, channel};
use lastwords_render::{Result, Totals};
use std::collections::HashMap;
use std::rc::Rc;

/// Most lines of a kernel's log that the page lists.
const MAX_LOG: usize = 1 << 15;

/// Reads the selected events of `traces`, merged by time. Errors of reading go to `notes`. `watch`
/// receives the number of bytes that were read. Returns the events, and the totals for the account.
///
/// # Errors
/// The traces cannot be read together.
pub fn collect(
    traces: &[Trace],
    selection: &Selection,
    options: &Options,
    watch: Watch<'_>,
    notes: &mut dyn FnMut(Note),
) -> Result<(Collected, Totals)> {
    let mut collector = Collector::new(traces, selection, options);
    let bytes = traces.iter().map(Trace::bytes).fold(0, u64::saturating_add);
    // Counting the events first is much faster than taking those that the page then drops.
    let is_large = bytes.checked_div(SMALL).is_some_and(|most| most > options.limit);
    let last = selection.last.unwrap_or(u64::MAX);
    let newest = Selection { last: Some(last.min(options.limit)), ..selection.clone() };
    let wanted = if is_large { &newest } else { selection };
    let mut totals = events::take(traces, wanted, watch, &mut collector, notes)?;
    totals.events = totals.events.min(last);
    Ok((collector.finish(totals.events, options), totals))
}

/// Number of bytes that are taken for an event, where it is judged whether there may be too many.
const SMALL: u64 = 4;

/// The key of an event class: the positions of trace, stream class and event class.
type ClassKey = (usize, usize, usize);

struct Collector<'t> {
    traces: &'t [Trace],
    /// The machine of each trace, and their names.
    machine_of: Vec<u32>,
    machines: Vec<String>,
    /// The process that created each session, for events that do not name theirs.
    creators: Vec<Option<i64>>,
    /// The names of threads that the properties of each trace have.
    thread_names: Vec<HashMap<i64, &'t str>>,
    tgids: HashMap<(u32, i64), i64>,
    classes: HashMap<ClassKey, Rc<Class<'t>>>,
    kinds: Vec<Kind>,
    shapes: Shapes,
    names: Names,
    columns: Columns,
    dropped: u64,
    limit: usize,
    slices: Slices,
    scheduling: Scheduling,
    spans: SpanLanes,
    gaps: Gaps,
    blocks: Blocks,
    log: Vec<LogRow>,
    /// The time since which each stream has all its events: its first event, or the end of its
    /// last loss. None while events are missing.
    begins: HashMap<StreamKey, Option<i64>>,
    /// Time of the last event of each trace.
    ends: Vec<i64>,
    /// Time of the last event that has one.
    last_time: Option<i64>,
    /// Number of rows that are events, not lines of logs.
    events: usize,
    selection: &'t Selection,
}

impl<'t> Collector<'t> {
    fn new(traces: &'t [Trace], selection: &'t Selection, options: &Options) -> Self {
        let (machine_of, machines) = machines(traces);
        let mut names = Names::default();
        let mut tgids = HashMap::new();
        for (trace, task) in &options.tasks {
            let machine = machine_of.get(*trace).copied().unwrap_or(0);
            tgids.insert((machine, i64::from(task.pid)), i64::from(task.tgid));
        }
        names.label("");
        Self {
            creators: traces.iter().map(|trace| trace.class().number("vpid")).collect(),
            thread_names: traces.iter().map(|trace| trace.class().thread_names()).collect(),
            limit: usize::try_from(options.limit.max(1)).unwrap_or(usize::MAX),
            traces,
            machine_of,
            machines,
            tgids,
            classes: HashMap::new(),
            kinds: Vec::new(),
            shapes: Shapes::default(),
            names,
            columns: Columns::default(),
            dropped: 0,
            slices: Slices::default(),
            scheduling: Scheduling::default(),
            spans: SpanLanes::default(),
            gaps: Gaps::default(),
            blocks: Blocks::default(),
            log: Vec::new(),
            begins: HashMap::new(),
            ends: vec![i64::MIN; traces.len()],
            last_time: None,
            events: 0,
            selection,
        }
    }

    fn class(
        &mut self,
        trace: &'t Trace,
        stream: &StreamInfo,
        event: usize,
    ) -> Option<Rc<Class<'t>>> {
        let key = (stream.trace, stream.class, event);
        if let Some(class) = self.classes.get(&key) {
            return Some(Rc::clone(class));
        }
        let number = u32::try_from(self.kinds.len()).unwrap_or(NONE);
        let (class, kind) = prepare(trace, stream, event, (number, &mut self.shapes))?;
        self.kinds.push(kind);
        let class = Rc::new(class);
        self.classes.insert(key, Rc::clone(&class));
        Some(class)
    }

    fn machine(&self, stream: &StreamInfo) -> u32 {
        self.machine_of.get(stream.trace).copied().unwrap_or(0)
    }

    fn cpu(&mut self, stream: &StreamInfo) -> u32 {
        let machine = self.machine(stream);
        stream.cpu.map_or(NONE, |cpu| self.names.cpu(Cpu { machine, cpu }))
    }

    /// Returns the number of the CPU and the name of a stream.
    fn stream(&mut self, stream: &StreamInfo) -> (u32, String) {
        let channel = stream.class(self.traces).map(channel).unwrap_or_default();
        let name =
            stream.cpu.map_or_else(|| channel.clone(), |cpu| format!("{channel}, CPU {cpu}"));
        (self.cpu(stream), name)
    }

    /// Returns the number of a thread of a machine.
    fn thread(&mut self, machine: u32, tid: i64, pid: Option<i64>, name: Option<String>) -> u32 {
        let pid = pid.filter(|pid| *pid != 0).or_else(|| self.tgids.get(&(machine, tid)).copied());
        let name = if tid == 0 { Some("idle".to_owned()) } else { name };
        self.names.thread(Owner::Thread { machine, tid }, pid, name)
    }

    /// Returns the number of the thread that recorded an event.
    fn owner(&mut self, stream: &StreamInfo, cpu: u32, picked: &Picked) -> u32 {
        let machine = self.machine(stream);
        if let Some(tid) = picked.tid() {
            let creator = self.creators.get(stream.trace).copied().flatten();
            let pid = picked.pid().or(creator);
            let name = picked.words(Words::ThreadName).filter(|name| !name.is_empty());
            let listed =
                || self.thread_names.get(stream.trace)?.get(&tid).map(|name| (*name).to_owned());
            return self.thread(machine, tid, pid, name.or_else(listed));
        }
        if let Some(thread) = self.scheduling.thread_on(stream.trace, cpu) {
            return thread;
        }
        let owner = Owner::Stream { machine, trace: stream.trace, class: stream.class };
        self.names.thread(owner, None, stream.class(self.traces).map(channel))
    }

    /// Returns true if the number is that of a thread, not of a stream whose events name no thread.
    fn is_thread(&self, number: u32) -> bool {
        self.names.threads.get(number as usize).is_some_and(|thread| thread.tid.is_some())
    }

    /// Appends the fields of an event to the block, and returns what is picked of them.
    fn read(
        &mut self,
        trace: &Trace,
        class: &Class<'_>,
        reader: &mut Reader<'_>,
        event: &Due,
    ) -> Picked {
        let mut picked = Picked::default();
        let (_, decoder, part) = reader.parts();
        let out = self.blocks.line();
        out.extend_from_slice(format!("{{\"ticks\":{}", event.clock).as_bytes());
        let mut at = Some(event.body);
        for (number, scope) in class.scopes.iter().enumerate() {
            // The two contexts may have fields of one name, so that each is an object of its own.
            match (number, scope.is_some()) {
                (2, _) => out.extend_from_slice(b",\"fields\":{"),
                (0, true) => out.extend_from_slice(b",\"context\":{"),
                (_, true) => out.extend_from_slice(b",\"specific\":{"),
                (_, false) => continue,
            }
            if let Some((plan, picks)) = scope {
                let from = at;
                at = from.and_then(|from| {
                    trace
                        .program
                        .visit(decoder, plan.code, &part, from, &mut Fields::marked(out, plan))
                        .ok()
                });
                if !picks.is_empty()
                    && let Some(from) = from
                {
                    let mut picking = Picking { picks, picked: &mut picked };
                    // The reader has accepted the same bytes.
                    let _ = trace.program.visit(decoder, plan.code, &part, from, &mut picking);
                }
            }
            out.push(b'}');
        }
        out.push(b'}');
        self.blocks.end_line(event.clock);
        picked
    }

    /// Draws an event.
    fn draw(
        &mut self,
        stream: &StreamInfo,
        meaning: &Meaning,
        picked: &Picked,
        (cpu, thread, time): (u32, u32, i64),
    ) {
        let event = self.dropped.saturating_add(self.columns.times.len() as u64);
        let trace = stream.trace;
        let flags = if self.gaps.missing.is_around(trace) { UNSURE } else { 0 };
        let number = stream.number;
        let begun = |label: u32, thread: u32| Begun {
            trace,
            stream: number,
            begin: time,
            label,
            thread,
            event,
            flags,
            span: None,
        };
        // Other streams have no events of what a stream tells of its CPU.
        let is_lossy = self.gaps.missing.is_in((trace, stream.number));
        let of_cpu = |begun: Begun| Begun { flags: if is_lossy { UNSURE } else { 0 }, ..begun };
        match meaning {
            // A filter may leave begins without their ends.
            Meaning::Mark | Meaning::Function | Meaning::FunctionEnd => {}
            Meaning::Log => {
                let level = picked.number(Number::Level).unwrap_or(0);
                let text = picked.words(Words::Text).unwrap_or_default();
                self.log.push(LogRow { event, level, text });
            }
            _ if self.selection.filter.is_some() => {}
            Meaning::Switch => self.switch(stream, picked, cpu, of_cpu(begun(0, thread))),
            Meaning::Interrupt => {
                let number = picked.number(Number::Irq).unwrap_or(0);
                let name = picked.words(Words::Name).unwrap_or_default();
                let shown = format!("irq {number} {name}");
                self.interrupt(cpu, number, shown.trim_end(), of_cpu(begun(0, thread)));
            }
            Meaning::SoftInterrupt => {
                let vector = picked.number(Number::Vector).unwrap_or(0);
                let (id, name) = (soft_id(vector), soft_interrupt(vector));
                self.interrupt(cpu, id, &name, of_cpu(begun(0, thread)));
            }
            Meaning::InterruptEnd { is_soft } => {
                let id = match is_soft {
                    true => soft_id(picked.number(Number::Vector).unwrap_or(0)),
                    false => picked.number(Number::Irq).unwrap_or(0),
                };
                self.scheduling.interrupt_end(&mut self.slices, (trace, cpu), id, time);
            }
            Meaning::SystemCall(name) if self.is_thread(thread) => {
                let (id, label) = self.call(name, picked);
                self.scheduling.call(&mut self.slices, thread, id, begun(label, thread));
            }
            // The events of a thread on CPUs that are not selected are missing.
            Meaning::Exit
            | Meaning::SystemCall(_)
            | Meaning::SystemCallEnd(_)
            | Meaning::Span(..)
                if !self.selection.cpus.is_empty() => {}
            // Threads whose ids are not recorded cannot be told apart.
            Meaning::Exit | Meaning::SystemCallEnd(_) if !self.is_thread(thread) => {}
            Meaning::Exit => self.scheduling.thread_end(&mut self.slices, thread, time),
            Meaning::SystemCallEnd(name) => {
                let (id, _) = self.call(name, picked);
                self.scheduling.call_end(&mut self.slices, (trace, thread), id, time);
            }
            Meaning::Span(step, name) if thread != NONE => {
                if let Some(id) = picked.number(Number::Span) {
                    let label = self.names.label(name);
                    self.span(stream, *step, id, picked, begun(label, thread));
                }
            }
            Meaning::SystemCall(_) | Meaning::Span(..) => {}
        }
    }

    /// A CPU begins to serve an interrupt. `begun` has the time and the event.
    fn interrupt(&mut self, cpu: u32, id: u64, name: &str, begun: Begun) {
        let label = self.names.label(name);
        self.scheduling.interrupt(&mut self.slices, cpu, id, Begun { label, ..begun });
    }

    /// Returns the id of a system call, and the number of its text. Calls whose events have no name
    /// of their own have a number.
    fn call(&mut self, name: &str, picked: &Picked) -> (CallId, u32) {
        if name.is_empty() {
            let number = picked.number(Number::SystemCall).unwrap_or(0);
            return (CallId::Number(number), self.names.label(&format!("system call {number}")));
        }
        let label = self.names.label(name);
        (CallId::Name(label), label)
    }

    /// The CPU goes on with another thread. `now` has the time and the event.
    fn switch(&mut self, stream: &StreamInfo, picked: &Picked, cpu: u32, now: Begun) {
        let machine = self.machine(stream);
        let Some(next) = picked.id(Number::NextTid).filter(|_| cpu != NONE) else { return };
        let next = self.thread(machine, next, None, picked.words(Words::NextName));
        let mut before = None;
        if let Some(tid) = picked.id(Number::PrevTid) {
            let thread = self.thread(machine, tid, None, picked.words(Words::PrevName));
            let begin = self
                .begins
                .get(&(stream.trace, stream.number))
                .copied()
                .flatten()
                .unwrap_or(now.begin);
            before =
                Some(Begun { begin, thread, event: u64::MAX, flags: NO_BEGIN | now.flags, ..now });
            if picked.number(Number::PrevState).is_some_and(|state| state & DEAD != 0) {
                self.scheduling.thread_end(&mut self.slices, thread, now.begin);
            }
        }
        self.scheduling.switch(&mut self.slices, cpu, before, Begun { thread: next, ..now });
    }

    fn span(&mut self, stream: &StreamInfo, step: Step, id: u64, picked: &Picked, begun: Begun) {
        let creator = self.creators.get(stream.trace).copied().flatten();
        let (key, slices) = ((stream.trace, picked.pid().or(creator), id), &mut self.slices);
        match step {
            Step::New => {
                let process = process(&self.names, begun.thread);
                // The end of a span names it, so that no other is taken for it.
                let begun = Begun { flags: 0, ..begun };
                self.spans.open(key, picked.number(Number::Parent).unwrap_or(0), process, begun);
            }
            Step::Close => self.spans.close(slices, key, begun.begin),
            Step::Enter => {
                let span = Some(self.spans.span(key));
                self.scheduling.enter(begun.thread, id, Begun { span, ..begun });
            }
            Step::Exit => self.scheduling.exit(slices, begun.thread, id, begun.begin, 0),
            Step::Record => {}
        }
    }

    /// Drops the oldest rows, so that as many events are left. Lines of logs do not count.
    fn trim(&mut self, to: usize) {
        let Some(excess) = self.events.checked_sub(to).filter(|excess| *excess > 0) else { return };
        let is_event = |kind: &u32| self.kinds.get(*kind as usize).is_none_or(|kind| !kind.log);
        let events = self.columns.kinds.iter().enumerate().filter(|(_, kind)| is_event(kind));
        // The row behind the last event that is dropped.
        let last = events.map(|(row, _)| row).nth(excess.saturating_sub(1));
        let excess = last.map_or(0, |row| row.saturating_add(1));
        self.events = to;
        self.columns.drop_first(excess);
        self.dropped = self.dropped.saturating_add(excess as u64);
        self.blocks.drop_before(self.dropped);
        let oldest = self.columns.times.first().copied().unwrap_or(i64::MIN);
        self.slices.drop_before(oldest);
        let dropped = self.dropped;
        self.log.retain(|line| line.event >= dropped);
    }

    fn finish(mut self, counted: u64, options: &Options) -> Collected {
        self.trim(self.limit);
        let more = self.log.len().saturating_sub(MAX_LOG);
        self.log.drain(..more);
        for span in &options.open_spans {
            // Where events name no process, nor the session who created it, its spans have none.
            let keys = [Some(i64::from(span.pid)), None].map(|pid| (span.trace, pid, span.id));
            let inside = options.inside.get(&(span.trace, span.pid, span.id)).copied();
            let end = SpanEnd { fields: self.names.label(&span.fields), inside };
            if keys.iter().any(|key| self.spans.describe(*key, end)) {
                continue;
            }
            let machine = self.machine_of.get(span.trace).copied().unwrap_or(0);
            let thread = self.thread(machine, i64::from(span.tid), Some(i64::from(span.pid)), None);
            let label = self.names.label(&span.name);
            let trace = span.trace;
            let begun = Begun {
                trace,
                stream: u64::MAX,
                begin: span.opened,
                label,
                thread,
                event: u64::MAX,
                flags: 0,
                span: Some(SpanOf {
                    id: span.id,
                    parent: span.parent,
                    numbers: (NONE, NONE),
                    opening: u64::MAX,
                    end: Some(end),
                }),
            };
            let process = process(&self.names, thread);
            self.spans.open(keys[0], span.parent, process, begun);
        }
        let ends = std::mem::take(&mut self.ends);
        let end_of = |begun: &Begun| ends.get(begun.trace).copied().unwrap_or(begun.begin);
        let repeated = self.scheduling.repeated;
        let slices_not_drawn = self.spans.not_drawn.saturating_add(self.scheduling.not_drawn);
        // A span whose end is not selected has an end that is not known.
        let (names, selection) = (&self.names, self.selection);
        let name =
            |begun: &Begun| names.labels.get(begun.label as usize).map_or("", String::as_str);
        self.scheduling
            .finish(&mut self.slices, end_of, |begun| selection.has_both_ends(name(begun)));
        let is_closed =
            |begun: &Begun| selection.wants_name(&format!("span:close {}", name(begun)));
        let spans_end = |begun: &Begun| is_closed(begun).then(|| end_of(begun));
        self.spans.finish(&mut self.slices, spans_end);
        let repeated = repeated.saturating_add(self.slices.drop_repeated());
        let gaps = self.gaps.finish(self.traces);
        let clocks = || self.traces.iter().flat_map(|trace| &trace.class().clocks);
        Collected {
            columns: self.columns,
            dropped: self.dropped,
            counted,
            limit: self.limit as u64,
            kinds: self.kinds,
            shapes: self.shapes.all,
            filter_of: self.traces.iter().map(FilterFacts::new).collect(),
            names: self.names,
            slices: self.slices,
            gaps,
            repeated,
            blocks: self.blocks,
            log: self.log,
            processes: processes(self.traces, &self.machine_of),
            machines: self.machines,
            machine_of: self.machine_of,
            traces: self.traces.iter().map(|trace| trace.title().to_owned()).collect(),
            absolute: clocks().next().is_some()
                && clocks().all(lastwords_trace::class::Clock::is_since_epoch),
            slices_not_drawn,
        }
    }
}

impl<'t> Take for Collector<'t> {
    fn event(&mut self, stream: &StreamInfo, reader: &mut Reader<'_>, event: &Due) {
        let traces: &'t [Trace] = self.traces;
        let Some(trace) = traces.get(stream.trace) else { return };
        let Some(class) = self.class(trace, stream, event.class) else { return };
        // An event without a time stays where it was read among the others. Those that are read
        // first get the time of the first event that has one.
        let known = event.nanoseconds.or(self.last_time);
        let time = known.unwrap_or(0);
        if self.last_time.is_none() && known.is_some() {
            self.columns.times.iter_mut().for_each(|row| *row = time);
        }
        self.last_time = known;
        let cpu = self.cpu(stream);
        let picked = self.read(trace, &class, reader, event);
        let key = (stream.trace, stream.number);
        // A loss ends what ran before it, so that the event behind it has another thread.
        while let Some(passed) = known.and_then(|time| self.gaps.missing.pass(key, time)) {
            self.lost(&passed);
        }
        let is_log = class.meaning == Meaning::Log;
        let thread = if is_log { NONE } else { self.owner(stream, cpu, &picked) };
        if known.is_some() {
            self.gaps.event(stream, time);
            self.begins.entry(key).or_insert(Some(time));
            self.ends.get_mut(stream.trace).into_iter().for_each(|end| *end = time.max(*end));
            self.draw(stream, &class.meaning, &picked, (cpu, thread, time));
        }
        self.events = self.events.saturating_add(usize::from(!is_log));
        self.columns.times.push(time);
        self.columns.kinds.push(class.kind);
        self.columns.threads.push(thread);
        self.columns.cpus.push(cpu);
        if self.events >= self.limit.saturating_mul(2) {
            self.trim(self.limit);
        }
    }

    fn packet(&mut self, stream: &StreamInfo, reader: &mut Reader<'_>) {
        let Some(trace) = self.traces.get(stream.trace) else { return };
        let named = self.stream(stream);
        self.gaps.packet(trace, stream, named, reader);
    }

    fn loss(&mut self, stream: &StreamInfo, reader: &mut Reader<'_>, loss: Loss) {
        let named = self.stream(stream);
        self.gaps.loss(stream, named, reader, loss);
    }

    fn fault(&mut self, stream: &StreamInfo) {
        self.gaps.missing.fault(stream);
    }
}

impl Collector<'_> {
    /// Events of a stream are missing from or until a time: what its CPU and the threads of its
    /// trace are in is not known there.
    fn lost(&mut self, edge: &Edge) {
        let Edge { stream, time, .. } = *edge;
        if self.gaps.missing.is_of_threads(edge) {
            self.scheduling.lost_threads(&mut self.slices, stream.0, time);
        }
        self.scheduling.lost(&mut self.slices, stream, time);
        self.begins.insert(stream, Some(time).filter(|_| !self.gaps.missing.is_in(stream)));
    }
}

/// The states of a thread that runs no more, `EXIT_DEAD` and `EXIT_ZOMBIE` (`include/linux/sched.h`
/// of Linux 4.14 to 7.2).
const DEAD: u64 = 0x30;

/// Returns the thread that stands for the process of a thread: the first one that is known of it.
fn process(names: &Names, thread: u32) -> u32 {
    let Some(own) = names.threads.get(thread as usize) else { return thread };
    let is_same =
        |other: &crate::names::Thread| other.machine == own.machine && other.pid == own.pid;
    let first = names.threads.iter().position(is_same).filter(|_| own.pid.is_some());
    first.and_then(|at| u32::try_from(at).ok()).unwrap_or(thread)
}

/// Returns the id of a soft interrupt among those of interrupts.
fn soft_id(vector: u64) -> u64 {
    vector | 1 << 63
}

/// Returns the name of a soft interrupt. `include/linux/interrupt.h` of Linux 2.6.38 to 7.2 has the
/// vectors in this order.
fn soft_interrupt(vector: u64) -> String {
    const NAMES: [&str; 10] = [
        "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER",
        "RCU",
    ];
    let name = usize::try_from(vector).ok().and_then(|vector| NAMES.get(vector));
    name.map_or_else(|| format!("softirq {vector}"), |name| format!("softirq {name}"))
}
