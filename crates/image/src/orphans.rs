//! Finds bytes of a core that no program header leads to: the headers are damaged, but the segments
//! are still in the file.
//!
//! Writers of cores store segments one after the other; each is a multiple of a page. So one number
//! locates all pages of such a run: the file offset of a page modulo the page size. It is 0 in
//! cores of the kernel; in cores of gdb, pages start at the end of the headers. The pages get
//! addresses that no process has.

use crate::HoleCause;
use crate::file::Backing;
use crate::got::Got;
use crate::segments::Segment;

/// Smallest page size of Linux.
const PAGE: u64 = 4096;
/// Address of the file's first page; no architecture has mappings from here on.
const BASE: u64 = 1 << 60;
/// Longest run of zeros that is padding: the kernel pads its notes to a page.
const PADDING_MAX: u64 = 1 << 16;
/// Number of bytes searched for page starts, in total and at once.
const SAMPLE: u64 = 64 << 20;
const PIECE: usize = 1 << 20;
/// First bytes of a mapped program or library, and the alignment at which they are searched.
const PROGRAM: [u8; 7] = *b"\x7fELF\x02\x01\x01";
const STEP: usize = 8;

/// Runs of a file that are in none of `parts` (offset and length).
pub(crate) fn gaps(len: u64, mut parts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    parts.sort_unstable();
    parts.push((len, 0));
    let (mut gaps, mut end) = (Vec::new(), 0u64);
    for (at, part) in parts {
        let at = at.min(len);
        if at > end {
            gaps.push((end, at.saturating_sub(end)));
        }
        end = end.max(at.saturating_add(part).min(len));
    }
    gaps
}

/// The gaps that contain more than padding.
pub(crate) fn orphans(file: &Backing, parts: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut runs = gaps(file.len, parts);
    runs.retain(|(at, len)| *len >= PAGE && !is_padding(file, *at, *len));
    runs
}

fn is_padding(file: &Backing, at: u64, len: u64) -> bool {
    let mut bytes = vec![0u8; usize::try_from(len.min(PADDING_MAX)).unwrap_or(0)];
    len <= PADDING_MAX
        && matches!(file.read(at, &mut bytes), Got::All)
        && bytes.iter().all(|byte| *byte == 0)
}

/// Segments of the whole pages in `runs`. `known` has file offsets of known pages.
pub(crate) fn segments(
    file: &Backing,
    runs: &[(u64, u64)],
    known: impl Iterator<Item = u64>,
) -> Vec<Segment> {
    let phase = most(known.map(|at| at & (PAGE - 1))).unwrap_or_else(|| phase(file, runs));
    let segment = |&(at, len): &(u64, u64)| {
        // Offset of the first whole page.
        let first = at.saturating_sub(phase).checked_next_multiple_of(PAGE)?.checked_add(phase)?;
        let held = at.saturating_add(len).checked_sub(first).filter(|held| *held > 0)?;
        let address = BASE.checked_add(first.saturating_sub(phase))?;
        Some(Segment {
            address,
            len: held,
            held,
            file: 0,
            offset: first,
            rest: HoleCause::Truncated,
        })
    };
    runs.iter().filter_map(segment).collect()
}

/// The most frequent value; the lowest if there are several.
fn most(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let best = values.chunk_by(|a, b| a == b).rev().max_by_key(|same| same.len())?;
    best.first().copied()
}

/// Finds the offset of pages modulo the page size, from the starts of mapped programs and
/// libraries.
fn phase(file: &Backing, runs: &[(u64, u64)]) -> u64 {
    let (mut places, mut left) = (Vec::new(), SAMPLE);
    for (at, len) in runs {
        let end = at.saturating_add(*len);
        let mut bytes = vec![0u8; usize::try_from(*len).unwrap_or(PIECE).min(PIECE)];
        let mut at = at.checked_next_multiple_of(STEP as u64).unwrap_or(end);
        while at < end && left > 0 {
            at = at.max(file.next_data(at) & (STEP as u64).wrapping_neg());
            let got = match file.read(at, &mut bytes) {
                Got::All => bytes.len(),
                Got::Ended(got) | Got::Failed(got) => got,
            };
            let chunks =
                (at..end).step_by(STEP).zip(bytes.get(..got).unwrap_or_default().chunks(STEP));
            let programs = chunks.filter(|(_, chunk)| chunk.starts_with(&PROGRAM));
            places.extend(programs.map(|(at, _)| at & (PAGE - 1)));
            (at, left) = (at.saturating_add(PIECE as u64), left.saturating_sub(PIECE as u64));
        }
    }
    most(places.into_iter()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_part_has_is_a_gap() {
        assert_eq!(gaps(100, vec![(0, 10), (5, 20), (40, 10), (90, 50)]), [(25, 15), (50, 40)]);
        assert_eq!(gaps(100, vec![]), [(0, 100)]);
        assert_eq!(gaps(100, vec![(200, 10), (0, u64::MAX)]), []);
    }

    #[test]
    fn the_most_frequent_value_counts() {
        assert_eq!(most([3, 7, 7, 3, 7].into_iter()), Some(7));
        assert_eq!(most([7, 3].into_iter()), Some(3));
        assert_eq!(most([].into_iter()), None);
    }
}
