//! Typed access to a session region.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use lastwords_abi::region;
use lastwords_abi::session::{
    Channel, ClockArea, Control, Filters, Guards, MAX_CHANNELS, MAX_PROCESSES, OwnerLock, Process,
    SessionInfo, Thread,
};
use lastwords_abi::sync::AtomicU32;
use lastwords_abi::triggers::{Conditions, Triggers};
use lastwords_ring::SessionParts;
use lastwords_ring::backend::Mapping;
use lastwords_ring::os::{self, Lock};
use lastwords_ring::{ClockKind, flush, init};
use rustix::thread::futex::{self, Flags};

use super::backends::is_persistent;
use super::error::Error;
use crate::session::liveness::{Identity, Table};
use crate::session::rules::Tables;
use crate::session::text::text;

/// The session region. It is accessed through atomics. Fields that are not atomic are written
/// before others see the region.
#[derive(Debug)]
pub struct SessionRegion {
    /// Its memory.
    pub mapping: Mapping,
    /// A copy of the constant part.
    pub info: SessionInfo,
    /// UUID of the session.
    pub uuid: [u8; 16],
    /// Offset of the filters.
    filters_off: u32,
    /// Offset of the triggers.
    pub triggers_off: u32,
    /// Offset of the conditions.
    conditions_off: u32,
    /// Offset of the guards of processes; 0 if there are none.
    guards_off: u32,
}

impl SessionRegion {
    /// Checks a mapped region and gives access to it.
    pub(crate) fn new(mapping: Mapping) -> Result<Self, Error> {
        let path = path_of(&mapping);
        // SAFETY: mappings are page-aligned, and readable for their length.
        let read = unsafe {
            init::read_region::<SessionInfo>(mapping.as_ptr(), mapping.len(), region::KIND_SESSION)
        };
        let (header, info) =
            read.map_err(|error| Error::region(path, error.offset as u64, error.what))?;
        check_offsets(&info, &mapping)?;
        let mut view = Self {
            mapping,
            info,
            uuid: header.session,
            filters_off: 0,
            triggers_off: 0,
            conditions_off: 0,
            guards_off: 0,
        };
        let control = view.control();
        let rules = &control.rules;
        view.filters_off = view.area::<Filters>("filters", &rules.filters_off)?;
        view.triggers_off = view.area::<Triggers>("triggers", &rules.triggers_off)?;
        view.conditions_off = view.area::<Conditions>("conditions", &rules.conditions_off)?;
        // The version before 1.3 has none. A wrong offset, which no checksum covers, costs them.
        view.guards_off = view.area::<Guards>("guards", &control.guards_off).unwrap_or(0);
        Ok(view)
    }

    /// Checks the offset of an area, which is one of the control words.
    fn area<T>(&self, name: &str, offset: &AtomicU32) -> Result<u32, Error> {
        let at = core::ptr::from_ref(offset).addr() - self.mapping.as_ptr().addr();
        let offset = offset.load(Acquire);
        check(name, (offset, size_of::<T>() as u64), at as u64, &self.mapping)?;
        Ok(offset)
    }

