//! Sessions that were recovered beside what LTTng itself recorded of them, stream by stream.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::compare::{Ours, Rows};
use crate::dump::Dump;
use rig::make_empty;
use rig::scratch::files_below;

/// The first word of a packet; its stream's id is at offset 20, its CPU at 80.
const MAGIC: u32 = 0xc1fc_1fc1;

/// One stream: id of its channel and its CPU.
type Key = (u32, u32);

/// Where a stream is: its trace's folder and its file.
struct Stream {
    folder: PathBuf,
    file: PathBuf,
}

/// Events as babeltrace2 prints them, a line each, and whether it tells of lost packets.
struct Events {
    lines: Vec<String>,
    has_lost_packets: bool,
}

/// Recovers each dump and compares.
///
/// # Errors
/// The truth cannot be read.
pub(super) fn judge(
    rows: &mut Rows,
    ours: &Ours<'_>,
    dump: &Dump,
    truth: &Path,
    is_stopped: bool,
    module: &Path,
) -> Result<()> {
    let out = truth.with_file_name(format!("recovered-{}", dump.format));
    let told = ours.run("recover", dump, &["-o", &out.display().to_string(), "--json"]);
    if let Err(error) = told {
        rows.row(false, dump.format, &format!("{error:#}"));
        return Ok(());
    }
    let mut events = 0;
    for entry in std::fs::read_dir(truth)?.flatten().filter(|e| e.path().is_dir()) {
        let session = entry.file_name().to_string_lossy().into_owned();
        let (theirs, own) = (streams(&entry.path())?, streams(&out.join(&session))?);
        for (key, stream) in &theirs {
            let what = format!("{} {session} channel {} CPU {}", dump.format, key.0, key.1);
            let truth = read(stream)?;
            let own = own.get(key).map(read).transpose()?.map_or(Vec::new(), |found| found.lines);
            events += truth.lines.len();
            compare(rows, &what, &truth, &own, is_stopped, dump.is_cut);
        }
    }
    rows.row(events > 0, &format!("{} truth", dump.format), &format!("{events} events"));
    other_version(rows, ours, dump, &out)?;
    other_types(rows, ours, dump, &out, module)?;
    std::fs::remove_dir_all(&out)?;
    Ok(())
}

fn compare(
    rows: &mut Rows,
    what: &str,
    truth: &Events,
    ours: &[String],
    is_stopped: bool,
    is_cut: bool,
) {
    let (Some(first), Some(last)) = (ours.first().map(|l| time(l)), ours.last().map(|l| time(l)))
    else {
        let ok = truth.lines.is_empty() || is_cut;
        return rows.row(ok, what, &format!("no events, the truth has {}", truth.lines.len()));
    };
    let known: std::collections::HashSet<&str> = truth.lines.iter().map(String::as_str).collect();
    let own: std::collections::HashSet<&str> = ours.iter().map(String::as_str).collect();
    let in_reach = |line: &&String| is_stopped || (first..=last).contains(&time(line));
    let missing =
        truth.lines.iter().filter(in_reach).filter(|line| !own.contains(line.as_str())).count();
    // What LTTng gave up after the dump was made, it does not have.
    let begin = truth.lines.first().map_or("", |line| time(line));
    let invented =
        |line: &&String| !known.contains(line.as_str()) && (is_stopped || time(line) >= begin);
    let invented = if truth.has_lost_packets { 0 } else { ours.iter().filter(invented).count() };
    let ok = (missing == 0 || is_cut) && invented == 0;
    rows.row(
        ok,
        what,
        &format!(
            "{} events, the truth has {}; missing {missing}, invented {invented}",
            ours.len(),
            truth.lines.len()
        ),
    );
}

/// `[1795287190.834420755] …`: the time, whose digits are as many in each line.
fn time(line: &str) -> &str {
    line.strip_prefix('[').and_then(|rest| rest.split(']').next()).unwrap_or_default()
}

