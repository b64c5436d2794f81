//! The running kernel's tracer, as its files tell of it.

use rustix::time::{ClockId, clock_gettime};
use std::path::Path;

/// Number of readings of two clocks. The pair with the shortest duration is used.
const TRIES: usize = 5;
/// Returns the options that are on in the text of `trace_options`. An option that is off has `no`
/// before its name.
#[must_use]
pub fn options_on(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.starts_with("no")).map(str::to_owned).collect()
}

/// Returns the name of the instance in a folder of tracefs; `top` for the top level.
pub fn instance_name(folder: &Path) -> String {
    let is_instance =
        folder.parent().and_then(Path::file_name).is_some_and(|name| name == "instances");
    let name = folder.file_name().filter(|_| is_instance);
    name.map_or_else(|| "top".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns the clock of user space that a clock of the kernel's tracer follows.
fn clock_id(clock: &str) -> Option<ClockId> {
    match clock {
        "mono" => Some(ClockId::Monotonic),
        "mono_raw" => Some(ClockId::MonotonicRaw),
        "boot" => Some(ClockId::Boottime),
        _ => None,
    }
}

/// Returns the reading of a clock of the kernel's tracer in nanoseconds; none if user space cannot
/// read that clock.
///
/// ```
/// let before = lastwords_open::tracer_now("mono").unwrap();
/// assert!(lastwords_open::tracer_now("mono").unwrap() >= before);
/// assert_eq!(lastwords_open::tracer_now("local"), None);
/// ```
#[must_use]
pub fn tracer_now(clock: &str) -> Option<u64> {
    u64::try_from(now(clock_id(clock)?)).ok()
}

fn now(id: ClockId) -> i64 {
    let time = clock_gettime(id);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// Returns the nanoseconds to add to readings of a clock of the kernel's tracer to get the time
/// since the epoch; none if user space cannot read that clock. A trace.dat file has whole
/// microseconds, so the nearest one is returned.
#[must_use]
pub fn tracer_real_time(clock: &str) -> Option<i64> {
    let id = clock_id(clock)?;
    let pair = |_| {
        let before = now(id);
        let wall = now(ClockId::Realtime);
        let width = now(id).saturating_sub(before);
        (width, wall.saturating_sub(before.saturating_add(width / 2)))
    };
    let (_, offset) = (0..TRIES).map(pair).min()?;
    Some(offset.saturating_add(500).div_euclid(1000).saturating_mul(1000))
}
