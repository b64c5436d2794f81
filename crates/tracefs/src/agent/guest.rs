//! The host's side: has a guest's agent record, receives its events, and measures its clock.

use super::clocks::{ClockShift, measure};
use super::serve::random_id;
use super::wire::{Answer, Ask, VERSION, Wanted, plain};
use super::{EACH, ENDED, HEAD, REST, WORK};
use crate::check::check_output;
use crate::error::{Error, Result};
use crate::save::rename;
use anyhow::{Context, anyhow, bail, ensure};
use lastwords_ftrace::dat::{self, Relation, Shift};
use lastwords_stream::spool::{Finished, Saved, Spool, last_measured};
use lastwords_stream::{Address, Heard, Limits, Line};
use rustix::pipe::{PipeFlags, pipe_with};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Questions about the clock at the begin and at the end.
const MANY: usize = 64;
/// Questions about the clock in between.
const FEW: usize = 8;
/// Most errors of an agent that are shown.
const MOST_ERRORS: usize = 16;
/// How often it is looked whether a stream is over.
const LOOK: Duration = Duration::from_millis(20);
/// The program that listens in a guest.
const PROGRAM: &str = "lastwords kernel agent";

/// A guest to record.
#[derive(Debug, Clone)]
pub struct GuestPlan {
    /// The name of the guest, which is a part of the name of its file.
    pub name: String,
    /// The address of its agent.
    pub address: Address,
    /// The recording that it is to make.
    pub wanted: Wanted,
    /// The file of the host, beside which the guest's is made.
    pub output: PathBuf,
    /// An existing file is replaced.
    pub force: bool,
    /// The clock of the host's events.
    pub clock: String,
    /// Most bytes of the guest's stream, as [`Limits::size`].
    pub size: u64,
}

impl GuestPlan {
    /// Returns the file for the guest's events: `trace-NAME.dat` beside `trace.dat`.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        of_guest(&self.output, &self.name)
    }

    fn check(&self) -> anyhow::Result<()> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        ensure!(
            (1..=64).contains(&self.name.len())
                && self.name.chars().all(is_name)
                && !self.name.starts_with(['-', '.']),
            "guest {:?}: a name has letters, digits, `-`, `_` and `.`",
            self.name
        );
        let tells = lastwords_open::tracer_now(&self.clock).is_some();
        ensure!(
            tells,
            "the clock {}: only mono, mono_raw and boot can be related to a guest's",
            self.clock
        );
        check_output(&std::path::absolute(self.path())?, self.force)
    }
}

/// The result of a guest's thread: the connection, the clocks, and why it is broken.
type Measuring = JoinHandle<(Line, ClockShift, Option<anyhow::Error>)>;
/// The result of the thread that receives: the spool, and why the stream ended early.
type Received = lastwords_stream::Result<(Spool, Option<String>)>;

/// The stream of a guest, which a thread receives. If it is dropped, what arrived is saved as a file
/// of the guest's own name.
#[derive(Debug)]
struct Stream {
    receiving: Option<JoinHandle<Received>>,
    /// The stream ends early when it is dropped.
    running: Option<OwnedFd>,
    /// The path of the spool, when there is one.
    spool: Receiver<PathBuf>,
}

impl Stream {
    fn begin(line: Line, folder: PathBuf, size: u64) -> anyhow::Result<Self> {
        let (ended, running) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        let (to, spool) = channel();
        let receive = move || {
            let begun = |path: &Path| _ = to.send(path.to_owned());
            let limits = Limits { size, ..Limits::default() };
            line.receive_stream(&folder, limits, ended.as_fd(), &begun)
        };
        let receiving = Builder::new().name("stream".to_owned()).spawn(receive)?;
        Ok(Self { receiving: Some(receiving), running: Some(running), spool })
    }

