//! The tests of the crate `lttng`.

mod carved;
mod losses;
mod user;
