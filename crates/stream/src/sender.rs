//! The sending end of a stream, which the threads of all CPUs share.

use crate::address::{Address, RECEIVER};
use crate::error::{Error, Result};
use crate::io::{self, Wait};
use crate::wire::{End, FrameKind, HEADER, Header, Hello, MAGIC, NUMBER, Received, Settings};
use anyhow::{Context, anyhow, bail, ensure};
use lastwords_open::Bundle;
use rustix::event::PollFlags;
use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::pipe::{SpliceFlags, splice};
use socket2::Socket;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a receiver may take nothing once the recording has ended. While it goes on, the rings
/// wait for a slow receiver.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the receiver may take to answer.
const ANSWER: Duration = Duration::from_secs(60);
/// How long the reason of a receiver that has closed the connection is waited for.
const REASON: Duration = Duration::from_millis(500);
/// The longest time between two looks at whether the recording has ended.
const TICK: Duration = Duration::from_secs(1);
/// The level of compression of a description. A higher one takes longer than the network that it
/// spares.
const LEVEL: i32 = 1;
/// Without events, a sign of life is sent as often.
const ALIVE: Duration = Duration::from_secs(5);

/// A connection to a receiver.
#[derive(Debug)]
pub struct Sender {
    address: Address,
    socket: Socket,
    state: Mutex<State>,
    /// How long what is left may be sent for when the recording has ended; none for as long as the
    /// receiver takes some of it.
    most_rest: Option<Duration>,
    /// When the recording ended.
    over: OnceLock<Instant>,
}

/// Whoever sends a frame holds the lock until all of the frame is sent.
#[derive(Debug)]
struct State {
    /// Why nothing can be sent any more.
    broken: Option<String>,
    /// When the last frame was sent.
    last: Instant,
    /// Bytes of sub-buffers that were sent.
    bytes: u64,
}

/// How long the receiver is waited for.
struct Patience<'a> {
    sender: &'a Sender,
    /// Its other end is closed when the recording ends; none if it has ended.
    ended: Option<BorrowedFd<'a>>,
    /// The last progress, or the end of the recording.
    since: Instant,
}

impl<'a> Patience<'a> {
    fn new(sender: &'a Sender, ended: Option<BorrowedFd<'a>>) -> Self {
        Self { sender, ended, since: Instant::now() }
    }

    /// Waits until the socket takes bytes.
    fn wait(&mut self) -> anyhow::Result<()> {
        loop {
            match io::wait(self.sender.socket.as_fd(), PollFlags::OUT, self.ended, TICK)? {
                Wait::Ready => return self.check(),
                Wait::Ended => *self = Self::new(self.sender, None),
                Wait::Late => self.check()?,
            }
        }
    }

    /// Checks the time since the recording ended.
    fn check(&self) -> anyhow::Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        let over = self.sender.over.get().map_or(Duration::ZERO, Instant::elapsed);
        let most = self.sender.most_rest.unwrap_or(Duration::MAX);
        let seconds = most.as_secs();
        ensure!(
            over <= most,
            "the receiver has not taken all {seconds} seconds after the end of the recording"
        );
        let seconds = PATIENCE.as_secs();
        ensure!(
            self.since.elapsed() <= PATIENCE,
            "the receiver has taken nothing for {seconds} seconds"
        );
        Ok(())
    }
}

impl Sender {
    /// Connects to a receiver, which accepts the stream or says why not.
    ///
    /// # Errors
    /// Nobody listens there, or the receiver refuses.
    pub fn connect(address: Address, hello: &Hello) -> Result<Self> {
        let connected = address.connect(RECEIVER);
        let socket = connected.map_err(|why| Error::connection(&address, &why))?;
        Self::over(address, socket, hello, (None, None))
    }

