//! A writer and a plain reader of the counters region (docs/ABI.md, section 11).

use crate::checksum::checksum;
use crate::layout::{counters as l, region as rg};
use crate::put::Order;
use std::collections::BTreeMap;

/// What a counters region has.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Entries of the tables of counters and of histograms.
    pub room: [u32; 2],
    /// Text of each counter, and its value.
    pub counters: Vec<(String, u64)>,
    /// Text of each histogram, and its values.
    pub histograms: Vec<(String, Vec<u64>)>,
    /// Additions and values that found no entry.
    pub lost: [u64; 2],
}

/// The least value of each bucket, in order.
#[must_use]
pub fn lows() -> Vec<u64> {
    let above = (3..64).flat_map(|e| (0..8u64).map(move |s| (1 << e) + (s << (e - 3))));
    (0..8).chain(above).collect()
}

impl Metrics {
    /// Returns the bytes of the region, without its header.
    #[must_use]
    pub fn bytes(&self, o: Order) -> Vec<u8> {
        let [counters, histograms] = self.room;
        let histograms_off = l::ENTRIES_AT + counters as usize * l::ENTRY_LEN;
        let len = histograms_off + histograms as usize * l::HISTOGRAM_LEN;
        let mut r = vec![0; len.next_multiple_of(rg::PAGE)];
        o.put32(&mut r, l::INFO_AT + l::COUNTERS_AT, counters);
        o.put32(&mut r, l::INFO_AT + l::HISTOGRAMS_AT, histograms);
        o.put32(&mut r, l::INFO_AT + l::COUNTERS_OFF_AT, number(l::ENTRIES_AT));
        o.put32(&mut r, l::INFO_AT + l::HISTOGRAMS_OFF_AT, number(histograms_off));
        o.put32(&mut r, l::INFO_AT + l::SUB_BITS_AT, l::SUB_BITS);
        o.put32(&mut r, l::CONTROL_AT + l::USED_COUNTERS_AT, number(self.counters.len()));
        o.put32(&mut r, l::CONTROL_AT + l::USED_HISTOGRAMS_AT, number(self.histograms.len()));
        o.put64(&mut r, l::CONTROL_AT + l::LOST_ADDITIONS_AT, self.lost[0]);
        o.put64(&mut r, l::CONTROL_AT + l::LOST_VALUES_AT, self.lost[1]);
        for (n, (text, value)) in self.counters.iter().enumerate() {
            let at = l::ENTRIES_AT + n * l::ENTRY_LEN;
            put_head(&mut r, o, at, l::COUNTER, text);
            o.put64(&mut r, at + l::VALUE_AT, *value);
        }
        let lows = lows();
        for (n, (text, values)) in self.histograms.iter().enumerate() {
            let at = histograms_off + n * l::HISTOGRAM_LEN;
            put_head(&mut r, o, at, l::HISTOGRAM, text);
            o.put64(&mut r, at + l::COUNT_AT, values.len() as u64);
            o.put64(&mut r, at + l::VALUE_AT, values.iter().copied().fold(0, u64::wrapping_add));
            for value in values {
                let bucket = lows.partition_point(|low| low <= value) - 1;
                let place = at + l::BUCKETS_AT + 8 * bucket;
                let before = o.at64(&r, place).unwrap_or(0);
                o.put64(&mut r, place, before + 1);
            }
        }
        r
    }
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn put_head(r: &mut [u8], o: Order, at: usize, kind: u32, text: &str) {
    o.put32(r, at + l::KIND_AT, kind);
    o.put32(r, at + l::TEXT_LEN_AT, number(text.len()));
    r[at + l::TEXT_AT..][..text.len()].copy_from_slice(text.as_bytes());
    let check = checksum(&r[at + l::KIND_AT..at + l::COUNT_AT]);
    o.put64(r, at + l::CHECK_AT, check.max(1));
}

/// Buckets (least value, count), sum and count.
pub type Values = (Vec<(u64, u64)>, u64, u64);

/// The numbers of a session's tables.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Numbers {
    /// Value of each text, its parts separated by `|`.
    pub counters: BTreeMap<String, u64>,
    /// Values of each text.
    pub histograms: BTreeMap<String, Values>,
    /// Additions and values that found no entry.
    pub lost: [u64; 2],
    /// Entries that were claimed.
    pub used: [u32; 2],
    /// Claimed entries that have no name yet.
    pub unnamed: usize,
}

