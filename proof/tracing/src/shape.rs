//! A shape: dispatchers, callsites, and what each thread does, all of it made of the seed.

use lastwords_testkit::random::{Random, mix};

use crate::message;
use crate::value::Kind;

/// Who takes events and spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dispatcher {
    /// The library's own subscriber.
    Subscriber,
    /// The library's layer on a registry.
    Layer,
    /// The layer with its filter on a registry.
    Filtered,
    /// A registry alone: nothing is recorded.
    Bare,
}

/// A field of a callsite.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The field has no value in so many of eight events.
    pub(crate) absent: u64,
}

impl Field {
    /// Returns true if the field has a value in the event that `key` stands for.
    pub(crate) fn is_present(&self, key: u64, place: usize) -> bool {
        mix(key ^ (place as u64) << 32 ^ 0x4f50_5453) % 8 >= self.absent
    }
}

/// A callsite.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) target: String,
    /// The name of a span, or the one that an event was given.
    pub(crate) name: Option<String>,
    /// 0 is ERROR, 4 is TRACE.
    pub(crate) level: usize,
    pub(crate) line: u32,
    pub(crate) fields: Vec<Field>,
    /// Where the message stands among the fields, and its number.
    pub(crate) message: Option<(usize, usize)>,
}

impl Site {
    /// The names of all fields, the message among them.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.fields.iter().map(|field| field.name.clone()).collect();
        if let Some((at, _)) = self.message {
            names.insert(at, "message".into());
        }
        names
    }
}

/// Of which span an event or a span is a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parent {
    Current,
    Root,
    Handle(usize),
}

/// What a thread does. Handles of spans are numbered for each thread: first those that all threads share, then its own.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// An event. Where an order is given, the values come in that order, and only those that are present.
    Event {
        site: usize,
        key: u64,
        parent: Parent,
        order: Option<u64>,
    },
    New {
        site: usize,
        key: u64,
        parent: Parent,
    },
    Enter(usize),
    /// Leaves what was entered at this position of the list of what is entered.
    Leave(usize),
    /// Sets the fields that [`chosen`] names, in that order.
    Record {
        handle: usize,
        key: u64,
    },
    Drop(usize),
    /// Makes another dispatcher the thread's default.
    Push(usize),
    Pop,
    Log {
        message: usize,
        key: u64,
        level: usize,
        place: u32,
    },
}

/// One shape.
pub(crate) struct Shape {
    pub(crate) index: u64,
    /// The first is the program's global one.
    pub(crate) dispatchers: Vec<Dispatcher>,
    pub(crate) events: Vec<Site>,
    pub(crate) spans: Vec<Site>,
    /// Spans of the main thread, under the global dispatcher: callsite and key.
    pub(crate) shared: Vec<(usize, u64)>,
    pub(crate) threads: Vec<Vec<Step>>,
    /// Records of the `log` crate are recorded.
    pub(crate) logs: bool,
}

impl Shape {
    /// Returns the shape of this number.
    pub(crate) fn random(seed: u64, index: u64) -> Self {
        let rng = &mut Random(mix(seed ^ mix(index)));
        let any = [Dispatcher::Subscriber, Dispatcher::Layer, Dispatcher::Filtered];
        let mut dispatchers = vec![*rng.pick(&any)];
        if rng.one_in(2) {
            for _ in 0..1 + rng.below(2) {
                dispatchers.push(if rng.one_in(6) { Dispatcher::Bare } else { *rng.pick(&any) });
            }
        }
        // Few shapes have optional fields alone: all combinations of up to 14.
        let is_optional = rng.one_in(6);
        let events: Vec<Site> = (0..1 + rng.below(6)).map(|at| event_site(rng, at, is_optional)).collect();
        let spans: Vec<Site> = (0..1 + rng.below(4)).map(|at| span_site(rng, at)).collect();
        let shared = (0..rng.below(3)).map(|_| (rng.below(spans.len() as u64) as usize, rng.bits())).collect();
        let mut shape = Self { index, dispatchers, events, spans, shared, threads: Vec::new(), logs: rng.one_in(3) };
        let deep = rng.one_in(8);
        let threads = 1 + rng.below(3);
        shape.threads = (0..threads).map(|_| script(rng, &shape, deep)).collect();
        shape
    }

    /// The shape in a few words.
    pub(crate) fn shown(&self) -> String {
        let mut text = format!("dispatchers {:?}, {} threads", self.dispatchers, self.threads.len());
        for (what, sites) in [("event", &self.events), ("span", &self.spans)] {
            for (number, site) in sites.iter().enumerate() {
                let fields: Vec<String> = site
                    .fields
                    .iter()
                    .map(|field| {
                        let mark = if field.absent > 0 { "?" } else { "" };
                        format!("{}{mark}: {:?}", field.name, field.kind)
                    })
                    .collect();
                let message = site.message.map(|(at, number)| (at, message::TEMPLATES[number]));
                text += &format!("\n    {what} {number} {:?}, message {message:?}: {}", site.name, fields.join(", "));
            }
        }
        text
    }
}

fn fields(rng: &mut Random, count: u64, optional: u64) -> Vec<Field> {
    let beginnings = ["a", "value", "user.name", "x", "http_status", "n"];
    let field = |number| {
        let most = match rng.below(24) {
            0 => 5000,
            1 => 400 + rng.below(3000) as usize,
            2..=4 => 200,
            _ => 40,
        };
        Field {
            name: format!("{}{number}", rng.pick(&beginnings)),
            kind: Kind::random(rng, most),
            absent: if rng.below(100) < optional { *rng.pick(&[1, 4, 4, 7, 8]) } else { 0 },
        }
    };
    (0..count).map(field).collect()
}

