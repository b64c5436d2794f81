//! What must be found: each script is followed step by step, by the rules of `tracing` alone.

use crate::message::{self, Arguments};
use crate::shape::{self, Dispatcher, Parent, Shape, Site, Step};
use crate::site::FILE;
use crate::value::{Expected, stored};

/// A span: its number among all spans of the shape.
pub(crate) type Span = usize;

/// What kind of event must be found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// An event, and the span that it is in.
    Event(Option<Span>),
    /// A new span and its parent.
    New(Span, Option<Span>),
    Record(Span),
    Close(Span),
}

/// An event that must be found.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The thread's step that records the event.
    pub(crate) step: usize,
    pub(crate) what: What,
    /// The names that it may have, `PROVIDER:NAME`.
    pub(crate) names: Vec<String>,
    /// The fields that have values, without the message.
    pub(crate) fields: Vec<(String, Expected)>,
    /// The message. Where it is constant it may be the name, and no field.
    pub(crate) message: Option<(String, bool)>,
    /// The text of the event's span.
    pub(crate) span_text: Option<String>,
}

/// All that must be found of a shape.
pub(crate) struct Model {
    /// For the main thread and each thread, in the order of steps.
    pub(crate) threads: Vec<Vec<Wanted>>,
    pub(crate) spans: Vec<Made>,
    /// Spans that are open when the first thread has ended, and those that the other threads may have open then.
    pub(crate) open: (usize, usize),
}

/// A span that was made.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) site: usize,
    dispatcher: usize,
    parent: Option<Span>,
    /// Handles, times entered, and children that are open.
    uses: usize,
    /// Values in the order in which they were given.
    given: Vec<(usize, String)>,
    /// Where the values of each record begin in `given`.
    records: Vec<usize>,
}

impl Model {
    pub(crate) fn of(shape: &Shape) -> Self {
        let mut model = Self { threads: Vec::new(), spans: Vec::new(), open: (0, 0) };
        let mut main = Follower::new(shape, &mut model, 0);
        for (site, key) in &shape.shared {
            main.new_span(0, *site, *key, Parent::Root);
        }
        let found = main.wanted;
        model.threads.push(found);
        for steps in &shape.threads {
            let mut follower = Follower::new(shape, &mut model, shape.shared.len());
            for (number, step) in steps.iter().enumerate() {
                follower.step(number, step);
            }
            let found = follower.wanted;
            model.threads.push(found);
            if model.threads.len() == 2 {
                // All spans so far are of the main thread and of the first one.
                model.open.0 = model.recorded(shape).filter(|span| span.uses > 0).count();
                model.open.1 = model.recorded(shape).count();
            }
        }
        model.open.1 = model.recorded(shape).count() - model.open.1;
        model
    }
}

impl Model {
    fn recorded<'a>(&'a self, shape: &'a Shape) -> impl Iterator<Item = &'a Made> {
        self.spans.iter().filter(|made| shape.dispatchers[made.dispatcher] != Dispatcher::Bare)
    }
}

/// Follows one thread.
struct Follower<'a> {
    shape: &'a Shape,
    model: &'a mut Model,
    handles: Vec<Span>,
    entered: Vec<Span>,
    defaults: Vec<usize>,
    /// For each dispatcher, the spans that the thread is in, and whether it was in each of them already.
    stacks: Vec<Vec<(Span, bool)>>,
    wanted: Vec<Wanted>,
}

impl<'a> Follower<'a> {
    fn new(shape: &'a Shape, model: &'a mut Model, shared: usize) -> Self {
        Self {
            shape,
            model,
            handles: (0..shared).collect(),
            entered: Vec::new(),
            defaults: vec![0],
            stacks: vec![Vec::new(); shape.dispatchers.len()],
            wanted: Vec::new(),
        }
    }

    fn default(&self) -> usize {
        self.defaults[self.defaults.len() - 1]
    }

