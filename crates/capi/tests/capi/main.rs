//! The tests of the crate `capi`.

mod c;
mod header;
mod texts_of_c;
