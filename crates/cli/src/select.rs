//! Selects events: the options that `report`, `recover` and `convert` share.

use crate::clocks;
use crate::ended;
use crate::moment::Moment;
use crate::say;
use crate::table::plain;
use crate::traces::Traces;
use crate::value::{glob, number};
use crate::verbs::level::Level;
use anyhow::{Context, bail};
use lastwords_ctf::Version;
use lastwords_filter::{Described, Filter};
use lastwords_ftrace::Choice;
use lastwords_open::{Ftrace, Trace};
use lastwords_render::filter;
use lastwords_render::select::{Selection, matches};
use lastwords_trace::source::Source;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

/// The options of [`Events`], for messages.
const OPTIONS: &str = "--cpu, --channel, --event, --level, --filter, --since, --until and --last";

/// The options that select events.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Events {
    /// Only events of these CPUs: numbers and ranges (0,4-7)
    #[arg(long = "cpu", value_name = "CPUS", value_delimiter = ',')]
    cpus: Vec<Cpus>,

    /// Only events of the channels that match; may be repeated
    ///
    /// Channels exist in sessions. GLOB may have `*`, `?` and `[a-z]`. If several channels have an
    /// event, the copies in the channels that match are selected.
    #[arg(long = "channel", value_name = "GLOB", value_parser = glob)]
    channels: Vec<String>,

    /// Only events whose name matches; may be repeated
    ///
    /// GLOB may have `*`, `?`, `[a-z]` and `[!a-z]`. It matches the whole `provider:name`, or the
    /// part after the last colon. In `recover` and `convert`, trace.dat, and CTF of all but a
    /// kernel's trace, copy whole packets and take no selection: add `--to json`, `text`,
    /// `perfetto` or `otlp`.
    #[arg(short = 'e', long = "event", value_name = "GLOB", value_parser = glob)]
    events: Vec<String>,

    /// At least this severe
    ///
    /// An event that has no severity, such as most of a kernel's, is not selected.
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Option<Level>,

    /// Only events for which EXPR is true
    ///
    /// Expressions are those of the filters of ftrace and LTTng: `prev_comm ~ "kworker/*" &&
    /// prev_prio < 100`. Names are those of fields and contexts, and cpu, comm, pid, tid, level,
    /// event, channel. `level <= warn` holds for warnings and errors. As in C, `&` is weaker than `==`: write `(flags & 4) == 4`. docs/FILTER.md
    /// has the grammar.
    #[arg(long, value_name = "EXPR", value_parser = expression, allow_hyphen_values = true)]
    filter: Option<Arc<Filter>>,

    /// Only events at or after this moment
    ///
    /// A moment is a date and time, a time of day, seconds as they are printed (17.6 or @17.6), or
    /// a time before the newest event (-2s). If the clock does not count nanoseconds, it is ticks
    /// as they are printed.
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    since: Option<Moment>,

    /// Only events at or before this moment
    #[arg(long, value_name = "MOMENT", allow_hyphen_values = true)]
    until: Option<Moment>,

    /// Only the last N events of all traces together
    ///
    /// If nothing relates the clocks of instances or kernels, a note says so, and N events of each
    /// of them are selected. In `recover` and `convert`, trace.dat and CTF copy whole packets and
    /// do not take this option: add `--to json`, `text`, `perfetto` or `otlp`.
    #[arg(long, value_name = "N", value_parser = number::<u64>)]
    last: Option<u64>,
}

pub(crate) fn expression(text: &str) -> Result<Arc<Filter>, lastwords_filter::Error> {
    Filter::parse(text).map(Arc::new)
}

/// A range of CPUs, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cpus {
    first: u32,
    last: u32,
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let cpus = first
            .trim()
            .parse()
            .ok()
            .zip(last.trim().parse().ok())
            .filter(|(first, last)| first <= last);
        let (first, last) = cpus.ok_or("not a CPU: give a number (7) or a range (0-3)")?;
        Ok(Self { first, last })
    }
}

/// A selection for certain traces.
#[derive(Clone)]
pub(crate) struct Chosen {
    options: Events,
    /// The CPUs that are wanted and exist. If it is empty, all CPUs are wanted.
    pub(crate) cpus: Vec<u32>,
    /// The expression of `--filter` and the severity of `--level`.
    filter: Option<Arc<Filter>>,
    /// The number of `--last`, unless the caller counts itself.
    pub(crate) last: Option<u64>,
    /// The time of the newest event in nanoseconds since the epoch, if a moment depends on it.
    end: i64,
}

