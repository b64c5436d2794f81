//! Plans the halves of a stream with the walker for its kind of reservation.

use super::end::End;
use super::lockless;
use super::plan::{Outcome, Planner};
use lastwords_bytes::Error;

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
    pub(crate) fn run(mut self, choose: impl FnOnce(&mut Self) -> Vec<usize>) -> Result<Outcome, Error> {
        if !self.read_control()? {
            return Ok(self.out);
        }
        for half in choose(&mut self) {
            let words = self.begin_half(half);
            if self.stream.geometry.is_lockless() {
                lockless::half(&mut self, half, words)?;
            } else {
                self.linear(half, words)?;
            }
        }
        Ok(self.outcome())
    }
}
