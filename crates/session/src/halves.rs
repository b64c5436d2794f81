//! Plans the halves of a stream with the walker for its kind of reservation.

use super::end::End;
use super::lockless;
use super::outcome::{LISTED, Outcome};
use super::packet::Header;
use super::plan::Planner;
use lastwords_abi::packet::HEADER_LEN;
use lastwords_bytes::{Error, ErrorKind};
use lastwords_trace::evidence::Cause;

impl Planner<'_> {
    /// Plans the events before `end`; plans nothing if there is no end.
    pub(crate) fn limit(mut self, end: Option<End>) -> Result<Outcome, Error> {
        self.end = end;
        self.run(|planner| match end {
            Some(end) if planner.stop_at(&end) => vec![end.half],
            _ => Vec::new(),
        })
    }

    /// Plans the halves that `choose` picks, in that order.
    pub(crate) fn run(
        mut self,
        choose: impl FnOnce(&mut Self) -> Vec<usize>,
    ) -> Result<Outcome, Error> {
        if !self.read_control()? {
            return Ok(self.out);
        }
        for half in choose(&mut self) {
            let words = self.begin_half(half);
            let planned = match self.stream.geometry.is_lockless() {
                true => lockless::half(&mut self, half, words),
                false => self.linear(half, words),
            };
            match planned {
                // This ring costs too much. Others are read.
                Err(error) if error.kind == ErrorKind::Budget => {
                    self.out.notes.push(format!("{error}: the rest of the ring is not read"));
                    self.gap("the rest of the ring".into(), Cause::Missing, None);
                    break;
                }
                planned => planned?,
            }
        }
        Ok(self.outcome())
    }

    /// Skips the sub-buffers from `number` on, before `end`, if there are many of which the file
    /// has nothing. They make one gap. Returns the number of the next sub-buffer.
    pub(crate) fn after_hole(&mut self, half: usize, number: u64, end: u64) -> u64 {
        let g = self.stream.geometry;
        let place = g.place(number);
        // Numbers and places grow together up to the end of the half.
        let last = place.saturating_add(end.saturating_sub(number)).min(g.count);
        let held = self.stream.places_held(half).min(last);
        let next = if place >= held { held } else { self.stream.next_place(half, place, held) };
        let after =
            number.saturating_add(if next >= held { last } else { next }.saturating_sub(place));
        if after.saturating_sub(number) < LISTED {
            return number;
        }
        let (from, to) = (g.start(number), g.start(after));
        let place = format!("positions {from} to {to}, which the file does not have");
        self.gap(place, Cause::Missing, Some(to.saturating_sub(from)));
        after
    }

    /// Numbers in the headers of a half, from `from` on; lower numbers are from before the half was
    /// begun anew.
    pub(crate) fn numbers(&mut self, half: usize, from: u64) -> Result<Vec<u64>, Error> {
        let end = self.stream.places_held(half);
        let mut headers: Vec<Header> = Vec::new();
        let mut place = self.stream.next_place(half, 0, end);
        while place < end {
            self.budget.steps(&self.stream.region.name, 1)?;
            headers.extend(self.header_in(half, place).filter(|header| header.number >= from));
            place = self.stream.next_place(half, place.saturating_add(1), end);
        }
        let numbers = headers.iter().map(|header| header.number).collect();
        if self.is_late {
            self.headers = headers.into_iter().map(|header| (header.number, header)).collect();
        }
        Ok(numbers)
    }

    /// Number in the header at the place of sub-buffer `number`, if the header belongs to this
    /// stream.
    pub(crate) fn number_in(&mut self, half: usize, number: u64) -> Option<u64> {
        self.header_in(half, number).map(|header| header.number)
    }

    /// The header at the place of sub-buffer `number`, if it belongs to this stream.
    fn header_in(&mut self, half: usize, number: u64) -> Option<Header> {
        self.stream.load(half, number, HEADER_LEN, &mut self.buf);
        let header = Header::parse(&self.buf, self.stream.identity.order).ok()?;
        let right = self.stream.identity.header(header.number);
        let is_ours = header.magic == right.magic && header.uuid == right.uuid;
        (is_ours && self.stream.geometry.place(header.number) == self.stream.geometry.place(number))
            .then_some(header)
    }
}
