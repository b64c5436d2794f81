//! Programs, maps and rings of a kernel that is written byte by byte.

mod made;
mod maps;
mod memory;
mod rings;
