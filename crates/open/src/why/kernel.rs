//! The verdict on the end of a kernel whose memory was dumped.

use super::{Cause, Verdict, Witness};
use crate::{Machine, escape};

/// Words in the panics of the kernel's watchdogs: `kernel/watchdog.c`, `kernel/hung_task.c`,
/// `kernel/rcu/tree_stall.h`, `drivers/watchdog/softdog.c` and `pretimeout_panic.c`, Linux 6.12.
const LOCKUPS: [&str; 7] = [
    "softlockup: hung tasks",
    "Hard LOCKUP",
    "hard LOCKUP",
    "hung_task: blocked tasks",
    "RCU Stall",
    "Software Watchdog Timer expired",
    "watchdog pretimeout event",
];
/// Words in the panics of a kernel without memory: `mm/oom_kill.c`.
const OUT_OF_MEMORY: [&str; 2] = ["Out of memory", "System is deadlocked on memory"];
/// The panic that a user asks for: `drivers/tty/sysrq.c`.
const ASKED_FOR: &str = "sysrq triggered crash";
/// The first words of a line of the watchdog that is no panic.
const WATCHDOG: &str = "watchdog: BUG: ";

/// Returns the verdict on the end of a kernel; none if the input has no kernel's memory. `at` turns
/// a time of the kernel's log into nanoseconds since the epoch, if that is known.
#[must_use]
pub fn kernel(machine: &Machine, at: impl Fn(u64) -> Option<u64>) -> Option<Verdict> {
    let kernel = machine.kernel.as_ref()?;
    let log = kernel.log();
    let crash = kernel.crash(&log.rows);
    let mut verdict = judge(crash.panic.as_deref(), crash.oops.as_deref(), crash.cpu);
    verdict.at = crash.time.and_then(at);
    if let Some(missing) = log.missing.first() {
        verdict.hints.push(format!("a part of the kernel's log cannot be read: {missing}"));
    }
    Some(verdict)
}

/// Returns the cause that the words of a panic prove, and what the kernel did, without a subject.
pub(super) fn of_panic(panic: &str) -> (Cause, &'static str) {
    let has = |words: &[&str]| words.iter().any(|words| panic.contains(words));
    match panic {
        _ if has(&LOCKUPS) => (Cause::Lockup, "panicked, by its watchdog"),
        _ if has(&OUT_OF_MEMORY) => (Cause::OutOfMemory, "panicked because memory ran out"),
        ASKED_FOR => (Cause::KernelPanic, "panicked because a user asked for it, by sysrq"),
        _ => (Cause::KernelPanic, "panicked"),
    }
}

/// Decides by the panic and the last oops in the log, and by the CPU that the kernel's variables
/// name as the one that panicked.
fn judge(panic: Option<&str>, oops: Option<&str>, cpu: Option<u32>) -> Verdict {
    let on = cpu.map_or_else(String::new, |cpu| format!(" on CPU {cpu}"));
    match (panic, oops) {
        (Some(panic), oops) => {
            let (cause, what) = of_panic(panic);
            let verdict = Verdict::new(cause, format!("it {what}{on}: {}", escape(panic)));
            let line = format!("Kernel panic - not syncing: {}", escape(panic));
            let verdict = verdict.with(Witness::KernelLog, line);
            match oops {
                Some(oops) => verdict.with(Witness::KernelLog, escape(oops)),
                None => verdict,
            }
        }
        (None, Some(oops)) if cpu.is_some() => {
            let cause = match oops.starts_with(WATCHDOG) {
                true => Cause::Lockup,
                false => Cause::KernelOops,
            };
            Verdict::new(cause, format!("it crashed{on}: {}", escape(oops)))
                .with(Witness::KernelLog, escape(oops))
                .with(
                    Witness::KernelLog,
                    format!("the kernel's memory names the CPU that crashed{on}"),
                )
        }
        (None, oops) => {
            let sentence = "unknown: its log has no panic; it may have been dumped while it ran";
            let mut verdict = Verdict::new(Cause::Unknown, sentence)
                .with(Witness::KernelLog, "no panic, and no CPU that crashed");
            let hint = |oops: &str| {
                format!("the kernel's log has `{}`, which a kernel may survive", escape(oops))
            };
            verdict.hints.extend(oops.map(hint));
            verdict
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_dies_of_a_panic_or_of_a_crash_that_its_memory_names() {
        let cause = |panic, oops, cpu| judge(panic, oops, cpu).cause;
        assert_eq!(cause(Some("Fatal exception"), Some("Oops: 0002"), Some(1)), Cause::KernelPanic);
        assert_eq!(cause(Some(ASKED_FOR), None, None), Cause::KernelPanic);
        for lockup in [
            "softlockup: hung tasks",
            "Hard LOCKUP",
            "hung_task: blocked tasks",
            "Watchdog detected hard LOCKUP on cpu 3",
            "RCU Stall",
            "Software Watchdog Timer expired",
            "watchdog pretimeout event",
        ] {
            assert_eq!(cause(Some(lockup), None, Some(0)), Cause::Lockup, "{lockup}");
        }
        let oom = "Out of memory: compulsory panic_on_oom is enabled";
        assert_eq!(cause(Some(oom), None, Some(0)), Cause::OutOfMemory);
        assert_eq!(cause(None, Some("Oops: 0002 [#1]"), Some(2)), Cause::KernelOops);
        let lockup = "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [a:1]";
        assert_eq!(cause(None, Some(lockup), Some(0)), Cause::Lockup);
        // A kernel survives an oops, and a dump can be made of one that runs.
        assert_eq!(cause(None, Some("Oops: 0002 [#1]"), None), Cause::Unknown);
        assert_eq!(cause(None, Some(lockup), None), Cause::Unknown);
        assert_eq!(cause(None, None, Some(0)), Cause::Unknown);
        let verdict = judge(None, Some("Oops: \u{1b}[2J"), None);
        assert!(verdict.hints[0].contains("which a kernel may survive"), "{verdict:?}");
        assert!(!verdict.hints[0].contains('\u{1b}'), "{verdict:?}");
    }
}
