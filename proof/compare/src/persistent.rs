//! `cargo xtask compare persistent`: what the kernel itself kept of its persistent trace instance
//! after a reboot, and what we recover of the same bytes, damaged in the same ways.
//!
//! The truth is what an undamaged second boot of the same kernel prints of the region. Events that
//! are not in the truth are invented. An event that is missing must lie in a range of the region
//! that is reported as lost. The names of functions are compared with the text that the first boot
//! printed, before its last events.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use damage::Damage;
use lastwords_proof_lab::reboot::{First, OTHER_PLACE, PLACE, QUICK, Reboot};
use lastwords_proof_lab::texts::read;

use names::{Addresses, Names};
use truth::Truth;

mod damage;
mod judge;
mod mutants;
mod names;
mod region;
mod truth;

#[derive(clap::Args)]
pub(super) struct Args {
    /// A kernel: the beginning of a version (`6.12`), a Debian package, or a .deb (may be given
    /// several times)
    #[arg(long, value_name = "KERNEL")]
    kernel: Vec<String>,
    /// One kernel and a short recording, which is damaged without further boots
    #[arg(long)]
    quick: bool,
    /// Only damages whose words contain this (may be given several times)
    #[arg(long, value_name = "TEXT")]
    damage: Vec<String>,
    /// The program to judge, in place of the one that is built here
    #[arg(long, value_name = "FILE")]
    lastwords: Option<PathBuf>,
    /// Rounds of work that the first boot records; by default 25, with --quick 6
    #[arg(long)]
    rounds: Option<u32>,
    /// Regions with mutated metadata, for each kernel; by default 5000, with --quick 300
    #[arg(long, value_name = "COUNT")]
    mutants: Option<u64>,
    /// The seed of the first mutant
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Boot nothing, and judge the undamaged region and its damages again that an earlier run kept
    #[arg(long)]
    kept: bool,
    /// Keep regions and texts, under target/lab/runs
    #[arg(long)]
    keep: bool,
}

/// The kernels where none is named: both forms of the metadata, and the newest.
const KERNELS: &[&str] = &["6.12", "6.18", "7.2"];
/// Fewest events of a truth.
const LEAST: usize = 1000;

/// Damages of `--quick`: those that are seen wherever events happen to be.
const QUICK_DAMAGES: &[Damage] = &[Damage::Header, Damage::Cpu, Damage::LineOfHeader];
/// The end of the name of a row in which another kernel booted.
const BOOTED: &str = "booted";
/// Second boots until one has other addresses than the first: the kernel chooses among hundreds.
const SECOND_BOOTS: u32 = 3;

/// A kernel after its first boot, with the truth.
struct Case {
    machine: Reboot,
    first: First,
    addresses: Addresses,
    /// The folder of the second boot.
    guest: PathBuf,
    bundle: PathBuf,
    truth: Truth,
}

/// A line of the table.
struct Row {
    kernel: String,
    damage: String,
    /// Events that the kernel kept, and those that it invented; none if it was not booted with
    /// this damage.
    kept: Option<(usize, usize)>,
    /// The kernel did not come to the end of what it printed.
    hangs: bool,
    /// Events that we recover, and those that we invented.
    ours: (usize, usize),
    truth: usize,
    /// A loss is reported.
    is_told: bool,
    is_good: bool,
}

/// Where a region is given to a kernel.
type Boot<'a> = (&'a Reboot, u64);

/// Prints the table.
pub(super) fn run(args: &Args) -> Result<()> {
    let begun = Instant::now();
    let built = if args.quick { rig::programs::tested } else { rig::programs::lastwords };
    let program = args.lastwords.clone().map_or_else(built, Ok)?;
    let wanted: Vec<&str> = match (args.quick, args.kernel.as_slice()) {
        (true, []) => vec![QUICK],
        (_, []) => KERNELS.to_vec(),
        (_, named) => named.iter().map(String::as_str).collect(),
    };
    let (mut cases, mut rows, mut short) = (Vec::new(), Vec::new(), 0);
    for want in wanted {
        let (case, wrong) = Case::new(want, args, &program)?;
        short += wrong;
        for (damage, name) in damage::ALL {
            if args.quick && !QUICK_DAMAGES.contains(damage) || !args.wants(name) {
                continue;
            }
            let mut region = case.first.region.clone();
            damage::apply(*damage, &mut region)?;
            let boot = (!args.is_short()).then_some((&case.machine, PLACE));
            rows.push(case.row(&program, name, &region, boot)?);
        }
        let moved = format!("none; the region moved to {OTHER_PLACE:#x}");
        if !args.is_short() && args.wants(&moved) {
            rows.push(case.row(
                &program,
                &moved,
                &case.first.region,
                Some((&case.machine, OTHER_PLACE)),
            )?);
        }
        cases.push(case);
    }
    // Another kernel finds the region.
    for (case, other) in cases
        .iter()
        .zip(cases.iter().cycle().skip(1))
        .filter(|_| cases.len() > 1 && !args.is_short())
    {
        let changed = format!("none; then {} {BOOTED}", other.machine.release());
        if args.wants(&changed) {
            rows.push(case.row(
                &program,
                &changed,
                &case.first.region,
                Some((&other.machine, PLACE)),
            )?);
        }
    }
    print(&rows);
    println!("{} rows in {:.0} s", rows.len(), begun.elapsed().as_secs_f64());
    if !args.keep && !args.kept {
        cases.iter().try_for_each(|case| std::fs::remove_dir_all(case.machine.folder()))?;
    }
    let failed = rows.iter().filter(|row| !row.is_good).count() + short;
    ensure!(failed == 0, "{failed} comparisons fell short");
    Ok(())
}

