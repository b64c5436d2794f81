//! Sessions of a process that a signal is killing, as a helper of the kernel's `core_pattern` sees
//! them: in the memory of that process, whose threads have stopped and which the kernel keeps until
//! the helper is done.
//!
//! A session whose files outlive the process is only marked: the words that say how a session ended
//! are written into the process's memory, which is that of the files. A session that would go with
//! the process is copied into a folder of its own, `NAME.dead-PID-UUID`, which is an ended session
//! with the same UUID. Only the regions of sessions are read. The pages of a ring on the heap lie
//! behind a page table; in the copy they lie one behind the other in the stream's region, as in
//! shared memory.
//!
//! All that is read here may be damaged, or written by somebody who wants to harm: no length is
//! used unchecked, and all copies of a process together have a limit.

mod copier;
mod facts;
#[expect(unsafe_code, reason = "flags of descriptors")]
mod files;
mod folder;

use std::cell::Cell;
use std::mem::offset_of;

use lastwords_abi::region::{
    HEADER_SIZE, KIND_COUNTERS, KIND_REGISTRY, KIND_SESSION, KIND_SPANS, KIND_STREAM, RegionHeader,
};
use lastwords_abi::session::{
    Control, ENDING_PANIC, ENDING_SIGNAL, MAX_PROCESSES, Process, SessionInfo,
};
use lastwords_abi::stream::{CONTROL_OFF, Slot, StreamControl, StreamInfo};
use lastwords_abi::triggers::Triggers;
use lastwords_ring::{StreamSpec, init};

use copier::Copier;
pub use facts::Facts;
use facts::ending;
pub use files::{close_files_at_exec, keep_file_at_exec};
pub use folder::{Copied, CopyFolder, CopyLimits};

use lastwords::Error;
use lastwords::internals::config::check_name;
use lastwords::internals::dirs::Base;
use lastwords::internals::region_names::{COUNTERS, REGISTRY, SESSION, SPANS, stream_name};
use lastwords::internals::save::{BLOCK, forgotten, is_number};
use lastwords::internals::text::text;
use lastwords_folders::name_of;

/// Between the session's name and the process id, in the name of a copy.
const MARK: &str = ".dead-";
/// Largest number of copies of dead processes' sessions that stay in a folder of sessions.
const MOST_COPIES: usize = 16;
/// Largest number of bytes that these copies take together.
const MOST_BYTES: u64 = 1 << 30;

/// A region in the memory of the dead process. Its header's checksum was right.
#[derive(Debug, Clone)]
pub struct Region {
    /// Address in the process.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// One of the kinds of regions.
    pub kind: u32,
    /// Index of a stream; else 0.
    pub index: u32,
    /// The bytes behind the header that its checksum covers.
    pub fixed: Vec<u8>,
}

/// The death of a process.
#[derive(Debug, Clone, Copy)]
pub struct Death {
    /// Process id in the process's own pid namespace.
    pub pid: u32,
    /// Inode of that namespace; 0 if it is not known.
    pub pid_namespace: u64,
    /// The signal that kills the process.
    pub signal: u8,
}

/// Reads memory of the dead process at an address; false if it cannot be read.
pub type ReadMemory<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// A session in the memory of a dead process.
pub struct DeadSession<'a> {
    uuid: [u8; 16],
    name: String,
    session: &'a Region,
    regions: &'a [Region],
    read: ReadMemory<'a>,
}

/// Takes the files of a copy. Bytes that are not written are zeroes.
pub trait CopySink {
    /// Begins the next file, of this length.
    ///
    /// # Errors
    /// The file cannot be made, or a copy has no such file.
    fn create(&mut self, name: &str, len: u64) -> Result<(), Error>;

    /// Writes bytes at a position in the file that was begun last.
    ///
    /// # Errors
    /// The bytes cannot be written, or break a limit.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error>;
}

