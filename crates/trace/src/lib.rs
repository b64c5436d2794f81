//! The event model that all readers produce and all writers take: trace, stream, packet, event, field class, clock, and
//! the evidence (verdicts and gaps).
//!
//! An event's bytes are not turned into objects. A reader delivers packets whose content is what stood in memory; the
//! schema ([`schema::Schema`]) says how to read it; [`decode`] compiles the schema once into a flat decoder that splits a
//! packet into events; a writer walks the fields of an event over its bytes.
#![forbid(unsafe_code)]

pub mod class;
pub mod clock;
pub mod decode;
pub mod evidence;
pub mod ftrace;
pub mod merge;
pub mod nul;
pub mod parallel;
pub mod schema;
pub mod source;
pub mod value;
pub mod visit;
