//! The tests of the crate `stream`.

mod limits;
mod received;
mod recorded;
mod streams;
mod support;
