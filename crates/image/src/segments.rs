//! An [`Image`] of address ranges that are stored in files.

use crate::file::Backing;
use crate::{Hole, HoleCause, Image, Range, front};

/// A range of addresses whose first `held` bytes are in a file.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    /// Number of addresses.
    pub(crate) len: u64,
    /// Number of bytes that the file has; at most `len`.
    pub(crate) held: u64,
    /// Index of the file.
    pub(crate) file: usize,
    /// Offset in the file.
    pub(crate) offset: u64,
    /// Cause of the hole after `held` bytes.
    pub(crate) rest: HoleCause,
}

impl Segment {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.len)
    }
}

/// Files mapped at addresses.
#[derive(Debug)]
pub(crate) struct Segments {
    name: String,
    files: Vec<Backing>,
    segments: Vec<Segment>,
    ranges: Vec<Range>,
    is_virtual: bool,
}

impl Segments {
    /// Creates the image. If segments overlap, the one that begins first keeps the bytes. Also
    /// returns the number of overlapping segments.
    pub(crate) fn new(
        name: &str,
        files: Vec<Backing>,
        mut segments: Vec<Segment>,
        is_virtual: bool,
    ) -> (Self, usize) {
        segments.sort_by_key(|s| s.address);
        let mut kept: Vec<Segment> = Vec::with_capacity(segments.len());
        let mut overlaps = 0usize;
        for mut segment in segments {
            let end = kept.last().map_or(0, Segment::end);
            let cut = end.saturating_sub(segment.address);
            if cut > 0 {
                overlaps = overlaps.saturating_add(1);
                segment.address = end;
                segment.len = segment.len.saturating_sub(cut);
                segment.held = segment.held.saturating_sub(cut);
                segment.offset = segment.offset.saturating_add(cut);
            }
            segment.len = segment.len.min(u64::MAX.saturating_sub(segment.address));
            segment.held = segment.held.min(segment.len);
            if segment.len > 0 {
                kept.push(segment);
            }
        }
        let ranges = kept.iter().flat_map(|s| ranges_of(s, &files)).collect();
        (Self { name: name.into(), files, segments: kept, ranges, is_virtual }, overlaps)
    }

    /// The segment that contains `address`.
    fn find(&self, address: u64) -> Option<&Segment> {
        let behind = self.segments.partition_point(|s| s.address <= address);
        let segment = self.segments.get(behind.checked_sub(1)?)?;
        (address < segment.end()).then_some(segment)
    }

    /// Fills the front of `buf` from the segment that contains `address`; returns the number of
    /// bytes.
    fn read_some(&self, address: u64, buf: &mut [u8]) -> Result<usize, Hole> {
        let unmapped = Hole { address, cause: HoleCause::Unmapped };
        let segment = self.find(address).ok_or(unmapped)?;
        let within = address.saturating_sub(segment.address);
        let held = segment.held.saturating_sub(within);
        if held == 0 {
            return Err(Hole { address, cause: segment.rest });
        }
        let part = front(buf, held);
        let file = self.files.get(segment.file).ok_or(unmapped)?;
        file.read(segment.offset.saturating_add(within), part).part(address, part.len())
    }
}

fn ranges_of(segment: &Segment, files: &[Backing]) -> impl Iterator<Item = Range> {
    let name = files.get(segment.file).map_or_else(|| "".into(), |f| f.name.clone());
    let held = Range {
        address: segment.address,
        len: segment.held,
        name,
        offset: segment.offset,
        hole: None,
    };
    let rest = Range {
        address: held.end(),
        len: segment.len.saturating_sub(segment.held),
        offset: segment.offset.saturating_add(segment.held),
        hole: Some(segment.rest),
        ..held.clone()
    };
    [held, rest].into_iter().filter(|r| r.len > 0)
}

impl Image for Segments {
    fn name(&self) -> &str {
        &self.name
    }

    fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        crate::read_parts(address, buf, |at, rest| self.read_some(at, rest))
    }

    fn next_data(&self, address: u64, end: u64) -> u64 {
        let Some((segment, file)) =
            self.find(address).and_then(|s| Some((s, self.files.get(s.file)?)))
        else {
            return address.min(end);
        };
        let offset = segment.offset.saturating_add(address.saturating_sub(segment.address));
        let skipped = file.next_data(offset).saturating_sub(offset);
        address.saturating_add(skipped).min(segment.end()).min(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn backing(len: usize) -> Backing {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&(0..len).map(|i| (i % 251) as u8).collect::<Vec<_>>()).unwrap();
        Backing::from_file(file, "f").unwrap()
    }

    fn image(len: usize, segments: Vec<Segment>) -> (Segments, usize) {
        Segments::new("t", vec![backing(len)], segments, true)
    }

    fn segment(address: u64, len: u64, held: u64, offset: u64) -> Segment {
        Segment { address, len, held, file: 0, offset, rest: HoleCause::Excluded }
    }

    #[test]
    fn a_read_crosses_neighbours_and_stops_at_the_hole() {
        let (image, overlaps) = image(
            100,
            vec![segment(1000, 50, 50, 0), segment(1050, 40, 10, 50), segment(5000, 10, 200, 95)],
        );
        assert_eq!(overlaps, 0);
        let mut buf = [0u8; 60];
        image.read(1000, &mut buf).unwrap();
        assert!(buf.iter().enumerate().all(|(i, b)| usize::from(*b) == i));
        let hole = image.read(1001, &mut buf).unwrap_err();
        assert_eq!(hole, Hole { address: 1060, cause: HoleCause::Excluded });
        assert_eq!(buf[58], 59);
        assert_eq!(image.read(1090, &mut buf).unwrap_err().cause, HoleCause::Unmapped);
        let hole = image.read(5000, &mut buf[..10]).unwrap_err();
        assert_eq!(hole, Hole { address: 5005, cause: HoleCause::Truncated });
    }

    proptest! {
        /// Excluded and truncated memory are the same holes if pages of the file are cached.
        #[test]
        fn a_cached_file_gives_the_same_bytes_and_holes(
            parts in proptest::collection::vec((0u64..60_000, 0u64..20_000, 0u64..20_000, 0u64..50_000), 1..8),
            len in 0usize..50_000,
            reads in proptest::collection::vec((0u64..80_000, 0usize..6000), 1..100),
        ) {
            let segments: Vec<Segment> = parts.iter().map(|&(a, l, h, o)| segment(a, l, h.min(l), o)).collect();
            let (uncached, _) = image(len, segments.clone());
            let (cached, _) = Segments::new("t", vec![backing(len).cached()], segments, true);
            for (at, size) in reads {
                let (mut got, mut want) = (vec![0; size], vec![0; size]);
                let (outcome, expected) = (cached.read(at, &mut got), uncached.read(at, &mut want));
                prop_assert_eq!(outcome, expected);
                let filled = expected.map_or_else(|hole| (hole.address - at) as usize, |()| size);
                prop_assert_eq!(&got[..filled], &want[..filled]);
            }
        }

        #[test]
        fn agrees_with_a_byte_map(parts in proptest::collection::vec((0u64..300, 0u64..80, 0u64..80, 0u64..200), 0..8), at in 0u64..400, len in 0usize..120) {
            let segments: Vec<Segment> = parts.iter().map(|&(a, l, h, o)| segment(a, l, h.min(l), o)).collect();
            let mut sorted = segments.clone();
            sorted.sort_by_key(|s| s.address);
            let mut map: Vec<Option<Result<u8, HoleCause>>> = vec![None; 512];
            for s in &sorted {
                for i in 0..s.len {
                    let cell = &mut map[(s.address + i) as usize];
                    if cell.is_none() {
                        let offset = s.offset + i;
                        *cell = Some(if i >= s.held { Err(HoleCause::Excluded) } else if offset >= 128 { Err(HoleCause::Truncated) } else { Ok((offset % 251) as u8) });
                    }
                }
            }
            let (image, _) = image(128, segments);
            let mut buf = vec![0u8; len];
            let result = image.read(at, &mut buf);
            for i in 0..len {
                match map[at as usize + i] {
                    Some(Ok(byte)) => prop_assert_eq!(buf[i], byte),
                    other => {
                        let cause = other.and_then(Result::err).unwrap_or(HoleCause::Unmapped);
                        prop_assert_eq!(result, Err(Hole { address: at + i as u64, cause }));
                        return Ok(());
                    }
                }
            }
            prop_assert_eq!(result, Ok(()));
        }
    }
}
