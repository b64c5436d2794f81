//! Reads the notes of a process core: identity of the process, the signal that killed it, mapped
//! files.

use crate::elf::{Note, next_note};
use lastwords_bytes::{Budget, Error, Reader};

/// Note types of Linux cores (include/uapi/linux/elf.h).
const NT_PRSTATUS: u32 = 1;
const NT_PRPSINFO: u32 = 3;
const NT_SIGINFO: u32 = 0x5349_4749;
const NT_FILE: u32 = 0x4649_4c45;

/// Offsets in `struct elf_prstatus` of a 64-bit kernel (include/linux/elfcore.h).
mod elf_prstatus {
    pub(super) const CURSIG: usize = 12;
    pub(super) const PID: usize = 32;
}

/// Offsets in `struct elf_prpsinfo` of a 64-bit kernel, and lengths of its texts.
mod elf_prpsinfo {
    pub(super) const UID: usize = 16;
    pub(super) const PID: usize = 24;
    pub(super) const FNAME: usize = 40;
    pub(super) const FNAME_LEN: usize = 16;
    pub(super) const PSARGS: usize = 56;
    pub(super) const PSARGS_LEN: usize = 80;
}

/// Offsets in `siginfo_t` (include/uapi/asm-generic/siginfo.h).
mod siginfo {
    pub(super) const SIGNO: usize = 0;
    pub(super) const CODE: usize = 8;
    pub(super) const ADDR: usize = 16;
}

/// Length of a row of NT_FILE: start, end and page offset, bytes.
const FILE_ROW: u64 = 24;

/// The facts in a core's notes. Facts that no note has are none or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreInfo {
    /// `e_machine` of the file: 62 x86-64, 183 AArch64.
    pub machine: u16,
    /// Process id.
    pub pid: Option<i32>,
    /// User id.
    pub uid: Option<u32>,
    /// Name of the main thread or program, at most 15 bytes.
    pub comm: String,
    /// Start of the command line, at most 79 bytes.
    pub args: String,
    /// Signal that killed the process.
    pub signal: Option<i32>,
    /// `si_code` of that signal.
    pub code: Option<i32>,
    /// `si_addr` of SIGSEGV, SIGBUS, SIGILL and SIGFPE.
    pub address: Option<u64>,
    /// Ids of the threads; the thread that died comes first.
    pub threads: Vec<i32>,
    /// Mapped files.
    pub files: Vec<MappedFile>,
}

/// A file mapping of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// First address.
    pub start: u64,
    /// First address after the mapping.
    pub end: u64,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Path as the process saw it.
    pub path: String,
}

impl CoreInfo {
    /// Adds the facts of a segment of notes; unreadable notes are reported in `notes`.
    pub(crate) fn add(&mut self, mut reader: Reader<'_>, budget: &Budget, notes: &mut Vec<String>) {
        loop {
            match next_note(&mut reader, budget) {
                Ok(Some(note)) => {
                    if let Err(error) = self.note(note, budget) {
                        notes.push(format!("note of type {:#x}: {error}", note.kind));
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    notes.push(error.to_string());
                    return;
                }
            }
        }
    }

    fn note(&mut self, note: Note<'_>, budget: &Budget) -> Result<(), Error> {
        match (note.name, note.kind) {
            (b"CORE", NT_PRSTATUS) => self.status(&note.body),
            (b"CORE", NT_PRPSINFO) => self.process(&note.body),
            (b"CORE", NT_SIGINFO) => self.signal_info(&note.body),
            (b"CORE", NT_FILE) => self.mapped_files(note.body, budget),
            _ => Ok(()),
        }
    }

    /// Adds the thread of a `struct elf_prstatus`; the first one also gives the signal.
    fn status(&mut self, body: &Reader<'_>) -> Result<(), Error> {
        let signal = body.i16_at(elf_prstatus::CURSIG)?;
        let thread = body.i32_at(elf_prstatus::PID)?;
        if self.threads.is_empty() && signal != 0 {
            self.signal.get_or_insert(i32::from(signal));
        }
        self.threads.push(thread);
        Ok(())
    }

    /// Adds the facts of a `struct elf_prpsinfo`.
    fn process(&mut self, body: &Reader<'_>) -> Result<(), Error> {
        use elf_prpsinfo as at;
        self.uid = Some(body.u32_at(at::UID)?);
        self.pid = Some(body.i32_at(at::PID)?);
        self.comm = body.text_at(at::FNAME, at::FNAME_LEN)?;
        self.args = body.text_at(at::PSARGS, at::PSARGS_LEN)?.trim_end().to_string();
        Ok(())
    }

    /// Adds the signal of a `siginfo_t`.
    fn signal_info(&mut self, body: &Reader<'_>) -> Result<(), Error> {
        const FAULTS: [i32; 4] = [4, 7, 8, 11];
        let signal = body.i32_at(siginfo::SIGNO)?;
        self.signal = Some(signal);
        self.code = Some(body.i32_at(siginfo::CODE)?);
        if FAULTS.contains(&signal) {
            self.address = Some(body.u64_at(siginfo::ADDR)?);
        }
        Ok(())
    }

    /// Format of NT_FILE: count and page size; start, end and page offset of each mapping; then
    /// their paths, separated by NULs.
    fn mapped_files(&mut self, mut body: Reader<'_>, budget: &Budget) -> Result<(), Error> {
        let (count, page) = (body.u64()?, body.u64()?);
        let table = count.checked_mul(FILE_ROW).and_then(|n| usize::try_from(n).ok());
        let Some(table) = table.filter(|n| *n <= body.left()) else {
            return Err(body.unexpected(count, "a count of mapped files that fits the note"));
        };
        budget.steps(body.what(), count)?;
        let mut table = body.sub(table)?;
        let paths = body.take(body.left())?;
        for path in paths.split(|b| *b == 0) {
            if table.left() == 0 {
                break;
            }
            let (start, end, offset) = (table.u64()?, table.u64()?, table.u64()?);
            let path = String::from_utf8_lossy(path).into_owned();
            self.files.push(MappedFile { start, end, offset: offset.saturating_mul(page), path });
        }
        Ok(())
    }
}
