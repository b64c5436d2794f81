//! Keeps the fields of events in compressed blocks, which the page decompresses when they are
//! looked at.

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

/// Most bytes of an event's fields. A few bytes of a crafted trace may stand for any number of
/// elements.
const MAX_LINE: usize = 64 << 10;
/// Bytes of lines from which on they are compressed.
const PIECE: usize = 256 << 10;

/// The fields of events, one line of JSON for each.
pub(crate) struct Blocks {
    /// The lines that are not yet compressed, and the position of the line that is being written.
    open: Vec<u8>,
    line: usize,
    count: u64,
    encoder: ZlibEncoder<Vec<u8>>,
    closed: VecDeque<Vec<u8>>,
    /// Number of blocks that were dropped.
    dropped: u64,
    /// Number of events whose fields are too long.
    pub(crate) cut: u64,
}

fn encoder() -> ZlibEncoder<Vec<u8>> {
    ZlibEncoder::new(Vec::new(), Compression::fast())
}

impl Default for Blocks {
    fn default() -> Self {
        let (open, closed) = (Vec::new(), VecDeque::new());
        Self { open, line: 0, count: 0, encoder: encoder(), closed, dropped: 0, cut: 0 }
    }
}

impl Blocks {
    /// Returns the text to which the next event's line is appended.
    pub(crate) fn line(&mut self) -> &mut Vec<u8> {
        &mut self.open
    }

    /// Ends the line of an event with this clock reading. Of fields that are too long, only their
    /// length is kept.
    pub(crate) fn end_line(&mut self, ticks: u64) {
        let length = self.open.len().saturating_sub(self.line);
        if length > MAX_LINE {
            self.open.truncate(self.line);
            let cut = format!("{{\"ticks\":{ticks},\"fields\":{{}},\"cut\":{length}}}");
            self.open.extend_from_slice(cut.as_bytes());
            self.cut = self.cut.saturating_add(1);
        }
        self.open.push(b'\n');
        self.count = self.count.saturating_add(1);
        if self.open.len() >= PIECE {
            self.compress();
        }
        self.line = self.open.len();
        if self.count >= BLOCK {
            self.close();
        }
    }

    fn compress(&mut self) {
        // A vector takes all that is written.
        let _ = self.encoder.write_all(&self.open);
        self.open.clear();
    }

    fn close(&mut self) {
        if self.count > 0 {
            self.compress();
            let done = std::mem::replace(&mut self.encoder, encoder());
            self.closed.push_back(done.finish().unwrap_or_default());
            (self.count, self.line) = (0, 0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn blocks_have_a_line_for_each_event() {
        let mut blocks = Blocks::default();
        for number in 0..5000u64 {
            let length = if number == 3000 { MAX_LINE + 1 } else { (number % 700) as usize };
            let text = format!("{number}{}", "x".repeat(length));
            blocks.line().extend_from_slice(text.as_bytes());
            blocks.end_line(number);
        }
        blocks.drop_before(4095);
        assert_eq!(blocks.cut, 1);
        let (closed, first) = blocks.finish();
        let mut text = String::new();
        for block in &closed {
            flate2::read::ZlibDecoder::new(&block[..]).read_to_string(&mut text).unwrap();
        }
        assert_eq!((closed.len(), first), (2, 2048));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5000 - 2048);
        for (number, line) in (2048u64..).zip(lines) {
            let expected = match number {
                3000 => format!("{{\"ticks\":3000,\"fields\":{{}},\"cut\":{}}}", MAX_LINE + 5),
                _ => format!("{number}{}", "x".repeat((number % 700) as usize)),
            };
            assert!(line == expected, "{number}");
        }
    }
}
