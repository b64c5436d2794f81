//! Puts the sub-buffers of all CPUs together into a trace.dat file.

use crate::changes::{Changes, beside};
use crate::drain::Drain;
use crate::instance::Instance;
use crate::journal::{Journal, Stay};
use anyhow::{Context, bail};
use lastwords_bytes::ByteOrder;
use lastwords_ftrace::dat::{self, DataPosition, InPlace, WriteOptions};
use lastwords_ftrace::{Array, CpuRing, HeaderPage, Ring, SubBufferInfo, Tracing, counters, page};
use lastwords_open::{Bundle, tracer_real_time};
use lastwords_trace::evidence::{Cause, Evidence, Gap, Verdict};
use rustix::fs::{CWD, RenameFlags, copy_file_range, renameat_with};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of events from which a file of a CPU becomes the output itself. With fewer, the copy costs
/// nothing, and the hole behind the head would be large in proportion.
const WORTH: u64 = 64 << 20;

/// A trace that was saved.
#[derive(Debug, Clone)]
pub struct Saved {
    /// The file, or the address of the receiver.
    pub path: PathBuf,
    /// Its size in bytes; bytes of sub-buffers that were sent to a receiver.
    pub bytes: u64,
    /// Events in it, by the kernel's counters.
    pub events: u64,
    /// The CPUs of the rings, in the order of [`Gap::stream`].
    pub cpus: Vec<u32>,
    /// Events that are not in the file, with their causes.
    pub gaps: Vec<Gap>,
    /// Events were moved to files while recording went on, so that rings overwrote events only
    /// where this fell behind.
    pub is_stream: bool,
    /// The snapshots that triggers took, each in a folder of its own, oldest first.
    pub snapshots: Vec<Saved>,
    /// The file with the histograms of triggers; none if there are none.
    pub histograms: Option<PathBuf>,
    /// The instance; none for the main one.
    pub buffer: Option<String>,
    /// More instances in the same file.
    pub buffers: Vec<Saved>,
}

impl Saved {
    /// Returns the number of events that were lost. What a flight recorder's ring overwrote is not
    /// lost; what was overwritten before it could be streamed is.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.gaps
            .iter()
            .filter(|gap| self.is_loss(gap))
            .filter_map(|gap| gap.events)
            .fold(0, u64::saturating_add)
    }

    /// Returns true if the events of a gap count as lost.
    #[must_use]
    pub fn is_loss(&self, gap: &Gap) -> bool {
        gap.cause.is_loss() || self.is_stream && gap.cause == Cause::Overwritten
    }

    /// Returns the number of events that were taken from the rings and are not in the file.
    #[must_use]
    pub fn taken_before(&self) -> u64 {
        self.events_of(Cause::InFlight)
    }

    /// Returns the accounts of all instances and snapshots.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        self.snapshots.iter().chain([self]).chain(&self.buffers)
    }

    /// Returns the number of events that rings overwrote.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        self.events_of(Cause::Overwritten)
    }

    fn events_of(&self, cause: Cause) -> u64 {
        let gaps = self.gaps.iter().filter(|gap| gap.cause == cause);
        gaps.filter_map(|gap| gap.events).fold(0, u64::saturating_add)
    }
}

/// The sub-buffers of one CPU in a file.
pub(crate) struct Part {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
}

impl Part {
    /// Makes a file that has no name any more, so that nothing is left of it when it is closed.
    pub(crate) fn nameless(path: PathBuf) -> anyhow::Result<Self> {
        let file = create(&path)?;
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
        Ok(Self { file, path })
    }
}

/// Makes a new file for this user alone, in place of one that a killed recorder may have left.
pub(crate) fn create(path: &Path) -> anyhow::Result<File> {
    let _ = fs::remove_file(path);
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    file.with_context(|| path.display().to_string())
}

/// The parts as a ring.
pub(crate) struct Parts {
    parts: Vec<Part>,
    /// Offset of the first sub-buffer in each file.
    begin: u64,
    cpus: Vec<CpuRing>,
    header_page: HeaderPage,
}

impl Parts {
    pub(crate) fn new(
        parts: Vec<Part>,
        begin: u64,
        cpus: Vec<CpuRing>,
        header_page: HeaderPage,
    ) -> Self {
        Self { parts, begin, cpus, header_page }
    }

