//! Connections that carry messages of JSON, and a listener for them. A connection may become the
//! one of a stream, at either end.
//!
//! A message is a length (`u32`, little-endian) and as many bytes of JSON.

use crate::address::{Address, check_peer};
use crate::error::{Error, Result};
use crate::io::{self, Wait};
use crate::receiver::{self, Limits, Peer};
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
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Most bytes of a message.
const MOST: u32 = 1 << 20;
/// How long the peer may take to take a message, or to send the rest of one that has begun.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a message that are read at a time.
const CHUNK: usize = 16 << 10;
/// Most characters of an error that quotes the peer.
const MOST_QUOTED: usize = 256;

/// A connection that carries messages.
#[derive(Debug)]
pub struct Line {
    peer: Address,
    socket: Socket,
}

/// The reading half of a [`Line`], by which another thread ends the wait for a message.
#[derive(Debug)]
pub struct ReadEnd(Socket);

impl ReadEnd {
    /// Closes it. [`Line::hear`] fails from now on; [`Line::say`] can still tell the peer why.
    pub fn close(&self) {
        // It fails only if the connection is broken already.
        let _ = self.0.shutdown(Shutdown::Read);
    }
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

    /// Returns whose connection it is, without the port, and its reading half.
    ///
    /// # Errors
    /// The peer has gone, or no file descriptor is left.
    pub fn origin(&self) -> Result<(Peer, ReadEnd)> {
        let found = self
            .socket
            .peer_addr()
            .and_then(|peer| Ok((Peer::from_address(&peer), ReadEnd(self.socket.try_clone()?))));
        found.context("the connection is broken").map_err(|why| self.error(why))
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

    /// Waits for a message, which must begin within `time` and be there as a whole 10 seconds later,
    /// or until the other end of `ended` is closed.
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
        let until = |time| Instant::now().checked_add(time).context("a time limit");
        let mut length = [0; 4];
        let (first, rest) = length.split_at_mut(1);
        match self.fill(first, until(time)?, ended)?.1 {
            Wait::Ended => return Ok(Heard::Ended),
            Wait::Late => return Ok(Heard::Nothing),
            Wait::Ready => {}
        }
        // A message that has begun is not given up because `time` has passed: the next would begin
        // in the middle of it.
        let until = until(PATIENCE)?;
        if self.whole(rest, until, ended, 1)? == Wait::Ended {
            return Ok(Heard::Ended);
        }
        let length = u32::from_le_bytes(length);
        ensure!(length <= MOST, "a message of {length} bytes; {MOST} is the most");
        // Memory grows with what has come, not with what the length claims.
        let (length, mut bytes) = (usize::try_from(length)?, Vec::new());
        while bytes.len() < length {
            let done = bytes.len();
            bytes.resize(length.min(done.saturating_add(CHUNK)), 0);
            let chunk = bytes.get_mut(done..).unwrap_or_default();
            if self.whole(chunk, until, ended, done.saturating_add(4))? == Wait::Ended {
                return Ok(Heard::Ended);
            }
        }
        match serde_json::from_slice(&bytes) {
            Ok(message) => Ok(Heard::Message(message)),
            Err(error) => {
                // The error may quote all of the message.
                let (line, column, all) = (error.line(), error.column(), error.to_string());
                let why: String = all.chars().take(MOST_QUOTED).collect();
                let place = if why.len() < all.len() {
                    format!(".. at line {line} column {column}")
                } else {
                    String::new()
                };
                bail!("a message of {length} bytes: {why}{place}")
            }
        }
    }

