//! The fields that are readings of a clock, and the clocks that they map to.

use super::types::{self, Type, shown};
use lastwords_trace::class::Scope;

/// Returns true for fields that map to the only clock if the metadata map them to none.
pub(super) fn is_timestamp(scope: Scope, name: &str) -> bool {
    match scope {
        Scope::PacketContext => matches!(name, "timestamp_begin" | "timestamp_end"),
        Scope::EventHeader => name == "timestamp",
        _ => false,
    }
}

/// Collects the clocks that a type's fields map to, by name. A timestamp without a name maps to the
/// only clock.
pub(super) fn mapped(
    class: &types::Type,
    scope: Scope,
    name: &str,
    clocks: &mut Vec<Option<String>>,
) {
    match class {
        Type::Integer(integer) | Type::Enum { integer, .. } => {
            let is_end = scope == Scope::PacketContext && name == "timestamp_end";
            if (integer.clock.is_some() || is_timestamp(scope, name))
                && !is_end
                && !clocks.contains(&integer.clock)
            {
                clocks.push(integer.clock.clone());
            }
        }
        Type::Struct { fields, .. } => {
            fields.iter().for_each(|m| mapped(&m.class, scope, shown(&m.name), clocks))
        }
        Type::Variant { options, .. } => {
            options.iter().for_each(|m| mapped(&m.class, scope, shown(&m.name), clocks))
        }
        Type::Array { element, .. } => mapped(element, scope, "", clocks),
        Type::Float { .. } | Type::Text(_) => {}
    }
}
