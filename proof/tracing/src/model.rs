//! The events that must be found: each script is followed step by step, by the rules of `tracing`
//! alone.

use crate::message::{self, Arguments};
use crate::shape::{self, Parent, Shape, Site, Step};
use crate::site::FILE;
use crate::value::{Expected, Kind, stored};

/// Bytes of a text in the table of open spans that is not cut.
const TABLE_ROOM: usize = 181;

/// A span: its number among all spans of the shape.
pub(crate) type Span = usize;

/// The kind of event that must be found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// An event, and the span that it is in.
    Event(Option<Span>),
    /// A new span, and the parents that it may have.
    New(Span, Vec<Option<Span>>),
    /// Values of a span, or that it was entered, left or closed.
    Of(Span),
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
    /// The place of each of `fields` among all fields of the callsite, and that of the message
    /// behind them.
    pub(crate) places: Vec<usize>,
    /// Values are of so many types that all may be recorded as text.
    pub(crate) is_any: bool,
    /// The text of the event's span.
    pub(crate) span_text: Option<String>,
}

/// All that must be found of a shape.
pub(crate) struct Model {
    /// For the main thread and each thread, in the order of steps.
    pub(crate) threads: Vec<Vec<Wanted>>,
    pub(crate) spans: Vec<Made>,
    /// Spans that are open when the first thread has ended, and those that the other threads may
    /// have open then.
    pub(crate) open: (usize, usize),
    /// Some rules change which events the session takes.
    pub(crate) has_rules: bool,
    /// Values record events while they are formatted, nobody knows how often.
    pub(crate) is_loud: bool,
    /// Texts that the table of open spans has no room for, and no event has.
    pub(crate) cut_in_table: u64,
}

/// A span that was made.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) site: usize,
    dispatcher: usize,
    /// The recorder sees the span.
    is_seen: bool,
    parent: Option<Span>,
    /// Handles, times entered, and children that are open.
    uses: usize,
    /// Values in the order in which they were given.
    given: Vec<(usize, String)>,
    /// Where the values of each record begin in `given`.
    records: Vec<usize>,
    /// The span is of the main thread or of the first one, and they do not close it.
    is_left_open: bool,
}

impl Made {
    /// Returns true if the span is open, and does not change, when the program dies.
    pub(crate) fn is_open_at_end(&self) -> bool {
        self.is_seen && self.is_left_open && self.uses > 0
    }
}

impl Model {
    /// Follows the scripts; with the rules of the first session, or without rules.
    pub(crate) fn follow(shape: &Shape, has_rules: bool) -> Self {
        let is_rule = |step: &Step| matches!(step, Step::Rule { .. });
        let rules = has_rules && shape.threads.iter().flatten().any(is_rule);
        let mut fields = shape.events.iter().chain(&shape.spans).flat_map(|site| &site.fields);
        let is_loud = fields.any(|field| matches!(field.kind, Kind::Loud(_)));
        let mut model = Self {
            threads: Vec::new(),
            spans: Vec::new(),
            open: (0, 0),
            has_rules: rules,
            is_loud,
            cut_in_table: 0,
        };
        let mut main = Follower::new(shape, &mut model, Vec::new(), has_rules);
        for (site, key) in &shape.shared {
            main.new_span(0, *site, *key, Parent::Root);
        }
        let shared = main.handles.clone();
        let mut given = Vec::new();
        for spans in &shape.given {
            let before = main.handles.len();
            for (site, key, parent) in spans {
                main.new_span(0, *site, *key, parent.map_or(Parent::Root, Parent::Handle));
            }
            given.push(main.handles[before..].to_vec());
        }
        let found = main.wanted;
        model.threads.push(found);
        let (mut of_first, mut closed) = (0, 0);
        for (number, steps) in shape.threads.iter().enumerate() {
            let handles = shared.iter().chain(&given[number]).copied().collect();
            let mut follower = Follower::new(shape, &mut model, handles, has_rules);
            for (number, step) in steps.iter().enumerate() {
                follower.step(number, step);
            }
            let found = follower.wanted;
            model.threads.push(found);
            if number == 0 {
                // All spans so far are of the main thread and of the first one.
                of_first = model.spans.len();
                let others: Vec<Span> = given[1..].iter().flatten().copied().flatten().collect();
                for (span, made) in model.spans.iter_mut().enumerate() {
                    made.is_left_open = !others.contains(&span);
                }
                closed = model.spans.iter().filter(|span| span.is_seen && span.uses == 0).count();
            }
        }
        let seen = |spans: &[Made]| spans.iter().filter(|span| span.is_seen).count();
        model.open.0 =
            model.spans[..of_first].iter().filter(|span| span.is_seen && span.uses > 0).count();
        model.open.1 = seen(&model.spans) - closed - model.open.0;
        model
    }