impl Args {
    /// No kernel is booted with a damaged region.
    fn is_short(&self) -> bool {
        self.quick || self.kept
    }

    fn mutants(&self) -> u64 {
        self.mutants.unwrap_or(if self.quick { 300 } else { 5000 })
    }

    fn wants(&self, damage: &str) -> bool {
        self.damage.is_empty() || self.damage.iter().any(|text| damage.contains(text))
    }
}

impl Case {
    /// Boots twice without damage; also the number of comparisons of names, of the live instance
    /// and of mutants that fell short.
    fn new(want: &str, args: &Args, program: &Path) -> Result<(Self, usize)> {
        let machine = Reboot::new(want, args.kept)?;
        let rounds = args.rounds.unwrap_or(if args.quick { 6 } else { 25 });
        let first = if args.kept { machine.kept()? } else { machine.first(rounds)? };
        let addresses = Addresses::read(&first.tree)?;
        let guest = match args.kept {
            true => machine.folder().join("second-boot"),
            false => second_boot(&machine, &first, &addresses, (!args.quick).then_some(program))?,
        };
        let truth = Truth::new(&read(&guest.join("second/trace"))?, &first.region)?;
        let total = truth.events.total;
        ensure!(total > LEAST, "{}: the kernel kept {total} events", machine.release());
        let bundle = machine.folder().join("bundle");
        pack(program, &guest.join("second"), &bundle)?;
        let case = Self { machine, first, addresses, guest, bundle, truth };
        let region = case.write("region", &case.first.region)?;
        let mutants =
            mutants::run(case.machine.release(), &case.first.region, args.seed, args.mutants())?;
        let live = if args.quick { 0 } else { case.live()? };
        let short = case.names(program, &region)? + live + mutants;
        Ok((case, short))
    }

    /// Compares names of functions and the events of modules, with the bundle of each boot: their
    /// addresses differ.
    fn names(&self, program: &Path, region: &Path) -> Result<usize> {
        let truth = read(&self.first.tree.join("trace"))?;
        let own = self.machine.folder().join("bundle-of-first-boot");
        pack(program, &self.first.tree, &own)?;
        let events = names::events_of_modules(&self.first.tree, &self.addresses)?;
        let mut short = 0;
        for (boot, bundle) in [("first", &own), ("second", &self.bundle)] {
            let (text, _) = report(program, region, bundle, "ftrace")?;
            let names = self.addresses.compare(&truth, &text)?;
            let (lines, other) = names::lines_of(&events, &truth, &text);
            let Names { right, of_modules, unnamed, wrong, example } = names;
            // Without saved addresses, another boot's bundle names no module.
            let may_lack_names = boot == "second" && region::has_own_marks(&self.first.region)?;
            let is_complete =
                if may_lack_names { unnamed > 0 } else { unnamed == 0 && of_modules > 0 };
            let is_good =
                wrong == 0 && right > of_modules && is_complete && lines > 0 && other.is_none();
            self.say(
                is_good,
                &format!(
                    "with the bundle of the {boot} boot: {right} names right ({of_modules} of modules), {unnamed} functions of \
                     modules shown by their recorded address, {wrong} wrong; {lines} events of modules right"
                ),
            );
            example.iter().chain(&other).for_each(|example| println!("      {example}"));
            short += usize::from(!is_good);
        }
        Ok(short)
    }

    /// Compares what our program printed of the instance in the running second boot with what the
    /// kernel printed afterwards.
    fn live(&self) -> Result<usize> {
        let folder = self.guest.join("live");
        let events = judge::events(&read(&folder.join("report"))?);
        let (missing, _) = self.truth.events.without(&events);
        let (invented, examples) = events.without(&self.truth.events);
        let is_good = missing == 0 && invented == 0;
        let total = events.total;
        self.say(
            is_good,
            &format!("live instance after the reboot: {total} events, {missing} missing, {invented} invented"),
        );
        examples.iter().for_each(|example| println!("      {example}"));
        if !is_good {
            println!(
                "      {}",
                read(&folder.join("report.errors"))?.trim_end().replace('\n', "\n      ")
            );
        }
        Ok(usize::from(!is_good))
    }

