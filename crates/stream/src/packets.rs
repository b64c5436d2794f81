//! The packets of a ring that came: runs of consecutive numbers, so that a table grows with the
//! gaps and not with the packets.

use anyhow::{bail, ensure};
use std::collections::BTreeMap;

/// Numbers of packets, each of which has the size of a sub-buffer. The last one of a ring may be
/// shorter.
#[derive(Debug, Default, Clone)]
pub(crate) struct Packets {
    /// The first number of each run, and the number after its last.
    runs: BTreeMap<u64, u64>,
    /// The number and the length of the shorter one.
    short: Option<(u64, u64)>,
    count: u64,
}

impl Packets {
    /// Adds a packet.
    ///
    /// # Errors
    /// A shorter packet came before it, or the packets have more than `most` runs.
    pub(crate) fn insert(
        &mut self,
        number: u64,
        length: u64,
        size: u64,
        most: usize,
    ) -> anyhow::Result<()> {
        if let Some((short, length)) = self.short {
            bail!(
                "packet {number} after packet {short}, which has {length} of {size} bytes and ends its ring"
            );
        }
        let before = self.runs.range(..=number).next_back().map(|(first, end)| (*first, *end));
        if before.is_some_and(|(_, end)| number < end) {
            return Ok(());
        }
        let next = number.saturating_add(1);
        let end = self.runs.remove(&next).unwrap_or(next);
        let first = before.filter(|(_, end)| *end == number).map_or(number, |(first, _)| first);
        self.runs.insert(first, end);
        self.short = (length < size).then_some((number, length));
        self.count = self.count.saturating_add(1);
        ensure!(self.runs.len() <= most, "packets with more than {most} gaps between them");
        Ok(())
    }

    /// Removes a packet.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some((first, end)) =
            self.runs.range(..=number).next_back().map(|(first, end)| (*first, *end))
        else {
            return;
        };
        if number >= end {
            return;
        }
        self.runs.remove(&first);
        if first < number {
            self.runs.insert(first, number);
        }
        let next = number.saturating_add(1);
        if next < end {
            self.runs.insert(next, end);
        }
        self.count = self.count.saturating_sub(1);
        self.short = self.short.filter(|(short, _)| *short != number);
    }

    /// Returns the number and the length of each packet of a ring with sub-buffers of `size` bytes,
    /// by rising number.
    pub(crate) fn iter(&self, size: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let length = move |number| {
            self.short.filter(|(short, _)| *short == number).map_or(size, |(_, length)| length)
        };
        self.runs
            .iter()
            .flat_map(|(first, end)| *first..*end)
            .map(move |number| (number, length(number)))
    }

    /// Returns runs of packets without a gap: the number of the first, how many there are, and
    /// their bytes.
    pub(crate) fn runs(&self, size: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let missing = move |end: u64| match self.short {
            Some((short, length)) if short.saturating_add(1) == end => size.saturating_sub(length),
            _ => 0,
        };
        self.runs.iter().map(move |(first, end)| {
            (*first, end.saturating_sub(*first).saturating_mul(size).saturating_sub(missing(*end)))
        })
    }

    /// Returns the position after the last packet.
    pub(crate) fn end(&self, size: u64) -> u64 {
        let last = self.runs(size).last();
        last.map_or(0, |(first, bytes)| first.saturating_mul(size).saturating_add(bytes))
    }

    /// Returns the number of packets.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Returns the bytes of all packets.
    pub(crate) fn bytes(&self, size: u64) -> u64 {
        self.runs(size).fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_testkit::random::Random;

    #[test]
    fn runs_are_the_numbers_that_were_inserted_and_not_removed() {
        let random = &mut Random(1);
        for _ in 0..200 {
            let (mut packets, mut plain) = (Packets::default(), BTreeMap::new());
            for _ in 0..random.below(80) {
                let number = random.below(30);
                if random.one_in(3) {
                    packets.remove(number);
                    plain.remove(&number);
                } else {
                    packets.insert(number, 64, 64, 100).unwrap();
                    plain.insert(number, 64);
                }
            }
            if random.one_in(2) {
                packets.insert(40, 9, 64, 100).unwrap();
                plain.insert(40, 9);
                assert!(packets.insert(41, 64, 64, 100).is_err());
            }
            assert_eq!(
                packets.iter(64).collect::<Vec<_>>(),
                plain.clone().into_iter().collect::<Vec<_>>()
            );
            assert_eq!(
                (packets.len(), packets.bytes(64)),
                (plain.len() as u64, plain.values().sum())
            );
            assert_eq!(
                packets.end(64),
                plain.iter().next_back().map_or(0, |(number, length)| number * 64 + length)
            );
        }
    }

    #[test]
    fn a_table_grows_with_the_gaps() {
        let mut packets = Packets::default();
        (0..1_000_000).for_each(|number| packets.insert(number, 64, 64, 3).unwrap());
        assert_eq!((packets.runs.len(), packets.len()), (1, 1_000_000));
        packets.insert(1_000_001, 64, 64, 3).unwrap();
        packets.insert(1_000_003, 64, 64, 3).unwrap();
        assert!(
            packets
                .insert(1_000_005, 64, 64, 3)
                .unwrap_err()
                .to_string()
                .contains("more than 3 gaps")
        );
    }
}
