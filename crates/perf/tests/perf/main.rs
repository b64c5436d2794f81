//! Buffers of a kernel that is written byte by byte.

mod damage;
mod data;
mod made;
#[path = "../../../bpf/tests/bpf/memory.rs"]
mod memory;
mod positions;
