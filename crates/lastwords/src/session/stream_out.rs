//! Gives the sub-buffers of a living session to a sender, which moves them out of the session's files while recording goes on.
//!
//! A sub-buffer of a ring in overwrite mode cannot be claimed, because the recorder never waits. So a sender works in this order:
//! it looks at the rings ([`Source::look`]), sends a closed sub-buffer from the session's file, and waits until the receiver has
//! confirmed that it has the bytes. Only then it asks whether the recorder had come round to that sub-buffer meanwhile
//! ([`Source::is_kept`]). If it had, the bytes that arrived may be of any age, and the sender tells the receiver to drop them.
//! In discard mode, the recorder does not come round before the reader has consumed ([`Source::consume`]).

use std::fs::File;
use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::Ordering::Acquire;

use lastwords_abi::packet::HEADER_LEN;
use lastwords_abi::registry::{RECORDS_OFF, RegistryControl};
use lastwords_abi::session::{
    Control, ENDING_CLOSED, MODE_DISCARD, RESERVATION_LOCKED, RESERVATION_LOCKLESS, SNAPSHOT_OFF,
};
use lastwords_abi::stream::{CONTROL_OFF, HalfControl, StreamControl, StreamInfo};
use lastwords_abi::{region, registry};
use lastwords_ring::ClockKind;
use lastwords_ring::backend::Mapping;

use super::Error;
use super::dirs::Lock;
use super::regions::StreamRegion;
use super::remote_control::{Handle, State};
use super::save::forgotten;
use super::snapshot;

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
}

/// A ring whose sub-buffers are sent.
#[derive(Debug)]
struct Lane {
    file: File,
    /// Offset of the region in the file.
    offset: u64,
    half: usize,
    /// Position where the sent stream begins.
    first: u64,
}

/// A session whose sub-buffers are sent.
#[derive(Debug)]
pub struct Source {
    handle: Handle,
    lanes: Vec<Lane>,
    session: (File, u64),
    registry: (File, u64),
    /// Held while rings in discard mode are consumed.
    lock: Option<Lock>,
}

impl Source {
    /// Opens the session in a folder. `from_begin`: all that was ever recorded is to be sent, and what the rings have overwritten
    /// before is lost. Otherwise the stream begins with what the rings have now.
    ///
    /// # Errors
    /// The folder has no session that can be mapped. The session is not in files, or snapshots are enabled in it, because a swap
    /// would leave sub-buffers that are not closed. A ring in discard mode has another consumer.
    pub fn open(folder: &Path, from_begin: bool) -> Result<Self, Error> {
        let handle = Handle::open(folder)?;
        let view = &handle.regions.view;
        check_snapshots(view.control())?;
        let session = place(&view.mapping)?;
        let registry = place(&handle.regions.registry.mapping)?;
        let discards = handle.regions.streams.iter().any(|stream| stream.stream.spec().mode == MODE_DISCARD);
        let busy = || Error::Busy { what: "the consuming of the session's events", owner: 0 };
        let lock = if discards { Some(handle.folder.lock()?.ok_or_else(busy)?) } else { None };
        let mut source = Self { lanes: Vec::new(), session, registry, lock, handle };
        source.add_lanes(from_begin)?;
        Ok(source)
    }

    fn add_lanes(&mut self, from_begin: bool) -> Result<(), Error> {
        let Handle { regions, .. } = &self.handle;
        for region in regions.streams.iter().skip(self.lanes.len()) {
            let (stream, half) = (&region.stream, region.spare(&regions.view) ^ 1);
            let first = stream.control().half[half].first.load(Acquire);
            let oldest = oldest(region, half) * stream.spec().sub_buffer_size;
            let first = if from_begin { first } else { first.max(oldest) };
            let (file, offset) = place(&region.mapping)?;
            self.lanes.push(Lane { file, offset, half, first });
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

    /// Returns true if no process records in the session any more. The processes are looked for in /proc.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.handle.state(), State::Finished | State::LeftOver | State::Copied)
    }

    /// Returns true if the session was ended by its process. This is a load; a session whose process was killed is not ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.regions.view.control().finished.load(Acquire) == 1
    }

