//! Reports the events of a trace: how many there are of each name, and when.

use super::histogram::Histogram;
use super::tally::{self, Counted, Tally};
use crate::{Trace, unrelated_clocks};
use lastwords_ctf::read::{self, Watch};
use lastwords_ctf::{Error, Result, Totals, Version};
use lastwords_lttng as lttng;
use lastwords_render::select::Selection;
use lastwords_render::streams::channel;
use lastwords_trace::class::StreamClass;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The most columns of [`Activity::histogram`]: a line on a terminal of 80 columns.
const COLUMNS: u64 = 60;

/// The unit of a clock that does not count nanoseconds.
pub const TICKS: &str = "ticks";

/// The events of a trace, or those of them that were selected.
#[derive(Debug, Clone, Serialize)]
pub struct Activity {
    /// The counts are of a selection.
    pub selected: bool,
    /// The number of events.
    pub total: u64,
    /// The number of events by channel and name, the most frequent first.
    pub events: Vec<Named>,
    /// The time of the first event, in nanoseconds since the epoch or since the origin of the
    /// clock.
    #[serde(serialize_with = "text")]
    pub begin_ns: Option<i64>,
    /// The time of the last event, as the first.
    #[serde(serialize_with = "text")]
    pub end_ns: Option<i64>,
    /// The times are since the epoch.
    pub since_epoch: bool,
    /// The unit of all times here: `ns`, or [`TICKS`] if a kernel's clock does not count
    /// nanoseconds.
    pub unit: &'static str,
    /// The width of the columns of `histogram` in nanoseconds.
    pub column_ns: u64,
    /// The number of events in each column, from the first event to the last. An event near the
    /// edge of a column may be in its neighbour.
    pub histogram: Vec<u64>,
    /// The number that is added to readings of a kernel's clock to get these times.
    #[serde(skip)]
    pub offset_ns: i64,
}

/// The number of events of a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Named {
    /// `provider:name`, or the name alone.
    pub name: String,
    /// The channel: the name of the class of the streams.
    pub channel: String,
    /// How many there are. It is 0 if a session describes the event and none was recovered.
    pub count: u64,
}

/// Returns false if a kernel's clock counts something else, also in a CTF trace that was made of
/// it.
fn counts_nanoseconds(trace: &Trace) -> bool {
    match trace.ftrace() {
        Some(ftrace) => ftrace.array.is_in_ns(),
        None => trace.ctf().is_none_or(|ctf| ctf.class().counts_nanoseconds()),
    }
}

fn text<S: Serializer>(time: &Option<i64>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    time.map(|time| time.to_string()).serialize(serializer)
}

/// The packets of a trace if they are kept, what reading all of them found, and the report on the
/// events that were selected.
pub(super) struct Read<'p> {
    pub(super) packets: Option<&'p Result<read::Trace>>,
    /// By stream.
    pub(super) tallies: Vec<Tally>,
    pub(super) activity: Option<Activity>,
}

/// Makes the packets of a kernel's trace array; none if it has none.
pub type Make<'m> = &'m dyn Fn(&Trace) -> Option<Result<read::Trace>>;

/// Reads the packets of traces. `packets` has those of each trace, or none if a trace has no
/// packets. A kernel's are selected already, and are read only once. Those of trace arrays that are
/// not in `packets` are made by `make`, and dropped before the next array's: each has the classes
/// of all events of the kernel.
pub(super) fn read<'p>(
    traces: &[Trace],
    packets: &'p [Option<Result<read::Trace>>],
    make: Make<'_>,
    selection: Option<&Selection>,
    watch: Watch<'_>,
) -> Vec<Option<Read<'p>>> {
    let mut selected =
        selection.map(|selection| selected(traces, packets, selection, watch).into_iter());
    let of = |(trace, packets): (&Trace, &'p Option<Result<read::Trace>>)| {
        let Some(packets) = packets else {
            let made = make(trace).filter(|_| selected.is_none())?.ok()?;
            let tallies = tally::all(&made, watch);
            let counted: Vec<Counted> = tallies.iter().map(|tally| tally.counted.clone()).collect();
            let activity = Some(Activity::new(trace, &made, &counted, false));
            return Some(Read { packets: None, tallies, activity });
        };
        let kept = Some(packets);
        let Ok(usable) = packets else {
            return Some(Read { packets: kept, tallies: Vec::new(), activity: None });
        };
        let is_read = selected.is_some() && trace.ftrace().is_some();
        let tallies = if is_read { Vec::new() } else { tally::all(usable, watch) };
        let activity = match &mut selected {
            Some(selected) => {
                Activity::new(trace, usable, &selected.next().unwrap_or_default(), true)
            }
            None => {
                let counted: Vec<Counted> =
                    tallies.iter().map(|tally| tally.counted.clone()).collect();
                Activity::new(trace, usable, &counted, false)
            }
        };
        Some(Read { packets: kept, tallies, activity: Some(activity) })
    };
    traces.iter().zip(packets).map(of).collect()
}

