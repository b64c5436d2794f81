//! What the words on the command line stand for: every trace in them, by kind, and which of them are wanted.

use crate::account;
use crate::memory::Memory;
use crate::progress::Spinner;
use crate::say;
use crate::select::glob;
use crate::table::plain;
use anyhow::bail;
use lastwords_ctf::{Version, read};
use lastwords_image::unwatched;
use lastwords_open::{self as open, Body, Found, Machine, Opened, Options, Origin, Severity, Trace};
use lastwords_trace::ftrace::Array as Rings;
use lastwords_trace::source::Source;
use lastwords_walk::{lttng, session};
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

    /// How often the size of an input counts for the work and memory that it may cost: for an input that is refused for its budget
    #[arg(long, value_name = "FACTOR", default_value_t = 1, hide_default_value = true)]
    budget: u64,
}

/// A session of ours.
pub(crate) struct Session {
    pub(crate) name: String,
    pub(crate) origin: Arc<Origin>,
    pub(crate) found: Box<Found>,
}

/// A session of LTTng in memory.
pub(crate) struct Lttng {
    pub(crate) origin: Arc<Origin>,
    pub(crate) found: Box<open::Lttng>,
}

/// A trace array of a kernel.
#[derive(Clone)]
pub(crate) struct Array {
    pub(crate) name: String,
    pub(crate) origin: Arc<Origin>,
    pub(crate) index: usize,
}

/// The traces of all inputs.
#[derive(Default)]
pub(crate) struct Traces {
    /// Every input that holds something.
    pub(crate) origins: Vec<Arc<Origin>>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) lttng: Vec<Lttng>,
    /// Traces in folders of CTF, and their inputs.
    pub(crate) ctf: Vec<read::Trace>,
    pub(crate) ctf_origins: Vec<Arc<Origin>>,
    pub(crate) arrays: Vec<Array>,
    /// The worst of what could not be had, which was said on stderr.
    pub(crate) lacking: Option<Severity>,
    /// What that was, in words.
    pub(crate) faults: Vec<String>,
    /// Snapshots are read in place of live rings.
    pub(crate) snapshot: bool,
    /// Sessions or instances were named.
    pub(crate) is_named: bool,
}

impl Session {
    pub(crate) fn source(&self) -> &dyn Source {
        &*self.found.session
    }

    pub(crate) fn session(&self) -> &Arc<session::Session> {
        &self.found.session
    }

    /// The session as packets, with the names that metadata of a version have.
    pub(crate) fn trace(&self, version: Version) -> anyhow::Result<read::Trace> {
        Ok(lastwords_ctf::session::trace(&self.found.session, &self.origin.path, version)?)
    }
}

impl Lttng {
    pub(crate) fn session(&self) -> &lttng::Session {
        &self.found.session
    }

    /// The session as packets.
    pub(crate) fn trace(&self) -> anyhow::Result<read::Trace> {
        Ok(self.found.session.trace(&self.origin.path)?)
    }
}

impl Array {
    /// The machine, and the array of it.
    pub(crate) fn get(&self) -> Option<(&Machine, &Rings)> {
        let machine = self.origin.machine.as_ref()?;
        Some((machine, machine.array(self.index)?))
    }

    fn has_events(&self) -> bool {
        self.origin.machine.as_ref().is_some_and(|machine| machine.has_events(self.index))
    }
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
            traces.sessions.iter().filter(|_| !self.snapshot).for_each(tell_snapshot);
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
            (done.map(|(done, _)| (done, whole)), traces.into_sessions(), whole)
        };
        let (done, consumed) = open::consume(&self.inputs, &self.options(false, &unwatched), read)?;
        let (done, whole) = done?;
        Ok((done, Some(consumed).filter(|_| whole)))
    }

    /// Says what there is to say of what was opened, and sorts it.
    fn traces(&self, opened: Opened) -> anyhow::Result<Traces> {
        opened.notes.iter().for_each(|note| say::note(plain(note)));
        let is_kernel = |origin: &Arc<Origin>| origin.machine.as_ref().is_some_and(|machine| machine.kernel.is_some());
        // Where nothing is left, the worst of them is the error.
        let (found, mut lacking) = (!opened.origins.is_empty(), opened.lacking);
        let worst = lacking.iter().enumerate().max_by_key(|(at, lack)| (lack.severity, std::cmp::Reverse(*at)));
        let error = worst.map(|(at, _)| at).filter(|_| !found).map(|at| lacking.remove(at).why);
        for open::Lack { severity, why } in &lacking {
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
        let mut traces = Traces {
            lacking: lacking.iter().map(|lack| lack.severity).max(),
            faults: lacking.iter().filter(|l| l.severity > Severity::Note).map(|l| l.why.clone()).collect(),
            snapshot: self.snapshot,
            is_named: !self.sessions.is_empty(),
            ..Traces::default()
        };
        if opened.traces.is_empty() && !opened.unwanted.is_empty() {
            let names = self.sessions.join(" or ");
            let there: Vec<String> = opened.unwanted.iter().map(|name| plain(name)).collect();
            let what =
                if opened.origins.iter().any(|o| o.machine.is_some()) { "instance or session" } else { "session" };
            bail!("no {what} is called {names}; there are: {}", there.join(", "));
        }
        traces.origins = opened.origins;
        for Trace { name, origin, body } in opened.traces {
            match body {
                Body::Session(found) => traces.sessions.push(Session { name, origin, found }),
                Body::Lttng(found) => traces.lttng.push(Lttng { origin, found }),
                Body::Ctf(trace) => {
                    traces.ctf.push(*trace);
                    traces.ctf_origins.push(origin);
                }
                Body::Ftrace(index) => traces.arrays.push(Array { name, origin, index }),
            }
        }
        if self.metadata.is_some() && traces.lttng.is_empty() {
            bail!("--metadata is for LTTng's user-space streams, and the input is none");
        }
        Ok(traces)
    }
}

