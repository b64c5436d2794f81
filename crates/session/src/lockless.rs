//! Walks streams that are reserved by compare-and-swap. All bytes before the produced position are
//! reserved; bytes that were never committed are found through the reservations in the session's
//! table of threads.

use super::events::full_clock;
use super::layout::{Announced, Geometry, Half, SlotState, Slots};
use super::linear::top;
use super::packet::{Header, Judged, judge};
use super::plan::{Candidate, Planner};
use lastwords_abi::packet::HEADER_LEN;
use lastwords_abi::session::{IN_FLIGHT_COPIED, IN_FLIGHT_RESERVING, IN_FLIGHT_SWITCH};
use lastwords_abi::stream::POSITION_BITS;
use lastwords_bytes::Error;
use lastwords_trace::evidence::{Cause, Verdict};

const HEADER: u64 = HEADER_LEN as u64;
/// Mask of the bits of a target that `confirmed` carries.
const TAG: u64 = (1 << (64 - POSITION_BITS)) - 1;

/// A half and the reservations in flight in it.
struct Ring {
    half: usize,
    position: u64,
    current: u64,
    slots: Slots,
    /// Reservations in this half that succeeded and were not withdrawn.
    flights: Vec<Announced>,
    /// A position: all bytes before it in its sub-buffer were committed.
    contiguous: u64,
    /// Clock of one of the newest events.
    last_clock: u64,
    /// The produced position was damaged and had to be replaced.
    lost: bool,
}

/// The known extent of a sub-buffer's content.
struct Content {
    number: u64,
    /// Offset after the last event.
    end: u64,
    /// Clock at the end of the sub-buffer, from its slot; 0 if unknown.
    end_clock: u64,
    /// Ranges of offsets (begin, end) that were reserved and never filled.
    holes: Vec<(u64, u64)>,
    /// Number of bytes that were filled but may be missing in the commit counter.
    copied: u64,
    /// The sub-buffer's header may not be written.
    headless: bool,
    /// Reason why the end is uncertain.
    doubt: Option<String>,
}

/// Plans a half.
pub(crate) fn half(planner: &mut Planner<'_>, half: usize, words: Half) -> Result<(), Error> {
    let stream = planner.stream;
    let g = stream.geometry;
    let position = words.lockless_position();
    let slots = match stream.slots(half, planner.budget) {
        Ok(slots) => slots,
        Err(error) if error.kind == lastwords_bytes::ErrorKind::Budget => return Err(error),
        Err(error) => {
            planner.out.notes.push(format!("{error}: the commit counters are not known"));
            Slots::default()
        }
    };
    let announced = planner.announced()?;
    let target = (u64::from(stream.region.index) << 1 | half as u64).saturating_add(1);
    let flights =
        announced.into_iter().filter(|a| a.target == target && succeeded(a, &words)).collect();
    let Half { contiguous, last_clock, .. } = words;
    let current = g.number(position);
    let mut ring =
        Ring { half, position, current, slots, flights, contiguous, last_clock, lost: false };
    planner.sound(&mut ring, words.first)?;
    let first = planner.words(half).first;
    let oldest = planner.oldest(half, ring.current, first);
    let mut number = oldest;
    while number <= ring.current && planner.out.reached.is_none() {
        planner.budget.steps(&stream.region.name, 1)?;
        let next = planner.after_hole(half, number, ring.current);
        if next == number {
            planner.place(&ring, number)?;
        }
        number = next.max(number.saturating_add(1));
    }
    Ok(())
}

/// True if the announced reservation succeeded.
fn succeeded(a: &Announced, words: &Half) -> bool {
    let same_target = a.confirmed >> POSITION_BITS == a.target & TAG;
    let confirmed = a.confirmed & (1u64 << POSITION_BITS).wrapping_sub(1);
    (same_target && confirmed >= a.end)
        || (words.lockless_owner() == a.owner && words.lockless_position() == a.end)
}

impl Ring {
    fn slot(&self, place: u64) -> Option<SlotState> {
        self.slots.state(place)
    }

    /// Number of bytes committed in a sub-buffer, without its header, from the commit counter.
    fn counted(&self, g: &Geometry, number: u64) -> Option<u64> {
        let lap = g.lap(number).saturating_mul(g.size);
        self.slot(g.place(number)).map(|s| s.committed.wrapping_sub(lap))
    }

