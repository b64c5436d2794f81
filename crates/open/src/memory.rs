//! Options for reading a kernel's memory.

use anyhow::{Context, bail, ensure};
use lastwords_bytes::Budget;
use lastwords_image::vmcore::RawRange;
use lastwords_kernel::vmcoreinfo::VmcoreInfo;
use lastwords_kernel::{Kernel, Sources, btf};
use lastwords_lttng::kernel::ModuleTypes;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Facts that the image lacks. They are seldom needed, because a kernel's memory describes itself.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// The inputs are raw memory. The ranges have the addresses of their bytes, in the order of
    /// the file. If there are none, the addresses are found by a search.
    pub raw: Option<Vec<RawRange>>,
    /// The inputs are the parts of one split dump.
    pub split: bool,
    /// A kernel file with symbols and types: its BTF or its debug information.
    pub vmlinux: Option<PathBuf>,
    /// A System.map file.
    pub system_map: Option<PathBuf>,
    /// A BTF file of the kernel.
    pub btf: Option<PathBuf>,
    /// The file of LTTng's module with BTF or debug information.
    pub module: Option<PathBuf>,
    /// Read LTTng's structures by the layouts of its releases, whatever types the image has.
    pub known_layouts: bool,
}

impl Memory {
    /// Returns the source of the types of LTTng's modules.
    pub(super) fn lttng(&self, kernel: &Kernel) -> anyhow::Result<ModuleTypes> {
        let Some(path) = &self.module else {
            return Ok(if self.known_layouts { ModuleTypes::Releases } else { ModuleTypes::Image });
        };
        let file = open_whole(path).with_context(|| given("--module", path))?;
        let types = btf::of_module(&given("--module", path), file, &kernel.types, kernel.budget())?;
        Ok(ModuleTypes::Given(Arc::new(types)))
    }

    /// Reads the symbols and types in the given files.
    pub(super) fn sources(&self, info: &VmcoreInfo) -> anyhow::Result<Sources> {
        let mut sources = Sources::default();
        if self.vmlinux.is_some() && (self.system_map.is_some() || self.btf.is_some()) {
            bail!("--vmlinux has symbols and types: give it alone");
        }
        if let Some(path) = &self.vmlinux {
            let file = open_whole(path).with_context(|| given("--vmlinux", path))?;
            sources
                .vmlinux(file, info, &Budget::default())
                .with_context(|| given("--vmlinux", path))?;
        }
        if let Some(path) = &self.system_map {
            let text = read_whole(path).with_context(|| given("--system-map", path))?;
            sources
                .system_map(&String::from_utf8_lossy(&text), info)
                .with_context(|| given("--system-map", path))?;
        }
        if let Some(path) = &self.btf {
            sources.btf = Some(read_whole(path).with_context(|| given("--btf", path))?);
        }
        Ok(sources)
    }
}

/// Length up to which a file may have any holes.
const SHORT: u64 = 64 << 20;
/// A longer file has at least one byte in so many on disk. File systems that compress store less
/// than the length, too.
const MOST_HOLES: u64 = 16;

/// Opens a file whose parts are read into memory by the lengths that it claims. A file that is
/// nearly all holes is refused.
pub(crate) fn open_whole(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path)?;
    let data = file.metadata()?;
    let (len, stored) = (data.len(), lastwords_bytes::stored(&data));
    let is_sparse = data.is_file() && len > SHORT.max(stored.saturating_mul(MOST_HOLES));
    ensure!(
        !is_sparse,
        "it is {len} bytes long, but has only {stored} of them: the rest are holes of a sparse file"
    );
    Ok(file)
}

fn read_whole(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_whole(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Names an option and its file in a message.
pub(super) fn given(option: &str, path: &Path) -> String {
    format!("{option} {}", path.display())
}

/// A run of physical memory in a raw file, as a person writes it: `ADDRESS+LENGTH` or
/// `ADDRESS+LENGTH@OFFSET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRun {
    /// The first physical address.
    pub address: u64,
    /// The length in bytes.
    pub len: u64,
    /// The offset of the first byte in the file; none if the run follows the one before it.
    pub offset: Option<u64>,
}

impl FromStr for RawRun {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let (run, offset) = match text.split_once('@') {
            Some((run, offset)) => (run, number(offset).map(Some)),
            None => (text, Some(None)),
        };
        let pair = run.split_once('+').and_then(|(address, len)| number(address).zip(number(len)));
        let pair = pair.filter(|(_, len)| *len > 0);
        let run = pair.zip(offset).map(|((address, len), offset)| Self { address, len, offset });
        run.ok_or_else(|| {
            format!("{text}: not numbers of 64 bits, or no bytes: give ADDRESS+LENGTH or ADDRESS+LENGTH@OFFSET, for example 0x40000000+0x10000000")
        })
    }
}

