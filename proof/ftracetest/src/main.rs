//! `cargo xtask ftracetest`: the kernel's own tests of tracefs (tools/testing/selftests/ftrace),
//! run against `lastwords mount`.
//!
//! The tests come from Debian's package `linux-source-*`, of which the folder with the tests is
//! unpacked under `target`. They run in a mount namespace in which our mount also covers the
//! machine's tracefs, so that no test reaches the kernel's tracer. An application records events
//! with the names that the tests ask for. [`table`] says how each test must end, and docs/MOUNT.md
//! has that table.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};

use rig::process::Mount;
use rig::run_quietly;
use rig::scratch::Scratch;

mod app;
mod table;

use table::{Row, TABLE, Verdict};

/// Run the kernel's own tests of tracefs against `lastwords mount`
#[derive(Parser)]
#[command(bin_name = "cargo xtask ftracetest", args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// The part of CI: only the tests that take less than a second, with the program that the
    /// tests have built, and with `--logs`
    #[arg(long)]
    quick: bool,
    /// The program `lastwords`; by default, it is built for release
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// The folder of the tests, tools/testing/selftests/ftrace; by default, that in
    /// /usr/src/linux-source-*.tar.xz
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// Print the table as docs/MOUNT.md has it, and run nothing
    #[arg(long)]
    print: bool,
    /// Print what the tests that end otherwise wrote
    #[arg(long)]
    logs: bool,
}

#[derive(Subcommand)]
enum Part {
    /// The application that records while the tests run
    #[command(hide = true)]
    App,
}

fn main() -> ExitCode {
    let args = Args::parse();
    rig::exit(match args.part {
        Some(Part::App) => app::run(),
        None => run(&args),
    })
}

fn run(args: &Args) -> Result<()> {
    if args.print {
        print!("{}", table::markdown());
        return Ok(());
    }
    ensure!(rig::is_root(), "ftracetest runs as root only");
    let built = if args.quick { rig::programs::tested } else { rig::programs::lastwords };
    let program = args.program.clone().map_or_else(built, |path| Ok(path.canonicalize()?))?;
    let source = args.source.clone().map_or_else(unpacked, Ok)?;
    let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-ftracetest")?;
    let tests = scratch.path().join("ftrace");
    copy(&source, &tests)?;
    let rows: Vec<&Row> =
        TABLE.iter().filter(|row| row.is_run() && !(args.quick && row.slow)).collect();
    let missing: Vec<&str> = rows
        .iter()
        .map(|row| row.test)
        .filter(|test| !tests.join("test.d").join(test).is_file())
        .collect();
    let (folder, sessions) = (scratch.path().join("tracing"), scratch.path().join("sessions"));
    [&folder, &sessions].into_iter().try_for_each(std::fs::create_dir)?;
    let _app = app::App::start(&sessions)?;
    let mut lastwords = Command::new(&program);
    let _mount = Mount::start(lastwords.env("LASTWORDS_DIR", &sessions), &folder, app::SESSION)?;
    let runs: Vec<&Row> = rows.into_iter().filter(|row| !missing.contains(&row.test)).collect();
    let text = run_tests(&tests, &folder, &runs)?;
    missing.iter().for_each(|test| println!("{test}: this kernel's source has no such test"));
    judge(&text, &runs, &tests, args.logs || args.quick)
}

/// The tests of the newest kernel source that is installed, unpacked.
fn unpacked() -> Result<PathBuf> {
    let entries = std::fs::read_dir("/usr/src").context("/usr/src")?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let newest = names
        .filter_map(|name| {
            Some(name.strip_prefix("linux-source-")?.strip_suffix(".tar.xz")?.to_owned())
        })
        .max();
    let Some(version) = newest else {
        bail!("no /usr/src/linux-source-*.tar.xz: apt-get install linux-source, or --source DIR");
    };
    let parent = rig::root().join("target/ftracetest");
    let below = format!("linux-source-{version}/tools/testing/selftests/ftrace");
    if !parent.join(&below).join("ftracetest").is_file() {
        std::fs::create_dir_all(&parent)?;
        let archive = format!("/usr/src/linux-source-{version}.tar.xz");
        run_quietly(Command::new("tar").arg("-C").arg(&parent).args(["-xf", &archive, &below]))?;
    }
    Ok(parent.join(below))
}

/// Functions of the tests that are replaced. The kernel has followed a change when the write
/// returns; an application follows it within milliseconds.
const FUNCTIONS: &str = "\nclear_trace() { sleep .1; echo > trace; }\nyield() { sleep .1; }\n";

/// A line of the tests of triggers: the kernel forks a process, and an event of that fires the
/// trigger. The application records such an event each millisecond, so that the test only has to
/// wait.
const FORKED: &str = "( echo \"forked\")\n";

