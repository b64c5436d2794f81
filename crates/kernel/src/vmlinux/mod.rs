//! Reads a kernel from its file instead of from memory: a vmlinux, or a bzImage (`vmlinuz` of x86)
//! that contains one.
//!
//! 1. `payload` finds the compressed ELF file in a bzImage;
//! 2. `segments` offers the ELF file as memory at the addresses at which the kernel was linked;
//! 3. `kallsyms::find` finds the kernel's own symbol table in it, because a distribution's vmlinux
//!    has no other.
//!
//! Everything that the kernel sets at boot is still unset in this memory: lists are empty and
//! pointers are NULL.

mod payload;
mod segments;

use crate::kallsyms::{Kallsyms, find};
use crate::memory::Memory;
use crate::vmcoreinfo::VmcoreInfo;
use crate::{Error, Kernel, Sources};
use lastwords_bytes::{Budget, Error as BytesError};
use object::Endianness;
use object::elf::{EM_X86_64, FileHeader64};
use object::read::elf::FileHeader;
use segments::Segments;
use std::sync::Arc;

/// Name of the file in errors.
const WHAT: &str = "kernel image";

/// Reads a kernel from its vmlinux or bzImage. Its memory is as it is before boot.
///
/// # Errors
/// The bytes are no kernel image for x86-64, the image has no symbol table or no BTF, or the budget
/// is spent.
pub fn open(bytes: Vec<u8>, budget: Arc<Budget>) -> Result<Kernel, Error> {
    let bytes = payload::find(bytes, &budget)?;
    budget.admit(bytes.len() as u64);
    let header = FileHeader64::<Endianness>::parse(bytes.as_slice()).map_err(elf)?;
    let endian = header.endian().map_err(elf)?;
    let machine = header.e_machine(endian);
    if machine != EM_X86_64 {
        return Err(BytesError::value(WHAT, 18, machine.into(), "the machine x86-64 (62)").into());
    }
    let segments = Segments::from_header(header, endian, &bytes).map_err(elf)?;
    let symbols = symbols(&segments, &budget)?;
    let memory: Arc<dyn Memory> = Arc::new(segments);
    let sources = Sources { symbols: Some(symbols), ..Sources::default() };
    Kernel::open(memory, &VmcoreInfo::default(), sources, budget)
}

/// The kernel's own symbols. In the right table, the symbol of the kernel's version has the address
/// of that text.
fn symbols(segments: &Segments, budget: &Budget) -> Result<Kallsyms, Error> {
    let is_right = |symbols: &Kallsyms| {
        let banner = symbols.find("linux_banner").and_then(|banner| segments.text(banner, 64).ok());
        banner.is_some_and(|text| text.starts_with("Linux version "))
    };
    for segment in segments.iter() {
        if let Some(symbols) =
            find::in_part(segments, (segment.address, &segment.bytes), &is_right, budget)?
        {
            return Ok(symbols);
        }
    }
    Err(find::nothing())
}

/// Returns true if a file with these first bytes may be a kernel image: a bzImage, or an ELF file
/// that is no core.
#[must_use]
pub fn is_image(head: &[u8]) -> bool {
    // ET_CORE of `e_type`, in either byte order.
    let is_core = head.get(16..18).is_some_and(|kind| kind == [4, 0] || kind == [0, 4]);
    payload::is_bz_image(head) || head.starts_with(&object::elf::ELFMAG) && !is_core
}

fn elf(error: object::Error) -> Error {
    BytesError::io(WHAT, 0, &std::io::Error::other(error.to_string())).into()
}