    /// Reads a part of a message, of which `before` bytes came before.
    ///
    /// # Errors
    /// The connection is broken, or the part is not complete in time.
    fn whole(
        &self,
        bytes: &mut [u8],
        until: Instant,
        ended: Option<BorrowedFd<'_>>,
        before: usize,
    ) -> anyhow::Result<Wait> {
        let (came, wait) = self.fill(bytes, until, ended)?;
        ensure!(
            wait != Wait::Late,
            "a message is not complete {} seconds after its begin: {} bytes came",
            PATIENCE.as_secs(),
            before.saturating_add(came)
        );
        Ok(wait)
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
    /// not, unless the other end of `ended` is closed before. `rest` is how long what is left may be
    /// sent for when the recording has ended.
    ///
    /// # Errors
    /// The connection is broken, the peer refuses, or `ended` came first.
    pub fn into_sender(
        self,
        hello: &Hello,
        ended: BorrowedFd<'_>,
        rest: Duration,
    ) -> Result<Sender> {
        Sender::over(self.peer, self.socket, hello, (Some(ended), Some(rest)))
    }

    /// Receives one stream of a kernel from the peer into a spool in a folder, until it ends or the
    /// other end of `ended` is closed. `begun` gets the path of the spool. Returns the spool, and why
    /// the stream ended early.
    ///
    /// # Errors
    /// The peer sends no stream, or the spool cannot be made.
    pub fn receive_stream(
        self,
        folder: &Path,
        limits: Limits,
        ended: BorrowedFd<'_>,
        begun: &dyn Fn(&Path),
    ) -> Result<(Spool, Option<String>)> {
        let peer = self.peer.to_string();
        let received = receiver::receive_one(self.socket, peer, folder, limits, ended, begun);
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::io::Write as _;
    use std::net::TcpStream;
    use std::thread;

    /// A connection, and what the peer of it writes.
    fn pair() -> (Line, TcpStream) {
        let listener = Listener::new(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().to_string();
        let peer = TcpStream::connect(address.strip_prefix("tcp:").unwrap()).unwrap();
        let (ended, _running) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        (listener.accept(ended.as_fd()).unwrap().unwrap(), peer)
    }

    fn message(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
    }

    /// The time for a message limits its begin alone: the rest may come later.
    #[test]
    fn a_message_that_has_begun_is_waited_for() {
        let (line, mut peer) = pair();
        let nothing = line.hear::<String>(Duration::from_millis(1), None);
        assert_eq!(nothing.unwrap(), Heard::Nothing);
        let text = format!("{:?}", "x".repeat(100_000));
        let bytes = message(&text);
        let (begin, rest) = bytes.split_at(2);
        peer.write_all(begin).unwrap();
        let rest = rest.to_vec();
        let writes = thread::spawn(move || {
            // Until the other end has looked for the first bytes, and waits for more.
            thread::sleep(Duration::from_millis(200));
            peer.write_all(&rest).unwrap();
            peer
        });
        let heard = line.hear::<String>(Duration::from_millis(20), None).unwrap();
        assert_eq!(heard, Heard::Message("x".repeat(100_000)));
        let mut peer = writes.join().unwrap();
        peer.write_all(&bytes[..1000]).unwrap();
        drop(peer);
        let error = line.hear::<String>(PATIENCE, None).unwrap_err().to_string();
        assert!(error.contains("127.0.0.1") && error.contains("closed"), "{error}");
    }

    #[test]
    fn what_is_no_message_is_quoted_in_part_with_its_place() {
        let hear = |bytes: &[u8]| {
            let (line, mut peer) = pair();
            peer.write_all(bytes).unwrap();
            line.hear::<u64>(PATIENCE, None).unwrap_err().to_string()
        };
        let long = hear(&message(&format!("\n{:?}", "y".repeat(500_000))));
        assert!(long.len() < 1000 && long.contains("a message of 500003 bytes"), "{long}");
        assert!(long.ends_with(".. at line 2 column 500002"), "{long}");
        let short = hear(&message("{}"));
        assert!(short.contains("a message of 2 bytes: invalid type: map"), "{short}");
        let endless = hear(&(MOST + 1).to_le_bytes());
        assert!(endless.contains("a message of 1048577 bytes; 1048576 is the most"), "{endless}");
    }

    /// The peer takes nothing of what is left. Ten seconds later it would be given up, and an agent
    /// gives a host ten minutes even if it takes some: this one has no time at all.
    #[test]
    fn what_is_left_at_the_end_is_sent_for_a_limited_time() {
        use crate::wire::{FrameKind, frame};
        let (line, mut peer) = pair();
        peer.write_all(&frame(FrameKind::Accepted, b"")).unwrap();
        let (ended, running) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let hello = Hello { host: "h".into(), instance: "i".into() };
        let sender = line.into_sender(&hello, ended.as_fd(), Duration::ZERO).unwrap();
        sender.note_end();
        drop(running);
        // More than the sockets hold.
        let data = vec![0; 16 << 20];
        let send = |_| sender.from_memory(0, &data, Some(ended.as_fd())).err();
        let error = (0..16).find_map(send).unwrap().to_string();
        let why = "has not taken all 0 seconds after the end of the recording";
        assert!(error.contains(why), "{error}");
        drop(peer);
    }

    /// A host that asks for the stream of a kernel makes no session folder.
    #[test]
    fn a_stream_of_a_session_is_refused_where_one_of_a_kernel_was_asked_for() {
        use crate::wire::{FrameKind, MAGIC, frame};
        let folder = tempfile::tempdir().unwrap();
        let (line, mut peer) = pair();
        let hello = frame(FrameKind::Hello, br#"{"host":"h","instance":"i"}"#);
        let session = frame(
            FrameKind::Session,
            br#"{"uuid":"000102030405060708090a0b0c0d0e0f","name":"app"}"#,
        );
        peer.write_all(&[&MAGIC[..], &hello, &session].concat()).unwrap();
        let (ended, _running) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let begun = std::cell::Cell::new(None);
        let note = |path: &Path| begun.set(Some(path.to_owned()));
        let received = line.receive_stream(folder.path(), Limits::default(), ended.as_fd(), &note);
        let (spool, why) = received.unwrap();
        assert_eq!(begun.take().as_deref(), Some(spool.path()));
        assert!(why.unwrap().contains("one of a kernel was asked for"));
        assert!(spool.finish(None).unwrap().is_none());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
