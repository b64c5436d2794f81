//! Runs the commands of a page in a shell, in a folder of their own, and compares their output.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::page::{Block, Kind, Page, Shown};
use super::{compare, needs};

/// Separates the outputs of commands.
const MARK: char = '\u{1e}';
/// The longest time of a page's commands, in seconds. One page builds a program with its
/// dependencies.
const SECONDS: &str = "300";

/// Counts of the commands of pages, by result.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) commands: usize,
    pub(super) compared: usize,
    pub(super) programs: usize,
    /// Blocks that were not run, by reason.
    pub(super) not_run: BTreeMap<String, usize>,
}

/// Where programs are, and where pages have their folders.
pub(super) struct Place {
    /// The folder of all pages of this run.
    pub(super) scratch: PathBuf,
    /// The folder of the programs, which goes in front of the path.
    pub(super) bin: PathBuf,
    pub(super) pkg_config: PathBuf,
    /// The folder of the workspace in which programs are built.
    pub(super) target: PathBuf,
    /// A folder for projects that stays, with the repository beside them as `lastwords`: a build
    /// in another folder shares nothing.
    pub(super) projects: PathBuf,
}

/// A step of the script: a command, or the script of a block.
struct Step {
    line: usize,
    command: String,
    output: Option<String>,
    /// The commands are several, and each must succeed.
    is_script: bool,
    /// The step is not shown in the page.
    is_setup: bool,
    is_like: bool,
}

/// Runs a page.
pub(super) fn run(page: &Page, place: &Place) -> Result<Counts> {
    let mut counts = Counts::default();
    let name = page.path.strip_prefix(rig::root()).unwrap_or(&page.path).with_extension("");
    let folder = place.scratch.join(name.to_string_lossy().replace('/', "-"));
    std::fs::create_dir_all(&folder)?;
    let steps = steps(page, &folder, &mut counts)?;
    if steps.iter().all(|step| step.is_setup) {
        return Ok(counts);
    }
    std::os::unix::fs::symlink(rig::root(), folder.join("lastwords"))?;
    let output = execute(&script(&steps), &folder, place)?;
    judge(page, &steps, &output, &mut counts)?;
    Ok(counts)
}

fn steps(page: &Page, folder: &Path, counts: &mut Counts) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for block in &page.blocks {
        let at = || format!("{}:{}", page.path.display(), block.line);
        if let Some(why) = why_not(block).with_context(at)? {
            *counts.not_run.entry(why).or_default() += 1;
            continue;
        }
        for name in &block.needs {
            needs::provide(name, folder).with_context(at)?;
        }
        let mut add = |is_script, Shown { line, command, output }: Shown| {
            steps.push(Step {
                line,
                command,
                output,
                is_script,
                is_setup: block.kind == Kind::Setup,
                is_like: block.is_like,
            });
        };
        match &block.kind {
            Kind::Console => {
                block.commands().with_context(at)?.into_iter().for_each(|shown| add(false, shown))
            }
            Kind::Script | Kind::Setup => {
                let command = block.text.trim_end().to_owned();
                add(block.kind == Kind::Script, Shown { line: block.line, command, output: None });
            }
            Kind::Program { file, name } => {
                check_program(&block.text, file).with_context(at)?;
                counts.programs += 1;
                if let Some(name) = name {
                    std::fs::copy(rig::root().join(file), folder.join(name)).with_context(at)?;
                }
            }
            Kind::NotRun(_) | Kind::Included(_) | Kind::Shown => {}
        }
    }
    Ok(steps)
}

/// Returns why a block is not run; none if it is run.
fn why_not(block: &Block) -> Result<Option<String>> {
    for name in &block.needs {
        if let Some(why) = needs::missing(name)? {
            return Ok(Some(why));
        }
    }
    Ok(match &block.kind {
        Kind::NotRun(reason) => Some(reason.clone()),
        Kind::Included(file) => {
            ensure!(file.is_file(), "{}: no such file", file.display());
            Some("a reference document that a page includes".to_owned())
        }
        _ => None,
    })
}

/// The folders of programs that are compiled: those that the pages run, and those that
/// `cargo xtask services` runs.
const COMPILED: [&str; 2] = ["examples/quick-start", "examples/services"];

/// Fails unless the shown program is a part of a file that is compiled: whole lines, without their
/// indentation.
fn check_program(text: &str, file: &Path) -> Result<()> {
    let is_compiled = COMPILED.iter().any(|folder| file.starts_with(folder));
    ensure!(is_compiled, "{}: no build compiles it", file.display());
    let whole = std::fs::read_to_string(rig::root().join(file))
        .with_context(|| file.display().to_string())?;
    let trimmed = |text: &str| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let (whole, shown) = (trimmed(&whole), trimmed(text));
    ensure!(
        whole.windows(shown.len()).any(|lines| lines == shown),
        "the program is not a part of {}",
        file.display()
    );
    Ok(())
}

