//! One stream, from its first byte to the file that it becomes.

use super::admission::Ticket;
use super::{Limits, Told, saved};
use crate::counters::Copy;
use crate::folder::{PLACED, placed, placed_open};
use crate::head::Head;
use crate::io::{self, PIPE, Wait};
use crate::rings::Rings;
use crate::spool::Spool;
use crate::wire::{
    FrameKind, HEADER, Header, Hello, MAGIC, NUMBER, Order, PART, Received, is_known,
};
use anyhow::{Context, bail, ensure};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::pipe::{SpliceFlags, splice};
use socket2::Socket;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a frame of JSON that are read at a time.
const CHUNK: usize = 64 << 10;
/// A description may take this many times as long as the head.
const DESCRIPTION: u32 = 6;
/// Bytes of a description for which a sender has one second more.
const PER_SECOND: u64 = 64 << 10;

/// A connection of a sender.
pub(super) struct Connection<'a> {
    pub(super) socket: &'a Socket,
    pub(super) peer: String,
    pub(super) folder: &'a Path,
    pub(super) limits: Limits,
    /// Its other end is closed when the receiver has to end.
    pub(super) ended: BorrowedFd<'a>,
    /// The stream must be one of a kernel.
    pub(super) is_of_kernel: bool,
}

/// Takes bytes of a frame from a pipe: the pipe, how many were taken before, how many there are.
type Take<'a> = dyn FnMut(BorrowedFd<'_>, u64, usize) -> anyhow::Result<()> + 'a;

/// The part of a stream that has been received.
struct Stream<'a> {
    ticket: Ticket<'a>,
    /// Until when the stream must be described.
    deadline: Option<Instant>,
    order: Order,
    spool: Spool,
    /// Where the packets of a session go.
    rings: Rings,
    pipe: (OwnedFd, OwnedFd),
    /// Bytes in the spool and beside it.
    written: u64,
    /// Bytes of the largest copy of the counters.
    counters: u64,
    /// Bytes of sub-buffers.
    data: u64,
    /// Packets of a session.
    packets: u64,
}