    /// Returns the conditions of triggers.
    pub(crate) fn conditions(&self) -> &'static Conditions {
        // SAFETY: `area` checked that it is inside the mapping and aligned; everything in it is
        // atomic.
        unsafe { &*self.at(self.conditions_off) }
    }

    /// Returns the area of the triggers.
    pub(crate) fn triggers(&self) -> &'static Triggers {
        // SAFETY: the reasons of `conditions` apply.
        unsafe { &*self.at(self.triggers_off) }
    }

    /// Returns the rules and their filters.
    pub fn rules(&self) -> Tables<'static> {
        // SAFETY: the reasons of `conditions` apply.
        let filters = unsafe { &*self.at(self.filters_off) };
        Tables { rules: &self.control().rules, filters }
    }

    fn at<T>(&self, offset: u32) -> *mut T {
        // SAFETY: `check_offsets` checked that the part is inside the mapping.
        unsafe { self.mapping.as_ptr().add(offset as usize).cast() }
    }

    /// Returns the control words, which change at run time.
    pub fn control(&self) -> &'static Control {
        // SAFETY: `check_offsets` checked that the area is inside the mapping and aligned;
        // everything in it that changes is atomic.
        unsafe { &*self.at(self.info.control_off) }
    }

    /// Returns the area of the clock.
    pub(crate) fn clock(&self) -> &'static ClockArea {
        // SAFETY: the reasons of `control` apply.
        unsafe { &*self.at(self.info.clock_off) }
    }

    /// Returns the kind of clock; none if this program does not know it.
    pub fn clock_kind(&self) -> Option<ClockKind> {
        ClockKind::from_code(self.clock().kind.load(Relaxed))
    }

    /// Iterates over the channels that are in use, with their ids.
    pub fn channels(&self) -> impl Iterator<Item = (u32, &'static Channel)> + use<> {
        // SAFETY: the reasons of `control` apply; fields that are not atomics are written before
        // `state` and not changed.
        let table: &'static [Channel] =
            unsafe { core::slice::from_raw_parts(self.at(self.info.channels_off), MAX_CHANNELS) };
        table
            .iter()
            .enumerate()
            .filter(|(_, channel)| channel.state.load(Acquire) == 1)
            .map(|(id, c)| (id as u32, c))
    }

    /// Returns the first free place of the table of channels.
    pub(crate) fn free_channel(&self) -> Option<u32> {
        // SAFETY: the entry is inside the table, and its state is atomic.
        let is_free =
            |id: &u32| unsafe { &(*self.channel_ptr(*id as usize)).state }.load(Acquire) == 0;
        (0..MAX_CHANNELS as u32).find(is_free)
    }

    /// Returns an entry of the table of channels, for writing before it is published.
    pub(crate) fn channel_ptr(&self, id: usize) -> *mut Channel {
        assert!(id < MAX_CHANNELS, "channel {id}: the table has {MAX_CHANNELS}");
        // SAFETY: the entry is inside the table.
        unsafe { self.at::<Channel>(self.info.channels_off).add(id) }
    }

    /// Returns the table of processes that joined.
    pub(crate) fn processes(&self) -> &'static [Process] {
        // SAFETY: the reasons of `control` apply.
        unsafe { core::slice::from_raw_parts(self.at(self.info.processes_off), MAX_PROCESSES) }
    }

    /// Returns the guards of the processes; none in sessions of versions before 1.3.
    pub(crate) fn guards(&self) -> Option<&'static Guards> {
        // SAFETY: `of` checked that the area is inside the mapping and aligned; everything in it is
        // atomic.
        (self.guards_off != 0).then(|| unsafe { &*self.at::<Guards>(self.guards_off) })
    }

    /// Returns the table of processes with their guards.
    pub fn table(&self) -> Table<'_> {
        Table { processes: self.processes(), guards: self.guards(), mapping: Some(&self.mapping) }
    }

    /// Notes the file of the region, so that readers recognize copies of it. Called by the creator.
    pub(crate) fn note_place(&self) {
        if let Some(guards) = self.guards() {
            let (device, inode) = self.mapping.identity().unwrap_or_default();
            guards.device.store(device, Relaxed);
            guards.inode.store(inode, Relaxed);
        }
    }

    /// Returns the parts that recorders need.
    pub fn parts(&self) -> SessionParts {
        // SAFETY: this is a checked session region, mapped for the life of the process, and `info`
        // is the copy of its info whose offsets were checked.
        unsafe { SessionParts::of_region(self.mapping.as_ptr(), &self.info) }
    }

    /// Notes in the session, before this process takes a lock, if the process is not of the
    /// creator's pid namespace. A forked child may be of another namespace than its parent.
    /// Async-signal-safe.
    pub(crate) fn tell_namespace(&self) {
        if self.info.creator_pidns != Identity::current().pidns {
            self.control().namespaces.store(1, Release);
        }
    }

    /// Returns true if processes of another pid namespace may take part. This process cannot
    /// interpret their ids.
    #[cfg(feature = "tracing")]
    pub(crate) fn is_foreign(&self) -> bool {
        self.control().namespaces.load(Acquire) != 0
    }

    /// Returns the name of the session.
    pub fn name(&self) -> String {
        text(&self.info.name)
    }

    /// Writes the control words back if they are in persistent memory. Async-signal-safe.
    pub(crate) fn keep_control(&self) {
        if is_persistent(self.info.backend) {
            // SAFETY: this is the control area, which is mapped.
            unsafe {
                flush::flush(core::ptr::from_ref(self.control()).cast(), size_of::<Control>())
            };
            let filters = core::ptr::from_ref(self.rules().filters).cast();
            // SAFETY: this is the area of the filters, which is mapped.
            unsafe { flush::flush(filters, size_of::<Filters>()) };
            flush::fence();
        }
    }

    /// Notifies all processes of a change.
    pub fn announce(&self) {
        self.keep_control();
        let generation = &self.control().generation;
        generation.fetch_add(1, SeqCst);
        wake(generation);
    }
}

