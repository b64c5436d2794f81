//! The chain of spans around an event, as `tracing_subscriber::fmt` prints it:
//! `order{id=202}:charge{order=202}`.
//!
//! An event inside a span has the text of that span and its id. The spans around that one are known
//! from the events that report their opening and their later fields, and from the list of the spans
//! that were open at the end. All of them are collected before the first event is printed: a report
//! may begin in the middle of a trace. What is not recovered is `?`: a span whose opening is
//! missing, the fields of a span, and everything around a span whose parent is not known.

use super::columns::{Class, Fields, Form, Mark, Values, Writing, fields, of_event};
use super::escape::bare;
use crate::fields::IntegerField;
use crate::filter::names::{Lookup, Source, Targets};
use crate::spans::Step;
use crate::streams::scope_code;
use lastwords_ctf::program::Event;
use lastwords_ctf::read::{Next, Reader, Stream, Trace};
use lastwords_filter::BuiltIn;
use lastwords_trace::class::Scope;
use lastwords_trace::clock::{Converter, Rounding};
use lastwords_trace::parallel;
use lastwords_trace::visit::{NodeId, Shape};
use std::ops::Range;

/// Most spans around an event that are shown.
const MOST: usize = 64;
/// Between two fields of a span's text. The texts have no control characters.
const BETWEEN: u8 = 0x1f;
/// The end of a text that the recorder has cut.
const CUT: &str = "…";
/// What is not known.
const UNKNOWN: &[u8] = b"?";

/// Returns the name of a span behind its target: `request` of `server::request`.
pub(super) fn short_name(name: &[u8]) -> &[u8] {
    let at = name.windows(2).rposition(|two| two == b"::");
    at.and_then(|at| name.get(at.saturating_add(2)..)).unwrap_or(name)
}

/// A span: its trace, its process, and its id there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SpanIds {
    pub(super) trace: usize,
    pub(super) pid: i64,
    pub(super) id: u64,
}

/// What happened to a span. The order is that of events at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Opened {
        parent: u64,
        /// The text has the fields at the end of recording.
        is_of_end: bool,
    },
    Recorded,
    Closed,
}

#[derive(Debug, Clone)]
struct Change {
    key: SpanIds,
    time: i64,
    what: What,
    /// The name of the span in the texts, without the target.
    name: Range<usize>,
    /// The fields in the texts.
    fields: Range<usize>,
}

/// The changes of the spans of some traces.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// In order of key and time.
    changes: Vec<Change>,
    texts: Vec<u8>,
}

/// An event class that reports openings, later fields or closings.
struct Reporting<'t> {
    event: Step,
    class: Class<'t>,
    payload: Fields<'t>,
    name: Range<usize>,
    pid: Pid,
    /// The context before the payload.
    context: Option<&'t lastwords_ctf::program::Code>,
}

/// Where an event has the id of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pid {
    /// All events of the trace have this one.
    One(i64),
    Context(NodeId),
    Unknown,
}

impl Pid {
    /// Finds the process in the events of a class. Events whose contexts do not have it are of the
    /// only process of the trace, if there is only one.
    pub(super) fn new(trace: &Trace, class: (usize, usize)) -> Self {
        let mut targets = Targets::default();
        let mut lookup = Lookup { trace, class, thread: 1, targets: &mut targets };
        match lookup.built_in(BuiltIn::Pid, 0) {
            Some(Source::Integer(pid)) => Self::One(pid),
            Some(Source::Field) => match &targets.of {
                [common, specific, _] if specific.is_empty() => {
                    common.first().map_or(Self::Unknown, |target| Self::Context(target.node))
                }
                _ => Self::Unknown,
            },
            _ => Self::Unknown,
        }
    }

    /// Returns the process of an event whose context has `known`.
    pub(super) fn of_event(self, known: Option<i64>) -> Option<i64> {
        match self {
            Self::One(pid) => Some(pid),
            Self::Context(_) => known,
            Self::Unknown => None,
        }
    }
}

