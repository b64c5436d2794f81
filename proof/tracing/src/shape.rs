//! A shape: dispatchers, callsites, and what each thread does, all of it made of the seed.

use lastwords_testkit::random::{Random, mix};

use crate::message;
use crate::value::Kind;

/// Who takes events and spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dispatcher {
    pub(crate) recorder: Recorder,
    pub(crate) filter: Filter,
    /// Entering and leaving a span is recorded.
    pub(crate) enter_and_exit: bool,
    /// The least severe level that passes a filter of the whole dispatcher.
    pub(crate) most: usize,
    /// Other layers stand beside the recorder's.
    pub(crate) beside: bool,
}

/// The recorder of a dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorder {
    /// The library's own subscriber.
    Subscriber,
    /// The library's layer on a registry.
    Layer,
    /// A registry alone: nothing is recorded.
    Bare,
}

/// The filter of the layer alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    None,
    /// The library's.
    Wanted,
    /// It hides events and spans that are less severe.
    Level(usize),
}

impl Dispatcher {
    fn random(rng: &mut Random) -> Self {
        let recorder = if rng.one_in(2) { Recorder::Subscriber } else { Recorder::Layer };
        let is_layer = recorder == Recorder::Layer;
        let filter = match rng.below(4) {
            0 | 1 if is_layer => Filter::Wanted,
            2 if is_layer => Filter::Level(rng.below(5) as usize),
            _ => Filter::None,
        };
        let most = if rng.one_in(8) { rng.below(4) as usize + 1 } else { TRACE };
        Self {
            recorder,
            filter,
            enter_and_exit: rng.one_in(4),
            most,
            beside: is_layer && rng.one_in(3),
        }
    }

    fn bare() -> Self {
        Self {
            recorder: Recorder::Bare,
            filter: Filter::None,
            enter_and_exit: false,
            most: TRACE,
            beside: false,
        }
    }

    /// Returns true if a span of this level is made.
    pub(crate) fn makes(self, level: usize) -> bool {
        level <= self.most
    }

    /// Returns true if the recorder sees events and spans of this level.
    pub(crate) fn sees(self, level: usize) -> bool {
        let is_hidden = matches!(self.filter, Filter::Level(most) if level > most);
        self.recorder != Recorder::Bare && self.makes(level) && !is_hidden
    }
}

/// The level of what is least severe.
pub(crate) const TRACE: usize = 4;

/// The rings of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rings {
    /// Nothing is lost.
    Large,
    /// One ring, because the program stays on one CPU, of so many sub-buffers of this size.
    Small { sub_buffers: u32, size: u64, discard: bool },
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

/// One step of a thread. Handles of spans are numbered for each thread: first those that all
/// threads share, then its own.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// An event. Where an order is given, the values come in that order, and only those that are
    /// present.
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
    /// The first span follows from the second.
    Follows(usize, usize),
    /// An event in the scope of a span.
    Scope {
        handle: usize,
        site: usize,
        key: u64,
    },
    /// An event or, if `is_span`, a span with a value whose formatting panics.
    Panic {
        is_span: bool,
    },
    /// Enables or disables the events of a provider, by a rule of the session.
    Rule {
        provider: usize,
        enable: bool,
    },
    /// Makes another dispatcher the thread's default.
    Push(usize),
    Pop,
    Log {
        message: usize,
        key: u64,
        level: usize,
        /// The line, and what the target is made of.
        place: u32,
        is_odd: bool,
    },
}

/// The target of a record of the `log` crate.
pub(crate) fn log_target(place: u32, is_odd: bool) -> String {
    if is_odd { odd(u64::from(place)) } else { format!("logged::t{place}") }
}

/// One shape.
pub(crate) struct Shape {
    pub(crate) index: u64,
    /// The first is the program's global one.
    pub(crate) dispatchers: Vec<Dispatcher>,
    pub(crate) events: Vec<Site>,
    pub(crate) spans: Vec<Site>,
    /// Spans of the main thread, under the global dispatcher, that all threads use: callsite and
    /// key.
    pub(crate) shared: Vec<(usize, u64)>,
    /// Spans that the main thread makes for each thread, which closes them: callsite, key, and the
    /// shared span that is the parent.
    pub(crate) given: Vec<Vec<(usize, u64, Option<usize>)>>,
    pub(crate) threads: Vec<Vec<Step>>,
    /// Records of the `log` crate are recorded.
    pub(crate) logs: bool,
    /// Names have characters that names seldom have.
    pub(crate) is_odd: bool,
    pub(crate) rings: Rings,
    /// A second session, of the same name, has all events too.
    pub(crate) has_second: bool,
}

