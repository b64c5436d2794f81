//! Follows sessions in their folders and instances of the running kernel: gives their events in steps, each event once. Of sessions,
//! nothing is consumed; see [`crate::tail`] for instances.

use crate::consume::{end_of, open, stopped};
use crate::locate::{Candidate, Location, LocationKind};
use crate::tail::TailedInstance;
use crate::{Opened, Options, Result, Trace, is_live_summary, open_all, resolve};
use anyhow::Context as _;
use lastwords_control::Handle;
use lastwords_control::follow::{Follower, Range};
use lastwords_walk::session::{Begin, End, ReadLimit};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Follows the sessions and instances of inputs until the sessions have ended and the instances are gone. `read` gets the events that
/// were committed since the step before; it returns the traces of sessions, and whether to go on. `wait` is called between two steps;
/// if it returns false, one last step follows. Sessions that start later are not followed. With [`Options::idle_steps`], `read` is also
/// called if nothing is new.
///
/// # Errors
/// The same as for [`crate::open()`]; a ring of an instance cannot be read. An input that is neither a session in its own folder nor
/// an instance of the running kernel is a failure in the first step.
pub fn follow<W: AsRef<str>>(
    inputs: &[W],
    options: &Options<'_>,
    mut wait: impl FnMut() -> bool,
    mut read: impl FnMut(Opened) -> (Vec<Trace>, bool),
) -> Result<()> {
    let mut opened = Opened::default();
    let mut candidates = resolve(inputs, options, &mut opened)?;
    let mut handles: Vec<(Location, Handle)> = Vec::new();
    let mut instances = take_instances(&mut candidates, options);
    for candidate in &mut candidates {
        let Ok(location) = &candidate.location else { continue };
        match open(&location.shown, "followed") {
            Ok(handle) if options.wants(&handle.name()) => handles.push((location.clone(), handle)),
            Ok(_) => {}
            Err(error) => candidate.location = Err(error),
        }
    }
    let sessions: Vec<FollowedSession<'_>> = handles
        .iter()
        .map(|(location, handle)| FollowedSession { location, handle, follower: Mutex::new(handle.follow()) })
        .collect();
    let is_alone = instances.len().saturating_add(sessions.len()) == 1;
    if let Some(instance) = instances.iter().find(|instance| !is_alone && !instance.has_real_time()) {
        return Err(instance.unrelated().into());
    }
    let mut is_first = true;
    let mut is_last = false;
    // Sessions that have ended and have nothing new: they may be removed while others are followed.
    let mut ended = vec![false; sessions.len()];
    loop {
        // A recorder that dies between this check and the look is seen by the next step.
        let over: Vec<bool> = sessions.iter().map(FollowedSession::is_over).collect();
        let is_over = over.iter().all(|over| *over) && instances.iter().all(TailedInstance::is_over);
        let mut has_news = false;
        // Each is looked at, also after one that has news. What an instance has was recorded before its look, and so are sessions read
        // up to a later time.
        for instance in &mut instances {
            has_news |= instance.look(is_last)?;
        }
        for ((session, over), ended) in sessions.iter().zip(&over).zip(&mut ended) {
            let has_own = !*ended && session.look()?;
            has_news |= has_own;
            *ended |= *over && !has_own;
        }
        let is_idle_step = options.idle_steps && !is_over;
        if is_first || has_news || is_idle_step {
            if !is_first {
                let living = sessions.iter().zip(&ended).filter(|(_, ended)| !**ended);
                candidates = living.map(|(session, _)| Candidate::named(Ok(session.location.clone()))).collect();
            }
            step(std::mem::take(&mut candidates), &sessions, options, &mut opened)?;
            opened.read_until = sessions.first().filter(|_| is_alone).and_then(|session| session.lock().clock());
            instances.iter_mut().try_for_each(|instance| instance.step(options, &mut opened))?;
            let (traces, is_wanted) = read(std::mem::take(&mut opened));
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

/// Takes the instances of the running kernel out of the candidates, and begins to follow them.
fn take_instances(candidates: &mut Vec<Candidate>, options: &Options<'_>) -> Vec<TailedInstance> {
    let mut instances = Vec::new();
    for candidate in std::mem::take(candidates) {
        let found = match &candidate.location {
            Ok(location) if location.kind == LocationKind::Instance => TailedInstance::begin(location.path()),
            _ => {
                candidates.push(candidate);
                continue;
            }
        };
        match found {
            Ok(instance) if options.wants(instance.name()) => instances.push(instance),
            Ok(_) => {}
            Err(error) => candidates.push(Candidate { location: Err(error), ..candidate }),
        }
    }
    instances
}

/// Reads what is new in the sessions.
fn step(
    candidates: Vec<Candidate>,
    sessions: &[FollowedSession<'_>],
    options: &Options<'_>,
    opened: &mut Opened,
) -> Result<()> {
    let looks: Vec<Box<dyn Fn() -> Vec<Option<End>> + Sync + '_>> =
        sessions.iter().map(|session| Box::new(|| session.ends()) as Box<_>).collect();
    open_all(candidates, options, opened, &|location| {
        let (session, look) = sessions.iter().zip(&looks).find(|(session, _)| session.location == location)?;
        Some(ReadLimit { session: session.lock().session(), look: &**look })
    })
}

/// A session that is followed.
struct FollowedSession<'a> {
    location: &'a Location,
    handle: &'a Handle,
    follower: Mutex<Follower<'a>>,
}

impl<'a> FollowedSession<'a> {
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
        follower.look().with_context(|| self.location.shown.display().to_string())?;
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
