//! The tests of the crate `ftrace`.

mod persistent;
