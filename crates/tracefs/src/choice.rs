//! What a recording chooses besides its events: functions, processes, CPUs and options of the
//! kernel's tracer.
//!
//! Lists of functions and processes and the mask of CPUs belong to an instance. What
//! `function_graph` graphs, its depth, and the options of some tracers exist once for all
//! instances: [`Choice::shared`] lists them for the journal.

use crate::instance::{Instance, NO_TRACER};
use crate::shared::Shared;
use anyhow::{Context, bail, ensure};
use std::path::Path;

/// The functions, processes, CPUs and options of a recording. By default, it has all functions,
/// processes and CPUs, and the kernel's own options.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Only these functions are traced: names, or globs with `*` and `?`; empty for all.
    pub functions: Vec<String>,
    /// These functions are not traced, even if [`Choice::functions`] has them.
    pub no_functions: Vec<String>,
    /// `function_graph` records only these functions and what they call; empty for all.
    pub graph_functions: Vec<String>,
    /// How many levels of calls `function_graph` records; none for no limit.
    pub graph_depth: Option<u32>,
    /// Only events and functions of these threads are recorded; empty for all.
    pub pids: Vec<u32>,
    /// Only a process that starts later is recorded, besides [`Choice::pids`]:
    /// [`crate::Recording::choose_process`] names it.
    pub is_for_command: bool,
    /// Children and threads that the chosen processes start are recorded, too.
    pub children: bool,
    /// The CPUs to record, as a hexadecimal mask, or `-1` for all; none to leave the mask.
    pub cpus: Option<String>,
    /// Options of the tracer to switch on, or with `no` before the name, off.
    pub options: Vec<String>,
}

/// A file of an instance, and the words for it.
type List<'a> = (&'static str, &'static str, &'a [String]);

const EVENT_PIDS: &str = "set_event_pid";
const FUNCTION_PIDS: &str = "set_ftrace_pid";
const GRAPH_FUNCTIONS: &str = "set_graph_function";
const GRAPH_DEPTH: &str = "max_graph_depth";
const CPUS: &str = "tracing_cpumask";
const FORKS: [&str; 2] = ["event-fork", "function-fork"];

impl Choice {
    fn lists(&self) -> [List<'_>; 2] {
        [
            ("-l", "set_ftrace_filter", &self.functions),
            ("-n", "set_ftrace_notrace", &self.no_functions),
        ]
    }

    /// Returns true if only some processes are recorded.
    fn has_processes(&self) -> bool {
        self.is_for_command || !self.pids.is_empty()
    }

    /// Checks what does not depend on an instance. `tracer` is the tracer that will be used.
    ///
    /// # Errors
    /// A word has not the form of its option, a function is chosen for no tracer, a process does
    /// not exist, or this kernel lacks a file or an option.
    pub(crate) fn check(&self, top: &Instance, tracer: Option<&str>) -> anyhow::Result<()> {
        let graph: List<'_> = ("-g", GRAPH_FUNCTIONS, &self.graph_functions);
        for (option, _, functions) in self.lists().into_iter().chain([graph]) {
            for function in functions {
                check_function(option, function)?;
                ensure!(
                    tracer.is_some(),
                    "{option} {function}: it chooses functions of a tracer: add -p function or -p function_graph"
                );
            }
        }
        for (option, is_given) in [
            ("-g", !self.graph_functions.is_empty()),
            ("--max-graph-depth", self.graph_depth.is_some()),
        ] {
            ensure!(
                !is_given || tracer == Some("function_graph"),
                "{option}: it is for the tracer function_graph: add -p function_graph"
            );
        }
        for pid in &self.pids {
            let exists = Path::new("/proc").join(pid.to_string()).exists();
            ensure!(exists, "-P {pid}: no process or thread has this number");
        }
        ensure!(
            !self.children || self.has_processes(),
            "-c: it adds the children of chosen processes: choose some by -P or -F"
        );
        self.options.iter().try_for_each(|option| option_file(top, option).map(drop))?;
        self.mask(top).map(drop)
    }

