//! Histograms out of the dump of a guest, beside what the kernel printed of them before it panicked.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::compare::{Ours, Rows};
use super::dump::{self, Dump};
use super::pages::Pages;
use super::qemu::Config;
use super::texts::read;
use super::{Arch, DISK, DISK_MODULES, QEMU_MODULES, Setup, guest_base, unpack};

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "hist-dump";
pub(super) const WHAT: &str =
    "histograms of the kernel's triggers out of a dump, beside the kernel's own text";

/// The dumps: with all pages, and without those that makedumpfile leaves out.
const FORMATS: &[&str] = &["elf", "d31-zlib"];
/// The instances in whose histograms rows may be equal by the sort keys: the kernel's sort is not
/// stable.
const WITH_EQUAL_ROWS: &[&str] = &["stacks", "actions"];
/// Events that have histograms in every kernel.
const LEAST: usize = 12;

/// Texts of histograms by instance and event.
type Texts = BTreeMap<(String, String), String>;

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    let modules = [DISK_MODULES, QEMU_MODULES].concat();
    let init = include_bytes!("../guest/hist-dump.sh");
    let archive = guest_base(kernel, &store.busybox(Arch::Amd64)?, init, &modules)?;
    let initramfs = archive.write(folder)?;
    let disk = folder.join("out.tar");
    std::fs::File::create(&disk)?.set_len(DISK)?;
    let qemu = super::qemu(store, Arch::Amd64)?;
    let config = Config {
        arguments: "loglevel=4 panic=0 no_timer_check",
        disks: std::slice::from_ref(&disk),
        ..Config::new(Arch::Amd64, &qemu, [&kernel.image, &initramfs, folder])
    };
    let (dumps, _) = dump::of_panic(&config, store, FORMATS)?;
    unpack(&disk, folder)?;
    let truth = texts(&read(&folder.join("out/kernel"))?)?;
    ensure!(truth.len() >= LEAST, "the kernel has {} events with histograms", truth.len());
    let ours = Ours { program: lastwords };
    let [whole, cut] = dumps.as_slice() else { bail!("{} dumps", dumps.len()) };
    let pages = Pages::new(&whole.files[0], &cut.files[0])?;
    for dump in &dumps {
        rows.part(dump.format, |rows| judge(rows, &ours, dump, &truth, &pages));
    }
    Ok(())
}

fn judge(
    rows: &mut Rows,
    ours: &Ours<'_>,
    dump: &Dump,
    truth: &Texts,
    pages: &Pages,
) -> Result<()> {
    let format = dump.format;
    let shown = ours.output("report", dump, &["--histograms"])?;
    let own = texts(&String::from_utf8(shown.stdout)?)?;
    let said = ours.output("report", dump, &["--histograms", "--json"])?;
    let said: Value = serde_json::from_slice(&said.stdout)?;
    let kernel = &said["kernels"][0];
    let evidence = &kernel["evidence"];
    // Nothing at all is status 1, as for a kernel without histograms.
    let expected = if own.is_empty() { 1 } else { 0 };
    let status = shown.status.code();
    rows.row(status == Some(expected), &format!("{format} status"), &format!("{status:?}"));
    // makedumpfile leaves out pages of a kernel that it does not know.
    if dump.is_cut && evidence["losses"] == true {
        let places = pages.judge(rows, format, evidence)?;
        judge_cut(rows, format, &own, truth, &places)?;
        let strict = ours.output("report", dump, &["--histograms", "--strict"])?;
        let status = strict.status.code();
        rows.row(status == Some(3), &format!("{format} --strict"), &format!("{status:?}"));
        return Ok(());
    }
    for ((instance, event), truth) in truth {
        let what = format!("{format} {instance} {event}");
        let own = own.get(&(instance.clone(), event.clone())).cloned();
        let own = own.context("it is not there");
        let (truth, own) = match WITH_EQUAL_ROWS.contains(&instance.as_str()) {
            true => (in_order(truth), own.map(|text| in_order(&text))),
            false => (truth.clone(), own),
        };
        rows.same_text(&what, truth.as_bytes(), &own.map(String::into_bytes));
    }
    rows.row(own.len() == truth.len(), &format!("{format} events"), &own.len().to_string());
    let histograms = kernel["histograms"].as_array().context("histograms")?;
    for (word, key) in [("Hits: ", "hits"), ("Entries: ", "entries"), ("Dropped: ", "dropped")] {
        let lines = truth.values().flat_map(|text| text.lines());
        let totals = lines.filter_map(|line| line.trim().strip_prefix(word)?.parse::<u64>().ok());
        let truth: u64 = totals.sum();
        let own: u64 = histograms.iter().filter_map(|one| one[key].as_u64()).sum();
        rows.row(truth == own, &format!("{format} {key} of --json"), &format!("{truth} {own}"));
    }
    let all = histograms.iter().filter_map(|one| Some(one["rows"].as_array()?.len()));
    let count: usize = all.sum();
    let entries: u64 = histograms.iter().filter_map(|one| one["entries"].as_u64()).sum();
    rows.row(count as u64 == entries, &format!("{format} rows of --json"), &count.to_string());
    let detail = evidence.to_string();
    let is_whole = evidence["losses"] == false && !detail.contains("unknown");
    rows.row(is_whole, &format!("{format} account without losses"), &detail);
    let seen = String::from_utf8(ours.run("inspect", dump, &[])?)?;
    let told = format!("{} histograms", histograms.len());
    rows.row(seen.contains(&told), &format!("{format} inspect"), &told);
    Ok(())
}

