//! A writer of CTF 1.8 by the specification, for tests that need traces which lastwords did not
//! record.

use crate::put::{Order, Packed};
use std::path::Path;

/// The begin of the metadata: the types of numbers, and the header of packets.
pub const TYPES: &str = r#"/* CTF 1.8 */
typealias integer { size = 16; align = 8; } := u16;
typealias integer { size = 32; align = 8; } := u32;
typealias integer { size = 32; align = 8; signed = true; } := i32;
typealias integer { size = 64; align = 8; } := u64;
typealias integer { size = 64; align = 8; map = clock.monotonic.value; } := stamp;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u32 magic; u32 stream_id; }; };
"#;

/// The context of the packets that a [`Stream`] writes. It belongs into the metadata's `stream`,
/// whose clock is `monotonic`.
pub const PACKET_CONTEXT: &str = "packet.context := struct { stamp timestamp_begin; stamp timestamp_end; u64 content_size; \
                                  u64 packet_size; u64 packet_seq_num; u64 events_discarded; u32 cpu_id; };";

/// Writes the metadata and the streams of a trace into a folder; the streams end here. The number
/// of a stream is that of its CPU.
///
/// # Panics
/// The folder cannot be written.
pub fn write_folder(folder: &Path, metadata: &str, streams: &mut [Stream]) {
    std::fs::write(folder.join("metadata"), metadata).unwrap();
    for (cpu, stream) in (0..).zip(streams) {
        stream.close(cpu);
        std::fs::write(folder.join(format!("s{cpu}")), &stream.file).unwrap();
    }
}

/// Bytes of a packet in front of its events.
const HEAD: u64 = 8 + 6 * 8 + 4;

/// The stream 0 of a CPU, in little-endian order.
#[derive(Debug, Default)]
pub struct Stream {
    /// The packets that were written.
    pub file: Vec<u8>,
    /// The events of the packet that is being filled.
    pub events: Vec<u8>,
    /// Number of events that found no room so far.
    pub discarded: u64,
    /// The times from and until which events are missing, as far as packets that were written tell
    /// of them.
    pub missing: Vec<(u64, u64)>,
    begin: u64,
    end: u64,
    sequence: u64,
    /// End of the last packet in the file, and `discarded` there.
    before: Option<(u64, u64)>,
    /// Packets are missing before the one that is being filled.
    is_cut: bool,
}

impl Stream {
    /// Appends an event, with its header, at a reading of the clock.
    pub fn put(&mut self, time: u64, event: &[u8]) {
        if self.events.is_empty() {
            self.begin = time;
        }
        self.end = time;
        self.events.extend(event);
    }

    /// Counts an event that finds no room. The packet does not end before it.
    pub fn discard(&mut self, time: u64) {
        self.discarded += 1;
        self.end = time;
    }

    /// Ends the packet, unless it is empty.
    pub fn close(&mut self, cpu: u32) {
        if self.events.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.events);
        let size = (HEAD + events.len() as u64) * 8;
        let head = Packed::new(Order::Little)
            .u32(0xc1fc_1fc1)
            .u32(0)
            .u64(self.begin)
            .u64(self.end)
            .u64(size)
            .u64(size);
        let head = head.u64(self.sequence).u64(self.discarded).u32(cpu);
        self.file.extend(head.raw(&events).done());
        self.sequence += 1;
        let (from, discarded) = self.before.unwrap_or_default();
        if self.discarded > discarded {
            self.missing.push((from, self.end));
        } else if self.is_cut {
            self.missing.push((from, self.begin));
        }
        (self.before, self.is_cut) = (Some((self.end, self.discarded)), false);
    }

    /// Loses the packet: the next one has a number that shows it.
    pub fn lose(&mut self) {
        self.events.clear();
        self.sequence += 1;
        self.is_cut = true;
    }

    /// Overwrites the packets that were written.
    pub fn overwrite(&mut self) {
        self.file.clear();
        self.missing.clear();
        (self.before, self.is_cut) = (None, true);
    }
}
