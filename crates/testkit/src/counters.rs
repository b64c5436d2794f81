//! A writer of the counters region (docs/ABI.md, section 11).

use crate::checksum::checksum;
use crate::layout::{counters as l, region as rg};
use crate::put::Order;

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
