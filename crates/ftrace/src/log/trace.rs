//! The kernel's log as a trace of its own.

use super::{LogLine, Relation};
use crate::{Choice, ctf};
use lastwords_bytes::ByteOrder;
use lastwords_ctf::Result;
use lastwords_ctf::read::Trace;
use lastwords_ctf::session::unsigned;
use lastwords_ctf::write::packets::{HEADER_LEN, Header, Last};
use lastwords_trace::class::TraceClass;
use lastwords_trace::evidence::{Evidence, Verdict};
use lastwords_trace::source::{PacketInfo, PacketReader, Packets};
use std::path::Path;
use std::sync::Arc;

/// Presents the records as a trace of their own, whose clock is the log's clock. The trace has only
/// records that the selection for a trace array selects. `offset` is added to the readings of that
/// array's clock to get nanoseconds since the epoch, if it is known.
///
/// # Errors
/// Packets cannot be decoded by the class of the trace.
pub fn trace(
    path: &Path,
    mut lines: Vec<LogLine>,
    relation: Relation,
    choice: &Choice,
    offset: Option<i64>,
) -> Result<Trace> {
    lines.retain(|line| choice.wants_time(relation.clock(line)));
    let ahead = if let Relation::Ahead(by) = relation { by } else { 0 };
    let clock =
        ctf::clock("local_clock", offset.unwrap_or(0).saturating_sub(ahead), ctf::origin(offset));
    let number = || unsigned(1, ByteOrder::Little);
    let fields = [
        ("level", number()),
        ("facility", number()),
        ("subsystem", ctf::text()),
        ("device", ctf::text()),
        ("text", ctf::text()),
    ];
    let fields = fields.into_iter().map(|(name, class)| (name.to_owned(), class)).collect();
    let event = ctf::event_class(0, "kernel:log".to_owned(), fields);
    let class = ctf::framed(ByteOrder::Little, [0; 16], LOG, clock, None, vec![event]);
    let class = TraceClass { uuid: None, ..class };
    let texts = lines.iter().flat_map(|line| [&line.subsystem, &line.device, &line.text]);
    let bytes = texts.map(|text| text.len() as u64).sum();
    let source: Arc<dyn Packets> = Arc::new(Records(lines));
    let stream = ctf::in_memory(&source, 0, 0, LOG.to_owned(), None, bytes);
    let mut trace = ctf::selected(path, class, vec![stream], Evidence::default())?;
    trace.is_beside = true;
    Ok(trace)
}

/// Name of the log's trace and of its stream.
const LOG: &str = "kernel log";

/// Most records of a packet.
const RECORDS: usize = 256;

/// Presents the records of the log as packets.
struct Records(Vec<LogLine>);

impl Packets for Records {
    fn packets_of(&self, _: usize) -> Box<dyn PacketReader + '_> {
        Box::new(Chunks(self.0.chunks(RECORDS).enumerate()))
    }
}

struct Chunks<'a>(std::iter::Enumerate<std::slice::Chunks<'a, LogLine>>);

impl PacketReader for Chunks<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (number, lines) = self.0.next()?;
        bytes.clear();
        bytes.resize(HEADER_LEN, 0);
        for line in lines {
            ctf::put_header(bytes, ByteOrder::Little, 0, line.time);
            bytes.extend_from_slice(&[line.level, line.facility]);
            for text in [&line.subsystem, &line.device, &line.text] {
                ctf::put_text(bytes, text.as_bytes());
            }
        }
        let times = || lines.iter().map(|line| line.time);
        let (begin, end) = (lines.first()?.time, times().max()?);
        let header = Header {
            order: ByteOrder::Little,
            uuid: [0; 16],
            stream_id: 0,
            instance: 0,
            cpu: u32::MAX,
        };
        let last = Last { end, sequence: number as u64, discarded: 0 };
        ctf::packet(bytes, &header, begin, last, Verdict::Committed)
    }
}
