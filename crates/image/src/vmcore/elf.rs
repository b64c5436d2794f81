//! Opens ELF64 vmcores, as written by `/proc/vmcore`, `/proc/kcore`, `makedumpfile -E` and
//! hypervisors.
//!
//! Real files differ from the gABI. QEMU writes an `e_ehsize` of 8, section headers before the
//! program headers, a VMCOREINFO note of type 0, and loads without virtual addresses. In
//! `/proc/vmcore`, the load of the kernel's text covers RAM that another load also covers. So only
//! physical addresses are used, and RAM that is covered twice is read once.

use super::{Format, Machine, Physical};
use crate::elf::{FileHeader, Note, PT_LOAD, PT_NOTE, ProgramHeader, next_note};
use crate::file::Backing;
use crate::program_headers::Table;
use crate::segments::Segments;
use lastwords_bytes::{Budget, Error, Reader};
use std::sync::Arc;

/// Notes that only process cores have: NT_PRPSINFO, NT_AUXV, NT_FILE (include/uapi/linux/elf.h).
const OF_PROCESSES: [u32; 3] = [3, 6, 0x4649_4c45];
/// NT_PRSTATUS.
const STATUS: u32 = 1;
/// Most CPUs whose notes are kept.
const MAX_CPUS: usize = 1 << 16;
/// `p_paddr` of a load without a physical address (`/proc/kcore`).
const NO_ADDRESS: u64 = u64::MAX;

/// The contents of the notes.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) vmcoreinfo: Option<Vec<u8>>,
    pub(super) cpus: Vec<Vec<u8>>,
    of_hypervisor: bool,
    of_process: bool,
}

impl Notes {
    /// Adds a segment of notes; malformed notes are reported in `remarks`.
    pub(super) fn add(
        &mut self,
        mut reader: Reader<'_>,
        budget: &Budget,
        remarks: &mut Vec<String>,
    ) {
        loop {
            match next_note(&mut reader, budget) {
                Ok(Some(note)) => self.note(note),
                Ok(None) => return,
                Err(error) => {
                    remarks.push(error.to_string());
                    return;
                }
            }
        }
    }

    fn note(&mut self, note: Note<'_>) {
        let mut body = note.body;
        let bytes = body.take(body.left()).unwrap_or_default();
        match (note.name, note.kind) {
            (b"VMCOREINFO", _) => {
                self.vmcoreinfo.get_or_insert_with(|| bytes.to_vec());
            }
            (b"QEMU", _) => self.of_hypervisor = true,
            (b"CORE", STATUS) if self.cpus.len() < MAX_CPUS => self.cpus.push(bytes.to_vec()),
            (b"CORE", kind) if OF_PROCESSES.contains(&kind) => self.of_process = true,
            _ => {}
        }
    }
}

/// Opens `file`, whose first bytes are `head`; none if it is no vmcore.
pub(super) fn open(file: Backing, head: &[u8], budget: &Budget) -> Result<Option<Physical>, Error> {
    let name = file.name.to_string();
    let Ok(header) = FileHeader::parse(&name, head) else { return Ok(None) };
    let mut table = Table::new(&file);
    let headers = table.program_headers(&header, budget)?;
    let mut notes = Notes::default();
    for part in headers.iter().filter(|h| h.kind == PT_NOTE) {
        // If the file lacks a note segment, the memory is still usable.
        match table.note_segment(part, budget) {
            Ok(Some(bytes)) => {
                let reader = Reader::new(&name, &bytes, header.order).based(part.offset);
                notes.add(reader, budget, &mut table.notes);
            }
            Ok(None) => {}
            Err(error) => table.notes.push(error.to_string()),
        }
    }
    if !is_vmcore(&notes, &headers) {
        return Ok(None);
    }
    for load in headers.iter().filter(|h| h.kind == PT_LOAD && h.physical != NO_ADDRESS) {
        table.load(load, load.physical);
    }
    table.tell_cut();
    let Table { segments, notes: remarks, .. } = table;
    let (image, _) = Segments::new(&name, vec![file.cached()], segments, false);
    Ok(Some(Physical {
        image: Arc::new(image),
        format: Format::Elf,
        machine: Machine::of_elf(header.machine),
        foreign: super::foreign::machine(header.machine),
        order: header.order,
        vmcoreinfo: notes.vmcoreinfo,
        cpus: notes.cpus,
        notes: remarks,
    }))
}

/// True for a vmcore, false for a process core: decided by its notes, or else by its physical
/// addresses.
fn is_vmcore(notes: &Notes, headers: &[ProgramHeader]) -> bool {
    if notes.vmcoreinfo.is_some() {
        return true;
    }
    !notes.of_process
        && (notes.of_hypervisor || headers.iter().any(|h| h.kind == PT_LOAD && h.physical != 0))
}
