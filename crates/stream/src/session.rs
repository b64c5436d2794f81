//! Sends a session of an application: its sub-buffers from its files, without a copy in user space.
//!
//! The recorder does not wait for the sender, so that a sub-buffer may be overwritten while it is
//! sent. A packet counts only after the receiver has confirmed it and its place in the ring is
//! still the packet's ([`SentSession::is_kept`]); otherwise a frame tells the receiver to drop it.

use crate::counters;
use crate::error::{Error, Result};
use crate::flush::Flush;
use crate::sender::Sender;
use crate::wire::{End, FrameKind, MOST_COUNTERS, SessionInfo};
use anyhow::{Context, anyhow};
use lastwords_control::stream_out::{Bytes, Part, Ready, SentSession};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest time between two looks at the rings.
const LOOK: Duration = Duration::from_millis(20);
/// The longest time between two looks for the processes of the session in /proc, which cost more
/// than a look at the rings.
const LOOK_FOR_PROCESSES: Duration = Duration::from_millis(200);
/// How long the receiver may take to confirm the last packets.
const CONFIRM: Duration = Duration::from_secs(60);
/// Most bytes of a part of a region in a frame.
const MOST_PART: usize = 1 << 20;
/// Bytes of a packet's header. A sub-buffer with fewer has no events.
const PACKET_HEADER: u64 = lastwords_abi::packet::HEADER_LEN as u64;

/// The part of a session that was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sent {
    /// Name of the session.
    pub session: String,
    /// Bytes of sub-buffers that the receiver has.
    pub bytes: u64,
    /// Number of sub-buffers that the receiver has.
    pub sub_buffers: u64,
    /// Sub-buffers that the recorder overwrote before they had arrived.
    pub overwritten: u64,
    /// Sub-buffers that a thread which died has left unfinished. They are not sent.
    pub unfinished: u64,
    /// Events that the rings lost by themselves.
    pub lost_events: u64,
    /// The last counters and histograms were not sent: they are more than a frame has room for.
    pub has_unsent_counters: bool,
}

/// A packet that is not confirmed.
struct Pending {
    stream: u32,
    number: u64,
    length: u64,
}

/// The state of the work.
struct Work<'a> {
    source: SentSession,
    sender: &'a Sender,
    sent: Sent,
    /// Number of the next sub-buffer of each stream.
    next: BTreeMap<u32, u64>,
    pending: VecDeque<Pending>,
    /// Packets that the receiver has confirmed.
    confirmed: u64,
    /// End of the records of the registry that were sent.
    registry: u64,
    /// How often the sub-buffers that are being filled are sent.
    flush: Flush,
    /// The number of the sub-buffer of each stream of which a part was sent before it was closed,
    /// and the end of that part.
    open: BTreeMap<u32, (u64, u64)>,
    /// The counters and histograms that were sent last.
    counted: Option<[Part; 3]>,
    /// How often they are sent.
    count: Flush,
}

/// Sends a session until it has ended, or the other end of `ended` is closed. Returns when the
/// receiver has all of it. What is committed is sent each `flush`, if that is not zero, and when a
/// sub-buffer is closed.
///
/// # Errors
/// The session cannot be read any more, the connection is broken, or the receiver does not have all
/// of it.
pub fn send(
    sender: &Sender,
    source: SentSession,
    flush: Duration,
    ended: BorrowedFd<'_>,
) -> Result<Sent> {
    let name = source.name();
    send_all(sender, source, flush, ended).map_err(|error| Error::session(&name, error))
}

fn send_all(
    sender: &Sender,
    source: SentSession,
    flush: Duration,
    ended: BorrowedFd<'_>,
) -> anyhow::Result<Sent> {
    let sent = Sent { session: source.name(), ..Sent::default() };
    let uuid = source.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
    sender.json(FrameKind::Session, &SessionInfo { uuid, name: source.name() })?;
    let (next, pending, open) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
    let flush = Flush::each(flush);
    let mut work = Work {
        source,
        sender,
        sent,
        next,
        pending,
        confirmed: 0,
        registry: 0,
        flush,
        open,
        counted: None,
        count: flush,
    };
    work.region()?;
    work.counters(Some(ended))?;
    let mut looked = Instant::now();
    loop {
        let mut is_over = work.source.is_finished() || sender.is_ended(ended)?;
        if !is_over && looked.elapsed() >= LOOK_FOR_PROCESSES {
            is_over = work.source.is_over();
            looked = Instant::now();
        }
        // What was recorded before the session ended is seen by this look.
        let ready = work.source.look()?;
        work.registry()?;
        let moved = work.closed(&ready, ended)?;
        // The halves that snapshots have swapped out are sent first.
        if is_over && !work.source.is_behind() && !ready.iter().any(|stream| stream.is_last) {
            return work.finish(&ready);
        }
        if work.flush.is_due() && work.flush(&ready, ended)? {
            work.flush.done();
        }
        if work.count.is_due() {
            work.counters(Some(ended))?;
            work.count.done();
        }
        let wait = if moved { Duration::ZERO } else { LOOK };
        work.confirm(wait)?;
        sender.alive(ended)?;
    }
}