impl std::fmt::Debug for DeadSession<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadSession").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<'a> DeadSession<'a> {
    /// Finds the session of this UUID among regions that all belong to it. `None` if its session
    /// region is not among them, or has been closed in good order: nothing of it needs to be kept.
    #[must_use]
    pub fn new(uuid: [u8; 16], regions: &'a [Region], read: ReadMemory<'a>) -> Option<Self> {
        let session = regions.iter().find(|region| region.kind == KIND_SESSION)?;
        let name = session
            .fixed
            .get(offset_of!(SessionInfo, name)..)
            .and_then(<[u8]>::first_chunk::<64>)?;
        let name = Some(text(name))
            .filter(|name| check_name(name).is_ok())
            .unwrap_or_else(|| "session".into());
        let found = Self { uuid, name, session, regions, read };
        let fits =
            |offset: u32, len: usize| u64::from(offset).saturating_add(len as u64) <= session.len;
        let [control, processes] = [found.control_off()?, found.processes_off()?];
        let is_whole = fits(control, size_of::<Control>())
            && fits(processes, MAX_PROCESSES.saturating_mul(size_of::<Process>()));
        (is_whole && found.control_u32(offset_of!(Control, finished))? == 0).then_some(found)
    }

    /// Returns the name of the session.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the one has to know who marks the session or writes its copy.
    #[must_use]
    pub fn facts(&self, death: &Death) -> Facts {
        let word = |field| self.info_u32(field).unwrap_or(0);
        let long = |field| u64_at(&self.session.fixed, field).unwrap_or(0);
        Facts {
            uuid: self.uuid,
            name: self.name.clone(),
            address: self.session.address,
            control: self.session.address.saturating_add(self.control_off().unwrap_or(0).into()),
            scope: word(offset_of!(SessionInfo, scope)),
            creator: word(offset_of!(SessionInfo, creator_pid)),
            creator_start: long(offset_of!(SessionInfo, creator_start)),
            creator_pid_namespace: long(offset_of!(SessionInfo, creator_pidns)),
            has_told_its_end: self.has_told_its_end(death),
        }
    }

    fn info_u32(&self, field: usize) -> Option<u32> {
        u32_at(&self.session.fixed, field)
    }

    fn control_off(&self) -> Option<u32> {
        self.info_u32(offset_of!(SessionInfo, control_off))
    }

    fn processes_off(&self) -> Option<u32> {
        self.info_u32(offset_of!(SessionInfo, processes_off))
    }

    fn control_u32(&self, field: usize) -> Option<u32> {
        let mut word = [0; 4];
        let at = u64::from(self.control_off()?) + field as u64;
        (self.read)(self.session.address.checked_add(at)?, &mut word)
            .then(|| u32::from_ne_bytes(word))
    }

    fn has_told_its_end(&self, death: &Death) -> bool {
        let told = self.control_u32(offset_of!(Control, ending)).unwrap_or(0) & 0xff;
        let by = self.control_u32(offset_of!(Control, ended_by));
        [ENDING_PANIC, ENDING_SIGNAL].contains(&told) && by == Some(death.pid)
    }

    /// Sends the session's files to a sink, as those of an ended session. `room` is the number of
    /// bytes that may be read for it, and is reduced by those that were read. Returns the number of
    /// bytes that could not be read in the process; zeroes are in their place.
    ///
    /// # Errors
    /// The sink failed, or the session is larger than `room`.
    pub fn copy(
        &self,
        death: &Death,
        room: &Cell<u64>,
        to: &mut dyn CopySink,
    ) -> Result<u64, Error> {
        let copier = Copier { read: self.read, room, at_first: room.get(), missing: Cell::new(0) };
        let mut names = Vec::new();
        for region in self.regions {
            let name = match region.kind {
                KIND_SESSION => SESSION.to_owned(),
                KIND_REGISTRY => REGISTRY.to_owned(),
                KIND_SPANS => SPANS.to_owned(),
                KIND_COUNTERS => COUNTERS.to_owned(),
                KIND_STREAM => stream_name(region.index),
                _ => continue,
            };
            if names.contains(&name) {
                // The same region is mapped twice.
                continue;
            }
            match paged_stream(region).filter(|_| region.kind == KIND_STREAM) {
                Some(info) => self.copy_paged(region, info, to, &name, &copier)?,
                None => {
                    to.create(&name, region.len)?;
                    copier.range(region.address, 0..region.len, to, 0)?;
                    if region.kind == KIND_SESSION {
                        self.end(death, to)?;
                    }
                }
            }
            names.push(name);
        }
        Ok(copier.missing.get())
    }

    /// Makes the copy of the session region one of an ended session.
    fn end(&self, death: &Death, to: &mut dyn CopySink) -> Result<(), Error> {
        let (Some(control), Some(processes)) = (self.control_off(), self.processes_off()) else {
            return Ok(());
        };
        let triggers = self.control_u32(offset_of!(Control, rules.triggers_off)).unwrap_or(0);
        let fits =
            u64::from(triggers).saturating_add(size_of::<Triggers>() as u64) <= self.session.len;
        for (at, len) in forgotten(control, processes, if fits { triggers } else { 0 }) {
            to.write(at, &vec![0; len])?;
        }
        to.write(u64::from(control) + offset_of!(Control, recording) as u64, &[0; 4])?;
        if !self.has_told_its_end(death) {
            for (offset, bytes) in ending(death) {
                to.write(u64::from(control) + offset, &bytes)?;
            }
        }
        Ok(())
    }

    /// Writes a stream whose data is behind a page table as one whose data is in its region.
    fn copy_paged(
        &self,
        region: &Region,
        info: StreamInfo,
        to: &mut dyn CopySink,
        name: &str,
        copier: &Copier<'_>,
    ) -> Result<(), Error> {
        let misfit = |(field, value, rule): init::Misfit| {
            let what = format!("{field} is {value}; {rule}");
            Error::Region {
                path: format!("stream {} of the dead process", region.index),
                offset: 128,
                what,
            }
        };
        let spec = StreamSpec::new(self.uuid, region.index, StreamInfo { page_size: 0, ..info })
            .map_err(misfit)?;
        to.create(name, spec.region_len())?;
        to.write(0, &self.header(region, &spec))?;
        let control = CONTROL_OFF as u64..(CONTROL_OFF + size_of::<StreamControl>()) as u64;
        copier.range(region.address, control.clone(), to, control.start)?;
        let slots = u64::from(info.sub_buffers) * size_of::<Slot>() as u64;
        for half in 0..2 {
            let from = info.slots_off[half]..info.slots_off[half].saturating_add(slots);
            copier.range(region.address, from, to, spec.slots_off[half])?;
            copier.pages(region, &info, half, to, spec.data_range(half).start)?;
        }
        Ok(())
    }

    /// Returns the header and the fixed part of a stream region of this geometry, of the version of
    /// the region.
    fn header(&self, region: &Region, spec: &StreamSpec) -> Vec<u8> {
        let mut minor = [0; 2];
        // If the header cannot be read any more, the version is the first.
        (self.read)(
            region.address.saturating_add(offset_of!(RegionHeader, minor) as u64),
            &mut minor,
        );
        let mut header = RegionHeader {
            magic: lastwords_abi::region::MAGIC,
            major: lastwords_abi::VERSION_MAJOR,
            minor: u16::from_ne_bytes(minor),
            kind: KIND_STREAM,
            byte_order: lastwords_abi::region::BYTE_ORDER_MARK,
            word_size: size_of::<usize>() as u32,
            size: spec.region_len(),
            session: self.uuid,
            index: region.index,
            fixed_len: size_of::<StreamInfo>() as u32,
            reserved: [0; 6],
            check: 0,
            reserved2: 0,
        };
        let info: &StreamInfo = spec;
        header.check = init::check_of(&header, init::bytes_of(info));
        [init::bytes_of(&header), init::bytes_of(info)].concat()
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word))
}

