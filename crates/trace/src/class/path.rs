//! Paths to the fields that lengths and selectors refer to.

use std::fmt;

/// The structure in which a path begins. The scopes are in the order of a packet.
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
    /// All scopes, in order.
    pub const ALL: [Self; 6] = [
        Self::PacketHeader,
        Self::PacketContext,
        Self::EventHeader,
        Self::CommonContext,
        Self::SpecificContext,
        Self::Payload,
    ];

    /// Returns the name in a field location of CTF 2.
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

    /// Returns the name in TSDL.
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

/// The path to a field that another field's length or selection refers to: the names of structure
/// members, from the root of a scope downwards. Arrays, variants and optionals in between have no
/// name here. The path refers to the field in the element or option that is being decoded, or that
/// was decoded last.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    /// Scope in which the path begins.
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
