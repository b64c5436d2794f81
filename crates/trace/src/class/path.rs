//! Where a length or selector stands.

use std::fmt;

/// The structure that a path begins in, in the order in which a packet has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Packet header: of the trace.
    PacketHeader,
    /// Packet context: of the stream class.
    PacketContext,
    /// Event record header: of the stream class.
    EventHeader,
    /// Common event record context: of the stream class.
    CommonContext,
    /// Specific event record context: of the event record class.
    SpecificContext,
    /// Event record payload: of the event record class.
    Payload,
}

impl Scope {
    /// All, in order.
    pub const ALL: [Self; 6] = [
        Self::PacketHeader,
        Self::PacketContext,
        Self::EventHeader,
        Self::CommonContext,
        Self::SpecificContext,
        Self::Payload,
    ];

    /// As CTF 2 calls it in a field location.
    #[must_use]
    pub fn ctf2_name(self) -> &'static str {
        match self {
            Self::PacketHeader => "packet-header",
            Self::PacketContext => "packet-context",
            Self::EventHeader => "event-record-header",
            Self::CommonContext => "event-record-common-context",
            Self::SpecificContext => "event-record-specific-context",
            Self::Payload => "event-record-payload",
        }
    }

    /// As TSDL calls it.
    #[must_use]
    pub fn tsdl_name(self) -> &'static str {
        match self {
            Self::PacketHeader => "trace.packet.header",
            Self::PacketContext => "stream.packet.context",
            Self::EventHeader => "stream.event.header",
            Self::CommonContext => "stream.event.context",
            Self::SpecificContext => "event.context",
            Self::Payload => "event.fields",
        }
    }
}

/// The place of a field that another field's length or selection comes from: the names of structure members from the root
/// of a scope down. What stands between them (arrays, variants, optionals) has no name here: the field meant is in the
/// element or option that is being decoded, or the last that was.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// Where it begins.
    pub scope: Scope,
    /// Member names.
    pub names: Vec<String>,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scope.tsdl_name())?;
        self.names.iter().try_for_each(|name| write!(f, ".{name}"))
    }
}
