//! The metadata of LTTng's streams that are given besides the inputs.

use super::{of_file, sentence};
use crate::Options;
use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_image::ImageKind;
use lastwords_lttng::{Metadata, Session, user};
use std::io::Read;

/// The largest metadata file that is read, in bytes.
const METADATA_MAX: u64 = 256 << 20;

/// The metadata from the given file, or none if no file was given.
pub(crate) struct GivenMetadata(Option<Vec<Metadata>>);

impl GivenMetadata {
    /// Reads the file of [`Options::metadata`]: the text of a metadata file, or all texts in a
    /// daemon's core.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(options: &Options<'_>) -> anyhow::Result<Self> {
        let Some(path) = &options.metadata else { return Ok(Self(None)) };
        let named = || path.display().to_string();
        let budget = Budget::default().times(options.budget);
        let opened = lastwords_image::open(path, &budget, options.watch).with_context(named)?;
        if opened.kind != ImageKind::Plain {
            return Ok(Self(Some(user::texts(&opened.image, &budget).with_context(named)?)));
        }
        let mut file = Vec::new();
        std::fs::File::open(path)
            .with_context(named)?
            .take(METADATA_MAX)
            .read_to_end(&mut file)
            .with_context(named)?;
        let metadata = Metadata::of_file(&file);
        if metadata.class().is_err() && !metadata.is_likely() {
            let looks = sentence(of_file(path));
            bail!("{}: {looks}, no metadata of CTF and no core of LTTng's daemons", path.display());
        }
        Ok(Self(Some(vec![metadata])))
    }

    /// Returns true if a file was given.
    pub(super) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Gives sessions their metadata. A session without metadata gets a note.
    pub(super) fn give(&self, sessions: &mut [Session]) {
        for session in sessions {
            if let Some(texts) = &self.0 {
                match texts
                    .iter()
                    .filter(|text| text.names(&session.uuid))
                    .max_by_key(|text| text.text.len())
                {
                    Some(text) => {
                        session.metadata = text.clone();
                        session.name_by_metadata();
                    }
                    None => session
                        .evidence
                        .notes
                        .push("the metadata given are of another trace".to_owned()),
                }
            }
            if session.metadata.text.is_empty() {
                session.evidence.notes.push(
                    "there is no description of the events: give it with --metadata (the `metadata` file of the trace, or a core \
                     of LTTng's session daemon)"
                        .to_owned(),
                );
            }
        }
    }
}
