//! Lines for debugging a trace: the position of an event and its bytes.

use super::escape::bare;
use crate::Totals;
use crate::choose::Chosen;
use crate::events::{self, Line, Note, Out};
use crate::streams::StreamInfo;
use lastwords_ctf::read::{Due, Reader, Trace};
use lastwords_trace::class::Scope;
use lastwords_trace::text::number::{octet, unsigned};
use lastwords_trace::visit::Ignore;

/// Writes the chosen events.
///
/// # Errors
/// `out` cannot be written or wants no more lines.
pub(super) fn write<'o>(
    chosen: Chosen<'_>,
    out: Out<'o>,
    notes: &'o mut dyn FnMut(Note),
) -> crate::Result<Totals> {
    let mut lines = Lines { traces: chosen.traces, streams: chosen.facts.clone() };
    events::write(chosen, &mut lines, out, notes)
}

struct Lines<'t> {
    traces: &'t [Trace],
    streams: Vec<StreamInfo>,
}

impl Line for Lines<'_> {
    /// Appends `ticks trace/stream/packet+offset id name: context | payload`.
    fn line(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due, out: &mut Vec<u8>) {
        let Some(facts) = self.streams.get(stream) else { return };
        let Some(trace) = self.traces.get(facts.trace) else { return };
        let Some(class) =
            trace.class().streams.get(facts.class).and_then(|of| of.events.get(event.class))
        else {
            return;
        };
        let sequence = reader.place().and_then(|(_, entry)| entry.sequence).unwrap_or(0);
        let place = [facts.trace as u64, facts.number, sequence, event.at / 8];
        unsigned(out, event.clock);
        for (mark, number) in [b' ', b'/', b'/', b'+'].into_iter().zip(place) {
            out.push(mark);
            unsigned(out, number);
        }
        out.push(b' ');
        unsigned(out, class.id);
        out.push(b' ');
        bare(out, class.name.as_deref().unwrap_or("<unknown>").as_bytes());
        out.push(b':');
        let mut at = event.body;
        let (program, decoder, part) = reader.parts();
        for scope in [Scope::CommonContext, Scope::SpecificContext, Scope::Payload] {
            let Some(code) = program.code(scope, facts.class, event.class) else { continue };
            let Ok(end) = program.visit(decoder, code, &part, at, &mut Ignore) else { break };
            if scope == Scope::Payload {
                out.extend_from_slice(b" |");
            }
            let byte = |bits: u64| {
                usize::try_from((bits / 8).saturating_sub(part.base)).unwrap_or(usize::MAX)
            };
            hexadecimal(out, part.bytes.get(byte(at)..byte(end)).unwrap_or_default());
            at = end;
        }
        out.push(b'\n');
    }
}

fn hexadecimal(out: &mut Vec<u8>, bytes: &[u8]) {
    for byte in bytes {
        out.push(b' ');
        out.extend_from_slice(&octet(*byte));
    }
}
