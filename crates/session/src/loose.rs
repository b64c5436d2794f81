//! Sub-buffers that were found without a stream region ("loose"): fills the places where a stream
//! lacks them, and finds where their events end.

use super::data::Stream as Data;
use super::events::{Walked, walk_while};
use super::outcome::Outcome;
use super::packet::{Header, Identity};
use lastwords_abi::packet::HEADER_LEN;
use lastwords_bytes::ByteOrder;
use lastwords_ctf::session::{ChannelDecoder, TAG_FULL};
use lastwords_image::Image;
use lastwords_image::process_pages::PAGE_LEN;
use lastwords_trace::evidence::{Cause, Evidence, Gap, SubBuffer, Verdict};
use lastwords_trace::source::{PacketInfo, PacketReader};
use std::collections::{BTreeMap, HashMap, HashSet};

/// An event of an open sub-buffer is rejected if the clock advances by more than this multiple of
/// the longest step before.
const LEAP: u64 = 16;
/// Number of closed sub-buffers of a stream whose longest clock step is measured.
const SAMPLES: usize = 8;

/// A sub-buffer that was found by its own header.
#[derive(Debug, Clone)]
pub(crate) struct Loose {
    pub(crate) identity: Identity,
    pub(crate) header: Header,
    pub(crate) verdict: Verdict,
    /// Length of header and events, bytes.
    pub(crate) content: usize,
    /// Clock at the end of the sub-buffer.
    pub(crate) end: u64,
    pub(crate) pages: Vec<u64>,
}

impl Loose {
    /// Key that identifies the sub-buffer in its session: stream index and number.
    pub(crate) fn key(&self) -> (u64, u64) {
        (u64::from(self.identity.stream), self.header.number)
    }

    /// Replaces `buf` with the first `len` bytes of the sub-buffer, or fewer where the image lacks
    /// them.
    pub(crate) fn load(&self, image: &dyn Image, len: usize, buf: &mut Vec<u8>) {
        load(image, &self.pages, len, buf);
    }
}

pub(crate) fn load(image: &dyn Image, pages: &[u64], len: usize, buf: &mut Vec<u8>) {
    buf.clear();
    for page in pages {
        let step = PAGE_LEN.min(len.saturating_sub(buf.len()));
        let end = buf.len().saturating_add(step);
        let begin = buf.len();
        buf.resize(end, 0);
        if image.read(*page, buf.get_mut(begin..).unwrap_or_default()).is_err() {
            buf.truncate(begin);
            return;
        }
    }
}

/// Sorts the sub-buffers of a session by stream and number and removes duplicates; committed ones
/// are preferred.
pub(crate) fn sorted(mut loose: Vec<Loose>) -> Vec<Loose> {
    loose.sort_by_key(|l| (l.key(), l.verdict != Verdict::Committed, std::cmp::Reverse(l.content)));
    loose.dedup_by_key(|l| l.key());
    loose
}

/// The longest clock steps before an event: for event headers with 27 bits of clock, and for
/// headers with the full clock.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace([u64; 2]);

impl Pace {
    /// Raises the longest step for this kind of header to `step` and returns it.
    fn step(&mut self, word: [u8; 4], order: ByteOrder, step: u64) -> &mut u64 {
        let tag = match order {
            ByteOrder::Little => u32::from_le_bytes(word),
            ByteOrder::Big => u32::from_be_bytes(word),
        };
        let [short, full] = &mut self.0;
        let longest = if tag & 31 == TAG_FULL { full } else { short };
        *longest = step.max(*longest);
        longest
    }

    /// True if the step is not much longer than all steps before it; then the step is recorded.
    fn allows(&mut self, word: [u8; 4], order: ByteOrder, step: u64) -> bool {
        let before = *self.step(word, order, 0);
        let is_likely = word != [0; 4] && (before == 0 || step <= before.saturating_mul(LEAP));
        if is_likely {
            self.step(word, order, step);
        }
        is_likely
    }

    /// Maximum of two paces.
    fn with(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        Self([a.max(c), b.max(d)])
    }
}

