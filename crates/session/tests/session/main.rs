//! The tests of the crate `session`.

mod carved;
mod counters;
mod invented;
mod lost_regions;
mod open_spans;
mod processes;
mod registry;
mod support;
mod times;
