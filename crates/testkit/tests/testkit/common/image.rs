//! An image in memory, walked by the project's own reader, and what came out in a form that can be
//! compared.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use lastwords_bytes::{Budget, Error};
use lastwords_ctf::session::Decoder;
use lastwords_image::{Hole, HoleCause, Image, Range, unwatched};
use lastwords_session as session;
use lastwords_testkit::naive;
use lastwords_testkit::ring::Event;
use lastwords_trace::evidence::{Evidence, Verdict};
use lastwords_trace::source::{OpenSpan, PacketInfo, Source};

/// Bytes at addresses from 0 on, with one byte changed without a copy.
pub(crate) struct Bytes {
    bytes: Arc<[u8]>,
    changed: Option<(usize, u8)>,
    ranges: [Range; 1],
}

impl Bytes {
    pub(crate) fn new(bytes: Arc<[u8]>, len: usize, changed: Option<(usize, u8)>) -> Self {
        let range =
            Range { address: 0, len: len as u64, name: "image".into(), offset: 0, hole: None };
        Self { bytes, changed, ranges: [range] }
    }
}

impl Image for Bytes {
    fn name(&self) -> &str {
        "image"
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn is_virtual(&self) -> bool {
        false
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let len = self.ranges[0].len;
        let from = address.min(len) as usize;
        let n = buf.len().min(len as usize - from);
        buf[..n].copy_from_slice(&self.bytes[from..from + n]);
        if let Some((at, byte)) = self.changed.filter(|(at, _)| (from..from + n).contains(at)) {
            buf[at - from] = byte;
        }
        if n == buf.len() {
            Ok(())
        } else {
            Err(Hole { address: len, cause: HoleCause::Truncated })
        }
    }
}

/// A sub-buffer by stream instance and number.
pub(crate) type Key = (u64, u64);

/// The result for a sub-buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sub {
    pub(crate) verdict: Verdict,
    pub(crate) events: Vec<Event>,
    /// The bytes did not decode to their end.
    pub(crate) broken: bool,
}

/// The result for an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) sessions: usize,
    pub(crate) subs: BTreeMap<Key, Sub>,
    /// Where streams were read to that were not wanted to their end.
    pub(crate) reached: Vec<u64>,
    /// All evidence, as text, to be compared.
    pub(crate) evidence: Vec<String>,
}

impl Found {
    pub(crate) fn events(&self) -> usize {
        self.subs.values().map(|s| s.events.len()).sum()
    }

    pub(crate) fn verdict(&self, key: &Key) -> Option<Verdict> {
        self.subs.get(key).map(|s| s.verdict)
    }
}

/// Walks an image. Everything that comes out is decoded.
pub(crate) fn walk(image: Bytes, snapshot: bool) -> Result<Found, Error> {
    let image: Arc<dyn Image> = Arc::new(image);
    walk_image(&image, snapshot)
}

/// Walks an image of any kind.
pub(crate) fn walk_image(image: &Arc<dyn Image>, snapshot: bool) -> Result<Found, Error> {
    walk_as(image, &session::Options { snapshot, ..session::Options::default() })
}

/// Walks an image of any kind, as `options` say.
pub(crate) fn walk_as(
    image: &Arc<dyn Image>,
    options: &session::Options<'_>,
) -> Result<Found, Error> {
    let found = session::find(image, options, &Budget::default(), &unwatched)?;
    let mut all = Found { sessions: found.sessions.len(), ..Found::default() };
    all.evidence.extend(found.notes.iter().map(|n| format!("note: {n}")));
    for session in &found.sessions {
        collect(session, &mut all);
        all.reached.extend(session.info().streams.iter().filter_map(|stream| stream.reached));
    }
    Ok(all)
}

/// Walks bytes that are whole.
pub(crate) fn walk_bytes(bytes: &[u8]) -> Result<Found, Error> {
    walk(Bytes::new(bytes.into(), bytes.len(), None), false)
}

/// The contents of a session: the packets of each stream, then the evidence and the open spans.
type Delivered = (Vec<Vec<(PacketInfo, Vec<u8>)>>, Evidence, Vec<OpenSpan>);

