//! A stream in a file, as it came, and the trace.dat file that is made of it.
//!
//! A spool has a stream's bytes, without its signs of life. It is locked (`flock(2)`) by the
//! receiver that writes it, so that a spool without a lock was left by a receiver that was killed.
//! In place of the bytes of a session's packet it has their number: the bytes are in
//! a folder beside it (`rings.rs`).

use crate::error::Error;
use crate::folder;
use crate::kept;
use crate::rings;
use crate::transfer::{NOFOLLOW, copy, take};
use crate::wire::{
    Counters, End, FrameKind, HEADER, Header, Hello, MAGIC, Order, Settings, is_known,
};
use anyhow::{Context, bail, ensure};
use lastwords_bytes::{Budget, ByteOrder, Limits};
use lastwords_ftrace::dat::{self, DataPosition, Relation, WriteOptions};
use lastwords_ftrace::{
    Array, Clock, CpuRing, HeaderPage, Ring, Stats, SubBufferInfo, Tracing, counters_of, page,
};
use lastwords_open::{Bundle, chain};
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The ending of the names of spools.
const ENDING: &str = "stream";
/// Most characters of a host's name in the name of a file.
const MOST_NAME: usize = 64;
/// Most bytes of the files in a description. A kernel with all modules loaded has 20 MiB.
const MOST_DESCRIPTION: u64 = 256 << 20;
/// Held while a description is in memory, so that many streams that end at a time need the memory
/// of one. Data are copied without it.
static DESCRIBING: Mutex<()> = Mutex::new(());

/// Why a stream ended early, if nothing else is known.
const NO_END: &str = "it has no end";

/// The spool of a stream, locked by this process.
#[derive(Debug)]
pub struct Spool {
    file: File,
    path: PathBuf,
    /// The files of other machines that were recorded with it.
    relation: Option<Relation>,
}

/// A stream that was saved as a trace.dat file.
#[derive(Debug, Clone, Serialize)]
pub struct Finished {
    /// The file.
    pub path: PathBuf,
    /// Name of the sender's machine, as the sender gives it.
    pub host: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Events in it: by the sender's counters, or counted if the stream ended early.
    pub events: u64,
    /// Number of CPUs whose events it has.
    pub cpus: usize,
    /// Events that rings had lost before they were sent; none if the stream ended early, so that
    /// the sender's counters are missing.
    pub lost: Option<u64>,
    /// Why the stream ended early; none if it is complete.
    pub ended_early: Option<String>,
    /// The file has the relation of its clock to the clock of the machine that recorded it with
    /// another one.
    pub is_related: bool,
    /// The losses of each CPU.
    pub losses: Vec<Loss>,
}

/// The result of saving a spool.
#[derive(Debug)]
pub enum Saved {
    /// A trace.dat file of a kernel's stream.
    Kernel(Finished),
    /// A session folder of a session's stream.
    Session(folder::Session),
}

/// Events that a ring lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Number of the CPU.
    pub cpu: u32,
    /// The cause, as in docs/JSON.md.
    pub cause: &'static str,
    /// Number of events.
    pub events: u64,
}

/// The parts of a stream.
struct Contents {
    hello: Hello,
    settings: Settings,
    /// Offsets and lengths of the description and of its changes.
    descriptions: Vec<(u64, u64)>,
    /// Offsets and lengths of the sub-buffers of each CPU, the oldest first.
    data: BTreeMap<u32, Vec<(u64, u64)>>,
    end: Option<End>,
    /// Why it has no end.
    why: String,
}

/// The sub-buffers as a ring, of which the writer needs the numbers alone.
struct Rings(Vec<CpuRing>);

impl Ring for Rings {
    fn cpus(&self) -> &[CpuRing] {
        &self.0
    }

    fn sub_buffer(&self, _: usize, _: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        bytes.clear();
        SubBufferInfo::MISSING
    }

    fn evidence(&self) -> Evidence {
        Evidence::default()
    }
}

