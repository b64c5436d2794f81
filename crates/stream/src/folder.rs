//! The session folder that is made of a session's stream.
//!
//! The folder has the regions of the session as files. The region of a stream is a ring with room
//! for all sub-buffers that came, so that each is in the place that its number gives, where
//! `rings.rs` has put it. `counters.rs` has written the counters beside them. Places of sub-buffers that did not come stay holes, which every reader
//! tells as damage.

use crate::counters;
use crate::head::Head;
use crate::packets::Packets;
use crate::rings::{self, Arrived, MOST_GAPS};
use crate::transfer::{copy, create};
use crate::wire::{End, FrameKind, HEADER, Header, Hello, MAGIC, NUMBER, Order, SessionInfo};
use anyhow::{Context, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};

/// The names of the files of the session region and of the registry, by their kind.
const REGIONS: [(u32, &str); 2] = [(1, "session"), (2, "registry")];
/// Bytes of what a spool has of a packet.
pub(crate) const PLACED: u64 = 2 * NUMBER;
/// Bytes of what a spool has of a part of a sub-buffer that is being filled.
const PLACED_OPEN: u64 = 3 * NUMBER;

/// A stream of a session that was saved as a session folder.
#[derive(Debug, Clone, Serialize)]
pub struct Session {
    /// The folder.
    pub path: PathBuf,
    /// Name of the sender's machine, as the sender gives it.
    pub host: String,
    /// Name of the session.
    pub session: String,
    /// Bytes of sub-buffers.
    pub bytes: u64,
    /// Number of sub-buffers.
    pub sub_buffers: u64,
    /// Sub-buffers that did not come, or were overwritten while they were sent.
    pub lost_sub_buffers: u64,
    /// Events that the rings counted as lost; none if the stream ended early, so that the last
    /// count is missing.
    pub lost_events: Option<u64>,
    /// Why the stream ended early; none if it is complete.
    pub ended_early: Option<String>,
}

/// Bytes of the spool.
#[derive(Debug, Clone, Copy)]
struct Part {
    offset: u64,
    length: u64,
}

/// One ring.
#[derive(Debug, Default)]
struct Ring {
    head: Option<Head>,
    /// The packets that came.
    packets: Packets,
    /// The number of the sub-buffer that was being filled last, and the bytes of it that came.
    open: Option<(u64, u64)>,
}

/// The parts of a stream.
#[derive(Debug, Default)]
struct Contents {
    hello: Option<Hello>,
    session: Option<SessionInfo>,
    /// Parts of regions in the order in which they came: kind, offset in the region, and where the
    /// spool has them.
    regions: Vec<(u32, u64, Part)>,
    rings: BTreeMap<u32, Ring>,
    end: Option<End>,
    why: Option<String>,
}

/// Makes the folder of a spool, if that has the stream of a session. `why`: the stream ended early,
/// and why. Returns none if it is no such stream, or if the description of the session did not
/// come, so that nothing can be read.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn make(
    spool: &File,
    path: &Path,
    why: Option<&str>,
) -> anyhow::Result<Option<Session>> {
    let mut contents = Contents::read(spool)?;
    let (Some(hello), Some(info)) = (contents.hello.take(), contents.session.take()) else {
        return Ok(None);
    };
    if REGIONS.iter().any(|(kind, _)| !contents.regions.iter().any(|(of, ..)| of == kind)) {
        return Ok(None);
    }
    let is_complete = contents.end.is_some();
    let unique = info.uuid.get(..16).unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let folder = path.with_file_name(format!("{name}-{unique}"));
    // A receiver that was killed before it removed the spool has left the folder, which is
    // finished. No other stream has a spool of this name, because a new spool does not get the name
    // of a folder that is there.
    let is_finished = folder.symlink_metadata().is_ok();
    let new = if is_finished { folder.clone() } else { path.with_extension(rings::ENDING) };
    if !is_complete {
        // Without the end, it is not known which of the last packets were overwritten while they
        // were sent, so that only those count that their checksums prove. A sub-buffer that is not
        // closed has none.
        for (index, ring) in &mut contents.rings {
            ring.keep_closed(&new, *index)?;
            ring.add_open(&new, *index, is_finished)?;
        }
    }
    let why = why
        .map(str::to_owned)
        .or_else(|| contents.why.take())
        .unwrap_or_else(|| "it has no end".to_owned());
    let rings = contents.rings.values();
    let session = Session {
        path: folder.clone(),
        host: hello.host,
        session: info.name,
        bytes: rings.clone().map(Ring::bytes).fold(0, u64::saturating_add),
        sub_buffers: rings.clone().map(|ring| ring.packets.len()).fold(0, u64::saturating_add),
        lost_sub_buffers: rings.clone().map(Ring::lost).fold(0, u64::saturating_add),
        lost_events: is_complete.then(|| {
            let heads = rings.filter_map(|ring| ring.head.as_ref());
            heads.fold(0u64, |sum, head| sum.saturating_add(head.lost))
        }),
        ended_early: (!is_complete).then(|| why.clone()),
    };
    if !is_finished {
        // It is there if a ring had begun.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&new)
            .with_context(|| new.display().to_string())?;
        let written = contents.write(spool, &new, session.ended_early.as_deref());
        let renamed = written.and_then(|()| {
            fs::rename(&new, &folder)
                .with_context(|| format!("{}: cannot be written", folder.display()))
        });
        if let Err(error) = renamed {
            remove_made(&new);
            return Err(error);
        }
    }
    Ok(Some(session))
}