/// Finds where the events of an open sub-buffer end. `pace` is the pace of the stream's closed
/// sub-buffers. In the stream's first lap, the memory after the last event was never written. If
/// that memory is all zero, every event that decodes before it is accepted, whatever its clock
/// step.
fn end_of_open(
    loose: &mut Loose,
    image: &dyn Image,
    decoder: Option<&ChannelDecoder>,
    mut pace: Pace,
    is_first_lap: bool,
) {
    let Some(decoder) = decoder else {
        loose.content = HEADER_LEN;
        return;
    };
    let (mut bytes, order) = (Vec::new(), loose.identity.order);
    loose.load(image, loose.content, &mut bytes);
    let begin = loose.header.begin;
    let fresh = is_first_lap
        .then(|| walk_while(decoder, &bytes, HEADER_LEN, begin, |word, _, _| word != [0; 4]));
    let proven = fresh.filter(|walked| bytes.iter().skip(walked.end).all(|&byte| byte == 0));
    let walked: Walked = proven.unwrap_or_else(|| {
        walk_while(decoder, &bytes, HEADER_LEN, begin, |word, before, clock| {
            pace.allows(word, order, clock.saturating_sub(before))
        })
    });
    loose.content = walked.end.max(HEADER_LEN);
    loose.end = walked.clock;
}

/// Measures the pace of a closed sub-buffer.
fn pace_of(loose: &Loose, image: &dyn Image, decoder: &ChannelDecoder) -> Pace {
    let (mut bytes, mut pace, order) = (Vec::new(), Pace::default(), loose.identity.order);
    loose.load(image, loose.content, &mut bytes);
    walk_while(decoder, &bytes, HEADER_LEN, loose.header.begin, |word, before, clock| {
        pace.step(word, order, clock.saturating_sub(before));
        true
    });
    pace
}

/// The loose sub-buffers of a session that no stream has taken yet.
pub(crate) struct Pool<'a> {
    pub(crate) image: &'a dyn Image,
    /// Sorted by stream and number, without duplicates.
    pub(crate) loose: Vec<Loose>,
}

/// True if the place of the sub-buffer holds no usable bytes of it.
fn lacks(row: &SubBuffer) -> bool {
    matches!(row.verdict, Verdict::Missing | Verdict::Stale | Verdict::Invalid)
}

/// Parses the number of the sub-buffer that a gap is about; none if the gap is not about a single
/// sub-buffer.
fn place_of(gap: &Gap) -> Option<u64> {
    let place = gap.place.strip_prefix("sub-buffer ")?;
    place.split([':', ',']).next()?.parse().ok()
}

/// Returns the sub-buffers of `own` that the stream lacks, and marks them committed in `outcome`.
/// Both are matched by number in hash tables, because a stream may have millions of sub-buffers.
fn take(own: Vec<Loose>, outcome: &mut Outcome) -> Vec<Loose> {
    let mut rows: HashMap<u64, &mut SubBuffer> = HashMap::new();
    for row in outcome.sub_buffers.iter_mut().filter(|row| lacks(row)) {
        rows.entry(row.sequence).or_insert(row);
    }
    let mut taken = Vec::new();
    for loose in own.into_iter().filter(|l| l.verdict == Verdict::Committed) {
        let Some(row) = rows.remove(&loose.header.number) else { continue };
        row.verdict = Verdict::Committed;
        row.content = loose.content as u64;
        row.why = "it was not in its place; found by itself, its checksum holds".to_owned();
        taken.push(loose);
    }
    let numbers: HashSet<u64> = taken.iter().map(|loose| loose.header.number).collect();
    outcome.packets.retain(|packet| !numbers.contains(&packet.number));
    outcome.gaps.retain(|gap| place_of(gap).is_none_or(|number| !numbers.contains(&number)));
    taken
}

/// A stream that has no region, only loose sub-buffers.
pub(crate) struct Orphan {
    pub(crate) identity: Identity,
    pub(crate) loose: Vec<Loose>,
}

