//! Watches a session: counts its events step by step, and makes readings of the counts and of the
//! state of its rings.
//!
//! A step reads what was recorded since the step before, up to a clock, and consumes nothing. If a
//! ring fills fast, steps follow each other faster than readings, so that no event is overwritten
//! before it is counted. What is overwritten in spite of that is told.

use super::reading::{Key, LossRow, Reading, SCHEMA, State, event_rows, loss_rows, ring_row};
use crate::table::plain;
use lastwords::Ended;
use lastwords_control::Handle;
use lastwords_control::rings::Ring;
use lastwords_ctf::Version;
use lastwords_live::is_live_summary;
use lastwords_open::{Account, Count, EndedReport, Opened, Trace, counts};
use lastwords_render::evidence::SpanReport;
use lastwords_trace::evidence::Cause;
use lastwords_trace::metrics::Metrics;
use lastwords_trace::schema::Channel;
use lastwords_trace::source::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// Shortest time between two steps. Copying rings more often would cost the recorded program more
/// than a few counts are worth.
pub(super) const STEP: Duration = Duration::from_millis(50);

/// The state of a session immediately before a step.
#[derive(Clone)]
struct Look {
    at: Instant,
    /// Nanoseconds since the epoch.
    real: i64,
    /// The session's clock, if it is known.
    clock: Option<u64>,
    rings: Vec<Ring>,
    /// Number of snapshots that were taken.
    snapshots: u32,
}

impl Look {
    fn at(handle: &Handle) -> Self {
        let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            at: Instant::now(),
            real: i64::try_from(real.as_nanos()).unwrap_or(i64::MAX),
            clock: handle.clock().map(|clock| clock.now()),
            rings: handle.rings(),
            snapshots: handle.snapshots(),
        }
    }
}

/// A session that is watched.
pub(super) struct Watch<'h> {
    handle: &'h Handle,
    folder: PathBuf,
    interval: Duration,
    /// The events of the newest interval, and of all.
    totals: BTreeMap<Key, [Count; 2]>,
    /// Before the newest step.
    step: Look,
    /// Before the last step of the newest reading.
    reading: Option<Look>,
    /// The session's clock up to which the newest step has read, and up to which the newest
    /// reading has.
    until: [Option<u64>; 2],
    /// The time of the newest event in nanoseconds since the epoch, and by the session's clock.
    /// Only for an ended session.
    newest: Option<(i64, u64)>,
    frequency: u64,
    spans: Option<Vec<SpanReport>>,
    metrics: Metrics,
    /// Losses of the whole session, and damage.
    lost: Vec<LossRow>,
    uncounted: u64,
    /// Every event of the interval was counted, and every event of all.
    is_exact: [bool; 2],
    has_begun: bool,
    /// Remarks and failures of steps that nobody has seen yet, and all that there were.
    news: Vec<String>,
    known: BTreeSet<String>,
}

impl<'h> Watch<'h> {
    pub(super) fn new(handle: &'h Handle, interval: Duration) -> Self {
        Self {
            handle,
            folder: handle.summary().folder,
            interval,
            totals: BTreeMap::new(),
            step: Look::at(handle),
            reading: None,
            until: [None; 2],
            newest: None,
            frequency: 0,
            spans: None,
            metrics: Metrics::default(),
            lost: Vec::new(),
            uncounted: 0,
            is_exact: [true; 2],
            has_begun: false,
            news: Vec::new(),
            known: BTreeSet::new(),
        }
    }

    /// Returns true if a process records in the session, or may.
    pub(super) fn is_live(&self) -> bool {
        is_live_summary(&self.handle.summary())
    }

    /// Notes the state of the session. This must be called immediately before a step.
    pub(super) fn begin_step(&mut self) {
        self.step = Look::at(self.handle);
    }

    /// Returns true if the interval is over.
    pub(super) fn is_due(&self) -> bool {
        self.reading.as_ref().is_none_or(|last| last.at.elapsed() >= self.interval)
    }

    /// Returns true if a ring has overwritten so much since the last step that a step must follow
    /// before the interval is over.
    pub(super) fn must_step(&self) -> bool {
        let now = self.handle.rings();
        let is_full = |(now, before): (&Ring, &Ring)| {
            now.overwrites && now.written_since(before) > now.size / 4
        };
        now.iter().zip(&self.step.rings).any(is_full)
    }