fn event_site(rng: &mut Random, number: u64, is_optional: bool) -> Site {
    let count = match rng.below(10) {
        _ if is_optional => 6 + rng.below(9),
        0 => 0,
        1 => 33 + rng.below(70),
        2 => 13 + rng.below(30),
        _ => 1 + rng.below(10),
    };
    let fields = fields(rng, count, if is_optional { 100 } else { 30 });
    let message = rng.below(message::TEMPLATES.len() as u64) as usize;
    let at = if rng.one_in(6) { rng.below(count + 1) as usize } else { 0 };
    Site {
        target: if rng.one_in(2) { "proof".into() } else { format!("proof::t{number}") },
        name: rng.one_in(6).then(|| format!("named_{number}")),
        level: rng.below(5) as usize,
        line: 100 + number as u32,
        fields,
        message: (!rng.one_in(5)).then_some((at, message)),
    }
}

fn span_site(rng: &mut Random, number: u64) -> Site {
    let count = if rng.one_in(12) { 33 + rng.below(40) } else { rng.below(8) };
    let mut fields = fields(rng, count, 40);
    // With it, a reader knows which span a text is of.
    let sid = Field { name: "sid".into(), kind: Kind::Unsigned, absent: 0 };
    if !rng.one_in(6) {
        fields.insert(0, sid);
    }
    let name = Some(format!("span_{number}"));
    let level = rng.below(5) as usize;
    Site { target: format!("proof::s{number}"), name, level, line: 500 + number as u32, fields, message: None }
}

/// What is open while a script is made.
struct Open {
    /// Dispatcher of each handle; none when it is dropped.
    handles: Vec<Option<usize>>,
    entered: usize,
    defaults: Vec<usize>,
}

fn script(rng: &mut Random, shape: &Shape, deep: bool) -> Vec<Step> {
    let mut open = Open { handles: vec![Some(0); shape.shared.len()], entered: 0, defaults: vec![0] };
    let steps = 40 + rng.below(160);
    let (handles, entered) = if deep { (200, 150) } else { (20, 8) };
    (0..steps).map(|_| step(rng, shape, &mut open, handles, entered)).collect()
}

fn step(rng: &mut Random, shape: &Shape, open: &mut Open, handles: usize, entered: usize) -> Step {
    let default = open.defaults.last().copied().unwrap_or(0);
    let held: Vec<usize> = (0..open.handles.len()).filter(|at| open.handles[*at].is_some()).collect();
    let own: Vec<usize> = held.iter().copied().filter(|at| open.handles[*at] == Some(default)).collect();
    let parent = match rng.below(8) {
        0 => Parent::Root,
        1 if !own.is_empty() => Parent::Handle(*rng.pick(&own)),
        _ => Parent::Current,
    };
    let key = rng.bits();
    match rng.below(20) {
        0..=2 if held.len() < handles => {
            open.handles.push(Some(default));
            return Step::New { site: rng.below(shape.spans.len() as u64) as usize, key, parent };
        }
        3..=5 if !held.is_empty() && open.entered < entered => {
            open.entered += 1;
            return Step::Enter(*rng.pick(&held));
        }
        6 | 7 if open.entered > 0 => {
            let last = open.entered as u64 - 1;
            let at = if rng.one_in(3) { rng.below(open.entered as u64) } else { last };
            open.entered -= 1;
            return Step::Leave(at as usize);
        }
        8 if held.len() > shape.shared.len() => {
            let handle = *rng.pick(&held[shape.shared.len()..]);
            open.handles[handle] = None;
            return Step::Drop(handle);
        }
        9 if shape.dispatchers.len() > 1 && open.defaults.len() < 5 => {
            open.defaults.push(rng.below(shape.dispatchers.len() as u64) as usize);
            return Step::Push(open.defaults[open.defaults.len() - 1]);
        }
        10 if open.defaults.len() > 1 => {
            open.defaults.pop();
            return Step::Pop;
        }
        11 if held.len() > shape.shared.len() => {
            return Step::Record { handle: *rng.pick(&held[shape.shared.len()..]), key };
        }
        12 if shape.logs => {
            let message = rng.below(message::TEMPLATES.len() as u64) as usize;
            return Step::Log { message, key, level: rng.below(5) as usize, place: rng.below(20) as u32 };
        }
        _ => {}
    }
    let site = rng.below(shape.events.len() as u64) as usize;
    let is_few = shape.events[site].names().len() <= 16;
    let order = (is_few && rng.one_in(6)).then(|| rng.bits());
    Step::Event { site, key, parent, order }
}

/// Which fields a record of a span sets, and in which order: some, by no order of theirs.
pub(crate) fn chosen(key: u64, count: usize) -> Vec<usize> {
    let rng = &mut Random(mix(key ^ 0x5245_434f));
    let mut rest: Vec<usize> = (0..count).collect();
    let most = rng.below(count.min(6) as u64 + 1);
    (0..most).map(|_| rest.remove(rng.below(rest.len() as u64) as usize)).collect()
}

/// Puts things in an order of their own.
pub(crate) fn shuffle<T>(things: &mut [T], order: u64) {
    let rng = &mut Random(mix(order));
    for last in (1..things.len()).rev() {
        things.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