    /// Returns the settings of this choice that are not of an instance, as they are before the
    /// recording.
    ///
    /// # Errors
    /// Another tracer uses one of them, so that the recording would change what that records.
    pub(crate) fn shared(&self, top: &Instance) -> anyhow::Result<Vec<Shared>> {
        let mut shared = Vec::new();
        let path = |file| top.path().join(file).display().to_string();
        if !self.graph_functions.is_empty() {
            let now = top.setting(GRAPH_FUNCTIONS)?;
            ensure!(
                now.is_empty(),
                "-g: {} already has {now}, and there is one such list for all instances: clear it first",
                path(GRAPH_FUNCTIONS)
            );
            shared.push(Shared { file: GRAPH_FUNCTIONS.to_owned(), before: now, set: None });
        }
        if let Some(depth) = self.graph_depth {
            let (now, set) = (top.setting(GRAPH_DEPTH)?, depth.to_string());
            ensure!(
                now == "0" || now == set,
                "--max-graph-depth: {} is {now} already, and there is one limit for all instances: write 0 to it first",
                path(GRAPH_DEPTH)
            );
            shared.push(Shared { file: GRAPH_DEPTH.to_owned(), before: now, set: Some(set) });
        }
        for option in &self.options {
            let (file, set) = option_file(top, option)?;
            let before = top.setting(&file)?;
            shared.push(Shared { file, before, set: Some(set.to_owned()) });
        }
        shared.retain(|shared| shared.set.as_ref() != Some(&shared.before));
        Ok(shared)
    }

    /// Returns the files of an instance that this choice changes.
    pub(crate) fn files(
        &self,
        top: &Instance,
        instance: &Instance,
        tracer: Option<&str>,
    ) -> anyhow::Result<Vec<String>> {
        let lists = self.lists();
        let lists = lists.iter().filter(|(_, _, words)| !words.is_empty());
        let mut files: Vec<String> = lists.map(|(_, file, _)| (*file).to_owned()).collect();
        if self.has_processes() {
            let has_tracer = tracer.is_some_and(|tracer| tracer != NO_TRACER);
            let of_pids = pid_files(has_tracer || instance.has_tracer()?);
            files.extend(of_pids.iter().map(|file| (*file).to_owned()));
        }
        files.extend(self.cpus.iter().map(|_| CPUS.to_owned()));
        for option in &self.options {
            files.push(option_file(top, option)?.0);
        }
        files.extend(self.forks(instance).map(|fork| format!("options/{fork}")));
        Ok(files)
    }

    fn forks(&self, instance: &Instance) -> impl Iterator<Item = &'static str> {
        let exists = |option: &&str| instance.path().join("options").join(option).exists();
        FORKS.into_iter().filter(|_| self.children).filter(exists).collect::<Vec<_>>().into_iter()
    }

    /// Makes the settings in a stopped instance, before events and tracer are enabled.
    ///
    /// # Errors
    /// The kernel has no such function, or refuses a setting.
    pub(crate) fn apply(&self, top: &Instance, instance: &Instance) -> anyhow::Result<()> {
        if let Some(mask) = self.mask(instance)? {
            instance.write(CPUS, &mask).context("-M: this machine has fewer CPUs")?;
        }
        for option in &self.options {
            let (file, set) = option_file(top, option)?;
            ensure!(
                instance.path().join(&file).exists(),
                "-O {option}: the option is one of the whole machine and not of an instance"
            );
            instance.write(&file, set).with_context(|| format!("-O {option}"))?;
        }
        for (option, file, functions) in self.lists() {
            if !functions.is_empty() {
                let named = || format!("{option} {}", functions.join(" "));
                instance.set(file, "").with_context(named)?;
            }
            set_functions(instance, option, file, functions)?;
        }
        // It was empty. Another instance of this recording may have set some.
        set_functions(top, "-g", GRAPH_FUNCTIONS, &self.graph_functions)?;
        if let Some(depth) = self.graph_depth {
            top.write(GRAPH_DEPTH, &depth.to_string()).context("--max-graph-depth")?;
        }
        for fork in self.forks(instance) {
            instance.write(&format!("options/{fork}"), "1").context("-c")?;
        }
        Ok(())
    }

    /// Chooses processes by their numbers, after the tracer is set. The kernel records no other
    /// process from then on.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn apply_processes(&self, instance: &Instance) -> anyhow::Result<()> {
        if !self.has_processes() {
            return Ok(());
        }
        let pids: Vec<String> = self.pids.iter().map(u32::to_string).collect();
        let files = pid_files(instance.has_tracer()?);
        files.iter().try_for_each(|file| instance.set(file, &pids.join("\n")))
    }

    /// Returns the mask of CPUs as the kernel reads it.
    fn mask(&self, instance: &Instance) -> anyhow::Result<Option<String>> {
        match self.cpus.as_deref() {
            None => Ok(None),
            Some("-1") => {
                let last = instance.cpus()?.last().copied().unwrap_or(0);
                let digits = "f".repeat(usize::try_from(last / 4)?);
                Ok(Some(in_groups(&format!("{:x}{digits}", (2 << (last % 4)) - 1))))
            }
            Some(text) => {
                let digits: String = text.strip_prefix("0x").unwrap_or(text).replace(',', "");
                let is_hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
                ensure!(
                    is_hex && digits.bytes().any(|b| b != b'0'),
                    "-M {text}: it is no mask of CPUs, a hexadecimal number such as 3 for the CPUs 0 and 1, or -1 for all"
                );
                Ok(Some(in_groups(digits.trim_start_matches('0'))))
            }
        }
    }
}

