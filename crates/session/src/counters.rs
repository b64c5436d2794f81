//! Reads counters and histograms.
//!
//! The checksum of an entry covers its name, so a value is never shown under a wrong name. Values
//! change all the time and have no checksum: of a histogram, buckets, count and sum are compared
//! with each other; a counter's value is shown as it is.

use super::gap;
use super::layout::{field, part};
use super::region::Region;
use lastwords_abi::counters::{self as abi, CountersControl, CountersInfo, Entry, Histogram};
use lastwords_abi::region::checksum;
use lastwords_bytes::{Budget, Error, Reader};
use lastwords_image::Image;
use lastwords_trace::evidence::{Cause, Gap};
use lastwords_trace::metrics::{self, Bucket, Labels, Metrics};
use std::collections::BTreeMap;

/// Entries that are read at a time.
const BATCH: usize = 64;

/// The counters and histograms of a session.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) metrics: Metrics,
    pub(crate) notes: Vec<String>,
    pub(crate) gaps: Vec<Gap>,
}

/// Name and labels.
type Name = (String, Labels);

/// The values of a histogram. Several entries of one name are added up.
#[derive(Default)]
struct Values {
    buckets: BTreeMap<usize, u64>,
    /// None: a bucket passed 2^64, or an entry is damaged.
    sum: Option<u64>,
    in_flight: u64,
}

/// A table of the region.
struct Table {
    offset: u64,
    entries: u32,
    /// Bytes of an entry.
    size: usize,
    /// Entries that were claimed.
    used: u32,
    kind: u32,
    /// The word for what an entry has.
    what: &'static str,
}

/// Reads the counters region, as far as the image has it.
pub(crate) fn read(image: &dyn Image, region: &Region, budget: &Budget) -> Read {
    let mut read = Read::default();
    let tables = match tables(image, region, budget, &mut read) {
        Ok(tables) => tables,
        Err(error) => {
            let place = format!("{error}: counters and histograms cannot be read");
            read.gaps.push(gap(&place, Cause::Damaged));
            return read;
        }
    };
    let (mut counters, mut histograms) = (BTreeMap::new(), BTreeMap::new());
    for table in tables {
        let mut found = |name: Name, r: &Reader<'_>, base: usize| match table.kind {
            abi::KIND_COUNTER => {
                let sum: &mut u64 = counters.entry(name).or_default();
                *sum = sum.wrapping_add(field!(r, base, Entry, value, u64_at)?);
                Ok(None)
            }
            _ => {
                let (values, wrong) = values(r, base)?;
                match histograms.entry(name) {
                    std::collections::btree_map::Entry::Vacant(entry) => _ = entry.insert(values),
                    std::collections::btree_map::Entry::Occupied(mut entry) => {
                        entry.get_mut().add(values);
                    }
                }
                Ok(wrong)
            }
        };
        if let Err(error) = table.read(image, region, budget, &mut found, &mut read) {
            let place = format!("{error}: the {}s from there on are unknown", table.what);
            read.gaps.push(gap(&place, Cause::Missing));
        }
    }
    let counter = |((name, labels), value)| metrics::Counter { name, labels, value };
    read.metrics.counters = counters.into_iter().map(counter).collect();
    let histogram = |(name, values): (Name, Values)| values.named(name);
    read.metrics.histograms = histograms.into_iter().map(histogram).collect();
    read
}

/// Reads geometry and counts of the region, and adds gaps for what found no room.
fn tables(
    image: &dyn Image,
    region: &Region,
    budget: &Budget,
    read: &mut Read,
) -> Result<[Table; 2], Error> {
    let what = region.place();
    let r = Reader::new(&what, &region.fixed, region.order).based(128);
    let counters = field!(r, 0, CountersInfo, counters, u32_at)?;
    let histograms = field!(r, 0, CountersInfo, histograms, u32_at)?;
    let counters_off = field!(r, 0, CountersInfo, counters_off, u32_at)?;
    let histograms_off = field!(r, 0, CountersInfo, histograms_off, u32_at)?;
    let sub_bits = field!(r, 0, CountersInfo, sub_bits, u32_at)?;
    if sub_bits != abi::SUB_BITS {
        let expected = format!("{} bits for the buckets of a power of two", abi::SUB_BITS);
        return Err(Error::value(&what, 144, sub_bits.into(), &expected));
    }
    let bytes = part(image, region, abi::CONTROL_OFF as u64, size_of::<CountersControl>(), budget)?;
    let r = Reader::new(&what, &bytes, region.order).based(abi::CONTROL_OFF as u64);
    read.metrics.lost_additions = field!(r, 0, CountersControl, lost_additions, u64_at)?;
    read.metrics.lost_values = field!(r, 0, CountersControl, lost_values, u64_at)?;
    let copied = field!(r, 0, CountersControl, copied, u64_at)?;
    read.metrics.as_of = (copied != 0).then_some(copied);
    for (lost, one, entries, table) in [
        (read.metrics.lost_additions, "addition", counters, "counters"),
        (read.metrics.lost_values, "value", histograms, "histograms"),
    ] {
        if lost > 0 {
            let s = if lost == 1 { "" } else { "s" };
            let place =
                format!("{lost} {one}{s} to {table} that found none of the {entries} entries free");
            read.gaps.push(gap(&place, Cause::Refused));
        }
    }
    Ok([
        Table {
            offset: counters_off.into(),
            entries: counters,
            size: size_of::<Entry>(),
            used: field!(r, 0, CountersControl, used_counters, u32_at)?,
            kind: abi::KIND_COUNTER,
            what: "counter",
        },
        Table {
            offset: histograms_off.into(),
            entries: histograms,
            size: size_of::<Histogram>(),
            used: field!(r, 0, CountersControl, used_histograms, u32_at)?,
            kind: abi::KIND_HISTOGRAM,
            what: "histogram",
        },
    ])
}

