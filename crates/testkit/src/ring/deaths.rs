//! Recorders that die in the midst of their work.

use super::{Event, Form, InFlight, LIVING, Ring, Sub, Verdict};
use crate::layout::{header as hd, packet as pk, session as se, stream as st};

/// The step at which a recorder died while it switched to the next sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadSwitch {
    /// The recorder had only reserved the bytes.
    Reserved,
    /// The new header is written; the old sub-buffer is not closed.
    HeaderWritten,
    /// The old sub-buffer is closed; the announcement is not withdrawn.
    Left,
}

impl Ring {
    /// Lockless: a recorder dies after it reserved `len` bytes and wrote some of them.
    pub fn die_with_hole(&mut self, owner: u64, clock: u64, len: usize) {
        let event = Event { clock, id: 0, body: vec![0xdb; len.max(hd::FULL_LEN) - hd::FULL_LEN] };
        let Some((at, bytes)) = self.place(&event, Form::Full) else { return };
        self.announce(owner, at, at + bytes.len() as u64, se::STATE_RESERVING);
        self.write(at, &vec![0xdb; bytes.len() / 2]);
    }

    /// Lockless: a recorder dies after it wrote all bytes; with `counted`, also after it committed
    /// them.
    pub fn die_copied(&mut self, owner: u64, event: &Event, counted: bool) {
        let Some((at, bytes)) = self.place(event, Form::Auto) else { return };
        self.announce(owner, at, at + bytes.len() as u64, se::STATE_COPIED);
        self.write(at, &bytes);
        self.remember(at, event);
        if counted {
            self.half().last_clock = event.clock;
            self.commit(at, bytes.len() as u64);
        }
    }

    /// Lockless: a recorder dies after its announcement, before its compare-and-swap.
    pub fn die_announced(&mut self, owner: u64, len: u64) {
        let at = self.half().position;
        let half = self.live;
        let state = se::STATE_RESERVING;
        self.in_flight.push(InFlight {
            owner,
            half,
            begin: at,
            end: at + len,
            confirmed: 0,
            state,
        });
    }

    /// Lockless: a recorder dies while it switches to the next sub-buffer.
    pub fn die_switching(&mut self, owner: u64, clock: u64, how: DeadSwitch) {
        let (from, start) = (self.half().position, self.next_start());
        self.reclaim(start);
        self.announce(owner, from, start + pk::HEADER_LEN as u64, se::STATE_SWITCH);
        self.begin_truth(start / self.spec.size);
        if how == DeadSwitch::Reserved {
            return;
        }
        self.write_header(start, clock);
        if how == DeadSwitch::Left {
            self.leave(from, clock);
        }
    }

    /// Lockless: skips the next sub-buffer, because a living recorder is still writing in that
    /// place in an older lap.
    pub fn pass_over(&mut self, clock: u64) {
        let size = self.spec.size;
        let passed = self.next_start();
        let from = self.half().position;
        let start = passed + size;
        self.reclaim(start);
        self.reserve(start + pk::HEADER_LEN as u64, LIVING);
        let place = self.place_of(passed / size);
        self.half().slots[place].committed += size;
        self.lost[st::SKIPPED] += 1;
        self.half().subs.push(Sub {
            number: passed / size,
            expect: Verdict::Stale,
            events: Vec::new(),
        });
        self.begin_truth(start / size);
        self.write_header(start, clock);
        self.leave(from, clock);
    }

    /// rseq, locked: a recorder dies while it copies an event.
    pub fn die_attempting(&mut self, len: u64) {
        let at = self.half().position;
        self.half().attempt = at + len;
        self.write(at, &vec![0xdb; usize::try_from(len).unwrap_or(0) + 11]);
    }

    /// rseq, locked: a recorder dies while it closes the sub-buffer.
    pub fn die_closing(&mut self, clock: u64, header_bytes: usize) {
        let at = self.half().position;
        self.half().attempt = self.next_start();
        self.write_closing(at, clock, header_bytes);
    }
}
