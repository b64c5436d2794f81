//! Programs, maps and rings of a kernel that is written byte by byte.

mod made;
mod maps;
#[path = "../../../kernel/tests/kernel/support/memory.rs"]
mod memory;
mod rings;
