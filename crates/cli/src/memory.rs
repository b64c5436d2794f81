//! How a kernel's memory is to be read: the options that `report`, `recover` and `inspect` share.

use anyhow::bail;
use lastwords_image::vmcore::RawRange;
use lastwords_open as open;
use std::path::PathBuf;
use std::str::FromStr;

/// What the image lacks, given by hand. Seldom needed: a kernel's memory describes itself.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Memory {
    /// The file is raw physical memory. Where its bytes lay in that is found out, or told: ADDRESS+LENGTH of each run, in the file's order
    #[arg(long, value_name = "RUN,...", num_args = 0..=1, require_equals = true, value_delimiter = ',', help_heading = "Kernel memory", conflicts_with = "split")]
    raw: Option<Vec<Run>>,

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
        let mut offset = 0u64;
        let range = |run: &Run| {
            let range = RawRange { address: run.address, len: run.len, offset };
            offset = offset.saturating_add(run.len);
            range
        };
        open::Memory {
            raw: self.raw.as_ref().map(|runs| runs.iter().map(range).collect()),
            split: self.split,
            vmlinux: self.vmlinux.clone(),
            system_map: self.system_map.clone(),
            btf: self.btf.clone(),
            module: self.module.clone(),
            known_layouts: self.known_layouts,
        }
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
        assert_eq!(runs.options().raw.expect("a map"), expected);
    }
}