    fn is_recorded(&self, dispatcher: usize) -> bool {
        self.shape.dispatchers[dispatcher] != Dispatcher::Bare
    }

    fn parent(&self, parent: Parent) -> Option<Span> {
        match parent {
            Parent::Root => None,
            Parent::Handle(at) => Some(self.handles[at]),
            Parent::Current => {
                let stack = &self.stacks[self.default()];
                stack.iter().rev().find(|(_, is_again)| !is_again).map(|(span, _)| *span)
            }
        }
    }

    fn step(&mut self, number: usize, step: &Step) {
        match step {
            Step::Event { site, key, parent, .. } => self.event(number, *site, *key, *parent),
            Step::New { site, key, parent } => self.new_span(number, *site, *key, *parent),
            Step::Enter(handle) => {
                let span = self.handles[*handle];
                self.model.spans[span].uses += 1;
                let stack = &mut self.stacks[self.model.spans[span].dispatcher];
                let is_again = stack.iter().any(|(known, _)| *known == span);
                stack.push((span, is_again));
                self.entered.push(span);
            }
            Step::Leave(at) => {
                let span = self.entered.remove(*at);
                let stack = &mut self.stacks[self.model.spans[span].dispatcher];
                let at = stack.iter().rposition(|(known, _)| *known == span).expect("an entered span");
                stack.remove(at);
                self.release(number, span);
            }
            Step::Record { handle, key } => self.record(number, self.handles[*handle], *key),
            Step::Drop(handle) => self.release(number, self.handles[*handle]),
            Step::Push(dispatcher) => self.defaults.push(*dispatcher),
            Step::Pop => drop(self.defaults.pop()),
            Step::Log { message, key, place, .. } => self.log(number, *message, *key, *place),
        }
    }

    fn event(&mut self, step: usize, number: usize, key: u64, parent: Parent) {
        if !self.is_recorded(self.default()) {
            return;
        }
        let site = &self.shape.events[number];
        let span = self.parent(parent);
        let message = site.message.map(|(_, number)| message_of(number, key));
        let number = site.message.map(|(_, number)| number);
        self.wanted.push(Wanted {
            step,
            what: What::Event(span),
            names: names(&site.target, site.name.as_deref(), number, FILE, site.line),
            fields: fields(site, key),
            message,
            span_text: span.map(|span| self.text(span)),
        });
    }

    fn log(&mut self, step: usize, message: usize, key: u64, place: u32) {
        if !self.is_recorded(self.default()) {
            return;
        }
        let span = self.parent(Parent::Current);
        let target = format!("logged::t{place}");
        self.wanted.push(Wanted {
            step,
            what: What::Event(span),
            names: names(&target, None, Some(message), "src/logs.rs", place),
            fields: Vec::new(),
            message: Some(message_of(message, key)),
            span_text: span.map(|span| self.text(span)),
        });
    }

    fn new_span(&mut self, step: usize, number: usize, key: u64, parent: Parent) {
        let site = &self.shape.spans[number];
        let parent = self.parent(parent);
        let dispatcher = self.default();
        let span = self.model.spans.len();
        if let Some(parent) = parent {
            self.model.spans[parent].uses += 1;
        }
        let given = given(site, key, (0..site.fields.len()).filter(|at| site.fields[*at].is_present(key, *at)));
        self.model.spans.push(Made { site: number, dispatcher, parent, uses: 1, given, records: Vec::new() });
        self.handles.push(span);
        self.span_event(step, span, "new", What::New(span, parent), fields(site, key));
    }

    fn record(&mut self, step: usize, span: Span, key: u64) {
        let site = &self.shape.spans[self.model.spans[span].site];
        let chosen = shape::chosen(key, site.fields.len());
        let values = chosen.iter().map(|at| {
            let field = &site.fields[*at];
            (field.name.clone(), field.kind.value(key, *at).expected())
        });
        let values = values.collect();
        let made = &mut self.model.spans[span];
        made.records.push(made.given.len());
        made.given.extend(given(site, key, chosen.iter().copied()));
        self.span_event(step, span, "record", What::Record(span), values);
    }

