//! Why a recording cannot be made, saved or cleaned up.

use crate::instance::KernelSays;
use lastwords_open::{BundleError, chain};
use std::path::{Path, PathBuf};

/// The reason why a recording cannot be made, saved or cleaned up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// tracefs is not mounted, or this user may not enter it.
    #[error(transparent)]
    Tracefs(#[from] BundleError),
    /// A receiver does not take the events.
    #[error(transparent)]
    Stream(#[from] lastwords_stream::Error),
    /// This machine cannot record so: the output exists, a name is taken or not known, or a text
    /// is wrong.
    #[error("{why}")]
    Plan {
        /// The reason, one sentence.
        why: String,
    },
    /// A journal cannot be read or written.
    #[error("{why}")]
    Journal {
        /// The folder of the journals.
        folder: PathBuf,
        /// The file and the reason, one sentence.
        why: String,
    },
    /// The kernel refuses a setting, or its rings cannot be read.
    #[error("{why}")]
    Instance {
        /// The name of the instance.
        instance: String,
        /// The reason, one sentence.
        why: String,
        /// What the kernel's `error_log` shows of a setting that it refuses: the text that was
        /// written, and a caret below the place of the mistake.
        caret: Option<String>,
    },
    /// The stream to a receiver broke. What the rings still had is in the output.
    #[error("{why}")]
    Broken {
        /// The name of the instance.
        instance: String,
        /// The reason, one sentence.
        why: String,
    },
    /// The trace is not saved. It is kept in the instance and beside the file.
    #[error("{why}")]
    Unsaved {
        /// The name of the instance.
        instance: String,
        /// The output, or the instance, and the reason, one sentence.
        why: String,
    },
    /// The histograms are not saved. The instance still has them.
    #[error("{why}")]
    Histograms {
        /// The name of the instance.
        instance: String,
        /// The file, and the reason, one sentence.
        why: String,
    },
    /// A snapshot is not saved. The instance still has it.
    #[error("{why}")]
    Snapshot {
        /// The name of the instance.
        instance: String,
        /// The reason, one sentence.
        why: String,
    },
    /// A recorder still runs, so that what it added is not touched.
    #[error(
        "instance {instance}: its recorder, process {pid}, still runs: end that with Ctrl-C or `kill {pid}`"
    )]
    Running {
        /// The name of the instance.
        instance: String,
        /// Process ID of the recorder.
        pid: u32,
    },
    /// Something that was added cannot be removed, or a setting not be restored.
    #[error("{why}")]
    Left {
        /// The name of the instance.
        instance: String,
        /// The file or setting, and the reason, one sentence.
        why: String,
    },
}

/// The result of recording.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn plan(why: &anyhow::Error) -> Self {
        Self::Plan { why: chain(why) }
    }

    pub(crate) fn journal(folder: &Path, why: &anyhow::Error) -> Self {
        Self::Journal { folder: folder.to_owned(), why: chain(why) }
    }

    /// The reason of a step that works with an instance and sends what that has.
    pub(crate) fn instance(instance: &str, error: anyhow::Error) -> Self {
        error.downcast().map_or_else(
            |why| {
                let said = why.chain().find_map(|cause| cause.downcast_ref::<KernelSays>());
                let caret = said.and_then(|said| said.caret.clone());
                Self::Instance { instance: instance.to_owned(), why: chain(&why), caret }
            },
            Self::Stream,
        )
    }

    pub(crate) fn histograms(instance: &str, why: &anyhow::Error) -> Self {
        Self::Histograms { instance: instance.to_owned(), why: chain(why) }
    }

    pub(crate) fn broken(instance: &str, why: &anyhow::Error) -> Self {
        Self::Broken { instance: instance.to_owned(), why: chain(why) }
    }

    pub(crate) fn unsaved(instance: &str, why: &anyhow::Error) -> Self {
        Self::Unsaved { instance: instance.to_owned(), why: chain(why) }
    }

    pub(crate) fn snapshot(instance: &str, why: &anyhow::Error) -> Self {
        Self::Snapshot { instance: instance.to_owned(), why: chain(why) }
    }

    pub(crate) fn left(instance: &str, why: &anyhow::Error) -> Self {
        Self::Left { instance: instance.to_owned(), why: chain(why) }
    }
}