/// Reads the tables of a region, as docs/ABI.md describes them. Entries of the same text are added
/// up.
///
/// # Errors
/// An entry has numbers and no name, or a name and not its checksum.
pub fn read(region: &[u8], o: Order) -> Result<Numbers, String> {
    let half = |at: usize| o.at32(region, at).ok_or(format!("no four bytes at {at}"));
    let word = |at: usize| o.at64(region, at).ok_or(format!("no eight bytes at {at}"));
    let control = |at: usize| l::CONTROL_AT + at;
    let mut found = Numbers {
        lost: [word(control(l::LOST_ADDITIONS_AT))?, word(control(l::LOST_VALUES_AT))?],
        used: [half(control(l::USED_COUNTERS_AT))?, half(control(l::USED_HISTOGRAMS_AT))?],
        ..Numbers::default()
    };
    let first = |at: usize| half(l::INFO_AT + at).map(|at| at as usize);
    for n in 0..found.used[0] as usize {
        let at = first(l::COUNTERS_OFF_AT)? + n * l::ENTRY_LEN;
        match text(region, o, at, l::COUNTER, l::ENTRY_LEN)? {
            Some(name) => {
                let sum = found.counters.entry(name).or_default();
                *sum = sum.wrapping_add(word(at + l::VALUE_AT)?);
            }
            None => found.unnamed += 1,
        }
    }
    for n in 0..found.used[1] as usize {
        let at = first(l::HISTOGRAMS_OFF_AT)? + n * l::HISTOGRAM_LEN;
        let Some(name) = text(region, o, at, l::HISTOGRAM, l::HISTOGRAM_LEN)? else {
            found.unnamed += 1;
            continue;
        };
        let one = found.histograms.entry(name).or_default();
        let mut buckets: BTreeMap<u64, u64> = one.0.drain(..).collect();
        for (index, low) in lows().into_iter().enumerate() {
            let count = word(at + l::BUCKETS_AT + 8 * index)?;
            if count > 0 {
                *buckets.entry(low).or_default() += count;
            }
        }
        one.0 = buckets.into_iter().collect();
        one.1 = one.1.wrapping_add(word(at + l::VALUE_AT)?);
        one.2 += word(at + l::COUNT_AT)?;
    }
    Ok(found)
}

/// Returns the text of an entry of `len` bytes; none if it has neither name nor numbers.
fn text(r: &[u8], o: Order, at: usize, kind: u32, len: usize) -> Result<Option<String>, String> {
    let entry = r.get(at..at + len).ok_or(format!("no entry at {at}"))?;
    let check = o.at64(entry, l::CHECK_AT).unwrap_or_default();
    if check == 0 {
        let is_zero = entry[l::COUNT_AT..].iter().all(|byte| *byte == 0);
        return if is_zero { Ok(None) } else { Err(format!("the entry at {at} has no name")) };
    }
    let named = checksum(&entry[l::KIND_AT..l::COUNT_AT]).max(1);
    let is_kind = o.at32(entry, l::KIND_AT) == Some(kind);
    if check != named || !is_kind {
        return Err(format!("the entry at {at} has the checksum {check:#x}, expected {named:#x}"));
    }
    let text_len = o.at32(entry, l::TEXT_LEN_AT).unwrap_or_default() as usize;
    let text = entry.get(l::TEXT_AT..l::TEXT_AT + text_len).unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(text).replace(char::from(l::SEPARATOR), "|")))
}