/// Adds a process to those that are recorded.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn add_process(instance: &Instance, pid: u32) -> anyhow::Result<()> {
    let files = pid_files(instance.has_tracer()?);
    files.iter().try_for_each(|file| instance.write(file, &pid.to_string()))
}

/// Returns the files that choose processes. Without a tracer, only events are recorded, and some
/// kernels refuse to open the files of the function tracer.
fn pid_files(has_tracer: bool) -> &'static [&'static str] {
    if has_tracer { &[EVENT_PIDS, FUNCTION_PIDS] } else { &[EVENT_PIDS] }
}

fn check_function(option: &str, function: &str) -> anyhow::Result<()> {
    let is_word = !function.is_empty() && !function.contains(char::is_whitespace);
    ensure!(
        is_word && !function.starts_with(['!', '#']),
        "{option} {function:?}: it is no name of a function and no glob; give {option} several times for several"
    );
    let rest = function.split_once(':').map_or("", |(_, rest)| rest);
    if !rest.is_empty() && !rest.starts_with("mod:") {
        bail!("{option} {function}: commands of functions are not supported; only :mod:MODULE is");
    }
    Ok(())
}

fn set_functions(
    instance: &Instance,
    option: &str,
    file: &str,
    functions: &[String],
) -> anyhow::Result<()> {
    functions.iter().try_for_each(|function| {
        instance.write(file, function).with_context(|| {
            format!(
                "{option} {function}: this kernel may have no such function; /sys/kernel/tracing/available_filter_functions lists all"
            )
        })
    })
}

/// Returns the file of an option, and the text that switches it as wanted.
fn option_file(top: &Instance, option: &str) -> anyhow::Result<(String, &'static str)> {
    let is_name = |name: &str| !name.is_empty() && !name.contains(['/', '.']);
    let file = |name: &str| is_name(name).then(|| format!("options/{name}"));
    let found = |name: &str| file(name).filter(|file| top.path().join(file).exists());
    let off = || option.strip_prefix("no").and_then(found).map(|file| (file, "0"));
    match found(option).map(|file| (file, "1")).or_else(off) {
        Some(found) => Ok(found),
        None => {
            let folder = top.path().join("options");
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let mut names: Vec<String> =
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            bail!("-O {option}: this kernel has the options {}", names.join(", "))
        }
    }
}