impl Chains {
    /// Collects the spans of the sessions among some traces.
    pub(super) fn new(traces: &[Trace]) -> Self {
        let mut all = Self::default();
        for (position, trace) in traces.iter().enumerate() {
            if !is_ours(trace) || !has_spans(trace) {
                continue;
            }
            let parts = parallel::map(&trace.streams, parallel::cpus(), |_, stream| {
                part(position, trace, stream)
            });
            let begin = all.changes.len();
            parts.into_iter().for_each(|part| all.add(part));
            all.sort_from(begin);
            all.add_open(position, trace);
            all.sort_from(begin);
        }
        all
    }

    fn add(&mut self, part: Self) {
        let by = self.texts.len();
        let moved =
            |range: Range<usize>| range.start.saturating_add(by)..range.end.saturating_add(by);
        self.texts.extend(part.texts);
        self.changes.extend(part.changes.into_iter().map(|change| Change {
            name: moved(change.name),
            fields: moved(change.fields),
            ..change
        }));
    }

    /// Sorts the changes of one trace. Several channels may have the same event.
    fn sort_from(&mut self, begin: usize) {
        let mut changes = self.changes.split_off(begin);
        changes.sort_by_key(|change| (change.key, change.time, change.what));
        changes.dedup_by_key(|change| (change.key, change.time, change.what));
        self.changes.append(&mut changes);
    }

    /// Adds the spans that were open at the end and whose opening is not recovered.
    fn add_open(&mut self, trace: usize, of: &Trace) {
        let Some(account) = &of.account else { return };
        let Some(clock) = of.class().clocks.first() else { return };
        let mut clock = Converter::new(&clock.to_clock(), Rounding::Floor);
        let mut opened = Vec::new();
        for span in account.open_spans() {
            let key = SpanIds { trace, pid: i64::from(span.opener.0), id: span.id };
            let last = self.of_key(key).iter().rev().find(|change| change.what != What::Recorded);
            if last.is_some_and(|last| matches!(last.what, What::Opened { .. })) {
                continue;
            }
            // The list does not say where a field ends whose value has blanks: they count as one.
            let [name, fields] = [&span.name, &span.fields].map(|text| self.text(text.as_bytes()));
            let (time, parent) = (clock.nanoseconds(span.opened), span.parent);
            let what = What::Opened { parent, is_of_end: true };
            opened.push(Change { key, time, what, name, fields });
        }
        self.changes.append(&mut opened);
    }

    fn text(&mut self, text: &[u8]) -> Range<usize> {
        let begin = self.texts.len();
        bare(&mut self.texts, text);
        begin..self.texts.len()
    }

    /// Returns the changes of a span, which are sorted, in order of time.
    fn of_key(&self, key: SpanIds) -> &[Change] {
        let begin = self.changes.partition_point(|change| change.key < key);
        let rest = self.changes.get(begin..).unwrap_or_default();
        let count = rest.iter().take_while(|change| change.key == key).count();
        rest.get(..count).unwrap_or_default()
    }

    /// Returns the changes of the span that has the key at a time, from its opening on.
    fn span_at(&self, key: SpanIds, time: i64) -> Option<&[Change]> {
        let changes = self.of_key(key);
        let is_opened = |change: &Change| matches!(change.what, What::Opened { .. });
        let until = changes.partition_point(|change| change.time <= time);
        let before = changes.get(..until)?;
        let at = before.iter().rposition(is_opened)?;
        let of_one = changes.get(at..)?;
        let end = of_one
            .iter()
            .skip(1)
            .position(is_opened)
            .map_or(of_one.len(), |end| end.saturating_add(1));
        let of_one = of_one.get(..end)?;
        let is_over = of_one.iter().any(|change| change.what == What::Closed && change.time < time);
        (!is_over).then_some(of_one)
    }