/// Returns the spools in a folder that no receiver writes.
///
/// # Errors
/// The folder cannot be read.
pub fn left(folder: &Path) -> crate::Result<Vec<Spool>> {
    let entries = fs::read_dir(folder)
        .with_context(|| folder.display().to_string())
        .map_err(|why| Error::folder(folder, &why))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == ENDING));
    paths.sort();
    let open = |path: PathBuf| {
        let file =
            OpenOptions::new().read(true).write(true).custom_flags(NOFOLLOW).open(&path).ok()?;
        let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
        (is_file && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
            .then_some(Spool { file, path, relation: None })
    };
    Ok(paths.into_iter().filter_map(open).collect())
}

impl Spool {
    /// Makes the spool of a stream that begins now.
    pub(crate) fn create(folder: &Path, host: &str) -> anyhow::Result<Self> {
        let begun = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let stem = format!("{}-{begun}", file_name(host));
        for number in 1..10_000u32 {
            let stem = if number == 1 { stem.clone() } else { format!("{stem}-{number}") };
            let path = folder.join(format!("{stem}.{ENDING}"));
            let options =
                OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).clone();
            let file = match options.open(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                file => file.with_context(|| path.display().to_string())?,
            };
            let is_there = |ending: &str| path.with_extension(ending).symlink_metadata().is_ok();
            let is_taken = ["dat", rings::ENDING, kept::ENDING].into_iter().any(is_there);
            if is_taken || folder::exists(folder, &stem)? {
                fs::remove_file(&path).with_context(|| path.display().to_string())?;
                continue;
            }
            let spool = Self { file, path, relation: None };
            let locked = flock(&spool.file, FlockOperation::NonBlockingLockExclusive);
            if let Err(error) = locked.with_context(|| spool.path.display().to_string()) {
                spool.remove();
                return Err(error);
            }
            return Ok(spool);
        }
        bail!("{}: too many streams of {host} began in this second", folder.display());
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes the files of other machines that were recorded with this one, for the trace.dat file.
    pub fn relate(&mut self, relation: Relation) {
        self.relation = Some(relation);
    }

    /// Notes the same beside the spool at a path, so that it is known if this program is killed.
    ///
    /// # Errors
    /// The file cannot be written. What was noted before stays.
    pub fn keep_relation(path: &Path, relation: &Relation) -> crate::Result<()> {
        kept::write(path, relation).map_err(|why| Error::unsaved(path, &why))
    }