impl fmt::Display for RawRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.address, self.len)?;
        self.offset.map_or(Ok(()), |offset| write!(f, "@{offset:#x}"))
    }
}

impl RawRun {
    /// Returns the ranges of a raw file. Runs without an offset follow the one before them.
    #[must_use]
    pub fn ranges(runs: &[Self]) -> Vec<RawRange> {
        let mut next = 0u64;
        let range = |run: &Self| {
            let offset = run.offset.unwrap_or(next);
            next = offset.saturating_add(run.len);
            RawRange { address: run.address, len: run.len, offset }
        };
        runs.iter().map(range).collect()
    }

    /// Checks that no two ranges of a raw file have an address in common.
    pub(super) fn check(ranges: &[RawRange]) -> anyhow::Result<()> {
        let mut sorted: Vec<&RawRange> = ranges.iter().collect();
        sorted.sort_by_key(|range| range.address);
        for pair in sorted.windows(2) {
            let [one, next] = pair else { continue };
            if one.address.saturating_add(one.len) > next.address {
                let words = |range: &RawRange| format!("{:#x}+{:#x}", range.address, range.len);
                bail!(
                    "--raw: the runs {} and {} have addresses in common",
                    words(one),
                    words(next)
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_nearly_all_holes_is_not_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("vmlinux");
        std::fs::write(&path, b"\x7fELF").expect("written");
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(1 << 40))
            .expect("longer");
        for option in ["vmlinux", "system-map", "btf"] {
            let of = |this: &str| (this == option).then(|| path.clone());
            let (vmlinux, system_map, btf) = (of("vmlinux"), of("system-map"), of("btf"));
            let memory = Memory { vmlinux, system_map, btf, ..Memory::default() };
            let error = memory.sources(&VmcoreInfo::default()).err().expect("refused");
            assert!(format!("{error:#}").contains("sparse file"), "{option}: {error:#}");
        }
    }

    #[test]
    fn files_are_named_with_their_options() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| Some(folder.path().join(name));
        std::fs::write(path("binary").unwrap(), [0xff; 64]).unwrap();
        for name in ["absent", "binary"] {
            for (option, memory) in [
                ("--vmlinux", Memory { vmlinux: path(name), ..Memory::default() }),
                ("--system-map", Memory { system_map: path(name), ..Memory::default() }),
                ("--btf", Memory { btf: path(name), ..Memory::default() }),
            ] {
                // The kernel reads the types later.
                let Err(error) = memory.sources(&VmcoreInfo::default()) else {
                    assert_eq!((option, name), ("--btf", "binary"));
                    continue;
                };
                let said = format!("{error:#}");
                assert!(
                    said.starts_with(&format!("{option} {}: ", path(name).unwrap().display())),
                    "{said}"
                );
            }
        }
    }

    #[test]
    fn runs() {
        for wrong in ["0x1000", "a+b", "1+0", "1+2@", "1+2@x", "1@2"] {
            assert!(wrong.parse::<RawRun>().is_err(), "{wrong}");
        }
        for run in ["0x40+0x7", "0x40+0x7@0x1000"] {
            assert_eq!(run.parse::<RawRun>().expect("a run").to_string(), run);
        }
        let runs: Vec<RawRun> = ["0+9", "0x40+7", "200+4096@0x1000", "0x2000+1"]
            .map(|run| run.parse().expect("a run"))
            .into();
        let expected = [(0, 9, 0), (64, 7, 9), (200, 4096, 4096), (8192, 1, 8192)]
            .map(|(address, len, offset)| RawRange { address, len, offset });
        assert_eq!(RawRun::ranges(&runs), expected);
    }
}