impl Connection<'_> {
    /// Receives the stream, and saves what came of it.
    pub(super) fn run(self, ticket: Ticket<'_>, tell: &(dyn Fn(Told) + Sync)) {
        let (mut stream, host) = match self.begin(ticket) {
            Ok(begun) => begun,
            Err(error) => {
                let why = format!("{error:#}");
                refuse(self.socket, &why);
                return tell(Told::Refused { peer: self.peer, why });
            }
        };
        let spool = stream.spool.path().to_owned();
        tell(Told::Started { peer: self.peer.clone(), host, spool: spool.clone() });
        let why = self.take(&mut stream);
        let finished = stream.spool.finish(why.as_deref());
        tell(saved(finished, spool, why.as_deref().unwrap_or("it is complete"), &|| {
            self.peer.clone()
        }));
    }

    /// Receives the stream, and returns what came of it and why it ended early. `begun` gets the path
    /// of the spool.
    ///
    /// # Errors
    /// The peer sends no stream, or the spool cannot be made.
    pub(super) fn receive(
        self,
        ticket: Ticket<'_>,
        begun: &dyn Fn(&Path),
    ) -> anyhow::Result<(Spool, Option<String>)> {
        let beginning = self.begin(ticket);
        let (mut stream, _) =
            beginning.inspect_err(|error| refuse(self.socket, &format!("{error:#}")))?;
        begun(stream.spool.path());
        let why = self.take(&mut stream);
        Ok((stream.spool, why))
    }

    /// Receives all frames, and answers the sender. Returns why the stream ended early.
    fn take(&self, stream: &mut Stream<'_>) -> Option<String> {
        let why = self.follow(stream).err().map(|error| format!("{error:#}"));
        match &why {
            Some(why) => refuse(self.socket, why),
            None => {
                let received =
                    serde_json::to_vec(&Received { bytes: stream.data }).unwrap_or_default();
                answer(self.socket, FrameKind::Received, &received);
            }
        }
        why
    }

    /// Reads who sends, and makes the spool.
    fn begin<'a>(&self, ticket: Ticket<'a>) -> anyhow::Result<(Stream<'a>, String)> {
        let mut magic = MAGIC;
        let deadline = Instant::now().checked_add(self.limits.head);
        let read = |bytes: &mut [u8]| {
            self.read_until(bytes, deadline).map_err(|error| ticket.check().err().unwrap_or(error))
        };
        read(&mut magic)?;
        if !is_known(&magic) {
            let is_other = magic.iter().zip(MAGIC).take(8).all(|(a, b)| *a == b);
            ensure!(
                !is_other,
                "a stream of another version of lastwords; this receiver knows versions 2 and 3"
            );
            bail!("it does not begin like a stream of lastwords");
        }
        let mut order = Order::default();
        let header = header(&read, &mut order)?;
        let hello = content(&read, header)?;
        let who: Hello = serde_json::from_slice(&hello).context("the frame Hello")?;
        who.check()?;
        ticket.check_room()?;
        ticket.spend(0, 1)?;
        let pipe = io::pipe()?;
        let mut spool = Spool::create(self.folder, &who.host)?;
        let first = [&MAGIC[..], &header.bytes(), &hello].concat();
        if let Err(error) = spool.write_all(&first) {
            spool.remove();
            return Err(error);
        }
        let written = first.len() as u64;
        answer(self.socket, FrameKind::Accepted, &[]);
        let rings = Rings::new(spool.path());
        let deadline = Instant::now().checked_add(self.limits.head.saturating_mul(DESCRIPTION));
        Ok((
            Stream {
                ticket,
                deadline,
                order,
                spool,
                rings,
                pipe,
                written,
                counters: 0,
                data: 0,
                packets: 0,
            },
            who.host,
        ))
    }

    /// Receives all frames.
    fn follow(&self, stream: &mut Stream<'_>) -> anyhow::Result<()> {
        let result = self.frames(stream);
        // The reason why nothing more can be read is that another connection has taken the place of
        // this one.
        result.map_err(|error| stream.ticket.check().err().unwrap_or(error))
    }

    fn frames(&self, stream: &mut Stream<'_>) -> anyhow::Result<()> {
        while !stream.order.is_over() {
            if stream.order.is_described() {
                stream.ticket.described()?;
            }
            let deadline = stream.deadline.filter(|_| stream.ticket.is_waiting());
            let read = |bytes: &mut [u8]| self.read_until(bytes, deadline);
            let header = header(&read, &mut stream.order)?;
            if header.kind == FrameKind::Alive {
                continue;
            }
            ensure!(
                !self.is_of_kernel || header.kind != FrameKind::Session,
                "the stream of a session, where one of a kernel was asked for"
            );
            let more = Duration::from_secs(header.length.checked_div(PER_SECOND).unwrap_or(0));
            stream.deadline = stream.deadline.and_then(|deadline| deadline.checked_add(more));
            self.spend(stream, header)?;
            match header.kind {
                FrameKind::SubBuffers | FrameKind::Description => {
                    stream.spool.write_all(&header.bytes())?;
                    let Stream { spool, pipe, .. } = stream;
                    self.move_bytes(pipe, header.length, &mut |pipe, _, moved| {
                        spool.take(pipe, moved)
                    })?;
                    if header.kind == FrameKind::SubBuffers {
                        stream.data = stream.data.saturating_add(header.length);
                    }
                }
                FrameKind::Packet => self.packet(stream, header)?,
                FrameKind::Open => self.open(stream, header)?,
                FrameKind::Counters => self.counters(stream, header)?,
                kind => {
                    let deadline = stream.deadline.filter(|_| stream.ticket.is_waiting());
                    let bytes =
                        content(&|bytes: &mut [u8]| self.read_until(bytes, deadline), header)?;
                    match kind {
                        FrameKind::Settings => {
                            _ = stream.order.settings(&bytes).context("the frame Settings")?
                        }
                        _ => stream
                            .order
                            .describe(&header, &bytes)
                            .with_context(|| format!("the frame {kind:?}"))?,
                    }
                    match kind {
                        FrameKind::Head => stream.rings.begin(header.cpu, &Head::read(&bytes)?)?,
                        FrameKind::Overwritten => stream.rings.add_gap()?,
                        _ => {}
                    }
                    stream.spool.write_all(&[&header.bytes()[..], &bytes].concat())?;
                }
            }
        }
        Ok(())
    }

    /// Counts the bytes and the files of a frame.
    ///
    /// # Errors
    /// The stream or the peer has no more.
    fn spend(&self, stream: &mut Stream<'_>, header: Header) -> anyhow::Result<()> {
        // In the spool, a packet has a frame of its own beside its bytes.
        let beside =
            if matches!(header.kind, FrameKind::Packet | FrameKind::Open) { PLACED } else { 0 };
        let bytes = header.length.saturating_add(HEADER as u64).saturating_add(beside);
        let (mut more, mut makes_file) = (bytes, false);
        match header.kind {
            FrameKind::Head => makes_file = !stream.rings.has(header.cpu),
            FrameKind::Counters => {
                // A copy takes the room of the one before.
                makes_file = stream.counters == 0;
                more = bytes.saturating_sub(stream.counters);
                stream.counters = stream.counters.max(bytes);
            }
            _ => {}
        }
        let needed = stream.written.saturating_add(more);
        let most = self.limits.size;
        ensure!(needed <= most, "the stream is larger than {most} bytes (--max-size)");
        stream.ticket.spend(bytes, u64::from(makes_file))?;
        stream.written = needed;
        Ok(())
    }

    /// Receives a copy of the session's counters. The spool has nothing of it.
    fn counters(&self, stream: &mut Stream<'_>, header: Header) -> anyhow::Result<()> {
        let deadline = stream.deadline.filter(|_| stream.ticket.is_waiting());
        let bytes = content(&|bytes: &mut [u8]| self.read_until(bytes, deadline), header)?;
        let uuid = stream.order.session().map_or("", |session| &session.uuid);
        let copy = (!bytes.is_empty()).then(|| Copy::read(&bytes, uuid)).transpose();
        stream.rings.replace_counters(copy.context("the frame Counters")?.as_ref())
    }

    /// Receives a packet of a session. The spool has it when all of its bytes are in their place.
    fn packet(&self, stream: &mut Stream<'_>, header: Header) -> anyhow::Result<()> {
        let mut number = [0; NUMBER as usize];
        self.read_until(&mut number, None)?;
        let length = header.length.saturating_sub(NUMBER);
        let packet = (header.cpu, u64::from_le_bytes(number));
        let Stream { rings, pipe, .. } = stream;
        rings.admit(packet.0, packet.1, length)?;
        self.move_bytes(pipe, length, &mut |pipe, before, moved| {
            rings.take(packet, before, pipe, moved)
        })?;
        stream.spool.write_all(&placed(header.cpu, packet.1, length))?;
        stream.data = stream.data.saturating_add(header.length);
        stream.packets = stream.packets.saturating_add(1);
        // The number counts all packets, so that one that finds no room in the socket is made good
        // by the next.
        answer(self.socket, FrameKind::Confirmed, &stream.packets.to_le_bytes());
        Ok(())
    }

    /// Receives a part of a sub-buffer that is being filled. The spool has it when all of its bytes
    /// are in their place.
    fn open(&self, stream: &mut Stream<'_>, header: Header) -> anyhow::Result<()> {
        let mut words = [0; PART as usize];
        self.read_until(&mut words, None)?;
        let [number, offset] = [0, 8].map(|at| {
            let word = words.get(at..).and_then(|words| words.first_chunk::<8>());
            word.map_or(0, |word| u64::from_le_bytes(*word))
        });
        let length = header.length.saturating_sub(PART);
        let Stream { rings, pipe, .. } = stream;
        rings.admit_open(header.cpu, offset, length)?;
        let take = &mut |pipe: BorrowedFd<'_>, before: u64, moved: usize| {
            rings.take_open(header.cpu, offset.saturating_add(before), pipe, moved)
        };
        self.move_bytes(pipe, length, take)?;
        stream.spool.write_all(&placed_open(header.cpu, number, offset, length))
    }

    /// Reads exactly as many bytes, which must all come before time is up.
    fn read_until(&self, mut bytes: &mut [u8], deadline: Option<Instant>) -> anyhow::Result<()> {
        let begun = Instant::now();
        while !bytes.is_empty() {
            match recv(self.socket, &mut *bytes, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(begun, deadline)?,
                Err(error) => return Err(error).context("the connection of the sender is broken"),
                Ok((0, _)) => {
                    bail!("the sender has closed the connection before the end of the stream")
                }
                Ok((read, _)) => bytes = bytes.get_mut(read..).unwrap_or_default(),
            }
            let is_late = deadline.is_some_and(|deadline| Instant::now() > deadline);
            ensure!(!is_late, "the sender has not described its stream in time (--head-timeout)");
        }
        Ok(())
    }

    /// Waits for bytes, until too much time has passed since `begun`, or to the deadline.
    fn wait(&self, begun: Instant, deadline: Option<Instant>) -> anyhow::Result<()> {
        let silence = self.limits.silence;
        let left = silence.saturating_sub(begun.elapsed());
        let left = deadline
            .map_or(left, |deadline| left.min(deadline.saturating_duration_since(Instant::now())));
        match io::wait(self.socket.as_fd(), PollFlags::IN, Some(self.ended), left)? {
            Wait::Ended => bail!("the receiver was stopped"),
            Wait::Late if begun.elapsed() >= silence => {
                bail!("nothing came from the sender for {} seconds (--timeout)", silence.as_secs())
            }
            Wait::Ready | Wait::Late => Ok(()),
        }
    }

    /// Moves bytes from the socket through the pipe to a file, which `take` does, with the number
    /// of bytes that were moved before. The pipe is empty before and after. No more bytes are taken
    /// from the socket before the file has taken those in the pipe, so that a slow disk
    /// makes the sender wait.
    fn move_bytes(
        &self,
        pipe: &(OwnedFd, OwnedFd),
        length: u64,
        take: &mut Take<'_>,
    ) -> anyhow::Result<()> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let (mut begun, mut done) = (Instant::now(), 0u64);
        while done < length {
            let want =
                usize::try_from(length.saturating_sub(done)).map_or(PIPE, |left| left.min(PIPE));
            match splice(self.socket, None, &pipe.1, None, want, flags) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    self.wait(begun, None)?;
                    continue;
                }
                Err(error) => return Err(error).context("the connection of the sender is broken"),
                Ok(0) => bail!("the sender has closed the connection before the end of the stream"),
                Ok(moved) => {
                    take(pipe.0.as_fd(), done, moved)?;
                    done = done.saturating_add(moved as u64);
                    begun = Instant::now();
                }
            }
        }
        Ok(())
    }
}

