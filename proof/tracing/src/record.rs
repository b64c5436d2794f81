//! The program that records a shape, and kills itself.

use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Context as _, Result};
use tracing::span::EnteredSpan;
use tracing::{Dispatch, Span};
use tracing_core::field::{Field, Value, ValueSet};
use tracing_core::{Event, Level, Metadata, dispatcher};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::registry;

use crate::message::{self, Arguments};
use crate::other::Other;
use crate::shape::{self, Dispatcher, Filter, Parent, Recorder, Rings, Shape, Site, Step, TRACE};
use crate::site;
use crate::value::{HOOK, Held, Panics};

/// The levels, the most severe first.
const LEVELS: [Level; 5] = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];

/// The parts of the program that all threads use.
struct Program {
    shape: Shape,
    dispatchers: Vec<Dispatch>,
    events: Vec<&'static Metadata<'static>>,
    spans: Vec<&'static Metadata<'static>>,
    shared: Vec<Span>,
    /// Spans for each thread.
    given: Vec<Mutex<Vec<Span>>>,
    /// An event and a span whose values cannot be formatted.
    panicking: [&'static Metadata<'static>; 2],
    session: lastwords::Session,
    /// For each thread two words: its id, and the number of steps that it has done.
    steps: std::fs::File,
}

/// Records the shape in `folder`; does not return unless it fails.
pub(crate) fn run(shape: Shape, folder: &Path) -> Result<()> {
    let large = lastwords::ChannelConfig::new("main").sub_buffers(8, 1 << 20);
    let main = match shape.rings {
        Rings::Large => large.clone(),
        Rings::Small { sub_buffers, size, discard } => {
            on_one_cpu()?;
            let main = lastwords::ChannelConfig::new("main").sub_buffers(sub_buffers, size);
            if discard { main.discard() } else { main }
        }
    };
    let start = |channel| {
        lastwords::Session::builder("shape").dir(folder).channel(channel).spans(4096).start()
    };
    let session = start(main)?;
    let place = session.folder().context("the session has a folder")?;
    std::fs::write(folder.join("first"), place.as_os_str().as_encoded_bytes())?;
    let second = if shape.has_second { Some(start(large)?) } else { None };
    let dispatchers: Vec<Dispatch> =
        shape.dispatchers.iter().map(|dispatcher| dispatch(*dispatcher)).collect();
    dispatcher::set_global_default(dispatchers[0].clone())?;
    if shape.logs {
        tracing_log::LogTracer::init()?;
    }
    let make =
        |sites: &[Site], is_span| sites.iter().map(|site| make(site, is_span)).collect::<Vec<_>>();
    let (events, spans) = (make(&shape.events, false), make(&shape.spans, true));
    let panicking = [false, true].map(|is_span| site::make(&panics(is_span)));
    let _ = HOOK.set(record_loudly);
    // Panics of values are expected.
    std::panic::set_hook(Box::new(|_| ()));
    let steps = std::fs::File::create(folder.join("steps"))?;
    let (shared, given) = (Vec::new(), Vec::new());
    let mut program =
        Program { shape, dispatchers, events, spans, shared, given, panicking, session, steps };
    program.tell(0, 0)?;
    program.shared = program
        .shape
        .shared
        .iter()
        .map(|(site, key)| program.span(*site, *key, None, true))
        .collect();
    let give = |(site, key, parent): &(usize, u64, Option<usize>)| {
        program.span(*site, *key, parent.map(|parent| &program.shared[parent]), true)
    };
    program.given = program
        .shape
        .given
        .iter()
        .map(|given| Mutex::new(given.iter().map(give).collect()))
        .collect();
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
                        let _ = rustix::process::kill_process(
                            rustix::process::getpid(),
                            rustix::process::Signal::KILL,
                        );
                    }
                })
                .expect("a thread");
        }
    });
    drop(second);
    Ok(())
}

