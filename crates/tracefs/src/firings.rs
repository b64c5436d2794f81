//! Saves each snapshot that the kernel's triggers take, while recording goes on.
//!
//! The kernel has one spare ring. A trigger swaps it with the live one, and a second one would put
//! what it swapped out back under the new events. So each trigger is set for one time, and set
//! again when its snapshot was taken out of the spare ring.

use crate::changes::Changes;
use crate::events;
use crate::plan::Snapshots;
use crate::rule::Rule;
use crate::save::Saved;
use crate::snapshot::{self, Taken};
use crate::triggers::{self, Snapshot};
use anyhow::Context;
use lastwords_open::Fired;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two looks at the triggers of up to [`AT_ONCE`] events; of more, it is longer in
/// proportion.
const TICK: Duration = Duration::from_millis(10);
const AT_ONCE: u32 = 8;

/// Snapshots of a recording that stay. Older ones are removed.
const KEPT: usize = 16;

/// News of the snapshots of a recording.
#[derive(Debug)]
pub enum News {
    /// One was saved.
    Saved(Saved),
    /// An old one was removed, because 16 newer ones are there.
    Removed(PathBuf),
    /// No trigger is set for this time, because of the limit.
    Limited(Duration),
    /// One could not be saved, for this reason. The recording goes on without snapshots.
    Failed(String),
}

/// A callback for the news. A thread of the recording calls it.
pub type Tell = Box<dyn Fn(&News) + Send>;

/// An event whose trigger takes snapshots.
struct SnapshotEvent {
    /// `SYSTEM/EVENT`.
    event: String,
    filter: String,
    /// How often it may still fire; none for any number.
    left: Option<u64>,
    is_set: bool,
}

/// The thread that waits for snapshots.
pub(crate) struct Firings {
    /// Closed when the recording ends.
    end: Sender<()>,
    thread: JoinHandle<Done>,
}

/// The snapshots that were saved, and the error that ended the thread.
type Done = (Vec<Saved>, Option<anyhow::Error>);

impl Firings {
    /// Sets the triggers of the rules that take snapshots, and starts to wait for them.
    ///
    /// # Errors
    /// The kernel refuses a trigger.
    pub(crate) fn start(
        changes: Changes,
        rules: &[Rule],
        plan: Snapshots,
        tell: Tell,
    ) -> anyhow::Result<Self> {
        let all = events::list(&changes.top())?;
        let mut sources = Vec::new();
        for rule in rules {
            for trigger in
                rule.triggers.iter().filter_map(|trigger| Snapshot::parse(trigger).transpose())
            {
                let Snapshot { times, filter } = trigger?;
                let selected = events::select(&all, &rule.pattern)?;
                sources.extend(events::pairs(&selected).map(|(system, event)| SnapshotEvent {
                    event: format!("{system}/{event}"),
                    filter: filter.clone(),
                    left: times,
                    is_set: false,
                }));
            }
        }
        let mut work = Work {
            changes,
            plan,
            tell,
            sources,
            saved: Vec::new(),
            taken: VecDeque::new(),
            number: 0,
            since: None,
            unset: Duration::ZERO,
            limited: Duration::ZERO,
            unset_since: None,
            limited_since: None,
        };
        work.set()?;
        let (end, ended) = channel();
        let run = move || {
            let why = work.run(&ended).err();
            if let Some(why) = &why {
                // What else is taken would be put back under newer events.
                work.unset();
                (work.tell)(&News::Failed(lastwords_open::chain(why)));
            }
            (work.saved, why)
        };
        let thread = thread::Builder::new()
            .name("snapshots".to_owned())
            .spawn(run)
            .context("a thread for snapshots")?;
        Ok(Self { end, thread })
    }

    /// Saves the snapshot that was taken last, and ends the thread. Tracing must be off.
    pub(crate) fn finish(self) -> Done {
        drop(self.end);
        let panicked =
            || (Vec::new(), Some(anyhow::anyhow!("the thread that saves snapshots has panicked")));
        self.thread.join().unwrap_or_else(|_| panicked())
    }
}

struct Work {
    changes: Changes,
    plan: Snapshots,
    tell: Tell,
    sources: Vec<SnapshotEvent>,
    saved: Vec<Saved>,
    /// When the last snapshots were taken, as far as the limit counts them.
    taken: VecDeque<Instant>,
    /// The number of the snapshot before. A command may have removed its folder.
    number: u32,
    /// The time of the last event of the snapshot before, in readings of the instance's clock.
    since: Option<u64>,
    /// How long no trigger was set since the last snapshot, and how long of it for the limit.
    unset: Duration,
    limited: Duration,
    unset_since: Option<Instant>,
    /// Since when the limit holds.
    limited_since: Option<Instant>,
}

