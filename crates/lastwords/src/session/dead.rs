//! Sessions of a process that a signal is killing, as a helper of the kernel's `core_pattern` sees them: in the memory of
//! that process, whose threads have stopped and which the kernel keeps until the helper is done.
//!
//! A session whose files outlive the process is only marked: the words that say how a session ended are written into
//! the process's memory, which is that of the files. A session that would go with the process is copied into a folder of
//! its own, `NAME.dead-PID-UUID`, which is an ended session with the same UUID. Only the regions of sessions are read.
//! The pages of a ring on the heap lie behind a page table; in the copy they lie one behind the other in the stream's
//! region, as in shared memory.
//!
//! All that is read here may be damaged, or written by somebody who wants to harm: no length is used unchecked, and all
//! copies of a process together have a limit.

mod copier;

use std::cell::Cell;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use lastwords_abi::region::{HEADER_SIZE, KIND_REGISTRY, KIND_SESSION, KIND_SPANS, KIND_STREAM, RegionHeader};
use lastwords_abi::session::{Control, ENDING_PANIC, ENDING_SIGNAL, MAX_PROCESSES, Process, SCOPE_USER, SessionInfo};
use lastwords_abi::stream::{CONTROL_OFF, Slot, StreamControl, StreamInfo};
use lastwords_abi::triggers::Triggers;
use lastwords_ring::{ClockKind, StreamSpec, init, os};

use copier::Copier;

use super::config::check_name;
use super::dirs::{Base, Folder, base_path, name_of, unique_of};
use super::layout::{REGISTRY, SESSION, SPANS, stream_name};
use super::save::{BLOCK, MOST_NAME, create_file, forget_processes, is_number};
use super::session_region::text;
use super::{Ending, Error};
use crate::process::cut;

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

/// The copy of a dead process's session.
#[derive(Debug)]
pub struct Copied {
    /// The folder of the copy.
    pub folder: PathBuf,
    /// Bytes of the session that could not be read in the process; zeroes are in their place.
    pub missing: u64,
    /// Older copies that were removed, because there were more than the limit of number or bytes.
    pub removed: u32,
}

