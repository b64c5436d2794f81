//! A recording: settings are made, tracing runs, and the rings are saved.

use crate::changes::Changes;
use crate::check::{check, check_known};
use crate::choice;
use crate::drain::Drain;
use crate::error::{Error, Result};
use crate::events;
use crate::firings::{Firings, Tell};
use crate::histograms;
use crate::instance::Instance;
use crate::journal::Journal;
use crate::plan::{Plan, Snapshots, kib};
use crate::rule::Rule;
use crate::save::{self, Saved};
use crate::send;
use crate::triggers;
use anyhow::{Context, bail};
use lastwords_ftrace::dat::Relation;
use lastwords_stream::wire::Hello;
use lastwords_stream::{Address, Line, Sender};
use rustix::pipe::{PipeFlags, pipe_with};
use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The part of a ring in percent that must be filled before a stream is woken. The rest is for
/// events that come until it runs.
const STREAM_AT: &str = "25";

/// Bytes of the ring of each CPU by default.
const SIZE: u64 = 8 << 20;

/// A thread that reads one CPU's ring, and how it ended.
type Reader = JoinHandle<(Drain, anyhow::Result<()>)>;

/// A recording that was set up. If it is dropped, all that it added is removed and nothing is
/// saved.
pub struct Recording {
    pub(crate) changes: Changes,
    /// The connection to the receiver, if events go to one.
    sender: Option<Arc<Sender>>,
    /// The descriptions that the receiver has.
    described: send::Described,
    /// The events that were enabled when the recording began.
    enabled: BTreeSet<String>,
    /// A thread for each CPU of each instance, which is given by its position.
    streams: Vec<(usize, Reader)>,
    /// Threads end when this is dropped.
    running: Option<OwnedFd>,
    /// A thread has failed.
    failed: Arc<AtomicBool>,
    /// Which events the snapshots of triggers have.
    snapshots: Snapshots,
    /// Waits for snapshots while tracing is on.
    firings: Option<Firings>,
    /// The events with triggers, which are set when tracing has begun.
    triggered: Vec<Rule>,
    /// The same of the other instances, by their position in [`Plan::buffers`].
    triggered_there: Vec<Vec<Rule>>,
    /// Nothing is left to undo, or it is left for [`crate::restore`] or [`crate::Staying`].
    pub(crate) is_over: bool,
}

impl Recording {
    /// Writes the journal, makes the instance and all settings, and with [`Plan::stream`] begins to
    /// follow the rings. Tracing is still off.
    ///
    /// # Errors
    /// tracefs is not mounted, the output exists, a name is taken or not known, no receiver takes
    /// the stream, or the kernel refuses a setting. Then everything is as
    /// it was before.
    pub fn begin(plan: &Plan) -> Result<Self> {
        Self::begin_over(plan, None)
    }