impl Shape {
    /// Returns the shape of this number.
    pub(crate) fn random(seed: u64, index: u64) -> Self {
        let rng = &mut Random(mix(seed ^ mix(index)));
        let mut dispatchers = vec![Dispatcher::random(rng)];
        if rng.one_in(2) {
            for _ in 0..1 + rng.below(2) {
                dispatchers.push(if rng.one_in(6) {
                    Dispatcher::bare()
                } else {
                    Dispatcher::random(rng)
                });
            }
        }
        let rings = match rng.below(8) {
            0 => Rings::Small {
                sub_buffers: 2 << rng.below(3),
                size: 1024 << rng.below(5),
                discard: rng.one_in(2),
            },
            _ => Rings::Large,
        };
        // Few shapes have optional fields alone: all combinations of up to 14.
        let style = Style {
            is_optional: rng.one_in(6),
            is_odd: rng.one_in(5),
            is_any: rng.one_in(6),
            is_known: rings != Rings::Large,
        };
        let events: Vec<Site> =
            (0..1 + rng.below(6)).map(|at| event_site(rng, at, style)).collect();
        let spans: Vec<Site> = (0..1 + rng.below(4)).map(|at| span_site(rng, at, style)).collect();
        let site = |rng: &mut Random| rng.below(spans.len() as u64) as usize;
        let shared: Vec<(usize, u64)> =
            (0..rng.below(3)).map(|_| (site(rng), rng.bits())).collect();
        let threads = 1 + if rng.one_in(10) { rng.below(12) } else { rng.below(3) };
        let mut given_to = || -> Vec<(usize, u64, Option<usize>)> {
            let parent = |rng: &mut Random| {
                (!shared.is_empty() && rng.one_in(2))
                    .then(|| rng.below(shared.len() as u64) as usize)
            };
            (0..rng.below(3)).map(|_| (site(rng), rng.bits(), parent(rng))).collect()
        };
        let given = (0..threads).map(|_| given_to()).collect();
        let mut shape = Self {
            index,
            dispatchers,
            events,
            spans,
            shared,
            given,
            threads: Vec::new(),
            logs: rng.one_in(3),
            is_odd: style.is_odd,
            rings,
            has_second: rng.one_in(10),
        };
        let deep = rng.one_in(8);
        shape.threads =
            (0..threads as usize).map(|thread| script(rng, &shape, thread, deep)).collect();
        shape
    }

    /// The providers of the shape that rules name: those of events, and that of spans.
    pub(crate) fn providers(&self) -> Vec<&str> {
        let is_plain = |target: &&str| target.starts_with("proof");
        self.events.iter().map(|site| &*site.target).filter(is_plain).chain(["span"]).collect()
    }

    /// The shape in a few words.
    pub(crate) fn shown(&self) -> String {
        let mut text = format!(
            "{:?}, dispatchers {:?}, {} threads, {} shared",
            self.rings,
            self.dispatchers,
            self.threads.len(),
            self.shared.len()
        );
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
                let (target, level) = (&site.target, site.level);
                text += &format!(
                    "\n    {what} {number} {target:?} {:?} level {level}, message {message:?}: {}",
                    site.name,
                    fields.join(", ")
                );
            }
        }
        text
    }
}

/// The properties of a shape's callsites.
#[derive(Debug, Clone, Copy)]
struct Style {
    /// All fields are optional.
    is_optional: bool,
    /// Names have characters that names seldom have.
    is_odd: bool,
    /// Fields have values of any type.
    is_any: bool,
    /// Each span has a value that no other span has.
    is_known: bool,
}

/// Returns a name that is unusual.
fn odd(bits: u64) -> String {
    let names = [
        "a b",
        "ünï::漢字",
        "a::b::c",
        "-",
        "span",
        "1",
        "a:b",
        "log",
        "q\"uote",
        "back\\slash",
        "%s{}",
        "r#type",
        "type",
        "span_id",
        "parent_id",
        "event",
        "_x",
        "vtid",
        "cpu_id",
        "a=b",
        "a.b",
        "a_b",
        ",",
        "name",
        "A",
        "tab\tx",
        "line\nbreak",
        "nul\0x",
        "unit\u{1f}x",
        "😀",
    ];
    match mix(bits) % 36 {
        0 => "long_".repeat(60),
        1 => "é".repeat(130),
        2 => "x".repeat(1000),
        3 => String::new(),
        at => names[at as usize % names.len()].to_owned(),
    }
}

fn fields(rng: &mut Random, count: u64, optional: u64, style: Style) -> Vec<Field> {
    let beginnings = ["a", "value", "user.name", "x", "http_status", "n"];
    let mut fields: Vec<Field> = Vec::new();
    for number in 0..count {
        let most = match rng.below(24) {
            0 if rng.one_in(12) => 100_000,
            0 => 5000,
            1 => 400 + rng.below(3000) as usize,
            2..=4 => 200,
            _ => 40,
        };
        let plain = format!("{}{number}", rng.pick(&beginnings));
        let other = odd(rng.bits());
        let is_free = fields.iter().all(|field| field.name != other);
        let name = if style.is_odd && is_free && rng.one_in(3) { other } else { plain };
        let kind = if style.is_any && rng.one_in(2) { Kind::Any } else { Kind::random(rng, most) };
        let absent = if rng.below(100) < optional { *rng.pick(&[1, 4, 4, 7, 8]) } else { 0 };
        fields.push(Field { name, kind, absent });
    }
    fields
}

