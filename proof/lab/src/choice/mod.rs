//! The options of `lastwords record` beside those of trace-cmd: functions, processes, CPUs, clocks,
//! instances, probes. The guest records by the same options with both, and keeps the settings that
//! the kernel had meanwhile. Files and texts come out on a disk and are compared here.

mod pairs;
mod probed;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::Setup;
use crate::compare::Rows;
use crate::record::{self, More};
use crate::texts::read;
use probed::Probed;
use rig::run_quietly;

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "choice";
pub(super) const WHAT: &str = "`lastwords record` by each of its options for the kernel's tracer, beside trace-cmd with the same options";

/// The expected contents of a recording.
struct Case {
    name: &'static str,
    /// Beginnings of the names of its functions.
    functions: &'static [&'static str],
    /// The processes that it has.
    of: Of,
}

/// Whose functions a recording has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Command,
    Family,
}

/// The tracer that some kernels have for the top level alone.
const GRAPH: &str = "function_graph";

/// Whose recording is judged by all that was chosen.
const OURS: &str = "ours";

const CASES: &[Case] = &[
    Case { name: "command", functions: &["vfs_"], of: Of::Command },
    Case { name: "family", functions: &["vfs_"], of: Of::Family },
    Case { name: "graph", functions: &["vfs_"], of: Of::Command },
];

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let probed = Probed::build(setup.folder)?;
    let more = More {
        programs: vec![("probed", probed.program.clone())],
        files: vec![("places", probed.places()?)],
        ..More::default()
    };
    record::run_guest(setup, include_bytes!("../guest/choice.sh"), &more)?;
    let found = Found { folder: setup.folder.join("out"), lastwords: setup.lastwords };
    for case in CASES {
        rows.part(case.name, |rows| found.case(case, rows));
    }
    for part in [Found::depth, Found::wrong, Found::ended, Found::pairs] {
        rows.part("a part", |rows| part(&found, rows));
    }
    Ok(())
}

/// The results of a guest.
struct Found<'a> {
    folder: PathBuf,
    lastwords: &'a Path,
}