impl Pool<'_> {
    /// Removes from the pool the sub-buffers that a walked stream lacks, and their gaps from the
    /// stream's evidence.
    pub(crate) fn fill(&mut self, stream: &Data, outcome: &mut Outcome) -> Vec<Loose> {
        let own = self.loose.extract_if(.., |l| l.identity.stream == stream.region.index).collect();
        take(own, outcome)
    }

    /// Groups the remaining sub-buffers into streams that no region describes. `decoder` returns
    /// the decoder of a channel id.
    pub(crate) fn orphans<'d>(
        self,
        decoder: impl Fn(u32) -> Option<&'d ChannelDecoder>,
    ) -> Vec<Orphan> {
        let mut streams: BTreeMap<u32, Vec<Loose>> = BTreeMap::new();
        for loose in self.loose {
            streams.entry(loose.identity.stream).or_default().push(loose);
        }
        let mut orphans = Vec::new();
        for mut loose in streams.into_values() {
            // The newest committed sub-buffer gives the channel and CPU of the stream.
            let proven = loose.iter().rfind(|l| l.verdict == Verdict::Committed).or(loose.last());
            let Some(identity) = proven.map(|l| l.identity) else { continue };
            loose.retain(|l| {
                (l.identity.channel, l.identity.cpu) == (identity.channel, identity.cpu)
            });
            let decoder = decoder(identity.channel);
            let closed =
                loose.iter().rev().filter(|l| l.verdict == Verdict::Committed).take(SAMPLES);
            let paces = closed.filter_map(|l| decoder.map(|d| pace_of(l, self.image, d)));
            let pace = paces.fold(Pace::default(), Pace::with);
            let newest = loose.iter().map(|l| l.header.number).max();
            // A stream overwrites sub-buffer 0 first, so the stream is in its first lap if
            // sub-buffer 0 is still there.
            let is_first_lap = loose.iter().any(|l| l.header.number == 0);
            for open in loose.iter_mut().filter(|l| l.verdict == Verdict::Open) {
                end_of_open(open, self.image, decoder, pace, is_first_lap);
                if Some(open.header.number) != newest {
                    open.verdict = Verdict::Torn;
                }
            }
            orphans.push(Orphan { identity, loose });
        }
        orphans
    }
}

impl Orphan {
    /// Adds the stream's sub-buffers, gaps and notes to `evidence`; `stream` is its index in the
    /// session's streams.
    pub(crate) fn tell(&self, stream: usize, evidence: &mut Evidence) {
        let Identity { stream: index, .. } = self.identity;
        let mut next = None;
        for loose in &self.loose {
            let number = loose.header.number;
            if let Some(next) = next.filter(|next| *next < number) {
                let place =
                    format!("sub-buffers {next} to {}: not found", number.saturating_sub(1));
                evidence.gaps.push(Gap::new(Some(stream), Cause::Missing, place));
            }
            next = number.checked_add(1);
            let why = match loose.verdict {
                Verdict::Committed => String::new(),
                _ => {
                    "where it ends is not known: its events are taken as far as they decode and their times are likely"
                        .to_owned()
                }
            };
            let (verdict, content) = (loose.verdict, loose.content as u64);
            evidence.sub_buffers.push(SubBuffer {
                stream,
                sequence: number,
                verdict,
                content,
                why,
            });
        }
        let place =
            "its control words: what was lost, cleared or overwritten is not known".to_owned();
        evidence.gaps.push(Gap::new(Some(stream), Cause::Missing, place));
        let closed = self.loose.iter().filter(|loose| loose.verdict == Verdict::Committed).count();
        evidence.notes.push(format!(
            "stream {index}: no region describes it; {} sub-buffers were found by themselves, {closed} are proven by their checksums",
            self.loose.len()
        ));
    }
}

/// Reads the planned sub-buffers of a stream and its loose sub-buffers, ordered by number.
pub(crate) struct Reader<'a> {
    pub(crate) image: &'a dyn Image,
    pub(crate) planned: Option<super::reader::Reader<'a>>,
    pub(crate) loose: std::iter::Peekable<std::slice::Iter<'a, Loose>>,
}

