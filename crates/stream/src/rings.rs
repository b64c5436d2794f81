//! The rings of a session's stream while they are received: each packet goes straight to its place
//! in a file of its ring, so that the session folder is made without a copy.
//!
//! Beside the spool `NAME.stream` is a folder `NAME.rings`. A ring's file in it has a name of its
//! own, [`raw`], until it has become the region of a stream, [`stream`]. Its packets are one behind
//! the other from [`DATA_OFF`], in the order of their numbers; the begin is left free for the begin
//! of the region.

use crate::counters::{self, Copy};
use crate::head::{DATA_OFF, Head, Region};
use crate::packets::Packets;
use crate::transfer::{NOFOLLOW, copy, take};
use anyhow::{Context, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The ending of the folder's name.
pub(crate) const ENDING: &str = "rings";
/// Most files that are open at a time.
const MOST_OPEN: usize = 64;
/// Most gaps between the packets of a stream, which its tables grow with.
pub(crate) const MOST_GAPS: usize = 1 << 20;
/// Bytes that are written at a time where a file system makes no holes.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// The rings that are being received.
#[derive(Debug)]
pub(crate) struct Rings {
    folder: PathBuf,
    rings: BTreeMap<u32, Ring>,
    /// Gaps between the packets.
    gaps: usize,
    /// A copy of the counters came.
    has_counters: bool,
}

/// Where the next packet of a ring goes.
#[derive(Debug)]
struct Ring {
    file: Option<File>,
    size: u64,
    first: u64,
    next: u64,
    /// A packet that is shorter than a sub-buffer came, after which there is none.
    is_over: bool,
}

impl Rings {
    /// Makes the rings of the spool at `path`. There is no folder before there is a ring.
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            folder: path.with_extension(ENDING),
            rings: BTreeMap::new(),
            gaps: 0,
            has_counters: false,
        }
    }

    /// Returns true if the ring was begun.
    pub(crate) fn has(&self, stream: u32) -> bool {
        self.rings.contains_key(&stream)
    }

    /// Begins a ring, unless it was begun before.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn begin(&mut self, stream: u32, head: &Head) -> anyhow::Result<()> {
        self.make_folder()?;
        let first = head.begin();
        self.rings.entry(stream).or_insert(Ring {
            file: None,
            size: head.size,
            first,
            next: first,
            is_over: false,
        });
        Ok(())
    }

    /// Makes the folder before it gets its first file.
    fn make_folder(&self) -> anyhow::Result<()> {
        if !self.rings.is_empty() || self.has_counters {
            return Ok(());
        }
        let made = DirBuilder::new().mode(0o700).create(&self.folder);
        made.with_context(|| self.folder.display().to_string())
    }

    /// Writes a copy of the counters, which replaces an earlier one. None: they are not sent any
    /// more, and an earlier copy is removed.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn replace_counters(&mut self, copy: Option<&Copy<'_>>) -> anyhow::Result<()> {
        self.make_folder()?;
        self.has_counters = true;
        match copy {
            Some(copy) => copy.write(&self.folder),
            None => counters::remove(&self.folder),
        }
    }

    /// Admits a packet of `length` bytes.
    ///
    /// # Errors
    /// A packet of this number cannot come now, or there are too many gaps.
    pub(crate) fn admit(&mut self, stream: u32, number: u64, length: u64) -> anyhow::Result<()> {
        let none = || format!("a packet of stream {stream} before its Head");
        let ring = self.rings.get_mut(&stream).with_context(none)?;
        ensure!(
            number >= ring.next,
            "packet {number} of stream {stream}, where {} is the next",
            ring.next
        );
        ensure!(
            !ring.is_over,
            "packet {number} of stream {stream} after one that is shorter than a sub-buffer"
        );
        let is_gap = number > ring.next;
        (ring.next, ring.is_over) = (number.saturating_add(1), length < ring.size);
        if is_gap { self.add_gap() } else { Ok(()) }
    }

    /// Counts a gap, which a packet leaves that did not come or is dropped.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn add_gap(&mut self) -> anyhow::Result<()> {
        self.gaps = self.gaps.saturating_add(1);
        ensure!(self.gaps <= MOST_GAPS, "packets with more than {MOST_GAPS} gaps between them");
        Ok(())
    }

    /// Moves a packet from the pipe to its place: `moved` bytes of it, after `before` bytes that
    /// were moved before.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn take(
        &mut self,
        packet: (u32, u64),
        before: u64,
        pipe: BorrowedFd<'_>,
        moved: usize,
    ) -> anyhow::Result<()> {
        let (stream, number) = packet;
        let none = || format!("a packet of stream {stream} before its Head");
        if self.rings.get(&stream).with_context(none)?.file.is_none() {
            self.close_if_many();
        }
        let ring = self.rings.get_mut(&stream).with_context(none)?;
        let at = place(number, ring.first, ring.size)?.saturating_add(before);
        let path = || raw(&self.folder, stream);
        let named = || path().display().to_string();
        let file = match &mut ring.file {
            Some(file) => file,
            none => {
                let options =
                    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).clone();
                none.insert(options.open(path()).with_context(named)?)
            }
        };
        take(file, Some(at), pipe, moved).with_context(named)
    }

    /// Admits `length` bytes at `offset` of the sub-buffer that is being filled.
    ///
    /// # Errors
    /// No sub-buffer has that place.
    pub(crate) fn admit_open(
        &mut self,
        stream: u32,
        offset: u64,
        length: u64,
    ) -> anyhow::Result<()> {
        let none = || format!("a part of stream {stream} before its Head");
        let size = self.rings.get(&stream).with_context(none)?.size;
        ensure!(
            offset.saturating_add(length) <= size,
            "{length} bytes at {offset} of a sub-buffer of {size}"
        );
        Ok(())
    }

    /// Moves bytes of the sub-buffer that is being filled from the pipe to their place, which is
    /// not that of the packet: a packet that does not arrive as a whole spoils nothing.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn take_open(
        &mut self,
        stream: u32,
        offset: u64,
        pipe: BorrowedFd<'_>,
        moved: usize,
    ) -> anyhow::Result<()> {
        let path = open(&self.folder, stream);
        let named = || path.display().to_string();
        // It is written once in an interval, so that it is not kept open.
        let options =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).clone();
        let file = options.open(&path).with_context(named)?;
        take(&file, Some(offset), pipe, moved).with_context(named)
    }

    /// Closes all files if there are as many as may be open at a time.
    fn close_if_many(&mut self) {
        if self.rings.values().filter(|ring| ring.file.is_some()).count() >= MOST_OPEN {
            self.rings.values_mut().for_each(|ring| ring.file = None);
        }
    }
}

