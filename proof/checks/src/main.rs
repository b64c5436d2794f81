//! Tests of the workspace under other tools: `cargo xtask deny`, `loom`, `miri`, `tsan` and `fuzz`;
//! with larger numbers: `cargo xtask hosts`; with inputs from beside the repository: `cargo xtask
//! cases` and `matrix`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod cases;
mod deny;
mod fuzz;
mod hosts;
mod loom;
mod matrix;
mod miri;
mod tsan;

/// Run tests of the workspace under other tools, or with other inputs
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Check {
    /// Compare what is recovered of the crash dumps beside the repository with what their kernels
    /// printed
    Cases(cases::Args),
    /// Check licences, sources and advisories of all crates (cargo-deny)
    Deny,
    /// Run the fuzz targets for a time
    Fuzz(fuzz::Args),
    /// Run an application on hosts that are hostile to recorders; print how it ended, and what was
    /// recorded and counted
    Hosts(hosts::Args),
    /// Run the models of the ring under the C11 memory model
    Loom,
    /// Judge each pair of source and format of docs/MATRIX.md, also of the crash dumps beside the
    /// repository
    Matrix(matrix::Args),
    /// Interpret the recorder's tests with Miri, which finds undefined behaviour
    Miri(miri::Args),
    /// Run the concurrent tests of the ring under ThreadSanitizer
    Tsan,
}

fn main() -> ExitCode {
    rig::exit(match Check::parse() {
        Check::Cases(args) => cases::run(&args),
        Check::Deny => deny::run(),
        Check::Fuzz(args) => fuzz::run(&args),
        Check::Hosts(args) => hosts::run(&args),
        Check::Loom => loom::run(),
        Check::Matrix(args) => matrix::run(&args),
        Check::Miri(args) => miri::run(&args),
        Check::Tsan => tsan::run(),
    })
}
