//! Spans, from the event that opened them to the one that closed them.

use super::{End, Out, Place, Slice};
use lastwords_render::picks::{Number, Picked};
use lastwords_render::spans::{OpenSpan, SpanKey, Step};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;

/// The spans that were opened and have not been closed.
#[derive(Default)]
pub(super) struct Spans {
    open: BTreeMap<SpanKey, Slice>,
    /// The traces in which a span was closed.
    closes: HashSet<usize>,
}

fn number(id: u64) -> Option<i64> {
    i64::try_from(id).ok()
}

impl Spans {
    /// Takes an event of a span.
    pub(super) fn step(
        &mut self,
        out: &mut Out<'_>,
        step: Step,
        name: &Rc<str>,
        place: &Place,
        picked: &Picked,
    ) {
        let Some(id) = picked.number(Number::Span) else { return };
        let key = (place.stream.0, place.pid, id);
        match step {
            Step::New => {
                let parent = picked.number(Number::Parent).filter(|parent| *parent != 0);
                let slice = Slice {
                    trace: place.stream.0,
                    begin: place.time,
                    category: "span",
                    name: Rc::clone(name),
                    cpu: place.cpu,
                    tid: place.tid,
                    pid: place.pid,
                    depth: None,
                    id: number(id),
                    parent: parent.and_then(number),
                    returned: None,
                };
                // An event that was recorded into several channels opens one span. Another span of
                // this id was closed, and its closing is missing.
                match self.open.get(&key) {
                    Some(same) if same.begin == slice.begin && same.name == slice.name => {}
                    _ => {
                        if let Some(older) = self.open.insert(key, slice) {
                            out.slice(&older, End::Unknown);
                        }
                    }
                }
            }
            Step::Close => {
                self.closes.insert(key.0);
                if let Some(slice) = self.open.remove(&key) {
                    out.slice(&slice, End::At(place.time));
                }
            }
            Step::Enter | Step::Exit | Step::Record => {}
        }
    }

    /// The recording has ended. A session's table says which spans were open. Other traces have no
    /// such table: there, a span is open if no event is missing and spans are closed by events.
    pub(super) fn finish(&mut self, out: &mut Out<'_>, lossy: &HashSet<usize>) {
        let mut open = std::mem::take(&mut self.open);
        let tables: Vec<Option<Vec<OpenSpan>>> =
            out.beside.iter().map(|beside| beside.open_spans.clone()).collect();
        for span in tables.iter().flatten().flatten() {
            let read = span.keys().iter().find_map(|key| open.remove(key));
            out.slice(&read.unwrap_or_else(|| of_table(span)), End::Open);
        }
        for slice in open.into_values() {
            let trace = slice.trace;
            let is_listed = tables.get(trace).is_some_and(Option::is_some);
            let is_open = !is_listed && !lossy.contains(&trace) && self.closes.contains(&trace);
            out.slice(&slice, if is_open { End::Open } else { End::Unknown });
        }
    }
}

/// Returns a span of the table whose opening is not among the events.
fn of_table(span: &OpenSpan) -> Slice {
    Slice {
        trace: span.trace,
        begin: span.opened,
        category: "span",
        name: span.name.as_str().into(),
        cpu: None,
        tid: Some(span.tid.into()),
        pid: Some(span.pid.into()),
        depth: None,
        id: number(span.id),
        parent: number(span.parent).filter(|parent| *parent != 0),
        returned: None,
    }
}
