//! From a callsite to the ring: which channels want an event, how its values become bytes, and who copies them.

pub(crate) mod callsite;
pub mod context;
pub(crate) mod dispatch;
pub(crate) mod encode;
pub(crate) mod from_c;
pub(crate) mod signature;
pub(crate) mod slot;
#[cfg(feature = "tracing")]
pub(crate) mod spans;
