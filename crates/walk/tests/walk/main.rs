//! The tests of the crate `walk`.

mod carved;
mod invented;
mod lost_regions;
mod lttng_carved;
mod lttng_losses;
mod lttng_ust;
mod open_spans;
mod persistent;
mod registry;
mod times;
