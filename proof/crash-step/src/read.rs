//! Reads a half, plainly: the rules of all reservations, and those of each.

use super::lockless::{self, InFlight};
use super::naive::{Geometry, Half, Packet, Raw, u64_at};

impl Half {
    /// Reads a half, of which `in_flight` are the reservations.
    pub(crate) fn read(&mut self, geometry: &Geometry, raw: Raw<'_>, in_flight: &[InFlight]) {
        self.events.clear();
        self.sub_buffers.clear();
        self.faults.clear();
        (self.holes, self.clock) = (0, 0);
        let reserve = u64_at(raw.control, 0);
        self.produced = if geometry.lockless { reserve & lockless::POSITION } else { reserve };
        self.first = u64_at(raw.control, 64);
        self.consumed = u64_at(raw.control, 128);
        let (last, size) = (self.produced / geometry.size, geometry.size);
        let end = self.produced.div_ceil(size);
        self.lowest = (self.first / size).max(end.saturating_sub(geometry.count));
        self.half_begun = self.produced < self.first;
        if self.half_begun {
            return;
        }
        let attempted = u64_at(raw.control, 8) != self.produced;
        for number in self.lowest..end {
            let at = (number % geometry.count * size) as usize;
            let packet = Packet { number, at, bytes: &raw.data[at..at + size as usize] };
            if geometry.lockless {
                lockless::read(self, geometry, raw, &packet, in_flight);
            } else if number + geometry.count == last
                && attempted
                && !Self::is_whole(geometry, &packet)
            {
                // A recorder began the next sub-buffer in its place and did not come to an end.
                self.lowest = number + 1;
            } else if number < last {
                self.read_closed(geometry, &packet);
            } else {
                self.read_open(geometry, &packet, self.produced - number * size);
            }
        }
    }
}