    /// True if the commit counter of the current sub-buffer agrees with the produced position.
    fn is_counted(&self, g: &Geometry) -> bool {
        let counted = self.counted(g, self.current).filter(|n| *n != 0);
        self.content(g, self.current).agrees(counted, g.size)
    }

    /// Offset after the last event of a sub-buffer, computed from its commit counter and its holes.
    fn counted_end(&self, g: &Geometry, number: u64) -> Option<u64> {
        let (start, next) = (g.start(number), g.start(number.saturating_add(1)));
        let inside =
            |a: &&Announced| a.state == IN_FLIGHT_RESERVING && a.begin >= start && a.end <= next;
        let holes = self
            .flights
            .iter()
            .filter(inside)
            .fold(0u64, |n, a| n.saturating_add(a.end.saturating_sub(a.begin)));
        let end = HEADER.saturating_add(self.counted(g, number)?).saturating_add(holes);
        Some(end).filter(|end| *end <= g.content_limit())
    }

    /// Commit counter and position of the current sub-buffer contradict each other, and no hole
    /// explains that. The end that agrees with the third word, `contiguous`, is right. Otherwise
    /// the larger end is taken, and events are accepted only if they decode and are not later than
    /// the returned clock.
    fn settle(&self, g: &Geometry, content: &mut Content) -> Option<u64> {
        let end = self.counted_end(g, content.number)?;
        let agrees = self.contiguous == g.start(content.number).saturating_add(end);
        let is_more = end > content.end;
        if agrees || is_more {
            content.end = end;
        }
        Some(self.last_clock).filter(|last| is_more && !agrees && *last != 0)
    }

    /// Number of the newest sub-buffer in `from..number` whose recorder began it in this place but
    /// did not write its header.
    fn begun_unheaded(&self, g: &Geometry, number: u64, from: u64) -> Option<u64> {
        let switches = self
            .flights
            .iter()
            .filter(|a| a.state == IN_FLIGHT_SWITCH && g.within(a.end) == HEADER);
        let begun = switches.map(|a| g.number(a.end)).filter(|n| g.place(*n) == g.place(number));
        begun.filter(|n| (from..number).contains(n)).max()
    }

    /// True if a reservation in flight overlaps this sub-buffer.
    fn is_touched(&self, g: &Geometry, number: u64) -> bool {
        let (start, next) = (g.start(number), g.start(number.saturating_add(1)));
        self.flights.iter().any(|a| a.begin < next && a.end > start)
    }

    /// Determines the content of a sub-buffer that is not closed.
    fn content(&self, g: &Geometry, number: u64) -> Content {
        let (start, next) = (g.start(number), g.start(number.saturating_add(1)));
        let slot = self.slot(g.place(number)).unwrap_or_default();
        let in_events = |p: u64| {
            p >= start.saturating_add(HEADER) && p <= start.saturating_add(g.content_limit())
        };
        let switches = || self.flights.iter().filter(|a| a.state == IN_FLIGHT_SWITCH);
        let left = switches().map(|a| a.begin).find(|b| in_events(*b));
        let closed = Some(slot.content_end).filter(|p| in_events(*p));
        let (end, doubt) = if number == self.current {
            (self.position, None)
        } else if let Some(end) = left.or(closed) {
            (end, None)
        } else {
            let why = format!("nothing says where its events end (slot: {})", slot.content_end);
            (start.saturating_add(g.content_limit()), Some(why))
        };
        let clip = |a: &Announced| (a.begin.max(start), a.end.min(end));
        let of_state = |state: u64| {
            self.flights
                .iter()
                .filter(move |a| a.state == state && a.begin < next)
                .map(clip)
                .filter(|(b, e)| b < e)
        };
        let offset = |p: u64| p.saturating_sub(start);
        let mut holes: Vec<_> =
            of_state(IN_FLIGHT_RESERVING).map(|(b, e)| (offset(b), offset(e))).collect();
        holes.sort_unstable();
        Content {
            number,
            end: offset(end),
            end_clock: if left.is_none() && closed.is_some() { slot.end_clock } else { 0 },
            holes,
            copied: of_state(IN_FLIGHT_COPIED)
                .fold(0u64, |n, (b, e)| n.saturating_add(e.saturating_sub(b))),
            headless: switches().any(|a| a.end == start.saturating_add(HEADER)),
            doubt,
        }
    }
}