    /// Returns the file of a CPU.
    pub(crate) fn part(&self, at: usize) -> Option<&Part> {
        self.parts.get(at)
    }

    pub(crate) fn cpus_mut(&mut self) -> &mut [CpuRing] {
        &mut self.cpus
    }

    /// Returns the events of a sub-buffer that [`Ring::sub_buffer`] has read.
    pub(crate) fn events<'a>(&self, bytes: &'a [u8], info: &SubBufferInfo) -> page::Events<'a> {
        page::Events::new(bytes, self.header_page, ByteOrder::NATIVE, info.committed)
    }
}

impl Ring for Parts {
    fn cpus(&self) -> &[CpuRing] {
        &self.cpus
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        let nothing = SubBufferInfo::MISSING;
        let (Some(part), Some(ring)) = (self.parts.get(cpu), self.cpus.get(cpu)) else {
            return nothing;
        };
        bytes.clear();
        bytes.resize(ring.sub_buffer_size as usize, 0);
        let offset = self.begin + index as u64 * u64::from(ring.sub_buffer_size);
        if part.file.read_exact_at(bytes, offset).is_err() {
            return nothing;
        }
        match page::header(bytes, self.header_page, ByteOrder::NATIVE) {
            Ok(page::Header { committed, missed, .. }) => {
                SubBufferInfo { committed, consumed: 0, missed, verdict: Verdict::Committed }
            }
            Err(_) => SubBufferInfo { verdict: Verdict::Invalid, ..nothing },
        }
    }

    fn evidence(&self) -> Evidence {
        Evidence::default()
    }
}

/// Opens the rings of all CPUs of all instances, and the files that their sub-buffers go to.
pub(crate) fn open_drains(changes: &Changes) -> anyhow::Result<Vec<Vec<Drain>>> {
    let open = |changes: Changes| {
        let instance = changes.instance();
        let size = instance.sub_buffer_size();
        let cpus = instance.cpus()?.into_iter();
        cpus.map(|cpu| Drain::open(&changes, &instance, cpu, size)).collect()
    };
    changes.existing().into_iter().map(open).collect()
}

/// Moves what is left in the rings of stopped instances, and writes the trace. The parts and the
/// instances stay. `drains` are those of [`Changes::existing`]. `enabled` has the events that were
/// enabled when the recording began. Without it, a recorder was killed or its stream broke: the
/// events in the file are counted, because those that the recorder had taken from the ring and not
/// yet written are lost.
///
/// # Errors
/// A ring cannot be read, or a file cannot be written. Then the output is not there, or is the file
/// that was there before.
pub(crate) fn save(
    changes: &Changes,
    drains: Vec<Vec<Drain>>,
    enabled: Option<&BTreeSet<String>>,
) -> anyhow::Result<Saved> {
    let each = changes.existing();
    let recorded = enabled.map(|events| enabled_now(&each, events)).transpose()?;
    let mut tracing = Bundle::of_running_tracer(recorded.as_ref())?.tracing();
    tracing.real_time = tracer_real_time(&changes.journal.clock);
    let (mut rings, mut accounts) = (Vec::new(), Vec::new());
    for (changes, drains) in each.iter().zip(drains) {
        let ring = Arc::new(finish(changes, drains, tracing.header_page)?);
        let (instance, clock) = (changes.instance(), &changes.journal.clock);
        // The main instance is the top level of the file.
        let name = if rings.is_empty() { "" } else { &changes.journal.instance };
        let mut array = array(&instance, clock, Arc::clone(&ring))?;
        name.clone_into(&mut array.name);
        tracing.arrays.push(array);
        accounts.push(account(changes, &ring, enabled.is_none()));
        rings.push(ring);
    }
    // What was streamed is not read again.
    let all_symbols = rings.iter().any(|ring| ring.begin > 0);
    let relation = changes.journal.relation.clone();
    let how = WriteOptions { all_symbols, relation, ..WriteOptions::default() };
    let bytes = write(changes, &tracing, &rings, &how)?;
    let mut buffers = accounts.split_off(accounts.len().min(1));
    for (saved, changes) in buffers.iter_mut().zip(each.iter().skip(1)) {
        saved.buffer = Some(changes.journal.instance.clone());
    }
    let main = accounts.pop().context("an account of the main instance")?;
    Ok(Saved { bytes, buffers, ..main })
}

