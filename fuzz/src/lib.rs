//! The bodies of the fuzz targets. They are plain code: `crates/testkit/tests/testkit/corpus.rs`
//! runs them over the corpus with the stable toolchain.

pub mod ctf;
#[path = "../../crates/testkit/tests/testkit/common/image.rs"]
pub mod image;
pub mod kernels;
#[path = "../../crates/kernel/tests/kernel/support/memory.rs"]
mod memory;
pub mod regions;
mod scratch;
pub mod script;
pub mod targets;
