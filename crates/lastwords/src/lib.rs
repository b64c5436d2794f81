//! What an application links to keep its last words: sessions and channels, events and markers, contexts, clock,
//! snapshots, the `tracing` layer and the crash handlers.

pub mod admin;
mod arena;
mod callsite;
pub mod clock;
pub mod consume;
pub mod context;
pub mod crash;
pub mod dirs;
mod encode;
mod foreign;
mod format;
#[cfg(feature = "tracing")]
pub mod layer;
mod listener;
mod macros;
mod payload;
mod pin;
pub mod process;
pub mod registry;
pub mod rules;
pub mod session;
mod signature;
pub mod snapshot;
#[cfg(feature = "tracing")]
mod spans;
mod target;

pub use encode::{Element, Field, Hex, Integer, Labeled, Out, hex};
/// Levels of events, for [`ChannelConfig::max_level`].
pub use lastwords_abi::registry::level;
/// Bits of [`ChannelConfig::contexts`].
pub use lastwords_abi::session::context as context_bits;
pub use lastwords_ring::ClockKind;
pub use registry::{EventDesc, FieldDesc, FieldType};
pub use session::{Builder, ChannelConfig, Error, Memory, Reservation, Scope, Session};

/// What the macros expand to; not for other use.
#[doc(hidden)]
pub mod __private {
    pub use crate::arena::{keep, keep_all};
    pub use crate::callsite::{Callsite, record};
    pub use crate::encode::{Out, Site};
    pub use crate::foreign::{Part, record_framed, record_framed_text, record_parts, record_words};
    pub use crate::format::{fits, plain_name};
    pub use crate::pin::library_of;
    pub use lastwords_abi::registry::level;
}