/// Counts the selected events of each trace whose packets can be used. A trace whose clock nothing
/// relates to those of the others has a selection of its own, as in text.
fn selected(
    traces: &[Trace],
    packets: &[Option<Result<read::Trace>>],
    selection: &Selection,
    watch: Watch<'_>,
) -> Vec<Vec<Counted>> {
    let unrelated = unrelated_clocks(traces);
    let usable = || {
        traces
            .iter()
            .zip(packets)
            .filter_map(|(trace, packets)| Some((trace, packets.as_ref()?.as_ref().ok()?)))
    };
    let is_alone = |trace: &Trace| unrelated.iter().any(|(other, _)| std::ptr::eq(*other, trace));
    let count =
        |packets: &[read::Trace]| tally::selected(packets, selection, watch).unwrap_or_default().0;
    let together: Vec<read::Trace> = usable()
        .filter(|(trace, _)| !is_alone(trace))
        .map(|(_, packets)| packets.clone())
        .collect();
    let mut together = count(&together).into_iter();
    let of = |(trace, packets): (&Trace, &read::Trace)| match is_alone(trace) {
        true => count(std::slice::from_ref(packets)).pop(),
        false => together.next(),
    };
    usable().map(of).map(Option::unwrap_or_default).collect()
}

impl Read<'_> {
    /// Returns the messages about what cannot be read.
    pub(super) fn faults(&self) -> Vec<String> {
        let unusable =
            self.packets.and_then(|packets| packets.as_ref().err()).map(Error::to_string);
        self.tallies.iter().flat_map(|tally| tally.faults.iter().cloned()).chain(unusable).collect()
    }
}

impl Activity {
    /// Returns the events of a session, LTTng's session or CTF trace, and the losses and faults
    /// that reading them found. An event that several channels have counts once.
    #[must_use]
    pub fn once(trace: &Trace) -> Option<(Self, Totals)> {
        let packets = trace.packets(Version::V2)?.ok()?;
        let selection = Selection { deduplicate: true, ..Selection::default() };
        let (counted, totals) =
            tally::selected(std::slice::from_ref(&packets), &selection, &read::unwatched).ok()?;
        let activity = Self::new(trace, &packets, counted.first()?, false);
        trace.session().map(|_| trace.newest.set(activity.end_ns));
        Some((activity, totals))
    }

    fn new(trace: &Trace, packets: &read::Trace, counted: &[Counted], selected: bool) -> Self {
        let class = packets.class();
        // CTF 1.8 does not name channels.
        let name_of = |stream: &StreamClass| {
            let is_named = |own: &&lttng::Stream| {
                u64::from(own.channel) == stream.id && !own.channel_name.is_empty()
            };
            let named = trace.lttng().and_then(|lttng| lttng.session.streams.iter().find(is_named));
            named.map_or_else(|| channel(stream), |named| named.channel_name.clone())
        };
        let (mut names, mut histogram) = (BTreeMap::new(), Histogram::default());
        let mut span: Option<(i64, i64)> = None;
        for part in counted {
            let Some(stream) = class.streams.get(part.class) else { continue };
            for (event, count) in stream.events.iter().zip(&part.classes) {
                let name = event.name.as_deref().unwrap_or("<unknown>").to_owned();
                let sum: &mut u64 = names.entry((name, name_of(stream))).or_default();
                *sum = sum.saturating_add(*count);
            }
            histogram.merge(&part.histogram);
            if let Some((first, last)) = part.span {
                span = Some(
                    span.map_or((first, last), |(begin, end)| (begin.min(first), end.max(last))),
                );
            }
        }
        // A session describes events when the program reaches them.
        let is_kept = |count: u64| count > 0 || trace.session().is_some() && !selected;
        let events = names.into_iter().filter(|(_, count)| is_kept(*count));
        let mut events: Vec<Named> =
            events.map(|((name, channel), count)| Named { name, channel, count }).collect();
        events.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.cmp(b)));
        let (column_ns, columns) =
            span.map_or((0, Vec::new()), |(begin, end)| histogram.columns(begin, end, COLUMNS));
        let real_time = trace.ftrace().map(|ftrace| ftrace.real_time());
        Self {
            selected,
            total: events.iter().map(|named| named.count).fold(0, u64::saturating_add),
            events,
            begin_ns: span.map(|(begin, _)| begin),
            end_ns: span.map(|(_, end)| end),
            unit: if counts_nanoseconds(trace) { "ns" } else { TICKS },
            since_epoch: real_time
                .map_or_else(|| trace.unrelated_clock().is_none(), |offset| offset.is_some()),
            column_ns,
            histogram: columns,
            offset_ns: real_time.flatten().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, open};
    use lastwords_testkit::put::Order;
    use lastwords_testkit::samples;

    /// The files are empty when the newest event is asked for again.
    #[test]
    fn counting_a_session_also_finds_its_newest_event() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("small");
        samples::small(Order::Little).image().write_folder(&path).unwrap();
        let opened = open(&[path.to_str().unwrap()], &Options::default()).unwrap();
        let (activity, _) = Activity::once(&opened.traces[0]).unwrap();
        for entry in std::fs::read_dir(&path).unwrap() {
            std::fs::write(entry.unwrap().path(), []).unwrap();
        }
        assert!(activity.end_ns.is_some() && activity.total > 0);
        assert_eq!(opened.traces[0].newest(), activity.end_ns);
    }
}
