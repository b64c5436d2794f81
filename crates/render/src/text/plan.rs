//! Plans of babeltrace2's lines, which are computed before the first event: for each event class
//! its name, its braces, and the formats of its values.

use super::escape;
use super::line::Line;
use super::value_format::ScopePlan;
use crate::streams::scope_code;
use lastwords_ctf::read::Trace;
use lastwords_trace::class::{EventClass, Scope, TraceClass};
use lastwords_trace::schema::EnvValue;
use lastwords_trace::text::number::Constant;

/// The plan of a stream class.
pub(super) struct StreamPlan<'t> {
    pub(super) context: Option<ScopePlan<'t>>,
    pub(super) common: Option<ScopePlan<'t>>,
    pub(super) events: Vec<EventPlan<'t>>,
}

/// The plan of an event class.
pub(super) struct EventPlan<'t> {
    /// The trace's header, the name and a colon.
    pub(super) head: Constant,
    pub(super) specific: Option<ScopePlan<'t>>,
    pub(super) payload: Option<ScopePlan<'t>>,
    /// Formats all scopes without a visitor; none if a field has no simple form.
    pub(super) line: Option<Line<'t>>,
}

/// Returns the plans of all stream classes of a trace.
pub(super) fn plan<'t>(trace: &'t Trace) -> Vec<StreamPlan<'t>> {
    let class = trace.class();
    let header = header(class);
    let scope = |scope, stream, event| scope_code(trace, scope, stream, event).map(ScopePlan::new);
    let streams = class.streams.iter().enumerate().map(|(stream, of)| {
        let common = scope(Scope::CommonContext, stream, 0);
        let event = |(number, event): (usize, &EventClass)| {
            let name = event.name.as_deref().unwrap_or("<unknown>");
            let mut head = header.clone();
            escape::name(&mut head, name.as_bytes());
            head.extend_from_slice(b": ");
            let specific = scope(Scope::SpecificContext, stream, number);
            let payload = scope(Scope::Payload, stream, number);
            let scopes: Vec<&ScopePlan<'_>> =
                [&common, &specific, &payload].into_iter().flatten().collect();
            EventPlan { head: Constant::new(&head), line: Line::new(&scopes), specific, payload }
        };
        StreamPlan {
            // babeltrace2 omits a packet context if none of its fields is shown.
            context: scope(Scope::PacketContext, stream, 0).filter(|scope| {
                scope.code.nodes().iter().any(|node| node.shown && !node.name.is_empty())
            }),
            events: of.events.iter().enumerate().map(event).collect(),
            common,
        }
    });
    streams.collect()
}

/// Returns `hostname:procname:(vpid) `, without the parts that the environment does not have.
fn header(class: &TraceClass) -> Vec<u8> {
    let mut text = Vec::new();
    for key in ["hostname", "procname", "vpid"] {
        let mut piece = Vec::new();
        match class.property(key) {
            Some(EnvValue::Text(value)) if key != "vpid" => {
                escape::name(&mut piece, value.as_bytes())
            }
            Some(EnvValue::Integer(value)) if key == "vpid" => {
                piece = format!("({value})").into_bytes()
            }
            _ => continue,
        }
        if !text.is_empty() {
            text.push(b':');
        }
        text.extend_from_slice(&piece);
    }
    if !text.is_empty() {
        text.push(b' ');
    }
    text
}
