//! Judges what one of the two guests has recorded as a host.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::super::compare::Rows;
use rig::run_quietly;

/// Rounds of markers.
const ROUNDS: usize = 100;

/// Judges the files of one side.
pub(super) fn side(out: &Path, lastwords: &Path, rows: &mut Rows) -> Result<()> {
    let is_late = out.join("dead.said").exists();
    let role = if is_late { "late" } else { "early" };
    let failed = read(out, "failed").unwrap_or_default();
    rows.row(failed.is_empty(), &format!("{role}: everything came in time"), failed.trim());
    for case in ["mono", "boot"] {
        order(out, case, is_late, lastwords, rows).with_context(|| format!("{role} {case}"))?;
        clean(out, role, case, rows)?;
    }
    if is_late { failures(out, lastwords, rows) } else { Ok(()) }
}

fn read(out: &Path, name: &str) -> Result<String> {
    let path = out.join(name);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

/// Nothing of a recording is left in the guest.
fn clean(out: &Path, role: &str, case: &str, rows: &mut Rows) -> Result<()> {
    let (before, after) = (read(out, "state.before")?, read(out, &format!("{case}.state"))?);
    let what = format!("{role} {case}: the guest's tracer is as before");
    rows.row(before == after, &what, if before == after { "yes" } else { after.trim() });
    Ok(())
}

/// The merged order of the markers is that in which they were made, by trace-cmd and by us.
fn order(out: &Path, case: &str, is_late: bool, lastwords: &Path, rows: &mut Rows) -> Result<()> {
    let role = if is_late { "late" } else { "early" };
    let status = read(out, &format!("{case}.status"))?;
    let said = read(out, &format!("{case}.said"))?;
    rows.row(status.trim() == "0", &format!("{role} {case}: status"), said.trim());
    let files = [out.join(format!("{case}.dat")), out.join(format!("{case}-guest.dat"))];
    let mut by_trace_cmd = Command::new("trace-cmd");
    by_trace_cmd.args(["report", "-t"]);
    files.iter().for_each(|file| _ = by_trace_cmd.arg("-i").arg(file));
    let mut by_us = Command::new(lastwords);
    by_us.arg("report").args(&files);
    let (theirs, ours) = (run_quietly(&mut by_trace_cmd)?, run_quietly(&mut by_us)?);
    let right = rounds(&theirs);
    let count = right.iter().filter(|round| **round).count();
    rows.row(
        // Markers that are closer than the error may change places; `clocks` judges by how much.
        count * 10 >= ROUNDS * 9 && right.len() == ROUNDS,
        &format!("{role} {case}: trace-cmd shows host, guest, host"),
        &format!("in {count} of {} rounds", right.len()),
    );
    let same = rounds(&ours) == right;
    let detail = if same { "the same order in all rounds" } else { ours.as_str() };
    rows.row(same, &format!("{role} {case}: report, beside trace-cmd"), detail);
    kernelshark(&files, &theirs, &format!("{role} {case}"), rows)?;
    clocks(&said, &theirs, is_late, &format!("{role} {case}"), rows)
}

/// The words of the markers of a round, in the order in which they are made.
fn words(round: usize) -> [String; 3] {
    ["begins", "is here", "ends"].map(|word| format!("round {round} {word}"))
}

/// Returns for each round that a text has whether its markers have their order.
fn rounds(text: &str) -> Vec<bool> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let place = |word: &String| lines.iter().position(|line| line.ends_with(word.as_str()));
    let of = |round: usize| {
        let places = words(round).each_ref().map(place);
        let is_between = matches!(places, [Some(begins), Some(here), Some(ends)] if begins < here && here < ends);
        places.iter().any(Option::is_some).then_some(is_between)
    };
    (1..=ROUNDS).filter_map(of).collect()
}

/// KernelShark's library loads the two files as one trace: all events of each, in an order of time,
/// with the markers at the times that trace-cmd shows.
fn kernelshark(files: &[PathBuf; 2], theirs: &str, what: &str, rows: &mut Rows) -> Result<()> {
    let mut python = Command::new("python3");
    let shown = run_quietly(python.args(["-c", include_str!("kshark.py")]).args(files))?;
    let entries: Vec<(&str, i64)> = shown
        .lines()
        .filter_map(|line| {
            let mut fields = line.split('\t');
            Some((fields.next()?, fields.next()?.parse().ok()?))
        })
        .collect();
    let of = |number: &str| entries.iter().filter(|(file, _)| *file == number).count();
    let counts = [of("0"), of("1")];
    let mut by_trace_cmd = [0; 2];
    for (count, file) in by_trace_cmd.iter_mut().zip(files) {
        let text = run_quietly(Command::new("trace-cmd").args(["report", "-i"]).arg(file))?;
        *count = text.lines().filter(|line| line.contains(" [00")).count();
    }
    let is_rising = entries.is_sorted_by_key(|(_, time)| *time);
    let turns = entries.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
    rows.row(
        counts == by_trace_cmd && is_rising && turns >= ROUNDS,
        &format!("{what}: KernelShark's library, beside trace-cmd"),
        &format!("{counts:?} of {by_trace_cmd:?} events; from one file to the other {turns} times"),
    );
    let time = |word: &String| -> Option<i64> {
        let line = shown.lines().find(|line| line.ends_with(word.as_str()))?;
        line.split('\t').nth(1)?.parse().ok()
    };
    let all: Vec<String> = (1..=ROUNDS).flat_map(words).collect();
    let same = all.iter().filter(|word| time(word).is_some() && time(word) == marked(theirs, word));
    let count = same.count();
    rows.row(
        count == all.len(),
        &format!("{what}: KernelShark's times of the markers"),
        &format!("{count} of {} are those of trace-cmd", all.len()),
    );
    Ok(())
}

