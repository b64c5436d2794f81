//! The agent: records in this guest what a host wants.

use super::newcomers::{MOST, Newcomers, Place};
use super::wire::{Answer, Ask, VERSION, Wanted, cut, plain};
use super::{HEAD, REST, SILENCE};
use crate::error::Error;
use crate::plan::Plan;
use crate::recording::Recording;
use anyhow::{Context, bail, ensure};
use lastwords_open::{chain, tracer_now};
use lastwords_stream::{Address, Heard, Line, Listener, Refusals};
use rustix::rand::{GetRandomFlags, getrandom};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The messages of an agent while it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentNews {
    /// A recording has begun.
    Recording {
        /// Address of the host.
        peer: String,
        /// Name of the instance.
        instance: String,
    },
    /// A recording has ended, and the host has all of it.
    Sent {
        /// Address of the host.
        peer: String,
        /// Events that were sent.
        events: u64,
        /// Events that were lost.
        lost: u64,
    },
    /// A host was refused, or its recording ended early.
    Failed {
        /// Address of the host.
        peer: String,
        /// Why.
        why: String,
    },
}

/// An agent that listens.
#[derive(Debug)]
pub struct Agent {
    listener: Listener,
    journals: PathBuf,
    /// A recording is under way.
    is_busy: AtomicBool,
    /// Connections whose first message has not come.
    newcomers: Newcomers,
    /// The key of the recording that waits for its second connection, and where that goes.
    waiting: Mutex<Option<(String, Sender<Line>)>>,
    /// Anybody who reaches the agent can fail in a loop.
    refusals: Refusals,
}

/// What an agent works with: its end, and who hears of its work.
#[derive(Clone, Copy)]
struct Work<'a> {
    ended: BorrowedFd<'a>,
    tell: &'a (dyn Fn(AgentNews) + Sync),
}

impl Agent {
    /// Listens at an address. `journals` is the folder for journals, as [`Plan::journals`].
    ///
    /// # Errors
    /// The address cannot be used, or other machines of a network can reach it and
    /// `trusts_network` is false.
    pub fn new(
        address: &Address,
        trusts_network: bool,
        journals: PathBuf,
    ) -> lastwords_stream::Result<Self> {
        if !trusts_network && address.is_of_network()? {
            return Err(lastwords_stream::Error::Network { address: address.clone() });
        }
        Ok(Self {
            listener: Listener::new(address)?,
            journals,
            is_busy: AtomicBool::new(false),
            newcomers: Newcomers::default(),
            waiting: Mutex::new(None),
            refusals: Refusals::default(),
        })
    }

    /// Returns the address, with the port that the kernel chose.
    #[must_use]
    pub fn address(&self) -> &Address {
        self.listener.address()
    }

    /// Records for hosts until the other end of `ended` is closed. A recording that is under way
    /// then ends as if its host had stopped it.
    ///
    /// # Errors
    /// No connection can be accepted.
    pub fn run(
        &self,
        ended: BorrowedFd<'_>,
        tell: &(dyn Fn(AgentNews) + Sync),
    ) -> lastwords_stream::Result<()> {
        let work = Work { ended, tell };
        std::thread::scope(|scope| {
            while let Some(line) = self.listener.accept(ended)? {
                let Ok(place) = self.newcomers.enter(&line) else { continue };
                let serve = move || self.serve(line, place, work);
                // Without a thread, the connection is closed.
                let _ =
                    std::thread::Builder::new().name("host".to_owned()).spawn_scoped(scope, serve);
            }
            Ok(())
        })
    }