impl Work {
    /// Waits for snapshots until the other end of `ended` is closed.
    fn run(&mut self, ended: &Receiver<()>) -> anyhow::Result<()> {
        let sources = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
        let tick = TICK.saturating_mul(sources.div_ceil(AT_ONCE).max(1));
        loop {
            let is_over = is_over(ended, tick);
            let saved = if self.any_fired()? { Some(self.take(ended)?) } else { None };
            if !is_over {
                self.set_if_due()?;
            }
            // What is done with the news may take its time.
            if let Some(saved) = saved {
                (self.tell)(&News::Saved(saved.clone()));
                self.saved.push(saved);
                self.remove_old()?;
            }
            if is_over {
                return Ok(());
            }
        }
    }

    /// Returns true if a trigger has taken a snapshot.
    fn any_fired(&self) -> anyhow::Result<bool> {
        for source in self.sources.iter().filter(|source| source.is_set) {
            if self.has_fired(source)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_fired(&self, source: &SnapshotEvent) -> anyhow::Result<bool> {
        let text = self.changes.instance().read(&format!("events/{}/trigger", source.event))?;
        Ok(triggers::has_fired(&text))
    }

    /// Takes the snapshot out of the spare ring, and saves it.
    fn take(&mut self, ended: &Receiver<()>) -> anyhow::Result<Saved> {
        let fired = self.unset_and_list()?;
        let now = Instant::now();
        self.taken.push_back(now);
        let mut taken = Taken::new(&self.changes)?;
        taken.take(&self.changes)?;
        self.number =
            snapshot::next_number(&self.changes.journal.output).max(self.number.saturating_add(1));
        let mut account = Fired::new(self.number, fired, taken.last());
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        account.begin =
            self.plan.before.map(|before| account.at.saturating_sub(nanos(before)).max(1));
        if !self.plan.after.is_zero() {
            is_over(ended, self.plan.after.saturating_sub(now.elapsed()));
            // The events behind the trigger are in the live ring.
            self.changes.instance().write("snapshot", "1")?;
            taken.take(&self.changes)?;
            account.end = Some(account.at.saturating_add(nanos(self.plan.after)));
        }
        account.since = self.since.replace(taken.last());
        account.unset = nanos(std::mem::take(&mut self.unset));
        account.limited = nanos(std::mem::take(&mut self.limited));
        taken.save(&self.changes, &account)
    }

    /// Takes back all triggers, and returns the events that had fired by then.
    fn unset_and_list(&mut self) -> anyhow::Result<Vec<String>> {
        let mut fired = Vec::new();
        for at in 0..self.sources.len() {
            let Some(source) = self.sources.get(at).filter(|source| source.is_set) else {
                continue;
            };
            if self.has_fired(source)? {
                fired.push(source.event.replacen('/', ":", 1));
                let left = source.left.map(|left| left.saturating_sub(1));
                self.sources[at].left = left;
            }
        }
        self.unset();
        Ok(fired)
    }

    /// Takes back all triggers. One that is gone already is none.
    fn unset(&mut self) {
        self.unset_since = Some(Instant::now());
        let instance = self.changes.instance();
        for source in self.sources.iter_mut().filter(|source| source.is_set) {
            source.is_set = false;
            let _ = instance.write(&format!("events/{}/trigger", source.event), "!snapshot");
        }
    }

    /// Sets the triggers again that may still fire, unless the limit holds.
    fn set_if_due(&mut self) -> anyhow::Result<()> {
        let Some(since) = self.unset_since else { return Ok(()) };
        let left = self.due().map(|due| due.saturating_duration_since(Instant::now()));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            if self.limited_since.is_none() {
                self.limited_since = Some(Instant::now());
                (self.tell)(&News::Limited(left));
            }
            return Ok(());
        }
        self.limited += self.limited_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.unset += since.elapsed();
        self.unset_since = None;
        self.set()
    }

    /// Returns the time from which on the limit lets another snapshot be taken.
    fn due(&mut self) -> Option<Instant> {
        let (most, time) = self.plan.limit?;
        while self.taken.len() > most.max(1) as usize {
            self.taken.pop_front();
        }
        let oldest = self.taken.front().filter(|_| self.taken.len() >= most.max(1) as usize)?;
        oldest.checked_add(time)
    }

    fn set(&mut self) -> anyhow::Result<()> {
        let instance = self.changes.instance();
        for source in
            self.sources.iter_mut().filter(|source| !source.is_set && source.left != Some(0))
        {
            let text = format!("snapshot:1{}", source.filter);
            instance.write(&format!("events/{}/trigger", source.event), &text)?;
            source.is_set = true;
        }
        Ok(())
    }

    /// Removes the oldest snapshots of the recording.
    fn remove_old(&mut self) -> anyhow::Result<()> {
        while self.saved.len() > KEPT {
            let old = self.saved.remove(0);
            snapshot::remove(&old.path)?;
            (self.tell)(&News::Removed(old.path));
        }
        Ok(())
    }
}

/// Waits for this time. Returns true at once if the recording is over.
fn is_over(ended: &Receiver<()>, time: Duration) -> bool {
    matches!(ended.recv_timeout(time), Err(RecvTimeoutError::Disconnected))
}