/// Removes what was made of a spool in a folder, after that has failed. What arrived stays: the
/// next receiver makes it again.
fn remove_made(folder: &Path) {
    for name in REGIONS.map(|(_, name)| name).into_iter().chain([lastwords_open::ENDED_EARLY]) {
        let _ = fs::remove_file(folder.join(name));
    }
    rings::remove_copies(folder);
    // It is empty if no ring had begun.
    let _ = fs::remove_dir(folder);
}

/// Returns true if a session's stream of this name was saved: there is a folder of the name, `-`,
/// and 16 hexadecimal digits.
///
/// # Errors
/// The folder of the receiver cannot be read.
pub(crate) fn exists(receiver: &Path, name: &str) -> anyhow::Result<bool> {
    let entries = fs::read_dir(receiver).with_context(|| receiver.display().to_string())?;
    let is_of = |entry: fs::DirEntry| {
        let other = entry.file_name().to_string_lossy().into_owned();
        let unique = other.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        unique.is_some_and(|unique| {
            unique.len() == 16 && unique.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    Ok(entries.filter_map(Result::ok).any(is_of))
}

impl Ring {
    /// Returns the position where the ring ends: by its head if the stream is complete, else after
    /// the last packet.
    fn end(&self) -> u64 {
        let Some(head) = &self.head else { return 0 };
        self.packets.end(head.size).max(head.end)
    }

    /// Returns the bytes of all packets.
    fn bytes(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| self.packets.bytes(head.size))
    }

    /// Drops the packets that are not closed sub-buffers of their numbers.
    fn keep_closed(&mut self, folder: &Path, index: u32) -> anyhow::Result<()> {
        let Some(head) = &self.head else { return Ok(()) };
        let Some(file) = Arrived::open(folder, index, head)? else { return Ok(()) };
        let (mut bytes, mut wrong) = (Vec::new(), Vec::new());
        for (number, length) in self.packets.iter(head.size) {
            bytes.resize(usize::try_from(length)?, 0);
            file.read(number, &mut bytes)?;
            if length != head.size || !head.is_closed(number, &bytes) {
                wrong.push(number);
            }
        }
        wrong.into_iter().for_each(|number| self.packets.remove(number));
        Ok(())
    }

    /// Adds the sub-buffer that was being filled when the stream ended early. It was copied by the
    /// sender before it was sent, so that no recorder can have changed it, and its packet came if
    /// it was closed later.
    fn add_open(&mut self, folder: &Path, index: u32, is_finished: bool) -> anyhow::Result<()> {
        let (Some(head), Some((number, length))) = (&self.head, self.open) else { return Ok(()) };
        let next = self.packets.end(head.size).div_ceil(head.size).max(head.begin());
        if number < next || length == 0 {
            return Ok(());
        }
        if !is_finished {
            rings::place_open(folder, index, head, (number, length))?;
        }
        self.packets.insert(number, length, head.size, MOST_GAPS)
    }

    /// Returns the number of the first sub-buffer.
    fn first(&self) -> u64 {
        self.head.as_ref().map_or(0, Head::begin)
    }

    /// Returns the number of sub-buffers between the begin and the end that are not there.
    fn lost(&self) -> u64 {
        let Some(head) = &self.head else { return 0 };
        let all = self.end().div_ceil(head.size).saturating_sub(self.first());
        all.saturating_sub(self.packets.len())
    }
}

impl Contents {
    /// Reads the frames. What is behind a frame that is damaged or cut is not used.
    fn read(spool: &File) -> anyhow::Result<Self> {
        let (mut contents, mut order) = (Self::default(), Order::default());
        let (mut at, length) = (MAGIC.len() as u64, spool.metadata()?.len());
        while at.saturating_add(HEADER as u64) <= length && !order.is_over() {
            let mut bytes = [0; HEADER];
            spool.read_exact_at(&mut bytes, at)?;
            let offset = at.saturating_add(HEADER as u64);
            let taken = Header::read(bytes).map_err(anyhow::Error::from).and_then(|header| {
                order.admit(&header)?;
                let packet = Part { offset, length: header.length };
                let is_whole = offset.saturating_add(header.length) <= length;
                is_whole.then(|| contents.take(spool, &mut order, &header, packet)).transpose()?;
                Ok(packet.offset.saturating_add(packet.length))
            });
            match taken {
                Ok(next) => at = next,
                Err(error) => {
                    contents.why = Some(format!("offset {at}: {error:#}"));
                    break;
                }
            }
        }
        Ok(contents)
    }

    fn take(
        &mut self,
        spool: &File,
        order: &mut Order,
        header: &Header,
        content: Part,
    ) -> anyhow::Result<()> {
        let read = |length: u64| -> anyhow::Result<Vec<u8>> {
            let mut bytes = vec![0; usize::try_from(length)?];
            spool.read_exact_at(&mut bytes, content.offset)?;
            Ok(bytes)
        };
        let number = || -> anyhow::Result<u64> {
            Ok(read(NUMBER)?.first_chunk::<8>().map_or(0, |number| u64::from_le_bytes(*number)))
        };
        let rest = Part {
            offset: content.offset.saturating_add(NUMBER),
            length: content.length.saturating_sub(NUMBER),
        };
        match header.kind {
            FrameKind::Hello => {
                self.hello =
                    Some(serde_json::from_slice(&read(header.length)?).context("the frame Hello")?)
            }
            FrameKind::Session => {
                order.describe(header, &read(header.length)?).context("the frame Session")?;
                self.session = order.session().cloned();
            }
            FrameKind::Region => self.regions.push((header.cpu, number()?, rest)),
            FrameKind::Head => {
                let bytes = read(header.length)?;
                order.describe(header, &bytes).context("the frame Head")?;
                self.rings.entry(header.cpu).or_default().head = Some(Head::read(&bytes)?);
            }
            FrameKind::Packet => {
                ensure!(
                    content.length == PLACED,
                    "a packet of {} bytes in the spool of an older receiver",
                    content.length
                );
                let length =
                    read(PLACED)?.last_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length));
                let ring = self.rings.entry(header.cpu).or_default();
                let size = ring.head.as_ref().map_or(length, |head| head.size);
                ring.packets.insert(number()?, length, size, MOST_GAPS)?;
            }
            FrameKind::Open => {
                ensure!(
                    content.length == PLACED_OPEN,
                    "a part of {} bytes in the spool",
                    content.length
                );
                let words = read(PLACED_OPEN)?;
                let word = |at: usize| words.get(at..).and_then(|words| words.first_chunk::<8>());
                let [number, offset, length] =
                    [0, 8, 16].map(|at| word(at).map_or(0, |word| u64::from_le_bytes(*word)));
                let ring = self.rings.entry(header.cpu).or_default();
                let before = ring.open.filter(|(of, _)| *of == number).map_or(0, |(_, has)| has);
                // Parts follow each other without a gap.
                ring.open = (offset <= before)
                    .then_some((number, before.max(offset.saturating_add(length))));
            }
            FrameKind::Overwritten => {
                self.rings.entry(header.cpu).or_default().packets.remove(number()?);
            }
            FrameKind::End => {
                self.end =
                    Some(serde_json::from_slice(&read(header.length)?).context("the frame End")?)
            }
            _ => {}
        }
        Ok(())
    }

    fn write(&self, spool: &File, folder: &Path, ended_early: Option<&str>) -> anyhow::Result<()> {
        for (kind, name) in REGIONS {
            let file = create(&folder.join(name))?;
            for (_, offset, part) in self.regions.iter().filter(|(of, ..)| *of == kind) {
                copy(spool, part.offset, &file, *offset, part.length)?;
            }
            // A region is as large as its header says.
            let mut size = [0; 8];
            file.read_exact_at(&mut size, 32).context("the size of a region")?;
            let length = file.metadata()?.len();
            let sizes = [u64::from_le_bytes(size), u64::from_be_bytes(size)];
            let size = sizes.into_iter().filter(|size| *size >= length).min().unwrap_or(length);
            ensure!(size <= 256 << 20, "a region of {size} bytes");
            file.set_len(size)?;
        }
        for (index, ring) in &self.rings {
            let Some(head) = &ring.head else { continue };
            let region = head.region(ring.first(), ring.end())?;
            match Arrived::open(folder, *index, head)? {
                Some(file) => file.finish(*index, &region, &ring.packets)?,
                None => region.write(&create(&rings::stream(folder, *index))?)?,
            }
        }
        rings::remove_open(folder, self.rings.keys().copied())?;
        counters::remove_unfinished(folder);
        if let Some(why) = ended_early {
            fs::write(folder.join(lastwords_open::ENDED_EARLY), why)?;
        }
        Ok(())
    }
}

/// Returns what the spool has of a packet in place of its bytes: its number and its length.
pub(crate) fn placed(cpu: u32, number: u64, length: u64) -> Vec<u8> {
    let header = Header { kind: FrameKind::Packet, cpu, length: PLACED };
    [&header.bytes()[..], &number.to_le_bytes(), &length.to_le_bytes()].concat()
}

/// Returns what the spool has of a part of a sub-buffer that is being filled: its number, the
/// offset of the part and its length.
pub(crate) fn placed_open(cpu: u32, number: u64, offset: u64, length: u64) -> Vec<u8> {
    let header = Header { kind: FrameKind::Open, cpu, length: PLACED_OPEN };
    let words = [number, offset, length].map(u64::to_le_bytes);
    [&header.bytes()[..], &words.concat()].concat()
}