    /// Returns how long a span was open that closes at a time, in nanoseconds.
    pub(super) fn age(&self, key: Option<SpanIds>, time: i64) -> Option<u64> {
        let opened = self.span_at(key?, time)?.first()?;
        u64::try_from(time.checked_sub(opened.time)?).ok()
    }

    /// Appends the chain of an event: the spans around its own span, and `own`, which is the text of
    /// that one. Without a text, the span is shown as its changes have it; `name` is its name. If
    /// `is_root`, the event itself says that no span is around its own.
    pub(super) fn put(
        &self,
        key: Option<SpanIds>,
        time: i64,
        (own, name, is_root): (Option<&[u8]>, &[u8], bool),
        out: &mut Vec<u8>,
    ) {
        let found = key.and_then(|key| self.span_at(key, time));
        let mut texts: Vec<Vec<u8>> = Vec::new();
        texts.push(match (own, found) {
            (Some(own), Some(changes)) => self.whole(own, changes, time),
            (Some(own), None) => own.to_vec(),
            (None, Some(changes)) => self.shown(changes, time),
            (None, None) => [name, b"{?}"].concat(),
        });
        let mut next = found.and_then(|changes| changes.first());
        loop {
            let parent = match next.map(|change| change.what) {
                _ if is_root => break,
                Some(What::Opened { parent: 0, .. }) => break,
                Some(What::Opened { parent, .. }) => parent,
                _ => 0,
            };
            // The parent was open when its child was opened.
            let changes = next
                .filter(|_| parent != 0 && texts.len() < MOST)
                .and_then(|child| self.span_at(SpanIds { id: parent, ..child.key }, child.time));
            let Some(changes) = changes else {
                texts.push(UNKNOWN.to_vec());
                break;
            };
            texts.push(self.shown(changes, time));
            next = changes.first();
        }
        out.push(b' ');
        for text in texts.iter().rev() {
            out.extend_from_slice(text);
            out.push(b':');
        }
    }

    /// Returns the text of a span that an event has. The recorder cuts long ones. Then it is the
    /// text by the changes of the span, if that begins in the same way and has more.
    fn whole(&self, own: &[u8], changes: &[Change], time: i64) -> Vec<u8> {
        let in_braces = own.strip_suffix(b"}").unwrap_or(own);
        let longer = in_braces.strip_suffix(CUT.as_bytes()).map(|begin| {
            let shown = self.shown(changes, time);
            (shown.starts_with(begin) && shown.len() > own.len()).then_some(shown)
        });
        longer.flatten().unwrap_or_else(|| own.to_vec())
    }

    /// Returns the text of a span at a time: `order{id=202}`.
    fn shown(&self, changes: &[Change], time: i64) -> Vec<u8> {
        let text = |range: &Range<usize>| self.texts.get(range.clone()).unwrap_or_default();
        let Some(opened) = changes.first() else { return UNKNOWN.to_vec() };
        let mut shown = text(&opened.name).to_vec();
        let recorded = || changes.iter().filter(|change| change.what == What::Recorded);
        let is_of_end = matches!(opened.what, What::Opened { is_of_end: true, .. });
        if is_of_end && recorded().any(|change| change.time > time) {
            // Some of the fields came later.
            shown.extend_from_slice(b"{?}");
            return shown;
        }
        let split = |range: &Range<usize>| -> Vec<&[u8]> {
            text(range).split(|byte| *byte == BETWEEN).filter(|field| !field.is_empty()).collect()
        };
        let mut fields = split(&opened.fields);
        for change in recorded().filter(|change| change.time <= time && !is_of_end) {
            for field in split(&change.fields) {
                let key = |field: &[u8]| field.iter().position(|byte| *byte == b'=');
                let prefix = key(field).and_then(|end| field.get(..=end));
                let same = fields
                    .iter_mut()
                    .find(|known| prefix.is_some_and(|prefix| known.starts_with(prefix)));
                match same {
                    Some(known) => *known = field,
                    None => fields.push(field),
                }
            }
        }
        if !fields.is_empty() {
            shown.push(b'{');
            shown.extend_from_slice(&fields.join(&b' '));
            shown.push(b'}');
        }
        shown
    }
}