    /// Returns true if all of it came, or no more of it will.
    fn is_over(&self) -> bool {
        self.receiving.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Cuts the stream.
    fn cut(&mut self) {
        self.running = None;
    }

    /// Cuts the stream unless it is over in time, or the other end of `ended` is closed.
    fn wait(&mut self, line: &Line, ended: BorrowedFd<'_>) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !self.is_over() {
            let is_late = begun.elapsed() >= WORK;
            // The agent has nothing to say any more.
            match line.hear::<Answer>(LOOK, Some(ended)) {
                Ok(Heard::Ended) => bail!("{}: {ENDED}", line.peer()),
                Ok(Heard::Message(other)) => return Err(other.unexpected(line)),
                Ok(Heard::Nothing) => {}
                Err(_) => std::thread::sleep(LOOK),
            }
            let (peer, seconds) = (line.peer(), WORK.as_secs());
            ensure!(
                !is_late,
                "{peer}: {seconds} seconds after the end of the recording, its stream has none"
            );
        }
        Ok(())
    }

    /// Waits for the end of the stream, and returns what came.
    fn end(&mut self) -> anyhow::Result<(Spool, Option<String>)> {
        let thread = self.receiving.take().context("the stream is over")?;
        let Ok(received) = thread.join() else { bail!("the thread of its stream has panicked") };
        Ok(received?)
    }

    /// Waits for the end of the stream, saves what came as that of a recording that was given up, and
    /// returns why the stream ended.
    fn give_up(&mut self) -> anyhow::Error {
        let (spool, why) = match self.end() {
            Ok(ended) => ended,
            Err(error) => return error,
        };
        let why = why.unwrap_or_else(|| "its recording was given up".to_owned());
        // A spool that cannot be saved stays.
        let _ = spool.finish(Some(&why));
        anyhow!("{why}")
    }

    /// Returns why the stream is over. If it goes on, returns `error`, which the agent has told. The
    /// agent knows only that its stream is broken.
    fn why_over(&mut self, error: anyhow::Error) -> anyhow::Error {
        let begun = Instant::now();
        while !self.is_over() {
            if begun.elapsed() >= EACH {
                return error;
            }
            std::thread::sleep(LOOK);
        }
        self.give_up()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.cut();
        _ = self.give_up();
    }
}

/// A guest that is prepared to record, or records. If it is dropped, the agent ends the recording,
/// and what arrived stays in its spool.
#[derive(Debug)]
pub struct Guest {
    plan: GuestPlan,
    trace_id: u64,
    /// The connection and the first measurement, until the recording begins.
    line: Option<(Line, ClockShift)>,
    stream: Stream,
    /// The file that the stream goes into.
    spool: PathBuf,
    /// The measuring thread, which ends when the pipe is closed.
    measuring: Option<(Measuring, OwnedFd)>,
    /// How long the agent may go on to send after the end of the recording: [`REST`].
    rest: Duration,
}

/// The relation of a guest's file to the files of its recording.
#[derive(Debug, Clone, Copy)]
pub struct Related {
    /// The number of the host's file.
    pub host: u64,
    /// As [`Relation::real_time`].
    pub real_time: Option<i64>,
}

/// The file of a guest.
#[derive(Debug)]
pub struct SavedGuest {
    /// The name of the guest.
    pub name: String,
    /// The file; none if the guest had no events.
    pub file: Option<Finished>,
    /// The relation of its clock to the host's.
    pub shift: ClockShift,
    /// Why the guest's recording ended before it was stopped.
    pub ended_early: Option<String>,
    /// Settings that the agent could not restore.
    pub errors: Vec<String>,
}

impl Guest {
    /// Returns a number for a recording, for [`Relation::trace_id`].
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn new_id() -> Result<u64> {
        random_id().map_err(|why| Error::plan(&why))
    }

    /// Connects to the agent, has it prepare the recording, and measures its clock, unless the other
    /// end of `ended` is closed before.
    ///
    /// # Errors
    /// Nobody listens, the agent refuses, a file cannot be made, or `ended` came first.
    pub fn begin(plan: GuestPlan, ended: BorrowedFd<'_>) -> Result<Self> {
        let name = plan.name.clone();
        let prepared = Self::prepare(plan, ended);
        prepared.map_err(|why| Error::plan(&why.context(format!("guest {name}"))))
    }

