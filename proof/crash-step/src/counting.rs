//! Counters and histograms: what each writer adds, and the oracle of the tables.
//!
//! The numbers are random and large, so that different sets of additions have different sums. The
//! oracle adds up what was reported as done, and then looks for stages of the additions in flight
//! with which the tables have exactly these numbers. An addition does not go back to an earlier
//! stage, and that of a dead process stays where it was.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::Ordering::Acquire;

use anyhow::{Context as _, Result, bail, ensure};
use lastwords::{ChannelConfig, Counter, Histogram, Scope, Session};
use lastwords_abi::session::MODE_DISCARD;
use lastwords_bytes::Budget;
use lastwords_image::unwatched;
use lastwords_testkit::counters::{self, Numbers, lows};
use lastwords_testkit::put::Order;
use lastwords_testkit::random::mix;
use lastwords_trace::metrics::{Labels, Metrics};
use rig::scratch::Scratch;

use super::arena::{Progress, RESULT_OK};
use super::oracle::Tally;
use super::scenario::{Form, LEVELS, Plot, Scenario};
use super::walker::recover;

static COUNTERS: [Counter; 5] = [
    Counter::new("a"),
    Counter::new("b"),
    Counter::with_labels("a", &[("k", "v")]),
    Counter::with_labels("a", &[("k", "")]),
    Counter::new("a name of more bytes than the others have, over the words of an entry"),
];
static HISTOGRAMS: [Histogram; 3] =
    [Histogram::new("a"), Histogram::new("h"), Histogram::with_labels("h", &[("k", "v")])];
/// The texts of all metrics by number: those of [`COUNTERS`], one counter whose name is given at
/// each addition, those of [`HISTOGRAMS`].
const TEXTS: [&str; 9] = [
    "a",
    "b",
    "a|k|v",
    "a|k|",
    "a name of more bytes than the others have, over the words of an entry",
    "named",
    "a",
    "h",
    "h|k|v",
];
/// Number of the counter whose name is not static.
const NAMED: usize = COUNTERS.len();
/// Number of the first histogram.
const FIRST_HISTOGRAM: usize = NAMED + 1;

/// One addition.
#[derive(Debug, Clone, Copy)]
struct Addition {
    metric: usize,
    number: u64,
}

/// The addition `sequence` of `writer`.
fn addition(seed: u64, writer: usize, sequence: usize) -> Addition {
    let dice = mix(seed ^ mix((writer as u64) << 16 | sequence as u64 | 1 << 40));
    let metric = (dice >> 56) as usize % TEXTS.len();
    // Below 2^48, so that sums stay below 2^64.
    let number = mix(dice) >> (16 + (dice & 31));
    Addition { metric, number }
}

/// Makes the addition. Returns true.
pub(crate) fn add(seed: u64, writer: usize, sequence: usize) -> bool {
    let Addition { metric, number } = addition(seed, writer, sequence);
    if metric == NAMED {
        return lastwords::__private::add_named(TEXTS[NAMED], number);
    }
    match COUNTERS.get(metric) {
        Some(counter) => counter.add(number),
        None => HISTOGRAMS[metric - FIRST_HISTOGRAM].record(number),
    }
    true
}

/// Entries of the tables: too few in the scenario that discards, else enough for the metrics that
/// several threads enter at the same time, and for entries of the dead.
fn room(scenario: &Scenario) -> [u32; 2] {
    if scenario.mode == MODE_DISCARD { [3, 1] } else { [24, 12] }
}

/// Creates the session, or joins it.
pub(crate) fn session(dir: &Path, scenario: &Scenario) -> Result<Session> {
    let [counters, histograms] = room(scenario);
    let channel = ChannelConfig::new("main").sub_buffers(2, 4096);
    let builder = Session::builder("counting").dir(dir).channel(channel).scope(Scope::User);
    let builder = builder.listen(false).counters(counters).histograms(histograms);
    builder.start().context("the session with the counters")
}

/// What a stop was.
#[derive(Debug)]
pub(crate) struct Stop {
    /// Bits of the writers that are inside of an addition.
    pub(crate) inside: u32,
    /// The tables have changed since the stop before.
    pub(crate) is_new: bool,
}

