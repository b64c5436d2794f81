//! The configuration of a session.

use std::path::PathBuf;
use std::time::Duration;

use lastwords_ring::{ClockKind, Persist, flush, rseq_available};

use super::condition::Condition;
use super::config::setters;
use super::cpus;
use super::hidden::Way;
use super::limits::Limits;
use super::rules::RuleSpec;
use super::{ChannelConfig, Error, Memory, Reservation, Retention, Scope, Window};

/// Configures a session. [`Builder::start`] starts it. A builder that [`crate::Session::builder`]
/// did not make has no name, and cannot start a session.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Builder {
    pub(crate) name: String,
    /// The requested channels; [`Builder::channels`] applies the default.
    pub(crate) channels: Vec<ChannelConfig>,
    pub(crate) memory: Memory,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) persist: Option<Persist>,
    pub(crate) clock: Option<ClockKind>,
    pub(crate) scope: Scope,
    pub(crate) dir: Option<PathBuf>,
    pub(crate) size_limit: u64,
    pub(crate) snapshot: bool,
    pub(crate) triggers: Limits,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) listen: bool,
    pub(crate) events: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// Globs over the names of fields, and how their values are hidden.
    pub(crate) hidden: Vec<(String, Way)>,
    pub(crate) registry_len: u64,
    pub(crate) spans: u32,
    pub(crate) counters: u32,
    pub(crate) histograms: u32,
    pub(crate) size: Option<u64>,
    pub(crate) seconds: Option<u32>,
    pub(crate) rate: Option<u64>,
    /// Rules of [`Builder::rule`], then those of the environment, which follow all other rules.
    pub(crate) rules: Vec<RuleSpec>,
    pub(crate) remove_at_end: bool,
    pub(crate) retention: Retention,
    /// All memory of the rings is allocated at the start.
    pub(crate) preallocate: bool,
    /// CPUs that the session is made for; the machine's if there is no number.
    pub(crate) cpus: Option<u32>,
    /// Bytes that the rings whose size was not chosen take together.
    pub(crate) budget: u64,
}

impl Builder {
    pub(crate) fn new(name: String) -> Self {
        Self {
            name,
            size_limit: u64::MAX,
            listen: true,
            registry_len: 512 << 10,
            spans: 512,
            budget: USUAL,
            ..Self::default()
        }
    }

    /// Adds the channel [`ChannelConfig::errors`] to those that were added, or keeps it in the
    /// default.
    pub fn errors_channel(mut self) -> Self {
        if self.channels.is_empty() {
            self.channels = self.channels();
        }
        if self.channels.iter().any(|channel| channel.name == "errors") {
            return self;
        }
        self.channel(ChannelConfig::errors())
    }