impl Content {
    /// Ranges of offsets between the holes.
    fn pieces(&self) -> Vec<(usize, usize)> {
        let mut pieces = Vec::new();
        let mut at = HEADER;
        let mut keep = |from: u64, to: u64| {
            if let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to))
                && from < to
            {
                pieces.push((from, to));
            }
        };
        for (begin, end) in &self.holes {
            keep(at, *begin);
            at = at.max(*end);
        }
        keep(at, self.end);
        pieces
    }

    /// Number of bytes between the holes.
    fn filled(&self) -> u64 {
        self.pieces().iter().fold(0u64, |n, p| n.saturating_add(p.1.saturating_sub(p.0) as u64))
    }

    /// True if `counted`, the bytes committed in this lap, is possible with this content.
    fn agrees(&self, counted: Option<u64>, size: u64) -> bool {
        let Some(counted) = counted else { return false };
        let filled = self.filled();
        let padding = size.saturating_sub(self.end);
        let all = [filled, filled.saturating_add(padding)];
        let one_uncounted =
            all.contains(&counted) || all.contains(&counted.saturating_add(self.copied));
        // If several reservations were copied but not counted, any subset of them may be counted.
        one_uncounted
            || (self.copied > 0
                && all.iter().any(|n| counted <= *n && counted.saturating_add(self.copied) >= *n))
    }
}