/// Copies the tests, and changes them: the folder is that of the environment, the machine's
/// scheduler is left alone, and [`FUNCTIONS`] and [`FORKED`] wait.
fn copy(source: &Path, to: &Path) -> Result<()> {
    run_quietly(Command::new("cp").arg("-r").arg(source).arg(to))?;
    let script = to.join("ftracetest");
    let text = std::fs::read_to_string(&script).with_context(|| script.display().to_string())?;
    let mut found = 0;
    let change = |line: &str| match line.trim() {
        line if line.starts_with("TRACING_DIR=`grep tracefs /proc/mounts") => {
            Some("TRACING_DIR=$LASTWORDS_MOUNT")
        }
        "echo -1 > $sched_rt_runtime" | "echo $sched_rt_runtime_orig > $sched_rt_runtime" => {
            Some(":")
        }
        _ => None,
    };
    let lines: Vec<&str> =
        text.lines().map(|line| change(line).inspect(|_| found += 1).unwrap_or(line)).collect();
    ensure!(found >= 1, "{}: no line looks for tracefs", script.display());
    std::fs::write(&script, lines.join("\n") + "\n")?;
    for entry in std::fs::read_dir(to.join("test.d/trigger"))?.flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        if text.contains(FORKED) {
            std::fs::write(entry.path(), text.replace(FORKED, "sleep .1\n"))?;
        }
    }
    let functions = to.join("test.d/functions");
    let text =
        std::fs::read_to_string(&functions).with_context(|| functions.display().to_string())?;
    Ok(std::fs::write(&functions, text + FUNCTIONS)?)
}

/// Runs the tests; what ftracetest wrote.
fn run_tests(tests: &Path, folder: &Path, rows: &[&Row]) -> Result<String> {
    let cover = "mount --make-rprivate / && mount --bind \"$LASTWORDS_MOUNT\" /sys/kernel/tracing && exec ./ftracetest \"$@\"";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", cover, "ftracetest", "-l"])
        .arg(tests.join("logs"))
        .current_dir(tests);
    command.args(rows.iter().map(|row| Path::new("test.d").join(row.test)));
    let output =
        command.env("LASTWORDS_MOUNT", folder).stdin(Stdio::null()).output().context("unshare")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Its status is 1 if a test fails, which the table may expect.
    ensure!(
        text.contains("# of passed:"),
        "ftracetest did not end: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

/// Compares how the tests ended with the table.
fn judge(text: &str, rows: &[&Row], tests: &Path, logs: bool) -> Result<()> {
    let ends = ends(text);
    let instances =
        rows.iter().filter(|row| is_for_instances(&tests.join("test.d").join(row.test)));
    let runs = rows.iter().map(|row| (row, false)).chain(instances.map(|row| (row, true)));
    let (mut wrong, mut count, mut passed) = (Vec::new(), 0, 0);
    for (at, (row, instance)) in runs.enumerate() {
        let end = ends.get(at).map_or("NO RESULT", String::as_str);
        let expected = if instance { row.instance } else { row.top };
        let word = Verdict::parse(end);
        let shown = format!("{}{}", row.test, if instance { " (instance)" } else { "" });
        println!("{shown:<60} {end}");
        (count, passed) = (count + 1, passed + usize::from(word == Some(Verdict::Pass)));
        if word != Some(expected) {
            wrong.push(format!("{shown}: {end}, expected {expected:?}"));
            if logs {
                print_log(tests, at + 1)?;
            }
        }
    }
    println!("{count} runs, {passed} passed, {} not as docs/MOUNT.md says", wrong.len());
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn is_for_instances(test: &Path) -> bool {
    let text = std::fs::read_to_string(test).unwrap_or_default();
    text.lines()
        .any(|line| line.starts_with('#') && line.contains("flags:") && line.contains("instance"))
}

/// The words at the ends of the lines of results, `[PASS]`.
fn ends(text: &str) -> Vec<String> {
    let of_line = |line: &str| {
        let (before, word) = line.trim_end().strip_suffix(']')?.rsplit_once('[')?;
        before.starts_with('[').then(|| word.to_owned())
    };
    text.lines().filter_map(of_line).collect()
}

/// Prints the end of what a test wrote.
fn print_log(tests: &Path, number: usize) -> Result<()> {
    for entry in std::fs::read_dir(tests.join("logs"))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&format!("{number}-")) {
            let text = std::fs::read(entry.path())?;
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            let mut out = std::io::stdout().lock();
            lines
                .iter()
                .skip(lines.len().saturating_sub(15))
                .try_for_each(|line| writeln!(out, "    {line}"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found() {
        let text = "=== Ftrace unit tests ===\n[1] Basic trace file check\t[PASS]\n[2] x [y]\t[UNSUPPORTED]\n\n\
            [3] (instance)  Basic\t[FAIL]\n# of passed:  1\n";
        assert_eq!(ends(text), ["PASS", "UNSUPPORTED", "FAIL"]);
    }

    #[test]
    fn the_documentation_has_the_table() {
        let page =
            std::fs::read_to_string(rig::root().join("docs/MOUNT.md")).expect("docs/MOUNT.md");
        assert!(
            page.contains(&table::markdown()),
            "put what `cargo xtask ftracetest --print` prints into docs/MOUNT.md"
        );
    }
}