/// Returns the script of all steps. It marks where the output of each ends, and stops at a step
/// that fails.
fn script(steps: &[Step]) -> String {
    // `kill -9` first waits until the process has mapped a session, for at most ten seconds: a machine
    // that is busy starts a program later than a page's `sleep 1` assumes. Then a process that it
    // ended is waited for: until the kernel has removed it, its session is live. A person who types
    // is slower. Processes and mounts that a step left end with the page.
    let mut script = String::from(
        "begun() {\n  for _ in $(seq 100); do\n    grep -qsF \"$LASTWORDS_DIR\" \"/proc/$1/maps\" && return\n    sleep 0.1; late=1\n  done\n}\n\
         kill() {\n  if [ \"$1\" = -9 ]; then late=; begun \"$2\"; [ -z \"$late\" ] || sleep 1; fi\n\
         \x20 builtin kill \"$@\" || return\n  if [ \"$1\" = -9 ]; then shift; wait \"$@\" || true; fi\n}\n\
         finish() {\n  kill $(jobs -p)\n  awk -v top=\"$PAGE/\" 'index($2, top) == 1 { print $2 }' /proc/mounts | xargs -r -n 1 umount -l\n\
         } 2>/dev/null\ntrap finish EXIT\n",
    );
    for step in steps {
        let (begin, end) = if step.is_script { ("set -e\n", "set +e\n") } else { ("", "") };
        let Step { command, .. } = step;
        script += &format!(
            "{begin}{command}\nstatus=$?\n{end}printf '\\n\\036%s\\n' $status\n[ $status -eq 0 ] || exit 1\n"
        );
    }
    script
}

/// Runs a script in a folder. Returns all that it wrote.
fn execute(script: &str, folder: &Path, place: &Place) -> Result<String> {
    let (file, log) = (folder.join(".script"), folder.join(".output"));
    std::fs::write(&file, script)?;
    let output = File::create(&log)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [place.bin.clone(), rig::bin()].into_iter().chain(std::env::split_paths(&path));
    // A script whose processes hang is killed with them.
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", SECONDS, "bash"]).arg(&file).current_dir(folder);
    command.env("PATH", std::env::join_paths(folders)?);
    command.env("PAGE", folder).env("LASTWORDS_DIR", folder.join("sessions"));
    command.env("LASTWORDS_SOURCE", rig::root()).env("PKG_CONFIG_PATH", &place.pkg_config);
    // A program that a page builds shares the dependencies that the workspace has built, with the
    // profile of its manifest.
    command
        .env("CARGO_TARGET_DIR", &place.target)
        .env("CARGO_NET_OFFLINE", "true")
        .env("PROJECTS", &place.projects);
    command
        .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
    command.env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1").env("COLUMNS", "100");
    command.env_remove("LASTWORDS").env_remove("XDG_RUNTIME_DIR");
    command.stdin(std::process::Stdio::null()).stdout(output.try_clone()?).stderr(output);
    command.status().context("cannot run timeout and bash")?;
    Ok(String::from_utf8_lossy(&std::fs::read(&log)?).into_owned())
}

/// Compares the output of each step with what the page shows.
fn judge(page: &Page, steps: &[Step], output: &str, counts: &mut Counts) -> Result<()> {
    let mut rest = output;
    for step in steps {
        let at = || format!("{}:{}: $ {}", page.path.display(), step.line, step.command);
        let Some((text, after)) = rest.split_once(&format!("\n{MARK}")) else {
            bail!("{}\nthe script ended here. Its output:\n{rest}", at());
        };
        let (status, after) = after.split_once('\n').unwrap_or((after, ""));
        rest = after;
        let text = without_jobs(text);
        ensure!(status == "0", "{}\nexit status {status}. Its output:\n{text}", at());
        if let Some(shown) = &step.output {
            let compare = if step.is_like { compare::compare_like } else { compare::compare };
            compare(shown, &text).with_context(at)?;
            counts.compared += 1;
        }
        counts.commands += usize::from(!step.is_setup);
    }
    Ok(())
}

/// Removes the lines in which the shell tells of processes that were killed.
fn without_jobs(text: &str) -> String {
    let told = |line: &&str| {
        line.contains(".script: line ")
            && (line.contains(" Killed ") || line.contains(" Terminated "))
    };
    text.lines().filter(|line| !told(line)).flat_map(|line| [line, "\n"]).collect()
}
