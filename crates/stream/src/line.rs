//! Connections that carry messages of JSON, and a listener for them. A connection may become the
//! one of a stream, at either end.
//!
//! A message is a length (`u32`, little-endian) and as many bytes of JSON.

use crate::address::{Address, check_peer};
use crate::error::{Error, Result};
use crate::io::{self, Wait};
use crate::receiver::{self, Limits};
use crate::sender::Sender;
use crate::spool::Spool;
use crate::wire::Hello;
use anyhow::{Context, bail, ensure};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::Serialize;
use serde::de::DeserializeOwned;
use socket2::Socket;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Most bytes of a message.
const MOST: u32 = 1 << 20;
/// How long the peer may take to take a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that carries messages.
#[derive(Debug)]
pub struct Line {
    peer: Address,
    socket: Socket,
}

/// A message, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard<T> {
    /// A message came.
    Message(T),
    /// Nothing came in time.
    Nothing,
    /// The other end of `ended` was closed.
    Ended,
}

impl Line {
    /// Connects to `program`, which listens at an address.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(address: &Address, program: &str) -> Result<Self> {
        let connected = address.connect(program);
        let socket = connected.map_err(|why| Error::connection(address, &why))?;
        Ok(Self { peer: address.clone(), socket })
    }

    /// Returns the address of the peer.
    #[must_use]
    pub fn peer(&self) -> &Address {
        &self.peer
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection is broken, the peer takes nothing for 10 seconds, or the message is longer
    /// than 1 MiB.
    pub fn say(&self, message: &impl Serialize) -> Result<()> {
        self.send(message).map_err(|why| self.error(why))
    }

    fn send(&self, message: &impl Serialize) -> anyhow::Result<()> {
        let bytes = serde_json::to_vec(message).context("a message")?;
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        ensure!(length <= MOST, "a message of {} bytes; {MOST} is the most", bytes.len());
        let all = [&length.to_le_bytes()[..], &bytes].concat();
        let (mut left, begun) = (all.as_slice(), Instant::now());
        while !left.is_empty() {
            match send(&self.socket, left, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let time = PATIENCE.saturating_sub(begun.elapsed());
                    let waited = io::wait(self.socket.as_fd(), PollFlags::OUT, None, time)?;
                    let is_late = waited == Wait::Late && begun.elapsed() >= PATIENCE;
                    ensure!(!is_late, "it has taken nothing for {} seconds", PATIENCE.as_secs());
                }
                Err(error) => return Err(error).context("the connection is broken"),
                Ok(sent) => left = left.get(sent..).unwrap_or_default(),
            }
        }
        Ok(())
    }

    /// Waits for a message, which must be there as a whole within `time`, or until the other end of
    /// `ended` is closed.
    ///
    /// # Errors
    /// The connection is broken or closed, a message is not complete in time or longer than 1 MiB,
    /// or it is no `T`.
    pub fn hear<T: DeserializeOwned>(
        &self,
        time: Duration,
        ended: Option<BorrowedFd<'_>>,
    ) -> Result<Heard<T>> {
        self.receive(time, ended).map_err(|why| self.error(why))
    }

    fn receive<T: DeserializeOwned>(
        &self,
        time: Duration,
        ended: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<Heard<T>> {
        let until = Instant::now().checked_add(time).context("a time limit")?;
        let mut length = [0; 4];
        match self.fill(&mut length, until, ended)? {
            (_, Wait::Ended) => return Ok(Heard::Ended),
            (0, Wait::Late) => return Ok(Heard::Nothing),
            (_, Wait::Late) => bail!("a message is not complete in {} seconds", time.as_secs()),
            (_, Wait::Ready) => {}
        }
        let length = u32::from_le_bytes(length);
        ensure!(length <= MOST, "a message of {length} bytes; {MOST} is the most");
        let mut bytes = vec![0; usize::try_from(length)?];
        match self.fill(&mut bytes, until, ended)? {
            (_, Wait::Ended) => Ok(Heard::Ended),
            (_, Wait::Late) => bail!("a message is not complete in {} seconds", time.as_secs()),
            (_, Wait::Ready) => {
                Ok(Heard::Message(serde_json::from_slice(&bytes).context("a message")?))
            }
        }
    }

    /// Reads bytes, and returns how many came, and why there are no more.
    fn fill(
        &self,
        bytes: &mut [u8],
        until: Instant,
        ended: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<(usize, Wait)> {
        let mut done = 0usize;
        while let Some(left) = bytes.get_mut(done..).filter(|left| !left.is_empty()) {
            match recv(&self.socket, left, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let time = until.saturating_duration_since(Instant::now());
                    match io::wait(self.socket.as_fd(), PollFlags::IN, ended, time)? {
                        Wait::Ended => return Ok((done, Wait::Ended)),
                        _ if Instant::now() >= until => return Ok((done, Wait::Late)),
                        Wait::Ready | Wait::Late => {}
                    }
                }
                Err(error) => return Err(error).context("the connection is broken"),
                Ok((0, _)) => bail!("it has closed the connection"),
                Ok((read, _)) => done = done.saturating_add(read),
            }
        }
        Ok((done, Wait::Ready))
    }

    /// Makes the connection that of a stream that is sent. The peer accepts the stream or says why
    /// not.
    ///
    /// # Errors
    /// The connection is broken, or the peer refuses.
    pub fn into_sender(self, hello: &Hello) -> Result<Sender> {
        Sender::over(self.peer, self.socket, hello)
    }

    /// Receives one stream from the peer into a spool in a folder, until it ends or the other end
    /// of `ended` is closed. Returns the spool, and why the stream ended early.
    ///
    /// # Errors
    /// The peer sends no stream, or the spool cannot be made.
    pub fn receive_stream(
        self,
        folder: &Path,
        limits: Limits,
        ended: BorrowedFd<'_>,
    ) -> Result<(Spool, Option<String>)> {
        let peer = self.peer.to_string();
        let received = receiver::receive_one(self.socket, peer, folder, limits, ended);
        received.map_err(|why| Error::connection(&self.peer, &why.context(self.peer.to_string())))
    }

    fn error(&self, why: anyhow::Error) -> Error {
        Error::connection(&self.peer, &why.context(self.peer.to_string()))
    }
}

/// Listens for connections.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: Address,
}

impl Listener {
    /// Listens at an address.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn new(address: &Address) -> Result<Self> {
        let socket = address.listen().map_err(|why| Error::listen(address, &why))?;
        Ok(Self { address: address.bound(&socket), socket })
    }

    /// Returns the address, with the port that the kernel chose.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Waits for a connection; none if the other end of `ended` was closed.
    ///
    /// # Errors
    /// The kernel gives no connection.
    pub fn accept(&self, ended: BorrowedFd<'_>) -> Result<Option<Line>> {
        self.next(ended).map_err(|why| Error::listen(&self.address, &why))
    }

    fn next(&self, ended: BorrowedFd<'_>) -> anyhow::Result<Option<Line>> {
        loop {
            match io::wait(self.socket.as_fd(), PollFlags::IN, Some(ended), receiver::TICK)? {
                Wait::Ended => return Ok(None),
                Wait::Late => continue,
                Wait::Ready => {}
            }
            let Some((socket, address)) = receiver::accept(&self.socket, &self.address)? else {
                continue;
            };
            // A peer that is gone already, or of another user, is not worth an error.
            let is_mine = !matches!(self.address, Address::Unix(_)) || check_peer(&socket).is_ok();
            if is_mine && self.address.prepare(&socket).is_ok() {
                return Ok(Some(Line { peer: Address::of_peer(&address), socket }));
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}