    /// Removes the file. It has nothing of a stream.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.file
            .write_all(bytes)
            .with_context(|| format!("{}: cannot be written", self.path.display()))
    }

    /// Moves bytes from a pipe to the end of the file.
    pub(crate) fn take(&mut self, pipe: BorrowedFd<'_>, moved: usize) -> anyhow::Result<()> {
        take(&self.file, None, pipe, moved).with_context(|| self.path.display().to_string())
    }

    /// Makes the trace.dat file or the session folder, and removes the spool. `why`: the stream
    /// ended early, and why. Returns none if the stream has no sub-buffers, so that nothing is lost
    /// with it.
    ///
    /// # Errors
    /// The spool is no stream, or the file cannot be written. The spool stays then.
    pub fn finish(mut self, why: Option<&str>) -> crate::Result<Option<Saved>> {
        self.save(why).map_err(|why| Error::unsaved(&self.path, &why))
    }

    fn save(&mut self, why: Option<&str>) -> anyhow::Result<Option<Saved>> {
        let path = self.path.clone();
        let named =
            || format!("{}: what arrived is kept there, and is no trace yet", path.display());
        let kept = self.relate_as_kept().map(|kept| format!("{}; {kept}", why.unwrap_or(NO_END)));
        let why = kept.as_deref().or(why);
        let made = match folder::make(&self.file, &self.path, why).with_context(named)? {
            Some(session) => Some(Saved::Session(session)),
            None => self.make(why).with_context(named)?.map(Saved::Kernel),
        };
        fs::remove_file(&self.path).with_context(|| self.path.display().to_string())?;
        kept::remove(&self.path);
        // It is there only if packets of a session came and its description did not.
        let _ = fs::remove_dir_all(self.path.with_extension(rings::ENDING));
        Ok(made)
    }

    fn make(&self, why: Option<&str>) -> anyhow::Result<Option<Finished>> {
        let Some(contents) = self.contents(why)? else { return Ok(None) };
        let size = contents.settings.sub_buffer_size;
        // Events are counted where the sender's counters are missing.
        let pages =
            match &contents.end {
                Some(_) => None,
                None => Some(self.described(&contents, |tracing| {
                    Ok((tracing.header_page, tracing.byte_order))
                })?),
            };
        let ring = |(cpu, parts): (&u32, &Vec<(u64, u64)>)| -> anyhow::Result<CpuRing> {
            let of = |counters: &&Counters| counters.cpu == *cpu;
            let stats = match &contents.end {
                Some(end) => {
                    end.cpus.iter().find(of).map(|counters| counters.stats()).unwrap_or_default()
                }
                None => Stats {
                    read: pages.map_or(Ok(0), |pages| self.count(parts, pages, size))?,
                    ..Stats::default()
                },
            };
            let bytes = parts.iter().fold(0u64, |sum, (_, length)| sum.saturating_add(*length));
            let sub_buffers = usize::try_from(bytes.checked_div(u64::from(size)).unwrap_or(0))?;
            Ok(CpuRing { cpu: *cpu, sub_buffers, sub_buffer_size: size, stats })
        };
        let rings = contents.data.iter().map(ring).collect::<anyhow::Result<Vec<_>>>()?;
        let rings = Arc::new(Rings(rings));
        let ended_early = contents.end.is_none().then(|| contents.why.clone());
        let missing = ended_early.as_ref().map(|why| format!("the stream ended early: {why}"));
        let path = self.path.with_extension("dat");
        let bytes = self.write(&path, &contents, &rings, missing)?;
        let gaps: Vec<Gap> = counters_of(&rings.0).collect();
        let losses: Vec<Loss> =
            gaps.iter().chain(&left_behind(&rings)).filter_map(|gap| loss(&rings, gap)).collect();
        let sum = losses.iter().fold(0u64, |sum, loss| sum.saturating_add(loss.events));
        Ok(Some(Finished {
            path,
            host: contents.hello.host,
            bytes,
            events: rings.0.iter().fold(0, |sum, cpu| sum.saturating_add(cpu.stats.read)),
            cpus: rings.0.iter().filter(|cpu| cpu.sub_buffers > 0).count(),
            lost: ended_early.is_none().then_some(sum),
            ended_early,
            is_related: self.relation.is_some(),
            losses,
        }))
    }

    /// Takes the relation that a killed receiver has noted beside the spool. Returns what is not
    /// known of it, in words.
    fn relate_as_kept(&mut self) -> Option<String> {
        if self.relation.is_some() {
            return None;
        }
        match kept::read(&self.path) {
            Ok(relation) => self.relation = relation,
            Err(error) => {
                let why = chain(&error);
                return Some(format!(
                    "the relation of its clock to the host's is not known: {why}"
                ));
            }
        }
        let shift = self.relation.as_ref()?.shift.as_ref()?;
        Some(last_measured(shift.samples.last()?.time))
    }

    /// Reads the frames. A stream that ends within sub-buffers keeps those that are whole; none if
    /// it has none at all.
    fn contents(&self, why: Option<&str>) -> anyhow::Result<Option<Contents>> {
        let length = self.file.metadata()?.len();
        let mut magic = MAGIC;
        // A receiver may have been killed before it wrote more than the name.
        if length < MAGIC.len().saturating_add(HEADER) as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut magic, 0)?;
        ensure!(is_known(&magic), "it is no stream of this version of lastwords");
        let (mut order, mut at) = (Order::default(), MAGIC.len() as u64);
        let (mut hello, mut settings, mut descriptions, mut end) = (None, None, Vec::new(), None);
        let mut data: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        let mut why = why.map(str::to_owned);
        while at < length && !order.is_over() {
            let mut bytes = [0; HEADER];
            let content = at.saturating_add(HEADER as u64);
            if content > length {
                break;
            }
            self.file.read_exact_at(&mut bytes, at)?;
            let header = match Header::read(bytes)
                .and_then(|header| order.admit(&header).map(|()| header))
            {
                Ok(header) => header,
                Err(error) => {
                    why = Some(format!("offset {at}: {error:#}"));
                    break;
                }
            };
            let has = header.length.min(length.saturating_sub(content));
            let is_whole = has == header.length;
            let json = || self.read(content, has);
            match header.kind {
                FrameKind::SubBuffers => {
                    let size = settings
                        .as_ref()
                        .map_or(1, |settings: &Settings| u64::from(settings.sub_buffer_size));
                    let whole = has.saturating_sub(has.checked_rem(size).unwrap_or(0));
                    data.entry(header.cpu)
                        .or_default()
                        .extend((whole > 0).then_some((content, whole)));
                }
                _ if !is_whole => break,
                FrameKind::Hello => {
                    hello =
                        Some(serde_json::from_slice::<Hello>(&json()?).context("the frame Hello")?)
                }
                FrameKind::Settings => {
                    settings = Some(order.settings(&json()?).context("the frame Settings")?)
                }
                FrameKind::Description => descriptions.push((content, has)),
                FrameKind::End => match serde_json::from_slice::<End>(&json()?) {
                    Ok(read) => end = Some(read),
                    Err(error) => why = Some(format!("the frame End: {error}")),
                },
                _ => {}
            }
            at = content.saturating_add(has);
        }
        let (Some(hello), Some(settings)) = (hello, settings) else { return Ok(None) };
        if descriptions.is_empty() || data.values().all(Vec::is_empty) && end.is_none() {
            return Ok(None);
        }
        let why = why.unwrap_or_else(|| NO_END.to_owned());
        Ok(Some(Contents { hello, settings, descriptions, data, end, why }))
    }

    fn read(&self, offset: u64, length: u64) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(length)?];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Reads the description of the events, and hands it to `with`. Only one is in memory at a
    /// time.
    fn described<T>(
        &self,
        contents: &Contents,
        with: impl FnOnce(&mut Tracing) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let _describing = DESCRIBING.lock().unwrap_or_else(PoisonError::into_inner);
        with(&mut self.tracing(contents)?)
    }

    /// Returns the description of the events, for the machine that sent it.
    fn tracing(&self, contents: &Contents) -> anyhow::Result<Tracing> {
        let mut file = &self.file;
        let budget = Budget::new(Limits { bytes: MOST_DESCRIPTION, ..Limits::default() });
        let name = "the description of the events";
        let mut bundle = Bundle::default();
        for (number, (offset, length)) in contents.descriptions.iter().enumerate() {
            file.seek(SeekFrom::Start(*offset))?;
            match number {
                0 => bundle = Bundle::read_from(name, file.take(*length), &budget)?,
                _ => bundle.update_from(name, file.take(*length), &budget)?,
            }
        }
        let settings = &contents.settings;
        let highest = settings.cpus.last().map_or(1, |cpu| cpu.saturating_add(1));
        let mut tracing = bundle.tracing();
        tracing.byte_order = settings.byte_order();
        tracing.page_size = settings.page_size;
        tracing.cpus = highest;
        tracing.real_time = settings.real_time;
        Ok(tracing)
    }

    /// Counts the events of a CPU. This alone reads sub-buffers into user space, and only where the
    /// sender's counters are missing.
    fn count(
        &self,
        parts: &[(u64, u64)],
        pages: (HeaderPage, ByteOrder),
        size: u32,
    ) -> anyhow::Result<u64> {
        let (form, order) = pages;
        let mut bytes = vec![0; size as usize];
        let mut events = 0u64;
        for (offset, length) in parts {
            let (mut at, end) = (*offset, offset.saturating_add(*length));
            while at < end {
                self.file.read_exact_at(&mut bytes, at)?;
                at = at.saturating_add(u64::from(size));
                let Ok(header) = page::header(&bytes, form, order) else { continue };
                let all = page::Events::new(&bytes, form, order, header.committed);
                events = events.saturating_add(all.flatten().count() as u64);
            }
        }
        Ok(events)
    }

    /// Writes the file, and returns its size in bytes.
    fn write(
        &self,
        path: &Path,
        contents: &Contents,
        rings: &Arc<Rings>,
        missing: Option<String>,
    ) -> anyhow::Result<u64> {
        let new = self.path.with_extension("dat.new");
        // A receiver that was killed may have left it.
        let _ = fs::remove_file(&new);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let file = file.with_context(|| new.display().to_string())?;
        // A file of this name is of the same spool: its receiver was killed before it removed the
        // spool.
        let renamed = || {
            fs::rename(&new, path).with_context(|| format!("{}: cannot be written", path.display()))
        };
        let written = self.fill(&file, &new, contents, rings, missing).and_then(|()| renamed());
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        Ok(file.metadata()?.len())
    }

    fn fill(
        &self,
        out: &File,
        path: &Path,
        contents: &Contents,
        rings: &Arc<Rings>,
        missing: Option<String>,
    ) -> anyhow::Result<()> {
        let relation = self.relation.clone();
        let options = WriteOptions { missing, relation, ..WriteOptions::default() };
        let lanes: Vec<&Vec<(u64, u64)>> = contents.data.values().collect();
        let positions = self.described(contents, |tracing| {
            tracing.arrays = vec![array(&contents.settings, Arc::clone(rings) as Arc<dyn Ring>)];
            Ok(dat::write_head(out, path, tracing, &options, None)?)
        })?;
        for DataPosition { lane, offset, .. } in positions.unwrap_or_default() {
            let mut to = offset;
            for (from, length) in lanes.get(lane).into_iter().flat_map(|parts| parts.iter()) {
                copy(&self.file, *from, out, to, *length)
                    .with_context(|| path.display().to_string())?;
                to = to.saturating_add(*length);
            }
        }
        Ok(())
    }
}

