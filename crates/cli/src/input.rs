//! Opens the inputs of the command line: finds every trace in them, and keeps the traces that are
//! wanted.

use crate::memory::Memory;
use crate::progress::Spinner;
use crate::say;
use crate::table::plain;
use crate::traces::Traces;
use crate::value::glob;
use anyhow::bail;
use lastwords_image::unwatched;
use lastwords_live as live;
use lastwords_open::{
    self as open, Body, Opened, Options, Origin, Reason, Redaction, Severity, Symbolizer, Trace,
};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Most different remarks that are printed while sessions are followed.
pub(crate) const MOST_NOTES: usize = 1000;

/// Returns the long help of the inputs.
fn long_help() -> String {
    let kinds = open::kinds_of_inputs();
    format!("A session, core, crash dump, trace file, or a folder of them\n\nAn input is {kinds}.")
}

/// The inputs, and the options that select traces in them.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Input {
    /// A session, core, crash dump, trace file, or a folder of them
    #[arg(value_name = "INPUT", required_unless_present = "pid", long_help = long_help())]
    pub(crate) inputs: Vec<String>,

    /// Only sessions or instances that match
    ///
    /// GLOB may have `*`, `?` and `[a-z]`, and the option may be repeated. It selects sessions of
    /// applications, and trace instances of a kernel, where `top` is the top level and the
    /// default.
    #[arg(short = 's', long = "session", visible_alias = "instance", value_name = "GLOB", value_parser = glob)]
    pub(crate) sessions: Vec<String>,

    /// Read the snapshot in place of the live ring
    #[arg(long)]
    pub(crate) snapshot: bool,

    /// Read all of a trigger's snapshot, not only its window
    #[arg(long)]
    whole: bool,

    /// Read the sessions in the memory of this process
    ///
    /// The sessions are read through /proc: those in memfds, or else those on the heap.
    #[arg(long, value_name = "PID", value_parser = crate::value::number::<u32>)]
    pid: Option<u32>,

    #[command(flatten)]
    memory: Memory,

    /// The metadata of LTTng's user-space streams
    ///
    /// It describes their events. FILE is a metadata file, or a core of LTTng's session daemon or
    /// consumer daemon.
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,

    /// The description of a persistent ring buffer's events
    ///
    /// FILE has formats and symbols of the kernel that wrote a persistent ring buffer of ftrace: a
    /// bundle that `lastwords bundle save` wrote, a crash dump of that kernel, its image (vmlinuz
    /// or vmlinux, x86-64), or its Debian package. `running` is the running kernel. The option may
    /// be repeated; files of another build than that of the ring buffer are not used.
    #[arg(long, value_name = "FILE")]
    bundle: Vec<PathBuf>,

    /// Hide the values of fields that match (GLOB or EVENT/GLOB)
    ///
    /// `<redacted>` is written in place of the value of each field whose name matches, in events
    /// and in spans, where the fields after it are hidden too. GLOB may have `*`, `?` and `[a-z]`;
    /// with an EVENT in front, which is a glob as in --event, it is for fields of these events.
    /// Several are separated by commas. Filters see what is written. A value that is part of a
    /// message, of another field or of the kernel's log is not found: hide `message` too if it may
    /// be. Names of hosts, programs, processes, threads and files stay. trace.dat, CTF, `--style
    /// raw` and the kernel's own text are copies, and are refused.
    #[arg(long, value_name = "GLOB", value_delimiter = ',', value_parser = glob)]
    redact: Vec<String>,

    /// Write hashes in place of the values of fields that match
    ///
    /// As --redact, with a hash such as `#1f3a9c04d2e85b67` in place of each value: equal values
    /// have equal hashes. The key of the hashes is random and known to nobody, so that hashes of
    /// two runs cannot be compared.
    #[arg(long, value_name = "GLOB", value_delimiter = ',', value_parser = glob)]
    redact_hash: Vec<String>,
    /// Look for debug information in this folder, too
    ///
    /// It names the frames of backtraces. DIR has files as distributions or debuginfod name them,
    /// `.build-id/12/3456.debug` or `buildid/123456/debuginfo`, or with the name of the program or
    /// library. A file whose build ID is another one is not used. The option may be repeated.
    /// Servers of debuginfod are asked if DEBUGINFOD_URLS names them; its other variables and its
    /// cache are those of elfutils.
    #[arg(long, value_name = "DIR", conflicts_with = "no_symbols")]
    symbols: Vec<PathBuf>,

    /// Print addresses in place of the names of functions
    ///
    /// The files of programs and libraries are not searched for the names then.
    #[arg(long)]
    pub(crate) no_symbols: bool,

    /// Multiply the work and memory that an input may cost
    ///
    /// Use this option if an input is refused for its budget.
    #[arg(long, value_name = "FACTOR", default_value_t = 1, hide_default_value = true, value_parser = crate::value::within(1_u64..))]
    budget: u64,
}