    setters! {
        /// Adds a channel. Without any, the session has two: `main`, and [`ChannelConfig::errors`] in addition for
        /// warnings and errors. The rings of channels whose size is not chosen ([`ChannelConfig::sub_buffers`],
        /// [`Builder::size`], [`Builder::seconds`]) take at most 16 MiB together, and less if the process's memory is
        /// limited: their sub-buffers are smaller on machines with many CPUs.
        channel(it, channel: ChannelConfig) => it.channels.push(channel);

        /// Chooses the kind of memory. Default: shared-memory files.
        backend(it, memory: Memory) => it.memory = memory;

        /// Chooses how space is reserved. Default: the fastest that works; the lock if each event is persisted.
        reservation(it, reservation: Reservation) => it.reservation = Some(reservation);

        /// Chooses when events are written back from the CPU's caches into persistent memory. Default: each event in
        /// persistent memory ([`Memory::Dax`], [`Memory::Physical`]), nothing elsewhere, where any other policy than
        /// [`Persist::None`] is an error at the start. [`Reservation::Rseq`] cannot persist each event.
        ///
        /// ```no_run
        /// use lastwords::{Memory, Persist, Session};
        ///
        /// let memory = Memory::Dax { path: "/mnt/pmem/shop".into(), reuse: false };
        /// let session = Session::builder("shop").backend(memory).persist(Persist::Event).start()?;
        /// # Ok::<(), lastwords::Error>(())
        /// ```
        persist(it, persist: Persist) => it.persist = Some(persist);

        /// Chooses the clock. Default: the CPU's counter if it is sound, else CLOCK_MONOTONIC.
        clock(it, clock: ClockKind) => it.clock = Some(clock);

        /// Chooses the processes that record in the session. Default: [`Scope::Process`], this one and its forked children.
        scope(it, scope: Scope) => it.scope = scope;

        /// Chooses the folder of sessions. Default: `$LASTWORDS_DIR`, else `$XDG_RUNTIME_DIR/lastwords`, else `/dev/shm/lastwords-UID`.
        dir(it, dir: impl Into<PathBuf>) => it.dir = Some(dir.into());

        /// Sizes the rings of the first channel so that the rings of all CPUs together take at most this many bytes. A
        /// sub-buffer has at least 4096 bytes, and its size is a power of two. The environment can request the same
        /// (see the crate's first page).
        size(it, bytes: u64) => it.size = Some(bytes);

        /// Sizes the rings of the first channel so that each contains this many seconds at the [`Builder::rate`].
        /// Without a given rate, it is measured: the bytes a second that the busiest of these rings took, on the
        /// average, in the life of the newest session of this name. The first session of a name has the default size.
        /// [`Builder::size`] takes precedence over this.
        seconds(it, seconds: u32) => it.seconds = Some(seconds);

        /// Sets the bytes a second that a CPU records in the first channel, for [`Builder::seconds`].
        rate(it, bytes_per_second: u64) => it.rate = Some(bytes_per_second);

        /// Allocates all memory of the rings at the start. Default: the memory of a ring is allocated when its CPU first records,
        /// one sub-buffer at a time, and events for which there is none are counted as lost. If the thread
        /// that starts the session blocks SIGBUS, all memory is allocated at the start.
        ///
        /// A thread takes memory from a full file system without a signal if it blocked SIGBUS, or the program had replaced the handler of it,
        /// before the thread's first event, or if the file system had less than 128 MiB left at the start. A program that changes either later should
        /// ask for all memory if its folder of sessions may become full: the kernel ends a process that has no memory for a page of a file and blocks that signal.
        preallocate(it, on: bool) => it.preallocate = on;

        /// Makes the session as on a machine with so many CPUs. This is for tests.
        #[doc(hidden)]
        for_cpus(it, cpus: u32) => it.cpus = Some(cpus);

        /// Limits the memory of the session, in bytes. A session that needs more is an error at the start.
        size_limit(it, bytes: u64) => it.size_limit = bytes;

        /// Adds a rule, behind those of [`Builder::events`]. The last rule that matches an event decides.
        ///
        /// ```
        /// use lastwords::{Session, rules::RuleSpec};
        ///
        /// let rule = RuleSpec::enable("shop:*").with_filter(r#"bytes > 4096 && comm ~ "redis*""#);
        /// let session = Session::builder("doc-filter").rule(RuleSpec::disable("*")).rule(rule).start()?;
        /// # session.remove();
        /// # Ok::<(), lastwords::Error>(())
        /// ```
        rule(it, rule: RuleSpec) => it.rules.push(rule);

        /// Adds a condition on events that fires triggers.
        ///
        /// ```
        /// use lastwords::{Level, Session, condition::Condition};
        ///
        /// let builder = Session::builder("doc-trigger").snapshot(true);
        /// let slow = Condition::on("shop:request").with_filter("took_ms > 1000");
        /// let session = builder.trigger_on(slow).trigger_on(Condition::on("*").up_to(Level::Error)).start()?;
        /// # session.remove();
        /// # Ok::<(), lastwords::Error>(())
        /// ```
        trigger_on(it, condition: Condition) => it.conditions.push(condition);

        /// Limits the snapshots that triggers take: at most `most` (1 or more) in any `period`. Triggers that share a snapshot
        /// count once. Triggers above the limit are counted, and their events say so. Default: 4 in 60 seconds. See [`crate::trigger`].
        trigger_limit(it, most: u32, period: Duration) => {
            it.triggers.most = most;
            it.triggers.period = period;
        };

        /// Chooses which events around a trigger its saved snapshot has: from [`Window::before`] ahead of it to
        /// [`Window::after`] behind it. Default: all that the rings have when the trigger fires. A condition may have a window
        /// of its own. docs/TRIGGERS.md has the details.
        ///
        /// ```
        /// use std::time::Duration;
        /// use lastwords::{Session, Window};
        ///
        /// let window = Window::new(Duration::from_secs(10), Duration::from_secs(5));
        /// let session = Session::builder("doc-window").snapshot(true).trigger_window(window).start()?;
        /// # session.remove();
        /// # Ok::<(), lastwords::Error>(())
        /// ```
        trigger_window(it, window: Window) => it.triggers.window = window;

        /// Chooses whether the session's thread saves the snapshots of triggers as sessions of their own. Otherwise a
        /// snapshot stays in the session until it is read, and triggers that fire meanwhile take none. Default: it does.
        save_snapshots(it, on: bool) => it.triggers.saves = on;

        /// Allocates the spare for snapshots from the start.
        snapshot(it, on: bool) => it.snapshot = on;

        /// Starts a thread that waits for changes by other processes and renews the clock's calibration each second. Default: yes.
        listen(it, on: bool) => it.listen = on;

        /// Enables events by a glob over `provider:name`. Events that match no glob are disabled. Without any call, all
        /// are enabled.
        events(it, glob: impl Into<String>) => it.events.push(glob.into());

        /// Adds a property of the trace, such as a version.
        env(it, key: impl Into<String>, value: impl Into<String>) => it.env.push((key.into(), value.into()));

        /// Hides the values of fields whose names match a glob: `<secret>` is recorded instead of them. The rule holds for
        /// all events and spans of the process, also in other sessions, from this session's start on: of `tracing`, `event!`, `mark!` and C,
        /// fields that a span gets later included. A value that is formatted into a message or into another field is not found, and
        /// contexts and names are no fields. The variable `LASTWORDS_SECRET` adds globs. See [`secret`](crate::secret()) for a single value.
        ///
        /// ```
        /// let builder = lastwords::Session::builder("doc-secret").secret("password").secret("*.token").hashed("user");
        /// # builder.start()?.remove();
        /// # Ok::<(), lastwords::Error>(())
        /// ```
        secret(it, glob: impl Into<String>) => it.hidden.push((glob.into(), Way::Secret));

        /// Replaces the values of fields whose names match a glob by keyed hashes, as [`hashed`](crate::hashed()) does. In all
        /// else it is as [`Builder::secret`], which takes precedence; the variable is `LASTWORDS_HASHED`.
        hashed(it, glob: impl Into<String>) => it.hidden.push((glob.into(), Way::Hashed));

        /// Sets the bytes for descriptions of events. Default: 512 KiB.
        registry_size(it, bytes: u64) => it.registry_len = bytes.clamp(4096, 1 << 30);

        /// Sets how many spans can be listed as open at a time; 0 for no table. Default: 512.
        spans(it, most: u32) => it.spans = most.min(1 << 20);

        /// Sets how many counters ([`counter!`](crate::counter!)) the session has room for; 0 for none. All processes of the
        /// session share them, and one takes 256 bytes. Counters of one name and the same labels are one. Default: 0, and
        /// 256 in a session of [`start`](fn@crate::start).
        ///
        /// ```
        /// let session = lastwords::Session::builder("doc-counters").counters(64).histograms(8).start()?;
        /// lastwords::counter!("requests", method = "GET");
        /// # session.remove();
        /// # Ok::<(), lastwords::Error>(())
        /// ```
        counters(it, most: u32) => it.counters = most.min(1 << 20);

        /// Sets how many histograms ([`histogram!`](crate::histogram!)) the session has room for; 0 for none. One takes
        /// 4224 bytes. Default: 0, and 16 in a session of [`start`](fn@crate::start).
        histograms(it, most: u32) => it.histograms = most.min(1 << 16);

        /// Removes the session when it ends in good order. This is for tests, and for programs whose recordings nobody
        /// wants afterwards. A session that ended by a panic, an error or a death stays. Default: every ended session
        /// stays as long as retention keeps it.
        remove_at_end(it, on: bool) => it.remove_at_end = on;

        /// Limits the ended sessions that stay when this one starts. Default: [`Retention::default`].
        retention(it, retention: Retention) => it.retention = retention;
    }

