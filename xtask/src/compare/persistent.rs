//! `cargo xtask compare persistent`: what the kernel itself kept of its persistent trace instance after a reboot, and what we
//! recover of the same bytes, damaged in the same ways.
//!
//! The truth is what an undamaged second boot of the same kernel prints of the region. Events that are not in the truth are
//! invented. The names of functions are compared with the text that the first boot printed, before its last events.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::lab::reboot::{First, OTHER_PLACE, PLACE, Reboot};
use crate::static_build;
use damage::Damage;
use judge::{Events, Names};

mod damage;
mod judge;

#[derive(clap::Args)]
pub(super) struct Args {
    /// A kernel: the beginning of a version (`6.12`), a Debian package, or a .deb (may be given several times)
    #[arg(long, value_name = "KERNEL")]
    kernel: Vec<String>,
    /// One kernel, undamaged and with one damage
    #[arg(long)]
    quick: bool,
    /// Only damages whose words contain this (may be given several times)
    #[arg(long, value_name = "TEXT")]
    damage: Vec<String>,
    /// The program to judge, a static one, in place of the one that is built here
    #[arg(long, value_name = "FILE")]
    lastwords: Option<PathBuf>,
    /// Rounds of work that the first boot records
    #[arg(long, default_value_t = 25)]
    rounds: u32,
    /// Keep regions and texts
    #[arg(long)]
    keep: bool,
}

/// The kernels where none is named: both forms of the metadata, and the newest.
const KERNELS: &[&str] = &["6.12", "6.18", "7.2"];
/// Fewest events of a truth.
const LEAST: usize = 1000;

/// A kernel after its first boot, with the truth.
struct Case {
    machine: Reboot,
    first: First,
    bundle: PathBuf,
    truth: Events,
}

/// A line of the table.
struct Row {
    kernel: String,
    damage: String,
    /// Events that the kernel kept, and those that it invented.
    kept: (usize, usize),
    /// Events that we recover, and those that we invented.
    ours: (usize, usize),
    truth: usize,
    told: String,
    is_good: bool,
}

/// Prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    let begun = Instant::now();
    let program = match &args.lastwords {
        Some(program) => program.clone(),
        None => static_build::build(None)?,
    };
    let wanted: Vec<&str> = match (args.quick, args.kernel.as_slice()) {
        (true, []) => vec!["7.2"],
        (_, []) => KERNELS.to_vec(),
        (_, named) => named.iter().map(String::as_str).collect(),
    };
    let (mut cases, mut rows, mut short) = (Vec::new(), Vec::new(), 0);
    for want in wanted {
        let (case, wrong) = Case::new(want, args, &program)?;
        short += wrong;
        for (damage, name) in damage::ALL {
            if args.quick && !matches!(damage, Damage::Nothing | Damage::Events) || !args.wants(name) {
                continue;
            }
            let mut region = case.first.region.clone();
            damage::apply(*damage, &mut region)?;
            rows.push(case.row(&program, name, &region, &case.machine, PLACE)?);
        }
        let moved = format!("none; the region moved to {OTHER_PLACE:#x}");
        if !args.quick && args.wants(&moved) {
            rows.push(case.row(&program, &moved, &case.first.region, &case.machine, OTHER_PLACE)?);
        }
        cases.push(case);
    }
    // Another kernel finds the region.
    for (case, other) in cases.iter().zip(cases.iter().cycle().skip(1)).filter(|_| cases.len() > 1) {
        let changed = format!("none; then {} booted", other.machine.release());
        if !args.wants(&changed) {
            continue;
        }
        rows.push(case.row(&program, &changed, &case.first.region, &other.machine, PLACE)?);
    }
    print(&rows);
    println!("{} rows in {:.0} s", rows.len(), begun.elapsed().as_secs_f64());
    if !args.keep {
        cases.iter().try_for_each(|case| std::fs::remove_dir_all(case.machine.folder()))?;
    }
    let failed = rows.iter().filter(|row| !row.is_good).count() + short;
    ensure!(failed == 0, "{failed} comparisons fell short");
    Ok(())
}

impl Args {
    fn wants(&self, damage: &str) -> bool {
        self.damage.is_empty() || self.damage.iter().any(|text| damage.contains(text))
    }
}

impl Case {
    /// Boots twice without damage; also the number of comparisons of names and of the live instance that fell short.
    fn new(want: &str, args: &Args, program: &Path) -> Result<(Self, usize)> {
        let machine = Reboot::new(want)?;
        let first = machine.first(args.rounds)?;
        let guest = machine.second("second-boot", &first.region, PLACE, Some(program))?;
        let text = read(&guest.join("second/trace"))?;
        let truth = Events::of(&text);
        ensure!(truth.total > LEAST, "{}: the kernel kept {} events", machine.release(), truth.total);
        let bundle = machine.folder().join("bundle");
        pack(program, &guest.join("second"), &bundle)?;
        let case = Self { machine, first, bundle, truth };
        let short = case.names(program)? + case.live(&guest)?;
        Ok((case, short))
    }