    /// Begins as [`Recording::begin`] does. With a connection, [`Plan::receiver`] is its peer, which
    /// receives the stream over it. It is not waited for when the other end of the descriptor is closed, and what is left
    /// of a recording that has ended is sent for the given time at most.
    pub(crate) fn begin_over(
        plan: &Plan,
        line: Option<(Line, BorrowedFd<'_>, Duration)>,
    ) -> Result<Self> {
        let tracefs = lastwords_open::tracefs_folder()?.to_owned();
        let changes = check(plan, tracefs).map_err(|why| Error::plan(&why))?;
        let hello = Hello::of_this_machine(&changes.journal.instance);
        let connect = |address: &Address| Sender::connect(address.clone(), &hello);
        let sender = match line {
            Some((line, ended, rest)) => Some(line.into_sender(&hello, ended, rest)?),
            None => plan.receiver.as_ref().map(connect).transpose()?,
        };
        let sender = sender.map(Arc::new);
        let written = changes.journal.write_new(&plan.journals);
        written.map_err(|why| Error::journal(&plan.journals, &why))?;
        let mut recording = Self {
            changes,
            sender,
            described: send::Described::default(),
            enabled: BTreeSet::new(),
            streams: Vec::new(),
            running: None,
            failed: Arc::default(),
            snapshots: plan.snapshots.clone(),
            firings: None,
            triggered: with_triggers(&plan.events),
            triggered_there: plan.buffers.iter().map(|b| with_triggers(&b.events)).collect(),
            is_over: false,
        };
        // If this fails, the recording is dropped, which undoes what was done.
        let done = recording.set_up(plan);
        done.map_err(|error| Error::instance(&recording.changes.journal.instance, error))?;
        Ok(recording)
    }

    fn set_up(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let top = self.changes.top();
        self.set_up_instance(None, plan)?;
        for definition in &self.changes.journal.definitions {
            definition.add(&top)?;
        }
        self.set_up_events(plan, &self.changes.clone())?;
        for (at, buffer) in plan.buffers.iter().enumerate() {
            let plan = plan.of_buffer(buffer);
            self.set_up_instance(Some(at), &plan)?;
            let changes = self.changes.each().swap_remove(at + 1);
            self.set_up_events(&plan, &changes)?;
        }
        self.forget_unshared()?;
        if self.changes.journal.stream {
            self.follow(plan)?;
        }
        Ok(())
    }

    /// Returns the journal of the main instance, or of one of the others.
    fn journal(&mut self, at: Option<usize>) -> anyhow::Result<&mut Journal> {
        let journal = &mut self.changes.journal;
        match at {
            None => Ok(journal),
            Some(at) => journal.buffers.get_mut(at).context("an instance"),
        }
    }

    /// Makes an instance with its rings, or prepares one that exists.
    fn set_up_instance(&mut self, at: Option<usize>, plan: &Plan) -> anyhow::Result<()> {
        let tracefs = self.changes.tracefs.clone();
        let journal = self.journal(at)?;
        let instance = Instance::named(&tracefs, &journal.instance);
        if journal.adopted.is_some() {
            return self.set_up_adopted(at, plan, &instance);
        }
        if let Err(error) = instance.make() {
            // The instance is another's, or does not exist.
            match at {
                Some(at) => {
                    self.changes.journal.buffers.truncate(at);
                    self.changes.journal.replace(&self.changes.journals)?;
                }
                None => {
                    self.is_over = true;
                    let _ = self.changes.journal.remove(&self.changes.journals);
                }
            }
            return Err(error);
        }
        journal.inode = instance.inode();
        self.changes.journal.replace(&self.changes.journals)?;
        instance.write("trace_clock", plan.clock())?;
        instance.write("buffer_size_kb", &kib(plan.size.unwrap_or(SIZE)))?;
        instance.write("options/overwrite", if plan.discard { "0" } else { "1" })
    }

    /// Makes the settings that are given in an instance that exists. The others stay.
    fn set_up_adopted(
        &mut self,
        at: Option<usize>,
        plan: &Plan,
        instance: &Instance,
    ) -> anyhow::Result<()> {
        instance.write("tracing_on", "0")?;
        // Another clock or size empties the rings.
        if let Some(clock) =
            plan.clock.as_ref().filter(|clock| instance.clock().ok().as_ref() != Some(clock))
        {
            instance.write("trace_clock", clock)?;
        }
        if let Some(size) = plan.size {
            instance.write("buffer_size_kb", &kib(size))?;
        }
        if plan.discard {
            instance.write("options/overwrite", "0")?;
        }
        if let Some(adopted) = &mut self.journal(at)?.adopted {
            adopted.count(instance)?;
        }
        self.changes.journal.replace(&self.changes.journals)
    }

    /// Enables the events and the tracer of an instance.
    fn set_up_events(&mut self, plan: &Plan, changes: &Changes) -> anyhow::Result<()> {
        let (top, instance) = (changes.top(), changes.instance());
        let mut rules = plan.events.clone();
        for definition in &changes.journal.definitions {
            let pattern = format!("{}:{}", definition.system, definition.name);
            rules.push(Rule { pattern, ..Rule::default() });
        }
        plan.choice.apply(&top, &instance)?;
        events::enable(&top, &instance, &rules)?;
        self.enabled.extend(instance.enabled()?);
        if let Some(tracer) = &plan.tracer {
            // Some kernels have function_graph for the top level alone.
            check_known(&instance, "available_tracers", tracer, "in an instance, tracer")?;
            instance.write("current_tracer", tracer)?;
        }
        plan.choice.apply_processes(&instance)?;
        if changes.journal.stream {
            // Kernels before 5.0 have no such file; they wake a reader at each full sub-buffer.
            let file = "buffer_percent";
            if instance.path().join(file).exists() {
                instance.write(file, STREAM_AT)?;
            }
        }
        Ok(())
    }

    /// Takes options out of the journal that turned out to be of the instance alone.
    fn forget_unshared(&mut self) -> anyhow::Result<()> {
        let top = self.changes.top();
        let shared = &mut self.changes.journal.shared;
        let count = shared.len();
        shared.retain(|shared| shared.is_changed(&top).unwrap_or(true));
        let is_shorter = shared.len() < count;
        if is_shorter { self.changes.journal.replace(&self.changes.journals) } else { Ok(()) }
    }

    /// Starts a thread for each CPU of each instance.
    fn follow(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let (ended, running) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        let ended = Arc::new(ended);
        self.running = Some(running);
        let drains = match &self.sender {
            Some(sender) => {
                let (drains, described) = send::begin(&self.changes, sender, plan.flush)?;
                self.described = described;
                vec![drains]
            }
            None => save::open_drains(&self.changes)?,
        };
        let all = drains.into_iter().enumerate();
        for (at, mut drain) in all.flat_map(|(at, drains)| drains.into_iter().map(move |d| (at, d)))
        {
            let (ended, failed) = (Arc::clone(&ended), Arc::clone(&self.failed));
            let name = format!("cpu{}", drain.cpu);
            let run = move || {
                let result = drain.follow(ended.as_fd());
                failed.fetch_or(result.is_err(), Relaxed);
                (drain, result)
            };
            let thread = thread::Builder::new().name(name).spawn(run);
            self.streams.push((at, thread.context("a thread for a CPU")?));
        }
        Ok(())
    }

    /// The name of the instance.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.changes.journal.instance
    }