/// The way in which sub-buffers of sessions are found and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    /// By their structures; all are checked before any event is read.
    Checked,
    /// By their structures; each is checked when its events are read.
    Late,
    /// In all memory.
    Carved,
}

impl Input {
    /// Returns the input for one session, given by its name or folder.
    pub(crate) fn of_session(word: &str, snapshot: bool) -> Self {
        Self { inputs: vec![word.to_owned()], snapshot, ..Self::default() }
    }

    /// Returns the input for a file in which these runs of a machine's memory are.
    #[cfg(feature = "guests")]
    pub(crate) fn of_memory(path: &str, runs: Vec<open::RawRun>) -> Self {
        let memory = Memory::of_runs(runs);
        Self { inputs: vec![path.to_owned()], memory, budget: 1, ..Self::default() }
    }

    /// Returns the same options for another input.
    #[cfg(feature = "arrow")]
    pub(crate) fn only(&self, input: &str) -> Self {
        Self { inputs: vec![input.to_owned()], ..self.clone() }
    }

    /// Returns true if values are to be hidden.
    pub(crate) fn hides_fields(&self) -> bool {
        !self.redact.is_empty() || !self.redact_hash.is_empty()
    }

    fn redaction(&self) -> Redaction {
        Redaction::new(&self.redact, &self.redact_hash)
    }

