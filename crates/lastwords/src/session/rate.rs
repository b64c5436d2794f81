//! Measures the rate of earlier sessions, for rings that must contain a given number of seconds.

use super::dirs::Base;
use super::ending;
use super::regions::Regions;

/// Largest number of sessions that are examined.
const MOST_LOOKS: usize = 4;
/// Shortest life, in nanoseconds, that shows a rate.
const SHORTEST: u64 = 100_000_000;

/// Returns the bytes a second of the busiest ring of the first channel, from the newest session of
/// this name that has a rate.
pub(crate) fn measured(base: &Base, name: &str) -> Option<u64> {
    let folders = base.sessions_of(name).ok()?;
    folders
        .iter()
        .take(MOST_LOOKS)
        .find_map(|folder| rate_of(&Regions::open(&base.folder(folder).ok()?).ok()?))
}

fn rate_of(regions: &Regions) -> Option<u64> {
    let (_, first) = regions.view.channels().next()?;
    let streams =
        regions.streams.iter().skip(first.first_stream as usize).take(first.streams as usize);
    let produced = streams
        .map(|region| region.stream.position(0).saturating_add(region.stream.position(1)))
        .max()?;
    let lived = ending::read(&regions.view).at.checked_sub(regions.view.info.created_realtime)?;
    let rate = u128::from(produced) * 1_000_000_000 / u128::from(lived.max(1));
    (lived >= SHORTEST && rate > 0).then(|| u64::try_from(rate).unwrap_or(u64::MAX))
}
