//! Any CTF trace, 1.8 or 2: the whole model of its metadata, and a decoder of its packets.
//!
//! [`crate::schema`] is the narrow model of our own sessions, whose fields are packed and whose event headers have one
//! form. Here is the general one: what CTF 1.8.3 (TSDL) and CTF2-SPEC-2.0 can say. Names are those that are shown: the
//! leading underscore by which TSDL escapes a name is gone.

mod class;
mod compile;
mod decode;
mod fault;
mod flat;
mod header;
mod model;
mod op;
mod path;
mod program;
mod stride;

pub use class::{
    Array, Bits, Blob, Encoding, Field, FieldClass, Float, Integer, Length, Mapping, Optional, Range, Role, Struct,
    Text, Variant, VariantOption,
};
pub use decode::{Nobody, Visitor};
pub use fault::{Expected, Fault, SchemaError};
pub use flat::Flat;
pub use model::{Attributes, Clock, EventClass, Identity, LogLevel, Origin, StreamClass, TraceClass};
pub use op::{Code, Node, NodeId, Shape};
pub use path::{Path, Scope};
pub use program::{Decoder, Event, MAGIC, Packet, Part, Passed, Program};

/// Largest alignment that is accepted, bits: a window over a packet begins at a multiple of it.
pub const MAX_ALIGNMENT: u64 = 1 << 15;
/// Deepest nesting of field classes that is accepted.
pub const MAX_DEPTH: usize = 64;
