//! Saves a snapshot as a session of its own, beside the session's folder: `NAME.snapshot-N-UUID`.
//! The copy has the snapshot's halves as its live ones, and is an ended session, so that every
//! command reads it like any other. Packets have the session's UUID in them, so that the copy has
//! the same UUID.
//!
//! Files are read and written by calls. Regions that change meanwhile are copied as a reader of a
//! living session copies them: recorders have left the snapshot's halves, and the registry is read
//! up to an end that was stored before.

use std::fs::File;
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Acquire;

use lastwords_abi::session::{
    CHANNEL_ADDED, Channel, Control, ENDING_UNSEEN, MAX_PROCESSES, Process, SNAPSHOT_OFF,
};
use lastwords_abi::triggers::Triggers;
use lastwords_ring::ClockKind;
use lastwords_ring::backend::{Mapping, open_at};
use rustix::fs::OFlags;

use super::Error;
use super::dirs::{Base, Folder};
use super::region_names::{COUNTERS, REGISTRY, SESSION, stream_name};
use super::regions::Regions;
use super::{extra, window};
use crate::process::cut;
use lastwords_folders::{name_of, unique_of};

/// Largest number of saved snapshots of a session's name that stay.
pub(crate) const MOST_SAVED: usize = 16;
/// Between the session's name and the number of the snapshot, in the name of a copy.
const MARK: &str = ".snapshot-";
/// Largest size of a session's name in the name of a copy, in bytes.
pub const MOST_NAME: usize = 32;
/// Bytes that are copied at a time.
pub const CHUNK: usize = 256 << 10;
/// Blocks of zeroes of this size become holes.
pub const BLOCK: usize = 4096;

/// A snapshot that was saved.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) folder: PathBuf,
    /// Older saved snapshots that were removed.
    pub(crate) removed: u32,
}

/// Saves the snapshot, and frees its rings for the next one. Also returns the errors of folders in
/// which it was to be saved, in place of which it was saved beside the session.
///
/// # Errors
/// There is no snapshot or it is being read; the session is in no files; a file cannot be written.
/// The snapshot stays then.
pub(crate) fn save(regions: &Regions, folder: &Folder) -> Result<(Vec<Saved>, Vec<Error>), Error> {
    let reader = regions.read_snapshot()?;
    if regions.view.control().snapshot_stream.load(Acquire) != 0 {
        return Err(Error::unsupported(
            "saving of a snapshot",
            "it is one of some of the rings",
            "read it with --snapshot",
        ));
    }
    let beside = folder.path.parent().unwrap_or(&folder.path);
    let name = name_of(&folder.name);
    let (mut saved, mut failed) = (Vec::new(), Vec::new());
    for place in places(regions) {
        match place.map(|folder| save_in(regions, &folder, name)) {
            Some(Ok(one)) => saved.push(one),
            Some(Err(error)) => failed.push(error),
            None => saved.push(save_in(regions, beside, name)?),
        }
    }
    if saved.is_empty() {
        saved.push(save_in(regions, beside, name)?);
    }
    reader.release();
    Ok((saved, failed))
}

/// Returns the folders in which the snapshot is to be saved; none stands for that of the session's
/// folder.
fn places(regions: &Regions) -> Vec<Option<PathBuf>> {
    let targets = regions.view.triggers().targets.iter();
    let targets = targets.map(|target| target.load(Acquire)).filter(|target| *target != 0);
    let mut places: Vec<_> = targets.map(|target| extra::folder(&regions.view, target)).collect();
    places.sort();
    places.dedup();
    places
}

/// Returns the two parts of the name of the folder in which a snapshot is saved.
fn names_of_copy(regions: &Regions, name: &str, number: u32) -> (String, String) {
    (format!("{}{MARK}{number}", cut(name, MOST_NAME)), unique_of(&regions.view.uuid))
}

/// Returns the number of the snapshot that was taken last, and the folder beside the session in
/// which it is saved; none if it is not saved there.
pub fn newest(regions: &Regions, folder: &Folder) -> Option<(u32, PathBuf)> {
    let number = regions.view.control().snapshots.load(Acquire);
    let (name, unique) = names_of_copy(regions, name_of(&folder.name), number);
    let copy = folder.path.parent()?.join(format!("{name}-{unique}"));
    copy.is_dir().then_some((number, copy))
}

