//! The program that records a shape, and kills itself.

use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use tracing::span::EnteredSpan;
use tracing::{Dispatch, Span};
use tracing_core::field::{Field, Value, ValueSet};
use tracing_core::{Event, Level, Metadata, dispatcher};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};

use crate::message::{self, Arguments};
use crate::shape::{self, Dispatcher, Parent, Shape, Site, Step};
use crate::site;
use crate::value::Held;

/// The levels, the most severe first.
const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

/// What all threads use.
struct Program {
    shape: Shape,
    dispatchers: Vec<Dispatch>,
    events: Vec<&'static Metadata<'static>>,
    spans: Vec<&'static Metadata<'static>>,
    shared: Vec<Span>,
    /// For each thread two words: its id, and the number of steps that it has done.
    steps: std::fs::File,
}

/// Records the shape in `folder`; does not return unless it fails.
pub(crate) fn run(shape: Shape, folder: &Path) -> Result<()> {
    let main = lastwords::ChannelConfig::new("main").sub_buffers(8, 1 << 20);
    let session = lastwords::Session::builder("shape").dir(folder).channel(main).spans(4096).start()?;
    let dispatchers: Vec<Dispatch> = shape.dispatchers.iter().map(|dispatcher| dispatch(*dispatcher)).collect();
    dispatcher::set_global_default(dispatchers[0].clone())?;
    if shape.logs {
        tracing_log::LogTracer::init()?;
    }
    let make = |sites: &[Site], is_span| sites.iter().map(|site| make(site, is_span)).collect::<Vec<_>>();
    let (events, spans) = (make(&shape.events, false), make(&shape.spans, true));
    let steps = std::fs::File::create(folder.join("steps"))?;
    let mut program = Program { shape, dispatchers, events, spans, shared: Vec::new(), steps };
    program.tell(0, 0)?;
    program.shared = program.shape.shared.iter().map(|(site, key)| program.span(*site, *key, None, true)).collect();
    program.tell(0, 1)?;
    let program = &program;
    std::thread::scope(|scope| {
        for (number, steps) in program.shape.threads.iter().enumerate() {
            std::thread::Builder::new()
                .name(format!("thread-{number}"))
                .spawn_scoped(scope, move || {
                    let done = Thread::new(program, number + 1).run(steps);
                    // The first thread ends the program, whatever the others do.
                    if number == 0 || done.is_err() {
                        if let Err(error) = done {
                            eprintln!("thread {number}: {error:#}");
                        }
                        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                    }
                })
                .expect("a thread");
        }
    });
    drop(session);
    Ok(())
}

fn dispatch(dispatcher: Dispatcher) -> Dispatch {
    let layer = lastwords::layer::layer();
    match dispatcher {
        Dispatcher::Subscriber => Dispatch::new(lastwords::layer::subscriber()),
        Dispatcher::Layer => Dispatch::new(tracing_subscriber::registry().with(layer)),
        Dispatcher::Filtered => {
            Dispatch::new(tracing_subscriber::registry().with(layer.with_filter(lastwords::layer::Wanted)))
        }
        Dispatcher::Bare => Dispatch::new(tracing_subscriber::registry()),
    }
}

fn make(of: &Site, is_span: bool) -> &'static Metadata<'static> {
    site::make(&site::Parts {
        // The macros name events without a name so.
        name: of.name.clone().unwrap_or_else(|| format!("event {}:{}", site::FILE, of.line)),
        target: of.target.clone(),
        level: LEVELS[of.level],
        line: of.line,
        fields: of.names(),
        is_span,
    })
}

/// The values of a callsite's fields in the event that `key` stands for.
fn values(site: &Site, key: u64) -> Vec<Option<Held>> {
    let value =
        |(place, field): (usize, &shape::Field)| field.is_present(key, place).then(|| field.kind.value(key, place));
    site.fields.iter().enumerate().map(value).collect()
}

impl Program {
    /// Notes that a thread has done so many steps.
    fn tell(&self, thread: usize, done: u64) -> Result<()> {
        let tid = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        let mut words = [0; 16];
        words[..8].copy_from_slice(&tid.to_ne_bytes());
        words[8..].copy_from_slice(&done.to_ne_bytes());
        Ok(self.steps.write_all_at(&words, 16 * thread as u64)?)
    }

    /// Makes a span with the parent; without one, the thread's current one is, unless it is a root.
    fn span(&self, site: usize, key: u64, parent: Option<&Span>, is_root: bool) -> Span {
        let metadata = self.spans[site];
        let held = values(&self.shape.spans[site], key);
        let values: Vec<Option<&dyn Value>> = held.iter().map(|held| held.as_ref().map(Held::as_value)).collect();
        let set = metadata.fields().value_set_all(&values);
        if !dispatcher::get_default(|default| default.enabled(metadata)) {
            return Span::none();
        }
        match parent {
            Some(parent) => Span::child_of(parent.id(), metadata, &set),
            None if is_root => Span::new_root(metadata, &set),
            None => Span::new(metadata, &set),
        }
    }
}

/// A thread at work.
struct Thread<'a> {
    program: &'a Program,
    number: usize,
    handles: Vec<Option<Span>>,
    /// Dispatcher of each handle.
    of: Vec<usize>,
    entered: Vec<(EnteredSpan, usize)>,
    defaults: Vec<(dispatcher::DefaultGuard, usize)>,
}

