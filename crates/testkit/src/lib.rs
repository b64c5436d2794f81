//! Independent witnesses for tests of the recovery side: writers of synthetic sessions with the list of events that a
//! right reader must find, and a naive reader written from docs/ABI.md alone.
//!
//! A development dependency only. Nothing here uses `lastwords-abi`: the numbers are those of the page, and
//! `tests/check_abi.rs` compares the two.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod elf;
pub mod image;
pub mod layout;
pub mod mutate;
pub mod naive;
pub mod put;
pub mod ring;
pub mod samples;
pub mod schema;
pub mod session;
