//! Checksums that are compared when packets are delivered.
//!
//! Planning then reads only the headers of closed sub-buffers and takes their checksums to be
//! right. A reader compares each of them. Behind the first that is wrong, the plan does not count:
//! the session is found again with all checksums compared first, and reading goes on by that plan.
//! What was delivered before is the same in both plans, because a sub-buffer is planned by
//! those before it.

use super::data::Stream;
use super::plan::{Outcome, Packet};
use super::{Options, Session};
use lastwords_bytes::Budget;
use lastwords_image::{Image, unwatched};
use lastwords_trace::evidence::{Cause, Gap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The state of the checksums of one session.
pub(super) struct Late {
    image: Arc<dyn Image>,
    snapshot: bool,
    whole: bool,
    /// By stream: a reader has compared all of its checksums, and all are right. The reader sets
    /// it with [`Ordering::Release`] behind its last comparison; who looks at the evidence loads
    /// it with [`Ordering::Acquire`].
    right: Vec<AtomicBool>,
    /// Parts of the image that cannot be read.
    lacking: Vec<Gap>,
    /// The session with all checksums compared.
    again: OnceLock<Box<Session>>,
}

impl Late {
    /// Makes the state of a session whose streams have these plans; none if no checksum is left to
    /// be compared.
    pub(super) fn of_plans(
        image: &Arc<dyn Image>,
        options: &Options<'_>,
        plans: &[(Stream, Outcome)],
    ) -> Option<Self> {
        let has_none =
            |outcome: &Outcome| !outcome.packets.iter().any(|packet| packet.is_unchecked);
        if plans.iter().all(|(_, outcome)| has_none(outcome)) {
            return None;
        }
        let right = plans.iter().map(|(_, outcome)| AtomicBool::new(has_none(outcome))).collect();
        let (image, snapshot, whole) = (Arc::clone(image), options.snapshot, options.whole);
        Some(Self { image, snapshot, whole, right, lacking: Vec::new(), again: OnceLock::new() })
    }

    /// Adds a part of the image that cannot be read.
    pub(super) fn lacks(&mut self, gap: Gap) {
        self.lacking.push(gap);
    }

    /// Returns true if all checksums were compared, and all are right.
    pub(super) fn is_done(&self) -> bool {
        self.again.get().is_none() && self.right.iter().all(|stream| stream.load(Ordering::Acquire))
    }

    /// The session with all checksums compared, if it was needed before.
    pub(super) fn known(&self) -> Option<&Session> {
        self.again.get().map(|session| &**session)
    }

    /// Finds the session again and compares all checksums. `session` is the one that was found
    /// first.
    pub(super) fn again(&self, session: &Session) -> Option<&Session> {
        Some(self.again.get_or_init(|| {
            let mut again = Box::new(self.find(session));
            again.evidence.gaps.extend(self.lacking.iter().cloned());
            again
        }))
    }

    fn find(&self, session: &Session) -> Session {
        let held =
            session.data.iter().fold(0u64, |sum, (data, _)| sum.saturating_add(data.region.held));
        let options = Options { snapshot: self.snapshot, whole: self.whole, ..Options::default() };
        let why = match super::find(&self.image, &options, &Budget::for_input(held), &unwatched) {
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
    pub(super) fn of<'a>(&'a self, session: &'a Session, stream: usize) -> OfStream<'a> {
        OfStream { late: self, session, stream }
    }
}

/// The data with which a reader of a stream compares its checksums.
pub(super) struct OfStream<'a> {
    late: &'a Late,
    session: &'a Session,
    stream: usize,
}

impl<'a> OfStream<'a> {
    /// Says that all packets of the stream were delivered, and that all of their checksums are
    /// right.
    pub(super) fn is_read(&self) {
        self.late
            .right
            .get(self.stream)
            .into_iter()
            .for_each(|right| right.store(true, Ordering::Release));
    }

    /// Returns the stream with all checksums compared, and its packets from number `from` on.
    pub(super) fn from(&self, from: u64) -> Option<(&'a Stream, std::slice::Iter<'a, Packet>)> {
        let (stream, outcome) = self.late.again(self.session)?.data.get(self.stream)?;
        let first = outcome.packets.partition_point(|packet| packet.number < from);
        Some((stream, outcome.packets.get(first..)?.iter()))
    }
}