/// The session of a round, and its oracle.
#[derive(Debug)]
pub(crate) struct Counting {
    scenario: &'static Scenario,
    seed: u64,
    place: Scratch,
    folder: std::path::PathBuf,
    table: File,
    bytes: Vec<u8>,
    /// Additions begun and done of each writer at the last stop.
    reports: Vec<(usize, usize)>,
    /// Stage of each addition in flight (writer, sequence) at the last stop.
    stages: BTreeMap<(usize, usize), u8>,
    _session: Session,
}

/// An addition in flight.
struct InFlight {
    key: (usize, usize),
    addition: Addition,
    /// There is room for its metric.
    has_room: bool,
    /// The stages that it may have.
    stages: std::ops::RangeInclusive<u8>,
}

impl Counting {
    /// Starts the session of a round; none if the scenario records events.
    pub(crate) fn start(scenario: &'static Scenario, seed: u64) -> Result<Option<Self>> {
        if scenario.form != Form::Counters {
            return Ok(None);
        }
        let place = Scratch::in_memory("lastwords-crash-step")?;
        let session = session(place.path(), scenario)?;
        let folder = session.folder().context("the session's folder")?.to_path_buf();
        let table = File::open(folder.join("counters")).context("the tables")?;
        Ok(Some(Self {
            scenario,
            seed,
            place,
            folder,
            table,
            bytes: Vec::new(),
            reports: Vec::new(),
            stages: BTreeMap::new(),
            _session: session,
        }))
    }

    /// The folder in which the session is.
    pub(crate) fn dir(&self) -> &Path {
        self.place.path()
    }

    /// Judges what is in the tables, if that or a report has changed.
    pub(crate) fn judge(&mut self, progress: &Progress, tally: &mut Tally) -> Result<Stop> {
        let len = self.table.metadata().context("the tables")?.len();
        let mut bytes = vec![0; usize::try_from(len)?];
        self.table.read_exact_at(&mut bytes, 0).context("the tables")?;
        let report = |writer: &super::arena::WriterProgress| {
            let begun = writer.begun.load(Acquire) as usize;
            let is_done = |n: &usize| writer.results[*n].load(Acquire) == RESULT_OK;
            (begun, (0..begun).take_while(is_done).count())
        };
        let reports: Vec<_> = progress.writers.iter().map(report).collect();
        let bit = |(n, (begun, done)): (usize, &(usize, usize))| u32::from(begun != done) << n;
        let inside = reports.iter().enumerate().map(bit).sum();
        let is_new = bytes != self.bytes;
        if !is_new && reports == self.reports {
            return Ok(Stop { inside, is_new });
        }
        (self.bytes, self.reports) = (bytes, reports);
        let found = counters::read(&self.bytes, Order::Little).map_err(anyhow::Error::msg)?;
        self.compare(progress, &found)?;
        if is_new {
            self.recover(&found)?;
        }
        let missing = self.stages.values().filter(|stage| **stage == 0).count();
        tally.lost_in_flight = tally.lost_in_flight.max(missing);
        tally.refused = found.lost.iter().sum();
        let done: usize = self.reports.iter().map(|(_, done)| done).sum();
        tally.committed = (done as u64).saturating_sub(tally.refused);
        Ok(Stop { inside, is_new })
    }

    /// The tables have what was added.
    fn compare(&mut self, progress: &Progress, found: &Numbers) -> Result<()> {
        let is_ready = |n: &usize| progress.threads[*n].ready.load(Acquire) != 0;
        let newest = (0..progress.threads.len()).rev().find(is_ready).unwrap_or(0);
        let mut sums = Numbers::default();
        let mut flights = Vec::new();
        let entered = self.entered();
        for (writer, (begun, done)) in self.reports.iter().enumerate() {
            for sequence in 0..*begun {
                let addition = addition(self.seed, writer, sequence);
                let has_room = entered[addition.metric];
                if sequence < *done {
                    apply(&mut sums, addition, has_room, 3);
                    continue;
                }
                let key = (writer, sequence);
                let from = self.stages.get(&key).copied().unwrap_or(0);
                let is_dead = self.scenario.plot == Plot::Dead && writer / LEVELS < newest;
                let last = if addition.metric < FIRST_HISTOGRAM || !has_room { 1 } else { 3 };
                let stages = from..=if is_dead { from } else { last };
                flights.push(InFlight { key, addition, has_room, stages });
            }
        }
        self.stages.clear();
        if !fits(&sums, &flights, found, &mut self.stages) {
            let flights: Vec<_> = flights.iter().map(|one| (one.key, one.addition)).collect();
            bail!(
                "LOST or INVENTED: done {sums:?}, in flight {flights:?}, in the tables {found:?}"
            );
        }
        Ok(())
    }

