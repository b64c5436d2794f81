//! Random traces, encoded by code that shares nothing with the crates' own.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "test support; each test file uses a part")]

pub mod ctf;
pub mod random;
pub mod tools;

use lastwords_trace::evidence::{Evidence, Verdict};
use lastwords_trace::schema::Schema;
use lastwords_trace::source::{PacketInfo, PacketReader, Source, Stream};

/// A trace in memory.
pub struct Memory {
    pub schema: Schema,
    pub streams: Vec<Stream>,
    /// By stream.
    pub packets: Vec<Vec<(PacketInfo, Vec<u8>)>>,
    pub evidence: Evidence,
}

impl Source for Memory {
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn streams(&self) -> &[Stream] {
        &self.streams
    }
    fn packets(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        Box::new(Reader { packets: &self.packets[stream], at: 0 })
    }
    fn evidence(&self) -> &Evidence {
        &self.evidence
    }
}

struct Reader<'a> {
    packets: &'a [(PacketInfo, Vec<u8>)],
    at: usize,
}

impl PacketReader for Reader<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let (info, content) = self.packets.get(self.at)?;
        self.at += 1;
        bytes.clear();
        bytes.extend_from_slice(content);
        Some(info.clone())
    }
}

/// Facts of a packet that is committed.
pub fn committed(sequence: u64, begin: u64, end: u64, content: usize) -> PacketInfo {
    PacketInfo {
        sequence,
        begin,
        end,
        discarded: 0,
        verdict: Verdict::Committed,
        events_at: HEADER,
        packet_len: (content as u64).next_multiple_of(4096),
    }
}

/// Bytes before the first event in the packets made here.
pub const HEADER: usize = 84;
