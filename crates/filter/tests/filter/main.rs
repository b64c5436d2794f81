//! The tests of the crate `filter`.

mod grammar;
mod oracle;
mod reference;
