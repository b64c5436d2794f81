//! The tests of the crate `ctf`.

mod decode;