    /// Begins a stream over a connection, which the peer accepts or says why not, unless the other
    /// end of `ended` is closed before. `most_rest` limits the time for what is left to be sent when
    /// the recording has ended.
    ///
    /// # Errors
    /// The peer refuses, the connection is broken, or `ended` came first.
    pub(crate) fn over(
        address: Address,
        socket: Socket,
        hello: &Hello,
        (ended, most_rest): (Option<BorrowedFd<'_>>, Option<Duration>),
    ) -> Result<Self> {
        let state = Mutex::new(State { broken: None, last: Instant::now(), bytes: 0 });
        let sender = Self { address, socket, state, most_rest, over: OnceLock::new() };
        let begun =
            sender.send(&mut sender.lock(), &MAGIC, true, &mut Patience::new(&sender, None));
        begun.map_err(|error| sender.error(&sender.reason(error)))?;
        sender.json(FrameKind::Hello, hello)?;
        match sender.answer(ended)? {
            (FrameKind::Accepted, _) => Ok(sender),
            (kind, _) => Err(sender.unexpected(kind)),
        }
    }

    /// Notes that the recording has ended, so that only what is left is sent from now on.
    pub fn note_end(&self) {
        self.over.get_or_init(Instant::now);
    }

    /// Returns the address of the receiver.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Sends the shape of the rings.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn settings(&self, settings: &Settings) -> Result<()> {
        self.json(FrameKind::Settings, settings)
    }

    /// Sends what describes the events.
    ///
    /// # Errors
    /// As for [`Self::settings`].
    pub fn description(&self, bundle: &Bundle) -> Result<()> {
        let mut archive = Vec::new();
        let written = bundle.write_to(&mut archive, LEVEL).context("a description of the events");
        written.map_err(|why| self.error(&why))?;
        self.frame(FrameKind::Description, 0, &archive, None)
    }

    /// Sends sub-buffers of a CPU that are in a pipe, without a copy in user space. A slow receiver
    /// is waited for, until the other end of `ended` is closed.
    ///
    /// # Errors
    /// As for [`Self::settings`].
    pub fn from_pipe(
        &self,
        cpu: u32,
        pipe: BorrowedFd<'_>,
        length: usize,
        ended: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        let mut state = self.lock();
        let mut patience = Patience::new(self, ended);
        let header = Header { kind: FrameKind::SubBuffers, cpu, length: length as u64 };
        let sent = self.send(&mut state, &header.bytes(), true, &mut patience);
        let sent = sent.and_then(|()| self.splice(pipe, length, &mut patience));
        self.sent(&mut state, header, sent)
    }

    /// Sends sub-buffers of a CPU that are in memory. A slow receiver is waited for, until the
    /// other end of `ended` is closed.
    ///
    /// # Errors
    /// As for [`Self::settings`].
    pub fn from_memory(&self, cpu: u32, bytes: &[u8], ended: Option<BorrowedFd<'_>>) -> Result<()> {
        self.frame(FrameKind::SubBuffers, cpu, bytes, ended)
    }