/// Returns true if the trace is of our own recorder.
pub(super) fn is_ours(trace: &Trace) -> bool {
    trace.class().text("tracer_name") == Some("lastwords")
}

fn has_spans(trace: &Trace) -> bool {
    let mut events = trace.class().streams.iter().flat_map(|stream| &stream.events);
    events.any(|event| {
        event.name.as_deref().is_some_and(|name| Step::parse(name).is_some())
            || event.payload.as_ref().is_some_and(|payload| {
                payload.fields.iter().any(|field| field.name.starts_with("span_id"))
            })
    })
}

/// Returns the changes that a stream reports.
fn part(position: usize, trace: &Trace, stream: &Stream) -> Chains {
    let mut part = Chains::default();
    let Some(class) = trace.class().streams.get(stream.class) else { return part };
    let classes: Vec<Option<Reporting<'_>>> = (0..class.events.len())
        .map(|event| Reporting::new(trace, (stream.class, event), &mut part))
        .collect();
    if classes.iter().all(Option::is_none) {
        return part;
    }
    let is_wanted = |event: &Event| classes.get(event.class).is_some_and(Option::is_some);
    let mut reader = Reader::new(trace, stream).rounded(Rounding::Floor);
    let mut buffers = Buffers::default();
    let mut found: Vec<Event> = Vec::new();
    loop {
        reader.ahead(usize::MAX, |event, _| found.extend(Some(event).filter(is_wanted)));
        for event in found.drain(..) {
            part.take(position, &classes, &mut reader, &event, &mut buffers);
        }
        match reader.advance() {
            Next::End => return part,
            Next::Event(event) if is_wanted(&event) => {
                part.take(position, &classes, &mut reader, &event, &mut buffers);
            }
            _ => {}
        }
    }
}

/// Buffers for the values of an event.
#[derive(Default)]
struct Buffers {
    values: Vec<u8>,
    marks: Vec<Mark>,
}

impl<'t> Reporting<'t> {
    fn new(trace: &'t Trace, class: (usize, usize), texts: &mut Chains) -> Option<Self> {
        let described = trace.class().streams.get(class.0)?.events.get(class.1)?;
        let (event, name) = Step::parse(described.name.as_deref()?)?;
        if matches!(event, Step::Enter | Step::Exit) {
            return None;
        }
        let payload = || scope_code(trace, Scope::Payload, class.0, class.1).map(fields);
        let mut class_of = of_event(described, None, payload(), b"", Form::Own { with_ids: false });
        let payload = payload()?;
        // All values have the form that the recorder gives them in the texts of spans.
        class_of.taken = payload.members().collect();
        Some(Self {
            event,
            payload,
            class: class_of,
            name: texts.text(short_name(name.as_bytes())),
            pid: Pid::new(trace, class),
            context: scope_code(trace, Scope::CommonContext, class.0, class.1),
        })
    }
}