    fn prepare(plan: GuestPlan, ended: BorrowedFd<'_>) -> anyhow::Result<Self> {
        plan.check()?;
        let line = Line::connect(&plan.address, PROGRAM)?;
        line.say(&Ask::Record { version: VERSION, wanted: Box::new(plan.wanted.clone()) })?;
        let key = match hear(&line, HEAD, ended)? {
            Answer::Ready { key } => key,
            other => return Err(other.unexpected(&line)),
        };
        let stream = Line::connect(&plan.address, PROGRAM)?;
        stream.say(&Ask::Join { key })?;
        let path = std::path::absolute(plan.path())?;
        let folder = path.parent().context("a folder for the file")?;
        let mut stream = Stream::begin(stream, folder.to_owned(), plan.size)?;
        match hear(&line, WORK, ended)? {
            Answer::Begun => {}
            other => return Err(other.unexpected(&line)),
        }
        let mut shift = ClockShift::default();
        let measured = measure(&line, &plan.clock, MANY, Some(ended));
        shift.add_last(measured.map_err(|error| stream.why_over(error))?);
        let none = || format!("{}: it has begun no stream", line.peer());
        let spool = stream.spool.recv_timeout(HEAD).ok().with_context(none)?;
        let (trace_id, line) = (random_id()?, Some((line, shift)));
        Ok(Self { plan, trace_id, line, stream, spool, measuring: None, rest: REST })
    }

    /// Returns what the host's file says of this guest.
    #[must_use]
    pub fn of_host(&self) -> dat::Guest {
        dat::Guest { name: self.plan.name.clone(), trace_id: self.trace_id }
    }

    /// Has the guest begin to record, and measures its clock from then on. The measurements are noted
    /// beside the spool too, so that they are known if this program is killed.
    ///
    /// # Errors
    /// The agent refuses, the connection is broken, or the other end of `ended` was closed.
    pub fn start(&mut self, related: Related, ended: BorrowedFd<'_>) -> Result<()> {
        let begun = self.begin_measuring(related, ended);
        begun.map_err(|why| Error::plan(&why.context(format!("guest {}", self.plan.name))))
    }

    fn begin_measuring(&mut self, related: Related, ended: BorrowedFd<'_>) -> anyhow::Result<()> {
        let Some((line, mut shift)) = self.line.take() else { return Ok(()) };
        line.say(&Ask::Start)?;
        match hear(&line, WORK, ended)? {
            Answer::Started => {}
            other => return Err(other.unexpected(&line)),
        }
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        let (clock, trace_id, spool) = (self.plan.clock.clone(), self.trace_id, self.spool.clone());
        let run = move || {
            let keep = |shift: &ClockShift| -> anyhow::Result<()> {
                Ok(Spool::keep_relation(&spool, &relation(trace_id, related, shift))?)
            };
            let once = |shift: &mut ClockShift| -> anyhow::Result<bool> {
                // If the disk is full, the recording goes on: the stream itself will end early.
                let _ = keep(shift);
                match line.hear::<Answer>(EACH, Some(stopped.as_fd()))? {
                    Heard::Ended => return Ok(false),
                    Heard::Message(other) => return Err(other.unexpected(&line)),
                    Heard::Nothing => {}
                }
                shift.add(measure(&line, &clock, FEW, None)?);
                Ok(true)
            };
            let broken = loop {
                match once(&mut shift) {
                    Ok(true) => {}
                    Ok(false) => break None,
                    Err(error) => break Some(error),
                }
            };
            (line, shift, broken)
        };
        let thread = Builder::new().name(format!("clock of {}", self.plan.name)).spawn(run)?;
        self.measuring = Some((thread, stop));
        Ok(())
    }

