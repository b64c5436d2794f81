//! The corpus of every fuzz target, replayed with the stable toolchain. A file named after a defect
//! is its fixture.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{self, Watchdog};
use crate::targets;

/// Longest that one input may take.
const LIMIT: Duration = Duration::from_secs(5);

#[test]
fn every_input_of_every_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut inputs = Vec::new();
    for (name, target) in targets::ALL {
        let folder = corpus.join(name);
        let entries =
            std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let mut paths: Vec<_> = entries.map(|e| e.expect("an entry").path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{name} has no inputs");
        inputs.extend(paths.into_iter().map(|p| (p, target)));
    }
    assert!(targets::ALL.len() >= 16, "{} targets", targets::ALL.len());
    let watchdog = Watchdog::new("inputs of fuzz targets", LIMIT * 2);
    common::parallel(inputs.len() as u64, |case| {
        let (path, target) = &inputs[case as usize];
        watchdog.case(case);
        let data = std::fs::read(path).expect("an input");
        let begun = Instant::now();
        let done = std::panic::catch_unwind(|| target(&data));
        assert!(done.is_ok(), "{} panics", path.display());
        assert!(begun.elapsed() < LIMIT, "{} takes {:?}", path.display(), begun.elapsed());
    });
}