    /// Compares names of functions, with the bundle of each boot: their addresses differ.
    fn names(&self, program: &Path) -> Result<usize> {
        let truth = read(&self.first.tree.join("trace"))?;
        let own = self.machine.folder().join("bundle-of-first-boot");
        pack(program, &self.first.tree, &own)?;
        let kallsyms = read(&self.first.tree.join("kallsyms"))?;
        let of_modules: std::collections::BTreeSet<&str> = kallsyms
            .lines()
            .filter(|line| line.ends_with(']'))
            .filter_map(|line| line.split_whitespace().nth(2))
            .collect();
        let mut short = 0;
        for (boot, bundle) in [("first", &own), ("second", &self.bundle)] {
            let region = self.write(&self.first.region)?;
            let (text, _) = report(program, &region, bundle, "ftrace")?;
            let names = judge::names(&truth, &text, &|name| of_modules.contains(name));
            let Names { right, unnamed, wrong, of_modules, example } = names;
            let is_good = wrong == 0 && right > 0;
            short += usize::from(!is_good);
            println!(
                "{} {}: names with the bundle of the {boot} boot: {right} right ({of_modules} of modules), {unnamed} unnamed, {wrong} wrong",
                if is_good { "ok   " } else { "SHORT" },
                self.machine.release(),
            );
            example.iter().for_each(|example| println!("      {example}"));
        }
        Ok(short)
    }

    /// Compares what our program printed of the instance in the running second boot with what the kernel printed afterwards.
    fn live(&self, guest: &Path) -> Result<usize> {
        let folder = guest.join("live");
        let events = Events::of(&read(&folder.join("report"))?);
        let (missing, _) = self.truth.without(&events);
        let (invented, examples) = events.without(&self.truth);
        let is_good = missing == 0 && invented == 0;
        println!(
            "{} {}: live instance after the reboot: {} events, {missing} missing, {invented} invented",
            if is_good { "ok   " } else { "SHORT" },
            self.machine.release(),
            events.total
        );
        examples.iter().for_each(|example| println!("      {example}"));
        if !is_good {
            println!("      {}", read(&folder.join("report.errors"))?.trim_end().replace('\n', "\n      "));
        }
        Ok(usize::from(!is_good))
    }

    /// Writes a region to a file.
    fn write(&self, region: &[u8]) -> Result<PathBuf> {
        let path = self.machine.folder().join("region");
        std::fs::write(&path, region).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Boots with a region and compares what the kernel kept, and what we recover, with the truth.
    fn row(&self, program: &Path, damage: &str, region: &[u8], machine: &Reboot, place: u64) -> Result<Row> {
        let guest = machine.second("damaged-boot", region, place, None)?;
        let kept = Events::of(&read(&guest.join("second/trace"))?);
        let (text, said) = report(program, &self.write(region)?, &self.bundle, "fields")?;
        let ours = Events::of(&text);
        let missing = self.truth.without(&ours).0;
        let (invented, examples) = ours.without(&self.truth);
        for example in examples {
            println!("      {damage}: not in the truth: {example}");
        }
        let kept_wrong = kept.without(&self.truth).0;
        let has_told = said.lines().any(|line| line.contains("with losses") || line.contains("note:"));
        let row = Row {
            kernel: self.machine.release().to_string(),
            damage: damage.to_string(),
            kept: (kept.total - kept_wrong, kept_wrong),
            ours: (ours.total - invented, invented),
            truth: self.truth.total,
            told: if has_told { "yes" } else { "no" }.to_string(),
            is_good: invented == 0 && (missing == 0 || has_told) && ours.total >= kept.total - kept_wrong,
        };
        println!("{}", row.text());
        Ok(row)
    }
}

impl Row {
    fn text(&self) -> String {
        let Self { kernel, damage, kept, ours, truth, told, .. } = self;
        let short = if self.is_good { "" } else { " SHORT" };
        format!("| {kernel} | {damage} | {} | {} | {} | {} | {truth} | {told} |{short}", kept.0, kept.1, ours.0, ours.1)
    }
}

fn print(rows: &[Row]) {
    println!();
    println!(
        "| kernel | damage | kept by the kernel | wrong there | recovered by lastwords | wrong there | truth | loss reported |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |");
    rows.iter().for_each(|row| println!("{}", row.text()));
}

fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Makes a bundle of copied files.
fn pack(program: &Path, tree: &Path, bundle: &Path) -> Result<()> {
    let mut command = Command::new(program);
    command.args(["bundle", "pack"]).arg(tree).arg("-o").arg(bundle);
    let output = command.output().with_context(|| program.display().to_string())?;
    if !output.status.success() {
        bail!("{}: {}", crate::setup::shown(&command), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Returns the text that our program prints of a region, and its standard error.
fn report(program: &Path, region: &Path, bundle: &Path, style: &str) -> Result<(String, String)> {
    let mut command = Command::new(program);
    command.arg("report").arg(region).arg("--bundle").arg(bundle).args(["--style", style]);
    let output = command.output().with_context(|| program.display().to_string())?;
    let [text, said] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    // With status 1 there may be no event: a row of the table says so.
    ensure!(output.status.code().is_some_and(|code| code < 2), "{}: {said}", crate::setup::shown(&command));
    Ok((text, said))
}