fn delivered(source: &session::Session) -> Delivered {
    let packets = |stream: usize| {
        let (mut reader, mut bytes) = (source.packets(stream), Vec::new());
        std::iter::from_fn(|| Some((reader.next_packet(&mut bytes)?, bytes.clone()))).collect()
    };
    let packets = (0..source.streams().len()).map(packets).collect();
    (packets, source.evidence().clone(), source.open_spans().to_vec())
}

/// Says what differs if checksums are compared when packets are delivered, and not before.
pub(crate) fn late_differs(image: Bytes) -> Option<String> {
    let image: Arc<dyn Image> = Arc::new(image);
    let find = |late| {
        let options = session::Options { late, ..session::Options::default() };
        Some(session::find(&image, &options, &Budget::default(), &unwatched).ok()?.sessions)
    };
    let (Some(first), Some(late), Some(unread)) = (find(false), find(true), find(true)) else {
        return Some("only one way finds anything".to_owned())
            .filter(|_| find(false).is_some() != find(true).is_some());
    };
    if first.len() != late.len() {
        return Some(format!("{} sessions, and {}", first.len(), late.len()));
    }
    first.iter().zip(&late).zip(&unread).find_map(|((first, late), unread)| {
        if unread.evidence() != first.evidence() {
            return Some("the evidence before reading differs".to_owned());
        }
        let (first, late) = (delivered(first), delivered(late));
        let parts = [
            ("packets", first.0 == late.0),
            ("evidence", first.1 == late.1),
            ("spans", first.2 == late.2),
        ];
        parts.iter().find(|(_, is_same)| !is_same).map(|(what, _)| format!("the {what} differ"))
    })
}

/// The sessions in bytes that are whole; none where the image is refused.
pub(crate) fn own_sessions(bytes: &[u8]) -> Vec<session::Session> {
    let image: Arc<dyn Image> = Arc::new(Bytes::new(bytes.into(), bytes.len(), None));
    let found = session::find(&image, &session::Options::default(), &Budget::default(), &unwatched);
    found.map(|f| f.sessions).unwrap_or_default()
}

fn collect(source: &dyn Source, all: &mut Found) {
    let decoder = Decoder::new(source.schema());
    let evidence = source.evidence();
    let streams = source.streams();
    for s in &evidence.sub_buffers {
        let instance = streams[s.stream].instance;
        all.evidence.push(format!("{instance}/{}: {} {}", s.sequence, s.verdict.word(), s.why));
        let sub = Sub { verdict: s.verdict, events: Vec::new(), broken: false };
        all.subs.insert((instance, s.sequence), sub);
    }
    all.evidence.extend(evidence.gaps.iter().map(|g| format!("gap: {g:?}")));
    all.evidence.extend(evidence.notes.iter().map(|n| format!("note: {n}")));
    for (index, stream) in streams.iter().enumerate() {
        let mut reader = source.packets(index);
        let mut bytes = Vec::new();
        while let Some(info) = reader.next_packet(&mut bytes) {
            let sub = all.subs.entry((stream.instance, info.sequence));
            let sub =
                sub.or_insert(Sub { verdict: info.verdict, events: Vec::new(), broken: false });
            assert_eq!(sub.verdict, info.verdict, "evidence and packet say the same");
            assert!(info.packet_len >= bytes.len() as u64, "a packet holds its content");
            for event in decoder.events(stream.channel, &bytes, info.begin, info.events_at) {
                match event {
                    Ok(e) => sub.events.push(Event {
                        clock: e.clock,
                        id: e.id,
                        body: bytes[e.context_at..e.end].to_vec(),
                    }),
                    Err(_) => sub.broken = true,
                }
            }
        }
    }
}

/// Returns the reader's word for a verdict of the writer or the naive reader.
pub(crate) fn found_as(expected: naive::Verdict) -> Verdict {
    match expected {
        naive::Verdict::Committed => Verdict::Committed,
        naive::Verdict::Open => Verdict::Open,
        naive::Verdict::Torn => Verdict::Torn,
        naive::Verdict::Stale => Verdict::Stale,
        naive::Verdict::Invalid => Verdict::Invalid,
    }
}
