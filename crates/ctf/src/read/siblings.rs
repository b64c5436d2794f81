//! Finds the stream files that a folder of LTTng lacks. Each channel has a file for every CPU, also
//! for one without events; so the files that are there show which are missing.

use super::cpu::cpu;
use super::error::Error;
use super::index;
use super::trace::Trace;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Error as IoError;

/// Returns the stream files that are missing in the folder of a trace, and that no index names.
pub(super) fn missing_files(trace: &Trace) -> Vec<Error> {
    let is_lttng = trace.class().text("tracer_name").is_some_and(|name| name.starts_with("lttng"));
    let Ok(entries) = std::fs::read_dir(&trace.path) else { return Vec::new() };
    if !is_lttng || !trace.streams.iter().all(|stream| is_of_cpu(trace, stream)) {
        return Vec::new();
    }
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut channels: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for (channel, cpu) in
        names.filter(|name| !name.starts_with('.')).filter_map(|name| of_cpu(&name))
    {
        channels.entry(channel).or_default().insert(cpu);
    }
    let all: BTreeSet<u32> = channels.values().flatten().copied().collect();
    let mut missing = Vec::new();
    for (channel, there) in &channels {
        let paths = all.difference(there).map(|cpu| trace.path.join(format!("{channel}_{cpu}")));
        // An index tells better what is missing.
        for path in paths.filter(|path| !index::path_of(path).is_some_and(|index| index.exists())) {
            let what = "there is no such file, and other channels have one for this CPU";
            missing.push(Error::io(&path)(IoError::other(what)));
        }
    }
    let (described, found) = (trace.class().streams.len(), channels.len());
    if (1..described).contains(&found) {
        let what =
            format!("the metadata describe {described} channels, and there are files of {found}");
        missing.push(Error::io(&trace.path)(IoError::other(what)));
    }
    missing
}

/// Returns true if the name of a stream's file has the CPU that its packets have. Files that were
/// rotated have a number of another kind.
fn is_of_cpu(trace: &Trace, stream: &super::trace::Stream) -> bool {
    let [file] = stream.files.as_slice() else { return false };
    let name = file.file_name().and_then(|name| name.to_str()).and_then(of_cpu);
    name.is_some_and(|(_, number)| cpu(trace, stream).is_none_or(|own| own == number))
}

/// Splits the name of a stream's file into channel and CPU.
fn of_cpu(name: &str) -> Option<(String, u32)> {
    let (channel, cpu) = name.rsplit_once('_')?;
    Some((channel.to_owned(), cpu.parse().ok()?))
}
