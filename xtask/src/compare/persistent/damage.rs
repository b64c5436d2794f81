//! Damages of a region. This file reads the metadata by itself (`struct ring_buffer_meta` and `struct ring_buffer_cpu_meta` in the
//! kernel's ring_buffer.c), so that a mistake of the program that is judged is not repeated here.

use anyhow::{Context, Result, ensure};

/// Bytes of a cache line.
const LINE: usize = 64;
/// Bytes before the first event of a sub-buffer: a time stamp and the committed size.
const HEADER: usize = 16;

/// A kind of damage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    Nothing,
    Header,
    Time,
    Events,
    Magic,
    Head,
    Commit,
    Table,
    Cpu,
    LinesZero,
    LinesStale,
    LineOfHeader,
}

/// All kinds, with the words for a table.
pub(super) const ALL: &[(Damage, &str)] = &[
    (Damage::Nothing, "none"),
    (Damage::Header, "a sub-buffer's committed size"),
    (Damage::Time, "a sub-buffer's time stamp"),
    (Damage::Events, "64 bytes of a sub-buffer's events"),
    (Damage::Magic, "the first magic word"),
    (Damage::Head, "the head word of CPU 0"),
    (Damage::Commit, "the commit word of CPU 0"),
    (Damage::Table, "a number in the table of CPU 0"),
    (Damage::Cpu, "all metadata of CPU 0"),
    (Damage::LinesZero, "the newest 4 cache lines zeroed"),
    (Damage::LinesStale, "the newest 4 cache lines stale"),
    (Damage::LineOfHeader, "the newest sub-buffer's header zeroed"),
];

/// The place of a CPU's metadata and sub-buffers.
struct Cpu {
    meta: usize,
    /// Offset of the addresses of the first sub-buffer, the head and the commit.
    words: usize,
    table: usize,
    count: usize,
    data: usize,
    size: usize,
    head: usize,
    commit: usize,
    order: Vec<usize>,
}

fn word(region: &[u8], at: usize) -> Result<u64> {
    let bytes = region.get(at..at + 8).context("a word of the region")?;
    Ok(u64::from_le_bytes(bytes.try_into()?))
}

fn half(region: &[u8], at: usize) -> Result<usize> {
    let bytes = region.get(at..at + 4).context("a number of the region")?;
    Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
}

/// Reads the metadata of both CPUs.
fn cpus(region: &[u8]) -> Result<Vec<Cpu>> {
    ensure!(half(region, 0)? == 0x0bad_feed, "the region does not begin with its magic word");
    let has_own_marks = half(region, 4)? == 0x38;
    let mut meta = if has_own_marks { 0 } else { usize::try_from(word(region, 16)?)? };
    let mut cpus = Vec::new();
    for _ in 0..2 {
        let words = if has_own_marks { meta + 24 } else { meta };
        let (first, head, commit) = (word(region, words)?, word(region, words + 8)?, word(region, words + 16)?);
        let (size, count) = (half(region, words + 24)?, half(region, words + 28)?);
        ensure!(size == 4096 && count > 2, "{count} sub-buffers of {size} bytes in the metadata at {meta:#x}");
        let table = words + 32;
        let data = (table + 4 * count).next_multiple_of(size);
        let number = |address: u64| usize::try_from((address - first) / 4096);
        let order = (0..count).map(|n| half(region, table + 4 * n)).collect::<Result<Vec<_>>>()?;
        cpus.push(Cpu { meta, words, table, count, data, size, head: number(head)?, commit: number(commit)?, order });
        meta = data + count * size;
    }
    Ok(cpus)
}

impl Cpu {
    /// Offset of a sub-buffer.
    fn at(&self, number: usize) -> usize {
        self.data + number * self.size
    }

    /// Numbers of the sub-buffers from the head to the commit, the oldest first.
    fn used(&self) -> Vec<usize> {
        let ring = self.order.get(1..).unwrap_or_default();
        let begin = ring.iter().position(|n| *n == self.head).unwrap_or(0);
        let from_head = ring.iter().cycle().skip(begin).take(ring.len()).copied();
        from_head.take_while(|n| *n != self.commit).chain([self.commit]).collect()
    }
}

/// Damages a region in one way.
pub(super) fn apply(damage: Damage, region: &mut [u8]) -> Result<()> {
    let cpus = cpus(region)?;
    let cpu = cpus.first().context("CPU 0")?;
    let used = cpu.used();
    ensure!(used.len() > 8, "CPU 0 has only {} used sub-buffers", used.len());
    let middle = cpu.at(used[used.len() / 2]);
    match damage {
        Damage::Nothing => {}
        Damage::Header => region[middle + 8..middle + 12].copy_from_slice(&0x7777_7777u32.to_le_bytes()),
        Damage::Time => region[middle + 5] ^= 1 << 4,
        Damage::Events => region[middle + 1024..middle + 1024 + LINE].fill(0xa5),
        Damage::Magic => region[0..4].fill(0),
        Damage::Head => region[cpu.words + 8 + 2] ^= 0x80,
        Damage::Commit => region[cpu.words + 16 + 2] ^= 0x80,
        Damage::Table => region[cpu.table + 4 * (cpu.count / 2) + 1] ^= 0x40,
        Damage::Cpu => region[cpu.meta..cpu.table + 4 * cpu.count].fill(0),
        Damage::LinesZero | Damage::LinesStale | Damage::LineOfHeader => {
            for cpu in &cpus {
                newest(damage, cpu, region)?;
            }
        }
    }
    Ok(())
}

/// Damages what one CPU wrote last: as the last cache lines are that a reset keeps from memory.
fn newest(damage: Damage, cpu: &Cpu, region: &mut [u8]) -> Result<()> {
    let newest = cpu.at(cpu.commit);
    if damage == Damage::LineOfHeader {
        region[newest..newest + LINE].fill(0);
        return Ok(());
    }
    let end = newest + HEADER + (half(region, newest + 8)? & 0xfffff);
    let end = end.next_multiple_of(LINE).min(newest + cpu.size);
    let begin = end.saturating_sub(4 * LINE).max(newest + LINE);
    if begin >= end {
        return Ok(());
    }
    let used = cpu.used();
    let older = cpu.at(used[used.len() - 2]) + (begin - newest);
    match damage {
        Damage::LinesZero => region[begin..end].fill(0),
        _ => region.copy_within(older..older + (end - begin), begin),
    }
    Ok(())
}
