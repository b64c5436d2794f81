//! The verdict on a session of an earlier boot whose process left no record: whether the process
//! lived until its machine ended, and how the machine ended.

use super::{CLOCKS_DIFFER, DIES_WITHIN, DRIFT, Facts, SECOND};
use crate::escape;
use crate::why::kernel::of_panic;
use crate::why::kernel_log::{MachineEnd, is_oops, machine_end, shown};
use crate::why::{Cause, KernelLine, PstoreRecord, Verdict, Witness};
use lastwords_folders::Ended;
use lastwords_session::info::{Guard, Info};

/// How long before the end of its machine a process that lived until then may have given its last
/// sign of life, nanoseconds. It gives one about once a second. The mark of a process that dies may
/// be lost with the caches of the CPUs: its silence then shows it.
const SILENT_WITHIN: u64 = 2 * SECOND;
/// The same if a watchdog found the machine stuck, or memory ran out.
const STUCK_WITHIN: u64 = 120 * SECOND;
/// How long after the last line of a log the kernel writes its record. A machine that runs for
/// longer before it ends has records of other boots that are not within it.
const WRITTEN_WITHIN: u64 = 5 * SECOND;

/// The lines of one oops are not further apart, nanoseconds.
const OOPS_WITHIN: u64 = SECOND / 2;

/// What the guards of the processes of an earlier boot say: robust futexes in the session, which the
/// kernel marks when a process dies, whatever kills it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// A process lived until its machine ended.
    LivedOn,
    /// All of them were dead before.
    Died,
    Unknown,
}

impl Fate {
    /// Returns the fate of the processes of a session. A guard that is held says something only if
    /// the input is the memory that the kernel marks. It is not if it is a copy, or a file of which
    /// only the page cache may have had the mark.
    pub(super) fn from_info(info: &Info, is_original: bool) -> Self {
        let is_memory = is_original && info.is_persistent();
        let is_held = info.processes.iter().any(|process| process.guard == Guard::Held);
        let are_dead = info.processes.iter().all(|process| process.guard == Guard::Died);
        match (is_held, are_dead) {
            (true, _) if is_memory => Self::LivedOn,
            (_, true) if !info.processes.is_empty() => Self::Died,
            _ => Self::Unknown,
        }
    }
}

/// The line with which a machine ended.
struct LastLine<'a> {
    at: u64,
    record: &'a PstoreRecord,
    line: KernelLine,
}

impl LastLine<'_> {
    fn shown(&self) -> String {
        in_record(self.record, &self.line)
    }
}

/// Returns true if what ended the machine may have kept its processes from running.
fn is_of_stuck(end: MachineEnd<'_>) -> bool {
    let cause = |panic| of_panic(panic).0;
    matches!(end, MachineEnd::Panic(panic) if [Cause::Lockup, Cause::OutOfMemory].contains(&cause(panic)))
}

/// Formats a line of a record.
fn in_record(record: &PstoreRecord, line: &KernelLine) -> String {
    format!("{}: {}", escape(&record.name), escape(&shown(line)))
}

impl Facts<'_> {
    /// Returns the verdict: pstore proves the cause if the process lived until its machine ended.
    pub(super) fn of_earlier_boot(&self, ended: &Ended) -> Verdict {
        let last = self.last_line(ended);
        let (sentence, guard) = match (self.fate, &last) {
            (Fate::LivedOn, Some(last)) => return self.of_machine(last),
            (Fate::LivedOn, None) => (
                "ended with its machine (panic, reset, loss of power): unknown which",
                Some(LIVED_ON),
            ),
            (Fate::Died, _) => (
                "gone before its machine ended (SIGKILL, a signal without a handler, or _exit): unknown which",
                Some("the kernel had marked the process as dead before the machine ended"),
            ),
            (Fate::Unknown, _) => (
                "killed, or ended with its machine (panic, reset, loss of power): unknown which",
                None,
            ),
        };
        let mut verdict = Verdict::new(Cause::Unknown, sentence).with(Witness::Boot, STARTED_AGAIN);
        if let Some(guard) = guard {
            verdict = verdict.with(Witness::Processes, guard);
        }
        let but = match self.fate {
            Fate::Unknown => "nothing shows that the process lived until then",
            _ => "the process did not live until then",
        };
        verdict.hints.extend(last.map(|last| format!("pstore has {}; {but}", last.shown())));
        verdict
    }

    /// Returns the verdict on a process that lived until its machine ended with this line.
    fn of_machine(&self, last: &LastLine<'_>) -> Verdict {
        let (cause, sentence) = match machine_end(&last.line.text) {
            Some(MachineEnd::Panic(panic)) => {
                let (cause, what) = of_panic(panic);
                (cause, format!("the machine's kernel {what}: {}", escape(panic)))
            }
            _ => (Cause::Reboot, "a user restarted, halted or switched off the machine".to_owned()),
        };
        let mut verdict = Verdict::new(cause, sentence)
            .with(Witness::Boot, STARTED_AGAIN)
            .with(Witness::Processes, LIVED_ON);
        let is_before = |line: &KernelLine| is_oops(&line.text) && line.time <= last.line.time;
        let mut oopses: Vec<KernelLine> = last.record.lines();
        oopses.retain(is_before);
        // `BUG: kernel NULL pointer dereference` is before `Oops: 0000 [#1]`.
        let newest = oopses.last().map_or(0, |line| line.time);
        oopses.retain(|line| newest.saturating_sub(line.time) <= OOPS_WITHIN);
        for oops in oopses.iter().filter(|_| cause != Cause::Reboot) {
            verdict = verdict.with(Witness::Pstore, in_record(last.record, oops));
        }
        Verdict { at: Some(last.at), ..verdict.with(Witness::Pstore, last.shown()) }
    }

    /// Returns the line with which the machine ended. The session's clock and the line's time since
    /// boot give the time of the line if it is of the session's boot. Only then the kernel wrote
    /// the record at that time.
    fn last_line(&self, ended: &Ended) -> Option<LastLine<'_>> {
        let ends = self.kept().filter_map(|(record, line)| {
            let within = match (self.fate, machine_end(&line.text)?) {
                (Fate::LivedOn, end) if is_of_stuck(end) => STUCK_WITHIN,
                (Fate::LivedOn, _) => SILENT_WITHIN,
                _ => DIES_WITHIN,
            };
            let at = self.agrees(&line, ended, within)?;
            let slack = CLOCKS_DIFFER.saturating_add(line.time / DRIFT);
            let (earliest, latest) = (at.saturating_sub(slack), at.saturating_add(WRITTEN_WITHIN));
            let is_of_boot = (earliest..=latest.saturating_add(slack)).contains(&record.written?);
            is_of_boot.then_some(LastLine { at, record, line })
        });
        // A kernel may panic while it is restarted.
        ends.max_by_key(|last| last.at)
    }
}

const STARTED_AGAIN: &str = "the machine was started again since";
const LIVED_ON: &str =
    "the kernel had not marked the process as dead: it lived until the machine ended";
