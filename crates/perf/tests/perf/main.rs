//! Buffers of a kernel that is written byte by byte.

mod damage;
mod data;
mod made;
#[path = "../../../kernel/tests/kernel/support/memory.rs"]
mod memory;
mod positions;
