//! What the words on the command line stand for: every trace in them, by kind, and which of them are wanted.

use crate::memory::Memory;
use crate::progress::Spinner;
use crate::say;
use crate::table::plain;
use anyhow::bail;
use lastwords_ctf::{Version, read};
use lastwords_formats::select::is_well_formed;
use lastwords_image::unwatched;
use lastwords_open::{self as open, Account, Body, Opened, Options, Origin, RecoveredSession, Severity, Trace};
use std::path::PathBuf;
use std::sync::Arc;

/// Inputs, and which of the traces in them.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Input {
    /// A session (its name or folder), a process core, a kernel crash dump, a trace.dat file, a folder of CTF, LTTng's shared memory,
    /// or a folder with any of these
    #[arg(value_name = "INPUT", required_unless_present = "pid")]
    pub(crate) inputs: Vec<String>,

    /// Only sessions whose name matches (`*`, `?`, `[a-z]`); may be given several times. Of a kernel: these instances (`top`: the top
    /// level, which is the default)
    #[arg(short = 's', long = "session", visible_alias = "instance", value_name = "GLOB", value_parser = glob)]
    pub(crate) sessions: Vec<String>,

    /// The snapshot in place of the live ring
    #[arg(long)]
    pub(crate) snapshot: bool,

    /// The process that holds the buffers, or is looked at: its sessions in memfds, or else on its heap, are read through /proc
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    #[command(flatten)]
    memory: Memory,

    /// Where the description of the events of LTTng's user-space streams is: a metadata file, or a core of its session or
    /// consumer daemon
    #[arg(long, value_name = "FILE")]
    metadata: Option<PathBuf>,

    /// The bundle that describes a persistent ring buffer of ftrace: formats and symbols of the boot that wrote it, as
    /// `lastwords bundle save` keeps them
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,

    /// How often the size of an input counts for the work and memory that it may cost: for an input that is refused for its budget
    #[arg(long, value_name = "FACTOR", default_value_t = 1, hide_default_value = true)]
    budget: u64,
}

/// The traces of all inputs.
#[derive(Default)]
pub(crate) struct Traces {
    /// Every input that holds something.
    pub(crate) origins: Vec<Arc<Origin>>,
    /// The traces: sessions of ours, then those of LTTng, folders of CTF, and trace arrays of kernels.
    pub(crate) all: Vec<Trace>,
    /// The worst of what could not be had, which was said on stderr.
    pub(crate) worst_failure: Option<Severity>,
    /// What that was, in words.
    pub(crate) faults: Vec<String>,
    /// Sessions or instances were named.
    pub(crate) is_named: bool,
}

/// Which trace arrays of a kernel are wanted where none is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrays {
    /// All.
    All,
    /// The top level, or, if nothing was recorded there, all in which something was.
    Top,
}

impl Input {
    /// One session, by its name or folder.
    pub(crate) fn of_session(word: &str, snapshot: bool) -> Self {
        Self { inputs: vec![word.to_owned()], snapshot, ..Self::default() }
    }