impl Planner<'_> {
    /// Checks that the produced position lies where events can end, and in a sub-buffer that agrees
    /// with the headers. Replaces it if not.
    fn sound(&mut self, ring: &mut Ring, first: u64) -> Result<(), Error> {
        let g = self.stream.geometry;
        let from = if first <= ring.position { g.number(first) } else { 0 };
        let numbers = self.numbers(ring.half, from)?;
        if !self.is_possible(ring, first, &numbers) && !self.is_moving(ring.half) {
            let why =
                format!("the produced position {} does not fit the sub-buffers", ring.position);
            self.out.notes.push(format!("{}: {why}", self.stream.region.place()));
            self.gap(why, Cause::Damaged, None);
            ring.lost = true;
            ring.current = top(&g, &numbers).unwrap_or(0);
            let end = ring.counted_end(&g, ring.current).unwrap_or(g.content_limit());
            ring.position =
                if numbers.is_empty() { 0 } else { g.start(ring.current).saturating_add(end) };
            self.out.produced = ring.position;
        }
        if first > ring.position {
            self.unheeded(ring.half, first);
        }
        Ok(())
    }

    fn is_possible(&mut self, ring: &Ring, first: u64, numbers: &[u64]) -> bool {
        let g = self.stream.geometry;
        let within = g.within(ring.position);
        if ring.position == first && within < HEADER {
            // Nothing was recorded since the half was begun, so there is no header yet.
            return !numbers.contains(&ring.current);
        }
        if within < HEADER || within > g.content_limit() {
            return false;
        }
        let headless = ring.content(&g, ring.current).headless;
        let Some(top) = top(&g, numbers).filter(|top| *top != ring.current && !headless) else {
            return true;
        };
        if ring.is_counted(&g) {
            // Position and commit counter agree independently; they outweigh a header.
            return true;
        }
        let score = |current: u64| {
            let kept = current.saturating_add(1).saturating_sub(g.count);
            numbers.iter().filter(|n| (kept..=current).contains(*n)).count()
        };
        if top < ring.current {
            // Position and header agree independently; the places with older numbers were skipped.
            return numbers.contains(&ring.current) || score(ring.current) >= score(top);
        }
        // Either one header is damaged, or the position is, and its sub-buffer was closed long ago.
        let size = usize::try_from(g.size).unwrap_or(0);
        self.stream.load(ring.half, ring.current, size, &mut self.buf);
        score(ring.current) >= score(top)
            && !matches!(
                judge(&self.stream.identity, ring.current, &mut self.buf),
                Judged::Whole(..)
            )
    }

    /// True if writers are active in this half: commit counters and thread table were read at
    /// different times.
    fn is_counting(&self, ring: &Ring, number: u64) -> bool {
        let stream = self.stream;
        let g = stream.geometry;
        if self.is_moving(ring.half) {
            return true;
        }
        let place = g.place(number);
        let again = stream.slot_again(ring.half, place, self.budget);
        again.is_some_and(|again| {
            Some(again.committed) != ring.slot(place).map(|slot| slot.committed)
        })
    }

    /// Records that `first` is invalid, and uses 0 instead.
    fn unheeded(&mut self, half: usize, first: u64) {
        let why = format!("first {first} is after everything that was produced; it is ignored");
        self.out.notes.push(format!("{}: half {half}: {why}", self.stream.region.place()));
        self.gap(why, Cause::Damaged, None);
        if let Some(words) = self.control.half.get_mut(half) {
            words.first = 0;
        }
    }

    /// Delivers sub-buffer `number`, or the older sub-buffer in its place.
    fn place(&mut self, ring: &Ring, number: u64) -> Result<(), Error> {
        let g = self.stream.geometry;
        if number == ring.current && g.within(ring.position) < HEADER {
            return Ok(());
        }
        let size = usize::try_from(g.size).unwrap_or(0);
        let loaded = self.stream.load(ring.half, number, size, &mut self.buf);
        self.budget.bytes(&self.stream.region.name, loaded.got as u64)?;
        let mut content = ring.content(&g, number);
        // Bytes that the image lacks behind the content of the current sub-buffer were not written
        // yet. They are zeros, as those in a hole of a file, which are not read.
        if let Some(missing) = loaded.missing
            && (number != ring.current || (loaded.got as u64) < content.end)
        {
            return self.missing(ring.half, number, content.end, missing);
        }
        let found = Header::parse(&self.buf, self.stream.identity.order).ok();
        let judged = judge(&self.stream.identity, number, &mut self.buf);
        // Writers may have closed the current sub-buffer since the consuming read chose its end.
        let is_cut = number == ring.current && self.end.is_some();
        if let Judged::Whole(header, end) = judged
            && !is_cut
        {
            return self.whole(ring.half, header, end);
        }
        if self.overtaken(ring.half, number) {
            self.lost_to_writers(ring.half, number);
            return Ok(());
        }
        let passed_over = self.passed_over(ring, number);
        let older = found.filter(|h| passed_over && self.is_older(h, number, &content));
        let is_headed =
            found.is_some_and(|h| self.stream.identity.difference(&h, number).is_none());
        if passed_over && !content.headless && !is_headed {
            let from = older.map_or(0, |h| h.number.saturating_add(1));
            if let Some(begun) = ring.begun_unheaded(&g, number, from) {
                return self.unclosed(ring, ring.content(&g, begun), None, judged);
            }
        }
        if let Some(older) = older {
            if older.number < g.number(self.words(ring.half).first) {
                // All events there were consumed or cleared.
                return Ok(());
            }
            content = ring.content(&g, older.number);
            return match judged {
                Judged::Other(_) => self.whole(
                    ring.half,
                    older,
                    self.stream.identity.content(&older).unwrap_or(HEADER_LEN),
                ),
                _ => self.unclosed(ring, content, Some(older), judged),
            };
        }
        self.unclosed(ring, content, found, judged)
    }

    /// True if the place may hold an older sub-buffer: recorders have skipped places in this
    /// stream, or one that is in flight skipped the place of `number` and has not counted it yet.
    fn passed_over(&self, ring: &Ring, number: u64) -> bool {
        let g = self.stream.geometry;
        let over = |a: &Announced| a.begin <= g.start(number) && number < g.number(a.end);
        // The counter is that of the stream's whole life: sub-buffers reported to earlier consumers
        // are still in their places.
        self.out.control.lost.get(lastwords_abi::stream::SKIPPED).is_some_and(|n| *n > 0)
            || ring.flights.iter().any(|a| a.state == IN_FLIGHT_SWITCH && over(a))
    }

    /// True if the header is that of an older lap: writers skipped the place because a thread was
    /// still writing there.
    fn is_older(&self, header: &Header, number: u64, content: &Content) -> bool {
        let g = self.stream.geometry;
        !content.headless
            && header.number < number
            && g.place(header.number) == g.place(number)
            && self.stream.identity.difference(header, header.number).is_none()
    }

    /// Delivers a sub-buffer that was not closed or is damaged.
    fn unclosed(
        &mut self,
        ring: &Ring,
        mut content: Content,
        found: Option<Header>,
        judged: Judged,
    ) -> Result<(), Error> {
        let identity = self.stream.identity;
        let g = self.stream.geometry;
        let number = content.number;
        let counted = ring.counted(&g, number);
        // A recorder completed the commit counter where a dead recorder left a hole, but the
        // recording ended before the place was reused.
        let reclaimed = counted == Some(g.size) && ring.is_touched(&g, number);
        let damage = match judged {
            Judged::Damaged(header, end, why)
                if !reclaimed && (counted == Some(g.size) || ring.slots.are_unknown()) =>
            {
                return self.closed_damaged(ring.half, header, end, why);
            }
            Judged::Mended(header, end, why) => {
                return self.closed_damaged(
                    ring.half,
                    header,
                    end,
                    format!("{why}; the content is whole"),
                );
            }
            _ => content.doubt.clone(),
        };
        let header = found.unwrap_or(identity.header(number));
        let difference = identity.difference(&header, number).filter(|_| !content.headless);
        let passed = number != ring.current && number.saturating_add(g.count) <= ring.current;
        let disagrees = !passed
            && !reclaimed
            && !content.agrees(counted, g.size)
            && !self.is_counting(ring, number);
        let wrong_count = wrong_count(ring, number, counted, disagrees);
        let mut not_after = None;
        if disagrees && number == ring.current && content.holes.is_empty() {
            not_after = ring.settle(&g, &mut content);
        }
        let pieces = content.pieces();
        let begin =
            if content.headless { self.headless_begin(&pieces) } else { Some(header.begin) };
        let timeless = (begin.is_none() && !pieces.is_empty())
            .then(|| "the time of its begin is not known".to_string());
        let why = damage.or(difference).or(wrong_count).or(timeless);
        let verdict = match (&why, content.holes.is_empty()) {
            (Some(_), _) => Verdict::Invalid,
            (None, false) => Verdict::Torn,
            (None, true) => Verdict::Open,
        };
        let mut header = identity.mended(&header, number);
        header.end = content.end_clock;
        header.begin = begin.unwrap_or(0);
        if verdict == Verdict::Invalid {
            self.sane_clocks(&mut header);
        } else if let Some((first, _)) = pieces.first().filter(|_| !content.headless) {
            self.repair_begin_by_event(&mut header, *first);
        }
        let why = why.unwrap_or_else(|| {
            if verdict == Verdict::Torn { holes_in_words(&content.holes) } else { String::new() }
        });
        self.finish(Candidate {
            half: ring.half,
            header,
            pieces,
            verdict,
            why,
            whole: false,
            not_after,
        })?;
        self.tell_holes(ring.half, &content);
        Ok(())
    }

    /// Adds gaps for the holes in the delivered part of a sub-buffer. For a consuming read, holes
    /// before that part were reported by earlier reads, and holes after it will be reported by the
    /// next.
    fn tell_holes(&mut self, half: usize, content: &Content) {
        let start = self.stream.geometry.start(content.number);
        let first = if self.end.is_some() { self.words(half).first } else { 0 };
        let reached = self.out.reached.unwrap_or(u64::MAX);
        for (begin, end) in &content.holes {
            if (first..reached).contains(&start.saturating_add(*begin)) {
                let place = format!("sub-buffer {}, offset {begin}", content.number);
                self.gap(place, Cause::InFlight, Some(end.saturating_sub(*begin)));
            }
        }
    }

    fn closed_damaged(
        &mut self,
        half: usize,
        mut header: Header,
        end: usize,
        why: String,
    ) -> Result<(), Error> {
        self.sane_clocks(&mut header);
        let not_after = self.last_of(&header, end);
        let pieces = vec![(HEADER_LEN, end.max(HEADER_LEN))];
        self.finish(Candidate {
            half,
            header,
            pieces,
            verdict: Verdict::Invalid,
            why,
            whole: false,
            not_after,
        })
    }

    /// Clock at the begin of a sub-buffer without a header: the full clock of its first event. If
    /// the first event is a hole, the end of the sub-buffer before.
    fn headless_begin(&self, pieces: &[(usize, usize)]) -> Option<u64> {
        let first = pieces.first().and_then(|p| self.buf.get(p.0..p.1)).unwrap_or_default();
        let full = full_clock(first, self.stream.identity.order);
        full.or(self.last.map(|l| l.1))
    }
}

/// Returns what is wrong with a sub-buffer because of its commit counter, if anything is.
fn wrong_count(ring: &Ring, number: u64, counted: Option<u64>, disagrees: bool) -> Option<String> {
    let said = counted.unwrap_or(0).cast_signed();
    if ring.lost && number == ring.current {
        Some(format!("its end is known by the commit counter ({said}) alone"))
    } else {
        disagrees.then(|| format!("the commit counter ({said}) does not fit its reservations"))
    }
}

fn holes_in_words(holes: &[(u64, u64)]) -> String {
    let bytes = holes.iter().fold(0u64, |n, h| n.saturating_add(h.1.saturating_sub(h.0)));
    format!("{} reservations of {bytes} bytes were never committed", holes.len())
}
