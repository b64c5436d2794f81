//! What a process core says of the process: who it was, what killed it, what it had mapped.

use crate::elf::{Note, next_note};
use lastwords_bytes::{Budget, Error, Reader};

/// Note types of Linux cores (include/uapi/linux/elf.h).
const NT_PRSTATUS: u32 = 1;
const NT_PRPSINFO: u32 = 3;
const NT_SIGINFO: u32 = 0x5349_4749;
const NT_FILE: u32 = 0x4649_4c45;

/// What the notes of a core say. What a note did not say is none or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreInfo {
    /// `e_machine` of the file: 62 x86-64, 183 AArch64.
    pub machine: u16,
    /// Process id.
    pub pid: Option<i32>,
    /// User id.
    pub uid: Option<u32>,
    /// Name of the main thread or program, 15 bytes at most.
    pub comm: String,
    /// Start of the command line, 79 bytes at most.
    pub args: String,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// `si_code` of that signal.
    pub code: Option<i32>,
    /// `si_addr` of SIGSEGV, SIGBUS, SIGILL and SIGFPE.
    pub address: Option<u64>,
    /// Threads, by id; the one that died first.
    pub threads: Vec<i32>,
    /// Files that were mapped.
    pub files: Vec<MappedFile>,
}

/// A file mapping of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Path as the process saw it.
    pub path: String,
}

impl CoreInfo {
    /// Adds what a segment of notes says; what cannot be read is said in `notes`.
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

    /// struct elf_prstatus of a 64-bit kernel: signal number at 0, cursig at 12, pid at 32.
    fn status(&mut self, body: &Reader<'_>) -> Result<(), Error> {
        let signal = body.i16_at(12)?;
        let thread = body.i32_at(32)?;
        if self.threads.is_empty() && signal != 0 {
            self.signal.get_or_insert(i32::from(signal));
        }
        self.threads.push(thread);
        Ok(())
    }

    /// struct elf_prpsinfo of a 64-bit kernel: uid at 16, pid at 24, fname at 40, psargs at 56.
    fn process(&mut self, body: &Reader<'_>) -> Result<(), Error> {
        self.uid = Some(body.u32_at(16)?);
        self.pid = Some(body.i32_at(24)?);
        self.comm = body.text_at(40, 16)?;
        self.args = body.text_at(56, 80)?.trim_end().to_string();
        Ok(())
    }

    /// siginfo_t: si_signo at 0, si_code at 8, si_addr at 16.
    fn signal_info(&mut self, body: &Reader<'_>) -> Result<(), Error> {
        const FAULTS: [i32; 4] = [4, 7, 8, 11];
        let signal = body.i32_at(0)?;
        self.signal = Some(signal);
        self.code = Some(body.i32_at(8)?);
        if FAULTS.contains(&signal) {
            self.address = Some(body.u64_at(16)?);
        }
        Ok(())
    }

    /// Count and page size, then start, end and page offset of each, then their paths with NULs between.
    fn mapped_files(&mut self, mut body: Reader<'_>, budget: &Budget) -> Result<(), Error> {
        let (count, page) = (body.u64()?, body.u64()?);
        let table = count.checked_mul(24).and_then(|n| usize::try_from(n).ok());
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