    /// The text by which events show the span, but for NULs: the values that it was given, in the order in which
    /// they were given, and those of each record in the order in which the callsite has its fields.
    pub(crate) fn text(&self, shape: &Shape, span: Span) -> String {
        let made = &self.spans[span];
        let site = &shape.spans[made.site];
        let mut given = made.given.clone();
        let ends = made.records.iter().skip(1).copied().chain([given.len()]);
        for (begin, end) in made.records.iter().zip(ends) {
            given[*begin..end].sort_by_key(|(at, _)| *at);
        }
        // The table has 0x1f between target, name and fields.
        let head = format!("{}::{}", site.target, site.name.as_deref().unwrap_or_default());
        let head = stored(&head).replace('\u{1f}', "\u{1a}");
        let values: Vec<String> =
            given.iter().map(|(at, text)| format!("{}={text}", site.fields[*at].name)).collect();
        if values.is_empty() { head } else { format!("{head}{{{}}}", values.join(" ")) }
    }
}

/// Follows one thread.
struct Follower<'a> {
    shape: &'a Shape,
    model: &'a mut Model,
    /// The span of each handle; none if a filter kept it from being made.
    handles: Vec<Option<Span>>,
    entered: Vec<Option<Span>>,
    defaults: Vec<usize>,
    /// For each dispatcher, the spans that the thread is in, and whether it was in each of them
    /// already.
    stacks: Vec<Vec<(Span, bool)>>,
    wanted: Vec<Wanted>,
    /// The session has rules.
    has_rules: bool,
    /// The beginnings of names, and whether the events are recorded. The last one counts.
    rules: Vec<(String, bool)>,
}

impl<'a> Follower<'a> {
    fn new(
        shape: &'a Shape,
        model: &'a mut Model,
        handles: Vec<Option<Span>>,
        has_rules: bool,
    ) -> Self {
        Self {
            shape,
            model,
            handles,
            entered: Vec::new(),
            defaults: vec![0],
            stacks: vec![Vec::new(); shape.dispatchers.len()],
            wanted: Vec::new(),
            has_rules,
            rules: Vec::new(),
        }
    }

    fn default(&self) -> usize {
        self.defaults[self.defaults.len() - 1]
    }

    /// Returns true if the session takes events of the provider.
    fn is_taken(&self, provider: &str) -> bool {
        let name = format!("{provider}:");
        self.rules
            .iter()
            .rev()
            .find(|(begin, _)| name.starts_with(begin))
            .is_none_or(|(_, enable)| *enable)
    }

    /// The span, or the nearest one around it that the recorder sees.
    fn nearest_seen(&self, mut span: Option<Span>) -> Option<Span> {
        while let Some(hidden) = span.filter(|span| !self.model.spans[*span].is_seen) {
            span = self.model.spans[hidden].parent;
        }
        span
    }

    /// The innermost span of the default dispatcher.
    fn innermost(&self, is: impl Fn(Span) -> bool) -> Option<Span> {
        let stack = &self.stacks[self.default()];
        stack.iter().rev().find(|(span, is_again)| !is_again && is(*span)).map(|(span, _)| *span)
    }

    fn step(&mut self, number: usize, step: &Step) {
        match step {
            Step::Event { site, key, parent, .. } => self.event(number, *site, *key, *parent),
            Step::New { site, key, parent } => self.new_span(number, *site, *key, *parent),
            Step::Enter(handle) => self.enter(number, self.handles[*handle]),
            Step::Leave(at) => {
                let span = self.entered.remove(*at);
                self.leave(number, span);
            }
            Step::Record { handle, key } => self.record(number, self.handles[*handle], *key),
            Step::Drop(handle) => {
                if let Some(span) = self.handles[*handle] {
                    self.release(number, span);
                }
            }
            Step::Scope { handle, site, key } => {
                self.enter(number, self.handles[*handle]);
                self.event(number, *site, *key, Parent::Current);
                let span = self.entered.pop().flatten();
                self.leave(number, span);
            }
            Step::Push(dispatcher) => self.defaults.push(*dispatcher),
            Step::Pop => drop(self.defaults.pop()),
            Step::Log { message, key, level, place, is_odd } => {
                let target = shape::log_target(*place, *is_odd);
                self.log(number, *message, *key, *level, *place, &target);
            }
            // Neither is recorded.
            Step::Follows(..) | Step::Panic { .. } => {}
            Step::Rule { provider, enable } => {
                if self.has_rules {
                    self.rules.push((format!("{}:", self.shape.providers()[*provider]), *enable));
                }
            }
        }
    }

