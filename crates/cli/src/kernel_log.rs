//! The log of a kernel, beside its trace.

use crate::say;
use crate::table::plain;
use anyhow::bail;
use lastwords_ftrace::log::{Log, LogLine, Relation};
use lastwords_open::{Ftrace, Machine, Trace};

/// Returns the kernel's log as far as it can be read, with the lines of devices that `/dev/kmsg` has
/// if it is to be verbose. Missing parts are reported on stderr.
pub(crate) fn log(array: &Trace, is_verbose: bool) -> anyhow::Result<Vec<LogLine>> {
    if array.ftrace().is_none_or(|ftrace| ftrace.machine.kernel.is_none()) {
        let from = array.origin.path.display();
        bail!("{from}: a trace.dat file has no kernel log; --with-log is for a kernel's memory");
    }
    let mut lines = log_lines(array.ftrace().map(|ftrace| ftrace.machine));
    for line in lines.iter_mut().filter(|_| is_verbose) {
        let properties: Vec<String> = line.properties().collect();
        properties.iter().for_each(|property| line.text.extend(["\n", property]));
    }
    Ok(lines)
}

/// Returns the lines of a kernel's log. Missing parts are reported on stderr.
pub(crate) fn log_lines(machine: Option<&Machine>) -> Vec<LogLine> {
    let Some(kernel) = machine.and_then(|machine| machine.kernel.as_ref()) else {
        return Vec::new();
    };
    let found = kernel.log();
    found.missing.iter().for_each(|error| say::note(format_args!("the kernel's log: {error}")));
    found.rows
}

/// Returns how the clocks of a kernel's log and of a trace array relate.
pub(crate) fn relation(ftrace: &Ftrace<'_>) -> Relation {
    let kernel = ftrace.machine.kernel.as_ref();
    let offset = kernel.map(|kernel| kernel.number("__sched_clock_offset", 8).unwrap_or(0));
    Relation::new(ftrace.array, offset.map(u64::cast_signed))
}

/// Returns the log on the timeline of a trace array. If the clocks differ, a note on stderr says
/// so.
pub(crate) fn timeline_of<'l>(array: &Trace, lines: &'l [LogLine]) -> Log<'l> {
    let Some(ftrace) = array.ftrace().filter(|_| !lines.is_empty()) else { return Log::none() };
    let (relation, rings) = (relation(&ftrace), ftrace.array);
    if let Some(remark) = relation.remark(rings) {
        say::note(plain(&remark));
    }
    Log::new(lines, relation)
}
