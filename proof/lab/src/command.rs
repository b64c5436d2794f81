//! The command: `cargo xtask lab`, `arm64`, `hotplug` and `nvdimm`.

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

use super::{hotplug, nvdimm, prepare_quick, quick_kernels, recorder, why};

/// Crash kernels of Debian under QEMU and compare what is recovered with what they printed
#[derive(Parser)]
#[command(bin_name = "cargo xtask lab", args_conflicts_with_subcommands = true)]
struct Command {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    lab: super::Args,
}

#[derive(Subcommand)]
enum Part {
    /// Build the recorder for aarch64, kill it on a kernel of Debian under QEMU, and recover there
    /// what it left
    Arm64(recorder::Args),
    /// Kill processes that record while CPUs of a guest under QEMU are taken offline and brought
    /// online, and recover there
    Hotplug(hotplug::Args),
    /// Reset a guest under QEMU while an application records in its persistent memory, and recover
    /// what it left there
    Nvdimm(nvdimm::Args),
    /// The part of `nvdimm` that runs in the guest
    #[command(hide = true)]
    NvdimmHere(nvdimm::here::Args),
    /// The application of the scenario `why`, which runs in the guest
    #[command(hide = true)]
    WhyHere(why::here::Args),
    /// Fetch what the steps of CI with guests need: a part of `cargo xtask setup`
    #[command(hide = true)]
    Prepare {
        /// Fetch nothing: print the kernels that are there, and fail if something is missing
        #[arg(long)]
        check: bool,
    },
}

/// Carries out what the command line asks for.
///
/// # Errors
/// It cannot be carried out, or a comparison fell short.
pub fn run() -> Result<()> {
    let command = Command::parse();
    match &command.part {
        None => super::run(&command.lab),
        Some(Part::Arm64(args)) => recorder::run(args),
        Some(Part::Hotplug(args)) => hotplug::run(args),
        Some(Part::Nvdimm(args)) => nvdimm::run(args),
        Some(Part::NvdimmHere(args)) => nvdimm::here::run(args),
        Some(Part::WhyHere(args)) => why::here::run(args),
        Some(Part::Prepare { check: false }) => prepare_quick(),
        Some(Part::Prepare { check: true }) => match quick_kernels() {
            Some(kernels) => {
                println!("{kernels}");
                Ok(())
            }
            None => bail!("the kernels of the steps with guests, or their QEMU, are missing"),
        },
    }
}
