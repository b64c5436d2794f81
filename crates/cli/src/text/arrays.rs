//! Prints several trace arrays together: names them, relates their clocks, and counts their last
//! events.

use super::Run;
use crate::say;
use crate::table::plain;
use lastwords_ftrace::log::Log;
use lastwords_ftrace::text as ftrace;
use lastwords_open::{Ftrace, Trace};
use std::sync::Arc;

/// Returns the name of an array among others.
pub(super) fn name(array: &Trace, arrays: &[&Trace]) -> String {
    match arrays.iter().all(|other| Arc::ptr_eq(&other.origin, &array.origin)) {
        true => plain(&array.name),
        false => plain(&format!("{}: {}", array.origin.path.display(), array.name)),
    }
}

impl Run<'_> {
    /// Returns how many of its last events each array shows, so that together they are the last
    /// events of all. `None` means all events. If nothing relates the clocks, `--last` counts for
    /// each array.
    pub(super) fn last_of_each(&self, arrays: &[&Trace]) -> anyhow::Result<Vec<Option<u64>>> {
        let Some(last) = self.chosen.last.filter(|_| arrays.len() > 1) else {
            return Ok(vec![self.chosen.last; arrays.len()]);
        };
        let Some(offsets) = offsets(arrays) else {
            say::note(format_args!(
                "the relation between the clocks of these {} instances is not known: --last {last} applies to each of them",
                arrays.len()
            ));
            return Ok(vec![Some(last); arrays.len()]);
        };
        let mut times: Vec<(i64, usize)> = Vec::new();
        for (at, (array, offset)) in arrays.iter().zip(offsets).enumerate() {
            let Some((Ftrace { machine, index, .. }, _)) = self.shown(array) else { continue };
            let mut note = |clock: u64, _: &[u8]| {
                times.push((i64::try_from(clock).unwrap_or(i64::MAX).saturating_add(offset), at));
                Ok(())
            };
            ftrace::each(
                &mut note,
                &machine.tracing,
                index,
                &self.options(array, self.chosen)?,
                Log::none(),
            )?;
        }
        // Among events with the same time, those of the later array come last.
        times.sort_unstable();
        let begin = times.len().saturating_sub(usize::try_from(last).unwrap_or(usize::MAX));
        let mut counts = vec![0; arrays.len()];
        for (_, at) in times.drain(begin..) {
            counts.get_mut(at).into_iter().for_each(|count| *count += 1);
        }
        Ok(counts.into_iter().map(Some).collect())
    }
}

/// Returns for each array the offset to add to readings of its clock so that times can be compared.
/// Returns none if nothing relates the clocks.
pub(super) fn offsets(arrays: &[&Trace]) -> Option<Vec<i64>> {
    let (first, clock) = (arrays.first()?, arrays.first()?.ftrace()?.array.clock.as_ref());
    let is_one = |array: &&Trace| {
        let has_same_clock =
            array.ftrace().is_some_and(|ftrace| ftrace.array.clock.as_ref() == clock);
        has_same_clock && Arc::ptr_eq(&array.origin, &first.origin)
    };
    match arrays.iter().all(is_one) || are_of_one_recording(arrays) {
        true => Some(vec![0; arrays.len()]),
        false => arrays.iter().map(|array| array.ftrace()?.real_time()).collect(),
    }
}

/// Returns true if the files of a host and its guests have all times by the clock of the host.
fn are_of_one_recording(arrays: &[&Trace]) -> bool {
    let times_of = |array: &&Trace| array.ftrace()?.machine.tracing.times_of;
    let first = arrays.first().and_then(times_of);
    first.is_some() && arrays.iter().all(|array| times_of(array) == first)
}
