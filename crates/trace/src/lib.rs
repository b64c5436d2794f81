//! The event model that all readers produce and all writers take.
//!
//! A trace has a class ([`class::TraceClass`]: clocks, streams, event record classes and their fields, in CTF's general model), streams,
//! and an account of what was found and lost ([`evidence`]). Events are not turned into objects: a reader shows the values of an
//! event's fields to a [`visit::Visitor`], in order. [`schema`] is the narrower description that our own recorder keeps of its
//! events, and [`ftrace`] is what the kernel's own tracer has.
#![forbid(unsafe_code)]

pub mod class;
pub mod clock;
pub mod decode;
pub mod evidence;
pub mod ftrace;
pub mod integer;
pub mod nul;
pub mod parallel;
pub mod schema;
pub mod source;
pub mod visit;
