//! Selects and colours the lines of a report: the lines that match `--grep`, with the matches
//! highlighted, and the levels of events in colour on a terminal.

use crate::paint;
use regex::bytes::{Regex, RegexBuilder};
use std::collections::VecDeque;
use std::io::{self, Write};

/// The longest part of a line in which a level is looked for: the time stands before it.
const BEFORE_LEVEL: usize = 40;

/// Returns the expression for `--grep`: `^` and `$` match at each line of an event.
///
/// # Errors
/// The text is no regular expression.
pub(crate) fn expression(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).multi_line(true).build()
}

/// A function that colours text for stdout.
type Paint = fn(&str) -> String;

/// A writer that passes on lines of text. All lines pass unless it has expressions.
pub(crate) struct Lines<'a> {
    out: &'a mut dyn Write,
    wanted: &'a [Regex],
    /// Only so many of the last events that match are passed on, when the text has ended.
    last: Option<usize>,
    kept: VecDeque<Vec<u8>>,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// The lines of an event: a kernel's stack trace follows its event in lines of its own.
    event: Vec<u8>,
    matched: u64,
}

impl<'a> Lines<'a> {
    /// Returns a writer that passes lines on to `out`.
    pub(crate) fn new(out: &'a mut dyn Write, wanted: &'a [Regex], last: Option<u64>) -> Self {
        let last = last.map(|last| usize::try_from(last).unwrap_or(usize::MAX));
        let (kept, begun, event) = (VecDeque::new(), Vec::new(), Vec::new());
        Self { out, wanted, last, kept, begun, event, matched: 0 }
    }

    /// Passes on what is left. Returns the number of events that matched; none if the reader has
    /// left.
    ///
    /// # Errors
    /// The lines cannot be written.
    pub(crate) fn finish(self) -> io::Result<Option<u64>> {
        match self.end() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
            ended => ended.map(Some),
        }
    }

    /// Passes on a line that is not an event. It does not matter whether the reader has left.
    ///
    /// # Errors
    /// The line cannot be written.
    pub(crate) fn put(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        match self.out.write_fmt(line) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    fn end(mut self) -> io::Result<u64> {
        let begun = std::mem::take(&mut self.begun);
        self.line(&begun)?;
        self.end_event()?;
        for event in &self.kept {
            self.out.write_all(event)?;
        }
        Ok(self.matched)
    }

    /// Takes a line with its line feed.
    fn line(&mut self, line: &[u8]) -> io::Result<()> {
        if line.starts_with(b" => ") || line.starts_with(b"=> ") {
            self.event.extend_from_slice(line);
            return Ok(());
        }
        self.end_event()?;
        if line.starts_with(b"#") {
            return self.out.write_all(line);
        }
        self.event.extend_from_slice(line);
        Ok(())
    }

    /// Passes on the lines of an event if they match.
    fn end_event(&mut self) -> io::Result<()> {
        let event = std::mem::take(&mut self.event);
        if event.is_empty() || !self.wanted.iter().all(|wanted| wanted.is_match(&event)) {
            return Ok(());
        }
        self.matched += 1;
        let text = if paint::is_coloured() { self.coloured(&event) } else { event };
        match self.last {
            None => self.out.write_all(&text),
            Some(last) => {
                self.kept.push_back(text);
                if self.kept.len() > last {
                    self.kept.pop_front();
                }
                Ok(())
            }
        }
    }

    fn coloured(&self, event: &[u8]) -> Vec<u8> {
        // Each piece of the text that has a colour: its begin, its end, the function that colours
        // it.
        let mut pieces: Vec<(usize, usize, Paint)> = Vec::new();
        for found in self
            .wanted
            .iter()
            .flat_map(|wanted| wanted.find_iter(event))
            .filter(|found| !found.is_empty())
        {
            pieces.push((found.start(), found.end(), paint::found));
        }
        pieces.extend(level(event));
        pieces.sort_by_key(|(begin, ..)| *begin);
        let mut text = Vec::new();
        let mut done = 0;
        for (begin, end, paint) in pieces {
            // Where matches overlap, the first one is coloured.
            let (Some(before), Some(piece)) = (event.get(done..begin), event.get(begin..end))
            else {
                continue;
            };
            text.extend_from_slice(before);
            text.extend_from_slice(paint(&String::from_utf8_lossy(piece)).as_bytes());
            done = end;
        }
        text.extend_from_slice(event.get(done..).unwrap_or_default());
        text
    }
}

/// Finds the level of an event of a session, which stands between its time and its CPU.
fn level(event: &[u8]) -> Option<(usize, usize, Paint)> {
    let levels: [(&[u8], Paint); 2] = [(b" ERROR [", paint::bad), (b" WARN  [", paint::warned)];
    let head = event.get(..event.len().min(BEFORE_LEVEL))?;
    levels.into_iter().find_map(|(word, paint)| {
        let begin = head.windows(word.len()).position(|part| part == word)?.saturating_add(1);
        Some((begin, begin.saturating_add(5), paint))
    })
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.wanted.is_empty() && !paint::is_coloured() {
            return self.out.write(bytes);
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.begun);
                self.line(&line)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(wanted: &[&str], last: Option<u64>, pieces: &[&str]) -> (String, u64) {
        let wanted: Vec<Regex> = wanted.iter().map(|wanted| expression(wanted).unwrap()).collect();
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out, &wanted, last);
        pieces.iter().for_each(|piece| lines.write_all(piece.as_bytes()).unwrap());
        let matched = lines.finish().unwrap().unwrap();
        (String::from_utf8(out).unwrap(), matched)
    }

    #[test]
    fn an_event_matches_with_its_stack_trace_however_it_is_cut() {
        let text = "# tracer: nop\na: 1\na: <stack trace>\n => worker\n => kthread\nb: 2\nc: 3";
        for cut in 0..text.len() {
            let pieces = [&text[..cut], &text[cut..]];
            let stack = "# tracer: nop\na: <stack trace>\n => worker\n => kthread\n".to_owned();
            assert_eq!(passed(&["worker"], None, &pieces), (stack, 1), "{cut}");
            assert_eq!(passed(&["[ab]: ", "[12]"], None, &pieces).1, 2, "{cut}");
            assert_eq!(
                passed(&[": "], Some(2), &pieces),
                ("# tracer: nop\nb: 2\nc: 3".to_owned(), 4),
                "{cut}"
            );
            assert_eq!(passed(&["^ => worker$"], None, &pieces).1, 1, "{cut}");
            assert_eq!(
                passed(&["none"], None, &pieces),
                ("# tracer: nop\n".to_owned(), 0),
                "{cut}"
            );
        }
    }
}
