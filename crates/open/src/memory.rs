//! How a kernel's memory is read.

use anyhow::{Context, bail};
use lastwords_bytes::Budget;
use lastwords_image::vmcore::RawRange;
use lastwords_kernel::vmcoreinfo::VmcoreInfo;
use lastwords_kernel::{Kernel, Sources, btf};
use lastwords_walk::lttng_kernel::Source;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// What the image lacks, given by hand. Seldom needed: a kernel's memory describes itself.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    /// Files are raw memory: where their bytes lay, in the order of the file; empty where that is to be found out.
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
    /// LTTng's structures are read by the layouts of its releases, whatever types the image has.
    pub known_layouts: bool,
}

impl Memory {
    /// Where the types of LTTng's modules come from.
    pub(super) fn lttng(&self, kernel: &Kernel) -> anyhow::Result<Source> {
        let Some(path) = &self.module else {
            return Ok(if self.known_layouts { Source::Releases } else { Source::Image });
        };
        let named = || path.display().to_string();
        let file = File::open(path).with_context(named)?;
        let types = btf::of_module(&named(), file, &kernel.types, kernel.budget())?;
        Ok(Source::Given(Arc::new(types)))
    }

    /// Symbols and types that were given.
    pub(super) fn sources(&self, info: &VmcoreInfo) -> anyhow::Result<Sources> {
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
