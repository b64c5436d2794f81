//! The verdict on the end of a session.

mod machine;

use super::kernel_log::{Told, is_reset_reason, shown, told};
use super::{
    Cause, Evidence, KernelLine, OtherCrash, Outside, PstoreRecord, Verdict, Witness,
    control_group, signal_name,
};
use crate::{Crash, RecoveredSession, Selection, SourceKind, Trace, escape};
use lastwords_folders::{ControlGroup, Ended, Ending};
use lastwords_image::ImageKind;
use lastwords_image::core::CoreInfo;
use lastwords_render::iter::Order;
use lastwords_session::info::{Info, SessionScope};
use machine::Fate;

const SECOND: u64 = 1_000_000_000;
/// The inode of the initial pid namespace (`PROC_PID_INIT_INO`, `include/linux/proc_ns.h`), to which
/// the ids in the kernel's log belong.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// How long after the last sign of life a process may have died, nanoseconds. A session's thread
/// gives such a sign about once a second.
const DIES_WITHIN: u64 = 5 * SECOND;
/// How far the clocks of log and session may be apart, nanoseconds: this much, and a part of the
/// time since boot.
const CLOCKS_DIFFER: u64 = SECOND;
/// The kernel's log has a clock that nobody adjusts. One second in 20,000 is what a crystal errs.
const DRIFT: u64 = 20_000;
/// The exit status of a Rust program whose main thread panicked.
const PANICKED: u8 = 101;
/// SIGABRT, as `panic = "abort"` raises it.
const ABORT: u8 = 6;
/// SIGSEGV.
const FAULT: u8 = 11;
/// The signals of a core that end a process. SIGTRAP and SIGSTOP are also in cores that a debugger
/// makes of a process that goes on.
const DEADLY: [u8; 9] = [3, 4, 6, 7, 8, 11, 24, 25, 31];

/// Returns the verdict on the end of a session; none if the trace is no session.
#[must_use]
pub fn session(trace: &Trace, outside: &Outside) -> Option<Verdict> {
    let found = trace.session()?;
    let info = found.session.info();
    let ended = trace.ended();
    let facts = Facts {
        state: state(trace, found, ended, boot(info, outside)),
        crashes: found.crashes(),
        pids: pids(info),
        is_shared: info.scope != SessionScope::Process,
        boot: boot(info, outside),
        is_in_initial_namespace: is_in_initial_namespace(info),
        // The newest sample also knows of the time that the machine slept.
        boot_real_time: info.clock.monotonic_origin.or_else(|| {
            let (real, monotonic) = (info.created_realtime, info.created_monotonic);
            (real != 0).then(|| real.wrapping_sub(monotonic).cast_signed())
        }),
        has_thread: &|tid| has_thread(trace, tid),
        group: control_group::recorded(found),
        fate: Fate::from_info(info, found.is_original),
        outside,
    };
    Some(facts.judge())
}

/// What is known of the state of the processes.
enum State<'a> {
    Alive(Witness, &'static str),
    Ended(Ended),
    /// Why it is not known.
    Unknown(String),
    /// The memory of a process in a core.
    Core(&'a CoreInfo),
}

/// Whether the session is of this machine's boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boot {
    This,
    Earlier,
    Unknown,
}

/// What the verdict depends on.
struct Facts<'a> {
    state: State<'a>,
    crashes: &'a [Crash],
    /// The processes of the session.
    pids: Vec<u32>,
    is_shared: bool,
    boot: Boot,
    /// The processes have the same ids in the kernel's log.
    is_in_initial_namespace: bool,
    /// Nanoseconds from the epoch to the boot.
    boot_real_time: Option<i64>,
    /// A thread of this id recorded in the session.
    has_thread: &'a dyn Fn(u32) -> bool,
    /// The control group of the process when the session began.
    group: Option<ControlGroup>,
    /// What the guards say; it counts for sessions of an earlier boot.
    fate: Fate,
    outside: &'a Outside,
}