fn event_site(rng: &mut Random, number: u64, style: Style) -> Site {
    let count = match rng.below(10) {
        _ if style.is_optional => 6 + rng.below(9),
        0 => 0,
        1 if rng.one_in(4) => 450 + rng.below(250),
        1 => 33 + rng.below(70),
        2 => 13 + rng.below(30),
        _ => 1 + rng.below(10),
    };
    let fields = fields(rng, count, if style.is_optional { 100 } else { 30 }, style);
    let message = rng.below(message::TEMPLATES.len() as u64) as usize;
    let at = if rng.one_in(6) { rng.below(count + 1) as usize } else { 0 };
    let target = match rng.below(4) {
        0 | 1 => "proof".into(),
        2 if style.is_odd => odd(rng.bits()),
        _ => format!("proof::t{number}"),
    };
    let name = match rng.below(12) {
        0 if style.is_odd => Some(odd(rng.bits())).filter(|name| !name.is_empty()),
        0 => Some(format!("event {number}")),
        1 => Some(format!("named_{number}")),
        _ => None,
    };
    let level = rng.below(5) as usize;
    Site {
        target,
        name,
        level,
        line: 100 + number as u32,
        fields,
        message: (!rng.one_in(5)).then_some((at, message)),
    }
}

fn span_site(rng: &mut Random, number: u64, style: Style) -> Site {
    let count = match rng.below(24) {
        0 if rng.one_in(8) => 500 + rng.below(100),
        0 | 1 => 33 + rng.below(40),
        _ => rng.below(8),
    };
    let mut fields = fields(rng, count, 40, style);
    // With it, a reader knows which span a text is of.
    let sid = Field { name: "sid".into(), kind: Kind::Key, absent: 0 };
    if style.is_known || !rng.one_in(6) {
        fields.insert(0, sid);
    }
    let plain = format!("span_{number}");
    let name = Some(if style.is_odd && rng.one_in(2) { odd(rng.bits()) } else { plain });
    let level = rng.below(5) as usize;
    let target =
        if style.is_odd && rng.one_in(2) { odd(rng.bits()) } else { format!("proof::s{number}") };
    Site { target, name, level, line: 500 + number as u32, fields, message: None }
}

/// The spans and defaults that are open while a script is made.
struct Open {
    /// Dispatcher of each handle; none when it is dropped.
    handles: Vec<Option<usize>>,
    entered: usize,
    defaults: Vec<usize>,
}

fn script(rng: &mut Random, shape: &Shape, thread: usize, deep: bool) -> Vec<Step> {
    let held = shape.shared.len() + shape.given[thread].len();
    let mut open = Open { handles: vec![Some(0); held], entered: 0, defaults: vec![0] };
    let mut steps = 40 + rng.below(160);
    if shape.rings != Rings::Large {
        steps *= 5;
    }
    let (handles, entered) = if deep { (200, 150) } else { (20, 8) };
    (0..steps).map(|_| step(rng, shape, &mut open, handles, entered)).collect()
}

fn step(rng: &mut Random, shape: &Shape, open: &mut Open, handles: usize, entered: usize) -> Step {
    let default = open.defaults.last().copied().unwrap_or(0);
    let held: Vec<usize> =
        (0..open.handles.len()).filter(|at| open.handles[*at].is_some()).collect();
    let own: Vec<usize> =
        held.iter().copied().filter(|at| open.handles[*at] == Some(default)).collect();
    let parent = match rng.below(8) {
        0 => Parent::Root,
        1 if !own.is_empty() => Parent::Handle(*rng.pick(&own)),
        _ => Parent::Current,
    };
    let key = rng.bits();
    let site = rng.below(shape.events.len() as u64) as usize;
    match rng.below(22) {
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
            let is_odd = shape.is_odd && rng.one_in(3);
            let place = rng.below(20) as u32;
            return Step::Log { message, key, level: rng.below(5) as usize, place, is_odd };
        }
        13 if !held.is_empty() && rng.one_in(2) => {
            return Step::Follows(*rng.pick(&held), *rng.pick(&held));
        }
        13 if !held.is_empty() => return Step::Scope { handle: *rng.pick(&held), site, key },
        14 if rng.one_in(6) => return Step::Panic { is_span: rng.one_in(2) },
        // Other threads would record before the rule or after it.
        15 if shape.given.len() == 1 && rng.one_in(4) => {
            let provider = rng.below(shape.providers().len() as u64) as usize;
            return Step::Rule { provider, enable: rng.one_in(2) };
        }
        _ => {}
    }
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
