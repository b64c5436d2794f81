//! The restartable sections of the child's program: where each begins and ends, and its
//! instructions.
//!
//! A stop inside a section aborts it, so that stepping never gets to its last store. A breakpoint
//! does: the section runs from its beginning to the breakpoint, and what is in memory then is what
//! a kill there leaves.

use anyhow::{Context as _, Result};

use super::machine;
use super::naive::{u16_at, u32_at, u64_at};
use super::tracee::Tracee;

/// One section.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    /// Address of the store that arms it, right before its first instruction.
    pub(crate) arming: u64,
    /// Addresses of its instructions.
    pub(crate) instructions: Vec<u64>,
    /// Address right behind the committing store.
    pub(crate) committed: u64,
    /// Address of its abort handler.
    pub(crate) abort: u64,
    /// Where else it can be left for.
    pub(crate) exits: Vec<u64>,
    /// How often it was stopped at each instruction, and behind the last.
    pub(crate) stops: Vec<u32>,
    /// The next to stop at.
    next: usize,
}

impl Section {
    /// The breakpoints for one run of the section: behind its committing store, where else it can
    /// be left for and, if it may be aborted, the next of its instructions whose turn it is.
    pub(crate) fn plan(&mut self, may_abort: bool) -> Vec<u64> {
        let mut breakpoints = vec![self.committed, self.abort];
        breakpoints.extend(&self.exits);
        if may_abort {
            breakpoints.extend(self.instructions.get(self.next));
            self.next = (self.next + 1) % (self.instructions.len() + 1);
        }
        breakpoints.sort_unstable();
        breakpoints.dedup();
        breakpoints
    }

    /// Takes over what was done with the same section of another process.
    pub(crate) fn go_on_from(&mut self, old: &Self) {
        if old.stops.len() == self.stops.len() {
            (self.stops, self.next) = (old.stops.clone(), old.next);
        }
    }

    /// Notes a stop at `ip`; true where it is inside the section.
    pub(crate) fn note(&mut self, ip: u64) -> bool {
        let all = self.instructions.iter().chain([&self.committed]);
        let inside = all.zip(&mut self.stops).find(|(at, _)| **at == ip);
        if let Some((_, stops)) = inside {
            *stops += 1;
            return ip != self.committed;
        }
        false
    }
}

/// All sections of the child.
pub(crate) fn find(tracee: &Tracee) -> Result<Vec<Section>> {
    let file = std::fs::read(rig::own_program()).context("our own program")?;
    let (address, len) =
        elf_section(&file, b"__rseq_cs").context("the program has no section __rseq_cs")?;
    let bias = tracee.bias()?;
    let mut table = vec![0u8; len as usize];
    tracee.read(bias + address, &mut table)?;
    table.chunks_exact(32).map(|descriptor| section(tracee, descriptor)).collect()
}

fn section(tracee: &Tracee, descriptor: &[u8]) -> Result<Section> {
    let word = |i: usize| u64_at(descriptor, 8 * i);
    let (start, end, abort) = (word(1), word(1) + word(2), word(3));
    let mut code = vec![0u8; (end - start) as usize + 8];
    tracee.read(start - 8, &mut code)?;
    let (before, code) = code.split_at(8);
    let steps = machine::instructions(code, start)?;
    let instructions: Vec<u64> = steps.iter().map(|step| step.at).collect();
    let exits = steps
        .iter()
        .filter_map(|step| step.target)
        .filter(|to| !(start..end).contains(to))
        .collect();
    let arming = machine::arming(before, start);
    let arming =
        arming.with_context(|| format!("no arming store before {start:#x}: {before:02x?}"))?;
    let stops = vec![0; instructions.len() + 1];
    Ok(Section { arming, instructions, committed: end, abort, exits, stops, next: 0 })
}

/// Address and length of the named section of an ELF file of 64 bits.
fn elf_section(file: &[u8], name: &[u8]) -> Option<(u64, u64)> {
    let table = u64_at(file.get(..64)?, 0x28) as usize;
    let [count, names] = [0x3c, 0x3e].map(|at| usize::from(u16_at(file, at)));
    let header = |i: usize| file.get(table + 64 * i..table + 64 * (i + 1));
    let strings = u64_at(header(names)?, 0x18) as usize;
    (0..count).find_map(|i| {
        let h = header(i)?;
        let at = strings + u32_at(h, 0) as usize;
        let text = file.get(at..at + name.len() + 1)?;
        (text.strip_suffix(&[0])? == name).then(|| (u64_at(h, 0x10), u64_at(h, 0x20)))
    })
}
