//! How a kernel's memory is to be read: the options that `report`, `recover` and `inspect` share.

use anyhow::bail;
use lastwords_open::{self as open, RawRun};
use std::path::PathBuf;

/// What the image lacks, given by hand. Seldom needed: a kernel's memory describes itself.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Memory {
    /// The file is raw physical memory. Where its bytes lay in that is found out, or told: ADDRESS+LENGTH of each run, in the file's order
    #[arg(long, value_name = "RUN,...", num_args = 0..=1, require_equals = true, value_delimiter = ',', help_heading = "Kernel memory", conflicts_with = "split")]
    raw: Option<Vec<RawRun>>,

    /// The inputs are the parts of one split dump
    #[arg(long, help_heading = "Kernel memory")]
    split: bool,

    /// Symbols and types of this kernel file: its BTF or its debug information
    #[arg(long, value_name = "FILE", help_heading = "Kernel memory")]
    vmlinux: Option<PathBuf>,

    /// Symbols of this System.map
    #[arg(long, value_name = "FILE", help_heading = "Kernel memory")]
    system_map: Option<PathBuf>,

    /// Types of this BTF file
    #[arg(long, value_name = "FILE", help_heading = "Kernel memory")]
    btf: Option<PathBuf>,

    /// Types of LTTng's modules, from this file: lttng-tracer.ko of the kernel in the image, with BTF or debug information
    #[arg(long, value_name = "FILE", help_heading = "Kernel memory")]
    module: Option<PathBuf>,

    /// Read LTTng's structures by the layouts of its releases, whatever types the image has
    #[arg(long, hide = true)]
    known_layouts: bool,
}

impl Memory {
    /// Refuses what is given of a kernel's memory where no input is that.
    pub(crate) fn refuse(&self) -> anyhow::Result<()> {
        let given = [
            ("--raw", self.raw.is_some()),
            ("--vmlinux", self.vmlinux.is_some()),
            ("--system-map", self.system_map.is_some()),
            ("--btf", self.btf.is_some()),
            ("--module", self.module.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => bail!("{option} is for a kernel's memory, and no input is that"),
            None => Ok(()),
        }
    }

    /// The same for the library that opens inputs.
    pub(crate) fn options(&self) -> open::Memory {
        open::Memory {
            raw: self.raw.as_deref().map(RawRun::ranges),
            split: self.split,
            vmlinux: self.vmlinux.clone(),
            system_map: self.system_map.clone(),
            btf: self.btf.clone(),
            module: self.module.clone(),
            known_layouts: self.known_layouts,
        }
    }
}