impl<'a> Thread<'a> {
    fn new(program: &'a Program, number: usize) -> Self {
        let handles: Vec<Option<Span>> = program.shared.iter().cloned().map(Some).collect();
        let of = vec![0; handles.len()];
        Self { program, number, handles, of, entered: Vec::new(), defaults: Vec::new() }
    }

    fn run(mut self, steps: &[Step]) -> Result<()> {
        self.program.tell(self.number, 0)?;
        for (done, step) in steps.iter().enumerate() {
            self.step(step).with_context(|| format!("step {done}: {step:?}"))?;
            self.program.tell(self.number, done as u64 + 1)?;
        }
        // What is open stays open.
        let forgotten = std::mem::ManuallyDrop::new(self);
        if forgotten.number != 1 {
            loop {
                std::thread::park();
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Event { site, key, parent, order } => self.event(*site, *key, *parent, *order)?,
            Step::New { site, key, parent } => {
                let named = if let Parent::Handle(at) = parent { self.handles[*at].as_ref() } else { None };
                let span = self.program.span(*site, *key, named, *parent == Parent::Root);
                self.handles.push(Some(span));
                self.of.push(self.defaults.last().map_or(0, |(_, default)| *default));
            }
            Step::Enter(handle) => {
                let span = self.handles[*handle].clone().context("a handle")?;
                self.entered.push((span.entered(), self.of[*handle]));
            }
            Step::Leave(at) => {
                let (entered, of) = self.entered.remove(*at);
                self.under(of, || drop(entered.exit()));
            }
            Step::Record { handle, key } => self.record(*handle, *key)?,
            Step::Drop(handle) => {
                let (span, of) = (self.handles[*handle].take(), self.of[*handle]);
                self.under(of, || drop(span));
            }
            Step::Push(dispatcher) => {
                let guard = dispatcher::set_default(&self.program.dispatchers[*dispatcher]);
                self.defaults.push((guard, *dispatcher));
            }
            Step::Pop => drop(self.defaults.pop()),
            Step::Log { message, key, level, place } => log(*message, *key, *level, *place),
        }
        Ok(())
    }

    /// Closes handles of a registry while it is the default: it asks the default to close what its handles kept open.
    fn under(&self, dispatcher: usize, work: impl FnOnce()) {
        dispatcher::with_default(&self.program.dispatchers[dispatcher], work);
    }

    fn event(&self, number: usize, key: u64, parent: Parent, order: Option<u64>) -> Result<()> {
        let (metadata, site) = (self.program.events[number], &self.program.shape.events[number]);
        if !dispatcher::get_default(|default| default.enabled(metadata)) {
            return Ok(());
        }
        let send = |set: &ValueSet<'_>| match parent {
            Parent::Current => Event::dispatch(metadata, set),
            Parent::Root => Event::child_of(None, metadata, set),
            Parent::Handle(at) => Event::child_of(self.handles[at].as_ref().and_then(Span::id), metadata, set),
        };
        let held = values(site, key);
        let values = || held.iter().map(|held| held.as_ref().map(Held::as_value));
        let Some((at, message)) = site.message else {
            dispatch_in_order(metadata, &values().collect::<Vec<_>>(), order, send);
            return Ok(());
        };
        message::with(message, &Arguments::of(key), |message| {
            let mut values: Vec<Option<&dyn Value>> = values().collect();
            values.insert(at, Some(&message));
            dispatch_in_order(metadata, &values, order, send);
        });
        Ok(())
    }

    fn record(&self, handle: usize, key: u64) -> Result<()> {
        let span = self.handles[handle].as_ref().context("a handle")?;
        let Some(metadata) = span.metadata() else { return Ok(()) };
        let at = self.program.spans.iter().position(|known| std::ptr::eq(*known, metadata)).context("a callsite")?;
        let site = &self.program.shape.spans[at];
        let chosen = shape::chosen(key, site.fields.len());
        let held: Vec<Held> = chosen.iter().map(|place| site.fields[*place].kind.value(key, *place)).collect();
        let fields: Vec<Field> = metadata.fields().iter().collect();
        let pairs: Vec<(&Field, Option<&dyn Value>)> =
            chosen.iter().zip(&held).map(|(place, held)| (&fields[*place], Some(held.as_value()))).collect();
        site::with_pairs(metadata.fields(), &pairs, |set| {
            span.record_all(set);
        });
        Ok(())
    }
}

/// Sends values in the callsite's order, or those that are present in an order of their own.
fn dispatch_in_order(
    metadata: &'static Metadata<'static>,
    values: &[Option<&dyn Value>],
    order: Option<u64>,
    send: impl FnOnce(&ValueSet<'_>),
) {
    let Some(order) = order else {
        return send(&metadata.fields().value_set_all(values));
    };
    let fields: Vec<Field> = metadata.fields().iter().collect();
    let mut pairs: Vec<(&Field, Option<&dyn Value>)> =
        fields.iter().zip(values).filter(|(_, value)| value.is_some()).map(|(field, value)| (field, *value)).collect();
    shape::shuffle(&mut pairs, order);
    site::with_pairs(metadata.fields(), &pairs, send);
}

fn log(message: usize, key: u64, level: usize, place: u32) {
    let levels = [log::Level::Error, log::Level::Warn, log::Level::Info, log::Level::Debug, log::Level::Trace];
    let target = format!("logged::t{place}");
    message::with(message, &Arguments::of(key), |message| {
        let mut record = log::Record::builder();
        record.level(levels[level]).target(&target).file(Some("src/logs.rs")).line(Some(place));
        log::logger().log(&record.args(message).build());
    });
}