    /// Returns true if the guest's recording has ended early.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.measuring.as_ref().is_some_and(|(thread, _)| thread.is_finished())
    }

    /// Stops the recording, and saves what came. The agent is not waited for when the other end of
    /// `ended` is closed.
    ///
    /// # Errors
    /// The file cannot be written. What arrived stays in its spool.
    pub fn finish(self, related: Related, ended: BorrowedFd<'_>) -> Result<SavedGuest> {
        let name = self.plan.name.clone();
        let saved = self.end(related, ended);
        saved.map_err(|why| Error::plan(&why.context(format!("guest {name}"))))
    }

    fn end(mut self, related: Related, ended: BorrowedFd<'_>) -> anyhow::Result<SavedGuest> {
        let (line, mut shift, broken) = self.stop_measuring()?;
        let stopped = match broken {
            Some(why) => Err(why),
            None => self.stop(&line, &mut shift, ended),
        };
        drop(line);
        let was_over = self.stream.is_over();
        if stopped.is_err() {
            self.stream.cut();
        }
        let (mut spool, cut) = self.stream.end()?;
        let relation = relation(self.trace_id, related, &shift);
        // If the file cannot be written, the spool is saved later.
        let _ = Spool::keep_relation(spool.path(), &relation);
        spool.relate(relation);
        let (errors, ended_early) = match stopped {
            Ok(errors) => (errors.iter().take(MOST_ERRORS).map(|text| plain(text)).collect(), None),
            Err(why) => {
                // The end of the stream is told first, unless this function cut it.
                let cut = cut.clone().filter(|_| was_over);
                let last = shift.measured.last().map(|last| last_measured(last.time));
                let all = [cut, Some(lastwords_open::chain(&why)), last];
                (Vec::new(), Some(all.into_iter().flatten().collect::<Vec<_>>().join("; ")))
            }
        };
        let (path, why) = (self.plan.path(), ended_early.clone().or(cut));
        let finished = spool.finish(why.as_deref());
        // A disk that is full ends the stream, and leaves no room for the file.
        let finished = match &why {
            Some(why) => finished.with_context(|| format!("its recording ended early: {why}"))?,
            None => finished?,
        };
        let file = match finished {
            Some(Saved::Kernel(finished)) => Some(moved(finished, &path, self.plan.force)?),
            Some(Saved::Session(session)) => {
                bail!("{}: the agent has sent a session", session.path.display())
            }
            None => None,
        };
        Ok(SavedGuest { name: self.plan.name.clone(), file, shift, ended_early, errors })
    }

    /// Ends the thread that measures.
    fn stop_measuring(&mut self) -> anyhow::Result<(Line, ClockShift, Option<anyhow::Error>)> {
        let (thread, stop) = self.measuring.take().context("it does not record")?;
        drop(stop);
        let Ok(measured) = thread.join() else { bail!("the thread of its clock has panicked") };
        Ok(measured)
    }

    /// Has the agent stop, and measures its clock once more.
    fn stop(
        &mut self,
        line: &Line,
        shift: &mut ClockShift,
        ended: BorrowedFd<'_>,
    ) -> anyhow::Result<Vec<String>> {
        line.say(&Ask::Stop)?;
        // While events come, the agent has something to do, but not for ever.
        let (mut since, mut patience, mut has_all) = (Instant::now(), self.rest, false);
        let errors = loop {
            match line.hear(EACH, Some(ended))? {
                Heard::Message(Answer::Finished { errors }) => break errors,
                Heard::Message(other) => return Err(other.unexpected(line)),
                Heard::Ended => bail!("{}: {ENDED}", line.peer()),
                Heard::Nothing => {}
            }
            if !has_all && self.stream.is_over() {
                (since, patience, has_all) = (Instant::now(), WORK, true);
            }
            ensure!(
                since.elapsed() < patience,
                "{}: the agent has not ended the recording in {} seconds",
                line.peer(),
                patience.as_secs()
            );
        };
        shift.add_last(measure(line, &self.plan.clock, MANY, Some(ended))?);
        self.stream.wait(line, ended)?;
        Ok(errors)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The thread has the connection. It waits for one answer at most.
        if let Some((thread, stop)) = self.measuring.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// Returns the relation of a guest's file.
fn relation(trace_id: u64, Related { host, real_time }: Related, shift: &ClockShift) -> Relation {
    let shift = Some(Shift { host, samples: shift.samples() });
    Relation { trace_id, real_time, shift, ..Relation::default() }
}

/// Waits for an answer.
fn hear(line: &Line, time: Duration, ended: BorrowedFd<'_>) -> anyhow::Result<Answer> {
    match line.hear(time, Some(ended))? {
        Heard::Message(answer) => Ok(answer),
        Heard::Ended => bail!("{}: {ENDED}", line.peer()),
        Heard::Nothing => {
            bail!("{}: it has not answered for {} seconds", line.peer(), time.as_secs())
        }
    }
}

/// Returns the file that is beside an output of `NAME.dat` and of a guest.
fn of_guest(output: &Path, guest: &str) -> PathBuf {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let name = match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => format!("{stem}-{guest}.{ending}"),
        _ => format!("{name}-{guest}"),
    };
    output.with_file_name(name)
}

