//! Options for reading a kernel's memory. `report`, `recover` and `inspect` share them.

use anyhow::bail;
use lastwords_open::{self as open, RawRun};
use std::path::PathBuf;

/// Facts that the image lacks. They are seldom needed, because a kernel's memory describes itself.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Memory {
    /// The file is raw physical memory
    ///
    /// Its physical addresses are found by a search, or given as ADDRESS+LENGTH of each run, in
    /// the order of the file, or ADDRESS+LENGTH@OFFSET. The memory of a guest is in its emulator's
    /// /proc/PID/mem.
    #[arg(long, value_name = "RUN,...", num_args = 0..=1, require_equals = true, value_delimiter = ',', help_heading = "Kernel memory", conflicts_with = "split")]
    raw: Option<Vec<RawRun>>,

    /// The inputs are the parts of one split dump
    #[arg(long, help_heading = "Kernel memory")]
    split: bool,

    /// Take symbols and types from this kernel file
    ///
    /// The types come from its BTF or its debug information.
    #[arg(long, value_name = "FILE", help_heading = "Kernel memory")]
    vmlinux: Option<PathBuf>,

    /// Take symbols from this System.map
    #[arg(long, value_name = "FILE", help_heading = "Kernel memory")]
    system_map: Option<PathBuf>,

    /// Take types from this BTF file
    #[arg(long, value_name = "FILE", help_heading = "Kernel memory")]
    btf: Option<PathBuf>,

    /// Take the types of LTTng's modules from this file
    ///
    /// FILE is lttng-tracer.ko of the kernel in the image, with BTF or debug information.
    #[arg(long, value_name = "FILE", help_heading = "Kernel memory")]
    module: Option<PathBuf>,

    /// Read LTTng's structures by the layouts of its releases, whatever types the image has
    #[arg(long, hide = true)]
    known_layouts: bool,
}

impl Memory {
    /// Returns the options for a file in which these runs of physical memory are.
    #[cfg(feature = "guests")]
    pub(crate) fn of_runs(runs: Vec<RawRun>) -> Self {
        Self { raw: Some(runs), ..Self::default() }
    }

    /// Refuses these options if no input is a kernel's memory.
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

    /// Returns the options for the library `open`.
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
