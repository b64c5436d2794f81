//! A session as it was recovered.

use crate::data::Stream as Data;
use crate::info::Info;
use crate::loose::{self, Loose};
use crate::outcome::{Outcome, Packet};
use crate::reader::LateChecksums;
use crate::{ReadLimit, gap, reader};
use lastwords_bytes::Budget;
use lastwords_image::{Image, Watch, unwatched};
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use lastwords_trace::schema::Schema;
use lastwords_trace::source::{OpenSpan, PacketReader, Source, Stream};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Selects the parts of a session to read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options<'a> {
    /// Read the snapshot instead of the live ring.
    pub snapshot: bool,
    /// Stop where a consuming read has to stop, instead of at the newest event.
    pub limit: Option<ReadLimit<'a>>,
    /// The session may still be recording. Each stream is copied before it is analyzed, so that
    /// events found in it can still be delivered.
    pub live: bool,
    /// Compare the checksum of a sub-buffer when its packet is delivered, not before. This saves
    /// reading all sub-buffers twice. [`Source::evidence`] is complete in any case: it compares
    /// what was not delivered. But where a sub-buffer is damaged, the clocks and amounts of the
    /// streams in [`Session::info`] may be wrong.
    pub late: bool,
    /// Read all of a saved snapshot, not only the window of its trigger.
    pub whole: bool,
}

/// The sessions found in an image.
#[derive(Debug, Default)]
pub struct Sessions {
    /// Sessions, in order of creation.
    pub sessions: Vec<Session>,
    /// Notes about regions that belong to no session.
    pub notes: Vec<String>,
}

/// One session recovered from an image.
pub struct Session {
    pub(crate) info: Info,
    pub(crate) schema: Schema,
    pub(crate) streams: Vec<Stream>,
    pub(crate) data: Vec<(Data, Outcome)>,
    /// Sub-buffers that were found without a region, by index of the stream. Streams that have
    /// only such sub-buffers come after those of `data`.
    pub(crate) loose: BTreeMap<usize, Vec<Loose>>,
    /// The image that contains the sub-buffers of `loose`.
    pub(crate) image: Arc<dyn Image>,
    pub(crate) evidence: Evidence,
    pub(crate) spans: Option<Vec<OpenSpan>>,
    /// The state of checksums that are compared late; none if all were compared.
    pub(crate) late: Option<Late>,
}

/// Changes what is shown of an open span.
pub type ShowSpan = Arc<dyn Fn(&mut OpenSpan) + Send + Sync>;

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("info", &self.info)
            .field("evidence", &self.evidence)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Facts about the session, as `inspect` shows them.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Changes what is shown of the open spans.
    pub fn show_spans(&mut self, show: &ShowSpan) {
        self.spans.iter_mut().flatten().for_each(|span| show(span));
        self.late.iter_mut().for_each(|late| late.show = Some(Arc::clone(show)));
    }

    /// Adds a gap: `what` names a part of the image that cannot be read.
    pub(crate) fn lacks(&mut self, what: &str) {
        self.evidence.gaps.push(gap(what, Cause::Missing));
        self.late.iter_mut().for_each(|late| late.lacks(gap(what, Cause::Missing)));
    }

    /// The same session without packets, and with one more gap.
    pub(crate) fn without_packets(&self, gap: Gap) -> Self {
        let mut evidence = self.evidence.clone();
        evidence.gaps.push(gap);
        Self {
            info: self.info.clone(),
            schema: self.schema.clone(),
            streams: self.streams.clone(),
            data: Vec::new(),
            loose: BTreeMap::new(),
            image: Arc::clone(&self.image),
            evidence,
            spans: self.spans.clone(),
            late: None,
        }
    }

    /// The session as it is found when all checksums are compared first; none if that makes no
    /// difference.
    fn checked(&self) -> Option<&Self> {
        self.late.as_ref().filter(|late| !late.is_done())?.again(self)
    }
}

impl Source for Session {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn packets(&self, stream: usize) -> Box<dyn PacketReader + '_> {
        if let Some(checked) = self.late.as_ref().and_then(Late::known) {
            return checked.packets(stream);
        }
        let planned = self.data.get(stream).map(|(data, outcome)| reader::Reader {
            stream: data,
            packets: outcome.packets.iter(),
            budget: Budget::for_input(data.region.held),
            buf: Vec::new(),
            is_whole: true,
            late: self.late.as_ref().map(|late| Box::new(late.of_stream(self, stream)) as _),
        });
        match (self.loose.get(&stream), planned) {
            (Some(loose), planned) => Box::new(loose::Reader {
                image: &*self.image,
                planned,
                loose: loose.iter().peekable(),
            }),
            (None, Some(planned)) => Box::new(planned),
            (None, None) => Box::new(Nothing),
        }
    }

    fn evidence(&self) -> &Evidence {
        self.checked().map_or(&self.evidence, |checked| &checked.evidence)
    }

    fn contents(&self) -> Vec<u64> {
        self.evidence.contents(self.streams.len())
    }

    fn open_spans(&self) -> &[OpenSpan] {
        self.checked().unwrap_or(self).spans.as_deref().unwrap_or_default()
    }

    fn knows_open_spans(&self) -> bool {
        self.checked().unwrap_or(self).spans.is_some()
    }
}

