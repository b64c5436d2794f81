//! Writes files `perf.data` of the buffers of perf in the memory of kernels.

use super::{Done, Format, Job, Line, check_is_no_file, folder, is_stdout};
use crate::account::{self, LIMIT};
use crate::input::Input;
use crate::say;
use crate::table::plain;
use anyhow::{Context, bail};
use lastwords_open::{DumpedKernel, FileNames, Losses, Severity};
use lastwords_perf::{Perf, Recording};
use lastwords_render::create_file;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes the buffers of all recordings: into one file, or with a file for each into a folder.
/// Returns the worst fault of an input beside the result.
///
/// # Errors
/// No input is a dump of a kernel; there are several recordings for one file; the output cannot be
/// written.
pub(crate) fn perf_data(
    input: &Input,
    job: Job<'_>,
    is_one: bool,
) -> anyhow::Result<(Done, Option<Severity>)> {
    let others = "text, json, perfetto, otlp, parquet and arrow";
    job.events.refuse("records of perf are copied", others)?;
    if input.hides_fields() {
        bail!("--redact and --redact-hash are not for perf-data, which is a copy");
    }
    if is_stdout(job.output) {
        bail!("-: perf-data is a file, which stdout cannot be; name one (./- for one called so)");
    }
    let (kernels, failures) = input.kernels()?;
    let mut parts: Vec<(&DumpedKernel, Perf)> =
        kernels.iter().map(|dump| (dump, Perf::read(&dump.kernel))).collect();
    let recordings: Vec<Vec<Recording>> = parts.iter().map(|(_, perf)| perf.recordings()).collect();
    let all = || recordings.iter().flatten();
    let mut done = Done { nothing: all().next().is_none(), ..Done::default() };
    if is_one {
        check_one(all())?;
        job.check_room(job.output)?;
    } else if !done.nothing {
        check_is_no_file(job.output)?;
        folder(job.output)?;
    }
    let mut names = FileNames::default();
    for ((dump, perf), recordings) in parts.iter_mut().zip(&recordings) {
        dump.notes.iter().for_each(|note| say::note(plain(note)));
        for recording in recordings {
            let name = names.unique(&format!("perf-{}", recording.owner.pid));
            let path = if is_one {
                job.output.to_owned()
            } else {
                Format::PerfData.path(job.output, &name)
            };
            let line = write(&job, dump, perf, recording, &path)?;
            job.add_line(line, &mut done);
        }
    }
    if done.nothing {
        say::note("no buffer of perf has records that its process had not read");
    }
    // The accounts have the losses of all files, and more.
    done.losses = Losses::default();
    for (dump, perf) in parts {
        let account = account::of_memory(dump, "perf", perf.evidence);
        done.losses.add(&Losses::from_accounts(std::slice::from_ref(&account)));
        let mut text = Vec::new();
        account.write(LIMIT, &mut text)?;
        if !job.json {
            say::remark(text);
        }
    }
    let worst_failure = failures.iter().map(|failure| failure.severity).max();
    Ok((job.end(done)?, worst_failure))
}

/// Checks that one file can hold the recordings.
fn check_one<'r>(recordings: impl Iterator<Item = &'r Recording>) -> anyhow::Result<()> {
    let words: Vec<String> = recordings
        .map(|recording| format!("{} ({})", plain(&recording.owner.comm), recording.owner.pid))
        .collect();
    if words.len() > 1 {
        bail!(
            "a file perf.data has one recording, and there are several: {}; `lastwords recover --to perf-data` writes a file for each",
            words.join(", ")
        );
    }
    Ok(())
}

/// Writes one recording. Returns the facts about the file.
fn write(
    job: &Job<'_>,
    dump: &DumpedKernel,
    perf: &mut Perf,
    recording: &Recording,
    path: &Path,
) -> anyhow::Result<Line> {
    job.make_room(path)?;
    let mut out = BufWriter::new(create_file(path)?);
    let written = perf.write_data(recording, &mut out);
    let written = written.and_then(|written| out.flush().map(|()| written));
    let written = written.with_context(|| path.display().to_string())?;
    let account = account::of_memory(dump, "perf", perf.losses_of(&recording.owner));
    Ok(Line {
        path: path.to_owned(),
        session: recording.owner.comm.clone(),
        from: dump.path.clone(),
        events: Some(written.records),
        streams: recording.buffers.len() as u64,
        bytes: written.bytes,
        losses: Losses::from_accounts(&[account]),
        ..Line::default()
    })
}