impl Work<'_> {
    /// Sends the session region.
    fn region(&self) -> anyhow::Result<()> {
        let bytes = self.source.session().context("the session")?;
        self.part(1, 0, &bytes)
    }

    fn part(&self, kind: u32, offset: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let mut at = offset;
        for bytes in bytes.chunks(MOST_PART) {
            self.sender.frame(
                FrameKind::Region,
                kind,
                &[&at.to_le_bytes()[..], bytes].concat(),
                None,
            )?;
            at = at.saturating_add(bytes.len() as u64);
        }
        Ok(())
    }

    /// Sends the counters and histograms, if they have changed.
    fn counters(&mut self, ended: Option<BorrowedFd<'_>>) -> anyhow::Result<()> {
        let Some(now) = self.source.counters().filter(|now| self.counted.as_ref() != Some(now))
        else {
            return Ok(());
        };
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut content = counters::content(&now, time);
        self.sent.has_unsent_counters = content.len() as u64 > MOST_COUNTERS;
        if self.sent.has_unsent_counters {
            content.clear();
        }
        self.sender.frame(FrameKind::Counters, 0, &content, ended)?;
        self.counted = Some(now);
        Ok(())
    }

    /// Sends the descriptions of events that are new. A description is there before the first event
    /// that it describes.
    fn registry(&mut self) -> anyhow::Result<()> {
        if let Some(parts) = self.source.registry(self.registry).context("the registry")? {
            for (offset, bytes) in &parts {
                self.part(2, *offset, bytes)?;
                self.registry = self.registry.max(offset.saturating_add(bytes.len() as u64));
            }
        }
        Ok(())
    }

    /// Sends the sub-buffers that are closed. Returns true if there were any.
    fn closed(&mut self, ready: &[Ready], ended: BorrowedFd<'_>) -> anyhow::Result<bool> {
        let mut moved = false;
        for stream in ready {
            let next = match self.next.get(&stream.stream) {
                Some(next) => *next,
                None => self.begin(stream)?,
            };
            for number in next..stream.closed {
                if !self.source.is_kept(stream.stream, number) {
                    self.sent.overwritten = self.sent.overwritten.saturating_add(1);
                } else if self.source.is_closed(stream.stream, number) {
                    self.packet(stream.stream, number, stream.size, Some(ended))?;
                } else {
                    self.sent.unfinished = self.sent.unfinished.saturating_add(1);
                }
                moved = true;
            }
            let mut next = stream.closed.max(next);
            if stream.is_last {
                next = self.turn(stream, next, ended)?;
                moved = true;
            }
            self.next.insert(stream.stream, next);
        }
        Ok(moved)
    }

    /// Sends the last sub-buffer of a half that a snapshot has swapped out, and goes on with the
    /// other half. Returns the number of its first sub-buffer.
    fn turn(&mut self, stream: &Ready, next: u64, ended: BorrowedFd<'_>) -> anyhow::Result<u64> {
        let mut end = next;
        if stream.rest >= PACKET_HEADER {
            match self.source.rest(stream.stream, stream.closed, stream.rest).context("a stream")? {
                Some(bytes) => self.copy(stream.stream, stream.closed, &bytes, Some(ended))?,
                None => self.sent.unfinished = self.sent.unfinished.saturating_add(1),
            }
            end = end.saturating_add(1);
        }
        let (next, is_replaced) = self.source.turn(stream.stream, end);
        self.sent.overwritten = self.sent.overwritten.saturating_add(u64::from(is_replaced));
        Ok(next)
    }

    /// Announces a stream, and returns the number of its first sub-buffer.
    fn begin(&self, stream: &Ready) -> anyhow::Result<u64> {
        let head = self.source.head(stream.stream, None).context("a stream")?;
        self.sender.frame(FrameKind::Head, stream.stream, &head, None)?;
        Ok(crate::head::Head::read(&head)?.begin())
    }

    fn packet(
        &mut self,
        stream: u32,
        number: u64,
        length: u64,
        ended: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<()> {
        match self.source.data(stream, number, length).context("a stream")? {
            Bytes::File(file, offset) => {
                self.sender.packet_of_file((stream, number), file, offset, length, ended)?;
                self.pending(Pending { stream, number, length })
            }
            Bytes::Memory(bytes) => self.copy(stream, number, &bytes, ended),
        }
    }

    /// Sends a packet that is in memory.
    fn copy(
        &mut self,
        stream: u32,
        number: u64,
        bytes: &[u8],
        ended: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<()> {
        self.sender.frame(
            FrameKind::Packet,
            stream,
            &[&number.to_le_bytes()[..], bytes].concat(),
            ended,
        )?;
        self.pending(Pending { stream, number, length: bytes.len() as u64 })
    }

    /// Notes a packet that was sent.
    fn pending(&mut self, packet: Pending) -> anyhow::Result<()> {
        self.pending.push_back(packet);
        // Confirmations that have come are taken at once, so that they do not fill the socket.
        self.confirm(Duration::ZERO)
    }

    /// Sends what is committed of the sub-buffers that are being filled and was not sent before.
    /// Returns false if a part could not be sent now, because a thread is recording in it.
    fn flush(&mut self, ready: &[Ready], ended: BorrowedFd<'_>) -> anyhow::Result<bool> {
        let mut is_all = true;
        for stream in ready {
            let Ready { stream: index, closed, rest, .. } = *stream;
            let of_this = self.open.get(&index).filter(|(number, _)| *number == closed);
            let from = of_this.map_or(0, |(_, end)| *end);
            if rest <= from.max(PACKET_HEADER) || self.next.get(&index) != Some(&closed) {
                continue;
            }
            let Some(bytes) =
                self.source.open_part(index, closed, from..rest).context("a stream")?
            else {
                is_all = false;
                continue;
            };
            let begin = [closed, from].map(u64::to_le_bytes).concat();
            self.sender.frame(FrameKind::Open, index, &[begin, bytes].concat(), Some(ended))?;
            self.open.insert(index, (closed, rest));
        }
        Ok(is_all)
    }

    /// Takes the confirmations that come within a time, and drops packets that were overwritten
    /// before theirs came.
    fn confirm(&mut self, wait: Duration) -> anyhow::Result<()> {
        let mut wait = wait;
        while let Some(count) = self.sender.confirmed(wait)? {
            wait = Duration::ZERO;
            let sent = self.confirmed.saturating_add(self.pending.len() as u64);
            if count > sent {
                let address = self.sender.address();
                let why = anyhow!("{address}: it confirms {count} of {sent} packets");
                return Err(self.sender.error(&why).into());
            }
            while self.confirmed < count {
                let Some(Pending { stream, number, length }) = self.pending.pop_front() else {
                    break;
                };
                self.confirmed = self.confirmed.saturating_add(1);
                if self.source.is_kept(stream, number) {
                    self.sent.bytes = self.sent.bytes.saturating_add(length);
                    self.sent.sub_buffers = self.sent.sub_buffers.saturating_add(1);
                    self.source
                        .consume(stream, number.saturating_add(1))
                        .context("a ring in discard mode")?;
                } else {
                    self.sent.overwritten = self.sent.overwritten.saturating_add(1);
                    self.sender.frame(
                        FrameKind::Overwritten,
                        stream,
                        &number.to_le_bytes(),
                        None,
                    )?;
                }
            }
        }
        Ok(())
    }

    /// Sends what is committed of the sub-buffers that are not closed, waits until everything is
    /// confirmed, and ends the stream.
    fn finish(mut self, ready: &[Ready]) -> anyhow::Result<Sent> {
        let mut ends = BTreeMap::new();
        for stream in ready {
            let Ready { stream: index, size, closed, rest, .. } = *stream;
            let mut end = closed.saturating_mul(size);
            if rest >= PACKET_HEADER && self.source.is_kept(index, closed) {
                end = end.saturating_add(rest);
                if self.source.is_whole(index, closed, rest) {
                    self.packet(index, closed, rest, None)?;
                } else {
                    self.sent.unfinished = self.sent.unfinished.saturating_add(1);
                }
            }
            ends.insert(index, end);
        }
        let begun = Instant::now();
        while !self.pending.is_empty() {
            let left = CONFIRM.saturating_sub(begun.elapsed());
            if left.is_zero() {
                let (address, left) = (self.sender.address(), self.pending.len());
                let why = anyhow!("{address}: {left} packets are not confirmed");
                return Err(self.sender.error(&why).into());
            }
            self.confirm(left)?;
        }
        for (index, end) in ends {
            let head = self.source.head(index, Some(end)).context("a stream")?;
            self.sender.frame(FrameKind::Head, index, &head, None)?;
            let lost = crate::head::Head::read(&head)?.lost;
            self.sent.lost_events = self.sent.lost_events.saturating_add(lost);
        }
        self.registry()?;
        // The last copy has the time of the end, whether it changed or not.
        self.counted = None;
        self.counters(None)?;
        self.region()?;
        self.sender.end(&End { cpus: Vec::new(), bytes: self.sender.bytes() })?;
        Ok(self.sent)
    }
}