    /// The clock of the events.
    #[must_use]
    pub fn clock(&self) -> &str {
        &self.changes.journal.clock
    }

    /// The file that the trace will be saved as.
    #[must_use]
    pub fn output(&self) -> &Path {
        &self.changes.journal.output
    }

    /// Returns true if triggers take snapshots, which are saved beside the output.
    #[must_use]
    pub fn takes_snapshots(&self) -> bool {
        self.changes.journal.snapshots
    }

    /// The receiver that events are sent to.
    #[must_use]
    pub fn receiver(&self) -> Option<&str> {
        self.changes.journal.receiver.as_deref()
    }

    /// Notes the files of other machines that were recorded with this one, for the file of the plan.
    /// [`crate::restore`] knows them, too.
    ///
    /// # Errors
    /// The journal cannot be written. The file of the plan will have them all the same.
    pub fn relate(&mut self, relation: Relation) -> Result<()> {
        let Changes { journal, journals, .. } = &mut self.changes;
        journal.relation = Some(relation);
        journal.replace(journals).map_err(|why| Error::journal(journals, &why))
    }

    /// Returns true if a stream cannot be written, so that going on makes no sense.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Records a process, besides those of [`crate::Choice::pids`]. This must precede
    /// [`Recording::start`], after which a choice of no process is one of all.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn choose_process(&self, pid: u32) -> Result<()> {
        let mut each = self.changes.each().into_iter();
        let added = each.try_for_each(|changes| choice::add_process(&changes.instance(), pid));
        added.map_err(|error| Error::instance(&self.changes.journal.instance, error))
    }

    /// Switches tracing on, and sets the triggers, which would otherwise take snapshots of nothing.
    /// `tell` is called with the news of snapshots.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start(&mut self, tell: Tell) -> Result<()> {
        self.switch_on(tell).map_err(|error| Error::instance(&self.changes.journal.instance, error))
    }

    fn switch_on(&mut self, tell: Tell) -> anyhow::Result<()> {
        let (top, each) = (self.changes.top(), self.changes.each());
        each.iter().try_for_each(|changes| changes.instance().write("tracing_on", "1"))?;
        let triggered = [&self.triggered].into_iter().chain(&self.triggered_there);
        for (changes, rules) in each.iter().zip(triggered) {
            events::set_triggers(&top, &changes.instance(), rules)?;
        }
        if self.changes.journal.snapshots {
            let plan = self.snapshots.clone();
            self.firings = Some(Firings::start(self.changes.clone(), &self.triggered, plan, tell)?);
        }
        Ok(())
    }

    /// Returns true if a trigger has switched tracing off, and none switches it on again.
    #[must_use]
    pub fn was_stopped(&self) -> bool {
        triggers::stop(&self.triggered)
            && self.changes.instance().read("tracing_on").is_ok_and(|on| on.trim() == "0")
    }

    /// Switches tracing off. What is in the rings stays.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(&self) -> Result<()> {
        let mut each = self.changes.each().into_iter();
        let written = each.try_for_each(|changes| changes.instance().write("tracing_on", "0"));
        written.map_err(|error| Error::instance(&self.changes.journal.instance, error))
    }

    /// Stops tracing, saves the rings or sends what is left in them, and removes all that was
    /// added. The second value has what could not be sent or removed. If the stream to a receiver
    /// is broken, what the rings still have is saved in the file of the plan.
    ///
    /// # Errors
    /// The trace cannot be saved. Then the instance and the files that it was moved to stay, for
    /// [`crate::restore`].
    pub fn finish(mut self) -> Result<(Saved, Vec<Error>)> {
        self.is_over = true;
        let mut errors = Vec::new();
        let (snapshots, why) = self.end_snapshots();
        let histograms = self.stop().map_err(anyhow::Error::from);
        histograms::pause(&self.changes);
        let histograms = histograms.and_then(|()| histograms::save(&mut self.changes));
        let saved = match self.sender.clone() {
            Some(sender) => self.send(&sender).or_else(|error| {
                // The threads have closed their rings by now, so that what is left can be read
                // again.
                let saved = save::save(&self.changes, save::open_drains(&self.changes)?, None);
                let why = self.broken(error, &sender, saved.as_ref().ok());
                errors.push(Error::broken(&self.changes.journal.instance, &why));
                saved
            }),
            None => self.save(),
        };
        let mut saved = saved.map_err(|error| {
            let path = self.changes.journal.output.display();
            let why = error.context(format!(
                "{path}: the trace is not saved; it is kept in the instance and beside the file: `lastwords restore` tries again"
            ));
            Error::unsaved(&self.changes.journal.instance, &why)
        })?;
        saved.snapshots = snapshots;
        match histograms {
            Ok(path) => saved.histograms = path,
            Err(error) => {
                let why = error.context(
                    "the histograms are not saved; `lastwords restore` saves what the instance still has of them",
                );
                errors.push(Error::histograms(&self.changes.journal.instance, &why));
                return Ok((saved, errors));
            }
        }
        if let Some(error) = why {
            let why = error.context(
                "a snapshot is not saved; `lastwords restore` saves what the instance still has of it",
            );
            errors.push(Error::snapshot(&self.changes.journal.instance, &why));
            return Ok((saved, errors));
        }
        errors.extend(self.changes.undo().1);
        Ok((saved, errors))
    }

    /// Stops tracing, and saves the snapshot that was taken last. Returns all of them.
    fn end_snapshots(&mut self) -> (Vec<Saved>, Option<anyhow::Error>) {
        let Some(firings) = self.firings.take() else { return (Vec::new(), None) };
        let stopped = self.stop();
        let (saved, why) = firings.finish();
        (saved, why.or(stopped.err().map(anyhow::Error::from)))
    }

    fn send(&mut self, sender: &Sender) -> anyhow::Result<Saved> {
        self.stop()?;
        let drains = self.join()?.into_iter().flatten().collect();
        send::finish(&self.changes, drains, sender, &self.described)
    }

    /// Returns the error of a broken stream, with what is known of the events that were sent.
    fn broken(
        &self,
        error: anyhow::Error,
        sender: &Sender,
        saved: Option<&Saved>,
    ) -> anyhow::Error {
        let (instance, bytes) = (&self.changes.journal.instance, sender.bytes());
        let sent = match saved {
            Some(saved) => format!("{} events", saved.taken_before()),
            None => "the events".to_owned(),
        };
        error.context(format!(
            "the stream of the instance {instance} broke after {bytes} bytes; the receiver keeps what arrived of {sent} that left the rings before"
        ))
    }

    fn save(&mut self) -> anyhow::Result<Saved> {
        self.stop()?;
        let followed = self.join();
        let drains = match self.changes.journal.stream {
            true => followed?,
            false => save::open_drains(&self.changes)?,
        };
        save::save(&self.changes, drains, Some(&self.enabled))
    }

    /// Ends the threads, and returns what they worked on, by instance.
    fn join(&mut self) -> anyhow::Result<Vec<Vec<Drain>>> {
        if let Some(sender) = &self.sender {
            sender.note_end();
        }
        drop(self.running.take());
        let joined: Vec<_> =
            self.streams.drain(..).map(|(at, thread)| (at, thread.join())).collect();
        let mut all: Vec<Vec<Drain>> = Vec::new();
        for (at, joined) in joined {
            let Ok((drain, result)) = joined else {
                bail!("a thread that moves events has panicked")
            };
            result?;
            all.resize_with(all.len().max(at + 1), Vec::new);
            all[at].push(drain);
        }
        Ok(all)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // The threads hold files of the instance, which could not be removed with them.
        self.firings.take().map(Firings::finish);
        let _ = self.join();
        if !self.is_over {
            // What cannot be removed is left to `restore`, since the journal stays.
            let _ = self.changes.undo();
        }
    }
}

/// Returns the rules that have triggers.
fn with_triggers(rules: &[Rule]) -> Vec<Rule> {
    rules.iter().filter(|rule| !rule.triggers.is_empty()).cloned().collect()
}
