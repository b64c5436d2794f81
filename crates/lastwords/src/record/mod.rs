//! The path from a callsite to the ring: selects the channels that want an event, turns its values
//! into bytes, and copies them.

pub(crate) mod attach;
pub(crate) mod callsite;
pub mod context;
pub(crate) mod dispatch;
pub(crate) mod encode;
pub(crate) mod filter;
pub(crate) mod from_c;
pub(crate) mod hiding;
pub(crate) mod in_span;
pub(crate) mod metrics;
pub(crate) mod signature;
pub(crate) mod slot;
#[cfg(feature = "tracing")]
pub(crate) mod spans;
pub(crate) mod takes;
