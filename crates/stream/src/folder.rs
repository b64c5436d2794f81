//! The session folder that is made of a session's stream.
//!
//! The folder has the regions of the session as files. The region of a stream is a ring with room for all sub-buffers that came, so
//! that each is in the place that its number gives. Places of sub-buffers that did not come stay holes, which every reader tells as
//! damage.

use crate::head::Head;
use crate::wire::{End, HEADER, Header, Hello, Kind, MAGIC, NUMBER, Order, SessionInfo};
use anyhow::{Context, bail, ensure};
use rustix::fs::copy_file_range;
use rustix::io::Errno;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The names of the files of the session region and of the registry, by their kind.
const REGIONS: [(u32, &str); 2] = [(1, "session"), (2, "registry")];
/// Most bytes of one call that copies.
const CHUNK: u64 = 1 << 30;

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
    /// Events that the rings counted as lost; none if the stream ended early, so that the last count is missing.
    pub lost_events: Option<u64>,
    /// Why the stream ended early; none if it is complete.
    pub ended_early: Option<String>,
}

/// A sub-buffer in the spool.
#[derive(Debug, Clone, Copy)]
struct Packet {
    offset: u64,
    length: u64,
}

/// One ring.
#[derive(Debug, Default)]
struct Ring {
    head: Option<Head>,
    packets: BTreeMap<u64, Packet>,
}

/// The parts of a stream.
#[derive(Debug, Default)]
struct Contents {
    hello: Option<Hello>,
    session: Option<SessionInfo>,
    /// Parts of regions in the order in which they came: kind, offset in the region, and where the spool has them.
    regions: Vec<(u32, u64, Packet)>,
    rings: BTreeMap<u32, Ring>,
    end: Option<End>,
    why: Option<String>,
}

/// Makes the folder of a spool, if that has the stream of a session. `why`: the stream ended early, and why. Returns none if it is no
/// such stream, or if the description of the session did not come, so that nothing can be read.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn make(spool: &File, path: &Path, why: Option<&str>) -> anyhow::Result<Option<Session>> {
    let mut contents = Contents::read(spool)?;
    let (Some(hello), Some(info)) = (contents.hello.take(), contents.session.take()) else { return Ok(None) };
    if REGIONS.iter().any(|(kind, _)| !contents.regions.iter().any(|(of, ..)| of == kind)) {
        return Ok(None);
    }
    let is_complete = contents.end.is_some();
    if !is_complete {
        // Without the end, it is not known which of the last packets were overwritten while they were sent, so that only those count
        // that their checksums prove. A sub-buffer that is not closed has none.
        contents.rings.values_mut().try_for_each(|ring| ring.keep_closed(spool))?;
    }
    let why = why.map(str::to_owned).or_else(|| contents.why.take()).unwrap_or_else(|| "it has no end".to_owned());
    let unique = info.uuid.get(..16).unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let folder = path.with_file_name(format!("{name}-{unique}"));
    let rings = contents.rings.values();
    let packets = rings.clone().flat_map(|ring| ring.packets.values());
    let session = Session {
        path: folder.clone(),
        host: hello.host,
        session: info.name,
        bytes: packets.clone().fold(0, |sum, packet| sum.saturating_add(packet.length)),
        sub_buffers: packets.count() as u64,
        lost_sub_buffers: rings.clone().map(Ring::lost).fold(0, u64::saturating_add),
        lost_events: is_complete.then(|| {
            let heads = rings.filter_map(|ring| ring.head.as_ref());
            heads.fold(0u64, |sum, head| sum.saturating_add(head.lost))
        }),
        ended_early: (!is_complete).then(|| why.clone()),
    };
    // A receiver that was killed before it removed the spool has left the folder, which is finished. No other stream has a spool of this
    // name, because a new spool does not get the name of a folder that is there.
    if folder.symlink_metadata().is_ok() {
        return Ok(Some(session));
    }
    let new = folder.with_extension("new");
    // A receiver that was killed may have left it.
    match fs::remove_dir_all(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).context(new.display().to_string()),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(&new).with_context(|| new.display().to_string())?;
    let written = contents.write(spool, &new, session.ended_early.as_deref());
    let renamed = || fs::rename(&new, &folder).with_context(|| format!("{}: cannot be written", folder.display()));
    if let Err(error) = written.and_then(|()| renamed()) {
        let _ = fs::remove_dir_all(&new);
        return Err(error);
    }
    Ok(Some(session))
}

