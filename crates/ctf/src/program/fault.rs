//! Errors in metadata and in packets.

use lastwords_trace::class::Path;
use std::fmt;

/// Reasons why metadata cannot be compiled to a decoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A path begins in a structure that does not exist.
    #[error("{path}: there is no {name}", path = .0, name = .0.scope.tsdl_name())]
    NoScope(Path),
    /// A path does not lead to an integer or boolean.
    #[error("{0}: there is no integer of this name before its use")]
    NoTarget(Path),
    /// An alignment, in bits, is not a power of two or too large.
    #[error("alignment of {0} bits: expected a power of two up to {max}", max = super::MAX_ALIGNMENT)]
    Alignment(u64),
    /// A fixed-length field has a number of bits that is not supported.
    #[error("field of {0} bits: expected 1 to 64, and of a float 16, 32, 64 or 128")]
    Length(u8),
    /// An array has more elements than can be counted in bits.
    #[error("array of {0} elements: too long")]
    TooLong(u64),
    /// Too many of something.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// A selector that is not signed has an option for negative values.
    #[error("{0} is never negative: an option for negative values cannot be selected")]
    Negative(Path),
    /// There are far more fields than the trace has bytes. Fields of contexts count for each event
    /// record class.
    #[error("far more fields than the trace has bytes")]
    Budget,
    /// Fields are nested too deep.
    #[error("fields are nested deeper than {}", lastwords_trace::class::MAX_DEPTH)]
    TooDeep,
    /// There are several stream classes (if the id is none), or several event record classes of the
    /// stream class with this id, and no field selects one.
    #[error("{}", no_id(.0))]
    NoId(Option<u64>),
}

fn no_id(stream_class: &Option<u64>) -> String {
    match stream_class {
        None => "several stream classes, and no field of the packet header identifies them".into(),
        Some(id) => format!(
            "stream class {id}: several event classes, and no field of the event header identifies them"
        ),
    }
}

/// The value or condition that the decoder expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// This many more bits of content. The value is the number of bits left.
    Bits(u64),
    /// A NUL before the end of the content. The value is the number of bits left.
    Nul,
    /// A value for which the variant has an option. The value is the selector's.
    Option,
    /// A length that fits the packet. The value is the length.
    Length,
    /// A field that begins on a byte, because its byte order differs from that of the field before.
    /// The value is the bit.
    SameOrder,
    /// A variable-length integer of at most 64 bits. The value is its last byte.
    Variable,
    /// The id of an event record class. The value is the id.
    EventClass,
    /// The id of a stream class. The value is the id.
    StreamClass,
    /// The id of the stream class that the stream's other packets have. The value is the id in the
    /// packet.
    SameStreamClass(u64),
    /// The magic number 0xC1FC1FC1.
    Magic,
    /// A packet length in whole bytes. The value is the length in bits.
    WholeBytes,
    /// A content length up to the packet length. The value is the content length in bits.
    Content,
    /// A packet length that fits what is left of the file. The value is the packet length in bits.
    FitsFile,
    /// A packet that is at least as long as its header and context. The value is its length in
    /// bits.
    OwnHeader,
    /// An event of at least one bit.
    Progress,
    /// Less text for an event of this many bits. The value is the number of bytes of names, labels
    /// and fields of no size.
    Proportion(u64),
    /// A clock reading that fits 64 bits of nanoseconds: from 1677 to 2262 if the clock counts from
    /// 1970. The value is the reading.
    Time,
}

/// A packet does not follow its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Position of the error in the packet, in bits.
    pub at: u64,
    /// The value found there.
    pub value: u64,
    /// The value or condition that the decoder expected.
    pub expected: Expected,
}

impl Fault {
    /// Returns true if more bytes of the packet could remove the error.
    #[must_use]
    pub fn is_short(&self) -> bool {
        matches!(self.expected, Expected::Bits(_) | Expected::Nul | Expected::Length)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, value, expected } = self;
        write!(f, "byte {:#x}", at / 8)?;
        if at % 8 != 0 {
            write!(f, ", bit {}", at % 8)?;
        }
        f.write_str(" of the packet: ")?;
        match expected {
            Expected::Bits(bits) => write!(f, "{value} bits are left, expected {bits}"),
            Expected::Nul => write!(f, "{value} bits are left, expected text that ends with a NUL"),
            Expected::Option => {
                write!(f, "selector {value}, expected one that an option of the variant has")
            }
            Expected::Length => write!(f, "length {value}, expected one that fits the packet"),
            Expected::SameOrder => {
                write!(f, "bit {value}, expected a byte's first: the byte order changes")
            }
            Expected::Variable => {
                write!(f, "found {value:#x}, expected the end of an integer of 64 bits")
            }
            Expected::EventClass => {
                write!(f, "event id {value}, expected one that the stream class has")
            }
            Expected::StreamClass => {
                write!(f, "stream class id {value}, expected one that the trace has")
            }
            Expected::SameStreamClass(id) => {
                write!(f, "stream class id {value}, expected {id} as in the stream's other packets")
            }
            Expected::Magic => write!(f, "magic {value:#x}, expected 0xc1fc1fc1"),
            Expected::WholeBytes => write!(f, "packet length {value} bits, expected whole bytes"),
            Expected::Content => {
                write!(f, "content length {value} bits, expected at most the packet's length")
            }
            Expected::FitsFile => {
                write!(f, "packet length {value} bits, expected what is left of the file at most")
            }
            Expected::OwnHeader => {
                write!(f, "length {value} bits, expected at least the packet's header and context")
            }
            Expected::Progress => write!(f, "empty event record, expected at least one bit"),
            Expected::Proportion(bits) => {
                write!(
                    f,
                    "an event of {bits} bits with {value} bytes of names and labels: too many such events"
                )
            }
            Expected::Time => write!(f, "clock {value}, expected a time in 64 bits of nanoseconds"),
        }
    }
}

impl std::error::Error for Fault {}
