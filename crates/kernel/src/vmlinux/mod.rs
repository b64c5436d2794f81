//! Reads a kernel from its file instead of from memory: a vmlinux, or a bzImage (`vmlinuz` of x86) that contains one.
//!
//! 1. `payload` finds the compressed ELF file in a bzImage;
//! 2. `segments` offers the ELF file as memory at the addresses at which the kernel was linked;
//! 3. `tables` finds the kernel's own symbol table in it, because a distribution's vmlinux has no other.
//!
//! Everything that the kernel sets at boot is still unset in this memory: lists are empty and pointers are NULL.

mod payload;
mod segments;
mod tables;

use crate::memory::Memory;
use crate::vmcoreinfo::VmcoreInfo;
use crate::{Error, Kernel, Sources, sources};
use lastwords_bytes::{Budget, Error as BytesError};
use object::Endianness;
use object::elf::{EM_X86_64, FileHeader64};
use object::read::elf::FileHeader;
use segments::Segments;
use std::sync::Arc;

/// Name of the file in errors.
const WHAT: &str = "kernel image";

/// A kernel that was read from its file.
pub struct Vmlinux {
    /// The kernel, with its memory as it is before boot.
    pub kernel: Arc<Kernel>,
    /// The build id, in hexadecimal.
    pub build_id: Option<String>,
}

impl Vmlinux {
    /// Reads a vmlinux or a bzImage.
    ///
    /// # Errors
    /// The bytes are no kernel image for x86-64, the image has no symbol table or no BTF, or the budget is spent.
    pub fn open(bytes: Vec<u8>, budget: Arc<Budget>) -> Result<Self, Error> {
        budget.admit(bytes.len() as u64);
        let bytes = payload::of(bytes, &budget)?;
        let header = FileHeader64::<Endianness>::parse(bytes.as_slice()).map_err(elf)?;
        let endian = header.endian().map_err(elf)?;
        let machine = header.e_machine(endian);
        if machine != EM_X86_64 {
            return Err(BytesError::value(WHAT, 18, machine.into(), "the machine x86-64 (62)").into());
        }
        let sections = header.sections(endian, bytes.as_slice()).map_err(elf)?;
        let build_id = sources::build_id(&sections, endian, bytes.as_slice());
        let segments = Segments::of(header, endian, &bytes).map_err(elf)?;
        let symbols = tables::find(&segments, &budget)?;
        let memory: Arc<dyn Memory> = Arc::new(segments);
        let sources = Sources { symbols: Some(symbols), ..Sources::default() };
        let kernel = Kernel::open(memory, &VmcoreInfo::default(), sources, budget)?;
        Ok(Self { kernel: Arc::new(kernel), build_id })
    }

    /// Returns true if a file with these first bytes may be a kernel image.
    #[must_use]
    pub fn is_image(head: &[u8]) -> bool {
        payload::is_bz_image(head) || head.starts_with(&object::elf::ELFMAG)
    }
}

fn elf(error: object::Error) -> Error {
    BytesError::io(WHAT, 0, &std::io::Error::other(error.to_string())).into()
}
