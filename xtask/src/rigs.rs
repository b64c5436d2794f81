//! The rigs: programs of `proof/`, which `cargo xtask NAME` builds and runs.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// All of them: the verb, the program without `lastwords-proof-`, and what it does. To add a rig,
/// add a package to `proof/` and a line here.
const RIGS: &str = "\
arm64          lab           Build the recorder for aarch64, kill it on a kernel of Debian under QEMU, and recover there what it left
bench          bench         Measure recording and recovering beside the peers
book           book          Build the book, check its links, run the commands of the book and of the README
cases          checks        Compare what is recovered of the crash dumps beside the repository with what their kernels printed
compare        compare       Give damaged inputs to ours and to a peer
crash-step     crash-step    Kill the recorder at every instruction and recover what it leaves
crates         dist          Check what crates.io would get of each crate
deny           checks        Check licences, sources and advisories of all crates (cargo-deny)
dist           dist          Make what users install, in `target/dist`: packages, static tarballs, a bill of materials, checksums
exclude        exclude       Take pages out of dumps, and judge what is read of the rest
ftracetest     ftracetest    Run the kernel's own tests of tracefs against `lastwords mount`
fuzz           checks        Run the fuzz targets for a time
hostile        hostile       Set words of a kernel crash dump that are read on the way to its trace to other values
hosts          checks        Run an application on hosts that are hostile to recorders; print how it ended, what was recorded and counted
hotplug        lab           Kill processes that record while CPUs of a guest go offline and come online, and recover there
kills          kills         Kill processes that record, at random times, and recover what they leave
lab            lab           Crash kernels of Debian under QEMU and compare what is recovered with what they printed
loom           checks        Run the models of the ring under the C11 memory model; find the mistakes put there on purpose
lttng-layouts  compare       Compare the layouts of LTTng's releases with the types of its modules
matrix         checks        Judge each pair of source and format of docs/MATRIX.md, also of the crash dumps beside the repository
miri           checks        Interpret the recorder's tests with Miri, which finds undefined behaviour
nvdimm         lab           Reset a guest under QEMU while an application records in its persistent memory, and recover what it left
packages       dist          Make the packages of Debian and rpm; install, use and remove them in a clean Debian (as root)
persistence    persistence   Make what a loss of power may leave in persistent memory, at every flush and fence, and recover it
python         python        Build the wheel of the Python package, and test it
remove         remove        Take parts out of traces, and judge what is read of the rest
services       services      Kill services of axum and actix in nine ways, and judge what is recovered
shapes         shapes        Record events of random fields in sessions of random shapes, kill, recover, and compare every value
static         dist          Build `lastwords` without shared libraries, for a crash kernel's initramfs
surroundings   surroundings  Run an application in containers, limits and traps; judge how it ends and what is known of it
tables         tables        Judge data sets of crashes by DuckDB, PyArrow, Polars, trace-cmd and babeltrace2
tracing        tracing       Record random events of `tracing`, kill, recover, and compare every value
tsan           checks        Run the concurrent tests of the ring under ThreadSanitizer
view           view          Look at pages of `lastwords view` in Chromium
wedge          kills         Kill writers of a shared session; what others record behind each kill must be there";

/// A line of [`RIGS`].
struct Rig {
    verb: &'static str,
    program: &'static str,
    what: &'static str,
}

fn rigs() -> impl Iterator<Item = Rig> {
    RIGS.lines().filter_map(|line| {
        let (verb, rest) = line.split_once(' ')?;
        let (program, what) = rest.trim_start().split_once(' ')?;
        Some(Rig { verb, program, what: what.trim_start() })
    })
}

/// A line for each rig.
pub(crate) fn help() -> String {
    let mut text = String::from("Rigs, each with a --help of its own:");
    for rig in rigs() {
        let _ = write!(text, "\n  {:<15} {}", rig.verb, rig.what);
    }
    text
}

/// What the rig of the verb that these words begin with does.
pub(crate) fn what(words: &str) -> &'static str {
    let verb = words.split(' ').next();
    rigs().find(|rig| Some(rig.verb) == verb).map_or("", |rig| rig.what)
}

/// Builds the rig of a verb, and becomes it. Returns only an error.
pub(crate) fn become_rig(words: &[OsString]) -> Result<()> {
    let mut command = build(words)?;
    Err(command.exec()).with_context(|| command.get_program().display().to_string())
}

/// Builds the rig of a verb. Where the verb has another name than the program, it is the program's
/// subcommand.
fn build(words: &[OsString]) -> Result<Command> {
    let (rig, arguments) = find(words)?;
    let mut command = Command::new(rig::programs::rig(rig.program)?);
    command.args((rig.verb != rig.program).then_some(rig.verb)).args(arguments);
    Ok(command)
}

/// Runs the rig of a verb beside the programs that the tests have built: a step of CI.
pub(crate) fn run(words: &str) -> Result<()> {
    run_with(words, Ok)
}

/// Does the same while others run, with what the rig prints in a file. A guest keeps its share of the
/// processors, because it has time limits.
pub(crate) fn run_beside(words: &str, output: &Path) -> Result<()> {
    run_with(words, |command| {
        let command = if words.starts_with("lab") { command } else { yielding(&command) };
        into_file(command, output)
    })
}

/// The command with what it prints in a file.
fn into_file(mut command: Command, output: &Path) -> Result<Command> {
    let file = File::create(output).with_context(|| output.display().to_string())?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    Ok(command)
}

/// The command with the processors only while nobody else wants them.
fn yielding(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    nice
}

fn run_with(words: &str, change: impl FnOnce(Command) -> Result<Command>) -> Result<()> {
    rig::programs::debug()?;
    let command = build(&words.split_ascii_whitespace().map(Into::into).collect::<Vec<_>>())?;
    let mut command = change(command)?;
    let status = command.status().with_context(|| rig::shown(&command))?;
    ensure!(status.success(), "{words}: {status}");
    Ok(())
}

/// The rig of a verb, and the arguments behind it.
fn find(words: &[OsString]) -> Result<(Rig, &[OsString])> {
    let (verb, arguments) = words.split_first().context("a verb is missing")?;
    let Some(rig) = rigs().find(|rig| verb == rig.verb) else {
        let known = crate::VERBS.iter().map(|(name, ..)| *name).chain(rigs().map(|rig| rig.verb));
        let known = known.collect::<Vec<_>>().join(", ");
        return Err(lexopt::Error::from(format!(
            "no verb `{}`: there are {known}",
            verb.display()
        ))
        .into());
    };
    Ok((rig, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_verb_is_told_the_known_ones() {
        let Err(error) = find(&["polish".into()]) else { panic!("a rig of that name") };
        let said = error.to_string();
        assert!(said.starts_with("no verb `polish`: there are tidy"), "{said}");
        assert!(rigs().all(|rig| said.contains(rig.verb)), "{said}");
    }

    #[test]
    fn each_rig_is_a_package() {
        for rig in rigs() {
            let manifest = rig::root().join("proof").join(rig.program).join("Cargo.toml");
            assert!(manifest.is_file(), "{}: {}", rig.verb, manifest.display());
            assert!(help().contains(rig.what));
        }
    }
}