/// Separates groups of eight digits by commas, without which the kernel reads no longer mask.
fn in_groups(digits: &str) -> String {
    let first = digits.len() % 8;
    let (head, rest) = digits.split_at(first);
    let rest = rest.as_bytes().chunks(8).map(|group| String::from_utf8_lossy(group).into_owned());
    let head = (!head.is_empty()).then(|| head.to_owned());
    head.into_iter().chain(rest).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A folder in the form of tracefs with the files that a choice may use.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["options", "per_cpu/cpu0", "per_cpu/cpu5"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        for (file, text) in [
            (GRAPH_FUNCTIONS, "#### all functions enabled ####\n"),
            (GRAPH_DEPTH, "0\n"),
            ("options/sym-addr", "0\n"),
            ("options/nobody", "1\n"),
            ("current_tracer", "nop\n"),
        ] {
            fs::write(folder.path().join(file), text).unwrap();
        }
        folder
    }

    #[test]
    fn what_a_choice_cannot_be_is_refused() {
        let folder = folder();
        let top = Instance::top(folder.path());
        let of = |choice: Choice, tracer: Option<&str>| {
            choice.check(&top, tracer).map_err(|error| error.to_string())
        };
        let one = |word: &str| vec![word.to_owned()];
        let functions = |word| Choice { functions: one(word), ..Choice::default() };
        let graph = || Choice { graph_functions: one("vfs_*"), ..Choice::default() };
        let option = |word| Choice { options: one(word), ..Choice::default() };
        let cpus = |mask: &str| Choice { cpus: Some(mask.to_owned()), ..Choice::default() };
        for good in ["vfs_*", "*:mod:ext4", ":mod:ext4", "vfs_rea?"] {
            of(functions(good), Some("function")).unwrap();
        }
        of(graph(), Some("function_graph")).unwrap();
        for (choice, tracer, why) in [
            (functions("vfs_read"), None, "-l vfs_read: it chooses functions of a tracer"),
            (functions("vfs_read:traceoff"), Some("function"), "commands of functions"),
            (functions("a b"), Some("function"), "no name of a function"),
            (functions("!vfs_read"), Some("function"), "no name of a function"),
            (graph(), Some("function"), "-g: it is for the tracer function_graph"),
            (
                Choice { graph_depth: Some(1), ..Choice::default() },
                None,
                "--max-graph-depth: it is for the tracer function_graph",
            ),
            (Choice { children: true, ..Choice::default() }, None, "-c: it adds the children"),
            (
                Choice { pids: vec![u32::MAX], ..Choice::default() },
                None,
                "-P 4294967295: no process",
            ),
            (option("no-such"), None, "-O no-such: this kernel has the options nobody, sym-addr"),
            (option("../trace"), None, "-O ../trace: this kernel has"),
            (cpus("x"), None, "-M x: it is no mask"),
            (cpus("0"), None, "-M 0: it is no mask"),
        ] {
            let error = of(choice, tracer).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn settings_of_the_whole_machine_are_for_the_journal() {
        let folder = folder();
        let top = Instance::top(folder.path());
        let choice = Choice {
            graph_functions: vec!["vfs_*".to_owned()],
            graph_depth: Some(2),
            options: ["sym-addr", "nonobody", "nobody"].map(str::to_owned).to_vec(),
            ..Choice::default()
        };
        let shared: Vec<_> = choice.shared(&top).unwrap();
        let rows: Vec<_> =
            shared.iter().map(|s| (s.file.as_str(), s.before.as_str(), s.set.as_deref())).collect();
        let expected = [
            (GRAPH_FUNCTIONS, "", None),
            (GRAPH_DEPTH, "0", Some("2")),
            ("options/sym-addr", "0", Some("1")),
            ("options/nobody", "1", Some("0")),
        ];
        assert_eq!(rows, expected);
        fs::write(folder.path().join(GRAPH_DEPTH), "3\n").unwrap();
        assert!(choice.shared(&top).unwrap_err().to_string().contains("is 3 already"));
        fs::write(folder.path().join(GRAPH_FUNCTIONS), "vfs_read\nvfs_write\n").unwrap();
        let error = choice.shared(&top).unwrap_err().to_string();
        assert!(error.contains("already has vfs_read\nvfs_write"), "{error}");
    }

    #[test]
    fn masks_have_the_form_of_the_kernel() {
        let folder = folder();
        let top = Instance::top(folder.path());
        let of = |text: &str| {
            let choice = Choice { cpus: Some(text.to_owned()), ..Choice::default() };
            choice.mask(&top).unwrap().unwrap()
        };
        assert_eq!(of("-1"), "3f");
        assert_eq!(of("0x003"), "3");
        assert_eq!(of("123456789abcdef01"), "1,23456789,abcdef01");
        assert_eq!(of("12345678,00000000"), "12345678,00000000");
    }
}
