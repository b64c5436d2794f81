//! Reads facts about the kernel in a memory image: VMCOREINFO, address translation, kallsyms, BTF,
//! modules, per-CPU areas, tasks, the log.
//!
//! No debug information is needed, because the image describes itself. Members are looked up by
//! name, and a layout is chosen by which members exist.
//!
//! The crate has no features.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

pub mod btf;
mod dwarf;
mod error;
pub mod find;
pub mod kallsyms;
mod kernel;
mod list;
pub mod log;
pub mod mapped;
pub mod memory;
pub mod modules;
pub mod notes;
mod object;
mod open;
pub mod paging;
pub mod pstore;
mod sources;
pub mod symbols;
pub mod tasks;
mod time;
pub mod virtual_memory;
pub mod vmcoreinfo;
pub mod vmlinux;

pub use error::{Error, lost};
pub use kernel::{Kernel, Mask, Uname};
pub use list::List;
pub use object::Object;
pub use sources::Sources;
pub use time::Time;