/// Returns true if a session's stream of this name was saved: there is a folder of the name, `-`, and 16 hexadecimal digits.
///
/// # Errors
/// The folder of the receiver cannot be read.
pub(crate) fn exists(receiver: &Path, name: &str) -> anyhow::Result<bool> {
    let entries = fs::read_dir(receiver).with_context(|| receiver.display().to_string())?;
    let is_of = |entry: fs::DirEntry| {
        let other = entry.file_name().to_string_lossy().into_owned();
        let unique = other.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        unique.is_some_and(|unique| unique.len() == 16 && unique.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    Ok(entries.filter_map(Result::ok).any(is_of))
}

impl Ring {
    /// Returns the position where the ring ends: by its head if the stream is complete, else after the last packet.
    fn end(&self) -> u64 {
        let Some(head) = &self.head else { return 0 };
        let after = |(number, packet): (&u64, &Packet)| number.saturating_mul(head.size).saturating_add(packet.length);
        self.packets.iter().next_back().map_or(0, after).max(head.end)
    }

    /// Drops the packets that are not closed sub-buffers of their numbers.
    fn keep_closed(&mut self, spool: &File) -> anyhow::Result<()> {
        let Some(head) = &self.head else { return Ok(()) };
        let (mut bytes, mut wrong) = (Vec::new(), Vec::new());
        for (number, packet) in &self.packets {
            bytes.resize(usize::try_from(packet.length)?, 0);
            spool.read_exact_at(&mut bytes, packet.offset)?;
            if packet.length != head.size || !head.is_closed(*number, &bytes) {
                wrong.push(*number);
            }
        }
        wrong.iter().for_each(|number| _ = self.packets.remove(number));
        Ok(())
    }

    /// Returns the number of the first sub-buffer.
    fn first(&self) -> u64 {
        self.head.as_ref().map_or(0, Head::begin)
    }

    /// Returns the number of sub-buffers between the begin and the end that are not there.
    fn lost(&self) -> u64 {
        let Some(head) = &self.head else { return 0 };
        let all = self.end().div_ceil(head.size).saturating_sub(self.first());
        all.saturating_sub(self.packets.len() as u64)
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
            let taken = Header::read(bytes).and_then(|header| {
                order.admit(&header)?;
                let packet = Packet { offset, length: header.length };
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

    fn take(&mut self, spool: &File, order: &mut Order, header: &Header, content: Packet) -> anyhow::Result<()> {
        let read = |length: u64| -> anyhow::Result<Vec<u8>> {
            let mut bytes = vec![0; usize::try_from(length)?];
            spool.read_exact_at(&mut bytes, content.offset)?;
            Ok(bytes)
        };
        let number = || -> anyhow::Result<u64> {
            Ok(read(NUMBER)?.first_chunk::<8>().map_or(0, |number| u64::from_le_bytes(*number)))
        };
        let rest =
            Packet { offset: content.offset.saturating_add(NUMBER), length: content.length.saturating_sub(NUMBER) };
        match header.kind {
            Kind::Hello => self.hello = Some(serde_json::from_slice(&read(header.length)?).context("the frame Hello")?),
            Kind::Session => {
                order.describe(header, &read(header.length)?).context("the frame Session")?;
                self.session = order.session().cloned();
            }
            Kind::Region => self.regions.push((header.cpu, number()?, rest)),
            Kind::Head => {
                let bytes = read(header.length)?;
                order.describe(header, &bytes).context("the frame Head")?;
                self.rings.entry(header.cpu).or_default().head = Some(Head::read(&bytes)?);
            }
            Kind::Packet => _ = self.rings.entry(header.cpu).or_default().packets.insert(number()?, rest),
            Kind::Overwritten => {
                self.rings.entry(header.cpu).or_default().packets.remove(&number()?);
            }
            Kind::End => self.end = Some(serde_json::from_slice(&read(header.length)?).context("the frame End")?),
            _ => {}
        }
        Ok(())
    }

    fn write(&self, spool: &File, folder: &Path, ended_early: Option<&str>) -> anyhow::Result<()> {
        for (kind, name) in REGIONS {
            let file = create(&folder.join(name))?;
            for (_, offset, part) in self.regions.iter().filter(|(of, ..)| *of == kind) {
                copy(spool, *part, &file, *offset)?;
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
            let file = create(&folder.join(format!("stream-{index:04}")))?;
            file.set_len(region.size)?;
            file.write_all_at(&region.bytes, 0)?;
            for (number, packet) in &ring.packets {
                let place = number.checked_rem(region.count).unwrap_or(0).saturating_mul(head.size);
                copy(spool, *packet, &file, region.data.saturating_add(place))?;
            }
        }
        if let Some(why) = ended_early {
            fs::write(folder.join(lastwords_open::ENDED_EARLY), why)?;
        }
        Ok(())
    }
}

fn create(path: &Path) -> anyhow::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    file.with_context(|| path.display().to_string())
}

/// Copies bytes of the spool to an offset of a file.
fn copy(spool: &File, from: Packet, file: &File, offset: u64) -> anyhow::Result<()> {
    let (mut at, mut to, end) = (from.offset, offset, from.offset.saturating_add(from.length));
    while at < end {
        let left = usize::try_from(end.saturating_sub(at).min(CHUNK))?;
        match copy_file_range(spool, Some(&mut at), file, Some(&mut to), left) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("the folder of the session cannot be written"),
            Ok(0) => bail!("the last {left} bytes of the spool are gone"),
            Ok(_) => {}
        }
    }
    Ok(())
}
