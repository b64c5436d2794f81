//! Follows sessions in their folders and instances of the running kernel: gives their events in
//! steps, each event once. Of sessions, nothing is consumed; see [`TailedInstance`] for instances.

use crate::consume::{end_of, open, stopped};
use crate::inputs::{inputs, knowing};
use crate::tail::TailedInstance;
use crate::{Error, Result, is_live_summary};
use anyhow::{Context as _, bail};
use lastwords_control::follow::{Follower, Range};
use lastwords_control::{Handle, dirs};
use lastwords_open::{Inputs, Opened, Options, Trace};
use lastwords_session::{Begin, End, ReadLimit};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// When [`follow`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// In the first step, and in those in which something is new.
    News,
    /// In each step.
    Always,
}

/// Follows the sessions and instances of inputs until the sessions have ended and the instances are
/// gone. `read` gets the events that were committed since the step before; it returns the traces of
/// sessions, and whether to go on. `wait` is called between two steps; if it returns false, one
/// last step follows. Sessions that start later are not followed.
///
/// # Errors
/// The same as for [`crate::open()`]; a ring of an instance cannot be read. An input that is
/// neither a session in its own folder nor an instance of the running kernel is a failure in the
/// first step.
pub fn follow<W: AsRef<str>>(
    words: &[W],
    options: &Options<'_>,
    pace: Pace,
    mut wait: impl FnMut() -> bool,
    mut read: impl FnMut(Opened) -> (Vec<Trace>, bool),
) -> Result<()> {
    let options = &knowing(options);
    let mut inputs = inputs(words, options)?;
    let mut instances = inputs.take_instances(|folder| begin(folder, options));
    let handles = wanted(&mut inputs, options);
    let sessions: Vec<FollowedSession<'_>> = handles.iter().map(FollowedSession::new).collect();
    let is_alone = instances.len().saturating_add(sessions.len()) == 1;
    if let Some(instance) = instances.iter().find(|instance| !is_alone && !instance.has_real_time())
    {
        return Err(Error::followed(instance.folder(), &instance.unrelated()));
    }
    // Each step opens the sessions anew. The first one tells of all other inputs, too.
    let again = inputs.only(|_| true);
    let mut first = Some(inputs);
    let mut is_first = true;
    let mut is_last = false;
    // Sessions that have ended and have nothing new: they may be removed while others are followed.
    let mut ended = vec![false; sessions.len()];
    loop {
        // A recorder that dies between this check and the look is seen by the next step.
        let over: Vec<bool> = sessions.iter().map(FollowedSession::is_over).collect();
        let is_over =
            over.iter().all(|over| *over) && instances.iter().all(TailedInstance::is_over);
        let mut has_news = false;
        // Each is looked at, also after one that has news. What an instance has was recorded before
        // its look, and so are sessions read up to a later time.
        for instance in &mut instances {
            let looked = instance.look(is_last);
            has_news |= looked.map_err(|why| Error::followed(instance.folder(), &why))?;
        }
        for ((session, over), ended) in sessions.iter().zip(&over).zip(&mut ended) {
            let has_own = !*ended && session.look()?;
            has_news |= has_own;
            *ended |= *over && !has_own;
        }
        let is_idle_step = pace == Pace::Always && !is_over;
        if is_first || has_news || is_idle_step {
            let lives = |folder: &Path| {
                sessions.iter().zip(&ended).any(|(s, ended)| s.folder == folder && !*ended)
            };
            let now = first.take().unwrap_or_else(|| again.only(lives));
            let mut opened = step(now, &sessions, options)?;
            opened.read_until =
                sessions.first().filter(|_| is_alone).and_then(|session| session.lock().clock());
            for instance in &mut instances {
                let done = instance.step(options, &mut opened);
                done.map_err(|why| Error::followed(instance.folder(), &why))?;
            }
            let (traces, is_wanted) = read(opened);
            if !is_wanted {
                return Ok(());
            }
            let living = sessions.iter().zip(&ended).filter(|(_, ended)| is_first || !**ended);
            living.for_each(|(session, _)| session.done(&traces));
            instances.iter_mut().for_each(TailedInstance::done);
        } else if is_over {
            return Ok(());
        }
        if is_last {
            return Ok(());
        }
        is_first = false;
        is_last = !is_over && !wait();
    }
}

/// Opens the sessions of inputs that are wanted.
fn wanted(inputs: &mut Inputs, options: &Options<'_>) -> Vec<(PathBuf, Handle)> {
    let mut handles = Vec::new();
    for folder in inputs.paths() {
        match open(&folder, "followed") {
            Ok(handle) if options.wants(&handle.name()) => handles.push((folder, handle)),
            Ok(_) => {}
            Err(error) => inputs.refuse(&folder, &error),
        }
    }
    handles
}

/// Begins to follow an instance of the running kernel, if it is wanted.
fn begin(folder: &Path, options: &Options<'_>) -> anyhow::Result<Option<TailedInstance>> {
    let instance = TailedInstance::begin(folder)?;
    let journal = format!(".record-{}.json", instance.name());
    if dirs::candidates().iter().any(|base| base.join(&journal).exists()) {
        bail!(
            "{}: `lastwords record` saves its events, and following takes them out of the ring: end that, or record into a session",
            folder.display()
        );
    }
    Ok(Some(instance).filter(|instance| options.wants(instance.name())))
}

/// Reads what is new in the sessions.
fn step(inputs: Inputs, sessions: &[FollowedSession<'_>], options: &Options<'_>) -> Result<Opened> {
    let looks: Vec<Box<dyn Fn() -> Vec<Option<End>> + Sync + '_>> =
        sessions.iter().map(|session| Box::new(|| session.ends()) as Box<_>).collect();
    let opened = inputs.open(options, &|folder| {
        let (session, look) =
            sessions.iter().zip(&looks).find(|(session, _)| session.folder == folder)?;
        Some(ReadLimit { session: session.lock().session(), look: &**look })
    });
    Ok(opened?)
}

/// A session that is followed.
struct FollowedSession<'a> {
    folder: &'a Path,
    handle: &'a Handle,
    follower: Mutex<Follower<'a>>,
}

impl<'a> FollowedSession<'a> {
    fn new((folder, handle): &'a (PathBuf, Handle)) -> Self {
        Self { folder, handle, follower: Mutex::new(handle.follow()) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Follower<'a>> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if no process records in the session any more.
    fn is_over(&self) -> bool {
        !is_live_summary(&self.handle.summary())
    }

    /// Looks at the rings; returns true if there is anything new.
    fn look(&self) -> Result<bool> {
        let mut follower = self.lock();
        let looked = follower.look().with_context(|| self.folder.display().to_string());
        looked.map_err(|why| Error::followed(self.folder, &why))?;
        Ok(follower.has_news())
    }

    /// Returns the current range of each stream.
    fn ends(&self) -> Vec<Option<End>> {
        let is_over = self.is_over();
        let mut follower = self.lock();
        // The next step tells of a channel that cannot be mapped.
        drop(follower.look());
        let clock = follower.clock().filter(|_| !is_over);
        let end = |range: &Range| {
            let begin = Begin { position: range.begin.unwrap_or(0), skipped: range.skipped };
            Some(End { begin: Some(begin), ..end_of(&range.bound, clock, is_over) })
        };
        follower.ranges().iter().map(end).collect()
    }

    /// Ends a step in which these traces were read.
    fn done(&self, traces: &[Trace]) {
        let mut follower = self.lock();
        let reached: HashMap<usize, u64> = stopped(traces, follower.session()).collect();
        follower.done(|index| reached.get(&index).copied());
    }
}
