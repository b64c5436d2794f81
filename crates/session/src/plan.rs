//! Plans the delivery of a stream and collects its evidence: looks once at every sub-buffer, from
//! the oldest to the current.

use super::data::Stream;
use super::end::End;
use super::events::{Rules, Walked, Zeros, walk};
use super::layout::{Announced, Control, Half, ThreadTable, announced, lost_events};
use super::outcome::{LISTED, Outcome, Packet};
use super::packet::{Header, Judged, judge};
use super::pieces::{drop_front, offset_of, truncate};
use super::region::Region;
use lastwords_abi::packet::HEADER_LEN;
use lastwords_bytes::{Budget, Error};
use lastwords_ctf::session::{ChannelDecoder, DecodeError, Expected};
use lastwords_trace::evidence::{Cause, Gap, SubBuffer, Verdict};
use std::collections::BTreeMap;

/// Plans one stream.
pub(crate) struct Planner<'a> {
    pub(crate) stream: &'a Stream,
    /// Index of the stream in the session.
    pub(crate) index: usize,
    pub(crate) decoder: Option<&'a ChannelDecoder>,
    /// The schema is uncertain, so the events of committed sub-buffers are walked too.
    pub(crate) thorough: bool,
    /// Checksums are compared when packets are delivered, unless a header shows that something is
    /// wrong.
    pub(crate) is_late: bool,
    /// With `is_late`: the headers of the half that is planned, by the number in them.
    pub(crate) headers: BTreeMap<u64, Header>,
    /// The session region and its thread table.
    pub(crate) threads: Option<(&'a Region, ThreadTable)>,
    pub(crate) budget: &'a Budget,
    pub(crate) control: Control,
    /// The end of a consuming read; none if the stream is read to its newest event.
    pub(crate) end: Option<End>,
    pub(crate) out: Outcome,
    pub(crate) buf: Vec<u8>,
    pub(crate) scratch: Vec<u8>,
    /// Number and end clock of the sub-buffer planned last, if its clocks are trusted.
    pub(crate) last: Option<(u64, u64)>,
    /// The same for the last sub-buffer with a valid checksum: damage in one sub-buffer must not
    /// affect the next.
    sure: Option<(u64, u64)>,
    pub(crate) missing_run: u64,
    /// Positions of the newest gap, if [`Self::lost_to_writers`] added it.
    pub(super) lost_run: Option<(u64, u64)>,
}

/// A sub-buffer whose events have not been walked yet. Its bytes are in the planner's buffer.
pub(crate) struct Candidate {
    pub(crate) half: usize,
    pub(crate) header: Header,
    pub(crate) pieces: Vec<(usize, usize)>,
    pub(crate) verdict: Verdict,
    pub(crate) why: String,
    /// The sub-buffer's checksum is right.
    pub(crate) whole: bool,
    /// Latest possible clock of its events.
    pub(crate) not_after: Option<u64>,
}

impl Candidate {
    /// Rules for accepting its events.
    fn rules(&self) -> Rules {
        let zeros = match self.verdict {
            _ if self.whole => Zeros::Event,
            Verdict::Open | Verdict::Torn => Zeros::Doubted,
            _ => Zeros::Unwritten,
        };
        Rules { zeros, not_after: self.not_after, wanted: None }
    }
}

