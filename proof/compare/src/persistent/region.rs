//! A region read by this file alone (`struct ring_buffer_meta`, `struct ring_buffer_cpu_meta` and
//! the events of `struct buffer_data_page` in the kernel's ring_buffer.c), so that a mistake of the
//! program that is judged is not repeated here.

use std::ops::Range;

use anyhow::{Context, Result, ensure};

/// Bytes before the first event of a sub-buffer: a time stamp and the committed size.
pub(super) const HEADER: usize = 16;
/// The bits of the second word of a sub-buffer that are its committed size.
const SIZE_BITS: usize = 0xf_ffff;

/// The place of a CPU's metadata and sub-buffers.
pub(super) struct Cpu {
    pub(super) meta: usize,
    /// Offset of the addresses of the first sub-buffer, the head and the commit.
    pub(super) words: usize,
    pub(super) table: usize,
    pub(super) count: usize,
    pub(super) data: usize,
    pub(super) size: usize,
    head: usize,
    pub(super) commit: usize,
    pub(super) order: Vec<usize>,
}

/// An event in a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) cpu: usize,
    /// Nanoseconds of the recording's clock.
    pub(super) time: u64,
    /// Offsets of all of it.
    pub(super) place: Range<usize>,
    /// Offsets of its payload.
    pub(super) payload: Range<usize>,
}

fn word(region: &[u8], at: usize) -> Result<u64> {
    let bytes = region.get(at..at + 8).context("a word of the region")?;
    Ok(u64::from_le_bytes(bytes.try_into()?))
}

fn half(region: &[u8], at: usize) -> Result<usize> {
    let bytes = region.get(at..at + 4).context("a number of the region")?;
    Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
}

/// Each CPU has metadata with marks of its own, as Linux 6.12 writes them. Such a region does not
/// tell where modules were.
pub(super) fn has_own_marks(region: &[u8]) -> Result<bool> {
    Ok(half(region, 4)? == 0x38)
}

/// Reads the metadata of both CPUs.
pub(super) fn cpus(region: &[u8]) -> Result<Vec<Cpu>> {
    ensure!(half(region, 0)? == 0x0bad_feed, "the region does not begin with its magic word");
    let has_own_marks = has_own_marks(region)?;
    let mut meta = if has_own_marks { 0 } else { usize::try_from(word(region, 16)?)? };
    let mut cpus = Vec::new();
    for _ in 0..2 {
        let words = if has_own_marks { meta + 24 } else { meta };
        let (first, head, commit) =
            (word(region, words)?, word(region, words + 8)?, word(region, words + 16)?);
        let (size, count) = (half(region, words + 24)?, half(region, words + 28)?);
        ensure!(
            size == 4096 && count > 2,
            "{count} sub-buffers of {size} bytes in the metadata at {meta:#x}"
        );
        let table = words + 32;
        let data = (table + 4 * count).next_multiple_of(size);
        let number = |address: u64| usize::try_from((address - first) / 4096);
        let order = (0..count).map(|n| half(region, table + 4 * n)).collect::<Result<Vec<_>>>()?;
        cpus.push(Cpu {
            meta,
            words,
            table,
            count,
            data,
            size,
            head: number(head)?,
            commit: number(commit)?,
            order,
        });
        meta = data + count * size;
    }
    Ok(cpus)
}

impl Cpu {
    /// Offset of a sub-buffer.
    pub(super) fn at(&self, number: usize) -> usize {
        self.data + number * self.size
    }

    /// Numbers of the sub-buffers from the head to the commit, the oldest first.
    pub(super) fn used(&self) -> Vec<usize> {
        let ring = self.order.get(1..).unwrap_or_default();
        let begin = ring.iter().position(|n| *n == self.head).unwrap_or(0);
        let from_head = ring.iter().cycle().skip(begin).take(ring.len()).copied();
        from_head.take_while(|n| *n != self.commit).chain([self.commit]).collect()
    }

    /// Offset behind the committed events of a sub-buffer.
    pub(super) fn end_of(&self, region: &[u8], number: usize) -> Result<usize> {
        Ok(self.at(number) + HEADER + (half(region, self.at(number) + 8)? & SIZE_BITS))
    }
}

/// All events of an undamaged region, by CPU, the oldest first: those of the reader's sub-buffer,
/// then those from head to commit.
pub(super) fn events(region: &[u8]) -> Result<Vec<Placed>> {
    let mut all = Vec::new();
    for (index, cpu) in cpus(region)?.iter().enumerate() {
        let reader = cpu.order.first().copied().context("the reader's sub-buffer")?;
        let used = if cpu.commit == reader { Vec::new() } else { cpu.used() };
        for number in [reader].into_iter().chain(used) {
            sub_buffer(region, index, cpu.at(number)..cpu.end_of(region, number)?, &mut all)?;
        }
    }
    Ok(all)
}

/// Adds the events of a sub-buffer.
fn sub_buffer(region: &[u8], cpu: usize, place: Range<usize>, all: &mut Vec<Placed>) -> Result<()> {
    let mut time = word(region, place.start)?;
    let mut at = place.start + HEADER;
    while at < place.end {
        let first = half(region, at)?;
        let (kind, delta) = (first & 31, (first >> 5) as u64);
        // A length of its own, padding, more of a time's distance, a time, or a number of words.
        let (begin, end) = match kind {
            0 => (at + 8, at + 4 + half(region, at + 4)?),
            29 => (at, at + 4 + half(region, at + 4)?),
            30 | 31 => (at, at + 8),
            words => (at + 4, at + 4 + 4 * words),
        };
        let long = || Ok::<u64, anyhow::Error>((half(region, at + 4)? as u64) << 27 | delta);
        match kind {
            30 => time += long()?,
            31 => time = time >> 59 << 59 | long()?,
            29 if delta == 0 => break,
            29 => {}
            _ => time += delta,
        }
        let behind = end.next_multiple_of(4);
        ensure!(
            end > begin && behind <= place.end,
            "an event at {at:#x} of the region, which ends at {end:#x}"
        );
        if kind < 29 {
            all.push(Placed { cpu, time, place: at..behind, payload: begin..end });
        }
        at = behind;
    }
    Ok(())
}
