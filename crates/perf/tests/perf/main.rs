//! Buffers of a kernel that is written byte by byte.

mod damage;
mod data;
mod made;
mod positions;