impl Found<'_> {
    fn text(&self, name: &str) -> Result<String> {
        read(&self.folder.join(name))
    }

    fn case(&self, case: &Case, rows: &mut Rows) -> Result<()> {
        let name = case.name;
        let (status, said) =
            (self.text(&format!("{name}.status"))?, self.text(&format!("{name}.said"))?);
        if name == "graph" && !self.has_graph()? {
            return self.refused(name, rows);
        }
        rows.row(status.trim() == "0", &format!("{name}: status"), said.trim());
        let settings = [format!("{name}.peer.settings"), format!("{name}.settings")];
        self.same_text(&format!("{name}: the settings"), [&settings[0], &settings[1]], rows)?;
        let (ours, theirs) = (self.calls(name, name)?, self.calls(&format!("{name}.peer"), name)?);
        for (calls, whose) in [(&ours, "ours"), (&theirs, "trace-cmd's")] {
            let wrong = calls.iter().find(|call| !case.has(call));
            let is_there =
                |part: &&&str| !calls.iter().any(|call| call.function.starts_with(**part));
            let missing = case.functions.iter().find(is_there);
            let detail = format!("{} calls; {wrong:?} {missing:?}", calls.len());
            let ok = wrong.is_none() && missing.is_none();
            rows.row(ok, &format!("{name}: functions and processes in {whose}"), &detail);
        }
        // The last steps of the commands are the same.
        let last = |calls: &[Call]| -> Vec<String> {
            let of = calls.iter().filter(|call| call.is_of_command);
            let mut of: Vec<_> = of.map(|call| call.function.clone()).collect();
            of.drain(..of.len().saturating_sub(12));
            of
        };
        let (ours, theirs) = (last(&ours), last(&theirs));
        let ok = ours == theirs && ours.len() == 12;
        rows.row(ok, &format!("{name}: the last calls"), &format!("{ours:?} {theirs:?}"));
        self.same_state(name, rows)
    }

    /// The calls that trace-cmd shows of a file.
    fn calls(&self, file: &str, case: &str) -> Result<Vec<Call>> {
        let pid: u32 = self.text(&format!("{file}.pid"))?.trim().parse().context("a pid")?;
        let path = self.folder.join(format!("{file}.dat"));
        let text = run_quietly(Command::new("trace-cmd").args(["report", "-i"]).arg(&path))
            .with_context(|| self.text(&format!("{file}.said")).unwrap_or_default())?;
        let calls: Vec<Call> = text.lines().filter_map(|line| Call::parse(line, pid)).collect();
        if file != case {
            return Ok(calls);
        }
        // Our own text has the same calls.
        let ours = run_quietly(Command::new(self.lastwords).arg("report").arg(&path))?;
        let count = ours.lines().filter(|line| is_call(line)).count();
        anyhow::ensure!(
            count == calls.len(),
            "{}: {count} calls by `lastwords report`, {} by trace-cmd",
            path.display(),
            calls.len()
        );
        Ok(calls)
    }

    /// Our graphs begin at the chosen function, and are no deeper than was chosen. trace-cmd records
    /// in the top level, and sets the function while its tracer works already: it promises the
    /// chosen graphs, and has more.
    fn depth(&self, rows: &mut Rows) -> Result<()> {
        if !self.has_graph()? {
            return self.refused("depth", rows);
        }
        let said = self.text("depth.said")?;
        rows.row(self.text("depth.status")?.trim() == "0", "depth: status", said.trim());
        self.same_text("depth: the settings", ["depth.peer.graph", "depth.graph"], rows)?;
        for (file, whose) in [("depth.dat", OURS), ("depth.peer.dat", "trace-cmd's")] {
            let path = self.folder.join(file);
            let text = run_quietly(Command::new("trace-cmd").args(["report", "-i"]).arg(&path))?;
            let entries: Vec<&str> = text
                .lines()
                .filter(|line| line.contains(": funcgraph_entry:"))
                .filter_map(|line| Some(line.rsplit_once('|')?.1))
                .collect();
            // Two blanks for each level, after those of the first.
            let level = |entry: &str| (entry.len() - entry.trim_start().len()) / 2;
            // Setting the list of functions ends with the unlock of a lock, which both record.
            let begin = usize::from(entries.first().is_some_and(|e| e.trim() == "mutex_unlock();"));
            let wrong = entries[begin..].iter().find(|entry| match level(entry) {
                // An interrupt has a graph of its own.
                1 => !["vfs_read()", "irq_"].iter().any(|it| entry.trim_start().starts_with(it)),
                level => level != 2,
            });
            let is_chosen = |entry: &&str| entry.trim_start().starts_with("vfs_read()");
            let has_graphs =
                entries.iter().any(is_chosen) && entries.iter().any(|entry| level(entry) == 2);
            let ok = has_graphs && (wrong.is_none() || whose != OURS);
            let detail = format!("{} entries; {wrong:?}", entries.len());
            rows.row(ok, &format!("depth: graphs of {whose}"), &detail);
        }
        self.same_state("depth", rows)
    }

    /// A wrong word is named, and nothing is left.
    fn wrong(&self, rows: &mut Rows) -> Result<()> {
        for (name, word) in [
            ("no-function", "-l no_such_function"),
            ("no-graph", "-g no_such_function"),
            ("no-cpu", "-M: this machine has fewer CPUs"),
            ("no-clock", "clock sundial: this kernel has local, "),
            ("no-usdt", "static probe lab:none; it has lab:done"),
        ] {
            let (status, said) =
                (self.text(&format!("{name}.status"))?, self.text(&format!("{name}.said"))?);
            let ok = status.trim() == "1" && said.contains(word);
            rows.row(ok, &format!("{name}: the error names it"), said.trim());
            self.same_state(name, rows)?;
        }
        Ok(())
    }

    /// Recordings that signals end leave nothing, after `restore` also that of SIGKILL.
    fn ended(&self, rows: &mut Rows) -> Result<()> {
        for (signal, status) in [("INT", "0"), ("TERM", "0"), ("KILL", "137")] {
            if !self.has_graph()? {
                self.refused(signal, rows)?;
                continue;
            }
            let (found, said) =
                (self.text(&format!("{signal}.status"))?, self.text(&format!("{signal}.said"))?);
            rows.row(found.trim() == status, &format!("{signal}: status"), said.trim());
            let at_work = self.text(&format!("{signal}-before.state"))?;
            let is_set = at_work.contains("\nset_graph_function:vfs_read\n")
                && at_work.contains("\nmax_graph_depth:2\n");
            rows.row(is_set, &format!("{signal}: what all instances share was set"), "");
            self.same_state(signal, rows)?;
        }
        Ok(())
    }

    /// Returns true if instances have the tracer function_graph.
    fn has_graph(&self) -> Result<bool> {
        Ok(self.text("tracers")?.split_whitespace().any(|tracer| tracer == GRAPH))
    }

    /// Where instances have no function_graph, that is said, and nothing is left.
    fn refused(&self, name: &str, rows: &mut Rows) -> Result<()> {
        let said = self.text(&format!("{name}.said"))?;
        let lacks = format!("in an instance, tracer {GRAPH}: this kernel has ");
        // Its options are refused before it.
        let ok =
            said.contains(&lacks) || said.contains("of the whole machine and not of an instance");
        rows.row(ok, &format!("{name}: what the kernel has not is refused"), said.trim());
        self.same_state(name, rows)
    }

    fn pairs(&self, rows: &mut Rows) -> Result<()> {
        pairs::all(self, rows)
    }

    fn same_state(&self, name: &str, rows: &mut Rows) -> Result<()> {
        let after = format!("{name}.state");
        self.same_text(&format!("{name}: state"), ["before.state", &after], rows)
    }

    /// Compares two texts of the guest, the truth first.
    fn same_text(&self, what: &str, [truth, ours]: [&str; 2], rows: &mut Rows) -> Result<()> {
        let (truth, ours) = (self.text(truth)?, self.text(ours)?);
        rows.same_text(what, truth.as_bytes(), &Ok(ours.into_bytes()));
        Ok(())
    }
}

