//! The tests of the crate `sessionfs`.

mod restriction;
mod tree;
