//! Prepares the classes of events: what the page says of a class, and what its events mean for the
//! timeline.

use crate::shapes::Shapes;
use lastwords_ctf::read::Trace;
use lastwords_render::json::Plan;
use lastwords_render::meaning::Meaning;
use lastwords_render::picks::Picks;
use lastwords_render::streams::{StreamInfo, channel, scope_code};
use lastwords_trace::class::{EventClass, LogLevel, Scope};
use serde::Serialize;

/// The facts that the page has once for all events of a class.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Kind {
    /// Position of the trace.
    pub(crate) trace: usize,
    pub(crate) channel: String,
    pub(crate) name: String,
    /// `error`, `warn`, …; empty if the class has no level.
    pub(crate) level: &'static str,
    /// The events have times.
    pub(crate) timed: bool,
    /// The events are lines of a kernel's log, which are not counted.
    pub(crate) log: bool,
    /// Number and word of the level, for filters.
    pub(crate) severity: Option<(u8, &'static str)>,
    /// The numbers of the shapes of the common context, the specific context and the payload.
    pub(crate) scopes: [Option<u32>; 3],
}

/// A class of events, prepared for reading.
pub(crate) struct Class<'t> {
    pub(crate) kind: u32,
    pub(crate) meaning: Meaning,
    /// The plans and picks of the common context, the specific context and the payload.
    pub(crate) scopes: [Option<(Plan<'t>, Picks)>; 3],
}

/// Prepares the class at a position of a stream class.
pub(crate) fn prepare<'t>(
    trace: &'t Trace,
    stream: &StreamInfo,
    event: usize,
    (kind, shapes): (u32, &mut Shapes),
) -> Option<(Class<'t>, Kind)> {
    let class = trace.class().streams.get(stream.class)?;
    let described: &EventClass = class.events.get(event)?;
    let name = described.name.as_deref().unwrap_or("<unknown>").to_owned();
    let ftrace = trace.class().is_ftrace();
    let all = [Scope::CommonContext, Scope::SpecificContext, Scope::Payload];
    let scopes = all.map(|scope| {
        let code = scope_code(trace, scope, stream.class, event)?;
        Some((Plan::new(code), Picks::new(code, scope != Scope::Payload, ftrace)))
    });
    let shapes = all.map(|scope| {
        trace.class().scope(scope, stream.class, event).map(|root| shapes.number(root))
    });
    let meaning = Meaning::from_name(&name, trace);
    let level = if name.starts_with("crash:") {
        "error"
    } else {
        described.log_level.map_or("", LogLevel::word)
    };
    let (timed, log) = (class.clock.is_some(), trace.is_beside);
    let kind_of = Kind {
        trace: stream.trace,
        channel: channel(class),
        name,
        level,
        timed,
        log,
        severity: described.log_level.map(|level| (level.number(), level.word())),
        scopes: shapes,
    };
    Some((Class { kind, meaning, scopes }, kind_of))
}
