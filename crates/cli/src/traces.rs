//! The traces of all inputs.

use crate::table::plain;
use crate::{outside, say};
use anyhow::bail;
use lastwords::Ending;
use lastwords_ctf::{Version, read};
use lastwords_open::why::{self, Outside, Verdict};
use lastwords_open::{self as open, Account, Crash, Failure, Origin, RecoveredSession, Severity};
use lastwords_open::{Symbolizer, Trace};
use lastwords_render::spans::OpenSpan;
use std::sync::{Arc, OnceLock};

/// The traces of all inputs.
#[derive(Default)]
pub(crate) struct Traces {
    /// All inputs that hold something.
    pub(crate) origins: Vec<Arc<Origin>>,
    /// The traces, ordered by kind: sessions of lastwords, sessions of LTTng, folders of CTF,
    /// trace arrays of kernels.
    pub(crate) all: Vec<Trace>,
    /// The worst severity of the failures. All failures were reported on stderr.
    pub(crate) worst_failure: Option<Severity>,
    /// The failures that are more than notes.
    pub(crate) faults: Vec<Failure>,
    /// The command line names sessions or instances.
    pub(crate) is_named: bool,
    /// Names the frames of backtraces; none if they are not to be named.
    pub(crate) symbolizer: Option<Symbolizer>,
    /// The facts besides the inputs, read when a verdict needs them.
    pub(crate) outside: OnceLock<Outside>,
}

/// The trace arrays of a kernel that are wanted if the command line names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrays {
    /// All trace arrays.
    All,
    /// The top level. If it has no events, all arrays that have events.
    Top,
}

/// Says that nothing of a kernel's tracer can be read, if that is so. `traces` are those of all
/// inputs.
pub(crate) fn no_arrays(origin: &Arc<Origin>, traces: &[Trace]) -> Option<String> {
    let has_lttng =
        traces.iter().any(|trace| Arc::ptr_eq(&trace.origin, origin) && trace.lttng().is_some());
    let is_empty = origin.machine.as_ref().is_some_and(|machine| machine.tracing.arrays.is_empty())
        && !has_lttng;
    is_empty.then(|| format!("{}: no trace array of ftrace can be read", origin.path.display()))
}

/// Says that the snapshot of an instance is wanted, and that it has none.
pub(crate) fn no_snapshot(array: &Trace) -> String {
    format!("{}: instance {} has no snapshot", array.origin.path.display(), array.name)
}

impl Traces {
    /// Wraps some traces.
    pub(crate) fn new(all: Vec<Trace>) -> Self {
        Self { all, ..Self::default() }
    }

