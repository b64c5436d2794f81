//! A session as it was recovered.

use crate::data::Stream as Data;
use crate::info::Info;
use crate::late::Late;
use crate::loose::{self, Loose};
use crate::plan::Outcome;
use crate::{ReadLimit, gap, reader};
use lastwords_bytes::Budget;
use lastwords_image::Image;
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use lastwords_trace::schema::Schema;
use lastwords_trace::source::{OpenSpan, PacketReader, Source, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

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
    pub(crate) spans: Vec<OpenSpan>,
    /// The state of checksums that are compared late; none if all were compared.
    pub(crate) late: Option<Late>,
}

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
            late: self.late.as_ref().map(|late| late.of(self, stream)),
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
        self.checked().map_or(&self.spans, |checked| &checked.spans)
    }
}

/// The packet reader of a stream index that does not exist.
struct Nothing;

impl PacketReader for Nothing {
    fn next_packet(&mut self, _: &mut Vec<u8>) -> Option<lastwords_trace::source::PacketInfo> {
        None
    }
}
