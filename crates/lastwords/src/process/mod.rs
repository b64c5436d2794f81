//! The process that records: memory it keeps for ever, libraries it keeps loaded, its clock. Uses nothing of the layers above.

pub mod clock;
pub(crate) mod keep_loaded;
pub(crate) mod kept_memory;
