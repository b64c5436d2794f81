//! Sends sessions of applications to a receiver: a live one, or those that a command's applications
//! begin in a folder.

use crate::progress::human_bytes;
use crate::say;
use anyhow::Context;
use lastwords_control::stream_out::SentSession;
use lastwords_stream::session::{self, Sent};
use lastwords_stream::wire::Hello;
use lastwords_stream::{Address, Sender};
use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The time between two looks at the folder for new sessions.
const LOOK: Duration = Duration::from_millis(20);

/// The sessions that are sent.
pub(super) struct Sessions {
    address: Address,
    /// The sending ends when this is closed.
    running: Option<UnixStream>,
    /// Finds sessions in the folder, and starts a thread for each. Returns the results with the
    /// folders of the sessions.
    finder: JoinHandle<Vec<(PathBuf, anyhow::Result<Sent>)>>,
    /// Sessions that are being sent. The finder adds, each thread of a session subtracts. It is a
    /// number alone and orders nothing.
    under_way: Arc<AtomicUsize>,
}

/// The outcome of all sessions.
#[derive(Debug, Default)]
pub(super) struct Result {
    /// Events and sub-buffers were lost.
    pub(super) lost: bool,
    /// A session could not be sent.
    pub(super) failed: bool,
    /// Everything that the sessions have is at the receiver.
    pub(super) is_all: bool,
}

impl Sessions {
    /// Sends a session that exists.
    pub(super) fn one(address: &Address, folder: PathBuf, flush: Duration) -> anyhow::Result<Self> {
        let source =
            SentSession::open(&folder, false).with_context(|| folder.display().to_string())?;
        let sender = Sender::connect(address.clone(), &Hello::of_this_machine(&source.name()))?;
        let (ended, running) = UnixStream::pair().context("a pair of sockets")?;
        let under_way = Arc::new(AtomicUsize::new(1));
        let counter = Arc::clone(&under_way);
        let run = move || {
            let sent =
                session::send(&sender, source, flush, ended.as_fd()).map_err(anyhow::Error::from);
            counter.fetch_sub(1, Relaxed);
            vec![(folder, sent)]
        };
        let finder =
            thread::Builder::new().name("session".to_owned()).spawn(run).context("a thread")?;
        Ok(Self { address: address.clone(), running: Some(running), finder, under_way })
    }

    /// Sends all sessions that begin in a folder.
    pub(super) fn of_folder(
        address: &Address,
        folder: &Path,
        flush: Duration,
    ) -> anyhow::Result<Self> {
        // A receiver that is not there is told before the command is started. The first session
        // gets this connection.
        let first = Sender::connect(address.clone(), &Hello::of_this_machine(""))?;
        let (ended, running) = UnixStream::pair().context("a pair of sockets")?;
        let ended = Arc::new(ended);
        let under_way = Arc::new(AtomicUsize::new(0));
        let (to, folder, counter) = (address.clone(), folder.to_owned(), Arc::clone(&under_way));
        let run = move || find((&to, flush), first, &folder, &ended, &counter);
        let finder =
            thread::Builder::new().name("sessions".to_owned()).spawn(run).context("a thread")?;
        Ok(Self { address: address.clone(), running: Some(running), finder, under_way })
    }

    /// Returns true if no session is being sent now.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.load(Relaxed) == 0
    }

    /// Sends what the sessions have now, and prints on stderr what was sent and what was lost.
    pub(super) fn finish(mut self) -> Result {
        drop(self.running.take());
        let Ok(results) = self.finder.join() else {
            say::error("a thread that sends sessions has panicked");
            return Result { failed: true, ..Result::default() };
        };
        let mut all = Result { is_all: true, ..Result::default() };
        for (folder, result) in results {
            match result {
                Ok(sent) => {
                    tell(&self.address, &sent);
                    let is_whole =
                        sent.overwritten == 0 && sent.unfinished == 0 && !sent.has_unsent_counters;
                    all.lost |= !is_whole || sent.lost_events > 0;
                    all.is_all &= is_whole;
                }
                Err(error) => {
                    say::error(lastwords_open::chain(&error.context(folder.display().to_string())));
                    all.failed = true;
                    all.is_all = false;
                }
            }
        }
        all
    }
}

