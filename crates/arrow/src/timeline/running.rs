//! Makes the rows of `sched`: which thread runs on each CPU, by the events of the scheduler.

use super::{End, Out, Place, extract};
use crate::BATCH_ROWS;
use crate::rows::Cell;
use lastwords_render::missing::StreamKey;
use lastwords_render::picks::{Number, Picked, Words};
use std::collections::BTreeMap;

/// A thread on a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
struct On {
    stream: StreamKey,
    cpu: u32,
    /// Since when it runs; none if events are missing there.
    begin: Option<i64>,
    tid: Option<i64>,
    name: Option<String>,
    priority: Option<i64>,
}

/// The thread that runs on each CPU, by trace and CPU.
#[derive(Default)]
pub(super) struct Running(BTreeMap<(usize, u32), On>);

impl Running {
    /// Returns the thread that runs on a CPU, as far as the last switch says, and the stream of that
    /// switch.
    pub(super) fn thread(&self, trace: usize, cpu: u32) -> Option<(StreamKey, i64)> {
        let on = self.0.get(&(trace, cpu))?;
        Some((on.stream, on.tid?))
    }

    /// A CPU goes on with another thread.
    pub(super) fn switch(&mut self, out: &mut Out<'_>, place: &Place, picked: &Picked) {
        let Some(cpu) = place.cpu else { return };
        let key = (place.stream.0, cpu);
        let state = picked.id(Number::PrevState);
        let on = |tid, name, priority, begin| On {
            stream: place.stream,
            cpu,
            begin,
            tid: picked.id(tid),
            name: picked.words(name),
            priority: picked.id(priority),
        };
        let before = on(Number::PrevTid, Words::PrevName, Number::PrevPriority, None);
        match self.0.remove(&key) {
            // No event is missing since this thread began to run, for it runs until now.
            Some(last) if last.tid.is_some() && last.tid == before.tid && !place.is_lossy.0 => {
                out.running(&last, End::At(place.time), state);
            }
            last => {
                if let Some(last) = last {
                    out.running(&last, End::Unknown, None);
                }
                if before.tid.is_some() {
                    out.running(&before, End::At(place.time), state);
                }
            }
        }
        let next = on(Number::NextTid, Words::NextName, Number::NextPriority, Some(place.time));
        if next.tid.is_some() {
            self.0.insert(key, next);
        }
    }

    /// Events of a stream are missing: it is not known what runs.
    pub(super) fn lost(&mut self, out: &mut Out<'_>, stream: StreamKey) {
        for on in extract(&mut self.0, |_, on| on.stream == stream) {
            out.running(&on, End::Unknown, None);
        }
    }

    /// The recording has ended. `is_whole` says that no event is missing at the end of a stream.
    pub(super) fn finish(&mut self, out: &mut Out<'_>, is_whole: impl Fn(StreamKey) -> bool) {
        for on in std::mem::take(&mut self.0).into_values() {
            let end = if is_whole(on.stream) { End::Open } else { End::Unknown };
            out.running(&on, end, None);
        }
    }
}

impl Out<'_> {
    fn running(&mut self, on: &On, end: End, state: Option<i64>) {
        let Some(facts) = self.beside.get(on.stream.0).map(|beside| &beside.facts) else { return };
        let end_at = end.time();
        self.running.row(&[
            Cell::Text(Some(&facts.crash_id)),
            Cell::Text(Some(&facts.name)),
            Cell::Number(on.begin),
            Cell::Time(on.begin.filter(|_| facts.is_dated)),
            Cell::Number(end_at),
            Cell::Number(end_at.zip(on.begin).and_then(|(end, begin)| end.checked_sub(begin))),
            Cell::Bool(end.is_open()),
            Cell::Number(Some(on.cpu.into())),
            Cell::Number(on.tid),
            Cell::Text(on.name.as_deref()),
            Cell::Number(on.priority),
            Cell::Number(state),
        ]);
        self.flush(BATCH_ROWS);
    }
}