    /// Serves a connection by its first message.
    fn serve(&self, line: Line, place: Place<'_>, work: Work<'_>) {
        let heard = line.hear::<Ask>(HEAD, Some(work.ended));
        let has_place = place.leave();
        let served = match heard {
            _ if !has_place => Err(anyhow::anyhow!(
                "another connection has taken its place, because {MOST} had said nothing yet"
            )),
            Ok(Heard::Message(Ask::Join { key })) => {
                self.join(line, &key);
                return;
            }
            Ok(Heard::Message(Ask::Record { version, wanted })) => {
                self.record(&line, version, &wanted, work)
            }
            Ok(Heard::Message(other)) => {
                Err(anyhow::anyhow!("it begins with {}", cut(&format!("{other:?}"))))
            }
            Ok(Heard::Nothing) => Err(anyhow::anyhow!("it says nothing")),
            Ok(Heard::Ended) => return,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = served {
            let why = plain(&chain(&error));
            let _ = line.say(&Answer::Refused { why: why.clone() });
            if let Some(why) = self.refusals.limited(why) {
                (work.tell)(AgentNews::Failed { peer: line.peer().to_string(), why });
            }
        }
    }

    /// Hands a connection over to the recording that waits for it.
    fn join(&self, line: Line, key: &str) {
        let waiting = &mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.as_ref().is_some_and(|(own, _)| own == key)
            && let Some((_, to)) = waiting.take()
        {
            // A recording that waits no longer drops it.
            let _ = to.send(line);
        }
    }

    fn record(
        &self,
        line: &Line,
        version: u32,
        wanted: &Wanted,
        work: Work<'_>,
    ) -> anyhow::Result<()> {
        ensure!(
            version == VERSION,
            "this agent speaks version {VERSION} of its messages, and not {version}"
        );
        wanted.check()?;
        ensure!(!self.is_busy.swap(true, Relaxed), "the agent records for another host");
        let recorded = self.record_alone(line, wanted, work);
        self.is_busy.store(false, Relaxed);
        recorded
    }

    fn record_alone(&self, line: &Line, wanted: &Wanted, work: Work<'_>) -> anyhow::Result<()> {
        let stream = self.second(line)?;
        let plan = Plan {
            receiver: Some(stream.peer().clone()),
            // It is written only if the host cannot take the end of a stream.
            output: self.journals.join("agent.dat"),
            force: true,
            journals: self.journals.clone(),
            ..wanted.plan()
        };
        // If anything fails from here on, the recording is dropped, which restores the tracer.
        let mut recording = Recording::begin_over(&plan, Some((stream, work.ended, REST)))?;
        line.say(&Answer::Begun)?;
        let peer = || line.peer().to_string();
        let mut has_started = false;
        loop {
            match line.hear(SILENCE, Some(work.ended))? {
                Heard::Message(Ask::Clock) => {
                    let reading = tracer_now(&wanted.clock).context("the clock")?;
                    line.say(&Answer::Clock { nanoseconds: reading })?;
                }
                Heard::Message(Ask::Start) if !has_started => {
                    has_started = true;
                    recording.start(Box::new(|_| {}))?;
                    let instance = recording.instance().to_owned();
                    (work.tell)(AgentNews::Recording { peer: peer(), instance });
                    line.say(&Answer::Started)?;
                }
                Heard::Message(Ask::Stop) | Heard::Ended => break,
                Heard::Message(other) => {
                    bail!("it says {} while the agent records", cut(&format!("{other:?}")))
                }
                Heard::Nothing => {
                    bail!("it has said nothing for {} seconds", SILENCE.as_secs())
                }
            }
            ensure!(!recording.has_failed(), "the stream to {} is broken", line.peer());
        }
        let (saved, errors) = recording.finish()?;
        if let Some(broken) = errors.iter().find(|error| matches!(error, Error::Broken { .. })) {
            let (events, path) = (saved.events, saved.path.display());
            bail!("{broken}; the last {events} events are in {path}");
        }
        let errors = errors.iter().map(Error::to_string).collect();
        let (events, lost) = (saved.events, saved.lost());
        (work.tell)(AgentNews::Sent { peer: peer(), events, lost });
        line.say(&Answer::Finished { errors })?;
        self.linger(line, &wanted.clock, work)
    }

    /// Waits for the second connection of a host, which it makes with a key.
    fn second(&self, line: &Line) -> anyhow::Result<Line> {
        let (key, (to, from)) = (random_key()?, channel());
        let set = |value| *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = value;
        set(Some((key.clone(), to)));
        let said = line.say(&Answer::Ready { key });
        let stream = said.map(|()| from.recv_timeout(HEAD));
        set(None);
        stream?.ok().context("it has not made its second connection in time")
    }

    /// Answers for the clock after the end, until the host has closed the connection.
    fn linger(&self, line: &Line, clock: &str, work: Work<'_>) -> anyhow::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < HEAD {
            match line.hear(HEAD, Some(work.ended)) {
                Ok(Heard::Message(Ask::Clock)) => {
                    let nanoseconds = tracer_now(clock).context("the clock")?;
                    if line.say(&Answer::Clock { nanoseconds }).is_err() {
                        break;
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }
}

/// Returns 32 hexadecimal digits that nobody can guess.
fn random_key() -> anyhow::Result<String> {
    let mut bytes = [0u8; 16];
    let read = getrandom(&mut bytes[..], GetRandomFlags::empty()).context("random numbers")?;
    ensure!(read == bytes.len(), "the kernel has given {read} random bytes");
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

/// Returns a number for a recording, which no other has.
pub(super) fn random_id() -> anyhow::Result<u64> {
    let key = random_key()?;
    let id = key.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    id.context("a number for the recording")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::TcpStream;
    use std::os::fd::AsFd as _;

    /// Returns the text of the next answer.
    fn answer(peer: &mut TcpStream) -> String {
        let mut length = [0; 4];
        peer.read_exact(&mut length).unwrap();
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        peer.read_exact(&mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn connections_that_say_nothing_keep_no_host_out() {
        let folder = tempfile::tempdir().unwrap();
        let address = "tcp:127.0.0.1:0".parse().unwrap();
        let agent = Agent::new(&address, false, folder.path().to_owned()).unwrap();
        let address = agent.address().to_string();
        let connect = || TcpStream::connect(address.strip_prefix("tcp:").unwrap()).unwrap();
        let (ended, running) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| agent.run(ended.as_fd(), &|_| {}).unwrap());
            let mut silent: Vec<TcpStream> = (0..MOST).map(|_| connect()).collect();
            let mut host = connect();
            let message = br#"{"ask":"stop"}"#;
            host.write_all(&[&(message.len() as u32).to_le_bytes()[..], message].concat()).unwrap();
            assert!(answer(&mut host).contains("it begins with Stop"));
            assert!(answer(&mut silent[0]).contains("another connection has taken its place"));
            // The others wait on.
            for other in &mut silent[1..] {
                other.set_nonblocking(true).unwrap();
                assert_eq!(other.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            }
            drop(running);
        });
    }
}
