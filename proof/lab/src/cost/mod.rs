//! What each option of `lastwords record` costs the programs of the machine, beside `trace-cmd
//! record` with the same option. QEMU counts instructions in place of time, so that the load of the
//! host does not matter; the work of the recorders on the only CPU counts too.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use crate::Setup;
use crate::compare::Rows;
use crate::record::{self, More};
use crate::static_build::of_c;
use crate::texts::read;

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "choice-cost";
pub(super) const WHAT: &str = "what options of `lastwords record` cost a program, beside trace-cmd: a table of ratios (kernels from 6.12 on)";

/// How often the program opens its file.
const TIMES: u32 = 600;
/// How often each is measured, in one recording, and in how many.
const REPEATS: usize = 5;
const ROUNDS: usize = 2;

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let program = of_c(setup.folder.join("cost"), &["cost/cost.c"])?;
    let numbers: Vec<String> = (1..=ROUNDS).map(|round| round.to_string()).collect();
    let more = More {
        programs: vec![("cost", program)],
        files: vec![
            ("times", TIMES.to_string()),
            ("repeats", REPEATS.to_string()),
            ("rounds", numbers.join(" ")),
        ],
        counts_instructions: true,
    };
    record::run_guest(setup, include_bytes!("../guest/cost.sh"), &more)?;
    let times = times(&read(&setup.folder.join("out/times"))?)?;
    let whole = times.values().all(|row| row.values().all(|times| times.len() == ROUNDS * REPEATS));
    let detail = format!("{} options, {ROUNDS} rounds of {REPEATS}", times.len());
    rows.row(whole && !times.is_empty(), "rounds", &detail);
    println!(
        "| option | lastwords record | --stream | trace-cmd record |\n| --- | --- | --- | --- |"
    );
    for (name, row) in &times {
        let of = |who| ratio(row, who).with_context(|| format!("{name}: {who}"));
        // One option alone is streamed, too.
        let streamed = if row.contains_key("stream") { of("stream")? } else { "-".to_owned() };
        println!("| {name} | {} | {streamed} | {} |", of("ours")?, of("peer")?);
    }
    Ok(())
}

/// Nanoseconds by option and recorder, in the order of the rounds.
type Times = BTreeMap<String, BTreeMap<String, Vec<f64>>>;

fn times(text: &str) -> Result<Times> {
    let mut times = Times::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(',').collect();
        let [row, who, ns] = words[..] else { anyhow::bail!("a time: {line:?}") };
        let ns: f64 = ns.parse().with_context(|| line.to_owned())?;
        times.entry(row.to_owned()).or_default().entry(who.to_owned()).or_default().push(ns);
    }
    Ok(times)
}

/// The median of the ratios to the time without a recorder that was measured last, with the least and
/// the most.
fn ratio(row: &BTreeMap<String, Vec<f64>>, who: &str) -> Result<String> {
    let nothing = row.get("nothing").context("nothing")?;
    let with = row.get(who).context("no times")?;
    let mut ratios: Vec<f64> = with.iter().zip(nothing).map(|(with, none)| with / none).collect();
    ensure!(!ratios.is_empty(), "no times");
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    Ok(format!("{:.2} ({least:.2} to {most:.2})", ratios[ratios.len() / 2]))
}