/// A call in a trace.
#[derive(Debug)]
struct Call {
    function: String,
    /// It is of the command itself.
    is_of_command: bool,
}

impl Call {
    /// Reads a line of trace-cmd.
    fn parse(line: &str, command: u32) -> Option<Self> {
        if !is_call(line) {
            return None;
        }
        // A line of an instance begins with its name.
        let (head, rest) = line.trim_start_matches("peer:").split_once(": ")?;
        let (task, _) = head.split_once(" [")?;
        let pid: u32 = task.trim().rsplit_once('-')?.1.parse().ok()?;
        let what = rest.split_once(':')?.1;
        let what = what.rsplit_once('|').map_or(what, |(_, what)| what).trim();
        let function: String =
            what.chars().take_while(|c| c.is_ascii_alphanumeric() || "_.".contains(*c)).collect();
        Some(Self { function, is_of_command: pid == command })
    }
}

/// Returns true for the line of a call, in the text of either program.
fn is_call(line: &str) -> bool {
    let is_entry = line.contains(": funcgraph_entry:") || line.contains(" graph_ent: ");
    let is_in_graph = || {
        let call = line.rsplit_once(" |  ").filter(|(head, _)| head.contains(')'));
        call.is_some_and(|(_, call)| call.ends_with("();") || call.ends_with("() {"))
    };
    is_entry
        || line.contains(": function:")
        || (line.contains(" <-") && !line.contains(" => "))
        || is_in_graph()
}

impl Case {
    fn has(&self, call: &Call) -> bool {
        let is_chosen = self.functions.iter().any(|part| call.function.starts_with(part));
        is_chosen && (self.of == Of::Family || call.is_of_command)
    }
}