/// Reads exactly as many bytes as it gets room for.
type Read<'a> = dyn Fn(&mut [u8]) -> anyhow::Result<()> + 'a;

fn header(read: &Read<'_>, order: &mut Order) -> anyhow::Result<Header> {
    let mut bytes = [0; HEADER];
    read(&mut bytes)?;
    let header = Header::read(bytes)?;
    order.admit(&header)?;
    Ok(header)
}

/// Reads the content of a frame of JSON. Memory grows with what has come, not with what the header
/// claims.
fn content(read: &Read<'_>, header: Header) -> anyhow::Result<Vec<u8>> {
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    while (bytes.len() as u64) < header.length {
        let left = header.length.saturating_sub(bytes.len() as u64);
        let want = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        let chunk = chunk.get_mut(..want).unwrap_or_default();
        read(chunk)?;
        bytes.extend_from_slice(chunk);
    }
    Ok(bytes)
}

/// Tells a sender why its stream is not taken. A sender that is gone, or whose socket is full, does
/// not hear it.
pub(super) fn refuse(socket: &Socket, why: &str) {
    answer(socket, FrameKind::Refused, why.as_bytes());
}

fn answer(socket: &Socket, kind: FrameKind, bytes: &[u8]) {
    let header = Header { kind, cpu: 0, length: bytes.len() as u64 };
    // It is short, and the first that is sent, so that it fits into the socket as a whole.
    let _ = send(socket, &[&header.bytes()[..], bytes].concat(), SendFlags::NOSIGNAL);
}