impl std::fmt::Debug for DeadSession<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadSession").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<'a> DeadSession<'a> {
    /// Finds the session of this UUID among regions that all belong to it. `None` if its session region is not among
    /// them, or has been closed in good order: nothing of it needs to be kept.
    #[must_use]
    pub fn of(uuid: [u8; 16], regions: &'a [Region], read: ReadMemory<'a>) -> Option<Self> {
        let session = regions.iter().find(|region| region.kind == KIND_SESSION)?;
        let name = session.fixed.get(offset_of!(SessionInfo, name)..).and_then(<[u8]>::first_chunk::<64>)?;
        let name = Some(text(name)).filter(|name| check_name(name).is_ok()).unwrap_or_else(|| "session".into());
        let found = Self { uuid, name, session, regions, read };
        let fits = |offset: u32, len: usize| u64::from(offset).saturating_add(len as u64) <= session.len;
        let [control, processes] = [found.control_off()?, found.processes_off()?];
        let is_whole =
            fits(control, size_of::<Control>()) && fits(processes, MAX_PROCESSES.saturating_mul(size_of::<Process>()));
        (is_whole && found.control_u32(offset_of!(Control, finished))? == 0).then_some(found)
    }

    /// Returns the name of the session.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address of the session region in the process. The mapping there tells whether the session outlives it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.session.address
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
        (self.read)(self.session.address.checked_add(at)?, &mut word).then(|| u32::from_ne_bytes(word))
    }

    /// Writes the signal as the session's end through `write`, which writes the process's memory at an address. Returns
    /// false, and writes nothing, where the end of the process is not that of the session (a child died, whose parent
    /// records on), or where the process has already told how it ends: by a panic, or by a handler of the signal.
    ///
    /// # Errors
    /// `write` failed.
    pub fn mark(&self, death: &Death, write: &dyn Fn(u64, &[u8]) -> std::io::Result<()>) -> std::io::Result<bool> {
        let Some(control_off) = self.control_off().filter(|_| self.is_end_of_session(death)) else { return Ok(false) };
        for (offset, bytes) in self.ending(death) {
            write(self.session.address.saturating_add(u64::from(control_off)).saturating_add(offset), &bytes)?;
        }
        Ok(true)
    }

    /// The conditions of `ending::is_ours`, seen from outside of the process.
    fn is_end_of_session(&self, death: &Death) -> bool {
        let ids = (
            self.info_u32(offset_of!(SessionInfo, scope)),
            self.info_u32(offset_of!(SessionInfo, creator_pid)),
            u64_at(&self.session.fixed, offset_of!(SessionInfo, creator_pidns)),
            u64_at(&self.session.fixed, offset_of!(SessionInfo, creator_start)),
        );
        let (Some(scope), Some(creator), Some(pidns), Some(start)) = ids else { return false };
        let is_creator = creator == death.pid && [0, pidns].contains(&death.pid_namespace);
        let creator_lives = || pidns != os::pid_namespace() || os::is_process_alive(creator, start as u32);
        (scope == SCOPE_USER || is_creator || !creator_lives()) && !self.has_told_its_end(death)
    }

    fn has_told_its_end(&self, death: &Death) -> bool {
        let told = self.control_u32(offset_of!(Control, ending)).unwrap_or(0) & 0xff;
        let by = self.control_u32(offset_of!(Control, ended_by));
        [ENDING_PANIC, ENDING_SIGNAL].contains(&told) && by == Some(death.pid)
    }

    /// Returns offsets in the control area, and the bytes to write there, in this order.
    fn ending(&self, death: &Death) -> [(u64, Vec<u8>); 3] {
        let ending = Ending::Signal(death.signal).word().to_ne_bytes().to_vec();
        [
            (offset_of!(Control, ended) as u64, ClockKind::Realtime.now().to_ne_bytes().to_vec()),
            (offset_of!(Control, ended_by) as u64, death.pid.to_ne_bytes().to_vec()),
            (offset_of!(Control, ending) as u64, ending),
        ]
    }

    /// Copies the session into a folder of its own, in the folder of this user's sessions. `room` is the number of bytes
    /// that may be read for it, and is reduced by those that were read.
    ///
    /// # Errors
    /// The folder cannot be written, or the session is larger than `room`. Nothing is left of the copy then.
    pub fn copy(&self, death: &Death, room: &Cell<u64>) -> Result<Copied, Error> {
        self.copy_to(&Base::make(&base_path())?, death, room)
    }

    fn copy_to(&self, base: &Base, death: &Death, room: &Cell<u64>) -> Result<Copied, Error> {
        let name = format!("{}{MARK}{}", cut(&self.name, MOST_NAME), death.pid);
        let mut folder = base.new_folder(&name, &unique_of(&self.uuid))?;
        let copier = Copier { read: self.read, room, at_first: room.get(), missing: Cell::new(0) };
        let written = self.write(death, &folder, &copier).and_then(|()| folder.publish());
        written.inspect_err(|_| drop(folder.remove()))?;
        Ok(Copied { folder: folder.path, missing: copier.missing.get(), removed: remove_oldest(base) })
    }

    fn write(&self, death: &Death, to: &Folder, copier: &Copier<'_>) -> Result<(), Error> {
        let mut names = Vec::new();
        for region in self.regions {
            let name = match region.kind {
                KIND_SESSION => SESSION.to_owned(),
                KIND_REGISTRY => REGISTRY.to_owned(),
                KIND_SPANS => SPANS.to_owned(),
                KIND_STREAM => stream_name(region.index),
                _ => continue,
            };
            if names.contains(&name) {
                // The same region is mapped twice.
                continue;
            }
            match paged_stream(region).filter(|_| region.kind == KIND_STREAM) {
                Some(info) => self.write_paged(region, info, to, &name, copier)?,
                None => {
                    let file = create_file(to, &name, region.len)?;
                    let shown = to.path.join(&name);
                    copier.range(region.address, 0..region.len, &file, 0, &shown)?;
                    if region.kind == KIND_SESSION {
                        self.end(death, &file).map_err(|error| Error::io("write", &shown, error))?;
                    }
                }
            }
            names.push(name);
        }
        Ok(())
    }

    /// Makes the copy of the session region one of an ended session.
    fn end(&self, death: &Death, file: &File) -> std::io::Result<()> {
        let (Some(control), Some(processes)) = (self.control_off(), self.processes_off()) else { return Ok(()) };
        let triggers = self.control_u32(offset_of!(Control, rules.triggers_off)).unwrap_or(0);
        let fits = u64::from(triggers).saturating_add(size_of::<Triggers>() as u64) <= self.session.len;
        forget_processes(file, control, processes, if fits { triggers } else { 0 })?;
        file.write_all_at(&[0; 4], u64::from(control) + offset_of!(Control, recording) as u64)?;
        if !self.has_told_its_end(death) {
            for (offset, bytes) in self.ending(death) {
                file.write_all_at(&bytes, u64::from(control) + offset)?;
            }
        }
        Ok(())
    }

    /// Writes a stream whose data is behind a page table as one whose data is in its region.
    fn write_paged(
        &self,
        region: &Region,
        info: StreamInfo,
        to: &Folder,
        name: &str,
        copier: &Copier<'_>,
    ) -> Result<(), Error> {
        let shown = to.path.join(name);
        let misfit = |(field, value, rule): init::Misfit| {
            let what = format!("{field} is {value}; {rule}");
            Error::Region { path: format!("stream {} of the dead process", region.index), offset: 128, what }
        };
        let spec = StreamSpec::new(self.uuid, region.index, StreamInfo { page_size: 0, ..info }).map_err(misfit)?;
        let file = create_file(to, name, spec.region_len())?;
        let failed = |error| Error::io("write", &shown, error);
        file.write_all_at(&self.header(region, &spec), 0).map_err(failed)?;
        let control = CONTROL_OFF as u64..(CONTROL_OFF + size_of::<StreamControl>()) as u64;
        copier.range(region.address, control.clone(), &file, control.start, &shown)?;
        let slots = u64::from(info.sub_buffers) * size_of::<Slot>() as u64;
        for half in 0..2 {
            let from = info.slots_off[half]..info.slots_off[half].saturating_add(slots);
            copier.range(region.address, from, &file, spec.slots_off[half], &shown)?;
            copier.pages(region, &info, half, &file, spec.data_range(half).start, &shown)?;
        }
        Ok(())
    }

    /// Returns the header and the fixed part of a stream region of this geometry, of the version of the region.
    fn header(&self, region: &Region, spec: &StreamSpec) -> Vec<u8> {
        let mut minor = [0; 2];
        // If the header cannot be read any more, the version is the first.
        (self.read)(region.address.saturating_add(offset_of!(RegionHeader, minor) as u64), &mut minor);
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
    (info.page_size == BLOCK as u32 && HEADER_SIZE as usize + region.fixed.len() <= CONTROL_OFF).then_some(info)
}