    /// Takes one use of the span away. The last one closes it, and takes away a use of its parent.
    fn release(&mut self, step: usize, span: Span) {
        self.model.spans[span].uses -= 1;
        if self.model.spans[span].uses == 0 {
            self.span_event(step, span, "close", What::Close(span), Vec::new());
            if let Some(parent) = self.model.spans[span].parent {
                self.release(step, parent);
            }
        }
    }

    fn span_event(&mut self, step: usize, span: Span, verb: &str, what: What, fields: Vec<(String, Expected)>) {
        let made = &self.model.spans[span];
        if self.is_recorded(made.dispatcher) {
            let site = &self.shape.spans[made.site];
            let name = format!("span:{verb} {}::{}", site.target, site.name.as_deref().unwrap_or_default());
            self.wanted.push(Wanted { step, what, names: vec![name], fields, message: None, span_text: None });
        }
    }

    /// What events show of the span: the values that it was given, in the order in which they were given, and those of each record in
    /// the order in which the callsite has its fields.
    fn text(&self, span: Span) -> String {
        let made = &self.model.spans[span];
        let site = &self.shape.spans[made.site];
        let mut given = made.given.clone();
        let ends = made.records.iter().skip(1).copied().chain([given.len()]);
        for (begin, end) in made.records.iter().zip(ends) {
            given[*begin..end].sort_by_key(|(at, _)| *at);
        }
        let head = format!("{}::{}", site.target, site.name.as_deref().unwrap_or_default());
        let values: Vec<String> = given.iter().map(|(at, text)| format!("{}={text}", site.fields[*at].name)).collect();
        if values.is_empty() { head } else { format!("{head}{{{}}}", values.join(" ")) }
    }
}

/// The texts of some fields' values, as the text of a span shows them.
fn given(site: &Site, key: u64, places: impl Iterator<Item = usize>) -> Vec<(usize, String)> {
    let shown = |at: usize| match site.fields[at].kind.value(key, at).expected() {
        Expected::Unsigned(value) => value.to_string(),
        Expected::Signed(value) => value.to_string(),
        Expected::Float(value) => format!("{value:?}"),
        Expected::Bool(value) => value.to_string(),
        Expected::Text(text) => stored(&text),
    };
    places.map(|at| (at, shown(at))).collect()
}

fn fields(site: &Site, key: u64) -> Vec<(String, Expected)> {
    let places = (0..site.fields.len()).filter(|at| site.fields[*at].is_present(key, *at));
    places.map(|at| (site.fields[at].name.clone(), site.fields[at].kind.value(key, at).expected())).collect()
}

fn message_of(number: usize, key: u64) -> (String, bool) {
    (message::with(number, &Arguments::of(key), |message| message.to_string()), message::is_constant(number))
}

/// The names that an event may have: its own, or else the constant part of its message, or the place in the source. Values never.
fn names(target: &str, name: Option<&str>, message: Option<usize>, file: &str, line: u32) -> Vec<String> {
    if let Some(name) = name {
        return vec![format!("{target}:{name}")];
    }
    let file = file.rsplit('/').next().unwrap_or(file);
    let mut names = vec![format!("{target}:{file}:{line}")];
    if let Some(number) = message {
        // Values are shown as `{}` or not at all.
        let parts: Vec<&str> = message::TEMPLATES[number].split("{}").collect();
        for shown in 0..1u32 << (parts.len() - 1) {
            let hole = |at: usize| if at > 0 && shown >> (at - 1) & 1 == 1 { "{}" } else { "" };
            let name: String = parts.iter().enumerate().flat_map(|(at, part)| [hole(at), part]).collect();
            if !name.trim().is_empty() {
                names.push(format!("{target}:{name}"));
            }
        }
    }
    names
}
