//! LTTng's buffers, as the kernel's tracer and the one of user space have them in memory: what both share.
//!
//! A sub-buffer is a CTF packet. What the tracer delivered is taken byte for byte; the one that was being written gets its
//! header completed. Which sub-buffers count, and how far they were written, follows from the positions and the commit
//! counters ([`Ring`]); the packets say of themselves whether they are what the counters make of them ([`Header`]).

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

pub use carve::carve;
pub use complete::complete;
pub use header::{Header, Shape};
pub use metadata::Metadata;
pub use plan::{Counters, Mode, Ring, Slot};
pub use prove::Proof;
pub(crate) use session::{CARVED, NAMELESS};
pub use session::{Domain, Doubt, Loss, Packet, Session, SetData, Stream};
pub use texts::texts;