    /// Sends a sub-buffer of a session that is in a file, without a copy in user space. `packet` is
    /// the index of its stream and its number.
    ///
    /// # Errors
    /// As for [`Self::settings`].
    pub(crate) fn packet_of_file(
        &self,
        packet: (u32, u64),
        file: BorrowedFd<'_>,
        mut offset: u64,
        length: u64,
        ended: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        let mut state = self.lock();
        let mut patience = Patience::new(self, ended);
        let header = Header {
            kind: FrameKind::Packet,
            cpu: packet.0,
            length: length.saturating_add(NUMBER),
        };
        let begin = [&header.bytes()[..], &packet.1.to_le_bytes()].concat();
        let mut sent = self.send(&mut state, &begin, true, &mut patience);
        let end = offset.saturating_add(length);
        while sent.is_ok() && offset < end {
            let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX);
            sent = match sendfile(&self.socket, file, Some(&mut offset), left) {
                Err(Errno::INTR) => Ok(()),
                Err(Errno::AGAIN) => patience.wait(),
                Err(error) => Err(error).context("the connection is broken"),
                Ok(0) => Err(anyhow!("the file of a stream ends at {offset}")),
                Ok(_) => {
                    patience.since = Instant::now();
                    Ok(())
                }
            };
        }
        self.sent(&mut state, header, sent)
    }

    /// Returns the number of packets that the receiver has confirmed, if it says so within a time.
    ///
    /// # Errors
    /// The receiver takes no more, or the connection is broken.
    pub(crate) fn confirmed(&self, wait: Duration) -> Result<Option<u64>> {
        let waited = io::wait(self.socket.as_fd(), PollFlags::IN, None, wait);
        if waited.map_err(|why| self.error(&why))? != Wait::Ready {
            return Ok(None);
        }
        match self.answer(None)? {
            (FrameKind::Confirmed, bytes) => {
                Ok(Some(bytes.first_chunk::<8>().map_or(0, |count| u64::from_le_bytes(*count))))
            }
            (kind, _) => Err(self
                .error(&anyhow!("{}: it says {kind:?} in the midst of the stream", self.address))),
        }
    }

    /// Returns true if the other end of `ended` is closed.
    pub(crate) fn is_ended(&self, ended: BorrowedFd<'_>) -> Result<bool> {
        let waited = io::wait(ended, PollFlags::IN, None, Duration::ZERO);
        Ok(waited.map_err(|why| self.error(&why))? == Wait::Ready)
    }

    /// Sends a sign of life, if nothing was sent for a while.
    ///
    /// # Errors
    /// As for [`Self::settings`].
    pub fn alive(&self, ended: BorrowedFd<'_>) -> Result<()> {
        // Whoever has the lock is sending.
        let is_quiet = self.state.try_lock().is_ok_and(|state| state.last.elapsed() > ALIVE);
        if is_quiet { self.frame(FrameKind::Alive, 0, &[], Some(ended)) } else { Ok(()) }
    }

    /// Reads what the receiver has said in the midst of the stream, which is why it takes no more.
    ///
    /// # Errors
    /// Always: with the reason.
    pub fn interrupted(&self) -> Result<()> {
        let mut state = self.lock();
        let error = anyhow!("the receiver has closed the connection");
        let header = Header { kind: FrameKind::Alive, cpu: 0, length: 0 };
        self.sent(&mut state, header, Err(error))
    }

    /// Returns the bytes of sub-buffers that were sent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Ends the stream, and waits until the receiver says that it has all of it.
    ///
    /// # Errors
    /// The connection is broken, or the receiver does not have all of it.
    pub fn end(&self, end: &End) -> Result<()> {
        self.json(FrameKind::End, end)?;
        // The receiver knows the end by the frame. A connection that cannot be half closed is no
        // harm.
        let _ = self.socket.shutdown(Shutdown::Write);
        match self.answer(None)? {
            (FrameKind::Received, bytes) => {
                let read = serde_json::from_slice(&bytes).with_context(|| self.address.to_string());
                let Received { bytes } = read.map_err(|why| self.error(&why))?;
                if bytes == end.bytes {
                    return Ok(());
                }
                let (address, all) = (&self.address, end.bytes);
                Err(self.error(&anyhow!("{address}: the receiver has {bytes} of {all} bytes")))
            }
            (kind, _) => Err(self.unexpected(kind)),
        }
    }

    /// The connection cannot be used, because of `why`.
    pub(crate) fn error(&self, why: &anyhow::Error) -> Error {
        Error::connection(&self.address, why)
    }

    fn unexpected(&self, kind: FrameKind) -> Error {
        self.error(&anyhow!("{}: it answers {kind:?}, as no receiver does", self.address))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn json(&self, kind: FrameKind, value: &impl serde::Serialize) -> Result<()> {
        let bytes = serde_json::to_vec(value).context("a frame");
        self.frame(kind, 0, &bytes.map_err(|why| self.error(&why))?, None)
    }

    pub(crate) fn frame(
        &self,
        kind: FrameKind,
        cpu: u32,
        bytes: &[u8],
        ended: Option<BorrowedFd<'_>>,
    ) -> Result<()> {
        let mut state = self.lock();
        let header = Header { kind, cpu, length: bytes.len() as u64 };
        // A frame that no receiver would take is refused here, with the same words.
        let read = Header::read(header.bytes()).with_context(|| self.address.to_string());
        read.map_err(|why| self.error(&why))?;
        let mut patience = Patience::new(self, ended);
        let sent = self.send(&mut state, &header.bytes(), !bytes.is_empty(), &mut patience);
        let sent = sent.and_then(|()| self.send(&mut state, bytes, false, &mut patience));
        self.sent(&mut state, header, sent)
    }

    /// Notes that a frame was sent, or that the connection is broken. An error has the reason that
    /// the receiver gives.
    fn sent(&self, state: &mut State, header: Header, sent: anyhow::Result<()>) -> Result<()> {
        match sent {
            Ok(()) => {
                state.last = Instant::now();
                if matches!(header.kind, FrameKind::SubBuffers | FrameKind::Packet) {
                    state.bytes = state.bytes.saturating_add(header.length);
                }
                Ok(())
            }
            Err(error) => {
                // The first thread that finds the connection broken reads the receiver's reason,
                // which all threads then give.
                let broken =
                    state.broken.take().unwrap_or_else(|| format!("{:#}", self.reason(error)));
                state.broken = Some(broken.clone());
                Err(self.error(&anyhow!(broken)))
            }
        }
    }

    /// Sends all of `bytes`. `more`: what belongs to them follows at once.
    fn send(
        &self,
        state: &mut State,
        mut bytes: &[u8],
        more: bool,
        patience: &mut Patience<'_>,
    ) -> anyhow::Result<()> {
        if let Some(broken) = &state.broken {
            bail!("{broken}");
        }
        let flags = SendFlags::NOSIGNAL | if more { SendFlags::MORE } else { SendFlags::empty() };
        while !bytes.is_empty() {
            match send(&self.socket, bytes, flags) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => patience.wait()?,
                Err(error) => return Err(error).context("the connection is broken"),
                Ok(sent) => {
                    bytes = bytes.get(sent..).unwrap_or_default();
                    patience.since = Instant::now();
                }
            }
        }
        Ok(())
    }

    /// Moves bytes from a pipe to the socket.
    fn splice(
        &self,
        pipe: BorrowedFd<'_>,
        mut left: usize,
        patience: &mut Patience<'_>,
    ) -> anyhow::Result<()> {
        while left > 0 {
            match splice(
                pipe,
                None,
                &self.socket,
                None,
                left,
                SpliceFlags::MOVE | SpliceFlags::NONBLOCK,
            ) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => patience.wait()?,
                Err(error) => return Err(error).context("the connection is broken"),
                Ok(0) => bail!("the pipe has {left} bytes fewer than were put into it"),
                Ok(moved) => {
                    left = left.saturating_sub(moved);
                    patience.since = Instant::now();
                }
            }
        }
        Ok(())
    }

    /// Returns the error of a broken connection with the reason that the receiver gives, if it
    /// gives one.
    fn reason(&self, error: anyhow::Error) -> anyhow::Error {
        let named = |text: String| anyhow!("{}: {text}", self.address);
        match self.receive(REASON, None) {
            Ok((FrameKind::Refused, text)) => {
                named(format!("the receiver says: {}", String::from_utf8_lossy(&text)))
            }
            _ => named(format!("{error:#}")),
        }
    }

    /// Reads an answer. The receiver's refusal is an error.
    fn answer(&self, ended: Option<BorrowedFd<'_>>) -> Result<(FrameKind, Vec<u8>)> {
        let answer =
            self.receive(ANSWER, ended).with_context(|| format!("{}: no answer", self.address));
        match answer.map_err(|why| self.error(&why))? {
            (FrameKind::Refused, text) => {
                let (address, text) = (&self.address, String::from_utf8_lossy(&text));
                Err(self.error(&anyhow!("{address}: the receiver says: {text}")))
            }
            answer => Ok(answer),
        }
    }

    fn receive(
        &self,
        timeout: Duration,
        ended: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<(FrameKind, Vec<u8>)> {
        let until = Instant::now().checked_add(timeout).context("a time limit")?;
        let mut header = [0; HEADER];
        self.receive_all(&mut header, until, ended)?;
        let header = Header::read(header)?;
        ensure!(
            header.kind as u32 >= FrameKind::Accepted as u32,
            "it sends {:?}, as senders do",
            header.kind
        );
        let mut bytes = vec![0; usize::try_from(header.length)?];
        self.receive_all(&mut bytes, until, ended)?;
        Ok((header.kind, bytes))
    }

    fn receive_all(
        &self,
        mut bytes: &mut [u8],
        until: Instant,
        ended: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            match recv(&self.socket, &mut *bytes, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = until.saturating_duration_since(Instant::now());
                    ensure!(!left.is_zero(), "the receiver does not answer");
                    let waited = io::wait(self.socket.as_fd(), PollFlags::IN, ended, left)?;
                    ensure!(waited != Wait::Ended, "it was not waited for: this program ends");
                }
                Err(error) => return Err(error).context("the connection is broken"),
                Ok((0, _)) => bail!("the receiver has closed the connection"),
                Ok((read, _)) => bytes = bytes.get_mut(read..).unwrap_or_default(),
            }
        }
        Ok(())
    }
}

impl AsFd for Sender {
    /// Returns the socket. It becomes readable when the receiver takes no more
    /// ([`Sender::interrupted`]).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
