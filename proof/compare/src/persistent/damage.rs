//! Damages of a region.

use anyhow::{Context, Result, ensure};

use super::region::{Cpu, cpus};

/// Bytes of a cache line.
const LINE: usize = 64;

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

/// Damages a region in one way.
pub(super) fn apply(damage: Damage, region: &mut [u8]) -> Result<()> {
    let cpus = cpus(region)?;
    let cpu = cpus.first().context("CPU 0")?;
    let used = cpu.used();
    ensure!(used.len() > 8, "CPU 0 has only {} used sub-buffers", used.len());
    let middle = cpu.at(used[used.len() / 2]);
    match damage {
        Damage::Nothing => {}
        Damage::Header => {
            region[middle + 8..middle + 12].copy_from_slice(&0x7777_7777u32.to_le_bytes())
        }
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
    let end = cpu.end_of(region, cpu.commit)?.next_multiple_of(LINE).min(newest + cpu.size);
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