/// Saves the snapshot as a session in this folder.
fn save_in(regions: &Regions, folder: &Path, name: &str) -> Result<Saved, Error> {
    let base = Base::open(folder)?;
    let (name_of_copy, unique) =
        names_of_copy(regions, name, regions.view.control().snapshots.load(Acquire));
    let mut copy = base.new_folder(&name_of_copy, &unique)?;
    let written = write(regions, &copy).and_then(|()| copy.publish());
    written.inspect_err(|_| drop(copy.remove()))?;
    Ok(Saved { folder: copy.path, removed: remove_oldest(&base, name) })
}

/// Removes the oldest saved snapshots of sessions of this name above [`MOST_SAVED`]. Returns how
/// many.
fn remove_oldest(base: &Base, name: &str) -> u32 {
    let mark = format!("{}{MARK}", cut(name, MOST_NAME));
    let mut copies = base.sessions().unwrap_or_default();
    copies.retain(|folder| name_of(folder).strip_prefix(&mark).is_some_and(is_number));
    copies.sort_by_cached_key(|folder| base.modified(folder));
    let excess = copies.len().saturating_sub(MOST_SAVED);
    let removed = copies
        .iter()
        .take(excess)
        .filter(|old| base.folder(old).and_then(|old| old.remove()).is_ok());
    removed.count() as u32
}

/// Returns true for the number at the end of a copy's name.
pub fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn write(regions: &Regions, to: &Folder) -> Result<(), Error> {
    let view = &regions.view;
    let session = copy_file(&view.mapping, to, SESSION, [0..view.mapping.len(), 0..0])?;
    end(regions, &session).map_err(|error| Error::io("write", to.path.join(SESSION), error))?;
    let registry = &regions.registry.mapping;
    copy_file(registry, to, REGISTRY, [0..registry.len(), 0..0])?;
    if let Some(counters) = &regions.counters {
        // The values of now: an addition is one store, so that each is whole.
        copy_file(counters, to, COUNTERS, [0..counters.len(), 0..0])?;
    }
    let later = later_channels(regions);
    for (index, region) in regions.streams.iter().enumerate() {
        let spec = region.stream.spec();
        if later.contains(&spec.channel) {
            continue;
        }
        if spec.page_size != 0 {
            let why = "the rings are in the memory of its process";
            return Err(Error::unsupported(
                "saving of a snapshot",
                why,
                "use shared memory, or read it with --snapshot",
            ));
        }
        let data = spec.data_range(region.spare(view));
        // Everything before the data: headers, positions and slots of both halves.
        let head = 0..spec.data_range(0).start;
        copy_file(&region.mapping, to, &stream_name(index as u32), [head, data])?;
    }
    Ok(())
}

/// Returns the channels that were created after the snapshot was taken: it has nothing of them. The
/// snapshot stays while it is read.
fn later_channels(regions: &Regions) -> Vec<u32> {
    let snapshots = regions.view.control().snapshots.load(Acquire);
    let channels = regions.view.channels();
    channels
        .filter(|(_, entry)| entry.flags & CHANNEL_ADDED != 0 && entry.snapshots == snapshots)
        .map(|(id, _)| id)
        .collect()
}

