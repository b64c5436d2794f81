//! Lines for debuggers: where an event stands and its bytes.

use super::escape::bare;
use super::number::unsigned;
use crate::events::Line;
use lastwords_trace::merge::Event;
use lastwords_trace::schema::Schema;
use lastwords_trace::source::Source;

/// Makes the lines of some sources.
pub(super) struct Lines<'s> {
    schemas: Vec<&'s Schema>,
}

impl<'s> Lines<'s> {
    pub(super) fn new(sources: &[&'s dyn Source]) -> Self {
        Self { schemas: sources.iter().map(|s| s.schema()).collect() }
    }
}

impl Line for Lines<'_> {
    /// `ticks source/stream/packet+offset id name: context | payload`.
    fn line(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let class = &self.schemas[event.source].channels[event.channel].events[event.raw.class];
        let place = [event.source as u64, event.stream as u64, event.packet.sequence, event.raw.start as u64];
        unsigned(out, event.raw.clock);
        for (mark, number) in [b' ', b'/', b'/', b'+'].into_iter().zip(place) {
            out.push(mark);
            unsigned(out, number);
        }
        out.push(b' ');
        unsigned(out, u64::from(event.raw.id));
        out.push(b' ');
        bare(out, class.name.as_bytes());
        out.push(b':');
        hexadecimal(out, event.context());
        out.extend_from_slice(b" |");
        hexadecimal(out, event.payload());
        out.push(b'\n');
    }
}

fn hexadecimal(out: &mut Vec<u8>, bytes: &[u8]) {
    let digit = |value: u8| b"0123456789abcdef"[usize::from(value & 15)];
    for byte in bytes {
        out.extend_from_slice(&[b' ', digit(byte >> 4), digit(*byte)]);
    }
}