/// Finds sessions until the end, and sends each on a thread.
fn find(
    (address, flush): (&Address, Duration),
    first: Sender,
    folder: &Path,
    ended: &Arc<UnixStream>,
    under_way: &Arc<AtomicUsize>,
) -> Vec<(PathBuf, anyhow::Result<Sent>)> {
    let mut first = Some(first);
    let (mut known, mut threads, mut results) = (BTreeSet::new(), Vec::new(), Vec::new());
    loop {
        // Sessions that began before the end are found by the look after this.
        let is_last = is_closed(ended, LOOK);
        let entries = folder.read_dir().into_iter().flatten();
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if known.contains(&path) || !lastwords_folders::is_session_folder(&path) {
                continue;
            }
            let source = match SentSession::open(&path, true) {
                Ok(source) => source,
                // It may not be complete yet.
                Err(_) if !is_last => continue,
                Err(error) => {
                    results.push((path.clone(), Err(anyhow::Error::from(error))));
                    known.insert(path);
                    continue;
                }
            };
            known.insert(path.clone());
            under_way.fetch_add(1, Relaxed);
            let (to, ended, under_way) =
                (address.clone(), Arc::clone(ended), Arc::clone(under_way));
            let connected = first.take().map(Ok);
            let run = move || {
                let connect = || Sender::connect(to, &Hello::of_this_machine(&source.name()));
                let sender = connected.unwrap_or_else(connect);
                let sent =
                    sender.and_then(|sender| session::send(&sender, source, flush, ended.as_fd()));
                let sent = sent.map_err(anyhow::Error::from);
                under_way.fetch_sub(1, Relaxed);
                (path, sent)
            };
            match thread::Builder::new().name("session".to_owned()).spawn(run) {
                Ok(thread) => threads.push(thread),
                Err(error) => results
                    .push((folder.to_owned(), Err(anyhow::Error::from(error).context("a thread")))),
            }
        }
        if is_last {
            break;
        }
        // A connection that breaks meanwhile is made again for the first session.
        first = first.filter(|first| first.alive(ended.as_fd()).is_ok());
    }
    let panicked =
        || (folder.to_owned(), Err(anyhow::anyhow!("a thread that sends a session has panicked")));
    results.extend(threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())));
    results
}

/// Waits until the other end of a socket is closed, for a time at most. Returns true if it is.
fn is_closed(socket: &UnixStream, wait: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(socket, PollFlags::IN)];
    let wait = Timespec::try_from(wait).ok();
    poll(&mut fds, wait.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Prints what was sent of a session.
fn tell(address: &Address, sent: &Sent) {
    let Sent {
        session,
        bytes,
        sub_buffers,
        overwritten,
        unfinished,
        lost_events,
        has_unsent_counters,
    } = sent;
    let any = overwritten + unfinished + lost_events > 0 || *has_unsent_counters;
    let words = if any { "see the losses below" } else { "nothing lost" };
    let size = human_bytes(*bytes);
    say::said(format_args!(
        "{address}: session {session}: {sub_buffers} sub-buffers, {size}; {words}"
    ));
    if *overwritten > 0 {
        say::warning(format_args!(
            "session {session}: {overwritten} sub-buffers were overwritten before they had arrived: use larger rings"
        ));
    }
    if *unfinished > 0 {
        say::warning(format_args!(
            "session {session}: {unfinished} sub-buffers were left unfinished by a thread that died, and are not sent"
        ));
    }
    if *lost_events > 0 {
        say::warning(format_args!(
            "session {session}: {lost_events} events found no room in the rings"
        ));
    }
    if *has_unsent_counters {
        say::warning(format_args!(
            "session {session}: the last counters and histograms are not sent: they take more than 16 MiB"
        ));
    }
}