fn array(settings: &Settings, live: Arc<dyn Ring>) -> Array {
    Array {
        tracer: Some(settings.tracer.clone()),
        clock: Some(Clock { name: settings.clock.clone(), is_in_ns: settings.clock_in_ns }),
        ..Array::unknown("", live)
    }
}

/// Says when the clock of a guest was measured last, in nanoseconds of that clock.
#[must_use]
pub fn last_measured(time: u64) -> String {
    format!(
        "its clock was measured last at {}.{:06} s of it, and the error of later times is not known",
        time / 1_000_000_000,
        time % 1_000_000_000 / 1000
    )
}

/// Returns the events that the kernel still counted as unread when all was sent.
fn left_behind(rings: &Rings) -> Vec<Gap> {
    let gap = |(stream, cpu): (usize, &CpuRing)| {
        (cpu.stats.entries > 0).then(|| {
            Gap::new(Some(stream), Cause::Missing, String::new())
                .with_events(Some(cpu.stats.entries))
        })
    };
    rings.0.iter().enumerate().filter_map(gap).collect()
}

fn loss(rings: &Rings, gap: &Gap) -> Option<Loss> {
    Some(Loss { cpu: rings.0.get(gap.stream?)?.cpu, cause: gap.cause.word(), events: gap.events? })
}

