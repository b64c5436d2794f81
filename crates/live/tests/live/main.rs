//! The tests of the crate `live`.

mod last;