fn state<'a>(
    trace: &'a Trace,
    found: &RecoveredSession,
    ended: Option<Ended>,
    boot: Boot,
) -> State<'a> {
    let info = found.session.info();
    let alone = |why: &str| State::Unknown(why.to_owned());
    match (ended, &found.unknown_end, trace.origin.kind, &trace.origin.core) {
        (Some(ended), ..) => State::Ended(ended),
        (None, Some(why), ..) => State::Unknown(why.clone()),
        (None, None, _, Some(core)) if !info.finished => State::Core(core),
        (None, None, SourceKind::Sessions(ImageKind::Process), _) => {
            State::Alive(Witness::Input, "its memory was read while the process ran")
        }
        _ if found.is_live => {
            State::Alive(Witness::Processes, "a process of the session lives and may record")
        }
        // These files are no folder of a session. What they say of its end is all that is known.
        _ => match Ending::from_word(info.ending) {
            Some(how) => State::Ended(Ended { how, at: 0, pid: 0 }),
            None if info.finished => {
                State::Ended(Ended { how: Ending::Closed(None), at: 0, pid: 0 })
            }
            // No process outlives its machine.
            None if boot == Boot::Earlier => {
                let sampled = info.created_realtime.saturating_add(info.clock.span);
                let newest = trace.newest().and_then(|newest| u64::try_from(newest).ok());
                let at = sampled.max(newest.unwrap_or(0));
                State::Ended(Ended { how: Ending::Killed, at, pid: 0 })
            }
            None => alone("the input does not show whether and how the session had ended"),
        },
    }
}

fn pids(info: &Info) -> Vec<u32> {
    let mut pids: Vec<u32> = info.processes.iter().map(|process| process.pid).collect();
    if pids.is_empty() && info.creator_pid != 0 {
        pids.push(info.creator_pid);
    }
    pids
}

fn is_in_initial_namespace(info: &Info) -> bool {
    let mut namespaces = info.processes.iter().map(|process| process.pidns);
    info.creator_pidns == INITIAL_PID_NAMESPACE
        && namespaces.all(|namespace| namespace == INITIAL_PID_NAMESPACE)
}

fn boot(info: &Info, outside: &Outside) -> Boot {
    let here = outside.boot_id.filter(|_| info.boot_id != [0; 16]);
    match here {
        Some(boot) if boot == info.boot_id => Boot::This,
        Some(_) if !info.hostname.is_empty() && info.hostname == outside.hostname => Boot::Earlier,
        _ => Boot::Unknown,
    }
}

/// Returns true if a thread recorded an event that has its id.
fn has_thread(trace: &Trace, tid: u32) -> bool {
    let traces = std::slice::from_ref(trace);
    let Ok(selected) = crate::Selected::new(traces, Selection::default()) else { return false };
    let mut events = selected.events(Order::Stream);
    loop {
        while let Some(mut event) = events.advance() {
            if event.ids().tid == Some(i64::from(tid)) {
                return true;
            }
        }
        if events.fault().is_none() {
            return false;
        }
    }
}

fn field<'a>(crash: &'a Crash, names: &[&str]) -> Option<&'a str> {
    let is_wanted = |(name, _): &&(String, String)| names.contains(&name.as_str());
    crash.fields.iter().find(is_wanted).map(|(_, value)| value.as_str())
}

fn is_panic(crash: &Crash) -> bool {
    crash.event.ends_with(":panic")
}

fn tid(crash: &Crash) -> Option<&str> {
    field(crash, &["tid", "vtid"])
}

/// Returns true if the crash is the signal of this number.
fn is_signal(crash: &Crash, number: u8) -> bool {
    !is_panic(crash) && field(crash, &["signal"]) == Some(&signal_name(number))
}

