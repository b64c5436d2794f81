//! Gathers records and spans to lines. A line is one object with those of one trace.

use std::io::{self, Write};

/// Bytes of a line from which on it is written. The collector refuses lines of more than 1 MiB,
/// unless it is told otherwise.
const FULL: usize = 128 << 10;

/// The two kinds of lines.
#[derive(Clone, Copy)]
enum Kind {
    Logs,
    Spans,
}

/// Writes lines.
pub(super) struct Lines<'o> {
    out: &'o mut dyn Write,
    /// What waits to be written, for each trace: records and spans.
    waiting: Vec<[Vec<u8>; 2]>,
    bytes: u64,
}

impl<'o> Lines<'o> {
    pub(super) fn new(out: &'o mut dyn Write, traces: usize) -> Self {
        Self { out, waiting: vec![[Vec::new(), Vec::new()]; traces], bytes: 0 }
    }

    /// Returns the number of bytes that were written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a log record of a trace with this resource.
    pub(super) fn log(&mut self, trace: usize, resource: &[u8], record: &[u8]) -> io::Result<()> {
        self.add(Kind::Logs, trace, resource, record)
    }

    /// Adds a span.
    pub(super) fn span(&mut self, trace: usize, resource: &[u8], span: &[u8]) -> io::Result<()> {
        self.add(Kind::Spans, trace, resource, span)
    }

    fn add(&mut self, kind: Kind, trace: usize, resource: &[u8], json: &[u8]) -> io::Result<()> {
        let Some(waiting) = self.waiting(trace, kind) else { return Ok(()) };
        let is_full = !waiting.is_empty() && waiting.len().saturating_add(json.len()) > FULL;
        if is_full {
            self.flush(kind, trace, resource)?;
        }
        if let Some(waiting) = self.waiting(trace, kind) {
            if !waiting.is_empty() {
                waiting.push(b',');
            }
            waiting.extend_from_slice(json);
        }
        Ok(())
    }

    fn waiting(&mut self, trace: usize, kind: Kind) -> Option<&mut Vec<u8>> {
        let [logs, spans] = self.waiting.get_mut(trace)?;
        Some(match kind {
            Kind::Logs => logs,
            Kind::Spans => spans,
        })
    }

    /// Writes what waits. `resources` are those of all traces.
    pub(super) fn end<'r>(&mut self, resources: impl Iterator<Item = &'r [u8]>) -> io::Result<()> {
        for (trace, resource) in resources.enumerate() {
            self.flush(Kind::Spans, trace, resource)?;
            self.flush(Kind::Logs, trace, resource)?;
        }
        self.out.flush()
    }

    fn flush(&mut self, kind: Kind, trace: usize, resource: &[u8]) -> io::Result<()> {
        let Some(waiting) = self.waiting(trace, kind) else { return Ok(()) };
        if waiting.is_empty() {
            return Ok(());
        }
        let content = std::mem::take(waiting);
        let [outer, scoped, list]: [&[u8]; 3] = match kind {
            Kind::Logs => [b"resourceLogs", b"scopeLogs", b"logRecords"],
            Kind::Spans => [b"resourceSpans", b"scopeSpans", b"spans"],
        };
        let version = concat!("\"version\":\"", env!("CARGO_PKG_VERSION"), "\"").as_bytes();
        let parts: [&[u8]; 14] = [
            b"{\"",
            outer,
            b"\":[{\"resource\":{\"attributes\":",
            resource,
            b"},\"",
            scoped,
            b"\":[{\"scope\":{\"name\":\"lastwords\",",
            version,
            b"},\"",
            list,
            b"\":[",
            &content,
            b"]}]}]}",
            b"\n",
        ];
        for part in parts {
            self.out.write_all(part)?;
            self.bytes = self.bytes.saturating_add(part.len() as u64);
        }
        Ok(())
    }
}