/// Takes the values of an entry whose name is known: a reader of several entries, and the offset of
/// this one. Returns what is wrong with the values.
type Found<'a> = &'a mut dyn FnMut(Name, &Reader<'_>, usize) -> Result<Option<String>, Error>;

impl Table {
    /// Reads all entries.
    fn read(
        &self,
        image: &dyn Image,
        region: &Region,
        budget: &Budget,
        found: Found<'_>,
        read: &mut Read,
    ) -> Result<(), Error> {
        let what = region.place();
        let (entries, mut unwritten) = (self.entries as usize, 0u64);
        for first in (0..entries).step_by(BATCH) {
            let offset = self.offset.saturating_add(first.saturating_mul(self.size) as u64);
            let batch = BATCH.min(entries.saturating_sub(first));
            let bytes = part(image, region, offset, batch.saturating_mul(self.size), budget)?;
            let r = Reader::new(&what, &bytes, region.order).based(offset);
            for at in 0..batch {
                budget.steps(&what, 1)?;
                let (base, index) = (at.saturating_mul(self.size), first.saturating_add(at));
                let wrong = match self.entry(&r, base, index)? {
                    Head::Free => continue,
                    Head::Unwritten => {
                        unwritten = unwritten.saturating_add(1);
                        continue;
                    }
                    Head::Named(name) => {
                        let shown = shown(&name);
                        found(name, &r, base)?.map(|wrong| format!(" {shown}: {wrong}"))
                    }
                    Head::Damaged(why) => {
                        read.metrics.unknown = read.metrics.unknown.saturating_add(1);
                        Some(format!(": {why}; it is unknown"))
                    }
                };
                if let Some(wrong) = wrong {
                    let offset = offset.saturating_add(base as u64);
                    let place = format!("{what}: offset {offset:#x}: {}{wrong}", self.what);
                    read.gaps.push(gap(&place, Cause::Damaged));
                }
            }
        }
        if unwritten > 0 {
            let (was, additions) = match unwritten {
                1 => (format!("1 {} was", self.what), "its first addition was"),
                _ => (format!("{unwritten} {}s were", self.what), "their first additions were"),
            };
            read.notes.push(format!(
                "{was} being entered in the table when the process died or the memory was read: {additions} in flight"
            ));
        }
        Ok(())
    }

    /// Reads the head of an entry.
    fn entry(&self, r: &Reader<'_>, base: usize, index: usize) -> Result<Head, Error> {
        let check = field!(r, base, Entry, check, u64_at)?;
        let covered = base.saturating_add(abi::COVERED.start);
        let covered = r.bytes_at(covered, abi::COVERED.len())?;
        if check == 0 {
            // Only a whole entry gets values.
            let rest = base.saturating_add(abi::COVERED.end);
            let rest = r.bytes_at(rest, self.size.saturating_sub(abi::COVERED.end))?;
            let is_claimed = index < self.used as usize;
            return Ok(match (is_claimed, rest.iter().all(|byte| *byte == 0)) {
                (_, false) => Head::Damaged("it has values and no checksum".to_owned()),
                (false, true) if covered.iter().all(|byte| *byte == 0) => Head::Free,
                (_, true) => Head::Unwritten,
            });
        }
        let sum = checksum(covered).max(1);
        if sum != check {
            let why = format!("its checksum is {check:#x}, expected {sum:#x}");
            return Ok(Head::Damaged(why));
        }
        let kind = field!(r, base, Entry, kind, u32_at)?;
        let len = field!(r, base, Entry, text_len, u32_at)? as usize;
        if kind != self.kind || len > abi::TEXT_LEN {
            let why = format!("kind {kind} and a text of {len} bytes, expected kind {}", self.kind);
            return Ok(Head::Damaged(why));
        }
        let text = field!(r, base, Entry, text, bytes_at, len)?;
        Ok(match name(text) {
            Some(name) => Head::Named(name),
            None => Head::Damaged("its text is no name with labels, each there once".to_owned()),
        })
    }
}

/// What an entry of a table is.
enum Head {
    Free,
    /// It was claimed, and its head is not whole.
    Unwritten,
    Named(Name),
    /// Why it cannot be read.
    Damaged(String),
}

/// Splits the text of an entry.
fn name(text: &[u8]) -> Option<Name> {
    let mut parts = std::str::from_utf8(text).ok()?.split(char::from(abi::SEPARATOR));
    let name = parts.next().filter(|name| !name.is_empty())?.to_owned();
    let mut labels = Vec::new();
    while let Some(key) = parts.next() {
        labels.push((key.to_owned(), parts.next()?.to_owned()));
    }
    labels.sort();
    let is_twice = |two: &[(String, String)]| matches!(two, [one, other] if one.0 == other.0);
    (!labels.windows(2).any(is_twice)).then_some((name, labels))
}

fn shown((name, labels): &Name) -> String {
    let labels = labels.iter().map(|(key, value)| format!("{key}={value:?}"));
    let labels = labels.collect::<Vec<_>>().join(",");
    if labels.is_empty() { format!("{name:?}") } else { format!("{name:?} {{{labels}}}") }
}

/// Reads the values of a histogram, and compares them. Also returns what is wrong with them.
fn values(r: &Reader<'_>, base: usize) -> Result<(Values, Option<String>), Error> {
    let mut values = Values::default();
    let first = base.saturating_add(std::mem::offset_of!(Histogram, buckets));
    let (mut all, mut least, mut most) = (0u128, 0u128, 0u128);
    for index in 0..abi::BUCKETS {
        let count = r.u64_at(first.saturating_add(index.saturating_mul(8)))?;
        if count > 0 {
            let (low, high) = bounds(index);
            all = all.saturating_add(count.into());
            least = least.saturating_add(u128::from(low).saturating_mul(count.into()));
            most = most.saturating_add(u128::from(high).saturating_mul(count.into()));
            values.buckets.insert(index, count);
        }
    }
    let count = field!(r, base, Entry, count, u64_at)?;
    let sum = field!(r, base, Entry, value, u64_at)?;
    let Some(in_flight) = all.checked_sub(count.into()) else {
        let wrong = format!("{count} values were recorded, and its buckets have {all}");
        return Ok((values, Some(wrong)));
    };
    values.in_flight = u64::try_from(in_flight).unwrap_or(u64::MAX);
    if most > u128::from(u64::MAX) {
        // The sum may have passed 2^64.
        return Ok((values, None));
    }
    let can_be = u128::from(sum) <= most && (in_flight > 0 || u128::from(sum) >= least);
    if can_be {
        values.sum = Some(sum);
        return Ok((values, None));
    }
    let wrong = format!("its sum is {sum}, and its buckets have {least} to {most}");
    Ok((values, Some(wrong)))
}

/// Returns the least and the largest value of a bucket.
fn bounds(index: usize) -> (u64, u64) {
    let shift = (index >> abi::SUB_BITS).saturating_sub(1);
    let top = index.saturating_sub(shift << abi::SUB_BITS) as u64;
    let shift = u32::try_from(shift).unwrap_or(u32::MAX);
    let width = 1u64.checked_shl(shift).unwrap_or(0);
    let low = top.checked_shl(shift).unwrap_or(0);
    (low, low.saturating_add(width.saturating_sub(1)))
}

impl Values {
    /// Adds the values of another entry of the same name.
    fn add(&mut self, other: Self) {
        for (bucket, count) in other.buckets {
            let sum = self.buckets.entry(bucket).or_default();
            *sum = sum.saturating_add(count);
        }
        self.sum = self.sum.zip(other.sum).and_then(|(sum, other)| sum.checked_add(other));
        self.in_flight = self.in_flight.saturating_add(other.in_flight);
    }

    fn named(self, (name, labels): Name) -> metrics::Histogram {
        let bucket = |(index, count)| {
            let (low, high) = bounds(index);
            Bucket { low, high, count }
        };
        let buckets = self.buckets.into_iter().map(bucket).collect();
        metrics::Histogram { name, labels, buckets, sum: self.sum, in_flight: self.in_flight }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_have_all_values() {
        let mut next = 0u64;
        for index in 0..abi::BUCKETS {
            let (low, high) = bounds(index);
            assert_eq!(low, next, "bucket {index}");
            assert!(high - low <= low / 8, "bucket {index}");
            next = high.wrapping_add(1);
        }
        assert_eq!(next, 0, "the last bucket ends at 2^64");
    }
}