impl Chains {
    /// Adds the change that an event reports.
    fn take(
        &mut self,
        trace: usize,
        classes: &[Option<Reporting<'_>>],
        reader: &mut Reader<'_>,
        event: &Event,
        buffers: &mut Buffers,
    ) -> Option<()> {
        let class = classes.get(event.class)?.as_ref()?;
        let time = reader.nanoseconds(event.clock)?;
        let (program, decoder, bytes) = reader.parts();
        let mut at = event.body;
        let node = if let Pid::Context(node) = class.pid { Some(node) } else { None };
        let mut process = IntegerField { node, value: None };
        if let Some(context) = class.context {
            at = program.visit(decoder, context, &bytes, at, &mut process).ok()?;
        }
        let pid = class.pid.of_event(process.value.map(u64::cast_signed))?;
        buffers.values.clear();
        buffers.marks.clear();
        let writing = Writing { out: &mut buffers.values, marks: &mut buffers.marks };
        let mut values = Values::of_payload(&class.payload, &class.class, writing);
        program.visit(decoder, class.payload.code, &bytes, at, &mut values).ok()?;
        let span = class.class.span.as_ref()?;
        let number = |node: Option<NodeId>| {
            let mark = buffers.marks.iter().find(|mark| Some(mark.node) == node)?;
            mark.number.map(|(value, ..)| value)
        };
        let what = match class.event {
            Step::New => What::Opened { parent: number(span.parent)?, is_of_end: false },
            Step::Record => What::Recorded,
            _ => What::Closed,
        };
        let begin = self.texts.len();
        let end_of = |at: usize| {
            buffers.marks.get(at.saturating_add(1)).map_or(buffers.values.len(), |next| next.prefix)
        };
        for (at, mark) in buffers.marks.iter().enumerate() {
            if [Some(span.id), span.parent].contains(&Some(mark.node)) {
                continue;
            }
            if self.texts.len() > begin {
                self.texts.push(BETWEEN);
            }
            // The prefix begins with a blank.
            let text = buffers.values.get(mark.prefix.saturating_add(1)..end_of(at));
            self.texts.extend_from_slice(text.unwrap_or_default());
        }
        let fields = begin..self.texts.len();
        let key = SpanIds { trace, pid, id: number(Some(span.id))? };
        self.changes.push(Change { key, time, what, name: class.name.clone(), fields });
        Some(())
    }
}

/// The fields of an event that say in which span it happened, or which span changes.
#[derive(Debug, Clone)]
pub(super) struct SpanFields {
    /// What the event reports of the span; none for an event inside it.
    pub(super) event: Option<Step>,
    /// The name of the span without its target, escaped; empty for an event inside it.
    pub(super) name: Vec<u8>,
    pub(super) id: NodeId,
    pub(super) parent: Option<NodeId>,
    /// The field with the text of the span.
    pub(super) text: Option<NodeId>,
}

impl SpanFields {
    /// Finds the fields in an event class of ours. The recorder adds them behind all others.
    pub(super) fn new(event: &str, payload: &Fields<'_>) -> Option<Self> {
        let members: Vec<NodeId> = payload.members().collect();
        let node = |behind: usize, name: &str| -> Option<(NodeId, &Shape)> {
            let id = *members.get(members.len().checked_sub(behind)?)?;
            let node = payload.code.nodes().get(id as usize)?;
            // A name that another field has got a number.
            let rest = node.name.strip_prefix(name)?;
            let is_number = |rest: &str| rest.parse::<u32>().is_ok();
            let is_named = rest.is_empty() || rest.strip_prefix('_').is_some_and(is_number);
            is_named.then_some((id, &node.shape))
        };
        let number = |behind, name| {
            node(behind, name)
                .filter(|(_, shape)| {
                    matches!(shape, Shape::Integer { length: 64, signed: false, .. })
                })
                .map(|(id, _)| id)
        };
        let step = Step::parse(event);
        let (parent, text) = match step {
            Some((Step::New, _)) => (Some(number(1, "parent_id")?), None),
            Some(_) => (None, None),
            None => {
                let text = node(2, "span").filter(|(_, shape)| matches!(shape, Shape::Text(_)))?;
                (None, Some(text.0))
            }
        };
        let id = number(if parent.is_some() { 2 } else { 1 }, "span_id")?;
        let mut name = Vec::new();
        if let Some((_, of)) = step {
            bare(&mut name, short_name(of.as_bytes()));
        }
        Some(Self { event: step.map(|(event, _)| event), name, id, parent, text })
    }
}