    /// Returns what can be sent of each stream now. Streams of channels that were created since the last call are among them.
    ///
    /// # Errors
    /// Snapshots were enabled meanwhile, or a new stream cannot be opened.
    pub fn look(&mut self) -> Result<Vec<Ready>, Error> {
        let channels = self.handle.regions.view.channels();
        let streams = channels.map(|(_, channel)| channel.first_stream.saturating_add(channel.streams)).max();
        if streams.unwrap_or(0) as usize > self.lanes.len() {
            self.handle = Handle::open(&self.handle.folder.path)?;
            self.add_lanes(true)?;
        }
        let Handle { regions, .. } = &self.handle;
        check_snapshots(regions.view.control())?;
        let ready = |(index, (region, lane)): (usize, (&StreamRegion, &Lane))| {
            let size = region.stream.spec().sub_buffer_size;
            let settled = region.stream.settled(lane.half, regions.view.parts());
            Ready { stream: index as u32, size, closed: settled / size, rest: settled % size }
        };
        Ok(regions.streams.iter().zip(&self.lanes).enumerate().map(ready).collect())
    }

    /// Returns true if a sub-buffer before [`Ready::closed`] is closed. Only a thread that died while it recorded leaves one that is
    /// not.
    #[must_use]
    pub fn is_closed(&self, stream: u32, number: u64) -> bool {
        let Some((region, lane)) = self.lane(stream) else { return false };
        let spec = region.stream.spec();
        // Only streams of the lockless reservation have slots that are used.
        let slots = region.stream.slots(lane.half);
        let count = u64::from(spec.sub_buffers);
        let laps = (number / count).wrapping_add(1).wrapping_mul(spec.sub_buffer_size);
        spec.reservation != RESERVATION_LOCKLESS || slots[(number % count) as usize].committed.load(Acquire) == laps
    }

    /// Returns true if the bytes of the sub-buffer that is not closed are all committed, up to [`Ready::rest`].
    #[must_use]
    pub fn is_whole(&self, stream: u32, number: u64, rest: u64) -> bool {
        let Some((region, lane)) = self.lane(stream) else { return false };
        let spec = region.stream.spec();
        let count = u64::from(spec.sub_buffers);
        let laps = (number / count).wrapping_mul(spec.sub_buffer_size);
        let committed = region.stream.slots(lane.half)[(number % count) as usize].committed.load(Acquire);
        // The header's bytes are committed last.
        spec.reservation != RESERVATION_LOCKLESS
            || committed.wrapping_sub(laps) == rest.saturating_sub(HEADER_LEN as u64)
    }