    fn options<'a>(&self, carve: bool, watch: lastwords_image::Watch<'a>) -> Options<'a> {
        Options {
            snapshot: self.snapshot,
            names: self.sessions.clone(),
            pid: self.pid,
            memory: self.memory.options(),
            metadata: self.metadata.clone(),
            bundle: self.bundle.clone(),
            budget: self.budget.max(1),
            carve,
            watch,
        }
    }

    /// Finds all traces and runs `use_it` over them. Snapshots of sessions that live are marked as being read for that time.
    ///
    /// # Errors
    /// Nothing can be had of what was named.
    pub(crate) fn read<T>(&self, carve: bool, use_it: impl FnOnce(Traces) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let spinner = Spinner::new();
        let watch = |progress: lastwords_image::Progress<'_>| spinner.tell(progress);
        open::read(&self.inputs, &self.options(carve, &watch), |opened| {
            spinner.end();
            let traces = self.traces(opened)?;
            traces.all.iter().filter(|_| !self.snapshot).for_each(tell_snapshot);
            use_it(traces)
        })?
    }

    /// Finds all traces, as [`Input::read`] does, and marks no snapshot.
    ///
    /// # Errors
    /// Nothing can be had of what was named.
    pub(crate) fn find<T>(&self, use_it: impl FnOnce(Traces) -> anyhow::Result<T>) -> anyhow::Result<T> {
        use_it(self.traces(open::open(&self.inputs, &self.options(false, &unwatched))?)?)
    }

    /// Finds the sessions in their folders and runs `use_it` over what was committed in them until now; where it says that all of
    /// that was written, it is consumed.
    ///
    /// # Errors
    /// Nothing can be had of what was named.
    pub(crate) fn consume<T>(
        &self,
        use_it: impl FnOnce(&mut Traces) -> anyhow::Result<(T, bool)>,
    ) -> anyhow::Result<(T, Option<open::Consumed>)> {
        self.memory.refuse()?;
        let read = |opened| {
            let mut traces = match self.traces(opened) {
                Ok(traces) => traces,
                Err(error) => return (Err(error), Vec::new(), false),
            };
            let done = use_it(&mut traces);
            // Its user takes an exit status for what became of it all.
            let whole = done.as_ref().is_ok_and(|(_, whole)| *whole) && say::failed().is_none();
            (done.map(|(done, _)| (done, whole)), traces.all, whole)
        };
        let (done, consumed) = open::consume(&self.inputs, &self.options(false, &unwatched), read)?;
        let (done, whole) = done?;
        Ok((done, Some(consumed).filter(|_| whole)))
    }

    /// Says what there is to say of what was opened, and sorts it.
    fn traces(&self, opened: Opened) -> anyhow::Result<Traces> {
        opened.notes.iter().for_each(|note| say::note(plain(note)));
        let is_kernel = |origin: &Arc<Origin>| origin.machine.as_ref().is_some_and(|machine| machine.is_memory);
        // Where nothing is left, the worst of them is the error.
        let (found, mut failures) = (!opened.origins.is_empty(), opened.failures);
        let worst = failures.iter().enumerate().max_by_key(|(at, failure)| (failure.severity, std::cmp::Reverse(*at)));
        let error = worst.map(|(at, _)| at).filter(|_| !found).map(|at| failures.remove(at).why);
        for open::Failure { severity, why } in &failures {
            match severity {
                Severity::Note => say::note(format_args!("passed over: {why}")),
                Severity::Loss | Severity::Error => say::error(why),
            }
        }
        if let Some(why) = error {
            return Err(anyhow::Error::msg(why));
        }
        if !opened.origins.iter().any(is_kernel) {
            self.memory.refuse()?;
        }
        if opened.traces.is_empty() && !opened.unwanted.is_empty() {
            let names = self.sessions.join(" or ");
            let there: Vec<String> = opened.unwanted.iter().map(|name| plain(name)).collect();
            let what =
                if opened.origins.iter().any(|o| o.machine.is_some()) { "instance or session" } else { "session" };
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
        Ok(Traces {
            origins: opened.origins,
            all,
            worst_failure: failures.iter().map(|failure| failure.severity).max(),
            faults: failures.iter().filter(|f| f.severity > Severity::Note).map(|f| f.why.clone()).collect(),
            is_named: !self.sessions.is_empty(),
        })
    }
}

/// What was recorded before a snapshot was taken is not in the live rings any more.
fn tell_snapshot(trace: &Trace) {
    let state = trace.session().map(|found| found.session.info().snapshot.word());
    if matches!(state, Some("taken" | "reading")) {
        let name = plain(&trace.name);
        say::note(format_args!(
            "session {name} holds a snapshot, of what was recorded before: --snapshot has it in place of this"
        ));
    }
}

impl Traces {
    /// Some of the traces.
    pub(crate) fn of(all: Vec<Trace>) -> Self {
        Self { all, ..Self::default() }
    }

