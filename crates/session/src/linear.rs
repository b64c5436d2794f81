//! Walks streams whose writers publish each event by one store (the rseq and locked reservations).
//!
//! All bytes before `reserve` are committed; the bytes between `reserve` and `attempt` were in
//! flight. A recorder can leave only a few relations of the two words, and the numbers in the
//! sub-buffer headers must agree with them. Anything else is damage.

use super::layout::{Geometry, Half};
use super::packet::{Header, Judged, judge};
use super::plan::{Candidate, Planner};
use lastwords_abi::packet::HEADER_LEN;
use lastwords_bytes::Error;
use lastwords_trace::evidence::{Cause, Verdict};

/// The possible relations of `reserve` and `attempt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// No event is in flight.
    Idle,
    /// An event is being copied.
    Event,
    /// The sub-buffer is being closed.
    Close,
    /// A sub-buffer's header is being copied.
    Begin,
}

/// The end of the data in a half.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Produced {
    /// Number of the current sub-buffer.
    current: u64,
    /// Offset after the last event in the current sub-buffer; none if unknown.
    within: Option<u64>,
    /// Reason why the end is uncertain.
    doubt: Option<String>,
    /// Number of bytes in flight.
    in_flight: u64,
}

const HEADER: u64 = HEADER_LEN as u64;

/// Classifies the relation of the two words; none if no recorder can leave it.
fn form(g: &Geometry, words: &Half) -> Option<Form> {
    let Half { reserve, attempt, .. } = *words;
    let within = g.within(reserve);
    let in_events = |within: u64| within >= HEADER && within <= g.content_limit();
    if within != 0 && !in_events(within) {
        return None;
    }
    let next = g.start(g.number(reserve).saturating_add(1));
    if attempt == reserve {
        Some(Form::Idle)
    } else if within == 0 {
        (attempt == reserve.saturating_add(HEADER)).then_some(Form::Begin)
    } else if attempt == next {
        Some(Form::Close)
    } else {
        (attempt > reserve
            && g.number(attempt) == g.number(reserve)
            && in_events(g.within(attempt)))
        .then_some(Form::Event)
    }
}

/// Greatest plausible number of a header. Numbers a lap or more above the median are damage.
pub(crate) fn top(g: &Geometry, numbers: &[u64]) -> Option<u64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let middle = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    sorted.into_iter().rfind(|n| *n < middle.saturating_add(g.count))
}

/// True if the numbers in the headers show that more was produced than `words` say. A single number
/// that is too high is damage; so are several numbers that are laps too high, if they are few.
pub(crate) fn is_outrun(g: &Geometry, numbers: &[u64], words: &Half) -> bool {
    let current = g.number(words.reserve);
    let lap = g.count.saturating_mul(2);
    let (near, far): (Vec<u64>, Vec<u64>) =
        numbers.iter().filter(|n| **n > current).partition(|n| n.saturating_sub(current) < lap);
    // If `reserve` is 0, for example because the page of the words was erased, one header outweighs
    // the words.
    let outweighs = far.len() > 1 || words.reserve == 0;
    near.len() > 1 || (outweighs && far.len().saturating_mul(2) > numbers.len())
}