    /// Returns the sessions of lastwords.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = &RecoveredSession> {
        self.all.iter().filter_map(Trace::session)
    }

    /// Returns the traces in folders of CTF.
    pub(crate) fn ctf(&self) -> impl Iterator<Item = &read::Trace> {
        self.all.iter().filter_map(Trace::ctf)
    }

    /// Returns the trace arrays of kernels.
    pub(crate) fn arrays(&self) -> impl Iterator<Item = &Trace> {
        self.all.iter().filter(|trace| trace.ftrace().is_some())
    }

    /// Returns true if there is a trace array.
    pub(crate) fn has_arrays(&self) -> bool {
        self.arrays().next().is_some()
    }

    /// Refuses to copy hidden fields. `what` would copy them, and `others` would not.
    ///
    /// # Errors
    /// Fields are hidden.
    pub(crate) fn refuse_redacted(&self, what: &str, others: &str) -> anyhow::Result<()> {
        if self.all.iter().any(Trace::is_redacted) {
            bail!("--redact and --redact-hash are not for {what}; they are for {others}");
        }
        Ok(())
    }

    /// Returns true if all traces are trace arrays.
    pub(crate) fn is_ftrace(&self) -> bool {
        self.all.iter().all(|trace| trace.ftrace().is_some())
    }

    /// Returns all traces except those of ftrace, as packets. The names in sessions follow the
    /// metadata of `version`. Sessions of LTTng without a description of their events are left out.
    ///
    /// # Errors
    /// The description of a trace cannot be used.
    pub(crate) fn packets(&self, version: Version) -> anyhow::Result<Vec<read::Trace>> {
        Ok(self.all.iter().filter_map(|trace| trace.packets(version)).collect::<Result<_, _>>()?)
    }

    /// Returns the position of a trace among all traces.
    pub(crate) fn position(&self, trace: &Trace) -> Option<usize> {
        self.all.iter().position(|own| std::ptr::eq(own, trace))
    }

    /// Returns the positions of the traces that [`Traces::packets`] returns.
    pub(crate) fn of_packets(&self) -> Vec<Option<usize>> {
        let packets = self.all.iter().enumerate().filter(|(_, trace)| trace.has_packets());
        packets.map(|(at, _)| Some(at)).collect()
    }

    /// Returns the spans that were open when recording ended, with the positions of their traces
    /// among those of [`Traces::packets`].
    pub(crate) fn open_spans(&self) -> Vec<OpenSpan> {
        let sessions =
            self.all.iter().filter(|trace| trace.has_packets()).map(open::Trace::session);
        let sessions = sessions.enumerate().filter_map(|(at, found)| Some((at, found?)));
        sessions.flat_map(|(at, found)| OpenSpan::all(&*found.session, at)).collect()
    }

    /// Returns what is known besides the inputs. Only the end of a process that was killed needs it.
    pub(crate) fn outside(&self) -> &Outside {
        let is_killed =
            |found: &RecoveredSession| found.ended.is_some_and(|ended| ended.how == Ending::Killed);
        self.outside.get_or_init(|| match self.sessions().any(is_killed) {
            true => outside::here(),
            false => Outside::default(),
        })
    }

    /// Returns the verdict on the end of a session.
    pub(crate) fn verdict(&self, trace: &Trace) -> Option<Verdict> {
        why::session(trace, self.outside())
    }

    /// Returns the verdict on the end of a session, with names of the frames of backtraces.
    pub(crate) fn named_verdict(&self, trace: &Trace) -> Option<Verdict> {
        let mut verdict = self.verdict(trace)?;
        self.name_frames(verdict.crashes_mut());
        Some(verdict)
    }

    /// Names the frames of backtraces, if they are to be named. Each module whose frames cannot be
    /// named is reported once on stderr.
    pub(crate) fn name_frames<'c>(&self, crashes: impl IntoIterator<Item = &'c mut Crash>) {
        let Some(symbolizer) = &self.symbolizer else { return };
        symbolizer.name_frames(crashes).iter().for_each(|remark| say::note(plain(remark)));
    }

    /// Returns the account of each trace.
    pub(crate) fn accounts(&self) -> Vec<Account<'_>> {
        open::accounts(&self.all)
    }

    /// Keeps the trace arrays that are wanted, and prints a note for those that are missing or left
    /// out.
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
            if let Some(nothing) = no_arrays(origin, &kept) {
                why = Some(nothing);
                self.worst_failure = self.worst_failure.max(Some(Severity::Error));
            }
            for array in self.wanted(own, has_lttng, arrays) {
                if array.ftrace().is_some_and(|ftrace| ftrace.ring.is_some()) {
                    kept.push(array);
                    continue;
                }
                why.iter().for_each(|why| say::note(plain(why)));
                why = Some(no_snapshot(&array));
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

    /// Returns the wanted arrays of one kernel.
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
        for Trace { name, origin, .. } in recorded.iter().skip(1) {
            let (name, path) = (plain(name), plain(&origin.path.display().to_string()));
            say::note(format_args!(
                "{path} also has the instance {name}, which is not shown; `--instance {name}` shows it"
            ));
        }
        all.into_iter().take(1).collect()
    }
}
