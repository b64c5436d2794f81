//! A session of lastwords that was found, and what its folder says of it.

use crate::crash::{self, Crash};
use lastwords_folders::{ENDED_EARLY, Ended};
use lastwords_render::redact::Redaction;
use lastwords_session::{Session, ShowSpan};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// What is known of the session in a folder, besides its events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderState {
    /// The session that this is known of.
    pub uuid: [u8; 16],
    /// A process records in the session, or that is unknown. Its rings are then copied before they
    /// are read.
    pub is_live: bool,
    /// The way and time of its end; none while a process records in it, or may.
    pub ended: Option<Ended>,
    /// Why it is not known whether or how the session has ended; none if that is known.
    pub unknown_end: Option<String>,
}

/// A session that was found, and how it ended.
pub struct RecoveredSession {
    /// The session.
    pub session: Arc<Session>,
    /// The way and time of its end, if the session is in its own folder and no process records in
    /// it any more.
    pub ended: Option<Ended>,
    /// Why it is not known whether or how the session has ended; none if that is known, or if the
    /// session is in no folder.
    pub unknown_end: Option<String>,
    /// A process of the session lives and may record, or that is unknown and
    /// [`Self::unknown_end`] says why.
    pub is_live: bool,
    /// The input is the memory in which the recorder wrote, and no copy of it. So a guard that is
    /// held says that its process lived until its machine ended.
    pub is_original: bool,
    /// Why the stream from which the session was received ended early; none if it did not.
    pub cut: Option<String>,
    /// The fields whose values are hidden.
    pub(crate) redaction: Arc<Redaction>,
    /// Its crashes, once they were looked for.
    pub(crate) crashes: OnceLock<Vec<Crash>>,
}

/// Most bytes of the reason.
const MOST_REASON: u64 = 4096;

/// Returns the reason why the stream of a received session ended early.
pub(crate) fn cut(folder: &Path) -> Option<String> {
    let file = File::open(folder.join(ENDED_EARLY)).ok()?;
    let mut why = Vec::new();
    file.take(MOST_REASON).read_to_end(&mut why).ok()?;
    Some(crate::escape::escape(&String::from_utf8_lossy(&why)))
}

impl RecoveredSession {
    pub(crate) fn new(
        mut session: Session,
        (ended, cut): (Option<Ended>, Option<String>),
        redaction: &Arc<Redaction>,
    ) -> Self {
        if !redaction.is_empty() {
            let of_spans = Arc::clone(redaction);
            let show: ShowSpan = Arc::new(move |span| of_spans.span(span));
            session.show_spans(&show);
        }
        Self {
            session: Arc::new(session),
            ended,
            unknown_end: None,
            is_live: false,
            is_original: false,
            cut,
            redaction: Arc::clone(redaction),
            crashes: OnceLock::new(),
        }
    }

    /// Returns the panics and signals that hooks and handlers of its program recorded, in order of
    /// time. The first call reads the events.
    #[must_use]
    pub fn crashes(&self) -> &[Crash] {
        self.crashes.get_or_init(|| crash::find(&self.session, &self.redaction))
    }
}
