//! Callsites that are made while the program runs. They have what the macros of `tracing` give
//! theirs, and any number of fields.

use std::sync::OnceLock;

use tracing_core::callsite::Identifier;
use tracing_core::field::{Field, FieldSet, Value, ValueSet};
use tracing_core::subscriber::Interest;
use tracing_core::{Callsite, Kind, Level, Metadata};

struct Site(OnceLock<&'static Metadata<'static>>);

impl Callsite for Site {
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        self.0.get().expect("a callsite is registered when it is complete")
    }
}

/// The parts of a callsite.
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) target: String,
    pub(crate) level: Level,
    pub(crate) line: u32,
    pub(crate) fields: Vec<String>,
    pub(crate) is_span: bool,
}

/// The file of all these callsites.
pub(crate) const FILE: &str = "src/made/up.rs";

/// Makes a callsite, which lives as long as the program, and registers it.
pub(crate) fn make(parts: &Parts) -> &'static Metadata<'static> {
    let leak = |text: &str| -> &'static str { String::leak(text.to_owned()) };
    let names: Vec<&'static str> = parts.fields.iter().map(|name| leak(name)).collect();
    let site: &'static Site = Box::leak(Box::new(Site(OnceLock::new())));
    let fields = FieldSet::new(Vec::leak(names), Identifier(site));
    let kind = if parts.is_span { Kind::SPAN } else { Kind::EVENT };
    let target = leak(&parts.target);
    let name = leak(&parts.name);
    let metadata = Metadata::new(
        name,
        target,
        parts.level,
        Some(FILE),
        Some(parts.line),
        Some(target),
        fields,
        kind,
    );
    let metadata = Box::leak(Box::new(metadata));
    let _ = site.0.set(metadata);
    tracing_core::callsite::register(site);
    metadata
}

/// A field of a callsite and its value.
type Pair<'a> = (&'a Field, Option<&'a dyn Value>);

/// Calls `with` with these fields and values, in this order.
pub(crate) fn with_pairs<R>(
    set: &FieldSet,
    pairs: &[Pair<'_>],
    with: impl FnOnce(&ValueSet<'_>) -> R,
) -> R {
    macro_rules! sized {
        ($($count:literal)*) => {
            match pairs.len() {
                $($count => {
                    let pairs: [Pair<'_>; $count] = std::array::from_fn(|at| pairs[at]);
                    with(&set.value_set(&pairs))
                })*
                count => unreachable!("a set of {count} values in an order of its own"),
            }
        };
    }
    sized!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
}
