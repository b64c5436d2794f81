//! The tests of the crate `stream`.

mod counted;
mod limits;
mod received;
mod recorded;
mod streams;
mod support;
