//! Prepares the classes of events: what the page says of a class, and what its events mean for the
//! timeline.

use crate::picks::Picks;
use crate::shapes::Shapes;
use lastwords_ctf::read::Trace;
use lastwords_render::json::Plan;
use lastwords_render::spans::Step;
use lastwords_render::streams::{StreamInfo, channel, scope_code};
use lastwords_trace::class::{EventClass, LogLevel, Scope};
use serde::Serialize;

/// The facts that the page has once for all events of a class.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Kind {
    /// Position of the trace.
    pub(crate) trace: usize,
    pub(crate) channel: String,
    pub(crate) name: String,
    /// `error`, `warn`, …; empty if the class has no level.
    pub(crate) level: &'static str,
    /// The events have times.
    pub(crate) timed: bool,
    /// The events are lines of a kernel's log, which are not counted.
    pub(crate) log: bool,
    /// Number and word of the level, for filters.
    pub(crate) severity: Option<(u8, &'static str)>,
    /// The numbers of the shapes of the common context, the specific context and the payload.
    pub(crate) scopes: [Option<u32>; 3],
}

/// The way in which an event changes the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The event is a mark.
    Mark,
    /// The CPU goes on with another thread.
    Switch,
    /// An interrupt handler begins.
    Interrupt,
    /// A handler of a soft interrupt begins.
    SoftInterrupt,
    /// An interrupt handler, soft or not, ends.
    InterruptEnd { is_soft: bool },
    /// The thread enters a system call with this name; the name may be empty.
    SystemCall(String),
    /// The thread leaves a system call with this name; the name may be empty.
    SystemCallEnd(String),
    /// The thread ends.
    Exit,
    /// A span changes.
    Span(Step, String),
    /// A line of the kernel's log.
    Log,
}

impl Meaning {
    /// Returns the meaning of events with this name: `irq:irq_handler_entry` of ftrace,
    /// `irq_handler_entry` of LTTng. Only a kernel's events tell of scheduling: those of
    /// applications may have any names.
    fn from_name(name: &str, trace: &Trace) -> Self {
        if trace.is_beside {
            return Self::Log;
        }
        if let Some((step, span)) = Step::parse(name) {
            return Self::Span(step, span.to_owned());
        }
        if is_kernel(trace) { Self::of_kernel(name) } else { Self::Mark }
    }

    fn of_kernel(name: &str) -> Self {
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

/// A class of events, prepared for reading.
pub(crate) struct Class<'t> {
    pub(crate) kind: u32,
    pub(crate) meaning: Meaning,
    /// The plans and picks of the common context, the specific context and the payload.
    pub(crate) scopes: [Option<(Plan<'t>, Picks)>; 3],
}

/// Prepares the class at a position of a stream class.
pub(crate) fn prepare<'t>(
    trace: &'t Trace,
    stream: &StreamInfo,
    event: usize,
    (kind, shapes): (u32, &mut Shapes),
) -> Option<(Class<'t>, Kind)> {
    let class = trace.class().streams.get(stream.class)?;
    let described: &EventClass = class.events.get(event)?;
    let name = described.name.as_deref().unwrap_or("<unknown>").to_owned();
    let ftrace = trace.class().is_ftrace();
    let all = [Scope::CommonContext, Scope::SpecificContext, Scope::Payload];
    let scopes = all.map(|scope| {
        let code = scope_code(trace, scope, stream.class, event)?;
        Some((Plan::new(code), Picks::new(code, scope != Scope::Payload, ftrace)))
    });
    let shapes = all.map(|scope| {
        trace.class().scope(scope, stream.class, event).map(|root| shapes.number(root))
    });
    let meaning = Meaning::from_name(&name, trace);
    let level = if name.starts_with("crash:") {
        "error"
    } else {
        described.log_level.map_or("", LogLevel::word)
    };
    let (timed, log) = (class.clock.is_some(), trace.is_beside);
    let kind_of = Kind {
        trace: stream.trace,
        channel: channel(class),
        name,
        level,
        timed,
        log,
        severity: described.log_level.map(|level| (level.number(), level.word())),
        scopes: shapes,
    };
    Some((Class { kind, meaning, scopes }, kind_of))
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
            (["shop:sched_switch", "synthetic:sys_enter_read"], Meaning::Mark),
        ] {
            for name in names {
                assert_eq!(Meaning::of_kernel(name), meaning, "{name}");
            }
        }
        assert_eq!(Meaning::of_kernel("sched_switched"), Meaning::Mark);
    }
}