impl<'a> Planner<'a> {
    pub(crate) fn new(
        stream: &'a Stream,
        index: usize,
        decoder: Option<&'a ChannelDecoder>,
        thorough: bool,
        threads: Option<(&'a Region, ThreadTable)>,
        budget: &'a Budget,
    ) -> Self {
        Self {
            stream,
            index,
            decoder,
            thorough,
            is_late: false,
            headers: BTreeMap::new(),
            threads,
            budget,
            control: Control::default(),
            end: None,
            out: Outcome::default(),
            buf: Vec::new(),
            scratch: Vec::new(),
            last: None,
            sure: None,
            missing_run: 0,
            lost_run: None,
        }
    }

    /// Sets whether checksums are compared when packets are delivered.
    pub(crate) fn late(self, is_late: bool) -> Self {
        Self { is_late, ..self }
    }

    /// Number and end clock of the last sub-buffer with a valid checksum.
    pub(crate) fn sure(&self) -> Option<(u64, u64)> {
        self.sure
    }

    /// Reads the control words; false if they cannot be read, and then nothing of the stream can
    /// be.
    pub(crate) fn read_control(&mut self) -> Result<bool, Error> {
        match self.stream.control(self.budget) {
            Ok(control) => self.control = control,
            Err(error) if error.kind == lastwords_bytes::ErrorKind::Budget => return Err(error),
            Err(error) => {
                self.out.notes.push(format!("{error}: nothing of the stream can be read"));
                self.gap("the whole stream".into(), Cause::Missing, None);
                return Ok(false);
            }
        }
        self.out.control = self.control;
        Ok(true)
    }

    /// Starts a half; returns its control words.
    pub(crate) fn begin_half(&mut self, half: usize) -> Half {
        self.headers.clear();
        self.last = None;
        self.sure = None;
        self.missing_run = 0;
        let words = self.words(half);
        self.out.produced = words.position(&self.stream.geometry);
        if words.dropped > 0 {
            let place = "snapshots before it that nobody consumed".to_owned();
            self.gap(place, Cause::Dropped, Some(words.dropped));
        }
        words
    }

    /// Returns the plan, with the losses of the whole stream.
    pub(crate) fn outcome(mut self) -> Outcome {
        self.lost();
        self.totals();
        self.out
    }

    /// True if events were recorded in this half since it was begun: the words say so, and a header
    /// agrees.
    pub(crate) fn is_in_use(&mut self, half: usize) -> bool {
        let words = self.words(half);
        let position = words.position(&self.stream.geometry);
        let number = self.stream.geometry.number(position);
        position > words.first
            && [Some(number), number.checked_sub(1)]
                .into_iter()
                .flatten()
                .any(|n| self.number_in(half, n) == Some(n))
    }

    /// The control words of a half, as last read.
    pub(crate) fn words(&self, half: usize) -> Half {
        self.control.half.get(half).copied().unwrap_or_default()
    }

    /// Delivers a sub-buffer that writers have left, in a stream whose writers leave no sub-buffer
    /// unfinished.
    pub(crate) fn closed(&mut self, half: usize, number: u64) -> Result<(), Error> {
        self.budget.steps(&self.stream.region.name, 1)?;
        if let Some((header, content)) = self.header_alone(half, number) {
            self.whole(half, header, content)?;
            self.out.packets.last_mut().into_iter().for_each(|packet| packet.is_unchecked = true);
            return Ok(());
        }
        let size = usize::try_from(self.stream.geometry.size).unwrap_or(0);
        let loaded = self.stream.load(half, number, size, &mut self.buf);
        self.budget.bytes(&self.stream.region.name, loaded.got as u64)?;
        if let Some(missing) = loaded.missing {
            let limit = self.stream.geometry.content_limit();
            return self.missing(half, number, limit, missing);
        }
        let judged = judge(&self.stream.identity, number, &mut self.buf);
        if !matches!(judged, Judged::Whole(..))
            && (self.given_up(half, number) || self.overtaken(half, number))
        {
            self.lost_to_writers(half, number);
            return Ok(());
        }
        match judged {
            Judged::Whole(header, content) => self.whole(half, header, content),
            Judged::Mended(header, content, why) => self.candidate(
                half,
                header,
                content,
                Verdict::Invalid,
                format!("{why}; the content is whole"),
            ),
            Judged::Other(other) => self.stale(number, other),
            Judged::Unclosed(_) => {
                self.damaged(half, number, HEADER_LEN, "it was never closed".into())
            }
            Judged::Damaged(header, content, why) => {
                self.candidate(half, header, content, Verdict::Invalid, why)
            }
        }
    }

    /// Returns the header of a closed sub-buffer and the size of its content, if its checksum may
    /// be compared later: nothing in the header is wrong, and all of its events are delivered as
    /// they are.
    fn header_alone(&mut self, half: usize, number: u64) -> Option<(Header, usize)> {
        let is_all = self.words(half).first <= self.stream.geometry.start(number);
        if !self.is_late || self.thorough || !is_all {
            return None;
        }
        let (header, identity) = (self.headers.remove(&number)?, self.stream.identity);
        let is_right = identity.difference(&header, number).is_none() && header.end >= header.begin;
        Some((header, identity.content(&header).filter(|_| is_right)?))
    }

    fn damaged(
        &mut self,
        half: usize,
        number: u64,
        content: usize,
        why: String,
    ) -> Result<(), Error> {
        let header = self.stream.identity.header(number);
        let lost = self.stream.geometry.content_limit().saturating_sub(content as u64);
        self.gap(
            format!("sub-buffer {number}: where its events end is not known"),
            Cause::Damaged,
            Some(lost),
        );
        self.candidate(half, header, content, Verdict::Invalid, why)
    }

    pub(crate) fn whole(
        &mut self,
        half: usize,
        header: Header,
        content: usize,
    ) -> Result<(), Error> {
        let pieces = vec![(HEADER_LEN, content)];
        let why = String::new();
        self.finish(Candidate {
            half,
            header,
            pieces,
            verdict: Verdict::Committed,
            why,
            whole: true,
            not_after: None,
        })
    }

    fn candidate(
        &mut self,
        half: usize,
        mut header: Header,
        content: usize,
        verdict: Verdict,
        why: String,
    ) -> Result<(), Error> {
        let content = content.min(self.buf.len());
        self.sane_clocks(&mut header);
        let not_after = self.last_of(&header, content);
        let pieces = vec![(HEADER_LEN, content.max(HEADER_LEN))];
        self.finish(Candidate { half, header, pieces, verdict, why, whole: false, not_after })
    }

    /// Latest clock in a closed sub-buffer whose content size is unknown: the bytes after its
    /// content are left over from an older lap.
    pub(crate) fn last_of(&self, header: &Header, content: usize) -> Option<u64> {
        let is_known = (content as u64) < self.stream.geometry.content_limit();
        Some(header.end).filter(|end| !is_known && *end != 0 && *end >= header.begin)
    }

    /// Replaces an impossible begin in a damaged header by the end of the sub-buffer before.
    pub(crate) fn sane_clocks(&self, header: &mut Header) {
        let Some((number, clock)) = self.sure else { return };
        let follows = number.checked_add(1) == Some(header.number);
        let after_end = header.end >= clock && header.end != 0 && header.begin > header.end;
        if follows && (header.begin < clock || after_end) {
            header.begin = clock;
        }
    }

    /// Delivers a sub-buffer of which the image has only the front, or nothing. No event lies after
    /// offset `limit`.
    pub(crate) fn missing(
        &mut self,
        half: usize,
        number: u64,
        limit: u64,
        why: String,
    ) -> Result<(), Error> {
        let size = self.stream.geometry.size;
        let identity = self.stream.identity;
        let header = Header::parse(&self.buf, identity.order).ok();
        let Some(header) = header.filter(|h| identity.difference(h, number).is_none()) else {
            self.missing_run = self.missing_run.saturating_add(1);
            if self.missing_run <= LISTED {
                self.verdict(number, Verdict::Missing, 0, why.clone());
                self.gap(format!("sub-buffer {number}: {why}"), Cause::Missing, Some(size));
            } else if let Some(gap) = self.out.gaps.last_mut() {
                gap.place = format!("sub-buffers up to {number}: {why}");
                gap.bytes = gap.bytes.map(|b| b.saturating_add(size));
            }
            return Ok(());
        };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let content = identity.content(&header).unwrap_or(limit).min(self.buf.len());
        self.candidate(half, header, content, Verdict::Missing, why)
    }

    fn stale(&mut self, number: u64, other: u64) -> Result<(), Error> {
        let bytes = self.stream.geometry.size;
        self.verdict(number, Verdict::Stale, 0, format!("sub-buffer {other} is in its place"));
        self.gap(format!("sub-buffer {number}"), Cause::Missing, Some(bytes));
        Ok(())
    }

    /// True if writers have reused the place of this sub-buffer since it was read.
    pub(crate) fn overtaken(&mut self, half: usize, number: u64) -> bool {
        self.stream.is_overtaken(half, number, self.words(half).reserve, self.budget)
    }

    /// True if writers have advanced since the control words were read: words and headers may then
    /// disagree.
    pub(crate) fn is_moving(&self, half: usize) -> bool {
        let now = self.stream.control_again(self.budget).ok();
        now.and_then(|c| c.half.get(half).copied())
            .is_some_and(|now| now.reserve != self.words(half).reserve)
    }

    /// True if writers were beginning a new sub-buffer in the place of this one, the oldest.
    fn given_up(&self, half: usize, number: u64) -> bool {
        let g = self.stream.geometry;
        let Half { reserve, attempt, .. } = self.words(half);
        attempt != reserve
            && g.within(reserve) == 0
            && number.saturating_add(g.count) == g.number(reserve)
    }

    /// Walks the events, removes cleared ones, and stores packet and verdict.
    pub(crate) fn finish(&mut self, mut c: Candidate) -> Result<(), Error> {
        self.missing_run = 0;
        let g = self.stream.geometry;
        let number = c.header.number;
        let first = self.words(c.half).first;
        let cut =
            if first > g.start(number) && g.number(first) == number { g.within(first) } else { 0 };
        let cut = usize::try_from(cut).unwrap_or(0);
        let mut end = c.header.end;
        let total = c.pieces.iter().fold(0usize, |n, p| n.saturating_add(p.1.saturating_sub(p.0)));
        // Clocks in damaged sub-buffers are not reliable.
        let is_sound = matches!(c.verdict, Verdict::Committed | Verdict::Open | Verdict::Torn);
        let wanted = self
            .end
            .and_then(|end| end.clock)
            .filter(|last| is_sound && (!c.whole || c.header.end > *last));
        let look = !c.whole || self.thorough || cut > HEADER_LEN || wanted.is_some();
        let mut is_late = false;
        if let Some(walked) = self.decoder.filter(|_| look).map(|d| self.walk(d, &c, cut, wanted)) {
            self.budget.events(&self.stream.region.name, walked.events)?;
            is_late = walked.is_late;
            if is_late {
                self.out.reached = Some(
                    g.start(number).saturating_add(offset_of(&c.pieces, walked.end)).max(first),
                );
                if walked.end <= walked.cut {
                    return Ok(());
                }
            }
            let kept = walked.end.saturating_sub(HEADER_LEN);
            self.broken(&mut c, &walked, total.saturating_sub(kept));
            truncate(&mut c.pieces, kept);
            if cut > HEADER_LEN {
                drop_front(&mut c.pieces, walked.cut.saturating_sub(HEADER_LEN));
                c.header.begin = walked.cut_clock;
            }
            if !c.whole || is_late {
                end = walked.clock.max(c.header.begin);
            }
        } else if self.decoder.is_none() && !c.whole && c.verdict != Verdict::Open {
            // Without a decoder, events cannot be told from damage.
            c.pieces.clear();
            self.gap(
                format!("sub-buffer {number}: no event of it is described"),
                Cause::Damaged,
                Some(total as u64),
            );
        }
        self.put(c, end, cut > HEADER_LEN || is_late)
    }

    /// Walks the events. Offsets are those in the concatenation of a header and the pieces.
    fn walk(
        &mut self,
        decoder: &ChannelDecoder,
        c: &Candidate,
        cut: usize,
        wanted: Option<u64>,
    ) -> Walked {
        let rules = Rules { wanted, ..c.rules() };
        let contiguous = match c.pieces.as_slice() {
            [(HEADER_LEN, end)] => Some(*end),
            _ => None,
        };
        if let Some(end) = contiguous {
            return walk(
                decoder,
                self.buf.get(..end).unwrap_or_default(),
                HEADER_LEN,
                c.header.begin,
                cut,
                rules,
            );
        }
        self.scratch.clear();
        self.scratch.resize(HEADER_LEN, 0);
        let mut from = HEADER_LEN;
        for (begin, end) in &c.pieces {
            if *begin < cut {
                let before = (*end).min(cut).saturating_sub(*begin);
                from = self.scratch.len().saturating_add(before);
            }
            self.scratch.extend_from_slice(self.buf.get(*begin..*end).unwrap_or_default());
        }
        walk(decoder, &self.scratch, HEADER_LEN, c.header.begin, from, rules)
    }

    /// Applies an error of the walk to the verdict.
    fn broken(&mut self, c: &mut Candidate, walked: &Walked, lost: usize) {
        // In a missing sub-buffer, a cut last event is expected; unwritten zeros before it are
        // damage.
        let counts =
            |e: &DecodeError| c.verdict != Verdict::Missing || e.expected == Expected::Written;
        let Some(error) = walked.error.filter(counts) else { return };
        let number = c.header.number;
        if c.whole || matches!(c.verdict, Verdict::Open | Verdict::Torn) {
            c.verdict = Verdict::Invalid;
        }
        let sep = if c.why.is_empty() { "" } else { "; " };
        c.why = format!("{}{sep}{error}", c.why);
        let place = format!("sub-buffer {number}, offset {}", walked.end);
        self.gap(place, Cause::Damaged, Some(lost as u64));
    }

    fn put(&mut self, c: Candidate, end: u64, cut: bool) -> Result<(), Error> {
        let number = c.header.number;
        let events = c.pieces.iter().fold(0usize, |n, p| n.saturating_add(p.1.saturating_sub(p.0)));
        let content = events.saturating_add(HEADER_LEN) as u64;
        let as_is = c.whole && !cut && c.verdict == Verdict::Committed;
        if c.verdict == Verdict::Missing {
            let missing = self.stream.geometry.size.saturating_sub(self.buf.len() as u64);
            self.gap(format!("sub-buffer {number}: {}", c.why), Cause::Missing, Some(missing));
        }
        self.verdict(number, c.verdict, content, c.why);
        let trusted = matches!(c.verdict, Verdict::Committed | Verdict::Open | Verdict::Torn);
        let clock = end.max(c.header.begin);
        // A sub-buffer without header and events has no clock.
        self.last = (trusted && clock != 0).then_some((number, clock));
        if c.verdict == Verdict::Committed {
            self.sure = self.last;
        }
        self.out.packets.push(Packet {
            half: c.half,
            reserve: self.words(c.half).reserve,
            number,
            verdict: c.verdict,
            pieces: c.pieces,
            as_is,
            is_unchecked: false,
            begin: c.header.begin,
            end: end.max(c.header.begin),
            discarded: if c.whole { c.header.discarded.saturating_sub(self.told()) } else { 0 },
        });
        Ok(())
    }

    /// Number of lost events that an earlier read reported.
    fn told(&self) -> u64 {
        self.end.map_or(0, |end| lost_events(&end.told))
    }

    pub(crate) fn verdict(&mut self, sequence: u64, verdict: Verdict, content: u64, why: String) {
        self.out.sub_buffers.push(SubBuffer {
            stream: self.index,
            sequence,
            verdict,
            content,
            why,
        });
    }

    pub(crate) fn gap(&mut self, place: String, cause: Cause, bytes: Option<u64>) {
        self.lost_run = None;
        self.out.gaps.push(Gap { stream: Some(self.index), place, cause, events: None, bytes });
    }

    /// Reads the announced reservations of the session; empty if the session region is lost.
    pub(crate) fn announced(&mut self) -> Result<Vec<Announced>, Error> {
        let Some((region, table)) = self.threads else {
            self.out.notes.push(format!(
                "{}: the table of threads is lost with the session region: reservations in flight cannot be distinguished from events",
                self.stream.region.place()
            ));
            return Ok(Vec::new());
        };
        let announced = match &self.stream.frozen {
            Some(frozen) => frozen.announced.clone(),
            None => announced(&*self.stream.image, region, table, self.budget),
        };
        match announced {
            Ok(found) => Ok(found),
            Err(error) if error.kind == lastwords_bytes::ErrorKind::Budget => Err(error),
            Err(error) => {
                self.out.notes.push(format!(
                    "{error}: reservations in flight cannot be distinguished from events"
                ));
                Ok(Vec::new())
            }
        }
    }

    /// Sorts the packets, and makes their totals of discarded events never decrease.
    fn totals(&mut self) {
        self.out.packets.sort_by_key(|p| p.number);
        let total = self.control.lost_events();
        let mut before = 0u64;
        for packet in &mut self.out.packets {
            packet.discarded = packet.discarded.min(total).max(before);
            before = packet.discarded;
        }
        if let Some(last) = self.out.packets.last_mut() {
            last.discarded = total;
        }
        self.out.sub_buffers.sort_by_key(|s| s.sequence);
    }
}