/// The packet reader of a stream index that does not exist.
struct Nothing;

impl PacketReader for Nothing {
    fn next_packet(&mut self, _: &mut Vec<u8>) -> Option<lastwords_trace::source::PacketInfo> {
        None
    }
}

/// Finds the sessions in an image, as [`crate::find`] does.
type Find = fn(
    &Arc<dyn Image>,
    &Options<'_>,
    &Budget,
    Watch<'_>,
) -> Result<Sessions, lastwords_bytes::Error>;

/// The checksums of a session that are compared when packets are delivered.
///
/// Planning then reads only the headers of closed sub-buffers and takes their checksums to be
/// right. A reader compares each of them. Behind the first that is wrong, the plan does not count:
/// the session is found again with all checksums compared first, and reading goes on by that plan.
/// What was delivered before is the same in both plans, because a sub-buffer is planned by
/// those before it.
pub(crate) struct Late {
    find: Find,
    image: Arc<dyn Image>,
    snapshot: bool,
    whole: bool,
    /// By stream: a reader has compared all of its checksums, and all are right. The reader sets
    /// it with [`Ordering::Release`] behind its last comparison; who looks at the evidence loads
    /// it with [`Ordering::Acquire`].
    right: Vec<AtomicBool>,
    /// Parts of the image that cannot be read.
    lacking: Vec<Gap>,
    /// What changes the open spans that are shown.
    show: Option<ShowSpan>,
    /// The session with all checksums compared.
    again: OnceLock<Box<Session>>,
}

impl Late {
    /// Makes the state of a session whose streams have these plans; none if no checksum is left to
    /// be compared.
    pub(crate) fn from_plans(
        find: Find,
        image: &Arc<dyn Image>,
        options: &Options<'_>,
        plans: &[(Data, Outcome)],
    ) -> Option<Self> {
        let has_none =
            |outcome: &Outcome| !outcome.packets.iter().any(|packet| packet.is_unchecked);
        if plans.iter().all(|(_, outcome)| has_none(outcome)) {
            return None;
        }
        let right = plans.iter().map(|(_, outcome)| AtomicBool::new(has_none(outcome))).collect();
        let (image, snapshot, whole) = (Arc::clone(image), options.snapshot, options.whole);
        Some(Self {
            find,
            image,
            snapshot,
            whole,
            right,
            lacking: Vec::new(),
            show: None,
            again: OnceLock::new(),
        })
    }

    /// Adds a part of the image that cannot be read.
    fn lacks(&mut self, gap: Gap) {
        self.lacking.push(gap);
    }

    /// Returns true if all checksums were compared, and all are right.
    fn is_done(&self) -> bool {
        self.again.get().is_none() && self.right.iter().all(|stream| stream.load(Ordering::Acquire))
    }

    /// The session with all checksums compared, if it was needed before.
    fn known(&self) -> Option<&Session> {
        self.again.get().map(|session| &**session)
    }

    /// Finds the session again and compares all checksums. `session` is the one that was found
    /// first.
    fn again(&self, session: &Session) -> Option<&Session> {
        Some(self.again.get_or_init(|| {
            let mut again = Box::new(self.find(session));
            again.evidence.gaps.extend(self.lacking.iter().cloned());
            self.show.iter().for_each(|show| again.show_spans(show));
            again
        }))
    }

    fn find(&self, session: &Session) -> Session {
        let held =
            session.data.iter().fold(0u64, |sum, (data, _)| sum.saturating_add(data.region.held));
        let options = Options { snapshot: self.snapshot, whole: self.whole, ..Options::default() };
        let why = match (self.find)(&self.image, &options, &Budget::for_input(held), &unwatched) {
            Ok(found) => {
                let mut sessions = found.sessions.into_iter();
                match sessions.find(|other| other.info.uuid == session.info.uuid) {
                    Some(again) if again.streams == session.streams => return again,
                    _ => "the session is no longer as it was".to_owned(),
                }
            }
            Err(error) => error.to_string(),
        };
        let place = format!("the sub-buffers whose checksums were not compared yet: {why}");
        let gap = Gap { stream: None, place, cause: Cause::Damaged, events: None, bytes: None };
        session.without_packets(gap)
    }

    /// Returns what a reader of a stream needs.
    fn of_stream<'a>(&'a self, session: &'a Session, stream: usize) -> LateStream<'a> {
        LateStream { late: self, session, stream }
    }
}

/// The checksums of one stream.
struct LateStream<'a> {
    late: &'a Late,
    session: &'a Session,
    stream: usize,
}

impl<'a> LateChecksums<'a> for LateStream<'a> {
    fn are_right(&self) {
        self.late
            .right
            .get(self.stream)
            .into_iter()
            .for_each(|right| right.store(true, Ordering::Release));
    }

    fn checked_from(&self, from: u64) -> Option<(&'a Data, std::slice::Iter<'a, Packet>)> {
        let (stream, outcome) = self.late.again(self.session)?.data.get(self.stream)?;
        let first = outcome.packets.partition_point(|packet| packet.number < from);
        Some((stream, outcome.packets.get(first..)?.iter()))
    }
}