/// Returns the events that were enabled in any instance at the begin or are now: another process
/// may have enabled more, or disabled some.
fn enabled_now(each: &[Changes], before: &BTreeSet<String>) -> anyhow::Result<BTreeSet<String>> {
    let mut all = before.clone();
    for changes in each {
        all.extend(changes.instance().enabled()?);
    }
    Ok(all)
}

/// Moves what is left in the rings of one instance, and returns all of its sub-buffers.
fn finish(changes: &Changes, drains: Vec<Drain>, header_page: HeaderPage) -> anyhow::Result<Parts> {
    let (mut parts, mut cpus) = (Vec::new(), Vec::new());
    for mut drain in drains {
        drain.finish()?;
        let (cpu, sub_buffer_size, stats) =
            (drain.cpu, drain.sub_buffer_size(), changes.stats(drain.cpu)?);
        let (file, path, bytes) =
            drain.into_file()?.context("the events of a CPU went to a receiver")?;
        let sub_buffers = usize::try_from(bytes / u64::from(sub_buffer_size))?;
        cpus.push(CpuRing { cpu, sub_buffers, sub_buffer_size, stats });
        parts.push(Part { file, path });
    }
    Ok(Parts::new(parts, changes.journal.begin_of_parts(), cpus, header_page))
}

/// Returns the account of one instance, without the size of the file.
fn account(changes: &Changes, ring: &Parts, was_killed: bool) -> Saved {
    let mut gaps: Vec<Gap> = counters(ring).collect();
    gaps.extend(left_behind(&ring.cpus));
    let stays = changes.journal.stay == Stay::Yes;
    if was_killed || stays {
        let place = match &changes.journal.receiver {
            Some(receiver) => format!("taken from the ring before, and sent to {receiver}"),
            None if stays => "taken from the ring before, by another reader".to_owned(),
            None => "taken from the ring by the killed recorder and not written".to_owned(),
        };
        gaps.extend(not_written(ring, &place));
    }
    let events = ring.cpus.iter().map(|cpu| cpu.stats.read).fold(0, u64::saturating_add);
    let mut saved = Saved {
        path: changes.journal.output.clone(),
        bytes: 0,
        events,
        cpus: ring.cpus.iter().map(|cpu| cpu.cpu).collect(),
        gaps,
        is_stream: changes.journal.stream,
        snapshots: Vec::new(),
        histograms: None,
        buffer: None,
        buffers: Vec::new(),
    };
    saved.events = saved.events.saturating_sub(saved.taken_before());
    saved
}

fn gap(stream: usize, cause: Cause, events: u64, place: &str) -> Option<Gap> {
    (events > 0).then(|| Gap::new(Some(stream), cause, place.to_owned()).with_events(Some(events)))
}

/// Returns the events that the kernel still counts as unread after all was read.
pub(crate) fn left_behind(cpus: &[CpuRing]) -> Vec<Gap> {
    let rows = cpus.iter().enumerate();
    rows.filter_map(|(at, cpu)| {
        gap(at, Cause::Missing, cpu.stats.entries, "still in the ring when it was read")
    })
    .collect()
}

/// Returns the events that were read from the rings and are not in the parts.
fn not_written(ring: &Parts, place: &str) -> Vec<Gap> {
    let mut bytes = Vec::new();
    let mut missing = |(at, cpu): (usize, &CpuRing)| {
        let mut found = 0u64;
        for index in 0..cpu.sub_buffers {
            let info = ring.sub_buffer(at, index, &mut bytes);
            found += ring.events(&bytes, &info).flatten().count() as u64;
        }
        gap(at, Cause::InFlight, cpu.stats.read.saturating_sub(found), place)
    };
    ring.cpus.iter().enumerate().filter_map(&mut missing).collect()
}

pub(crate) fn array(instance: &Instance, clock: &str, ring: Arc<Parts>) -> anyhow::Result<Array> {
    Ok(Array {
        tracer: Some(instance.read("current_tracer")?.trim().to_owned()),
        clock: dat::clock(clock),
        options: Some(instance.options()?),
        is_on: Some(false),
        ..Array::unknown("", ring)
    })
}