/// The offset of a packet in the file of a ring that is received.
fn place(number: u64, first: u64, size: u64) -> anyhow::Result<u64> {
    let index = number.checked_sub(first).filter(|index| *index < crate::head::MOST);
    let index =
        index.with_context(|| format!("packet {number} of a ring that begins with {first}"))?;
    Ok(DATA_OFF.saturating_add(index.saturating_mul(size)))
}

/// The offset of a packet in a region of `count` sub-buffers.
fn place_in_region(number: u64, count: u64, size: u64) -> u64 {
    DATA_OFF.saturating_add(number.checked_rem(count).unwrap_or(0).saturating_mul(size))
}

/// The path of a ring's file while it is received.
fn raw(folder: &Path, stream: u32) -> PathBuf {
    folder.join(format!("raw-{stream:04}"))
}

/// The path of the sub-buffer of a ring that was being filled.
fn open(folder: &Path, stream: u32) -> PathBuf {
    folder.join(format!("open-{stream:04}"))
}

/// Puts the sub-buffer that was being filled, of which `length` bytes came, into its place in the
/// file of its ring, unless the region is made of that already. Where a receiver was killed while
/// it did this, it is done anew.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn place_open(
    folder: &Path,
    index: u32,
    head: &Head,
    (number, length): (u64, u64),
) -> anyhow::Result<()> {
    let path = raw(folder, index);
    if stream(folder, index).exists() && !path.exists() {
        return Ok(());
    }
    let named = || path.display().to_string();
    let from = open(folder, index);
    let from =
        OpenOptions::new().read(true).custom_flags(NOFOLLOW).open(&from).with_context(named)?;
    let options = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(NOFOLLOW)
        .clone();
    let to = options.open(&path).with_context(named)?;
    copy(&from, 0, &to, place(number, head.begin(), head.size)?, length).with_context(named)
}