/// Streams of all traces under a folder, of which each has one file in each trace.
fn streams(folder: &Path) -> Result<BTreeMap<Key, Stream>> {
    let mut found = BTreeMap::new();
    let files = files_below(folder).unwrap_or_default().into_iter();
    for file in files.filter(|file| file.file_name().is_some_and(|name| name != "metadata")) {
        let bytes = std::fs::read(&file).with_context(|| file.display().to_string())?;
        let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        // Index files stand beside.
        if let (Some(MAGIC), Some(channel), Some(cpu)) = (word(0), word(20), word(80)) {
            let folder = file.parent().unwrap_or(folder).to_path_buf();
            found.insert((channel, cpu), Stream { folder, file });
        }
    }
    Ok(found)
}

/// Has babeltrace2 print one stream alone.
fn read(stream: &Stream) -> Result<Events> {
    let alone = std::env::temp_dir().join(format!("lastwords-lab-{}", std::process::id()));
    make_empty(&alone)?;
    std::os::unix::fs::symlink(
        std::path::absolute(stream.folder.join("metadata"))?,
        alone.join("metadata"),
    )?;
    std::os::unix::fs::symlink(std::path::absolute(&stream.file)?, alone.join("stream"))?;
    let read = babeltrace(&alone);
    std::fs::remove_dir_all(&alone)?;
    read
}

fn babeltrace(folder: &Path) -> Result<Events> {
    let program = rig::bin().join("babeltrace2.1");
    let output =
        Command::new(&program).args(["--no-delta", "--clock-seconds"]).arg(folder).output();
    let output =
        output.with_context(|| format!("{}; run `cargo xtask setup`", program.display()))?;
    anyhow::ensure!(
        output.status.success(),
        "babeltrace2: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok(Events {
        lines: String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect(),
        has_lost_packets: told
            .lines()
            .any(|line| line.contains("discarded") && line.contains(" packet")),
    })
}

/// Described in either version of CTF, the events are the same.
fn other_version(rows: &mut Rows, ours: &Ours<'_>, dump: &Dump, out: &Path) -> Result<()> {
    let before = babeltrace(out)?.lines;
    for version in ["ctf", "ctf2"] {
        let to = out.with_extension(version);
        ours.run("recover", dump, &["-o", &to.display().to_string(), "--to", version])?;
        let after = babeltrace(&to)?.lines;
        let what = format!("{} --to {version}", dump.format);
        rows.row(
            before == after,
            &what,
            &format!("{} events, {} in the tracer's own", after.len(), before.len()),
        );
        std::fs::remove_dir_all(&to)?;
    }
    Ok(())
}

/// Wherever the types of the tracer's modules come from, the packets are the same.
fn other_types(
    rows: &mut Rows,
    ours: &Ours<'_>,
    dump: &Dump,
    out: &Path,
    module: &Path,
) -> Result<()> {
    let module = module.display().to_string();
    let sources: [(&str, &[&str]); 2] = [
        ("layouts of the releases", &["--known-layouts"]),
        ("the module's DWARF", &["--module", &module]),
    ];
    for (name, options) in sources {
        let what = format!("{} by {name}", dump.format);
        let to = out.with_extension("types");
        if let Err(error) =
            ours.run("recover", dump, &[&["-o", &to.display().to_string()], options].concat())
        {
            rows.row(false, &what, &format!("{error:#}"));
            continue;
        }
        let (before, after) = (contents(out)?, contents(&to)?);
        let files = before.len();
        rows.row(
            files > 0 && before == after,
            &what,
            &format!("{} files, {files} by the image's types", after.len()),
        );
        std::fs::remove_dir_all(&to)?;
    }
    Ok(())
}

/// All files below a folder, by their paths in it.
fn contents(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok((path.strip_prefix(folder)?.to_path_buf(), bytes))
    };
    files_below(folder)?.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_line() {
        assert_eq!(time("[1795287190.834420755] host sched_switch: { }"), "1795287190.834420755");
        assert_eq!(time("no event"), "");
    }
}