    fn enter(&mut self, step: usize, span: Option<Span>) {
        self.entered.push(span);
        let Some(span) = span else { return };
        self.model.spans[span].uses += 1;
        let dispatcher = self.model.spans[span].dispatcher;
        let stack = &mut self.stacks[dispatcher];
        let is_again = stack.iter().any(|(known, _)| *known == span);
        stack.push((span, is_again));
        if self.shape.dispatchers[dispatcher].enter_and_exit {
            self.span_event(step, span, "enter", What::Of(span), Values::default());
        }
    }

    fn leave(&mut self, step: usize, span: Option<Span>) {
        let Some(span) = span else { return };
        let dispatcher = self.model.spans[span].dispatcher;
        let stack = &mut self.stacks[dispatcher];
        let at = stack.iter().rposition(|(known, _)| *known == span).expect("an entered span");
        stack.remove(at);
        if self.shape.dispatchers[dispatcher].enter_and_exit {
            self.span_event(step, span, "exit", What::Of(span), Values::default());
        }
        self.release(step, span);
    }

    fn event(&mut self, step: usize, number: usize, key: u64, parent: Parent) {
        let site = &self.shape.events[number];
        let dispatcher = self.shape.dispatchers[self.default()];
        if !dispatcher.sees(site.level) || !self.is_taken(&site.target) {
            return;
        }
        let is_seen = |span: &Span| self.model.spans[*span].is_seen;
        let span = match parent {
            Parent::Root => None,
            Parent::Handle(at) => self.handles[at].filter(is_seen),
            Parent::Current => self.innermost(|span| is_seen(&span)),
        };
        let mut values = values_of(site, key);
        values.places.extend(site.message.map(|(at, _)| at));
        let message = site.message.map(|(_, number)| message_of(number, key));
        let number = site.message.map(|(_, number)| number);
        self.wanted.push(Wanted {
            step,
            what: What::Event(span),
            names: names(&site.target, site.name.as_deref(), number, FILE, site.line),
            fields: values.fields,
            places: values.places,
            is_any: values.is_any,
            message,
            span_text: span.map(|span| self.model.text(self.shape, span)),
        });
    }

    fn log(
        &mut self,
        step: usize,
        message: usize,
        key: u64,
        level: usize,
        place: u32,
        target: &str,
    ) {
        let dispatcher = self.shape.dispatchers[self.default()];
        if !dispatcher.sees(level) || !self.is_taken(target) {
            return;
        }
        let span = self.innermost(|span| self.model.spans[span].is_seen);
        self.wanted.push(Wanted {
            step,
            what: What::Event(span),
            names: names(target, None, Some(message), "src/logs.rs", place),
            fields: Vec::new(),
            places: vec![0],
            is_any: false,
            message: Some(message_of(message, key)),
            span_text: span.map(|span| self.model.text(self.shape, span)),
        });
    }

    fn new_span(&mut self, step: usize, number: usize, key: u64, parent: Parent) {
        let site = &self.shape.spans[number];
        let dispatcher = self.default();
        let (makes, sees) = (
            self.shape.dispatchers[dispatcher].makes(site.level),
            self.shape.dispatchers[dispatcher].sees(site.level),
        );
        if !makes {
            self.handles.push(None);
            return;
        }
        let parent_made = match parent {
            Parent::Root => None,
            Parent::Handle(at) => self.handles[at],
            Parent::Current => self.innermost(|_| true),
        };
        let mut parents = vec![self.nearest_seen(parent_made)];
        if parent == Parent::Current {
            // Where a hidden span of another tree is innermost, layers take either for the parent.
            parents.push(self.innermost(|span| self.model.spans[span].is_seen));
        }
        let span = self.model.spans.len();
        if let Some(parent) = parent_made {
            self.model.spans[parent].uses += 1;
        }
        let given = given(
            site,
            key,
            (0..site.fields.len()).filter(|at| site.fields[*at].is_present(key, *at)),
        );
        self.model.spans.push(Made {
            site: number,
            dispatcher,
            is_seen: sees,
            parent: parent_made,
            uses: 1,
            given,
            records: Vec::new(),
            is_left_open: false,
        });
        self.handles.push(Some(span));
        self.span_event(step, span, "new", What::New(span, parents), values_of(site, key));
    }