/// Keeps the program on the CPU on which it runs, so that one ring gets all events.
fn on_one_cpu() -> Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(rustix::thread::sched_getcpu());
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The callsite of an event or a span whose value panics.
fn panics(is_span: bool) -> site::Parts {
    let name = if is_span { "panics".to_owned() } else { format!("event {}:900", site::FILE) };
    let (target, fields) = ("proof::panics".to_owned(), vec!["x".to_owned()]);
    site::Parts { name, target, level: Level::ERROR, line: 900, fields, is_span }
}

/// Records an event while a value of another event is formatted.
fn record_loudly() {
    static SITE: std::sync::OnceLock<&'static Metadata<'static>> = std::sync::OnceLock::new();
    let metadata = *SITE.get_or_init(|| {
        site::make(&site::Parts {
            name: "loud".to_owned(),
            target: "proof::loud".to_owned(),
            level: Level::ERROR,
            line: 901,
            fields: vec!["n".to_owned()],
            is_span: false,
        })
    });
    if dispatcher::get_default(|default| default.enabled(metadata)) {
        Event::dispatch(metadata, &metadata.fields().value_set_all(&[Some(&7u64 as &dyn Value)]));
    }
}

fn dispatch(dispatcher: Dispatcher) -> Dispatch {
    let level = |level: usize| LevelFilter::from_level(LEVELS[level]);
    let most = level(dispatcher.most);
    let is_plain = dispatcher.most == TRACE;
    match dispatcher.recorder {
        Recorder::Subscriber => {
            let subscriber =
                lastwords::layer::subscriber().with_enter_and_exit(dispatcher.enter_and_exit);
            if is_plain { Dispatch::new(subscriber) } else { Dispatch::new(subscriber.with(most)) }
        }
        Recorder::Layer => {
            let layer = lastwords::layer::layer().with_enter_and_exit(dispatcher.enter_and_exit);
            let layer = match dispatcher.filter {
                Filter::None => layer.boxed(),
                Filter::Wanted => layer.with_filter(lastwords::layer::Wanted).boxed(),
                Filter::Level(least) => layer.with_filter(level(least)).boxed(),
            };
            let beside =
                dispatcher.beside.then(|| Other.and_then(Other.with_filter(LevelFilter::INFO)));
            let layers = registry().with(layer).with(beside);
            if is_plain { Dispatch::new(layers) } else { Dispatch::new(layers.with(most)) }
        }
        Recorder::Bare => Dispatch::new(registry()),
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
    let value = |(place, field): (usize, &shape::Field)| {
        field.is_present(key, place).then(|| field.kind.value(key, place))
    };
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
        let values: Vec<Option<&dyn Value>> =
            held.iter().map(|held| held.as_ref().map(Held::as_value)).collect();
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
        let given = program.given[number - 1]
            .lock()
            .map(|mut given| std::mem::take(&mut *given))
            .unwrap_or_default();
        let handles: Vec<Option<Span>> =
            program.shared.iter().cloned().chain(given).map(Some).collect();
        let of = vec![0; handles.len()];
        Self { program, number, handles, of, entered: Vec::new(), defaults: Vec::new() }
    }

    fn run(mut self, steps: &[Step]) -> Result<()> {
        self.program.tell(self.number, 0)?;
        for (done, step) in steps.iter().enumerate() {
            self.step(step).with_context(|| format!("step {done}: {step:?}"))?;
            self.program.tell(self.number, done as u64 + 1)?;
        }
        // Open spans stay open.
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
                let named =
                    if let Parent::Handle(at) = parent { self.handles[*at].as_ref() } else { None };
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
            Step::Log { message, key, level, place, is_odd } => {
                log(*message, *key, *level, *place, &shape::log_target(*place, *is_odd));
            }
            Step::Follows(span, cause) => {
                let cause = self.handles[*cause].as_ref().and_then(Span::id);
                self.handles[*span].as_ref().context("a handle")?.follows_from(cause);
            }
            Step::Scope { handle, site, key } => self.scope(*handle, *site, *key)?,
            Step::Panic { is_span } => {
                // A dispatcher that formats no value does not panic.
                let _ = catch_unwind(AssertUnwindSafe(|| self.panic(*is_span)));
            }
            Step::Rule { provider, enable } => {
                let glob = format!("{}:*", self.program.shape.providers()[*provider]);
                let session = &self.program.session;
                if *enable { session.enable(&glob)? } else { session.disable(&glob)? }
            }
        }
        Ok(())
    }

    /// Records an event in the scope of a span.
    fn scope(&self, handle: usize, site: usize, key: u64) -> Result<()> {
        let (span, of) = (self.handles[handle].as_ref().context("a handle")?, self.of[handle]);
        if self.defaults.last().map_or(0, |(_, default)| *default) == of {
            return span.in_scope(|| self.event(site, key, Parent::Current, None));
        }
        let entered = span.clone().entered();
        self.event(site, key, Parent::Current, None)?;
        self.under(of, || drop(entered.exit()));
        Ok(())
    }

    fn panic(&self, is_span: bool) {
        let metadata = self.program.panicking[usize::from(is_span)];
        if !dispatcher::get_default(|default| default.enabled(metadata)) {
            return;
        }
        let value = tracing_core::field::debug(Panics);
        let values = [Some(&value as &dyn Value)];
        let set = metadata.fields().value_set_all(&values);
        if is_span {
            drop(Span::new_root(metadata, &set))
        } else {
            Event::child_of(None, metadata, &set)
        }
    }

    /// Closes handles of a registry while it is the default: it asks the default to close what its
    /// handles kept open.
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
            Parent::Handle(at) => {
                Event::child_of(self.handles[at].as_ref().and_then(Span::id), metadata, set)
            }
        };
        let held = values(site, key);
        let values = || held.iter().map(|held| held.as_ref().map(Held::as_value));
        let Some((at, message)) = site.message else {
            dispatch_in_order(metadata, &values().collect::<Vec<_>>(), order, send);
            return Ok(());
        };
        message::with(message, &Arguments::from_key(key), |message| {
            let mut values: Vec<Option<&dyn Value>> = values().collect();
            values.insert(at, Some(&message));
            dispatch_in_order(metadata, &values, order, send);
        });
        Ok(())
    }

    fn record(&self, handle: usize, key: u64) -> Result<()> {
        let span = self.handles[handle].as_ref().context("a handle")?;
        let Some(metadata) = span.metadata() else { return Ok(()) };
        let at = self
            .program
            .spans
            .iter()
            .position(|known| std::ptr::eq(*known, metadata))
            .context("a callsite")?;
        let site = &self.program.shape.spans[at];
        let chosen = shape::chosen(key, site.fields.len());
        let held: Vec<Held> =
            chosen.iter().map(|place| site.fields[*place].kind.value(key, *place)).collect();
        let fields: Vec<Field> = metadata.fields().iter().collect();
        let pairs: Vec<(&Field, Option<&dyn Value>)> = chosen
            .iter()
            .zip(&held)
            .map(|(place, held)| (&fields[*place], Some(held.as_value())))
            .collect();
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
    let mut pairs: Vec<(&Field, Option<&dyn Value>)> = fields
        .iter()
        .zip(values)
        .filter(|(_, value)| value.is_some())
        .map(|(field, value)| (field, *value))
        .collect();
    shape::shuffle(&mut pairs, order);
    site::with_pairs(metadata.fields(), &pairs, send);
}

fn log(message: usize, key: u64, level: usize, place: u32, target: &str) {
    let levels = [
        log::Level::Error,
        log::Level::Warn,
        log::Level::Info,
        log::Level::Debug,
        log::Level::Trace,
    ];
    message::with(message, &Arguments::from_key(key), |message| {
        let mut record = log::Record::builder();
        record.level(levels[level]).target(target).file(Some("src/logs.rs")).line(Some(place));
        log::logger().log(&record.args(message).build());
    });
}
