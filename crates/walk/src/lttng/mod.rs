//! The common part of walking LTTng's buffers of the kernel tracer and of the user-space tracer.
//!
//! A sub-buffer is a CTF packet. Delivered packets are taken byte for byte; an open packet gets a completed header.
//! Positions and commit counters determine which sub-buffers to keep and how far each was written ([`Ring`]). The
//! header of each packet is checked against them ([`Header`]).

mod carve;
mod committed;
mod complete;
mod decode;
mod header;
pub(crate) mod metadata;
mod plan;
mod prove;
mod session;
mod texts;
mod trace;
mod zeros;

pub use carve::carve;
pub use complete::complete;
pub use header::{Header, Shape};
pub use metadata::Metadata;
pub use plan::{Counters, Mode, Ring, Slot};
pub use prove::Proof;
pub(crate) use session::{CARVED, NAMELESS};
pub use session::{Domain, Doubt, Loss, Packet, Session, SetData, Stream};
pub use texts::texts;