    /// Returns a copy of bytes of the sub-buffer that is not closed, all of them before [`Ready::rest`]. Returns none if the sub-buffer was
    /// closed or overwritten meanwhile, or if not all before is committed.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open_part(&self, stream: u32, number: u64, part: Range<u64>) -> std::io::Result<Option<Vec<u8>>> {
        let (Some((file, offset)), Some((region, lane))) = (self.place(stream, number), self.lane(stream)) else {
            return Ok(None);
        };
        if !self.is_whole(stream, number, part.end) {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(part.end - part.start).unwrap_or(0)];
        file.read_exact_at(&mut bytes, offset + part.start)?;
        // Committed bytes change only after the produced position has left the sub-buffer.
        let is_there = region.stream.position(lane.half) / region.stream.spec().sub_buffer_size == number;
        Ok(is_there.then_some(bytes))
    }

    /// Returns true if the recorder has not come round to the place of a sub-buffer. Bytes of the sub-buffer that were read before
    /// this call are then those that were committed.
    #[must_use]
    pub fn is_kept(&self, stream: u32, number: u64) -> bool {
        self.lane(stream).is_some_and(|(region, lane)| number >= oldest(region, lane.half))
    }

    /// Returns the file and the offset of a sub-buffer.
    #[must_use]
    pub fn data(&self, stream: u32, number: u64) -> Option<(BorrowedFd<'_>, u64)> {
        self.place(stream, number).map(|(file, offset)| (file.as_fd(), offset))
    }

    fn place(&self, stream: u32, number: u64) -> Option<(&File, u64)> {
        let (region, lane) = self.lane(stream)?;
        let spec = region.stream.spec();
        let place = number % u64::from(spec.sub_buffers) * spec.sub_buffer_size;
        Some((&lane.file, lane.offset + spec.data_range(lane.half).start + place))
    }

    /// Makes the room of a ring in discard mode free up to the sub-buffer `number`, because everything before it has arrived. It does
    /// nothing for other rings, whose sub-buffers stay until they are overwritten.
    ///
    /// # Errors
    /// Another process is changing snapshots.
    pub fn consume(&self, stream: u32, number: u64) -> Result<(), Error> {
        let Some((region, lane)) = self.lane(stream).filter(|_| self.lock.is_some()) else { return Ok(()) };
        let spec = region.stream.spec();
        if spec.mode != MODE_DISCARD {
            return Ok(());
        }
        snapshot::locked(&self.handle.regions, |_| {
            region.stream.consume(lane.half, number * spec.sub_buffer_size);
            Ok(())
        })
    }

    /// Returns the begin of a stream's region, as that of a region with one used half, in which `end` is the produced position; without it,
    /// nothing is produced behind the position where the sent stream begins. The receiver gives it the size that it needs.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn head(&self, stream: u32, end: Option<u64>) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; HEAD];
        let Some((_, lane)) = self.lane(stream) else { return Ok(bytes) };
        lane.file.read_exact_at(&mut bytes, lane.offset)?;
        let flip = self.handle.regions.view.control().flip.load(Acquire);
        let info = region::HEADER_SIZE as usize;
        let control = |field: usize| CONTROL_OFF + field;
        // Closed sub-buffers of all reservations are alike, and what was not committed is not sent.
        put(&mut bytes, info + offset_of!(StreamInfo, reservation), &RESERVATION_LOCKED.to_ne_bytes());
        put(&mut bytes, control(offset_of!(StreamControl, flip)), &flip.to_ne_bytes());
        put(&mut bytes, control(offset_of!(StreamControl, lock)), &[0; 8]);
        put(&mut bytes, control(offset_of!(StreamControl, told)), &[0; 56]);
        put(&mut bytes, control(offset_of!(StreamControl, half)), &[0; 2 * size_of::<HalfControl>()]);
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

    /// Returns the session region as that of a session that no process records in. `is_over`: the session has ended by itself, and
    /// the copy has its own words of how.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn session(&self, is_over: bool) -> std::io::Result<Vec<u8>> {
        let view = &self.handle.regions.view;
        let (file, offset) = &self.session;
        let mut bytes = vec![0; usize::try_from(view.mapping.len()).unwrap_or(0)];
        file.read_exact_at(&mut bytes, *offset)?;
        let control = view.info.control_off as usize;
        put(&mut bytes, control + offset_of!(Control, snapshot), &SNAPSHOT_OFF.to_ne_bytes());
        for (at, length) in forgotten(view.info.control_off, view.info.processes_off, view.triggers_off()) {
            put(&mut bytes, at as usize, &vec![0; length]);
        }
        if !is_over {
            put(&mut bytes, control + offset_of!(Control, recording), &0u32.to_ne_bytes());
            put(&mut bytes, control + offset_of!(Control, finished), &1u32.to_ne_bytes());
            put(&mut bytes, control + offset_of!(Control, ending), &ENDING_CLOSED.to_ne_bytes());
            put(&mut bytes, control + offset_of!(Control, ended_by), &std::process::id().to_ne_bytes());
            put(&mut bytes, control + offset_of!(Control, ended), &ClockKind::Realtime.now().to_ne_bytes());
        }
        Ok(bytes)
    }

    /// Returns the descriptions of events as pairs of an offset in the registry region and bytes: the region's begin, and the records
    /// from offset `from` on. Returns none if there are no such records.
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
        // Records that are appended after this are not in the copy, and `end` is stored after its records.
        let end = head.get(end_at..end_at + 8).and_then(|end| end.try_into().ok()).map_or(0, u64::from_ne_bytes);
        let end = end.min(self.handle.regions.registry.mapping.len());
        if end <= from {
            return Ok(None);
        }
        let mut records = vec![0; usize::try_from(end - from).unwrap_or(0)];
        file.read_exact_at(&mut records, offset + from)?;
        Ok(Some([(0, head), (from, records)]))
    }

    fn lane(&self, stream: u32) -> Option<(&StreamRegion, &Lane)> {
        Some((self.handle.regions.streams.iter().nth(stream as usize)?, self.lanes.get(stream as usize)?))
    }
}

/// Returns the number of the oldest sub-buffer in whose place no newer one may have been begun (docs/ABI.md, section 8). A ring in
/// discard mode begins none before its reader has consumed the older one.
fn oldest(region: &StreamRegion, half: usize) -> u64 {
    let spec = region.stream.spec();
    if spec.mode == MODE_DISCARD {
        return 0;
    }
    let produced = region.stream.position(half);
    (produced / spec.sub_buffer_size + 1).saturating_sub(u64::from(spec.sub_buffers))
}

fn check_snapshots(control: &Control) -> Result<(), Error> {
    if control.snapshot.load(Acquire) == SNAPSHOT_OFF {
        return Ok(());
    }
    let why = "snapshots are enabled in it, and a swap leaves sub-buffers that are not closed";
    Err(Error::unsupported("the streaming of a session", why, "disable them: lastwords snapshot off"))
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
