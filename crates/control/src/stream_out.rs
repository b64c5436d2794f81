//! Gives the sub-buffers of a living session to a sender, which moves them out of the session's
//! files while recording goes on.
//!
//! A sub-buffer of a ring in overwrite mode cannot be claimed, because the recorder never waits. So
//! a sender works in this order: it looks at the rings ([`SentSession::look`]), sends a closed
//! sub-buffer from the session's file, and waits until the receiver has confirmed that it has the
//! bytes. Only then it asks whether the recorder had come round to that sub-buffer meanwhile
//! ([`SentSession::is_kept`]). If it had, the bytes that arrived may be of any age, and the sender tells
//! the receiver to drop them. In discard mode, the recorder does not come round before the reader
//! has consumed ([`SentSession::consume`]).
//!
//! A snapshot swaps the halves of a ring. The sender sends the half that was swapped out to its
//! end, closes its last sub-buffer in a copy ([`SentSession::rest`]), and goes on with the other half
//! ([`SentSession::turn`]). The numbers that it sends go on without a gap, where those of the halves are
//! far apart (docs/ABI.md, section 8).

use std::fs::File;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use lastwords_abi::packet::{CHECK_FROM_END, HEADER_LEN, at};
use lastwords_abi::registry::{RECORDS_OFF, RegistryControl};
use lastwords_abi::session::{
    Control, ENDING_UNSEEN, MODE_DISCARD, RESERVATION_LOCKED, RESERVATION_LOCKLESS, SNAPSHOT_OFF,
};
use lastwords_abi::stream::{CONTROL_OFF, HalfControl, StreamControl, StreamInfo};
use lastwords_abi::{region, registry};
use lastwords_ring::ClockKind;
use lastwords_ring::backend::Mapping;
use lastwords_ring::packet::{self, Closing};

use self::lane::{Lane, Place};
use crate::follow::{LONGEST_SWAP, Swapping};
use crate::sessions::{Handle, State};
use lastwords::Error;
use lastwords::internals::dirs::Lock;
use lastwords::internals::regions::StreamRegion;
use lastwords::internals::save::forgotten;
use lastwords::internals::snapshot;

mod lane;

/// An offset in a region, and the bytes from there on.
pub type Part = (u64, Vec<u8>);

/// Bytes at the begin of a stream's region: its header, its geometry and its control words.
pub const HEAD: usize = CONTROL_OFF + size_of::<StreamControl>();

/// The sub-buffers of a stream that can be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Index of the stream in the session.
    pub stream: u32,
    /// Bytes of a sub-buffer.
    pub size: u64,
    /// Number of the first sub-buffer that is not closed.
    pub closed: u64,
    /// Bytes in that sub-buffer up to which everything is committed.
    pub rest: u64,
    /// A snapshot has swapped out the half that has these sub-buffers, and nothing more is
    /// recorded in it. What comes after them is sent after [`SentSession::turn`].
    pub is_last: bool,
}

/// The bytes of a sub-buffer.
#[derive(Debug)]
pub enum Bytes<'a> {
    /// They are at this offset of a file.
    File(BorrowedFd<'a>, u64),
    /// A copy, which has the number under which it is sent.
    Memory(Vec<u8>),
}

/// A session whose sub-buffers are sent.
#[derive(Debug)]
pub struct SentSession {
    handle: Handle,
    lanes: Vec<Lane>,
    session: (File, u64),
    registry: (File, u64),
    /// Held while rings in discard mode are consumed.
    lock: Option<Lock>,
    swapping: Swapping,
}

impl SentSession {
    /// Opens the session in a folder. `from_begin`: all that was ever recorded is to be sent, and
    /// what the rings have overwritten before is lost. Otherwise the stream begins with what the
    /// rings have now.
    ///
    /// # Errors
    /// The folder has no session that can be mapped. The session is not in files. A ring in discard
    /// mode has another consumer.
    pub fn open(folder: &Path, from_begin: bool) -> Result<Self, Error> {
        let handle = Handle::open(folder)?;
        let view = &handle.regions.view;
        let session = place(&view.mapping)?;
        let registry = place(&handle.regions.registry.mapping)?;
        let discards =
            handle.regions.streams.iter().any(|stream| stream.stream.spec().mode == MODE_DISCARD);
        let busy = || Error::Busy { what: "the consuming of the session's events", owner: 0 };
        let lock = if discards { Some(handle.folder.lock()?.ok_or_else(busy)?) } else { None };
        let swapping = Swapping::default();
        let mut source = Self { lanes: Vec::new(), session, registry, lock, swapping, handle };
        source.add_lanes(from_begin)?;
        Ok(source)
    }