    /// Counts the events of a step.
    pub(super) fn take(&mut self, opened: &Opened) {
        let (notes, failures) =
            (opened.notes.iter(), opened.failures.iter().map(|failure| &failure.why));
        for news in notes.chain(failures) {
            if self.known.insert(news.clone()) {
                self.news.push(plain(news));
            }
        }
        self.expect(opened.failures.is_empty());
        self.until[0] = opened.read_until;
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        for trace in &opened.traces {
            self.take_trace(trace, is_first);
        }
    }

    fn take_trace(&mut self, trace: &Trace, is_first: bool) {
        let Some(found) = trace.session() else { return };
        let (info, channels) = (found.session.info(), &found.session.schema().channels);
        self.frequency = info.clock.frequency;
        let account = trace.account();
        self.spans.clone_from(&account.spans);
        self.metrics.clone_from(&info.metrics);
        self.check_gaps(&account, is_first);
        self.lose("events had no room for all values", "values", account.cut(), false);
        self.lose("NUL became 0x1a", "texts", account.changed(), false);
        self.lose(
            "there was no room in the registry",
            "descriptions of events",
            info.registry_dropped,
            false,
        );
        self.lose(
            "there was no room in the table of open spans",
            "spans",
            info.spans_dropped,
            false,
        );
        let is_ended = is_first && !self.is_live();
        if is_ended {
            let clock = info.streams.iter().filter_map(|stream| Some(stream.clocks?.1)).max();
            self.newest = trace.newest().zip(clock);
        }
        let end = self.newest.map_or(self.step.real, |(newest, _)| newest);
        let after = is_first.then(|| {
            end.saturating_sub(i64::try_from(self.interval.as_nanos()).unwrap_or(i64::MAX))
        });
        let Some(Ok(packets)) = trace.packets(Version::V2) else {
            self.expect(false);
            return;
        };
        for stream in counts(&packets, after) {
            self.expect(stream.faults.is_empty());
            let Some(class) = packets.class().streams.get(stream.class) else { continue };
            // The classes of CTF have names without control characters.
            let own = channels.iter().find(|channel| u64::from(channel.id) == class.id);
            let names: BTreeMap<u64, &String> = own
                .into_iter()
                .flat_map(Channel::classes)
                .map(|class| (class.id, &class.name))
                .collect();
            for (at, event) in class.events.iter().enumerate() {
                let all = stream.events.get(at).copied().unwrap_or_default();
                if all.events == 0 {
                    continue;
                }
                let new =
                    if is_first { stream.recent.get(at).copied().unwrap_or_default() } else { all };
                let name = names.get(&event.id).copied().or(event.name.as_ref());
                let name = name.cloned().unwrap_or_else(|| "<unknown>".to_owned());
                let [interval, total] = self.totals.entry((class.name.clone(), name)).or_default();
                interval.add(new);
                total.add(all);
            }
        }
    }

    /// Notes what was not counted. What a ring had overwritten before the first step was never to
    /// be counted.
    fn check_gaps(&mut self, account: &Account<'_>, is_first: bool) {
        let is_uncounted = |cause: Cause| match cause {
            Cause::Discarded
            | Cause::TooBig
            | Cause::Refused
            | Cause::InFlight
            | Cause::Cut(_)
            | Cause::Changed(_) => false,
            Cause::Overwritten | Cause::Cleared | Cause::Consumed | Cause::Dropped => !is_first,
            _ => true,
        };
        for gap in account.evidence.gaps.iter().filter(|gap| is_uncounted(gap.cause)) {
            self.expect(false);
            self.uncounted = self.uncounted.saturating_add(gap.bytes.unwrap_or(0));
            match gap.cause {
                Cause::Damaged => self.lose("damaged", "parts of rings", 1, true),
                Cause::Missing => self.lose("missing", "parts of rings", 1, true),
                Cause::Undescribed => self.lose(
                    "the description of their events is missing",
                    "parts of rings",
                    1,
                    true,
                ),
                _ => {}
            }
        }
    }

    /// Notes whether all events could be counted.
    fn expect(&mut self, is_exact: bool) {
        self.is_exact.iter_mut().for_each(|all| *all &= is_exact);
    }

    /// Sets the count of a loss, or adds to it.
    fn lose(&mut self, cause: &'static str, what: &'static str, count: u64, add: bool) {
        let known = self.lost.iter_mut().find(|row| row.cause == cause);
        match known {
            Some(row) => row.count = if add { row.count.saturating_add(count) } else { count },
            None if count > 0 => {
                self.lost.push(LossRow { channel: None, cause, what, count, interval: 0 })
            }
            None => {}
        }
    }