    fn say(&self, is_good: bool, what: &str) {
        println!("{} {}: {what}", if is_good { "ok   " } else { "SHORT" }, self.machine.release());
    }

    /// Writes a region to a file of the runs.
    fn write(&self, name: &str, region: &[u8]) -> Result<PathBuf> {
        let path = self.machine.folder().join(name);
        std::fs::write(&path, region).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Compares what we recover of a region with the truth, and what the kernel kept, if one is
    /// booted with the region.
    fn row(
        &self,
        program: &Path,
        damage: &str,
        region: &[u8],
        boot: Option<Boot<'_>>,
    ) -> Result<Row> {
        let mut hangs = false;
        let kept = match boot {
            Some((machine, place)) => {
                let guest = machine.second("damaged-boot", region, place, false, None)?;
                hangs = guest.join("second/hangs").exists();
                let kept = judge::events(&read(&guest.join("second/trace"))?);
                let wrong = kept.without(&self.truth.events).0;
                Some((kept.total - wrong, wrong))
            }
            None => None,
        };
        let (text, said) =
            report(program, &self.write("damaged-region", region)?, &self.bundle, "fields")?;
        let ours = judge::events(&text);
        let missing = self.truth.missing(&ours, &truth::reported(&said));
        let (invented, examples) = ours.without(&self.truth.events);
        let row = Row {
            kernel: self.machine.release().to_string(),
            damage: damage.to_string(),
            kept,
            hangs,
            ours: (ours.total - invented, invented),
            truth: self.truth.events.total,
            is_told: said.contains("with losses"),
            is_good: invented == 0 && missing.untold == 0,
        };
        println!("{}", row.text());
        examples.iter().for_each(|example| println!("      not in the truth: {example}"));
        if let Some(example) = missing.example {
            println!(
                "      {} missing events are in no range that is reported as lost, the first: {example}",
                missing.untold
            );
        }
        Ok(row)
    }
}

/// Boots with the undamaged region until the kernel has other addresses than in the first boot; the
/// folder of the boot.
fn second_boot(
    machine: &Reboot,
    first: &First,
    there: &Addresses,
    ours: Option<&Path>,
) -> Result<PathBuf> {
    for _ in 0..SECOND_BOOTS {
        let guest = machine.second("second-boot", &first.region, PLACE, true, ours)?;
        let here = Addresses::read(&guest.join("second"))?;
        let moved = there
            .modules
            .iter()
            .filter(|(module, at)| here.modules.get(*module).is_some_and(|again| again != *at));
        let (release, moved, all) = (machine.release(), moved.count(), there.modules.len());
        let (from, to) = (there.kernel, here.kernel);
        println!(
            "      {release}: the kernel at {from:#x}, in the second boot at {to:#x}; {moved} of {all} modules moved"
        );
        if from != to && moved == all {
            return Ok(guest);
        }
    }
    bail!(
        "{}: {SECOND_BOOTS} boots have addresses of the first: is address randomisation off?",
        machine.release()
    )
}

impl Row {
    fn text(&self) -> String {
        let Self { kernel, damage, kept, hangs, ours, truth, .. } = self;
        let (told, short) =
            (if self.is_told { "yes" } else { "no" }, if self.is_good { "" } else { " SHORT" });
        let kept = kept.map_or(["-".into(), "-".into()], |(right, wrong)| {
            [right, wrong].map(|count| count.to_string())
        });
        let kept = if *hangs { kept.map(|count| format!("{count}, and it hangs")) } else { kept };
        // The kernel of another layout zeroes the region that it is given, and lastwords reads a
        // copy.
        let of = if damage.contains(BOOTED) { " of a copy from before that boot" } else { "" };
        format!(
            "| {kernel} | {damage} | {} | {}{of} | {} | {truth} | {told} |{short}",
            kept.join(" | "),
            ours.0,
            ours.1
        )
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

/// Makes a bundle of copied files.
fn pack(program: &Path, tree: &Path, bundle: &Path) -> Result<()> {
    if bundle.exists() {
        std::fs::remove_file(bundle).with_context(|| bundle.display().to_string())?;
    }
    let mut command = Command::new(program);
    command.args(["bundle", "pack"]).arg(tree).arg("-o").arg(bundle);
    let output = command.output().with_context(|| program.display().to_string())?;
    if !output.status.success() {
        bail!("{}: {}", rig::shown(&command), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Returns the text that our program prints of a region, and its standard error.
fn report(program: &Path, region: &Path, bundle: &Path, style: &str) -> Result<(String, String)> {
    let mut command = Command::new(program);
    command.arg("report").arg(region).arg("--bundle").arg(bundle).args(["--style", style]);
    let output = command.output().with_context(|| program.display().to_string())?;
    let [text, said] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    // With status 1 there may be no event: a row of the table says so.
    ensure!(output.status.code().is_some_and(|code| code < 2), "{}: {said}", rig::shown(&command));
    Ok((text, said))
}
