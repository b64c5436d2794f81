//! The part of a ring around a moment.

use super::page::Cursor;
use super::{CpuRing, HeaderPage, Latency, Ring, SubBufferInfo};
use lastwords_bytes::ByteOrder;
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// A ring of which only the events of a time are shown.
///
/// Events that are missing before the window are none of its losses. Those that the ring overwrote
/// in the window are, though not for the ring as a whole.
pub struct Windowed {
    ring: Arc<dyn Ring>,
    header_page: HeaderPage,
    order: ByteOrder,
    /// Readings of the ring's clock.
    window: RangeInclusive<u64>,
    /// Events of the window that the ring had overwritten.
    gaps: Vec<Gap>,
}

impl Windowed {
    /// Shows the events of `ring` whose times are in `window`, in readings of its clock.
    #[must_use]
    pub fn new(
        ring: Arc<dyn Ring>,
        header_page: HeaderPage,
        order: ByteOrder,
        window: RangeInclusive<u64>,
    ) -> Self {
        let mut windowed = Self { ring, header_page, order, window, gaps: Vec::new() };
        let has_lost = |stream: &usize| windowed.has_lost_begin(*stream);
        let lost: Vec<usize> = (0..windowed.ring.cpus().len()).filter(has_lost).collect();
        windowed.gaps.extend(lost.into_iter().map(|stream| {
            Gap::new(
                Some(stream),
                Cause::Unread,
                "in the window, before its first event".to_owned(),
            )
        }));
        windowed
    }

    /// Returns true if the ring of a CPU overwrote events, the last of which may be in the window.
    fn has_lost_begin(&self, stream: usize) -> bool {
        let mut bytes = Vec::new();
        if *self.window.start() == 0
            || self.ring.cpus().get(stream).is_none_or(|ring| ring.sub_buffers == 0)
        {
            return false;
        }
        let info = self.ring.sub_buffer(stream, 0, &mut bytes);
        let first = Cursor::in_sub_buffer(&bytes, self.header_page, self.order, &info).next(&bytes);
        info.missed.is_some()
            && !first
                .is_some_and(|first| first.is_ok_and(|first| first.time <= *self.window.start()))
    }

    fn with_gaps(&self, mut evidence: Evidence) -> Evidence {
        evidence.gaps.extend(self.gaps.iter().cloned());
        evidence
    }
}

impl Ring for Windowed {
    fn cpus(&self) -> &[CpuRing] {
        self.ring.cpus()
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        let mut info = self.ring.sub_buffer(cpu, index, bytes);
        let mut cursor = Cursor::in_sub_buffer(bytes, self.header_page, self.order, &info);
        let data = self.header_page.data_offset as usize;
        let (mut at, mut first) = (cursor.at(), None);
        while let Some(Ok(event)) = cursor.next(bytes) {
            first = first.or(Some(event.time));
            if event.time > *self.window.end() {
                info.committed = at.saturating_sub(data);
                break;
            }
            at = cursor.at();
            if event.time < *self.window.start() {
                info.consumed = info.consumed.max(at.saturating_sub(data));
            }
        }
        // The missing events are older than the first one here.
        if first.is_some_and(|first| first < *self.window.start()) {
            info.missed = None;
        }
        info
    }

    fn evidence(&self) -> Evidence {
        self.with_gaps(self.ring.evidence())
    }

    fn checked(&self) -> Evidence {
        self.with_gaps(self.ring.checked())
    }

    fn time_start(&self) -> u64 {
        self.ring.time_start()
    }

    fn latency(&self) -> Latency {
        self.ring.latency()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page;
    use crate::samples::Pages;

    const LAYOUT: HeaderPage = HeaderPage { commit_size: 8, data_offset: 16 };

    /// A sub-buffer whose events have these times, each with 4 bytes.
    fn page(times: &[u64], is_missed: bool) -> Vec<u8> {
        let mut bytes = times[0].to_le_bytes().to_vec();
        bytes
            .extend(((times.len() as u64 * 8) | if is_missed { 1 << 31 } else { 0 }).to_le_bytes());
        let mut before = times[0];
        for time in times {
            bytes.extend((1 | ((*time - before) as u32) << 5).to_le_bytes());
            bytes.extend((*time as u32).to_le_bytes());
            before = *time;
        }
        bytes.resize(256, 0);
        bytes
    }

    fn shown(ring: &Windowed) -> Vec<u64> {
        let mut bytes = Vec::new();
        let mut times = Vec::new();
        for index in 0..ring.cpus()[0].sub_buffers {
            let info = ring.sub_buffer(0, index, &mut bytes);
            let events =
                page::Events::new(&bytes, LAYOUT, ByteOrder::Little, info.committed).flatten();
            times.extend(
                events
                    .filter(|event| event.payload.start >= 16 + info.consumed)
                    .map(|event| event.time),
            );
        }
        times
    }

    /// For each window, the events are those whose times are in it, and events that were
    /// overwritten are told where they may be of it.
    #[test]
    fn the_events_of_the_window_are_shown() {
        let times: Vec<Vec<u64>> =
            vec![vec![100, 110, 110, 130], vec![130, 150], vec![170], vec![170, 171, 200]];
        let pages: Vec<Vec<u8>> =
            times.iter().enumerate().map(|(at, times)| page(times, at == 0)).collect();
        for begin in (0..=210).step_by(5) {
            for end in (begin..=215).step_by(5).chain([u64::MAX]) {
                let cpu = CpuRing { sub_buffers: 4, sub_buffer_size: 256, ..CpuRing::default() };
                let ring = Windowed::new(
                    Arc::new(Pages { cpus: vec![cpu], pages: vec![pages.clone()] }),
                    LAYOUT,
                    ByteOrder::Little,
                    begin..=end,
                );
                let expected: Vec<u64> = times
                    .iter()
                    .flatten()
                    .copied()
                    .filter(|time| (begin..=end).contains(time))
                    .collect();
                assert_eq!(shown(&ring), expected, "{begin}..={end}");
                let is_told = !ring.evidence().gaps.is_empty();
                assert_eq!(is_told, begin > 0 && begin < 100, "{begin}..={end}");
            }
        }
    }
}
