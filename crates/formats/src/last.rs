//! The last lines of what is written.

use std::collections::VecDeque;
use std::io::{self, Write};

/// Keeps the last lines of what is written to it, until [`LastLines::lines`] gives them.
#[derive(Debug)]
pub struct LastLines {
    most: usize,
    lines: VecDeque<Vec<u8>>,
    open: Vec<u8>,
}

impl LastLines {
    /// At most so many lines.
    #[must_use]
    pub fn new(most: u64) -> Self {
        Self { most: usize::try_from(most).unwrap_or(usize::MAX), lines: VecDeque::new(), open: Vec::new() }
    }

    /// The last lines, each with its end.
    #[must_use]
    pub fn lines(self) -> impl ExactSizeIterator<Item = Vec<u8>> {
        self.lines.into_iter()
    }
}

impl Write for LastLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.open.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                // The line that leaves lends its memory to the next.
                let free = if self.lines.len() >= self.most { self.lines.pop_front() } else { None };
                let line = std::mem::replace(&mut self.open, free.unwrap_or_default());
                self.open.clear();
                if self.most > 0 {
                    self.lines.push_back(line);
                }
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let last = |most| {
            let mut last = LastLines::new(most);
            for piece in ["on", "e\ntwo\nth", "ree\n", "four\n"] {
                last.write_all(piece.as_bytes()).unwrap();
            }
            String::from_utf8(last.lines().flatten().collect()).unwrap()
        };
        assert_eq!(
            (last(2).as_str(), last(9).as_str(), last(0).as_str()),
            ("three\nfour\n", "one\ntwo\nthree\nfour\n", "")
        );
    }
}
