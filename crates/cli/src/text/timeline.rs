//! Merges the text of several traces by time. Each source produces its lines, with their times, on
//! its own thread.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// A source sends a piece of text after this many bytes.
const PIECE: usize = 64 << 10;
/// The number of pieces of a source that may wait. A source then blocks until the merging thread
/// takes one.
const WAITING: usize = 4;

/// A source of lines in order of time. Times are nanoseconds since the epoch.
pub(crate) trait Source: Send {
    /// Sends all lines to `out`.
    ///
    /// # Errors
    /// The receiver has left.
    fn run(&mut self, out: &mut Lines) -> io::Result<()>;
}

/// Receives the lines of a source, and sends them in pieces.
pub(crate) struct Lines {
    to: SyncSender<Piece>,
    piece: Piece,
}

/// Text, with the time and the end of each of its lines.
#[derive(Default)]
struct Piece {
    text: Vec<u8>,
    ends: Vec<(i64, usize)>,
}

impl Lines {
    /// Takes the text of an event: one line, or several that belong together.
    ///
    /// # Errors
    /// The receiver has left.
    pub(crate) fn put(&mut self, time: i64, text: &[u8]) -> io::Result<()> {
        self.piece.text.extend_from_slice(text);
        self.piece.ends.push((time, self.piece.text.len()));
        if self.piece.text.len() >= PIECE { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::take(&mut self.piece);
        self.to.send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// The lines of a source that are not yet merged.
struct PendingLines {
    from: Receiver<Piece>,
    piece: Piece,
    next: usize,
    begin: usize,
}

impl PendingLines {
    /// Returns the time of the next line, and waits for that line.
    fn time(&mut self) -> Option<i64> {
        while self.next >= self.piece.ends.len() {
            self.piece = self.from.recv().ok()?;
            (self.next, self.begin) = (0, 0);
        }
        self.piece.ends.get(self.next).map(|(time, _)| *time)
    }

    /// Returns the next line. [`PendingLines::time`] must have been called before.
    fn line(&mut self) -> &[u8] {
        let end = self.piece.ends.get(self.next).map_or(self.begin, |(_, end)| *end);
        let line = self.piece.text.get(self.begin..end).unwrap_or_default();
        (self.next, self.begin) = (self.next + 1, end);
        line
    }
}

/// The time of text that comes after all events and is not an event.
pub(crate) const END: i64 = i64::MAX;

/// Writes the lines of all sources, merged by time, or only the `last` events. Among equal times,
/// the earlier source comes first. Returns the number of events.
///
/// # Errors
/// `out` cannot be written.
pub(crate) fn merge(
    sources: &mut [Box<dyn Source + '_>],
    last: Option<u64>,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let mut kept: VecDeque<(i64, Vec<u8>)> = VecDeque::new();
    let mut count = 0;
    let mut take = |time: i64, line: &[u8]| {
        count += u64::from(time != END);
        let Some(last) = last else { return out.write_all(line) };
        kept.push_back((time, line.to_vec()));
        while count > last {
            count -= u64::from(kept.pop_front().is_some_and(|(time, _)| time != END));
        }
        Ok(())
    };
    merged(sources, &mut take)?;
    kept.iter().try_for_each(|(_, line)| out.write_all(line))?;
    Ok(count)
}

fn merged(
    sources: &mut [Box<dyn Source + '_>],
    take: &mut dyn FnMut(i64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    std::thread::scope(|scope| {
        let mut rests = Vec::new();
        for source in sources {
            let (to, from) = sync_channel(WAITING);
            scope.spawn(move || {
                let mut lines = Lines { to, piece: Piece::default() };
                // If sending fails, the merging thread has ended.
                let _ = source.run(&mut lines).and_then(|()| lines.flush());
            });
            rests.push(PendingLines { from, piece: Piece::default(), next: 0, begin: 0 });
        }
        let heads =
            rests.iter_mut().enumerate().filter_map(|(at, rest)| Some(Reverse((rest.time()?, at))));
        let mut heads: BinaryHeap<Reverse<(i64, usize)>> = heads.collect();
        while let Some(mut head) = heads.peek_mut() {
            let Reverse((time, at)) = &mut *head;
            let Some(rest) = rests.get_mut(*at) else { break };
            take(*time, rest.line())?;
            match rest.time() {
                // If the clocks of a source disagree, its lines keep their order.
                Some(next) => *time = next.max(*time),
                None => drop(PeekMut::pop(head)),
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers(Vec<i64>, &'static str);

    impl Source for Numbers {
        fn run(&mut self, out: &mut Lines) -> io::Result<()> {
            self.0
                .iter()
                .try_for_each(|time| out.put(*time, format!("{time}{}\n", self.1).as_bytes()))
        }
    }

    #[test]
    fn lines_are_merged_by_time() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut all = Vec::new();
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        for (at, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let mut time = 0;
            let times: Vec<i64> = (0..30_000 * at)
                .map(|_| {
                    time += random(3) as i64;
                    time
                })
                .collect();
            all.extend(times.iter().map(|time| (*time, at, name)));
            sources.push(Box::new(Numbers(times, name)));
        }
        let mut out = Vec::new();
        assert_eq!(merge(&mut sources, None, &mut out).unwrap(), all.len() as u64);
        let mut last = Vec::new();
        assert_eq!(merge(&mut sources, Some(1000), &mut last).unwrap(), 1000);
        assert!(out.ends_with(&last) && last.iter().filter(|byte| **byte == b'\n').count() == 1000);
        all.sort_by_key(|(time, at, _)| (*time, *at));
        let expected: String =
            all.iter().map(|(time, _, name)| format!("{time}{name}\n")).collect();
        assert!(String::from_utf8(out).unwrap() == expected);
    }

    #[test]
    fn a_reader_that_left_ends_all_sources() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut sources: Vec<Box<dyn Source>> =
            vec![Box::new(Numbers((0..1_000_000).collect(), "x"))];
        assert_eq!(
            merge(&mut sources, None, &mut Closed).unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }
}
