//! The position of a type in the metadata, and what its name means there.

use super::Wrong;
use super::types::{Integer, Member};
use lastwords_trace::class::{Role, Scope};

/// The position of a type in the metadata.
pub(super) struct TypeLocation<'a> {
    pub(super) scope: Scope,
    /// The shown names from the scope's root.
    pub(super) names: Vec<String>,
    /// The structures around the type. Each has the number of its fields before the type and the
    /// number of names that lead to it.
    pub(super) around: Vec<(&'a [Member], usize, usize)>,
    pub(super) line: u32,
}

impl TypeLocation<'_> {
    pub(super) fn wrong(&self, what: impl Into<String>) -> Wrong {
        Wrong { line: self.line, what: what.into() }
    }
}

/// Returns the role that a name gives: CTF 1.8.3, sections 5.1 and 6.1.
pub(super) fn role(location: &TypeLocation<'_>) -> Option<Role> {
    let name = location.names.last()?.as_str();
    let is_member = location.around.len() == 1;
    match (location.scope, name) {
        (Scope::PacketHeader, "magic") if is_member => Some(Role::Magic),
        (Scope::PacketHeader, "stream_id") if is_member => Some(Role::StreamClassId),
        (Scope::PacketHeader, "stream_instance_id") if is_member => Some(Role::StreamId),
        (Scope::PacketContext, "timestamp_begin") if is_member => Some(Role::Clock),
        (Scope::PacketContext, "timestamp_end") if is_member => Some(Role::PacketEnd),
        (Scope::PacketContext, "content_size") if is_member => Some(Role::ContentLength),
        (Scope::PacketContext, "packet_size") if is_member => Some(Role::PacketLength),
        (Scope::PacketContext, "events_discarded") if is_member => Some(Role::Discarded),
        (Scope::PacketContext, "packet_seq_num") if is_member => Some(Role::Sequence),
        (Scope::EventHeader, "id") => Some(Role::EventClassId),
        _ => None,
    }
}

/// Checks that a field whose number has a role is unsigned, and that the magic has 32 bits.
pub(super) fn check(
    role: Option<Role>,
    integer: &Integer,
    location: &TypeLocation<'_>,
) -> Result<(), Wrong> {
    let name = location.names.last().map_or("", |name| name);
    match role {
        Some(_) if integer.signed => {
            Err(location.wrong(format!("{name}: expected an unsigned integer")))
        }
        Some(Role::Magic) if integer.length != 32 => Err(location.wrong("magic: expected 32 bits")),
        Some(Role::Magic) if location.around.first().is_none_or(|(_, before, _)| *before != 0) => {
            Err(location.wrong("magic: expected the first field of the packet header"))
        }
        _ => Ok(()),
    }
}