impl Events {
    /// Returns true if no option was given: all events are wanted.
    pub(crate) fn is_default(&self) -> bool {
        let (moments, streams) = (
            self.since.is_some() || self.until.is_some(),
            !self.cpus.is_empty() || !self.channels.is_empty(),
        );
        let events = !self.events.is_empty() || self.filter.is_some() || self.level.is_some();
        !moments && !streams && !events && self.last.is_none()
    }

    /// Refuses any selection, because the format writes all events. `why` is the reason for the
    /// message, and `others` are the formats that can select.
    pub(crate) fn refuse(&self, why: &str, others: &str) -> anyhow::Result<()> {
        if self.is_default() {
            return Ok(());
        }
        bail!("{why}; {OPTIONS} are for other formats: {others}")
    }

    /// Returns the selection for these traces.
    ///
    /// # Errors
    /// No trace has a CPU that is wanted; the filter reads a name that no event has; channels are
    /// wanted and a trace is not a session; a moment cannot be related to the clock of a trace.
    pub(crate) fn choose(&self, traces: &Traces) -> anyhow::Result<Chosen> {
        self.check_channels(traces)?;
        self.check_names(traces)?;
        self.choose_unchecked(traces)
    }

    fn check_channels(&self, traces: &Traces) -> anyhow::Result<()> {
        let without = traces
            .all
            .iter()
            .find(|trace| trace.session().is_none())
            .filter(|_| !self.channels.is_empty());
        let Some(trace) = without else { return Ok(()) };
        let path = trace.origin.path.display();
        match trace.ftrace() {
            Some(_) => {
                bail!("{path} has no channels, because it is a kernel's trace: use --instance")
            }
            None => {
                bail!("{path}: only sessions of lastwords have channels to select: use --event")
            }
        }
    }

    /// Does the same, but a filter may read a name that no event has so far.
    ///
    /// # Errors
    /// The same, except for the filter.
    pub(crate) fn choose_unchecked(&self, traces: &Traces) -> anyhow::Result<Chosen> {
        clocks::check_moments(traces, &[self.since, self.until])?;
        let relative = [self.since, self.until].iter().flatten().any(|m| m.needs_end());
        Ok(Chosen {
            options: self.clone(),
            cpus: self.cpus(traces)?,
            filter: self.whole_filter()?,
            last: self.last,
            end: if relative {
                traces.all.iter().filter_map(Trace::newest).max().unwrap_or(0)
            } else {
                0
            },
        })
    }

    /// Returns the same events without a limit of their number.
    pub(crate) fn without_last(&self) -> Self {
        Self { last: None, ..self.clone() }
    }

    /// Returns the expression of both `--level` and `--filter`.
    ///
    /// # Errors
    /// Together they are longer than an expression may be.
    fn whole_filter(&self) -> anyhow::Result<Option<Arc<Filter>>> {
        let level = self.level.map(|level| format!("level <= {}", level.name()));
        let text = match (level, &self.filter) {
            (None, filter) => return Ok(filter.clone()),
            (Some(level), None) => level,
            (Some(level), Some(filter)) => format!("{level} && ({})", filter.text()),
        };
        Ok(Some(expression(&text).context("--level and --filter")?))
    }

    /// Checks that some event has each name that the filter reads.
    ///
    /// # Errors
    /// No event has one of the names.
    pub(crate) fn check_names(&self, traces: &Traces) -> anyhow::Result<()> {
        if self.filter.is_none() && self.level.is_none() {
            return Ok(());
        }
        let (packets, kernels) = (traces.packets(Version::V2)?, kernels(traces));
        if self.level.is_some()
            && filter::check(&*expression("level")?, &packets, &kernels).is_err()
        {
            bail!("--level: no event of the input has a severity");
        }
        let Some(expression) = &self.filter else { return Ok(()) };
        filter::check(expression, &packets, &kernels).context("--filter")
    }

