//! Our own sessions in CTF's terms: the class of their packets, the trace that is read of them, and the events of one packet.
//!
//! A session's recorder describes its events in the narrow terms of [`lastwords_trace::schema`]. Here they become a
//! [`lastwords_trace::class::TraceClass`], once, so that one compiled program decodes sessions as well as traces of others.

pub(crate) mod class;
mod decode;
mod trace;

pub use class::{packet_context, packet_header, role, structure, unsigned};
pub use decode::{
    ChannelDecoder, DecodeError, Decoder, Events, Expected, NO_SIZE, Position, RawEvent, TAG_BITS, TAG_FULL, TAG_ID,
    TAG_SIZE,
};
pub use trace::session as trace;