impl Planner<'_> {
    /// Plans a half.
    pub(crate) fn linear(&mut self, half: usize, words: Half) -> Result<(), Error> {
        let g = self.stream.geometry;
        let mut first = words.first;
        let produced = self.produced(half, &words)?;
        if first > g.start(produced.current).saturating_add(g.size)
            || (produced.doubt.is_none() && first > words.reserve)
        {
            let place = format!("first {first} is after everything that was produced");
            self.out.notes.push(format!(
                "{}: half {half}: {place}; it is ignored",
                self.stream.region.place()
            ));
            self.gap(place, Cause::Damaged, None);
            first = 0;
            if let Some(w) = self.control.half.get_mut(half) {
                w.first = 0;
            }
        }
        // A sub-buffer whose header is not written has not yet overwritten the older one in its
        // place.
        let newest = produced.current.saturating_sub(u64::from(produced.within == Some(0)));
        let oldest = self.oldest(half, newest, first);
        let mut number = oldest;
        while number < produced.current {
            let next = self.after_hole(half, number, produced.current);
            if next == number {
                self.closed(half, number)?;
            }
            if self.out.reached.is_some() {
                return Ok(());
            }
            number = next.max(number.saturating_add(1));
        }
        self.current(half, &produced)
    }

    fn produced(&mut self, half: usize, words: &Half) -> Result<Produced, Error> {
        let g = self.stream.geometry;
        let from =
            if words.first <= words.reserve.max(words.attempt) { g.number(words.first) } else { 0 };
        let numbers = self.numbers(half, from)?;
        let current = g.number(words.reserve);
        let known = |in_flight| Produced {
            current,
            within: Some(g.within(words.reserve)),
            doubt: None,
            in_flight,
        };
        let outrun = is_outrun(&g, &numbers, words);
        let begun = g.within(words.reserve) == 0 && numbers.contains(&current);
        let form = form(&g, words);
        Ok(match form {
            Some(Form::Idle) if !begun && !outrun => known(0),
            Some(Form::Begin) if !outrun => known(0),
            Some(Form::Event) if !outrun => known(words.attempt.saturating_sub(words.reserve)),
            Some(Form::Close) if !outrun && !self.is_closed_elsewhere(half, words) => known(0),
            // Writers have gone on; the words were right when they were read.
            _ if self.is_moving(half) => known(0),
            _ => self.doubtful(words, &numbers),
        })
    }

    /// True if the sub-buffer was closed with another content size than `reserve` implies; then
    /// `reserve` is wrong.
    fn is_closed_elsewhere(&mut self, half: usize, words: &Half) -> bool {
        let g = self.stream.geometry;
        let number = g.number(words.reserve);
        let size = usize::try_from(g.size).unwrap_or(0);
        let loaded = self.stream.load(half, number, size, &mut self.buf);
        loaded.missing.is_none()
            && matches!(judge(&self.stream.identity, number, &mut self.buf),
                Judged::Whole(_, content) | Judged::Mended(_, content, _) if content as u64 != g.within(words.reserve))
    }

    /// The words contradict each other or the headers. Takes the word that agrees with the headers,
    /// and marks the result as uncertain.
    fn doubtful(&mut self, words: &Half, numbers: &[u64]) -> Produced {
        let g = self.stream.geometry;
        let Half { reserve, attempt, .. } = *words;
        let why = format!(
            "reserve {reserve} and attempt {attempt} do not fit each other and the sub-buffers"
        );
        self.out.notes.push(format!("{}: {why}", self.stream.region.place()));
        self.gap(why.clone(), Cause::Damaged, None);
        let top = top(&g, numbers);
        let fits = |position: u64| {
            let (number, within) = (g.number(position), g.within(position));
            let sane = within == 0 || (within >= HEADER && within <= g.content_limit());
            let expected = top.map_or(0, |t| if within == 0 { t.saturating_add(1) } else { t });
            sane && number == expected
        };
        let best = [reserve, attempt].into_iter().filter(|p| fits(*p)).max();
        let (current, within) = match (best, top) {
            (Some(position), _) => (g.number(position), Some(g.within(position))),
            (None, Some(top)) => (top, None),
            (None, None) => (g.number(reserve.min(attempt)), Some(0)),
        };
        Produced { current, within, doubt: Some(why), in_flight: 0 }
    }

    /// Delivers the sub-buffer that was being written.
    fn current(&mut self, half: usize, produced: &Produced) -> Result<(), Error> {
        if produced.in_flight > 0 {
            let place =
                format!("sub-buffer {}, offset {}", produced.current, produced.within.unwrap_or(0));
            self.gap(place, Cause::InFlight, Some(produced.in_flight));
        }
        let end = match produced.within {
            Some(within) if within < HEADER => return Ok(()),
            Some(within) => within,
            None => return self.current_unknown(half, produced),
        };
        self.open(half, produced.current, end, None, produced.doubt.clone())
    }

    /// The end of the current sub-buffer is unknown. If the sub-buffer was closed, it is delivered
    /// whole; else its events are walked as far as they decode.
    fn current_unknown(&mut self, half: usize, produced: &Produced) -> Result<(), Error> {
        let size = usize::try_from(self.stream.geometry.size).unwrap_or(0);
        let loaded = self.stream.load(half, produced.current, size, &mut self.buf);
        if loaded.missing.is_none()
            && let Judged::Whole(header, content) =
                judge(&self.stream.identity, produced.current, &mut self.buf)
        {
            return self.whole(half, header, content);
        }
        // Memory after the last event is left over from an older lap. The 27 bits of clock in its
        // events decode to later clocks than `last`.
        let last = Some(self.words(half).last_clock).filter(|last| *last != 0);
        self.open(
            half,
            produced.current,
            self.stream.geometry.content_limit(),
            last,
            produced.doubt.clone(),
        )
    }

    /// Delivers an open sub-buffer whose events end before offset `end`; if `last` is given, an
    /// event with a later clock is rejected.
    fn open(
        &mut self,
        half: usize,
        number: u64,
        end: u64,
        last: Option<u64>,
        doubt: Option<String>,
    ) -> Result<(), Error> {
        let end = usize::try_from(end).unwrap_or(0);
        let loaded = self.stream.load(half, number, end, &mut self.buf);
        self.budget.bytes(&self.stream.region.name, loaded.got as u64)?;
        if let Some(missing) = loaded.missing {
            return self.missing(half, number, end as u64, missing);
        }
        if self.overtaken(half, number) {
            self.lost_to_writers(half, number);
            return Ok(());
        }
        let identity = self.stream.identity;
        let found = Header::parse(&self.buf, identity.order).unwrap_or(identity.header(number));
        let why = doubt.or_else(|| identity.difference(&found, number));
        let verdict = if why.is_some() { Verdict::Invalid } else { Verdict::Open };
        let mut header = identity.mended(&found, number);
        header.end = 0;
        if verdict == Verdict::Open {
            self.repair_begin(&mut header, end, self.words(half).last_clock);
        } else {
            self.sane_clocks(&mut header);
        }
        let not_after = last.filter(|last| *last >= header.begin);
        let pieces = vec![(HEADER_LEN, end)];
        self.finish(Candidate {
            half,
            header,
            pieces,
            verdict,
            why: why.unwrap_or_default(),
            whole: false,
            not_after,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry {
            channel: 0,
            cpu: 0,
            reservation: 1,
            mode: 1,
            size: 1024,
            count: 4,
            page_size: 0,
            slots_off: [0; 2],
            data_off: [0; 2],
        }
    }

    #[test]
    fn relations_of_the_two_words() {
        let g = geometry();
        let of = |reserve, attempt| form(&g, &Half { reserve, attempt, ..Half::default() });
        assert_eq!(of(0, 0), Some(Form::Idle));
        assert_eq!(of(0, 84), Some(Form::Begin));
        assert_eq!(of(84, 100), Some(Form::Event));
        assert_eq!(of(1000, 1024), Some(Form::Close));
        assert_eq!(of(1024, 1024), Some(Form::Idle));
        for (reserve, attempt) in [
            (0, 83),
            (100, 84),
            (50, 50),
            (1009, 1009),
            (100, 1024 + 84),
            (100, 1010),
            (1024, 1023),
        ] {
            assert_eq!(of(reserve, attempt), None, "{reserve} {attempt}");
        }
    }

    #[test]
    fn few_numbers_far_away_do_not_outrun() {
        let g = geometry();
        let of = |numbers: &[u64], current: u64| {
            let reserve = if current == 0 { 0 } else { g.start(current) + 100 };
            is_outrun(&g, numbers, &Half { reserve, attempt: reserve, ..Half::default() })
        };
        assert!(!of(&[4, 5, 6, 7], 7));
        assert!(!of(&[4, 5, 6 | 1 << 24, 7 | 1 << 24], 7));
        assert!(of(&[4, 5 | 1 << 24, 6 | 1 << 24, 7 | 1 << 24], 7));
        assert!(of(&[4, 5, 6, 7], 5));
        assert!(!of(&[1 << 39], 1), "one header against two words");
        assert!(of(&[16], 0), "the words are erased");
    }

    #[test]
    fn one_wrong_number_is_not_the_top() {
        let g = geometry();
        assert_eq!(top(&g, &[]), None);
        assert_eq!(top(&g, &[4, 5, 6, 7]), Some(7));
        assert_eq!(top(&g, &[4 | 1 << 40, 5, 6, 7]), Some(7));
        assert_eq!(top(&g, &[4, 5 + 64, 6, 3]), Some(6));
    }
}
