//! What an application links to keep its last words: sessions and channels, events and markers, contexts, clock,
//! snapshots, the `tracing` layer and the crash handlers.

pub mod crash;
mod handle;
#[cfg(feature = "tracing")]
pub mod layer;
mod macros;
mod process;
mod record;
pub mod session;
mod start;

pub use lastwords_ring::ClockKind;
pub use process::clock;
pub use record::context;
pub use record::encode::{Element, Field, Hex, Integer, Labeled, Out, hex};
pub use session::registry::{EventDesc, FieldDesc, FieldType};
pub use session::{
    Builder, ChannelConfig, Context, Ended, Ending, Error, Level, Memory, Reservation, Retention, Scope, Session,
};
pub use session::{consume, dirs, processes, remote_control, rules, snapshot};

/// What the macros expand to; not for other use.
#[doc(hidden)]
pub mod __private {
    pub use crate::process::keep_loaded::library_of;
    pub use crate::process::kept_memory::{keep, keep_all};
    pub use crate::record::callsite::{Callsite, is_enabled, record};
    pub use crate::record::encode::{Debugged, Displayed, Formatted, Out, Site};
    pub use crate::record::format::{fits, plain_name};
    pub use crate::record::from_c::{Part, record_parts, record_text, record_words};
    pub use lastwords_abi::registry::level;
}
