//! The tests of the crate `image`.

mod cores;
mod dumps;
mod vmcores;
