//! What an opened path is.

use crate::Image;
use crate::core::CoreInfo;
use std::sync::Arc;

/// Kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageKind {
    /// A folder of region files.
    Folder,
    /// A process core.
    Core,
    /// A process core, compressed with zstd.
    CompressedCore,
    /// The memory of a running process.
    Process,
    /// A file that is no container: one or several regions.
    Plain,
}

impl ImageKind {
    /// Name of the kind in messages.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Folder => "session folder",
            Self::Core => "process core",
            Self::CompressedCore => "process core (zstd)",
            Self::Process => "process",
            Self::Plain => "file",
        }
    }
}

/// An image, and facts about its container.
#[derive(Clone)]
pub struct Opened {
    /// The image.
    pub image: Arc<dyn Image>,
    /// Kind of the path.
    pub kind: ImageKind,
    /// For a core: facts about the process.
    pub core: Option<CoreInfo>,
    /// True if the container is truncated, or its own structures are damaged.
    pub is_damaged: bool,
    /// Notes about missing or damaged parts of the container itself.
    pub notes: Vec<String>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { image, kind, core, is_damaged, notes } = self;
        f.debug_struct("Opened")
            .field("image", &image.name())
            .field("kind", kind)
            .field("core", core)
            .field("is_damaged", is_damaged)
            .field("notes", notes)
            .finish()
    }
}