/// Judges a dump that lacks pages of histograms: no line is wrong, and each histogram is as the
/// kernel printed it, or named among the losses.
fn judge_cut(
    rows: &mut Rows,
    format: &str,
    own: &Texts,
    truth: &Texts,
    losses: &[String],
) -> Result<()> {
    for (place, text) in own {
        let (instance, event) = place;
        let truth = truth.get(place).with_context(|| format!("{event} has no histogram"))?;
        let is_known = |line: &&str| !line.contains("unknown");
        let mut wrong = text.lines().filter(is_known).filter(|line| !truth.contains(line));
        let shown = wrong.next().unwrap_or("no wrong line");
        let what = format!("{format} {instance} {event}, not whole");
        rows.row(shown == "no wrong line", &what, shown);
    }
    for (place, text) in truth {
        let (instance, event) = place;
        let name = match instance.as_str() {
            "" => format!("the histogram of {event}: "),
            instance => format!("the histogram of {event} in instance {instance}: "),
        };
        let (all, there) =
            (histograms(text), own.get(place).map_or(Vec::new(), |own| histograms(own)));
        let missing = losses.iter().filter(|loss| loss.starts_with(&name)).count();
        let in_part = there.iter().filter(|own| !all.contains(own)).count();
        let told = losses.iter().any(|loss| !loss.starts_with(&name) && loss.contains(&name));
        // Which histograms there are is not known without the instance's list of events.
        let list = format!("the events of instance {instance} have a hole: ");
        let has_hole = losses.iter().any(|loss| loss.contains(&list));
        let is_told = there.len() + missing == all.len() && (in_part == 0 || told);
        let (shown, all) = (there.len(), all.len());
        let detail = format!(
            "{shown} of {all}, {in_part} in part: {told}; {missing} named; hole in its list: {has_hole}"
        );
        rows.row(is_told || has_hole, &format!("{format} {instance} {event}"), &detail);
    }
    Ok(())
}

/// Divides the text of an event by histogram. The order of rows that are equal by the sort keys is
/// not that of the kernel.
fn histograms(text: &str) -> Vec<String> {
    let parts = text.split("# event histogram").skip(1);
    parts.map(|part| in_order(part.trim_end())).collect()
}

/// Divides what the kernel printed, or what we print, by event.
fn texts(all: &str) -> Result<Texts> {
    let mut texts = Texts::new();
    for part in all.split("# instance: ").skip(1) {
        let (instance, rest) = part.split_once("\n# event: ").context("the name of an event")?;
        let (event, text) = rest.split_once('\n').context("a text")?;
        let text = text.trim_end().to_owned() + "\n";
        texts.insert((instance.to_owned(), event.to_owned()), text);
    }
    Ok(texts)
}

/// Sorts the rows of each histogram of a text.
fn in_order(text: &str) -> String {
    let mut histograms: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("# event histogram") || histograms.is_empty() {
            histograms.push(Vec::new());
        }
        let Some(parts) = histograms.last_mut() else { continue };
        let is_row = line.starts_with("{ ");
        let is_in_row = parts.last().is_some_and(|last| last.starts_with("{ ")) && !line.is_empty();
        match parts.last_mut().filter(|_| is_in_row && !is_row) {
            Some(row) => *row += &format!("\n{line}"),
            None => parts.push(line.to_owned()),
        }
    }
    for parts in &mut histograms {
        for rows in parts.chunk_by_mut(|a, b| a.starts_with("{ ") == b.starts_with("{ ")) {
            if rows.first().is_some_and(|row| row.starts_with("{ ")) {
                rows.sort();
            }
        }
    }
    histograms.concat().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_texts_divided() {
        let text = "# event histogram\n\n{ b:\n  f\n} 1\n{ a: } 1\n\tmax: 2\n\nTotals:\n";
        let sorted = "# event histogram\n\n{ a: } 1\n\tmax: 2\n{ b:\n  f\n} 1\n\nTotals:";
        assert_eq!(in_order(text), sorted);
        let all = format!(
            "# x: Linux\n# instance: \n# event: s:e\n{text}\n# instance: i\n# event: s:f\nx\n"
        );
        let texts = texts(&all).unwrap();
        assert_eq!(texts[&("".into(), "s:e".into())], text);
        assert_eq!(texts[&("i".into(), "s:f".into())], "x\n");
    }
}