/// Returns the geometry of a stream whose data is behind a page table.
fn paged_stream(region: &Region) -> Option<StreamInfo> {
    let word = |field| u32_at(&region.fixed, field);
    let long = |field| u64_at(&region.fixed, field);
    let info = StreamInfo {
        channel: word(offset_of!(StreamInfo, channel))?,
        cpu: word(offset_of!(StreamInfo, cpu))?,
        reservation: word(offset_of!(StreamInfo, reservation))?,
        mode: word(offset_of!(StreamInfo, mode))?,
        sub_buffer_size: long(offset_of!(StreamInfo, sub_buffer_size))?,
        sub_buffers: word(offset_of!(StreamInfo, sub_buffers))?,
        page_size: word(offset_of!(StreamInfo, page_size))?,
        slots_off: [0, 8].map(|half| long(offset_of!(StreamInfo, slots_off) + half).unwrap_or(0)),
        data_off: [0, 8].map(|half| long(offset_of!(StreamInfo, data_off) + half).unwrap_or(0)),
    };
    (info.page_size == BLOCK as u32 && HEADER_SIZE as usize + region.fixed.len() <= CONTROL_OFF)
        .then_some(info)
}

/// Removes the oldest copies of dead processes' sessions above the limits of number and bytes, the
/// newest one never. Returns how many.
fn remove_oldest(base: &Base) -> u32 {
    let is_copy =
        |folder: &String| name_of(folder).rsplit_once(MARK).is_some_and(|(_, pid)| is_number(pid));
    let mut copies = base.sessions().unwrap_or_default();
    copies.retain(is_copy);
    copies.sort_by_cached_key(|folder| std::cmp::Reverse(base.modified(folder)));
    let mut bytes = 0;
    let has_room = |(index, folder): &(usize, &String)| {
        bytes += base.folder(folder).map_or(0, |folder| folder.bytes_on_disk());
        *index == 0 || (*index < MOST_COPIES && bytes <= MOST_BYTES)
    };
    let stay = copies.iter().enumerate().take_while(has_room).count();
    let removed = copies
        .iter()
        .skip(stay)
        .filter(|old| base.folder(old).and_then(|old| old.remove()).is_ok());
    removed.count() as u32
}

#[cfg(test)]
#[expect(unsafe_code, reason = "rings are filled")]
mod tests;
