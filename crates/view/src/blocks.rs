//! Keeps the fields of events in compressed blocks, which the page decompresses when they are looked at.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::collections::VecDeque;
use std::io::Write;

/// Events of a block.
pub(crate) const BLOCK: u64 = 2048;

/// Compresses bytes as zlib does, which browsers call `deflate`.
pub(crate) fn compressed(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), level);
    // A vector takes all that is written.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// The fields of events, one line of JSON for each.
#[derive(Default)]
pub(crate) struct Blocks {
    open: Vec<u8>,
    count: u64,
    closed: VecDeque<Vec<u8>>,
    /// Number of blocks that were dropped.
    dropped: u64,
}

impl Blocks {
    /// Returns the text to which the next event's line is appended.
    pub(crate) fn line(&mut self) -> &mut Vec<u8> {
        &mut self.open
    }

    /// Ends the line of an event.
    pub(crate) fn end_line(&mut self) {
        self.open.push(b'\n');
        self.count = self.count.saturating_add(1);
        if self.count >= BLOCK {
            self.close();
        }
    }

    fn close(&mut self) {
        if self.count > 0 {
            self.closed.push_back(compressed(&self.open, Compression::fast()));
            self.open.clear();
            self.count = 0;
        }
    }

    /// Drops the blocks whose events are all among the first `events`.
    pub(crate) fn drop_before(&mut self, events: u64) {
        let whole = events.checked_div(BLOCK).unwrap_or(0);
        while self.dropped < whole && self.closed.pop_front().is_some() {
            self.dropped = self.dropped.saturating_add(1);
        }
    }

    /// Returns the blocks, and the number of the first event in them.
    pub(crate) fn finish(mut self) -> (VecDeque<Vec<u8>>, u64) {
        self.close();
        (self.closed, self.dropped.saturating_mul(BLOCK))
    }
}
