//! Defines what a source tells of the events that it describes.

use crate::Name;
use std::collections::BTreeSet;

/// A source that describes its events.
pub trait Described {
    /// Returns true if an event has a value of this name.
    fn has(&self, name: &Name) -> bool;

    /// Adds the names of all fields, and of all contexts with `$ctx.` before them.
    fn add_names(&self, names: &mut BTreeSet<String>);

    /// Adds the names of all events.
    fn add_events(&self, names: &mut BTreeSet<String>);
}
