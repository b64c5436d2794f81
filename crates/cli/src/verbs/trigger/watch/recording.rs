//! The snapshots of a recording of the kernel (`lastwords record --trigger snapshot`), which the
//! recorder saves beside its file. The journal of the recorder leads to them.

use super::Watched;
use crate::say;
use crate::table::plain;
use anyhow::{bail, ensure};
use lastwords_open::{Fired, duration};
use lastwords_tracefs::journal::{self, Journal, RecordingState};
use std::path::{Path, PathBuf};

/// A recording, and the folder of its journal.
pub(super) struct Recording {
    journal: Journal,
    journals: PathBuf,
}

/// Returns the recording of a word: the name of its instance, if no session has this name, or its
/// file. Without a word it is the only recording with snapshots, if no session lives.
///
/// # Errors
/// The recording takes no snapshots, or its recorder was killed; there are several.
pub(super) fn find(word: Option<&str>) -> anyhow::Result<Option<Recording>> {
    let mut all = all();
    if let Some(word) = word {
        let file = std::path::absolute(word).unwrap_or_else(|_| PathBuf::from(word));
        let is_free = !word.contains('/') && lastwords_live::folders_of(word).is_empty();
        let is_it =
            |journal: &Journal| (is_free && journal.instance == word) || journal.output == file;
        all.retain(|recording| is_it(&recording.journal));
    } else {
        let lives = lastwords_control::list(None)?.iter().any(lastwords_live::is_live_summary);
        all.retain(|recording| {
            !lives
                && recording.state() == RecordingState::Runs
                && recording.journal.takes_snapshots()
        });
    }
    if all.len() > 1 {
        let names: Vec<_> = all.iter().map(|recording| plain(&recording.name())).collect();
        bail!("{} recordings of the kernel run; name one: {}", names.len(), names.join(", "));
    }
    let Some(recording) = all.pop() else { return Ok(None) };
    let name = recording.name();
    ensure!(
        recording.journal.takes_snapshots(),
        "{}: no --trigger of the recording takes snapshots: `lastwords record -e EVENT -R snapshot`",
        plain(&name)
    );
    ensure!(
        recording.state() != RecordingState::Killed,
        "{}: its recorder was killed; `lastwords restore` saves what it left",
        plain(&name)
    );
    Ok(Some(recording))
}

/// Returns all recordings whose journals this user can read.
fn all() -> Vec<Recording> {
    let mut folders: Vec<PathBuf> = lastwords_control::dirs::candidates();
    folders.dedup();
    let of = |folder: PathBuf| {
        let found = journal::list(&folder).unwrap_or_else(|error| {
            say::warning(error);
            Vec::new()
        });
        found.into_iter().map(move |journal| Recording { journal, journals: folder.clone() })
    };
    folders.into_iter().flat_map(of).collect()
}

impl Recording {
    fn state(&self) -> RecordingState {
        self.journal.state(&self.journals)
    }
}

impl Watched for Recording {
    fn name(&self) -> String {
        self.journal.instance.clone()
    }

    fn is_over(&self) -> bool {
        let state = self.state();
        if state == RecordingState::Killed {
            say::warning(format_args!(
                "{}: its recorder was killed; `lastwords restore` saves what it left",
                plain(&self.name())
            ));
        }
        state != RecordingState::Runs
    }

    fn saved(&mut self, _: bool) -> Option<Vec<PathBuf>> {
        Some(self.journal.saved_snapshots())
    }

    fn tell(&self, folder: &Path) {
        let limited = Fired::of_snapshot(folder).ok().flatten().map_or(0, |fired| fired.limited);
        if limited > 0 {
            say::warning(format_args!(
                "{}: no trigger was set for {} before it, because of the limit",
                plain(&folder.to_string_lossy()),
                duration(std::time::Duration::from_nanos(limited).as_secs_f64())
            ));
        }
    }
}