/// Writes the trace of the instances, and returns its size in bytes. If the file of a CPU of the
/// main instance is large, it becomes the output itself, and the others are copied to its end; else
/// all are copied into a new file.
fn write(
    changes: &Changes,
    tracing: &Tracing,
    rings: &[Arc<Parts>],
    how: &WriteOptions,
) -> anyhow::Result<u64> {
    let ring = rings.first().context("the main instance")?;
    let size = |cpu: &CpuRing| cpu.sub_buffers as u64 * u64::from(cpu.sub_buffer_size);
    let largest = ring.cpus.iter().enumerate().max_by_key(|(_, cpu)| size(cpu));
    if let Some((lane, cpu)) = largest.filter(|(_, cpu)| ring.begin > 0 && size(cpu) >= WORTH)
        && let Some(part) = ring.parts.get(lane)
    {
        // From here on, the file may have more than the events of its CPU, which a restore must
        // know.
        let mut journal: Journal = changes.journal.clone();
        journal.in_place = Some((cpu.cpu, size(cpu)));
        journal.replace(&changes.journals)?;
        let place = InPlace { lane, offset: ring.begin };
        if let Some(bytes) = fill((&part.file, &part.path), tracing, rings, how, Some(place))? {
            self::place(&part.file, &part.path, changes, journal)?;
            return Ok(bytes);
        }
    }
    let new = beside(&changes.journal.output, &format!(".{}.new", changes.journal.instance));
    write_new(&new, tracing, rings, how, |file| place(file, &new, changes, changes.journal.clone()))
}

/// Writes the trace into a new file, has `place` give it its name, and returns its size in bytes.
/// If either fails, the file is removed.
pub(crate) fn write_new(
    new: &Path,
    tracing: &Tracing,
    rings: &[Arc<Parts>],
    how: &WriteOptions,
    place: impl FnOnce(&File) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let file = create(new)?;
    let filled = fill((&file, new), tracing, rings, how, None);
    let placed = filled.and_then(|bytes| place(&file).map(|()| bytes.unwrap_or(0)));
    if placed.is_err() {
        let _ = fs::remove_file(new);
    }
    placed
}

/// Writes the head and copies the sub-buffers of all CPUs but the one that is in place; none if the
/// head does not fit before that.
fn fill(
    (out, path): (&File, &Path),
    tracing: &Tracing,
    rings: &[Arc<Parts>],
    how: &WriteOptions,
    in_place: Option<InPlace>,
) -> anyhow::Result<Option<u64>> {
    let Some(data) = dat::write_head(out, path, tracing, how, in_place)? else { return Ok(None) };
    for DataPosition { array, lane, offset, size } in &data {
        let is_there = *array == 0 && in_place.is_some_and(|place| place.lane == *lane);
        let Some((ring, part)) = rings
            .get(*array)
            .and_then(|ring| Some((ring, ring.parts.get(*lane)?)))
            .filter(|_| !is_there)
        else {
            continue;
        };
        let (mut from, mut to) = (ring.begin, *offset);
        let end = from + size;
        while from < end {
            let left = usize::try_from(end - from)?;
            match copy_file_range(&part.file, Some(&mut from), out, Some(&mut to), left) {
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("{}: cannot be written", path.display()));
                }
                Ok(0) => bail!("{}: {left} of its {size} bytes are gone", part.path.display()),
                Ok(_) => {}
            }
        }
    }
    Ok(Some(out.metadata().with_context(|| path.display().to_string())?.len()))
}

/// Gives the finished file the name of the output. The journal tells a restore, if the recorder is
/// killed now, which file that is.
fn place(file: &File, new: &Path, changes: &Changes, mut journal: Journal) -> anyhow::Result<()> {
    journal.finished = Some(file.metadata().with_context(|| new.display().to_string())?.ino());
    journal.replace(&changes.journals)?;
    rename(new, &changes.journal.output, changes.journal.force)
}

/// Renames a file, and replaces one of the new name only with `force`.
pub(crate) fn rename(new: &Path, output: &Path, force: bool) -> anyhow::Result<()> {
    let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    let named = || format!("{}: cannot be written", output.display());
    match renameat_with(CWD, new, CWD, output, flags) {
        Err(Errno::EXIST) => {
            bail!("{} exists, and was not there at the start: move it away", output.display())
        }
        // The file system knows no such flag.
        Err(Errno::INVAL | Errno::NOSYS) if !force && !output.exists() => {
            fs::rename(new, output).with_context(named)
        }
        renamed => renamed.with_context(named),
    }
}