/// Makes the copy of the session region one that nobody joins, whose live halves are those of the
/// snapshot. The session goes on, so that the copy has no end.
fn end(regions: &Regions, file: &File) -> std::io::Result<()> {
    let info = &regions.view.info;
    let at = |field: usize| u64::from(info.control_off) + field as u64;
    let put = |field: usize, number: u32| file.write_all_at(&number.to_ne_bytes(), at(field));
    let flip = regions.view.control().flip.load(Acquire);
    put(offset_of!(Control, flip), flip ^ 1)?;
    put(offset_of!(Control, recording), 0)?;
    put(offset_of!(Control, finished), 1)?;
    put(offset_of!(Control, snapshot), SNAPSHOT_OFF)?;
    put(offset_of!(Control, ending), ENDING_UNSEEN)?;
    put(offset_of!(Control, ended_by), 0)?;
    file.write_all_at(&ClockKind::Realtime.now().to_ne_bytes(), at(offset_of!(Control, ended)))?;
    // The table may have channels that are younger than the snapshot.
    for id in later_channels(regions) {
        let entry = u64::from(info.channels_off) + u64::from(id) * size_of::<Channel>() as u64;
        file.write_all_at(&[0; size_of::<Channel>()], entry)?;
    }
    let triggers_off = regions.view.triggers_off;
    forget_processes(file, info.control_off, info.processes_off, triggers_off)?;
    let Some(window) = window::of_snapshot(regions.view.triggers()) else { return Ok(()) };
    let fields = [
        offset_of!(Triggers, window_begin),
        offset_of!(Triggers, window_end),
        offset_of!(Triggers, window_from),
    ];
    for (field, word) in fields.into_iter().zip(window) {
        file.write_all_at(&word.to_ne_bytes(), u64::from(triggers_off) + field as u64)?;
    }
    file.write_all_at(
        &1u32.to_ne_bytes(),
        u64::from(triggers_off) + offset_of!(Triggers, is_cut) as u64,
    )
}

/// Removes from the copy of a session region what belongs to processes that have no part in the
/// copy: locks, the table of processes, and triggers, if the session has them (`triggers_off` is
/// not 0).
fn forget_processes(
    file: &File,
    control_off: u32,
    processes_off: u32,
    triggers_off: u32,
) -> std::io::Result<()> {
    let mut places = forgotten(control_off, processes_off, triggers_off);
    places.try_for_each(|(at, length)| file.write_all_at(&vec![0; length], at))
}

/// Returns the places of what belongs to processes in a session region, as offsets and lengths
/// (`forget_processes`).
pub fn forgotten(
    control_off: u32,
    processes_off: u32,
    triggers_off: u32,
) -> impl Iterator<Item = (u64, usize)> {
    let locks = [
        offset_of!(Control, snapshot_lock),
        offset_of!(Control, snapshot_reader),
        offset_of!(Control, rules.lock),
        offset_of!(Control, channels_lock),
    ];
    let locks = locks.into_iter().map(move |lock| (u64::from(control_off) + lock as u64, 8));
    let processes = (u64::from(processes_off), MAX_PROCESSES * size_of::<Process>());
    let triggers = (triggers_off != 0).then_some((u64::from(triggers_off), size_of::<Triggers>()));
    locks.chain([processes]).chain(triggers)
}

/// Writes bytes into a new file. Blocks of zeroes stay holes.
fn write_sparse(file: &File, bytes: &[u8], mut at: u64) -> std::io::Result<()> {
    for block in bytes.chunks(BLOCK) {
        if block.iter().any(|byte| *byte != 0) {
            file.write_all_at(block, at)?;
        }
        at += block.len() as u64;
    }
    Ok(())
}

/// Creates the file of a region in the folder of a copy.
pub fn create_file(to: &Folder, name: &str, len: u64) -> Result<File, Error> {
    let shown = to.path.join(name);
    let created = open_at(to.fd()?, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL);
    let file = File::from(created.map_err(|error| Error::io("create", &shown, error))?);
    file.set_len(len).map_err(|error| Error::io("ftruncate", &shown, error))?;
    Ok(file)
}

/// Copies two ranges of a region into a file of the region's size. The rest of the file is a hole.
fn copy_file(
    from: &Mapping,
    to: &Folder,
    name: &str,
    ranges: [Range<u64>; 2],
) -> Result<File, Error> {
    let Some((path, offset)) = from.place() else {
        let why = "the session is in no file";
        return Err(Error::unsupported(
            "saving of a snapshot",
            why,
            "use shared memory, or read it with --snapshot",
        ));
    };
    let source = File::open(path).map_err(|error| Error::io("open", path, error))?;
    let shown = to.path.join(name);
    let file = create_file(to, name, from.len())?;
    let mut buffer = vec![0; CHUNK];
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let chunk = &mut buffer[..CHUNK.min((range.end - at) as usize)];
            source
                .read_exact_at(chunk, offset + at)
                .map_err(|error| Error::io("read", path, error))?;
            write_sparse(&file, chunk, at).map_err(|error| Error::io("write", &shown, error))?;
            at += chunk.len() as u64;
        }
    }
    Ok(file)
}