    fn cpus(&self, traces: &Traces) -> anyhow::Result<Vec<u32>> {
        if self.cpus.is_empty() {
            return Ok(Vec::new());
        }
        let there: BTreeSet<u32> = traces.all.iter().flat_map(Trace::cpus).collect();
        let wanted =
            |cpu: &&u32| self.cpus.iter().any(|range| (range.first..=range.last).contains(cpu));
        for range in &self.cpus {
            if there.range(range.first..=range.last).next().is_none() {
                let Cpus { first, last } = range;
                let what =
                    if first == last { first.to_string() } else { format!("{first}-{last}") };
                let inputs: Vec<String> = traces
                    .origins
                    .iter()
                    .map(|origin| plain(&origin.path.display().to_string()))
                    .collect();
                bail!("{}: there is no CPU {what}, only {}", inputs.join(", "), words(&there));
            }
        }
        Ok(there.iter().filter(wanted).copied().collect())
    }
}

/// Returns what kernels describe.
fn kernels(traces: &Traces) -> Vec<&dyn Described> {
    let arrays = traces.arrays().filter_map(Trace::ftrace);
    arrays.map(|ftrace| &*ftrace.machine.tracing as &dyn Described).collect()
}

/// Formats the CPUs for a message: `CPUs 0-1,4`.
fn words(cpus: &BTreeSet<u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*cpu) => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let range = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    let ranges: Vec<String> = ranges.iter().map(range).collect();
    match cpus.len() {
        0 => "no stream that is bound to a CPU".to_owned(),
        1 => format!("CPU {}", ranges.join(",")),
        _ => format!("CPUs {}", ranges.join(",")),
    }
}

impl Chosen {
    /// Returns the selection for traces whose times are since the epoch.
    pub(crate) fn selection(&self) -> Selection {
        Selection {
            cpus: self.cpus.clone(),
            channels: self.options.channels.clone(),
            events: self.options.events.clone(),
            filter: self.filter.clone(),
            since: self.options.since.map(|moment| moment.resolve(self.end)),
            until: self.options.until.map(|moment| moment.resolve(self.end)),
            last: self.last,
            unread_before: false,
            deduplicate: false,
        }
    }

    /// Returns the selection for output that people read. An event that several channels of a
    /// session have appears once, unless channels were selected.
    pub(crate) fn once(&self) -> Selection {
        let reads_channel = |filter: &Arc<Filter>| {
            filter.names().iter().any(|name| name.plain() == Some("channel"))
        };
        let deduplicate =
            self.options.channels.is_empty() && !self.filter.as_ref().is_some_and(reads_channel);
        Selection { deduplicate, ..self.selection() }
    }