/// Makes a part of a file's name of a host's name, which is the sender's word: it leads nowhere and
/// is no option of a command.
fn file_name(host: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    let name: String =
        host.chars().take(MOST_NAME).map(|c| if is_plain(c) { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_alphanumeric()) { name } else { format!("host{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame;

    /// A stream that ends does not wait for the description of another, and a session's stream has
    /// none.
    #[test]
    fn streams_without_a_description_do_not_wait_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let _other = DESCRIBING.lock().unwrap();
        let mut spool = Spool::create(folder.path(), "host").unwrap();
        let hello = frame(FrameKind::Hello, br#"{"host":"host","instance":"app"}"#);
        let session = frame(
            FrameKind::Session,
            br#"{"uuid":"000102030405060708090a0b0c0d0e0f","name":"app"}"#,
        );
        let part = |cpu: u32| {
            [&Header { kind: FrameKind::Region, cpu, length: 72 }.bytes()[..], &[0; 72]].concat()
        };
        spool.write_all(&[&MAGIC[..], &hello, &session, &part(1), &part(2)].concat()).unwrap();
        assert!(matches!(spool.finish(Some("cut")), Ok(Some(Saved::Session(_)))));
    }

    #[test]
    fn names_of_hosts_lead_nowhere() {
        for (host, name) in [
            ("web1.example", "web1.example"),
            ("../../etc/x", "host.._.._etc_x"),
            ("", "host"),
            ("-rf", "host-rf"),
            ("a b\u{1b}é", "a_b__"),
        ] {
            assert_eq!(file_name(host), name);
        }
        assert_eq!(file_name(&"x".repeat(1000)).len(), MOST_NAME);
    }
}