    pub(crate) fn channels(&self) -> Vec<ChannelConfig> {
        let mut channels = match self.channels.is_empty() {
            true => vec![ChannelConfig::new("main"), ChannelConfig::errors()],
            false => self.channels.clone(),
        };
        let Some(first) = channels.first_mut() else { return channels };
        let count = u64::from(first.sub_buffers.max(2));
        // There is a ring for each CPU, and one for threads without restartable sequences.
        let rings = u64::from(self.cpus()) + 1;
        if let Some(bytes) = self.size {
            *first = first.clone().sized(bytes, None, rings);
        } else if let (Some(seconds), Some(rate)) = (self.seconds, self.rate) {
            // One sub-buffer is being overwritten, so it does not count.
            let each = rate.saturating_mul(u64::from(seconds)).div_ceil(count - 1).min(1 << 30);
            first.sub_buffer_size = each.next_power_of_two().max(4096);
            first.is_sized = true;
        }
        fit(&mut channels, self.budget, rings);
        channels
    }

    /// Returns the number of CPUs that the session is made for.
    pub(crate) fn cpus(&self) -> u32 {
        self.cpus.unwrap_or_else(cpus::cpus)
    }

    /// Returns the policy of writing back in memory that is `persistent` or not. Returns an error
    /// if it cannot be kept.
    pub(crate) fn persist_policy(&self, persistent: bool) -> Result<Persist, Error> {
        let unsupported =
            |why, remedy| Err(Error::unsupported("a policy of persistence", why, remedy));
        match self.persist {
            None if persistent => Ok(Persist::Event),
            None | Some(Persist::None) => Ok(Persist::None),
            Some(_) if !persistent => unsupported(
                "this kind of memory does not survive a loss of power",
                "choose a DAX file or device, or a physical range, as memory",
            ),
            Some(_) if !flush::is_possible() => unsupported(
                "this machine has no instruction that writes caches back",
                "choose the policy none",
            ),
            Some(policy) => Ok(policy),
        }
    }