impl Facts<'_> {
    fn judge(&self) -> Verdict {
        let mut verdict = match &self.state {
            State::Alive(from, text) => Verdict::new(Cause::Alive, "it lives").with(*from, *text),
            State::Unknown(why) => {
                Verdict::new(Cause::Unknown, format!("end unknown: {}", escape(why)))
                    .with(Witness::Processes, escape(why))
            }
            State::Core(core) => self.of_core(core),
            State::Ended(ended) => self.of_ended(ended),
        };
        self.add_crashes(&mut verdict);
        self.add_hints(&mut verdict);
        verdict.crash.iter_mut().for_each(|crash| crash.is_cause_of_death = true);
        verdict
    }

    fn of_ended(&self, ended: &Ended) -> Verdict {
        let by = match ended.pid {
            0 => String::new(),
            pid => format!(" by process {pid}"),
        };
        let verdict = match ended.how {
            Ending::Closed(None) => Verdict::new(
                Cause::GoodOrder,
                "the program closed the session; how the program ended later is not recorded",
            ),
            Ending::Exit(None) => {
                Verdict::new(Cause::Unknown, "the process exited; its exit status is not recorded")
            }
            Ending::Closed(Some(0)) | Ending::Exit(Some(0)) => {
                Verdict::new(Cause::GoodOrder, "the process exited with status 0")
            }
            Ending::Closed(Some(status)) | Ending::Exit(Some(status)) => self.of_status(status),
            Ending::Error => {
                Verdict::new(Cause::Error, "the program ended the session with an error")
            }
            Ending::Panic => self.of_panic(),
            Ending::Signal(number) => self.of_signal_record(number),
            Ending::Killed => return self.of_killed(ended),
        };
        let number = ended.how.number().map_or_else(String::new, |number| format!(" {number}"));
        let record = format!("`{}{number}`{by}", ended.how.name());
        let at = verdict.at.or(Some(ended.at).filter(|at| *at > 0));
        let verdict = Verdict { at, ..verdict };
        let evidence = Evidence { from: Witness::ExitRecord, text: record };
        Verdict { evidence: [vec![evidence], verdict.evidence].concat(), ..verdict }
    }

    fn of_status(&self, status: u8) -> Verdict {
        let main = self.crashes.last().filter(|last| {
            let is_main = |tid: &str| self.pids.iter().any(|pid| tid == pid.to_string());
            !self.is_shared && is_panic(last) && tid(last).is_some_and(is_main)
        });
        match main.filter(|_| status == PANICKED) {
            Some(crash) => crashed(Cause::Panic, crash),
            None => {
                let sentence = format!("the process exited with status {status}");
                Verdict::new(Cause::Exit(status), sentence)
            }
        }
    }

    /// Returns the verdict on a session that a panic ended.
    fn of_panic(&self) -> Verdict {
        match self.crashes.iter().rev().find(|crash| is_panic(crash)) {
            Some(crash) => crashed(Cause::Panic, crash),
            None => Verdict::new(
                Cause::Panic,
                "a panic; its message is not recorded (no panic hook, or the event is lost)",
            ),
        }
    }

    /// Returns the verdict on a session whose exit record has a signal.
    fn of_signal_record(&self, number: Option<u8>) -> Verdict {
        match self.is_abort_of_first(number) {
            true => self.of_signal(Some(ABORT)).with(
                Witness::CrashEvent,
                "SIGSEGV right after it: process 1 of a pid namespace gets no SIGABRT, so that `abort` ends it in this way",
            ),
            false => self.of_signal(number),
        }
    }

    /// Returns true if process 1 of a container called `abort`. The kernel does not deliver the
    /// SIGABRT without a handler that `abort` then raises to process 1 of a pid namespace, and
    /// `abort` ends the process by an instruction that faults.
    fn is_abort_of_first(&self, number: Option<u8>) -> bool {
        let [.., abort, fault] = self.crashes else { return false };
        number == Some(FAULT)
            && !self.is_in_initial_namespace
            && self.pids.contains(&1)
            && tid(abort).is_some()
            && tid(abort) == tid(fault)
            && is_signal(abort, ABORT)
            && is_signal(fault, FAULT)
            && abort.later_events == 0
    }

    /// Returns the verdict on a session that a signal ended.
    fn of_signal(&self, number: Option<u8>) -> Verdict {
        let name = number.map(signal_name);
        let of_it = self.crashes.iter().rposition(|crash| {
            !is_panic(crash)
                && name.as_deref().is_none_or(|name| field(crash, &["signal"]) == Some(name))
        });
        let crash = of_it.and_then(|at| self.crashes.get(at));
        // A panic that aborts raises SIGABRT in the same thread.
        let aborted = of_it.and_then(|at| self.crashes.get(at.checked_sub(1)?)).filter(|panic| {
            let is_own = tid(panic).is_some() && crash.and_then(tid) == tid(panic);
            number == Some(ABORT) && is_panic(panic) && is_own && panic.later_events == 0
        });
        match (aborted, crash, name) {
            (Some(panic), Some(signal), _) => {
                let summary = signal.summary();
                crashed(Cause::Panic, panic).with(Witness::CrashEvent, summary)
            }
            (None, Some(crash), _) => crashed(Cause::Signal(number), crash),
            (_, None, Some(name)) => {
                Verdict::new(Cause::Signal(number), format!("killed by {name}"))
            }
            (_, None, None) => {
                Verdict::new(Cause::Signal(None), "killed by a signal whose number is not known")
            }
        }
    }

    fn of_core(&self, core: &CoreInfo) -> Verdict {
        let process = core.pid.map_or_else(String::new, |pid| format!("process {pid} "));
        let process = format!("{process}({})", escape(&core.comm));
        let deadly = core.signal.and_then(|signal| u8::try_from(signal).ok());
        let Some(number) = deadly.filter(|signal| DEADLY.contains(signal)) else {
            let signal = match core.signal {
                None | Some(0) => "no signal".to_owned(),
                Some(signal) => {
                    u8::try_from(signal).map_or_else(|_| signal.to_string(), signal_name)
                }
            };
            return Verdict::new(
                Cause::Unknown,
                "unknown: a debugger makes such cores of processes that go on",
            )
            .with(Witness::Core, format!("of {process}, with {signal}"));
        };
        let name = signal_name(number);
        let mut verdict = match self.crashes.iter().any(|crash| is_signal(crash, number)) {
            true => self.of_signal(Some(number)),
            false => {
                Verdict::new(Cause::Signal(Some(number)), format!("{process} was killed by {name}"))
            }
        };
        let address = core.address.map_or_else(String::new, |at| format!(", address {at:#x}"));
        let evidence =
            Evidence { from: Witness::Core, text: format!("of {process}, with {name}{address}") };
        verdict.evidence.insert(0, evidence);
        verdict
    }

    /// Returns the verdict on a session whose processes are gone without a record.
    fn of_killed(&self, ended: &Ended) -> Verdict {
        let none = "none: the process was gone before it could write one";
        let mut verdict = self.of_kernel_log(ended).unwrap_or_else(|| self.of_unknown(ended));
        verdict.evidence.insert(0, Evidence { from: Witness::ExitRecord, text: none.to_owned() });
        if verdict.at.is_none() {
            (verdict.at, verdict.is_last_seen) = (Some(ended.at), true);
        }
        verdict
    }

    fn of_unknown(&self, ended: &Ended) -> Verdict {
        let boot =
            |sentence, text| Verdict::new(Cause::Unknown, sentence).with(Witness::Boot, text);
        match self.boot {
            Boot::This => boot(
                "killed by SIGKILL or by a signal without a handler, or left by _exit: unknown which",
                "the machine has not been started again since: it was no loss of power",
            ),
            Boot::Earlier => self.of_earlier_boot(ended),
            Boot::Unknown => boot(
                "killed or lost power: unknown which",
                "the session is of another machine or boot than this one",
            ),
        }
    }

    /// Returns the time of a line of the kernel's log, if it agrees with the end of the session:
    /// if it was written `within` this time after the last sign of life.
    fn agrees(&self, line: &KernelLine, ended: &Ended, within: u64) -> Option<u64> {
        let at = i64::try_from(line.time).ok()?.checked_add(self.boot_real_time?)?;
        let at = u64::try_from(at).ok()?;
        let slack = CLOCKS_DIFFER.saturating_add(line.time / DRIFT);
        let earliest = ended.at.saturating_sub(slack);
        let latest = ended.at.saturating_add(within).saturating_add(slack);
        (earliest..=latest).contains(&at).then_some(at)
    }

    /// Returns the lines of the kernel's log that tell of the end of a process, as far as the log
    /// is, or may be, of the session's boot.
    fn tales(&self) -> impl Iterator<Item = (KernelLine, Told)> {
        let own = Some(&self.outside.kernel_log).filter(|_| self.boot == Boot::This);
        let lines = own.into_iter().flatten().chain(&self.outside.given_log).cloned();
        let kept = self.kept().map(|(_, line)| line);
        lines.chain(kept).filter_map(|line| {
            let told = told(&line.text)?;
            Some((line, told))
        })
    }

    /// Returns the lines that kernels left in pstore, with their records, if the session is of an
    /// earlier boot.
    fn kept(&self) -> impl Iterator<Item = (&PstoreRecord, KernelLine)> {
        let records = Some(&self.outside.pstore).filter(|_| self.boot == Boot::Earlier);
        let lines = |record: &PstoreRecord| record.lines().into_iter();
        let records = records.into_iter().flatten();
        records.flat_map(move |record| lines(record).map(move |line| (record, line)))
    }

    /// Returns the verdict that the kernel's log proves: it names the process, one of its threads,
    /// or its control group, all of whose processes are killed, at the time of its end.
    fn of_kernel_log(&self, ended: &Ended) -> Option<Verdict> {
        if self.pids.len() > 1 {
            return None;
        }
        let is_own = |pid: &u32| self.is_in_initial_namespace && self.pids.contains(pid);
        let is_thread = |tid| self.is_in_initial_namespace && (self.has_thread)(tid);
        let mut verdicts = self.tales().filter_map(|(line, told)| {
            let at = self.agrees(&line, ended, DIES_WITHIN)?;
            let verdict = match told {
                Told::Killed(pid) if is_own(&pid) => {
                    let sentence = format!("the kernel's OOM killer killed process {pid}");
                    Verdict::new(Cause::OutOfMemory, sentence)
                }
                Told::Fault(tid, signal) if is_own(&tid) || is_thread(tid) => {
                    let name = signal_name(signal);
                    let sentence = format!("thread {tid} was killed by {name}, without a handler");
                    Verdict::new(Cause::Signal(Some(signal)), sentence)
                }
                Told::GroupKilled(path) if self.is_in_group(&path) => {
                    let sentence = format!(
                        "the kernel's OOM killer killed all processes of the control group {}",
                        escape(&path)
                    );
                    Verdict::new(Cause::OutOfMemory, sentence)
                }
                _ => return None,
            };
            let verdict = verdict.with(Witness::KernelLog, escape(&shown(&line)));
            Some(Verdict { at: Some(at), ..verdict })
        });
        let first = verdicts.next()?;
        // Two causes at the same time prove neither.
        verdicts.all(|other| other.cause == first.cause).then_some(first)
    }

    /// Returns true if the process was in the control group that this path of the kernel's log
    /// names, when its session began.
    fn is_in_group(&self, path: &str) -> bool {
        self.group.as_ref().is_some_and(|group| group.is_in(path))
    }

    /// Adds the crashes that are not the cause. Each of them is a hint, unless it is evidence.
    fn add_crashes(&self, verdict: &mut Verdict) {
        for crash in self.crashes.iter().filter(|crash| verdict.crash.as_ref() != Some(crash)) {
            let summary = crash.summary();
            let is_evidence = verdict.has_evidence(crash);
            let is_gone = matches!(&self.state, State::Ended(Ended { how: Ending::Killed, .. }));
            let fate = match crash.later_events {
                0 if is_evidence => "it ended the process".to_owned(),
                0 if crash.others_went_on() => {
                    "other threads went on, of this or another process".to_owned()
                }
                0 if is_gone => {
                    "nothing was recorded after it, but nothing proves that it was the end"
                        .to_owned()
                }
                0 if verdict.cause == Cause::GoodOrder => {
                    "the session was ended in good order afterwards".to_owned()
                }
                0 => "nothing was recorded after it".to_owned(),
                later => {
                    let events = lastwords_render::missing::count(later, "event");
                    format!("the process went on for {events}")
                }
            };
            if !is_evidence {
                verdict.hints.push(format!("{summary}; {fate}"));
            }
            let is_survived = crash.later_events > 0 || verdict.cause == Cause::GoodOrder;
            verdict.others.push(OtherCrash { crash: crash.clone(), fate, is_survived });
        }
    }

    /// Adds what may have to do with the end.
    fn add_hints(&self, verdict: &mut Verdict) {
        let State::Ended(ended) = &self.state else { return };
        if ended.how != Ending::Killed || verdict.cause != Cause::Unknown {
            return;
        }
        let before = |line: &KernelLine| self.agrees(line, ended, DIES_WITHIN).is_some();
        let near: Vec<String> = self
            .tales()
            .filter(|(line, _)| before(line))
            .map(|(line, _)| {
                format!("the kernel's log has, at that time: {}", escape(&shown(&line)))
            })
            .collect();
        verdict.hints.extend(near);
        match &self.outside.no_kernel_log {
            Some(why) if self.outside.given_log.is_empty() => {
                verdict.hints.push(format!("the kernel's log was not looked at: {}", escape(why)));
            }
            _ => {}
        }
        let root = self.outside.control_groups.as_ref().filter(|_| self.boot == Boot::This);
        let own = self.group.as_ref().zip(root);
        let counter = match &self.outside.cgroup {
            Some(named) => Some(named.hint()),
            None => own.and_then(|(group, root)| control_group::hint(group, root)),
        };
        verdict.hints.extend(counter);
        let records = self.outside.pstore.iter().filter(|record| is_near(record, ended));
        verdict.hints.extend(records.map(|record| format!("pstore has {}", escape(&record.name))));
        // The log that was given may be of a later boot, whose kernel says it then.
        let running = Some(&self.outside.kernel_log).filter(|_| self.boot == Boot::Earlier);
        let log = running.into_iter().flatten().chain(&self.outside.given_log);
        let reasons = log.filter(|line| is_reset_reason(&line.text)).map(|line| {
            let line = escape(&shown(line));
            format!("the kernel's log of a later boot has: {line}; nothing shows that it is of the boot right after")
        });
        verdict.hints.extend(reasons);
        let watchdogs = Some(&self.outside.watchdogs).filter(|_| self.boot == Boot::Earlier);
        verdict.hints.extend(watchdogs.into_iter().flatten().map(|name| {
            let name = escape(name);
            format!("the watchdog {name} reset the machine before this boot; nothing shows that this is the boot right after")
        }));
    }
}

/// Returns true if the kernel wrote a record of pstore when a session was last seen alive.
fn is_near(record: &PstoreRecord, ended: &Ended) -> bool {
    let latest = ended.at.saturating_add(2 * DIES_WITHIN);
    let earliest = ended.at.saturating_sub(2 * CLOCKS_DIFFER);
    record.written.is_some_and(|written| (earliest..=latest).contains(&written))
}

/// Returns the verdict on a crash that was recorded.
fn crashed(cause: Cause, crash: &Crash) -> Verdict {
    let at = u64::try_from(crash.nanoseconds()).ok().filter(|at| *at > 0);
    let verdict = Verdict::new(cause, crash.summary()).with(Witness::CrashEvent, crash.summary());
    Verdict { at, crash: Some(crash.clone()), ..verdict }
}

#[cfg(test)]
mod tests;
