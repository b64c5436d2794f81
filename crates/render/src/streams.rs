//! Facts about the streams of traces that are read together, and about their classes.

use lastwords_ctf::program::Code;
use lastwords_ctf::read::{Reader, Trace, cpu};
use lastwords_trace::class::{Scope, StreamClass};

/// Facts about a stream that is read.
#[derive(Debug, Clone)]
pub struct StreamInfo {
    /// Position of the stream's trace.
    pub trace: usize,
    /// Position of the stream's class in the trace.
    pub class: usize,
    /// Number of the stream among the streams of its trace. Events of equal time are merged in the
    /// order of these numbers.
    pub number: u64,
    /// The CPU that the stream is bound to.
    pub cpu: Option<u32>,
}

impl StreamInfo {
    /// Returns the stream's class, if it is one of these traces.
    #[must_use]
    pub fn class<'t>(&self, traces: &'t [Trace]) -> Option<&'t StreamClass> {
        traces.get(self.trace)?.class().streams.get(self.class)
    }
}

/// Returns facts about all streams of some traces, in the order in which
/// `ctf::read::readers` has them.
pub fn stream_infos(traces: &[Trace], readers: &[(usize, Reader<'_>)]) -> Vec<StreamInfo> {
    let mut counts = vec![0; traces.len()];
    let facts = readers.iter().map(|(position, reader)| {
        let count = counts.get_mut(*position);
        let number = count.as_deref().copied().unwrap_or(0);
        count.into_iter().for_each(|count| *count = u64::saturating_add(*count, 1));
        let cpu = traces.get(*position).and_then(|trace| cpu(trace, reader.stream()));
        StreamInfo { trace: *position, class: reader.stream().class, number, cpu }
    });
    facts.collect()
}

/// Returns the name of a stream class, or its id if it has no name.
#[must_use]
pub fn channel(class: &StreamClass) -> String {
    if class.name.is_empty() { class.id.to_string() } else { class.name.clone() }
}

/// Returns the code that decodes a scope of an event class, or none if the event class has no such
/// scope.
#[must_use]
pub fn scope_code(trace: &Trace, scope: Scope, stream: usize, event: usize) -> Option<&Code> {
    trace.class().scope(scope, stream, event)?;
    trace.program.code(scope, stream, event)
}