/// Gives the finished file its name.
fn moved(finished: Finished, path: &Path, force: bool) -> anyhow::Result<Finished> {
    let kept = || format!("what arrived is in {}", finished.path.display());
    rename(&finished.path, path, force).with_context(kept)?;
    Ok(Finished { path: path.to_owned(), ..finished })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_open::tracer_now;
    use lastwords_stream::Listener;
    use lastwords_stream::wire::Hello;

    /// An agent that records nothing, and never ends that.
    fn endless_agent(listener: &Listener) -> anyhow::Result<()> {
        let (never, _running) = pipe_with(PipeFlags::CLOEXEC)?;
        let accept = || listener.accept(never.as_fd())?.context("a connection");
        let line = accept()?;
        let ask = || match line.hear::<Ask>(HEAD, None)? {
            Heard::Message(ask) => Ok(ask),
            other => bail!("{other:?}"),
        };
        ensure!(matches!(ask()?, Ask::Record { .. }));
        line.say(&Answer::Ready { key: "k".to_owned() })?;
        let stream = accept()?;
        ensure!(matches!(stream.hear(HEAD, None)?, Heard::Message(Ask::Join { .. })));
        let _sender = stream.into_sender(&Hello::of_this_machine("i"), never.as_fd(), REST)?;
        line.say(&Answer::Begun)?;
        // Until the host has closed the connection.
        while let Ok(ask) = ask() {
            match ask {
                Ask::Start => line.say(&Answer::Started)?,
                Ask::Clock => line
                    .say(&Answer::Clock { nanoseconds: tracer_now("mono").context("a clock")? })?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Records a guest whose agent never ends, without patience. `before` gets a folder before the
    /// end: the file is to be made in its folder `in`.
    fn without_patience(before: impl FnOnce(&Path)) -> Result<SavedGuest> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        let listener = Listener::new(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let plan = GuestPlan {
            name: "web".into(),
            address: listener.address().clone(),
            wanted: Wanted::default(),
            output: folder.path().join("in/trace.dat"),
            force: false,
            clock: "mono".into(),
            size: 1 << 20,
        };
        let (never, _running) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        std::thread::scope(|scope| {
            let agent = scope.spawn(|| endless_agent(&listener));
            let related = Related { host: 1, real_time: None };
            let mut guest = Guest::begin(plan, never.as_fd()).unwrap();
            guest.start(related, never.as_fd()).unwrap();
            guest.rest = Duration::ZERO;
            before(folder.path());
            let saved = guest.finish(related, never.as_fd());
            agent.join().unwrap().unwrap();
            saved
        })
    }

    const NOT_ENDED: &str = "the agent has not ended the recording in 0 seconds";

    #[test]
    fn an_agent_that_never_ends_is_not_waited_for_for_ever() {
        let saved = without_patience(|_| {}).unwrap();
        assert!(saved.file.is_none());
        let why = saved.ended_early.unwrap();
        assert!(why.contains(NOT_ENDED) && why.contains("its clock was measured last"), "{why}");
    }

    /// The spool cannot be made a file: both this and the end of the recording are told.
    #[test]
    fn a_guest_that_cannot_be_saved_has_the_reason_of_its_end() {
        let moved = without_patience(|folder| {
            std::fs::rename(folder.join("in"), folder.join("gone")).unwrap();
        });
        let error = moved.unwrap_err().to_string();
        assert!(error.contains(NOT_ENDED) && error.contains(".stream: "), "{error}");
    }

    #[test]
    fn the_file_of_a_guest_is_beside_that_of_its_host() {
        for (host, guest) in [
            ("trace.dat", "trace-web.dat"),
            ("/var/x/t", "/var/x/t-web"),
            ("a.b/.hidden", "a.b/.hidden-web"),
        ] {
            assert_eq!(of_guest(Path::new(host), "web"), Path::new(guest));
        }
    }
}