    /// Returns whether the session lives.
    pub(super) fn state(&self) -> State {
        match (self.folder.exists(), self.is_live()) {
            (false, _) => State::Destroyed,
            (true, true) => State::Live,
            (true, false) => State::Ended,
        }
    }

    /// Returns how the session ended.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.handle.summary().details.ok()?.ended
    }

    /// Returns the remarks that came since the last call.
    pub(super) fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }

    /// Ends the interval, and returns the reading.
    pub(super) fn reading(&mut self) -> Reading {
        let summary = self.handle.summary();
        let details = summary.details.ok();
        let state = self.state();
        let channels = || details.iter().flat_map(|details| &details.channels);
        let channel = |id: u32| {
            channels()
                .find(|own| own.id == id)
                .map_or_else(|| id.to_string(), |own| own.name.clone())
        };
        let interval = self.passed();
        let before = |at: usize| self.reading.as_ref().and_then(|look| look.rings.get(at));
        let named = || {
            self.step
                .rings
                .iter()
                .enumerate()
                .map(|(at, ring)| (channel(ring.channel), ring, before(at)))
        };
        let now = self.newest.map(|(_, clock)| clock).or(self.step.clock);
        // The rings are looked at by a clock of their own.
        let between = self.reading.as_ref().map_or(interval, |last| self.step.at - last.at);
        let rings = named().map(|(channel, ring, before)| {
            ring_row(channel, ring, before, between, now, self.frequency)
        });
        let is_whole = self.reading.is_some() || self.holds_interval();
        let snapshots = self
            .reading
            .as_ref()
            .map_or(0, |last| self.step.snapshots.wrapping_sub(last.snapshots));
        let ended = details.as_ref().and_then(|details| details.ended);
        let reading = Reading {
            schema: SCHEMA,
            session: plain(&summary.name),
            folder: plain(&self.folder.display().to_string()),
            state,
            ended: ended.map(EndedReport),
            unknown_end: details.as_ref().and_then(lastwords_live::unknown_end),
            recording: details.as_ref().is_some_and(|details| details.recording),
            at_ns: self.newest.map_or_else(|| self.now(), |(newest, _)| newest),
            interval,
            exact: self.is_exact[0] && is_whole && snapshots < 2,
            exact_total: self.is_exact[1],
            uncounted_bytes: self.uncounted,
            events: event_rows(&self.totals, interval),
            rings: rings.collect(),
            losses: [loss_rows(&named().collect::<Vec<_>>()), self.lost.clone()].concat(),
            open_spans: self.spans.clone(),
            metrics: self.metrics.clone(),
        };
        self.totals.values_mut().for_each(|[interval, _]| *interval = Count::default());
        self.until[1] = self.until[0];
        self.is_exact[0] = true;
        self.reading = Some(self.step.clone());
        reading
    }

    /// Returns the moment up to which the newest step has read, in nanoseconds since the epoch.
    fn now(&self) -> i64 {
        let since =
            self.until[0].zip(self.step.clock).and_then(|(until, clock)| until.checked_sub(clock));
        let since = since.filter(|_| self.frequency > 0).unwrap_or(0);
        let nanoseconds = u128::from(since) * 1_000_000_000 / u128::from(self.frequency.max(1));
        self.step.real.saturating_add(i64::try_from(nanoseconds).unwrap_or(0))
    }

    /// Returns the length of the interval that ends with the newest step.
    fn passed(&self) -> Duration {
        let Some(last) = &self.reading else { return self.interval };
        match (self.until, self.frequency) {
            ([Some(now), Some(before)], frequency @ 1..) if now > before => {
                let nanoseconds = u128::from(now - before) * 1_000_000_000 / u128::from(frequency);
                Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
            }
            _ => self.step.at - last.at,
        }
    }

    /// Returns true if no ring had overwritten events of the interval before the first step.
    fn holds_interval(&self) -> bool {
        let now = self.newest.map(|(_, clock)| clock).or(self.step.clock);
        let ticks = self.interval.as_nanos() * u128::from(self.frequency) / 1_000_000_000;
        let holds = |ring: &Ring| {
            let is_whole = ring.halves.get(ring.live).is_none_or(|half| half.first >= ring.begin);
            let age =
                now.zip(ring.oldest).map(|(now, oldest)| u128::from(now.saturating_sub(oldest)));
            is_whole || age.is_some_and(|age| age >= ticks)
        };
        self.step.rings.iter().all(holds)
    }
}
