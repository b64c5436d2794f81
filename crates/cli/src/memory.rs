//! How a kernel's memory is to be read: the options that `report`, `recover` and `inspect` share.

use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_image::vmcore::RawRange;
use lastwords_kernel::vmcoreinfo::VmcoreInfo;
use lastwords_kernel::{Kernel, Sources, btf};
use lastwords_walk::lttng_kernel::Source;
use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// What the image lacks, given by hand. Seldom needed: a kernel's memory describes itself.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Memory {
    /// The file is raw physical memory. Where its bytes lay in that is found out, or told: ADDRESS+LENGTH of each run, in the file's order
    #[arg(long, value_name = "RUN,...", num_args = 0..=1, require_equals = true, value_delimiter = ',', help_heading = "Kernel memory")]
    raw: Option<Vec<Run>>,

    /// The inputs are the parts of one split dump
    #[arg(long, help_heading = "Kernel memory")]
    pub(crate) split: bool,

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

/// A run of physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    address: u64,
    len: u64,
}

impl FromStr for Run {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let (address, len) = text.split_once('+').ok_or("give ADDRESS+LENGTH, for example 0x40000000+0x10000000")?;
        let pair = number(address).zip(number(len)).filter(|(_, len)| *len > 0);
        pair.map(|(address, len)| Self { address, len }).ok_or_else(|| format!("{text}: not two numbers, or no bytes"))
    }
}

impl Memory {
    /// Refuses what is given of a kernel's memory where the inputs are none.
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

    /// Where the bytes of a raw file lay; empty where that is to be found out; none where the file is no raw memory.
    pub(crate) fn raw(&self) -> Option<Vec<RawRange>> {
        let mut offset = 0u64;
        let range = |run: &Run| {
            let range = RawRange { address: run.address, len: run.len, offset };
            offset = offset.saturating_add(run.len);
            range
        };
        self.raw.as_ref().map(|runs| runs.iter().map(range).collect())
    }

    /// Where the types of LTTng's modules come from.
    pub(crate) fn lttng(&self, kernel: &Kernel) -> anyhow::Result<Source> {
        let Some(path) = &self.module else {
            return Ok(if self.known_layouts { Source::Releases } else { Source::Image });
        };
        let named = || path.display().to_string();
        let file = File::open(path).with_context(named)?;
        let types = btf::of_module(&named(), file, &kernel.types, kernel.budget())?;
        Ok(Source::Given(Arc::new(types)))
    }

    /// Symbols and types that were given.
    pub(crate) fn sources(&self, info: &VmcoreInfo) -> anyhow::Result<Sources> {
        let mut sources = Sources::default();
        if self.vmlinux.is_some() && (self.system_map.is_some() || self.btf.is_some()) {
            bail!("--vmlinux has symbols and types: give it alone");
        }
        if let Some(path) = &self.vmlinux {
            let file = File::open(path).with_context(|| path.display().to_string())?;
            sources.vmlinux(file, info, &Budget::default()).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.system_map {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            sources.system_map(&text, info).with_context(|| path.display().to_string())?;
        }
        if let Some(path) = &self.btf {
            sources.btf = Some(std::fs::read(path).with_context(|| path.display().to_string())?);
        }
        Ok(sources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs() {
        assert_eq!("0x1000+4096".parse(), Ok(Run { address: 4096, len: 4096 }));
        assert!("0x1000".parse::<Run>().is_err());
        assert!("a+b".parse::<Run>().is_err());
        assert!("1+0".parse::<Run>().is_err());
        let runs =
            Memory { raw: Some(vec![Run { address: 0, len: 9 }, Run { address: 64, len: 7 }]), ..Memory::default() };
        let expected = [RawRange { address: 0, len: 9, offset: 0 }, RawRange { address: 64, len: 7, offset: 9 }];
        assert_eq!(runs.raw().expect("a map"), expected);
    }
}