/// Removes the sub-buffers that were being filled, which are in their regions or were replaced by
/// their packets.
///
/// # Errors
/// One cannot be removed.
pub(crate) fn remove_open(folder: &Path, streams: impl Iterator<Item = u32>) -> anyhow::Result<()> {
    for path in streams.map(|stream| open(folder, stream)) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| path.display().to_string());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes the regions of streams that are copies: the ring's file is still there.
pub(crate) fn remove_copies(folder: &Path) {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for index in entries.filter_map(|name| name.strip_prefix("raw-")?.parse().ok()) {
        let _ = fs::remove_file(stream(folder, index));
    }
}

/// The path of the region of a stream.
pub(crate) fn stream(folder: &Path, stream: u32) -> PathBuf {
    folder.join(format!("stream-{stream:04}"))
}

/// A ring that has arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    file: File,
    path: PathBuf,
    /// Of the first packet.
    first: u64,
    size: u64,
    /// It is the region of the stream already, which has so many sub-buffers.
    count: Option<u64>,
}

impl Arrived {
    /// Opens the file of a ring in a folder; none if no packet of it came.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn open(folder: &Path, index: u32, head: &Head) -> anyhow::Result<Option<Self>> {
        for (path, is_region) in [(raw(folder, index), false), (stream(folder, index), true)] {
            let file = match OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(NOFOLLOW)
                .open(&path)
            {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file.with_context(|| path.display().to_string())?,
            };
            let count = is_region.then(|| Head::read_count(&file)).transpose()?;
            return Ok(Some(Self { file, path, first: head.begin(), size: head.size, count }));
        }
        Ok(None)
    }

    /// Returns the offset of a packet.
    fn offset(&self, number: u64) -> anyhow::Result<u64> {
        match self.count {
            Some(count) => Ok(place_in_region(number, count, self.size)),
            None => place(number, self.first, self.size),
        }
    }

    /// Reads a packet.
    ///
    /// # Errors
    /// The file does not have it.
    pub(crate) fn read(&self, number: u64, bytes: &mut [u8]) -> anyhow::Result<()> {
        self.file
            .read_exact_at(bytes, self.offset(number)?)
            .with_context(|| self.path.display().to_string())
    }

    /// Makes the region of the stream of it, with the packets of these numbers and lengths alone;
    /// all else is a hole. Where a receiver was killed while it did this, it is done anew.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn finish(
        self,
        index: u32,
        region: &Region,
        packets: &Packets,
    ) -> anyhow::Result<()> {
        if self.count.is_some() {
            return Ok(());
        }
        let to = stream(self.path.parent().unwrap_or(Path::new("")), index);
        if self.first.checked_rem(region.count) == Some(0) {
            self.keep(packets)?;
            region.write(&self.file).with_context(|| self.path.display().to_string())?;
            return fs::rename(&self.path, &to).with_context(|| to.display().to_string());
        }
        // Their places turn round within the region.
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .clone();
        let file = options.open(&to).with_context(|| to.display().to_string())?;
        for (number, length) in packets.iter(self.size) {
            let place = place_in_region(number, region.count, self.size);
            copy(&self.file, self.offset(number)?, &file, place, length)?;
        }
        region.write(&file).with_context(|| to.display().to_string())?;
        fs::remove_file(&self.path).with_context(|| self.path.display().to_string())
    }

    /// Makes holes of all but these packets.
    fn keep(&self, packets: &Packets) -> anyhow::Result<()> {
        let mut end = DATA_OFF;
        for (number, bytes) in packets.runs(self.size) {
            let at = self.offset(number)?;
            clear(&self.file, end, at.saturating_sub(end))
                .with_context(|| self.path.display().to_string())?;
            end = at.saturating_add(bytes);
        }
        self.file.set_len(end).with_context(|| self.path.display().to_string())
    }
}

/// Sets bytes of a file to 0.
fn clear(file: &File, offset: u64, length: u64) -> std::io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        other => return Ok(other?),
    }
    let (mut at, end) = (offset, offset.saturating_add(length));
    while at < end {
        let left = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_all_at(ZEROS.get(..left).unwrap_or_default(), at)?;
        at = at.saturating_add(left as u64);
    }
    Ok(())
}
