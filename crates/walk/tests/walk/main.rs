//! The tests of the crate `walk`.

mod carved;
mod invented;
mod lost_regions;
mod open_spans;
mod registry;
mod times;
