//! The tests of the crate `testkit`: damaged, cut and hostile inputs of the readers.

mod bit_rot;
mod check_abi;
mod common;
mod consumed;
mod corpus;
mod crafted;
#[path = "../../../../fuzz/src/ctf.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the fuzz targets")]
mod ctf;
mod ctf_metadata;
mod cut_files;
mod damaged_cores;
mod holes;
mod hostile_kernels;
mod hostile_traces;
#[path = "../../../../fuzz/src/kernels.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the fuzz targets")]
mod kernels;
#[path = "../../../kernel/tests/kernel/support/memory.rs"]
mod memory;
mod naive;
mod proportion;
#[path = "../../../../fuzz/src/regions.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the fuzz targets")]
mod regions;
#[path = "../../../../fuzz/src/scratch.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the fuzz targets")]
mod scratch;
#[path = "../../../../fuzz/src/script.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the fuzz targets")]
mod script;
#[path = "../../../../fuzz/src/targets.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the fuzz targets")]
mod targets;
mod trace_dat;

use common::image;
