//! The tests of the crate `kernel`.

mod btf;
mod dwarf;
mod found;
mod kallsyms;
mod kernel;
mod support;
mod vmlinux;