    fn record(&mut self, step: usize, span: Option<Span>, key: u64) {
        let Some(span) = span else { return };
        let site = &self.shape.spans[self.model.spans[span].site];
        let chosen = shape::chosen(key, site.fields.len());
        let values = values_at(site, key, chosen.iter().copied());
        let made = &mut self.model.spans[span];
        made.records.push(made.given.len());
        made.given.extend(given(site, key, chosen.iter().copied()));
        self.span_event(step, span, "record", What::Of(span), values);
    }

    /// Takes one use of the span away. The last one closes it, and takes away a use of its parent.
    fn release(&mut self, step: usize, span: Span) {
        self.model.spans[span].uses -= 1;
        if self.model.spans[span].uses == 0 {
            self.span_event(step, span, "close", What::Of(span), Values::default());
            if let Some(parent) = self.model.spans[span].parent {
                self.release(step, parent);
            }
        }
    }

    fn span_event(&mut self, step: usize, span: Span, verb: &str, what: What, values: Values) {
        let made = &self.model.spans[span];
        if made.is_seen
            && !self.is_taken("span")
            && (verb == "new" || (verb == "record" && !values.fields.is_empty()))
        {
            // The table has one byte between target and name, one in front of the fields, and no
            // braces.
            let shown = self.model.text(self.shape, span);
            let len = if made.given.is_empty() { shown.len() } else { shown.len() - 2 };
            self.model.cut_in_table += u64::from(len > TABLE_ROOM);
        } else if made.is_seen && self.is_taken("span") {
            let site = &self.shape.spans[made.site];
            let name = format!(
                "span:{verb} {}::{}",
                site.target,
                site.name.as_deref().unwrap_or_default()
            );
            self.wanted.push(Wanted {
                step,
                what,
                names: vec![name],
                fields: values.fields,
                places: values.places,
                is_any: values.is_any,
                message: None,
                span_text: None,
            });
        }
    }
}

/// The texts of some fields' values, as the text of a span shows them.
fn given(site: &Site, key: u64, places: impl Iterator<Item = usize>) -> Vec<(usize, String)> {
    let shown = |at: usize| match site.fields[at].kind.value(key, at).expected() {
        Expected::Unsigned(value) => value.to_string(),
        Expected::Signed(value) => value.to_string(),
        Expected::Float(value) => format!("{value:?}"),
        Expected::Bool(value) => value.to_string(),
        Expected::Text(text) => text,
    };
    places.map(|at| (at, shown(at))).collect()
}

/// Values of an event.
#[derive(Default)]
struct Values {
    fields: Vec<(String, Expected)>,
    places: Vec<usize>,
    is_any: bool,
}

/// The values that an event has.
fn values_of(site: &Site, key: u64) -> Values {
    values_at(site, key, (0..site.fields.len()).filter(|at| site.fields[*at].is_present(key, *at)))
}

/// The values of these fields.
fn values_at(site: &Site, key: u64, places: impl Iterator<Item = usize>) -> Values {
    let mut values = Values {
        is_any: site.fields.iter().any(|field| field.kind == Kind::Any),
        ..Values::default()
    };
    for at in places {
        let field = &site.fields[at];
        values.fields.push((field.name.clone(), field.kind.value(key, at).expected()));
        // The message stands among the fields.
        values
            .places
            .push(at + usize::from(site.message.is_some_and(|(message, _)| message <= at)));
    }
    values
}

fn message_of(number: usize, key: u64) -> (String, bool) {
    (
        message::with(number, &Arguments::from_key(key), |message| message.to_string()),
        message::is_constant(number),
    )
}

/// The names that an event may have: its own, or else the constant part of its message, or the
/// place in the source. Values never.
fn names(
    target: &str,
    name: Option<&str>,
    message: Option<usize>,
    file: &str,
    line: u32,
) -> Vec<String> {
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
            let name: String =
                parts.iter().enumerate().flat_map(|(at, part)| [hole(at), part]).collect();
            if !name.trim().is_empty() {
                names.push(format!("{target}:{name}"));
            }
        }
    }
    names
}