    /// Returns the reservation's code, or the default if none was requested.
    pub(crate) fn reservation_code(&self, persist: Persist) -> Result<u32, Error> {
        let unsupported = |why, remedy| Err(Error::unsupported("reservation rseq", why, remedy));
        let each_event = persist == Persist::Event;
        let default = match each_event {
            true => Reservation::Locked,
            false if rseq_available() => Reservation::Rseq,
            false => Reservation::Lockless,
        };
        match self.reservation.unwrap_or(default) {
            Reservation::Rseq if !rseq_available() => unsupported(
                "restartable sequences are not registered for this thread",
                "use glibc 2.35 or newer without GLIBC_TUNABLES=glibc.pthread.rseq=0, or choose lockless",
            ),
            Reservation::Rseq if each_event => unsupported(
                "it cannot write each event back to persistent memory before the event is committed",
                "choose locked or lockless, or persist each sub-buffer",
            ),
            chosen => Ok(chosen as u32),
        }
    }
}

/// Makes the channels whose size was not chosen smaller, until their rings take at most `budget`
/// bytes together. Each channel gets its share of the budget, but not less than a quarter of the
/// largest share, so that a small channel stays useful.
fn fit(channels: &mut [ChannelConfig], budget: u64, rings: u64) {
    let free = |channel: &&mut ChannelConfig| !channel.is_sized;
    let sizes: Vec<u64> =
        channels.iter_mut().filter(free).map(|channel| channel.ring_size()).collect();
    let least = sizes.iter().max().unwrap_or(&0) / 4;
    let shares = || sizes.iter().map(|size| (*size).max(least));
    let sum = shares().fold(0, u64::saturating_add).max(1);
    for (channel, share) in channels.iter_mut().filter(free).zip(shares()) {
        let bytes =
            u128::from(budget) * u128::from(share) / u128::from(sum) / u128::from(rings.max(1));
        channel.shrink_to(u64::try_from(bytes).unwrap_or(u64::MAX));
    }
}

/// Bytes that the rings take together by default, on a machine of any number of CPUs.
pub(crate) const USUAL: u64 = 16 << 20;
