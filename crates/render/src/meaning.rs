//! The meaning of events for a timeline: what begins, what ends, what runs.

use crate::spans::Step;
use lastwords_ctf::read::Trace;

/// The way in which an event changes the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// The event is a mark.
    Mark,
    /// The CPU goes on with another thread.
    Switch,
    /// An interrupt handler begins.
    Interrupt,
    /// A handler of a soft interrupt begins.
    SoftInterrupt,
    /// An interrupt handler, soft or not, ends.
    InterruptEnd {
        /// The interrupt is a soft one.
        is_soft: bool,
    },
    /// The thread enters a system call with this name; the name may be empty.
    SystemCall(String),
    /// The thread leaves a system call with this name; the name may be empty.
    SystemCallEnd(String),
    /// The thread ends.
    Exit,
    /// A span changes.
    Span(Step, String),
    /// A thread enters a kernel function, as the function graph tracer notes it.
    Function,
    /// A thread returns from a kernel function.
    FunctionEnd,
    /// A line of the kernel's log.
    Log,
}

impl Meaning {
    /// Returns the meaning of events with this name: `irq:irq_handler_entry` of ftrace,
    /// `irq_handler_entry` of LTTng. Only a kernel's events tell of scheduling: those of
    /// applications may have any names.
    #[must_use]
    pub fn from_name(name: &str, trace: &Trace) -> Self {
        if trace.is_beside {
            return Self::Log;
        }
        if let Some((step, span)) = Step::parse(name) {
            return Self::Span(step, span.to_owned());
        }
        if is_kernel(trace) { Self::of_kernel(name) } else { Self::Mark }
    }

    fn of_kernel(name: &str) -> Self {
        match name {
            "ftrace:funcgraph_entry" | "ftrace:fgraph_retaddr_entry" => return Self::Function,
            "ftrace:funcgraph_exit" => return Self::FunctionEnd,
            _ => {}
        }
        let own = match name.split_once(':') {
            Some(("sched" | "irq" | "syscalls" | "raw_syscalls", own)) => own,
            Some(_) => return Self::Mark,
            None => name,
        };
        match own {
            "sched_switch" => return Self::Switch,
            "irq_handler_entry" => return Self::Interrupt,
            "irq_handler_exit" => return Self::InterruptEnd { is_soft: false },
            "softirq_entry" | "irq_softirq_entry" => return Self::SoftInterrupt,
            "softirq_exit" | "irq_softirq_exit" => return Self::InterruptEnd { is_soft: true },
            "sys_enter" => return Self::SystemCall(String::new()),
            "sched_process_exit" => return Self::Exit,
            "sys_exit" => return Self::SystemCallEnd(String::new()),
            _ => {}
        }
        let call = |prefixes: [&str; 2]| {
            prefixes.iter().find_map(|prefix| own.strip_prefix(prefix)).map(str::to_owned)
        };
        let entry = call(["sys_enter_", "syscall_entry_"]).map(Self::SystemCall);
        let exit = || call(["sys_exit_", "syscall_exit_"]).map(Self::SystemCallEnd);
        entry.or_else(exit).unwrap_or(Self::Mark)
    }
}

/// Returns true if the events of a trace are those of a kernel.
fn is_kernel(trace: &Trace) -> bool {
    trace.class().is_ftrace() || trace.class().text("domain") == Some("kernel")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ftrace_and_lttng_mean_the_same() {
        for (names, meaning) in [
            (["sched:sched_switch", "sched_switch"], Meaning::Switch),
            (["irq:softirq_entry", "irq_softirq_entry"], Meaning::SoftInterrupt),
            (["syscalls:sys_enter_read", "syscall_entry_read"], Meaning::SystemCall("read".into())),
            (
                ["syscalls:sys_exit_read", "syscall_exit_read"],
                Meaning::SystemCallEnd("read".into()),
            ),
            (["raw_syscalls:sys_exit", "sys_exit"], Meaning::SystemCallEnd(String::new())),
            (["ftrace:funcgraph_entry", "ftrace:fgraph_retaddr_entry"], Meaning::Function),
            (["shop:sched_switch", "synthetic:sys_enter_read"], Meaning::Mark),
        ] {
            for name in names {
                assert_eq!(Meaning::of_kernel(name), meaning, "{name}");
            }
        }
        assert_eq!(Meaning::of_kernel("sched_switched"), Meaning::Mark);
    }
}