/// Runs `change` under a lock of a session. The error is the thread that holds the lock.
pub(crate) fn locked<T>(
    lock: &OwnerLock,
    namespaces: &AtomicU32,
    change: impl FnOnce() -> T,
) -> Result<T, u32> {
    let mine = lastwords_ring::lock_word();
    if os::lock(lock, mine, || namespaces.load(Acquire) != 0) == Lock::Refused {
        return Err((lock.load(Relaxed) >> 32) as u32);
    }
    let done = change();
    os::unlock(lock, mine);
    Ok(done)
}

/// Returns the file of a region, for messages; the region's name if it is in no file.
pub(crate) fn path_of(mapping: &Mapping) -> &str {
    mapping.place().map_or(&mapping.name, |(path, _)| path)
}

/// Checks that a mapped region has this kind and a version that this program writes.
pub(crate) fn check_header(mapping: &Mapping, kind: u32) -> Result<(), Error> {
    // SAFETY: mappings are page-aligned, and readable for their length.
    let header = unsafe { init::check_header(mapping.as_ptr(), mapping.len(), kind) };
    header
        .map(drop)
        .map_err(|error| Error::region(path_of(mapping), error.offset as u64, error.what))
}

fn check_offsets(info: &SessionInfo, mapping: &Mapping) -> Result<(), Error> {
    let threads = u64::from(info.threads) * size_of::<Thread>() as u64;
    let parts = [
        ("control", info.control_off, size_of::<Control>() as u64),
        ("clock", info.clock_off, size_of::<ClockArea>() as u64),
        ("channels", info.channels_off, (MAX_CHANNELS * size_of::<Channel>()) as u64),
        ("processes", info.processes_off, (MAX_PROCESSES * size_of::<Process>()) as u64),
        ("threads", info.threads_off, threads),
    ];
    let mut parts = parts.into_iter();
    parts.try_for_each(|(name, offset, size)| {
        check(name, (offset, size), u64::from(region::HEADER_SIZE), mapping)
    })
}

/// Checks the offset and the size of a part of the region. `at` is where the region has the offset.
fn check(name: &str, (offset, size): (u32, u64), at: u64, mapping: &Mapping) -> Result<(), Error> {
    let len = mapping.len();
    if offset != 0 && u64::from(offset) + size <= len && offset.is_multiple_of(64) {
        return Ok(());
    }
    let what = format!("the {name} at {offset}, {size} bytes, do not lie in the region's {len}");
    Err(Error::region(path_of(mapping), at, what))
}

/// Wakes the threads of all processes that wait on a word.
pub(crate) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::dirs::Folder;
    use crate::session::regions::Regions;
    use std::mem::offset_of;
    use std::os::unix::fs::FileExt;

    #[test]
    fn offsets_that_change_after_they_were_checked_are_not_used() {
        let dir = tempfile::tempdir().expect("a folder");
        let session =
            crate::Session::builder("offsets").dir(dir.path()).start().expect("a session");
        let folder = session.folder().expect("its folder");
        let regions = Regions::open(&Folder::open(folder).expect("opened")).expect("its regions");
        let before = format!("{:?}", regions.view.parts());
        let file =
            std::fs::File::options().write(true).open(folder.join("session")).expect("the region");
        for field in [
            offset_of!(SessionInfo, control_off),
            offset_of!(SessionInfo, clock_off),
            offset_of!(SessionInfo, threads_off),
        ] {
            let at = u64::from(region::HEADER_SIZE) + field as u64;
            file.write_all_at(&0xffff_ffc0_u32.to_ne_bytes(), at).expect("changed");
        }
        // A read of the changed offsets is one beyond the mapping.
        assert_eq!(format!("{:?}", regions.view.parts()), before);
    }
}
