//! The process that records: its identity, memory that it never frees, libraries that it keeps
//! loaded, its handlers of signals, its clock. This layer uses none of the others.

pub mod clock;
#[cfg(feature = "tracing")]
pub(crate) mod constant;
pub(crate) mod identity;
pub(crate) mod keep_loaded;
pub(crate) mod kept_memory;
pub(crate) mod signals;
