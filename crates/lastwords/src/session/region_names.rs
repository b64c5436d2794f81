//! The names of a session's regions, which are also the names of their files.

use lastwords_folders::PLACES_FILE;
use lastwords_ring::backend::ARENA_FILE;

/// Names of the regions, which are also the names of their files.
pub const SESSION: &str = "session";

/// Name of the region of the registry.
pub const REGISTRY: &str = "registry";

/// Name of the region of open spans.
pub const SPANS: &str = "spans";

/// Name of the region of counters and histograms.
pub const COUNTERS: &str = "counters";

/// Returns the name of a stream's region.
pub fn stream_name(index: u32) -> String {
    format!("stream-{index:04}")
}

/// Beginning of the names of files of streams whose channel is being created.
const UNFINISHED: &str = ".new-";

/// Returns the name of a stream's file while its channel is being created.
pub(crate) fn unfinished_stream_name(index: u32) -> String {
    format!("{UNFINISHED}{}", stream_name(index))
}

/// Returns the index of the stream whose file has this name, and whether its channel was still
/// being created.
pub fn stream_of_file(name: &str) -> Option<(u32, bool)> {
    let (name, is_unfinished) =
        name.strip_prefix(UNFINISHED).map_or((name, false), |name| (name, true));
    let digits = name
        .strip_prefix("stream-")
        .filter(|index| index.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some((digits.parse().ok()?, is_unfinished))
}

/// Returns true if a file of this name in a session's folder belongs to the session.
pub(crate) fn is_file(name: &str) -> bool {
    let stream = || stream_of_file(name).is_some();
    [SESSION, REGISTRY, SPANS, COUNTERS, PLACES_FILE, ARENA_FILE].contains(&name) || stream()
}