    /// The sessions of ours.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &RecoveredSession> {
        self.all.iter().filter_map(Trace::session)
    }

    /// The traces in folders of CTF.
    pub(crate) fn ctf(&self) -> impl Iterator<Item = &read::Trace> {
        self.all.iter().filter_map(Trace::ctf)
    }

    /// The trace arrays of kernels.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Trace> {
        self.all.iter().filter(|trace| trace.ftrace().is_some())
    }

    /// There is a trace array.
    pub(crate) fn has_arrays(&self) -> bool {
        self.arrays().next().is_some()
    }

    /// All traces are trace arrays.
    pub(crate) fn is_ftrace(&self) -> bool {
        self.all.iter().all(|trace| trace.ftrace().is_some())
    }

    /// All traces but those of ftrace, as packets; sessions with the names that metadata of a version have. Sessions of LTTng whose
    /// events nothing describes are left out.
    ///
    /// # Errors
    /// What describes a trace cannot be used.
    pub(crate) fn packets(&self, version: Version) -> anyhow::Result<Vec<read::Trace>> {
        Ok(self.all.iter().filter_map(|trace| trace.packets(version)).collect::<Result<_, _>>()?)
    }

    /// The position of a trace among all.
    pub(crate) fn position(&self, trace: &Trace) -> Option<usize> {
        self.all.iter().position(|own| std::ptr::eq(own, trace))
    }

    /// The positions of the traces that [`Traces::packets`] gives.
    pub(crate) fn of_packets(&self) -> Vec<Option<usize>> {
        let packets = self.all.iter().enumerate().filter(|(_, trace)| trace.has_packets());
        packets.map(|(at, _)| Some(at)).collect()
    }

    /// The account of each trace.
    pub(crate) fn accounts(&self) -> Vec<Account<'_>> {
        open::accounts(&self.all)
    }

    /// Keeps the trace arrays that are wanted; which others there are is noted.
    ///
    /// # Errors
    /// No trace is left.
    pub(crate) fn choose(&mut self, arrays: Arrays) -> anyhow::Result<()> {
        let mut why = None;
        let (all, mut kept): (Vec<Trace>, Vec<Trace>) =
            std::mem::take(&mut self.all).into_iter().partition(|trace| trace.ftrace().is_some());
        for origin in &self.origins {
            let is_own = |trace: &&Trace| Arc::ptr_eq(&trace.origin, origin);
            let own: Vec<Trace> = all.iter().filter(is_own).cloned().collect();
            let has_lttng = kept.iter().filter(is_own).any(|trace| trace.lttng().is_some());
            if origin.machine.as_ref().is_some_and(|machine| machine.tracing.arrays.is_empty()) && !has_lttng {
                why = Some(format!("{}: no trace array of ftrace can be read", origin.path.display()));
                self.worst_failure = self.worst_failure.max(Some(Severity::Error));
            }
            for array in self.wanted(own, has_lttng, arrays) {
                if array.ftrace().is_some_and(|ftrace| ftrace.ring.is_some()) {
                    kept.push(array);
                    continue;
                }
                why.iter().for_each(|why| say::note(plain(why)));
                why = Some(format!("{}: instance {} has no snapshot", origin.path.display(), array.name));
            }
        }
        self.all = kept;
        match why {
            Some(why) if self.all.is_empty() => bail!("{}", plain(&why)),
            Some(why) => say::note(plain(&why)),
            None => {}
        }
        Ok(())
    }

    /// Of one kernel's arrays those that are wanted.
    fn wanted(&self, all: Vec<Trace>, has_lttng: bool, arrays: Arrays) -> Vec<Trace> {
        let has_events = |array: &&Trace| array.ftrace().is_some_and(|ftrace| ftrace.has_events());
        let recorded: Vec<Trace> = all.iter().filter(has_events).cloned().collect();
        if self.is_named || all.is_empty() {
            return all;
        }
        if recorded.is_empty() && has_lttng {
            return recorded;
        }
        if arrays == Arrays::All {
            return all;
        }
        if recorded.first().and_then(Trace::ftrace).is_some_and(|ftrace| ftrace.index > 0) {
            return recorded;
        }
        for Trace { name, .. } in recorded.iter().skip(1) {
            let name = plain(name);
            say::note(format_args!("instance {name} is not in this: `--instance {name}` reads it"));
        }
        all.into_iter().take(1).collect()
    }
}

/// A glob, which must be well formed.
///
/// # Errors
/// A bracket has no end.
pub(crate) fn glob(text: &str) -> Result<String, String> {
    match is_well_formed(text) {
        true => Ok(text.to_owned()),
        false => Err("the bracket has no end: [a-z] is one of these characters, [[] a bracket".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bracket_without_its_end_is_refused() {
        assert!(glob("[a").is_err() && glob("a[!x]b[").is_err());
        assert_eq!(glob("[[]a[]x]").as_deref(), Ok("[[]a[]x]"));
    }
}