    fn options<'a>(&self, search: Search, watch: lastwords_image::Watch<'a>) -> Options<'a> {
        Options {
            snapshot: self.snapshot,
            whole: self.whole,
            names: self.sessions.clone(),
            pid: self.pid,
            memory: self.memory.options(),
            metadata: self.metadata.clone(),
            bundle: self.bundle.clone(),
            budget: self.budget.max(1),
            carve: search == Search::Carved,
            late: search == Search::Late,
            redaction: Arc::new(self.redaction()),
            watch,
            ..Options::default()
        }
    }

    /// Finds all traces and calls `use_it` with them. In the meantime, snapshots of live sessions
    /// are marked as being read.
    ///
    /// # Errors
    /// None of the inputs can be read.
    pub(crate) fn read<T>(
        &self,
        search: Search,
        use_it: impl FnOnce(Traces) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let spinner = Spinner::new();
        let watch = |progress: lastwords_image::Progress<'_>| spinner.show(progress);
        let options = self.options(search, &watch);
        let redaction = Arc::clone(&options.redaction);
        live::read(&self.inputs, &options, |opened| {
            spinner.end();
            let traces = self.traces(opened)?;
            traces.all.iter().filter(|_| !self.snapshot).for_each(note_snapshot);
            let done = use_it(traces)?;
            for rule in redaction.unused() {
                say::note(format_args!(
                    "no field is named {}, so nothing is hidden by it",
                    plain(rule)
                ));
            }
            Ok(done)
        })?
    }

    /// Opens the kernels in dumps, without their traces, and prints the inputs that have none.
    ///
    /// # Errors
    /// No input is a dump of a kernel.
    pub(crate) fn kernels(&self) -> anyhow::Result<(Vec<open::DumpedKernel>, Vec<open::Failure>)> {
        let spinner = Spinner::new();
        let watch = |progress: lastwords_image::Progress<'_>| spinner.show(progress);
        let options = self.options(Search::Late, &watch);
        let (kernels, failures) = live::inputs(&self.inputs, &options)?.kernels(&options);
        spinner.end();
        let failures = tell_failures(!kernels.is_empty(), failures)?;
        Ok((kernels, failures))
    }

    /// Searches the memories for what pstore has kept, and prints the inputs that are none.
    ///
    /// # Errors
    /// No input is a memory.
    pub(crate) fn pstore(&self) -> anyhow::Result<(Vec<open::Pstore>, Vec<open::Failure>)> {
        let spinner = Spinner::new();
        let watch = |progress: lastwords_image::Progress<'_>| spinner.show(progress);
        let options = self.options(Search::Late, &watch);
        let (found, failures) = live::inputs(&self.inputs, &options)?.pstore(&options);
        spinner.end();
        let failures = tell_failures(!found.is_empty(), failures)?;
        Ok((found, failures))
    }

    /// Finds all traces as [`Input::read`] does, but marks no snapshot.
    ///
    /// # Errors
    /// None of the inputs can be read.
    pub(crate) fn find<T>(
        &self,
        use_it: impl FnOnce(Traces) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        use_it(self.traces(live::open(&self.inputs, &self.options(Search::Checked, &unwatched))?)?)
    }

    /// Finds the sessions in their folders, and calls `use_it` with the events that were committed
    /// until now. If `use_it` returns that all of them were written, they are consumed.
    ///
    /// # Errors
    /// None of the inputs can be read.
    pub(crate) fn consume<T>(
        &self,
        use_it: impl FnOnce(&mut Traces) -> anyhow::Result<(T, bool)>,
    ) -> anyhow::Result<(T, Option<live::Consumed>)> {
        self.memory.refuse()?;
        let read = |opened| {
            let mut traces = match self.traces(opened) {
                Ok(traces) => traces,
                Err(error) => return (Err(error), Vec::new(), false),
            };
            let done = use_it(&mut traces);
            // A user of the output relies on the exit status, so a failed stdout also prevents
            // consuming.
            let whole = done.as_ref().is_ok_and(|(_, whole)| *whole) && say::failed().is_none();
            (done.map(|(done, _)| (done, whole)), traces.all, whole)
        };
        let (done, consumed) =
            live::consume(&self.inputs, &self.options(Search::Checked, &unwatched), read)?;
        let (done, whole) = done?;
        Ok((done, Some(consumed).filter(|_| whole)))
    }

    /// Follows the sessions in their folders: calls `use_it` with the events that were committed
    /// since the call before, until the sessions have ended, `wait` returns false or `use_it` does.
    ///
    /// # Errors
    /// None of the inputs can be read.
    pub(crate) fn follow(
        &self,
        wait: impl FnMut() -> bool,
        mut use_it: impl FnMut(&mut Traces) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        self.memory.refuse()?;
        let mut result = Ok(());
        let mut is_first = true;
        let mut use_it = |traces: &mut Traces| {
            if std::mem::take(&mut is_first) {
                traces.all.iter().for_each(note_snapshot);
            }
            use_it(traces)
        };
        // Each step opens the sessions anew and finds the same remarks again.
        let mut said = BTreeSet::new();
        let read = |mut opened: Opened| {
            opened.notes.retain(|note| said.len() < MOST_NOTES && said.insert(note.clone()));
            match self.traces(opened).and_then(|mut traces| Ok((use_it(&mut traces)?, traces))) {
                Ok((goes_on, traces)) => (traces.all, goes_on && say::failed().is_none()),
                Err(error) => {
                    result = Err(error);
                    (Vec::new(), false)
                }
            }
        };
        live::follow(
            &self.inputs,
            &self.options(Search::Checked, &unwatched),
            live::Pace::News,
            wait,
            read,
        )?;
        result
    }

    /// Returns what names the frames of backtraces; none if they are not to be named.
    ///
    /// # Errors
    /// A folder of debug information is none.
    fn symbolizer(&self) -> anyhow::Result<Option<Symbolizer>> {
        if self.no_symbols {
            return Ok(None);
        }
        let folder = |path: &PathBuf| {
            if !path.is_dir() {
                bail!("--symbols: {}: no such folder", plain(&path.display().to_string()));
            }
            Ok(std::path::absolute(path)?)
        };
        let folders: Vec<PathBuf> = self.symbols.iter().map(folder).collect::<Result<_, _>>()?;
        #[cfg(feature = "debuginfod")]
        let fetch = crate::debuginfod::Client::from_environment().map(|mut client| {
            Box::new(move |id: &str, file| client.get(id, file)) as lastwords_open::Fetch
        });
        #[cfg(not(feature = "debuginfod"))]
        let fetch = None;
        Ok(Some(Symbolizer::new(folders, fetch)))
    }

    /// Prints the notes and failures of opening, and sorts the traces.
    fn traces(&self, opened: Opened) -> anyhow::Result<Traces> {
        opened.notes.iter().for_each(|note| say::note(plain(note)));
        let is_kernel =
            |origin: &Arc<Origin>| origin.machine.as_ref().is_some_and(|machine| machine.is_memory);
        let failures = tell_failures(!opened.origins.is_empty(), opened.failures)?;
        if !opened.origins.iter().any(is_kernel) {
            self.memory.refuse()?;
        }
        if opened.traces.is_empty() && !opened.unwanted.is_empty() {
            let names = self.sessions.join(" or ");
            let there: Vec<String> = opened.unwanted.iter().map(|name| plain(name)).collect();
            let what = if opened.origins.iter().any(|o| o.machine.is_some()) {
                "instance or session"
            } else {
                "session"
            };
            bail!("no {what} is called {names}; there are: {}", there.join(", "));
        }
        let mut all = opened.traces;
        all.sort_by_key(|trace| match trace.body {
            Body::Session(_) => 0,
            Body::Lttng(_) => 1,
            Body::Ctf(_) => 2,
            Body::Ftrace { .. } => 3,
        });
        if self.metadata.is_some() && !all.iter().any(|trace| trace.lttng().is_some()) {
            bail!("--metadata is for LTTng's user-space streams, and the input is none");
        }
        if !self.bundle.is_empty() && opened.origins.iter().all(|origin| origin.machine.is_none()) {
            bail!("--bundle is for ftrace's persistent ring buffers, and no input is that");
        }
        Ok(Traces {
            origins: opened.origins,
            all,
            worst_failure: failures.iter().map(|failure| failure.severity).max(),
            faults: failures.into_iter().filter(|f| f.severity > Severity::Note).collect(),
            is_named: !self.sessions.is_empty(),
            symbolizer: self.symbolizer()?,
            outside: OnceLock::new(),
        })
    }
}