    /// Says for each metric whether the tables have room for it.
    fn entered(&self) -> [bool; TEXTS.len()] {
        let mut entered = [true; TEXTS.len()];
        if self.scenario.mode == MODE_DISCARD {
            // One writer: metrics are entered in the order of their first additions.
            entered = [false; TEXTS.len()];
            let mut room = room(self.scenario);
            for sequence in 0..self.reports[0].0 {
                let metric = addition(self.seed, 0, sequence).metric;
                let left = &mut room[usize::from(metric >= FIRST_HISTOGRAM)];
                if !entered[metric] && *left > 0 {
                    (entered[metric], *left) = (true, *left - 1);
                }
            }
        }
        entered
    }

    /// The product's reader finds the same numbers.
    fn recover(&self, found: &Numbers) -> Result<()> {
        let opened = lastwords_image::open(&self.folder, &Budget::default(), &unwatched)?;
        let session = recover(&opened.image, false)?;
        let Metrics { counters, histograms, as_of, lost_additions, lost_values, unknown } =
            &session.info().metrics;
        ensure!(as_of.is_none(), "the session's own numbers are shown as a copy");
        let mut got = Numbers { used: found.used, unnamed: found.unnamed, ..Numbers::default() };
        got.lost = [*lost_additions, *lost_values];
        got.counters =
            counters.iter().map(|one| (text(&one.name, &one.labels), one.value)).collect();
        for one in histograms {
            let buckets = one.buckets.iter().map(|bucket| (bucket.low, bucket.count)).collect();
            let whole = one.count() - one.in_flight;
            let sum = one.sum.context("a sum that is not known")?;
            got.histograms.insert(text(&one.name, &one.labels), (buckets, sum, whole));
        }
        ensure!(
            got == *found && *unknown == 0,
            "recovery found {got:?}, the plain reader {found:?}"
        );
        Ok(())
    }
}

/// The text of an entry, its parts separated by `|`.
fn text(name: &str, labels: &Labels) -> String {
    labels.iter().fold(name.to_owned(), |text, (key, value)| format!("{text}|{key}|{value}"))
}

/// Adds what an addition has added at a stage. Those of a histogram are bucket, sum and count.
fn apply(numbers: &mut Numbers, addition: Addition, has_room: bool, stage: u8) {
    let Addition { metric, number } = addition;
    let is_histogram = metric >= FIRST_HISTOGRAM;
    if !has_room {
        numbers.lost[usize::from(is_histogram)] += u64::from(stage > 0);
        return;
    }
    if stage == 0 {
        return;
    }
    if !is_histogram {
        *numbers.counters.entry(TEXTS[metric].to_owned()).or_default() += number;
        return;
    }
    let (buckets, sum, count) = numbers.histograms.entry(TEXTS[metric].to_owned()).or_default();
    let low = lows().into_iter().rfind(|low| *low <= number).unwrap_or(0);
    match buckets.binary_search_by_key(&low, |bucket| bucket.0) {
        Ok(at) => buckets[at].1 += 1,
        Err(at) => buckets.insert(at, (low, 1)),
    }
    *sum += if stage > 1 { number } else { 0 };
    *count += u64::from(stage > 2);
}

/// Looks for stages of the additions in flight with which `sums` become what was found.
fn fits(
    sums: &Numbers,
    flights: &[InFlight],
    found: &Numbers,
    stages: &mut BTreeMap<(usize, usize), u8>,
) -> bool {
    let Some((first, rest)) = flights.split_first() else {
        return is_same(sums, found);
    };
    first.stages.clone().any(|stage| {
        let mut sums = sums.clone();
        apply(&mut sums, first.addition, first.has_room, stage);
        stages.insert(first.key, stage);
        fits(&sums, rest, found, stages)
    })
}

/// A metric whose first addition is in flight may be in the tables with 0.
fn is_same(sums: &Numbers, found: &Numbers) -> bool {
    let counters = found.counters.iter().filter(|(_, value)| **value > 0);
    let histograms = found.histograms.iter().filter(|(_, values)| !values.0.is_empty());
    sums.lost == found.lost
        && sums.counters.iter().filter(|(_, value)| **value > 0).eq(counters)
        && sums.histograms.iter().eq(histograms)
}