/// Returns the time of a marker in a text of trace-cmd, in nanoseconds. trace-cmd puts no dot into
/// the times of some clocks, and no blank before them.
fn marked(text: &str, word: &str) -> Option<i64> {
    let line = text.lines().find(|line| line.trim_end().ends_with(word))?;
    let (head, _) = line.split_once(": print:").or(line.split_once(": tracing_mark_write:"))?;
    head.rsplit([' ', ']']).next()?.replace('.', "").parse().ok()
}

/// The difference that was said has the right sign, and no marker is further from its place than the
/// error that was said.
fn clocks(said: &str, text: &str, is_late: bool, what: &str, rows: &mut Rows) -> Result<()> {
    let line = said.lines().find(|line| line.contains("its clock is")).context("no clock")?;
    let word = if is_late { "s ahead of" } else { "s behind" };
    let error = line.split("is wrong by ").nth(1).and_then(|rest| rest.split(' ').next());
    let error: f64 = error.context("no error")?.parse()?;
    let (mut widths, mut beyond, slack) = (Vec::new(), 0, (error * 1e3) as i64);
    for round in 1..=ROUNDS {
        let times: Option<Vec<i64>> = words(round).iter().map(|word| marked(text, word)).collect();
        let times = times.with_context(|| format!("round {round} has no times"))?;
        let [begins, here, ends] = times[..] else { continue };
        beyond += usize::from(!(begins - slack <= here && here <= ends + slack));
        widths.push((ends - begins) / 1000);
    }
    let detail = format!("{beyond} of {ROUNDS} rounds are wrong by more than {error} us");
    rows.row(beyond == 0, &format!("{what}: the error that was said"), &detail);
    let least = widths.iter().min().copied().unwrap_or(0);
    let detail = format!("{line}; the shortest round took {least} us");
    rows.row(line.contains(word), &format!("{what}: the sign of the difference"), &detail);
    Ok(())
}

/// Refusals, and recordings whose host or agent is gone.
fn failures(out: &Path, lastwords: &Path, rows: &mut Rows) -> Result<()> {
    for (case, why) in [
        ("trigger", "an agent takes no triggers"),
        ("unknown", "nothing:like_this: this kernel has no such event"),
        ("clock", "only mono, mono_raw and boot"),
        ("size", "ring of"),
        ("busy", "the agent records for another host"),
    ] {
        let (said, status) =
            (read(out, &format!("{case}.said"))?, read(out, &format!("{case}.status"))?);
        let is_refused = said.contains(why) && status.trim() != "0";
        rows.row(is_refused, &format!("refused: {case}"), said.trim());
    }
    for case in ["refused", "killed", "silent", "dead"] {
        clean(out, "late", case, rows)?;
    }
    for case in ["silent", "dead"] {
        let (said, status) =
            (read(out, &format!("{case}.said"))?, read(out, &format!("{case}.status"))?);
        let is_said = said.contains("its recording ended early") && status.trim() == "3";
        rows.row(is_said, &format!("{case}: the host says it"), said.trim());
        let mut report = Command::new(lastwords);
        report.arg("report").arg(out.join(format!("{case}-guest.dat")));
        // Its status tells of the loss.
        let shown = report.output().context("report")?;
        let text = String::from_utf8_lossy(&shown.stdout);
        rows.row(
            text.contains("a last word"),
            &format!("{case}: the events that the guest had sent are there"),
            &format!("{} lines", text.lines().count()),
        );
    }
    let left: Vec<_> = std::fs::read_dir(out)?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| name.ends_with(".stream"))
        .collect();
    // The host that was killed leaves what came; nothing else does.
    rows.row(left.len() == 1, "one spool is left, of the killed host", &left.join(" "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_in_another_order_is_seen() {
        let text = |order: [usize; 3]| -> String {
            let of =
                |round: usize| order.map(|at| format!("x: print: {}\n", words(round)[at])).concat();
            (1..=ROUNDS).map(of).collect()
        };
        assert_eq!(rounds(&text([0, 1, 2])), vec![true; ROUNDS]);
        for wrong in [[1, 0, 2], [0, 2, 1], [0, 0, 2]] {
            assert_eq!(rounds(&text(wrong)), vec![false; ROUNDS]);
        }
        assert!(rounds("").is_empty());
    }
}