/// Prints the inputs that could not be opened, and returns them.
///
/// # Errors
/// No input could be opened (`found` is false): the worst failure is the error.
fn tell_failures(
    found: bool,
    mut failures: Vec<open::Failure>,
) -> anyhow::Result<Vec<open::Failure>> {
    let worst = failures.iter().enumerate().max_by_key(|(at, failure)| {
        let is_more = failure.reason != Reason::NothingToRecover;
        (failure.severity, is_more, std::cmp::Reverse(*at))
    });
    let error = worst.map(|(at, _)| at).filter(|_| !found).map(|at| failures.remove(at));
    for open::Failure { severity, why, .. } in &failures {
        match severity {
            Severity::Note => say::note(format_args!("skipped: {why}")),
            Severity::Loss | Severity::Error => say::error(why),
        }
    }
    match error {
        Some(failure) => Err(failure.into()),
        None => Ok(failures),
    }
}

/// Prints a note if a session holds a snapshot: the live rings no longer have the events of the
/// snapshot.
fn note_snapshot(trace: &Trace) {
    let state = trace.session().map(|found| found.session.info().snapshot.state);
    if state.is_some_and(|state| state.is_there()) {
        let name = plain(&trace.name);
        say::note(format_args!(
            "session {name} holds a snapshot, of what was recorded before: --snapshot has it in place of this"
        ));
    }
}
