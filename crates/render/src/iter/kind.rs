//! Describes event classes: their names, and where their contexts are.

use super::value::Plan;
use crate::filter::bound::Bound;
use crate::filter::names::{Lookup, Source};
use crate::streams::{channel, scope_code};
use crate::text::format_of;
use lastwords_ctf::read::Trace;
use lastwords_filter::BuiltIn;
use lastwords_trace::class::{EventClass, LogLevel, Scope, StreamClass};
use lastwords_trace::visit::NodeId;
use std::sync::Arc;

/// The kind of an event. All events of a class have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventKind {
    /// The name of the channel. If it has none, its number.
    pub channel: String,
    /// The provider: of the application, of LTTng, or a subsystem of the kernel. None if the name
    /// has no such part.
    pub provider: Option<String>,
    /// The name without the provider.
    pub name: String,
    /// The severity.
    pub level: Option<LogLevel>,
    /// The format string of a marker, or empty.
    pub format: String,
}

/// Splits `provider:name`. A provider may be a path of Rust, with `::` in it.
fn split(whole: &str) -> Option<(&str, &str)> {
    let mut rest = whole;
    loop {
        let (_, behind) = rest.split_once(':')?;
        let Some(further) = behind.strip_prefix(':') else {
            let provider = whole.len().checked_sub(behind.len())?.checked_sub(1)?;
            return Some((whole.get(..provider)?, behind));
        };
        rest = further;
    }
}

/// Splits the whole name of an event class into the provider, if it has one, and the name.
#[must_use]
pub fn split_name(whole: &str) -> (Option<&str>, &str) {
    split(whole).map_or((None, whole), |(provider, name)| (Some(provider), name))
}

impl EventKind {
    fn new(class: &StreamClass, event: &EventClass) -> Self {
        let whole = event.name.as_deref().unwrap_or("<unknown>");
        let (provider, name) = split_name(whole);
        let (channel, name) = (channel(class), name.to_owned());
        let provider = provider.map(str::to_owned);
        Self { channel, provider, name, level: event.log_level, format: format_of(event) }
    }

    /// Returns `provider:name`.
    #[must_use]
    pub fn whole_name(&self) -> String {
        match &self.provider {
            Some(provider) => format!("{provider}:{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// The slots of the contexts that all sources name alike.
pub(super) const PID: usize = 0;
pub(super) const TID: usize = 1;
pub(super) const COMM: usize = 2;
const COUNT: usize = 3;

/// The scopes that have contexts, in the order in which they are decoded.
pub(super) const CONTEXTS: [Scope; 2] = [Scope::CommonContext, Scope::SpecificContext];

/// An event class, prepared for reading many events.
pub(super) struct Class<'t> {
    /// The number of classes that were prepared before.
    pub(super) number: usize,
    pub(super) kind: Arc<EventKind>,
    /// The events have times.
    pub(super) is_timed: bool,
    /// The process, the thread and its name.
    pub(super) ids: Bound<'t>,
    /// The contexts, for each of [`CONTEXTS`].
    pub(super) contexts: [Option<Plan<'t>>; 2],
    /// The nodes of `ids` in each of these scopes.
    pub(super) known: [Vec<NodeId>; 2],
    pub(super) payload: Option<Plan<'t>>,
    /// The trace is one of a kernel's ftrace.
    pub(super) is_ftrace: bool,
}

impl<'t> Class<'t> {
    /// Prepares the event class at a position of a stream class.
    pub(super) fn new(trace: &'t Trace, class: (usize, usize), number: usize) -> Option<Self> {
        let stream = trace.class().streams.get(class.0)?;
        let event = stream.events.get(class.1)?;
        let is_ftrace = trace.class().is_ftrace();
        let plan = |scope| scope_code(trace, scope, class.0, class.1).map(Plan::new);
        let find = |lookup: &mut Lookup<'t, '_>, slot| match slot {
            // ftrace calls the id of a thread a pid.
            PID if is_ftrace => lookup.context(&["tgid"], slot).then_some(Source::Field),
            PID => lookup.built_in(BuiltIn::Pid, slot),
            TID => lookup.built_in(BuiltIn::Tid, slot),
            _ => lookup.built_in(BuiltIn::Comm, slot),
        };
        let ids = Bound::new(trace, class, COUNT, find);
        let known = CONTEXTS.map(|scope| ids.nodes(trace, class, scope));
        Some(Self {
            number,
            kind: Arc::new(EventKind::new(stream, event)),
            is_timed: stream.clock.is_some(),
            ids,
            contexts: CONTEXTS.map(plan),
            known,
            payload: plan(Scope::Payload),
            is_ftrace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn a_path_is_a_provider() {
        assert_eq!(split("shop:order"), Some(("shop", "order")));
        assert_eq!(split("a::b::c:ready: yes"), Some(("a::b::c", "ready: yes")));
        assert_eq!(split("span:new a::b"), Some(("span", "new a::b")));
        assert_eq!((split("alone"), split("a::b"), split(":x")), (None, None, Some(("", "x"))));
    }
}
