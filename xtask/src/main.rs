//! The project's own commands: `cargo xtask VERB`. One module a verb.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

mod compare;
mod deny;
mod dist;
mod fuzz;
mod hosts;
mod lab;
mod lttng_layouts;
mod matrix;
mod miri;
mod proof;
mod rigs;
mod setup;
mod static_build;
mod test;
mod tidy;
mod tsan;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own checks, set-up and test runs")]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Check what the compiler does not: the crate graph, sizes, where `unsafe` stands, left-overs
    Tidy(tidy::Args),
    /// Run the concurrent tests of the ring under ThreadSanitizer
    Tsan(tsan::Args),
    /// Judge each pair of source and format of docs/MATRIX.md, also of the crash dumps beside the repository
    Matrix(matrix::Args),
    /// Interpret the recorder's tests with Miri, which finds undefined behaviour
    Miri(miri::Args),
    /// Install what the tests need (Debian, Ubuntu), or say exactly what is missing
    Setup(setup::Args),
    /// Run every step of CI; the one command for the tests
    Test(test::Args),
    /// Check licences, sources and advisories of all crates (cargo-deny)
    Deny(deny::Args),
    /// Give damaged inputs to ours and to a peer
    Compare(compare::Args),
    /// Compare the layouts of LTTng's releases with the types of its modules
    LttngLayouts(lttng_layouts::Args),
    /// Run the fuzz targets for a time
    Fuzz(fuzz::Args),
    /// Run an application on hosts that are hostile to recorders; print how it ended, and what was recorded and counted
    Hosts(hosts::Args),
    /// Crash kernels of Debian under QEMU and compare what is recovered with what they printed
    Lab(lab::Args),
    /// Build the recorder for aarch64, kill it on a kernel of Debian under QEMU, and recover there what it left
    Arm64(lab::recorder::Args),
    /// Kill processes that record while CPUs of a guest under QEMU are taken offline and brought online, and recover there
    Hotplug(lab::hotplug::Args),
    /// Reset a guest under QEMU while an application records in its persistent memory, and recover what it left there
    Nvdimm(lab::nvdimm::Args),
    /// The part of `nvdimm` that runs in the guest
    #[command(hide = true)]
    NvdimmHere(lab::nvdimm::here::Args),
    /// Build `lastwords` without shared libraries, for a crash kernel's initramfs
    Static(static_build::Args),
    /// Make what users install, in `target/dist`: packages, static tarballs, a bill of materials, checksums
    Dist(dist::Args),
    /// Make the packages of Debian and rpm; install, use and remove them in a clean Debian (as root)
    Packages(dist::packages::Args),
    /// Check what crates.io would get of each crate
    Crates(dist::crates::Args),
    #[command(external_subcommand)]
    Rig(Vec<OsString>),
}

fn main() -> ExitCode {
    let matches = Args::command().after_help(rigs::help()).get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    rig::exit(match args.verb {
        Verb::Tidy(args) => tidy::run(&args),
        Verb::Tsan(args) => tsan::verb(&args),
        Verb::Matrix(args) => matrix::run(&args),
        Verb::Miri(args) => miri::verb(&args),
        Verb::Setup(args) => setup::run(&args),
        Verb::Test(args) => test::run(&args),
        Verb::Deny(args) => deny::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::LttngLayouts(args) => lttng_layouts::run(&args),
        Verb::Fuzz(args) => fuzz::run(&args),
        Verb::Hosts(args) => hosts::run(&args),
        Verb::Lab(args) => lab::run(&args),
        Verb::Arm64(args) => lab::recorder::run(&args),
        Verb::Hotplug(args) => lab::hotplug::run(&args),
        Verb::Nvdimm(args) => lab::nvdimm::run(&args),
        Verb::NvdimmHere(args) => lab::nvdimm::here::run(&args),
        Verb::Static(args) => static_build::run(&args),
        Verb::Dist(args) => dist::run(&args),
        Verb::Packages(args) => dist::packages::run(&args),
        Verb::Crates(args) => dist::crates::run(&args),
        Verb::Rig(words) => rigs::become_rig(&words),
    })
}

/// The verbs of this program itself.
fn own_verbs() -> Vec<String> {
    Args::command().get_subcommands().map(|verb| verb.get_name().to_owned()).collect()
}
