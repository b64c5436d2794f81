//! Our own sessions in CTF's terms: the class of their packets, a trace that reads them, and the
//! events of one packet.
//!
//! A session's recorder describes its events with [`lastwords_trace::schema`], which has few kinds
//! of fields. This module converts that description once to a
//! [`lastwords_trace::class::TraceClass`], so that one compiled program decodes sessions as well as
//! other traces.

pub(crate) mod class;
mod decode;
mod trace;

pub use class::{packet_context, packet_header, role, structure, unsigned};
pub use decode::{
    ChannelDecoder, DecodeError, Decoder, Expected, NO_SIZE, Position, RawEvent, Steps, TAG_BITS,
    TAG_FULL, TAG_ID, TAG_SIZE,
};
pub use trace::session as trace;
