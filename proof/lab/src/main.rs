//! `cargo xtask lab`: see the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    rig::exit(lastwords_proof_lab::run_command())
}
