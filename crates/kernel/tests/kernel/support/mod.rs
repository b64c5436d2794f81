//! A kernel made of bytes: writers that share nothing with the readers.

pub(crate) mod kallsyms;
pub(crate) mod memory;
pub(crate) mod toy;