    /// Returns the selection for arrays of one machine, by their clock. Dates work if the clock's
    /// relation to real time is known.
    pub(crate) fn choice(&self, arrays: &[Ftrace<'_>]) -> Choice {
        let offset = arrays.first().and_then(Ftrace::real_time);
        let end = || arrays.iter().map(Ftrace::newest).max().unwrap_or(0);
        let in_ns = arrays.first().is_none_or(|array| array.array.is_in_ns());
        let clock = |moment: Moment| {
            let reading = match (moment, offset) {
                (Moment::Whole(ticks), _) if !in_ns => return ticks,
                (Moment::Whole(_) | Moment::Printed(_), _) => moment.resolve(0),
                (moment, Some(offset)) => moment.resolve(self.end).saturating_sub(offset),
                (moment, None) => moment.resolve(end()),
            };
            u64::try_from(reading).unwrap_or(0)
        };
        Choice {
            snapshot: arrays.iter().any(|array| array.snapshot),
            cpus: self.cpus.clone(),
            events: self.options.events.clone(),
            filter: self.filter.clone(),
            since: self.options.since.map(clock),
            until: self.options.until.map(clock),
            last: self.last,
        }
    }

    /// Returns true if events of the CPU are wanted.
    pub(crate) fn wants_cpu(&self, cpu: u32) -> bool {
        self.cpus.is_empty() || self.cpus.contains(&cpu)
    }

    /// Returns the selection without `--last`, which the caller counts itself.
    pub(crate) fn without_last(&self) -> Self {
        Self { last: None, ..self.clone() }
    }

    /// Returns a remark if the selection leaves begins without their ends, so that `view` does not
    /// draw what lasts.
    pub(crate) fn undrawn(&self) -> Option<String> {
        let given = self.given();
        let by = given.iter().find(|option| ["--level", "--filter"].contains(option));
        let what = match (by, self.cpus.is_empty()) {
            (Some(option), _) => format!(
                "{option} may leave begins without ends: scheduling, interrupts, system calls and spans are not drawn as slices"
            ),
            (None, false) => {
                "--cpu leaves begins without ends: system calls and spans are not drawn as slices"
                    .to_owned()
            }
            (None, true) => return None,
        };
        Some(format!("{what}; the page's own filter leaves them"))
    }

    /// Prints why events may be missing: a glob that matches no event or channel, or a selection
    /// that left no event. Returns true if the selection left no event.
    pub(crate) fn report_empty(&self, traces: &Traces, shown: u64) -> bool {
        // The caller reports a trace that has no description.
        let described = traces.packets(Version::V2).unwrap_or_default();
        let unknown = filter::unknown_events(&self.options.events, &described, &kernels(traces));
        for (glob, near) in &unknown {
            let advice = match near.is_empty() {
                true => "; `lastwords inspect` lists those there are".to_owned(),
                false => format!("; did you mean {}?", plain(&near.join(", "))),
            };
            say::note(format_args!("no event is called {}{advice}", plain(glob)));
        }
        let channels = || traces.sessions().flat_map(|found| &found.session.schema().channels);
        for glob in self
            .options
            .channels
            .iter()
            .filter(|glob| !channels().any(|own| matches(glob, &own.name)))
        {
            say::note(format_args!(
                "no channel is called {}; `lastwords inspect` lists those there are",
                plain(glob)
            ));
        }
        if unknown.is_empty() { self.note_if_empty(traces, shown) } else { shown == 0 }
    }

    /// Returns true if the selection left no event, and prints a note then.
    pub(crate) fn note_if_empty(&self, traces: &Traces, shown: u64) -> bool {
        let is_empty = shown == 0 && !self.options.is_default();
        if is_empty {
            let newest = self.options.since.and_then(|_| newest(traces));
            let newest =
                newest.map_or_else(String::new, |at| format!("; the newest event is at {at}"));
            say::note(format_args!("no event is left by {}{newest}", self.given().join(" and ")));
            let names = self.filter.iter().flat_map(|filter| filter.names());
            if names.into_iter().any(|name| name.plain() == Some("event")) {
                say::note(
                    "--filter: event is the whole name of an event, such as \"sched:sched_switch\"",
                );
            }
        }
        is_empty
    }

    /// Returns the options that were given.
    fn given(&self) -> Vec<&'static str> {
        let options = &self.options;
        let given = [
            (!options.cpus.is_empty(), "--cpu"),
            (!options.channels.is_empty(), "--channel"),
            (!options.events.is_empty(), "--event"),
            (options.level.is_some(), "--level"),
            (options.filter.is_some(), "--filter"),
            (options.since.is_some(), "--since"),
            (options.until.is_some(), "--until"),
            (self.last.is_some(), "--last"),
        ];
        given.into_iter().filter(|(is_given, _)| *is_given).map(|(_, option)| option).collect()
    }
}

/// Returns the time of the newest event, as `report` prints it.
fn newest(traces: &Traces) -> Option<String> {
    let first = traces.all.first()?;
    if let Some(ftrace) = first.ftrace() {
        let newest = traces.arrays().filter_map(Trace::ftrace).map(|array| array.newest()).max()?;
        return Some(match ftrace.array.is_in_ns() {
            true => ended::seconds(newest),
            false => newest.to_string(),
        });
    }
    let newest = traces.all.iter().filter_map(Trace::newest).max()?;
    Some(ended::date_and_time(newest)).filter(|_| first.unrelated_clock().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_cpus() {
        assert_eq!("7".parse(), Ok(Cpus { first: 7, last: 7 }));
        assert_eq!("0-3".parse(), Ok(Cpus { first: 0, last: 3 }));
        for text in ["", "-", "3-1", "a", "1-", "99999999999"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
        assert_eq!(words(&BTreeSet::from([0, 1, 2, 5])), "CPUs 0-2,5");
        assert_eq!(words(&BTreeSet::from([3])), "CPU 3");
    }
}