    fn add_lanes(&mut self, from_begin: bool) -> Result<(), Error> {
        let Handle { regions, .. } = &self.handle;
        for region in regions.streams.iter().skip(self.lanes.len()) {
            let live = region.spare(&regions.view) ^ 1;
            self.lanes.push(Lane::new(place(&region.mapping)?, &region.stream, live, from_begin));
        }
        Ok(())
    }

    /// Returns the UUID of the session.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.handle.regions.view.uuid
    }

    /// Returns the name of the session.
    #[must_use]
    pub fn name(&self) -> String {
        self.handle.name()
    }

    /// Returns true if no process records in the session any more. The processes are looked for in
    /// /proc.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.has_ended() || self.handle.state() == State::Copied
    }

    /// Returns true if the session has ended, and its files show how. The processes are looked for
    /// in /proc.
    fn has_ended(&self) -> bool {
        matches!(self.handle.state(), State::Finished | State::LeftOver)
    }

    /// Returns true if the session was ended by its process. This is a load; a session whose
    /// process was killed is not ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.regions.view.control().finished.load(Acquire) == 1
    }

    /// Returns what can be sent of each stream now. Streams of channels that were created since the
    /// last call are among them.
    ///
    /// # Errors
    /// A new stream cannot be opened.
    pub fn look(&mut self) -> Result<Vec<Ready>, Error> {
        let channels = self.handle.regions.view.channels();
        let streams =
            channels.map(|(_, channel)| channel.first_stream.saturating_add(channel.streams)).max();
        if streams.unwrap_or(0) as usize > self.lanes.len() {
            self.handle = Handle::open(&self.handle.folder.path)?;
            self.add_lanes(true)?;
        }
        let Handle { regions, .. } = &self.handle;
        let live: Vec<usize> =
            regions.streams.iter().map(|region| region.spare(&regions.view) ^ 1).collect();
        // The state is read after the words that say which half is live, so that a swap that they
        // show is over, or is seen here.
        let is_settled = self.swapping.is_over(regions.view.control());
        let streams = regions.streams.iter().zip(&mut self.lanes).zip(live).enumerate();
        let ready = streams.map(|(index, ((region, lane), live))| {
            let (stream, parts) = (&region.stream, regions.view.parts());
            lane.look(stream, live);
            let size = stream.spec().sub_buffer_size;
            if lane.is_gone(stream) {
                return Ready {
                    stream: index as u32,
                    size,
                    closed: 0,
                    rest: 0,
                    is_last: lane.swapped().is_some(),
                };
            }
            let (settled, produced) =
                (stream.settled(lane.half(), parts), stream.position(lane.half()));
            // A thread that was stopped while it recorded is not waited for.
            let is_left = is_settled && settled == produced
                || lane.swapped().is_some_and(|since| since > LONGEST_SWAP);
            let is_last = lane.swapped().is_some() && is_left;
            let end = if is_last { produced } else { settled };
            Ready {
                stream: index as u32,
                size,
                closed: lane.sent(end / size),
                rest: end % size,
                is_last,
            }
        });
        Ok(ready.collect())
    }

    /// Returns true if a snapshot has swapped out a half of which not everything was sent at the
    /// last look.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.lanes.iter().any(|lane| lane.swapped().is_some())
    }

    /// Goes on with the half that recorders use now, after [`Ready::is_last`]. `next` is the number
    /// after the last one that was sent. Returns the number of the next sub-buffer, and true if
    /// something was replaced before it could be sent: a number is left out then.
    pub fn turn(&mut self, stream: u32, next: u64) -> (u64, bool) {
        self.lanes.get_mut(stream as usize).map_or((next, false), |lane| lane.turn(next))
    }

    /// Returns true if a sub-buffer before [`Ready::closed`] is closed. Only a thread that died
    /// while it recorded leaves one that is not.
    #[must_use]
    pub fn is_closed(&self, stream: u32, number: u64) -> bool {
        let Some((region, Place { half, number })) = self.find(stream, number) else {
            return false;
        };
        let spec = region.stream.spec();
        // Only streams of the lockless reservation have slots that are used.
        let slots = region.stream.slots(half);
        let count = u64::from(spec.sub_buffers);
        let laps = (number / count).wrapping_add(1).wrapping_mul(spec.sub_buffer_size);
        spec.reservation != RESERVATION_LOCKLESS
            || slots[(number % count) as usize].committed.load(Acquire) == laps
    }

    /// Returns true if the bytes of the sub-buffer that is not closed are all committed, up to
    /// [`Ready::rest`].
    #[must_use]
    pub fn is_whole(&self, stream: u32, number: u64, rest: u64) -> bool {
        let Some((region, Place { half, number })) = self.find(stream, number) else {
            return false;
        };
        let spec = region.stream.spec();
        let count = u64::from(spec.sub_buffers);
        let laps = (number / count).wrapping_mul(spec.sub_buffer_size);
        let committed =
            region.stream.slots(half)[(number % count) as usize].committed.load(Acquire);
        // The header's bytes are committed last.
        spec.reservation != RESERVATION_LOCKLESS
            || committed.wrapping_sub(laps) == rest.saturating_sub(HEADER_LEN as u64)
    }

    /// Returns a copy of bytes of the sub-buffer that is not closed, all of them before
    /// [`Ready::rest`]. Returns none if the sub-buffer was closed or overwritten meanwhile, or if
    /// not all before is committed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open_part(
        &self,
        stream: u32,
        number: u64,
        part: Range<u64>,
    ) -> std::io::Result<Option<Vec<u8>>> {
        let Some((region, at)) = self.find(stream, number) else { return Ok(None) };
        if !self.is_whole(stream, number, part.end) {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(part.end - part.start).unwrap_or(0)];
        let (file, offset) = self.in_file(stream, region, at);
        file.read_exact_at(&mut bytes, offset + part.start)?;
        // Committed bytes change only after the produced position has left the sub-buffer.
        let is_there =
            region.stream.position(at.half) / region.stream.spec().sub_buffer_size == at.number;
        if let Some(from) = at::PACKET_SEQ_NUM.checked_sub(part.start as usize) {
            put(&mut bytes, from, &number.to_ne_bytes());
        }
        Ok(is_there.then_some(bytes))
    }

    /// Returns the sub-buffer that was not closed when a snapshot swapped its half out, closed as a
    /// recorder would have: it ends at [`Ready::rest`], where all of it is committed. Returns none
    /// if it is not ([`SentSession::is_whole`]).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn rest(&self, stream: u32, number: u64, rest: u64) -> std::io::Result<Option<Vec<u8>>> {
        let Some((region, at)) = self.find(stream, number) else { return Ok(None) };
        if !self.is_whole(stream, number, rest) {
            return Ok(None);
        }
        let spec = region.stream.spec();
        let mut bytes = vec![0; usize::try_from(spec.sub_buffer_size).unwrap_or(0)];
        let (file, offset) = self.in_file(stream, region, at);
        let content = usize::try_from(rest).unwrap_or(0).min(bytes.len());
        file.read_exact_at(&mut bytes[..content], offset)?;
        let end = region.stream.control().half[at.half & 1].last_clock.load(Relaxed);
        let begin = word(&bytes, at::TIMESTAMP_BEGIN).unwrap_or(0);
        let closing =
            Closing { end: end.max(begin), content: rest, discarded: region.stream.lost() };
        put(&mut bytes, 0, &packet::header(spec, number, begin, closing));
        seal(&mut bytes, content);
        Ok(Some(bytes))
    }

    /// Returns true if the recorder has not come round to the place of a sub-buffer. Bytes of the
    /// sub-buffer that were read before this call are then those that were committed.
    #[must_use]
    pub fn is_kept(&self, stream: u32, number: u64) -> bool {
        self.find(stream, number)
            .is_some_and(|(region, at)| at.number >= lane::oldest(&region.stream, at.half))
    }

    /// Returns the bytes of a sub-buffer, of which `length` are sent: where they are, or a copy if
    /// it has another number in the ring. A sub-buffer whose checksum does not hold has none that
    /// holds afterwards.
    ///
    /// # Errors
    /// The file cannot be read, or there is no such sub-buffer.
    pub fn data(&self, stream: u32, number: u64, length: u64) -> std::io::Result<Bytes<'_>> {
        let (region, at) = self.find(stream, number).ok_or(std::io::ErrorKind::NotFound)?;
        let (file, offset) = self.in_file(stream, region, at);
        if at.number == number {
            return Ok(Bytes::File(file.as_fd(), offset));
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        file.read_exact_at(&mut bytes, offset)?;
        let content = word(&bytes, at::CONTENT_SIZE).map_or(0, |bits| bits / 8);
        let content = usize::try_from(content).unwrap_or(usize::MAX);
        let trailer = bytes.len().saturating_sub(CHECK_FROM_END);
        let sum = bytes.get(..content.min(trailer)).map(region::checksum);
        let holds = length == region.stream.spec().sub_buffer_size && sum == word(&bytes, trailer);
        put(&mut bytes, at::PACKET_SEQ_NUM, &number.to_ne_bytes());
        if holds {
            seal(&mut bytes, content);
        }
        Ok(Bytes::Memory(bytes))
    }

    /// Returns where a sub-buffer is that is sent under a number.
    fn find(&self, stream: u32, number: u64) -> Option<(&StreamRegion, Place)> {
        let (region, lane) = self.lane(stream)?;
        Some((region, lane.place(number)?))
    }

    /// Returns the file and the offset of a sub-buffer.
    fn in_file(&self, stream: u32, region: &StreamRegion, at: Place) -> (&File, u64) {
        let (spec, lane) = (region.stream.spec(), &self.lanes[stream as usize]);
        let place = at.number % u64::from(spec.sub_buffers) * spec.sub_buffer_size;
        (&lane.file, lane.offset + spec.data_range(at.half).start + place)
    }

    /// Makes the room of a ring in discard mode free up to the sub-buffer `number`, because
    /// everything before it has arrived. It does nothing for other rings, whose sub-buffers stay
    /// until they are overwritten.
    ///
    /// # Errors
    /// Another process is changing snapshots.
    pub fn consume(&self, stream: u32, number: u64) -> Result<(), Error> {
        // The number may be the first one of the next half, which has nothing to consume then.
        let found = number.checked_sub(1).and_then(|last| self.find(stream, last));
        let Some((region, at)) = found.filter(|_| self.lock.is_some()) else { return Ok(()) };
        let spec = region.stream.spec();
        if spec.mode != MODE_DISCARD {
            return Ok(());
        }
        let regions = &self.handle.regions;
        let consume = || {
            snapshot::locked(regions, |_| {
                // Events of a snapshot are its reader's.
                if region.spare(&regions.view) != at.half {
                    region.stream.consume(at.half, (at.number + 1) * spec.sub_buffer_size);
                }
                Ok(())
            })
        };
        // A snapshot that is being taken is over within milliseconds.
        let begun = Instant::now();
        loop {
            match consume() {
                Err(Error::Busy { .. }) if begun.elapsed() < LONGEST_SWAP => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                done => return done,
            }
        }
    }

    /// Returns the begin of a stream's region, as that of a region with one used half, in which
    /// `end` is the produced position; without it, nothing is produced behind the position where
    /// the sent stream begins. The receiver gives it the size that it needs.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn head(&self, stream: u32, end: Option<u64>) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; HEAD];
        let Some((_, lane)) = self.lane(stream) else { return Ok(bytes) };
        lane.file.read_exact_at(&mut bytes, lane.offset)?;
        let info = region::HEADER_SIZE as usize;
        let control = |field: usize| CONTROL_OFF + field;
        // Closed sub-buffers of all reservations are alike, and what was not committed is not sent.
        put(
            &mut bytes,
            info + offset_of!(StreamInfo, reservation),
            &RESERVATION_LOCKED.to_ne_bytes(),
        );
        put(&mut bytes, control(offset_of!(StreamControl, flip)), &[0; 4]);
        put(&mut bytes, control(offset_of!(StreamControl, lock)), &[0; 8]);
        put(&mut bytes, control(offset_of!(StreamControl, told)), &[0; 56]);
        put(
            &mut bytes,
            control(offset_of!(StreamControl, half)),
            &[0; 2 * size_of::<HalfControl>()],
        );
        let half = |field: usize| control(offset_of!(StreamControl, half)) + field;
        let end = end.unwrap_or(lane.first);
        for (field, value) in [
            (offset_of!(HalfControl, reserve), end),
            (offset_of!(HalfControl, attempt), end),
            (offset_of!(HalfControl, first), lane.first.min(end)),
        ] {
            put(&mut bytes, half(field), &value.to_ne_bytes());
        }
        Ok(bytes)
    }

    /// Returns the session region as that of a session that no process records in. If the session
    /// has ended, the copy has its words of how; else it says that nobody has seen the end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn session(&self) -> std::io::Result<Vec<u8>> {
        let has_ended = self.has_ended();
        let view = &self.handle.regions.view;
        let (file, offset) = &self.session;
        let mut bytes = vec![0; usize::try_from(view.mapping.len()).unwrap_or(0)];
        file.read_exact_at(&mut bytes, *offset)?;
        let control = view.info.control_off as usize;
        put(&mut bytes, control + offset_of!(Control, snapshot), &SNAPSHOT_OFF.to_ne_bytes());
        // The rings of the copy have one half, which is the first.
        put(&mut bytes, control + offset_of!(Control, flip), &[0; 4]);
        for (at, length) in
            forgotten(view.info.control_off, view.info.processes_off, view.triggers_off)
        {
            put(&mut bytes, at as usize, &vec![0; length]);
        }
        if !has_ended {
            let words = [
                (offset_of!(Control, recording), 0),
                (offset_of!(Control, finished), 1),
                (offset_of!(Control, ending), ENDING_UNSEEN),
                (offset_of!(Control, ended_by), 0),
            ];
            for (field, word) in words {
                put(&mut bytes, control + field, &u32::to_ne_bytes(word));
            }
            let now = ClockKind::Realtime.now().to_ne_bytes();
            put(&mut bytes, control + offset_of!(Control, ended), &now);
        }
        Ok(bytes)
    }

    /// Returns the counters and histograms as they are now: parts of the counters region, outside of
    /// which it is 0. Returns none if the session has no such region, or one of another form.
    #[must_use]
    pub fn counters(&self) -> Option<[Part; 3]> {
        self.handle.regions.copy_counters()
    }

    /// Returns the descriptions of events as pairs of an offset in the registry region and bytes:
    /// the region's begin, and the records from offset `from` on. Returns none if there are no such
    /// records.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn registry(&self, from: u64) -> std::io::Result<Option<[Part; 2]>> {
        let (file, offset) = &self.registry;
        let from = from.max(registry::RECORDS_OFF as u64);
        if self.handle.regions.registry.end() <= from {
            return Ok(None);
        }
        let end_at = region::HEADER_SIZE as usize + offset_of!(RegistryControl, end);
        let mut head = vec![0; RECORDS_OFF];
        file.read_exact_at(&mut head, *offset)?;
        let lock_at = region::HEADER_SIZE as usize + offset_of!(RegistryControl, lock);
        put(&mut head, lock_at, &[0; 8]);
        // Records that are appended after this are not in the copy, and `end` is stored after its
        // records.
        let end = head
            .get(end_at..end_at + 8)
            .and_then(|end| end.try_into().ok())
            .map_or(0, u64::from_ne_bytes);
        let end = end.min(self.handle.regions.registry.mapping.len());
        if end <= from {
            return Ok(None);
        }
        let mut records = vec![0; usize::try_from(end - from).unwrap_or(0)];
        file.read_exact_at(&mut records, offset + from)?;
        Ok(Some([(0, head), (from, records)]))
    }

    fn lane(&self, stream: u32) -> Option<(&StreamRegion, &Lane)> {
        Some((
            self.handle.regions.streams.iter().nth(stream as usize)?,
            self.lanes.get(stream as usize)?,
        ))
    }
}

/// Opens the file that contains a region, and returns it with the region's offset.
fn place(mapping: &Mapping) -> Result<(File, u64), Error> {
    let Some((path, offset)) = mapping.place() else {
        let why = "it is in the memory of its process, not in a file";
        return Err(Error::unsupported("the streaming of a session", why, "use shared memory"));
    };
    Ok((File::open(path).map_err(|error| Error::io("open", path, error))?, offset))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(field) = bytes.get_mut(at..at + value.len()) {
        field.copy_from_slice(value);
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes)
}

/// Writes the checksum of a sub-buffer into its trailer.
fn seal(bytes: &mut [u8], content: usize) {
    let sum = bytes.get(..content).map_or(0, region::checksum);
    put(bytes, bytes.len().saturating_sub(CHECK_FROM_END), &sum.to_ne_bytes());
}