impl PacketReader for Reader<'_> {
    fn next_packet(&mut self, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
        let planned = self.planned.as_ref().and_then(super::reader::Reader::next_number);
        let next = self.loose.peek().map(|loose| loose.header.number);
        match (planned, next) {
            (Some(planned), Some(next)) if planned <= next => {
                self.planned.as_mut()?.next_packet(bytes)
            }
            (Some(_), None) => self.planned.as_mut()?.next_packet(bytes),
            _ => {
                let loose = self.loose.next()?;
                deliver(loose, self.image, bytes)
            }
        }
    }
}

fn deliver(loose: &Loose, image: &dyn Image, bytes: &mut Vec<u8>) -> Option<PacketInfo> {
    loose.load(image, loose.content, bytes);
    if bytes.len() < loose.content {
        return None;
    }
    let discarded = if loose.verdict == Verdict::Committed { loose.header.discarded } else { 0 };
    let content_bits = (loose.content as u64).saturating_mul(8);
    let header = Header { end: loose.end, content_bits, discarded, ..loose.header };
    bytes.get_mut(..HEADER_LEN)?.copy_from_slice(&header.bytes(loose.identity.order));
    Some(PacketInfo {
        sequence: header.number,
        begin: header.begin,
        end: loose.end,
        discarded,
        verdict: loose.verdict,
        events_at: HEADER_LEN,
        packet_len: loose.identity.size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn loose(number: u64) -> Loose {
        let identity = Identity {
            uuid: [7; 16],
            channel: 0,
            stream: 0,
            cpu: 0,
            size: 4096,
            order: ByteOrder::Little,
        };
        let (header, verdict, pages) = (identity.header(number), Verdict::Committed, Vec::new());
        Loose { identity, header, verdict, content: 100, end: 0, pages }
    }

    fn gap(place: &str) -> Gap {
        Gap::new(Some(0), Cause::Missing, place.to_owned())
    }

    fn row(sequence: u64, verdict: Verdict) -> SubBuffer {
        SubBuffer { stream: 0, sequence, verdict, content: 0, why: String::new() }
    }

    #[test]
    fn what_is_taken_is_no_gap_any_more() {
        let places = [
            "sub-buffer 1",
            "sub-buffer 1, offset 84",
            "sub-buffer 1: no",
            "sub-buffer 12",
            "sub-buffers up to 1: no",
        ];
        let rows = [
            (0, Verdict::Committed),
            (1, Verdict::Invalid),
            (2, Verdict::Open),
            (12, Verdict::Missing),
        ];
        let mut outcome = Outcome {
            gaps: places.map(gap).to_vec(),
            sub_buffers: rows.map(|(number, verdict)| row(number, verdict)).to_vec(),
            ..Outcome::default()
        };
        let taken = take([0, 1, 2, 3].map(loose).to_vec(), &mut outcome);
        assert_eq!(taken.iter().map(|loose| loose.header.number).collect::<Vec<_>>(), [1]);
        assert_eq!(
            (outcome.sub_buffers[1].verdict, outcome.sub_buffers[1].content),
            (Verdict::Committed, 100)
        );
        let left: Vec<&str> = outcome.gaps.iter().map(|gap| &*gap.place).collect();
        assert_eq!(left, ["sub-buffer 12", "sub-buffers up to 1: no"]);
    }

    #[test]
    fn the_time_grows_with_their_number() {
        const COUNT: u64 = 300_000;
        let lacks = |number| number % 64 == 0;
        let rows = (0..COUNT)
            .map(|n| row(n, if lacks(n) { Verdict::Missing } else { Verdict::Committed }));
        let gaps = (0..COUNT)
            .filter(|n| lacks(*n))
            .map(|n| gap(&format!("sub-buffer {n}: it is not there")));
        let mut outcome =
            Outcome { sub_buffers: rows.collect(), gaps: gaps.collect(), ..Outcome::default() };
        let begin = Instant::now();
        let taken = take((0..COUNT).map(loose).collect(), &mut outcome);
        assert_eq!((taken.len() as u64, outcome.gaps.len()), (COUNT.div_ceil(64), 0));
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    }
}