/// What was recorded before a snapshot was taken is not in the live rings any more.
fn tell_snapshot(session: &Session) {
    if matches!(session.session().info().snapshot.word(), "taken" | "reading") {
        let name = plain(&session.name);
        say::note(format_args!(
            "session {name} holds a snapshot, of what was recorded before: --snapshot has it in place of this"
        ));
    }
}

impl Traces {
    fn into_sessions(self) -> Vec<Trace> {
        let trace = |Session { name, origin, found }| Trace { name, origin, body: Body::Session(found) };
        self.sessions.into_iter().map(trace).collect()
    }

    /// All traces but those of ftrace, as packets; sessions with the names that metadata of a version have. Sessions of LTTng whose
    /// events nothing describes are left out.
    ///
    /// # Errors
    /// What describes a trace cannot be used.
    pub(crate) fn packets(&self, version: Version) -> anyhow::Result<Vec<read::Trace>> {
        let mut packets = Vec::new();
        for session in &self.sessions {
            packets.push(session.trace(version)?);
        }
        for lttng in self.lttng.iter().filter(|lttng| !lttng.session().metadata.text.is_empty()) {
            packets.push(lttng.trace()?);
        }
        packets.extend(self.ctf.iter().cloned());
        Ok(packets)
    }

    /// Something of the traces can be read.
    ///
    /// # Errors
    /// There are only sessions of LTTng, and nothing describes the events of any of them, which is said of each.
    pub(crate) fn check_readable(&self) -> anyhow::Result<()> {
        if self.lttng.len() < self.len() || self.lttng.iter().any(|lttng| !lttng.found.is_unreadable()) {
            return Ok(());
        }
        for lttng in &self.lttng {
            account::tell_unreadable(lttng);
        }
        bail!("no session can be read: a description of its events is missing; --metadata gives it");
    }

    /// Packets of a session of LTTng are there, and nothing describes their events.
    pub(crate) fn has_unreadable(&self) -> bool {
        self.lttng.iter().any(|lttng| lttng.found.is_unreadable())
    }

    /// The sessions as sources of events.
    pub(crate) fn sources(&self) -> Vec<&dyn Source> {
        self.sessions.iter().map(Session::source).collect()
    }

    /// How many traces there are.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len() + self.lttng.len() + self.ctf.len() + self.arrays.len()
    }

    /// Keeps the trace arrays that are wanted; which others there are is noted.
    ///
    /// # Errors
    /// No trace is left.
    pub(crate) fn choose(&mut self, arrays: Arrays) -> anyhow::Result<()> {
        let mut why = None;
        let mut chosen = Vec::new();
        for origin in &self.origins {
            let of_origin = |array: &&Array| Arc::ptr_eq(&array.origin, origin);
            let all: Vec<Array> = self.arrays.iter().filter(of_origin).cloned().collect();
            let has_lttng = self.lttng.iter().any(|lttng| Arc::ptr_eq(&lttng.origin, origin));
            if origin.machine.as_ref().is_some_and(|machine| machine.tracing.arrays.is_empty()) && !has_lttng {
                why = Some(format!("{}: no trace array of ftrace can be read", origin.path.display()));
                self.lacking = self.lacking.max(Some(Severity::Error));
            }
            let mut wanted = self.wanted(all, has_lttng, arrays);
            if self.snapshot {
                wanted.retain(|array| {
                    let has_one = array.get().is_some_and(|(_, rings)| rings.snapshot.is_some());
                    if !has_one {
                        let told = format!("{}: instance {} has no snapshot", origin.path.display(), array.name);
                        why.iter().for_each(|why| say::note(plain(why)));
                        why = Some(told);
                    }
                    has_one
                });
            }
            chosen.extend(wanted);
        }
        self.arrays = chosen;
        match why {
            Some(why) if self.len() == 0 => bail!("{}", plain(&why)),
            Some(why) => say::note(plain(&why)),
            None => {}
        }
        Ok(())
    }

    /// Of one kernel's arrays those that are wanted.
    fn wanted(&self, all: Vec<Array>, has_lttng: bool, arrays: Arrays) -> Vec<Array> {
        let recorded: Vec<Array> = all.iter().filter(|array| array.has_events()).cloned().collect();
        if self.is_named || all.is_empty() {
            return all;
        }
        if recorded.is_empty() && has_lttng {
            return recorded;
        }
        if arrays == Arrays::All {
            return all;
        }
        if recorded.first().is_some_and(|array| array.index > 0) {
            return recorded;
        }
        for Array { name, .. } in recorded.iter().skip(1) {
            let name = plain(name);
            say::note(format_args!("instance {name} is not in this: `--instance {name}` reads it"));
        }
        all.into_iter().take(1).collect()
    }
}
