//! Independent oracles for tests of the recovery side: writers of synthetic sessions with the list
//! of events that a correct reader must find, and a naive reader written only from docs/ABI.md.
//!
//! Used only as a development dependency. Nothing here uses `lastwords-abi`: the numbers are those
//! of docs/ABI.md, and `tests/check_abi.rs` compares the two.
#![forbid(unsafe_code)]

pub mod btf;
pub mod checksum;
pub mod counters;
pub mod ctf;
pub mod elf;
pub mod form;
pub mod image;
pub mod layout;
pub mod layouts;
pub mod mutate;
pub mod naive;
pub mod persistent;
pub mod put;
pub mod random;
pub mod ring;
pub mod samples;
pub mod scheduling;
pub mod schema;
pub mod session;
pub mod text;
pub mod trace_cmd;
pub mod trace_dat;
pub mod wire;