/// Removes the oldest copies of dead processes' sessions above the limits of number and bytes, the newest one never.
/// Returns how many.
fn remove_oldest(base: &Base) -> u32 {
    let is_copy = |folder: &String| name_of(folder).rsplit_once(MARK).is_some_and(|(_, pid)| is_number(pid));
    let mut copies = base.sessions().unwrap_or_default();
    copies.retain(is_copy);
    copies.sort_by_cached_key(|folder| std::cmp::Reverse(base.modified(folder)));
    let mut bytes = 0;
    let has_room = |(index, folder): &(usize, &String)| {
        bytes += base.folder(folder).map_or(0, |folder| folder.bytes_on_disk());
        *index == 0 || (*index < MOST_COPIES && bytes <= MOST_BYTES)
    };
    let stay = copies.iter().enumerate().take_while(has_room).count();
    let removed = copies.iter().skip(stay).filter(|old| base.folder(old).and_then(|old| old.remove()).is_ok());
    removed.count() as u32
}

#[cfg(test)]
mod tests {
    use super::super::create::create;
    use super::super::regions::Regions;
    use super::super::shared::SessionShared;
    use super::super::{ChannelConfig, Memory, Session, ending};
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    /// A generator of numbers (splitmix64).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }

        fn below(&mut self, most: u64) -> u64 {
            self.next() % most
        }
    }

    fn seed() -> u64 {
        let seed = std::env::var("LASTWORDS_SEED").ok().and_then(|seed| seed.parse().ok());
        seed.unwrap_or_else(|| ClockKind::Realtime.now())
    }

    /// A session on the heap in which nobody records, of a random shape.
    fn session(random: &mut Random) -> SessionShared {
        let channel = ChannelConfig::new("main").sub_buffers(2 << random.below(3), 4096 << random.below(3));
        let mut builder = Session::builder("app").backend(Memory::Heap).channel(channel).snapshot(random.below(2) == 1);
        create(&mut builder, None, false).expect("created").0
    }

    /// Fills all rings, their slots and positions with random bytes. Some pages stay empty.
    fn fill(regions: &Regions, random: &mut Random) {
        for region in regions.streams.iter() {
            for half in 0..2 {
                for page in region.stream.page_table(half).iter().map(|page| page.load(Relaxed) as *mut u64) {
                    if page.is_null() || random.below(8) == 0 {
                        continue;
                    }
                    for word in 0..BLOCK / 8 {
                        // SAFETY: the table has pages of this size, and nobody records in this session.
                        unsafe { page.add(word).write_volatile(random.next()) };
                    }
                }
                for slot in region.stream.slots(half) {
                    slot.committed.store(random.next(), Relaxed);
                }
                region.stream.control().half[half].reserve.store(random.below(1 << 40), Relaxed);
            }
        }
    }

    /// The session's regions, as they are found in the memory of its process.
    fn found(regions: &Regions) -> Vec<Region> {
        let region = |mapping: &lastwords_ring::backend::Mapping| {
            let address = mapping.as_ptr();
            // SAFETY: the mapping is a region, which begins with its header and the fixed part.
            let (header, fixed) = unsafe {
                let header = address.cast::<RegionHeader>().read();
                (header, std::slice::from_raw_parts(address.add(HEADER_SIZE as usize), header.fixed_len as usize))
            };
            Region {
                address: address as u64,
                len: header.size,
                kind: header.kind,
                index: header.index,
                fixed: fixed.to_vec(),
            }
        };
        regions.mappings().map(region).collect()
    }

    fn own_memory() -> impl Fn(u64, &mut [u8]) -> bool {
        let memory = File::open("/proc/self/mem").expect("a process has memory");
        move |address, buffer| memory.read_exact_at(buffer, address).is_ok()
    }

    fn bytes_at(address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(own_memory()(address, &mut bytes));
        bytes
    }

    const DEATH: Death = Death { pid: 77, pid_namespace: 1, signal: 11 };

    /// Every byte of rings, slots and positions is in the copy, where a session in shared memory has it.
    #[test]
    fn the_pages_of_a_heap_become_the_data_of_regions() {
        let seed = seed();
        for round in 0..12 {
            let mut random = Random(seed + round);
            let shared = session(&mut random);
            let regions = &shared.regions;
            fill(regions, &mut random);
            let folder = tempfile::tempdir().expect("a folder");
            let base = Base::make(&folder.path().join("base")).expect("made");
            let (found, read) = (found(regions), own_memory());
            let dead = DeadSession::of(regions.view.uuid, &found, &read).expect("it is whole");
            let copied = dead.copy_to(&base, &DEATH, &Cell::new(1 << 30)).expect("copied");
            assert_eq!((copied.missing, copied.removed), (0, 0), "seed {}", seed + round);
            // The program's own readers take it for a session that the signal ended.
            let opened = Regions::open(&Folder::open(&copied.folder).expect("opened")).expect("a session");
            let ended = ending::read(&opened.view);
            assert_eq!((ended.how, ended.pid), (Ending::Signal(11), 77));
            assert_eq!(opened.streams.len(), regions.streams.len());
            for (copy, region) in opened.streams.iter().zip(regions.streams.iter()) {
                let at = |region: &super::super::regions::StreamRegion| region.mapping.as_ptr() as u64;
                let spec = copy.stream.spec();
                let control = bytes_at(at(region) + CONTROL_OFF as u64, size_of::<StreamControl>());
                assert_eq!(bytes_at(at(copy) + CONTROL_OFF as u64, control.len()), control);
                for half in 0..2 {
                    let slots = size_of_val(region.stream.slots(half));
                    let from = bytes_at(region.stream.slots(half).as_ptr() as u64, slots);
                    assert_eq!(bytes_at(copy.stream.slots(half).as_ptr() as u64, slots), from);
                    let data = bytes_at(at(copy) + spec.data_range(half).start, spec.half_size() as usize);
                    for (page, copied) in region.stream.page_table(half).iter().zip(data.chunks(BLOCK)) {
                        let page = page.load(Relaxed);
                        let is = if page == 0 { vec![0; BLOCK] } else { bytes_at(page, BLOCK) };
                        assert!(copied == is, "seed {}, half {half}", seed + round);
                    }
                }
            }
        }
    }

    /// Regions and memory with random damage are copied or refused: no panic, and no more than the limit is read.
    #[test]
    fn damaged_memory_is_copied_or_refused() {
        let seed = seed();
        for round in 0..60 {
            let mut random = Random(seed + round);
            let shared = session(&mut random);
            fill(&shared.regions, &mut random);
            let mut found = found(&shared.regions);
            for _ in 0..1 + random.below(4) {
                let index = random.below(found.len() as u64) as usize;
                let number = random.next() >> random.below(64);
                let region = &mut found[index];
                match random.below(8) {
                    0 => region.len = number,
                    1 => region.kind = number as u32,
                    2 => region.index = number as u32,
                    3 => region.address = number,
                    4 => region.fixed.truncate(random.below(64) as usize),
                    _ if region.fixed.is_empty() => {}
                    _ => {
                        let at = random.below(region.fixed.len() as u64) as usize;
                        region.fixed[at] = number as u8;
                    }
                }
            }
            let (own, damage) = (own_memory(), Cell::new(random.next()));
            let read = |address: u64, buffer: &mut [u8]| {
                let mut random = Random(damage.get());
                let is_read = own(address, buffer);
                if random.below(16) == 0 {
                    let at = random.below(buffer.len() as u64) as usize;
                    buffer[at] ^= 1 << random.below(8);
                }
                damage.set(random.next());
                is_read && random.below(64) != 0
            };
            let folder = tempfile::tempdir().expect("a folder");
            let base = Base::make(&folder.path().join("base")).expect("made");
            let Some(dead) = DeadSession::of(shared.regions.view.uuid, &found, &read) else { continue };
            let written = dead.mark(&DEATH, &|_, bytes| {
                if bytes.len() <= 8 { Ok(()) } else { Err(std::io::ErrorKind::InvalidData.into()) }
            });
            assert!(written.is_ok());
            if dead.copy_to(&base, &DEATH, &Cell::new(8 << 20)).is_err() {
                assert_eq!(base.sessions().expect("readable"), Vec::<String>::new(), "seed {}", seed + round);
            }
        }
    }

    #[test]
    fn the_oldest_copies_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = Base::make(&folder.path().join("base")).expect("made");
        let make = |name: &str, unique: u64| {
            let mut folder = base.new_folder(name, &format!("{unique:016x}")).expect("a folder");
            folder.publish().expect("published");
        };
        make("app", 1);
        make("app.snapshot-1", 2);
        (0..20).for_each(|pid| make(&format!("app.dead-{pid}"), 100 + pid));
        assert_eq!(remove_oldest(&base), 4);
        assert_eq!(base.sessions().expect("readable").len(), 18);
        assert_eq!(remove_oldest(&base), 0);
    }
}
