//! Puts the sub-buffers of all CPUs together into a trace.dat file.

use crate::changes::{Changes, beside};
use crate::drain::Drain;
use crate::instance::Instance;
use crate::journal::Journal;
use anyhow::{Context, bail};
use lastwords_formats::ftrace::dat::{self, DataPosition, InPlace, WriteOptions};
use lastwords_open::Bundle;
use lastwords_trace::evidence::{Cause, Evidence, Gap, Verdict};
use lastwords_trace::ftrace::{Array, CpuRing, HeaderPage, Ring, SubBufferInfo, Tracing, counters, page};
use rustix::fs::{CWD, RenameFlags, copy_file_range, renameat_with};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Clocks that do not count nanoseconds.
pub(crate) const PLAIN_CLOCKS: [&str; 3] = ["counter", "uptime", "x86-tsc"];
/// Bytes of events from which a file of a CPU becomes the output itself. With fewer, the copy costs nothing, and the hole behind the
/// head would be large in proportion.
const WORTH: u64 = 64 << 20;
/// Number of readings of two clocks. The pair with the shortest duration is used.
const TRIES: usize = 5;

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
    /// Events were moved to files while recording went on, so that rings overwrote events only where this fell behind.
    pub is_stream: bool,
}

impl Saved {
    /// Returns the number of events that were lost. What a flight recorder's ring overwrote is not lost; what was overwritten before
    /// it could be streamed is.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.gaps.iter().filter(|gap| self.is_loss(gap)).filter_map(|gap| gap.events).fold(0, u64::saturating_add)
    }

    /// Returns true if the events of a gap count as lost.
    #[must_use]
    pub fn is_loss(&self, gap: &Gap) -> bool {
        gap.cause.is_loss() || self.is_stream && gap.cause == Cause::Overwritten
    }

    /// Returns the number of events that were taken from the rings and are not in the file.
    #[must_use]
    pub fn taken_before(&self) -> u64 {
        let gaps = self.gaps.iter().filter(|gap| gap.cause == Cause::InFlight);
        gaps.filter_map(|gap| gap.events).fold(0, u64::saturating_add)
    }

    /// Returns the number of events that rings overwrote.
    #[must_use]
    pub fn overwritten(&self) -> u64 {
        let gaps = self.gaps.iter().filter(|gap| gap.cause == Cause::Overwritten);
        gaps.filter_map(|gap| gap.events).fold(0, u64::saturating_add)
    }
}

/// The sub-buffers of one CPU in a file.
struct Part {
    file: File,
    path: PathBuf,
}

/// The parts as a ring.
struct Parts {
    parts: Vec<Part>,
    /// Offset of the first sub-buffer in each file.
    begin: u64,
    cpus: Vec<CpuRing>,
    header_page: HeaderPage,
}

impl Ring for Parts {
    fn cpus(&self) -> &[CpuRing] {
        &self.cpus
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        let nothing = SubBufferInfo { committed: 0, consumed: 0, missed: None, verdict: Verdict::Missing };
        let (Some(part), Some(ring)) = (self.parts.get(cpu), self.cpus.get(cpu)) else { return nothing };
        bytes.clear();
        bytes.resize(ring.sub_buffer_size as usize, 0);
        let offset = self.begin + index as u64 * u64::from(ring.sub_buffer_size);
        if part.file.read_exact_at(bytes, offset).is_err() {
            return nothing;
        }
        match page::header(bytes, self.header_page, native_order()) {
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

fn native_order() -> lastwords_bytes::ByteOrder {
    if cfg!(target_endian = "big") { lastwords_bytes::ByteOrder::Big } else { lastwords_bytes::ByteOrder::Little }
}

/// Opens the rings of all CPUs of an instance, and the files that their sub-buffers go to.
pub(crate) fn open_drains(changes: &Changes) -> anyhow::Result<Vec<Drain>> {
    let instance = changes.instance();
    let size = instance.sub_buffer_size();
    instance.cpus()?.into_iter().map(|cpu| Drain::open(changes, &instance, cpu, size)).collect()
}

/// Moves what is left in the rings of a stopped instance, and writes the trace. The parts and the instance stay. `enabled` has the events
/// that were enabled when the recording began. Without it, a recorder was killed or its stream broke: the events in the file are
/// counted, because those that the recorder had taken from the ring and not yet written are lost.
///
/// # Errors
/// A ring cannot be read, or a file cannot be written. Then the output is not there, or is the file that was there before.
pub(crate) fn save(changes: &Changes, drains: Vec<Drain>, enabled: Option<&BTreeSet<String>>) -> anyhow::Result<Saved> {
    let instance = changes.instance();
    // Another process may have enabled more events in the instance, or disabled some.
    let recorded = enabled.map(|events| Ok::<_, anyhow::Error>(events | &instance.enabled()?)).transpose()?;
    let mut tracing = Bundle::of_running_tracer(recorded.as_ref())?.tracing();
    let (mut parts, mut cpus) = (Vec::new(), Vec::new());
    for mut drain in drains {
        drain.finish()?;
        let (cpu, sub_buffer_size, stats) = (drain.cpu, drain.sub_buffer_size(), instance.stats(drain.cpu)?);
        let (file, path, bytes) = drain.into_file()?.context("the events of a CPU went to a receiver")?;
        let sub_buffers = usize::try_from(bytes / u64::from(sub_buffer_size))?;
        cpus.push(CpuRing { cpu, sub_buffers, sub_buffer_size, stats });
        parts.push(Part { file, path });
    }
    let begin = changes.journal.begin_of_parts();
    let ring = Arc::new(Parts { parts, begin, cpus, header_page: tracing.header_page });
    tracing.real_time = real_time(&changes.journal.clock);
    tracing.arrays = vec![array(&instance, &changes.journal.clock, Arc::clone(&ring))?];
    let mut gaps: Vec<Gap> = counters(&*ring).collect();
    gaps.extend(left_behind(&ring.cpus));
    if enabled.is_none() {
        let place = match &changes.journal.receiver {
            Some(receiver) => format!("taken from the ring before, and sent to {receiver}"),
            None => "taken from the ring by the killed recorder and not written".to_owned(),
        };
        gaps.extend(not_written(&ring, &place));
    }
    let bytes = write(changes, &tracing, &ring)?;
    let events = ring.cpus.iter().map(|cpu| cpu.stats.read).fold(0, u64::saturating_add);
    let mut saved = Saved {
        path: changes.journal.output.clone(),
        bytes,
        events,
        cpus: ring.cpus.iter().map(|cpu| cpu.cpu).collect(),
        gaps,
        is_stream: changes.journal.stream,
    };
    saved.events = saved.events.saturating_sub(saved.taken_before());
    Ok(saved)
}

fn gap(stream: usize, cause: Cause, events: u64, place: &str) -> Option<Gap> {
    (events > 0).then(|| Gap {
        stream: Some(stream),
        place: place.to_owned(),
        cause,
        events: Some(events),
        bytes: None,
    })
}

/// Returns the events that the kernel still counts as unread after all was read.
pub(crate) fn left_behind(cpus: &[CpuRing]) -> Vec<Gap> {
    let rows = cpus.iter().enumerate();
    rows.filter_map(|(at, cpu)| gap(at, Cause::Missing, cpu.stats.entries, "still in the ring when it was read"))
        .collect()
}

/// Returns the events that were read from the rings and are not in the parts.
fn not_written(ring: &Parts, place: &str) -> Vec<Gap> {
    let mut bytes = Vec::new();
    let mut missing = |(at, cpu): (usize, &CpuRing)| {
        let mut found = 0u64;
        for index in 0..cpu.sub_buffers {
            let info = ring.sub_buffer(at, index, &mut bytes);
            found +=
                page::Events::new(&bytes, ring.header_page, native_order(), info.committed).flatten().count() as u64;
        }
        gap(at, Cause::InFlight, cpu.stats.read.saturating_sub(found), place)
    };
    ring.cpus.iter().enumerate().filter_map(&mut missing).collect()
}

fn array(instance: &Instance, clock: &str, ring: Arc<Parts>) -> anyhow::Result<Array> {
    Ok(Array {
        name: String::new(),
        tracer: instance.read("current_tracer")?.trim().to_owned(),
        clock: clock.to_owned(),
        clock_in_ns: !PLAIN_CLOCKS.contains(&clock),
        options: Vec::new(),
        tracer_options: Vec::new(),
        shows_longest: false,
        is_of_last_boot: false,
        is_on: false,
        live: ring,
        snapshot: None,
    })
}

/// Returns the clock of user space that a clock of the tracer follows.
pub(crate) fn clock_id(clock: &str) -> Option<ClockId> {
    match clock {
        "mono" => Some(ClockId::Monotonic),
        "mono_raw" => Some(ClockId::MonotonicRaw),
        "boot" => Some(ClockId::Boottime),
        _ => None,
    }
}

/// Returns the nanoseconds to add to readings of a clock of the tracer to get the time since the epoch; none if user space cannot
/// read that clock. The file has whole microseconds, so the nearest one is returned.
pub(crate) fn real_time(clock: &str) -> Option<i64> {
    let id = clock_id(clock)?;
    let now = |id| {
        let time = clock_gettime(id);
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
    };
    let pair = |_| {
        let before = now(id);
        let wall = now(ClockId::Realtime);
        let width = now(id).saturating_sub(before);
        (width, wall.saturating_sub(before.saturating_add(width / 2)))
    };
    let (_, offset) = (0..TRIES).map(pair).min()?;
    Some((offset + 500).div_euclid(1000) * 1000)
}

/// Writes the trace, and returns its size in bytes. If the file of a CPU is large, it becomes the output itself, and the others are
/// copied to its end; else all are copied into a new file.
fn write(changes: &Changes, tracing: &Tracing, ring: &Parts) -> anyhow::Result<u64> {
    let size = |cpu: &CpuRing| cpu.sub_buffers as u64 * u64::from(cpu.sub_buffer_size);
    let largest = ring.cpus.iter().enumerate().max_by_key(|(_, cpu)| size(cpu));
    if let Some((lane, cpu)) = largest.filter(|(_, cpu)| ring.begin > 0 && size(cpu) >= WORTH)
        && let Some(part) = ring.parts.get(lane)
    {
        // From here on, the file may have more than the events of its CPU, which a restore must know.
        let mut journal: Journal = changes.journal.clone();
        journal.in_place = Some((cpu.cpu, size(cpu)));
        journal.replace(&changes.journals)?;
        let place = InPlace { lane, offset: ring.begin };
        if let Some(bytes) = fill(&part.file, &part.path, tracing, ring, Some(place))? {
            self::place(&part.file, &part.path, changes, journal)?;
            return Ok(bytes);
        }
    }
    let new = beside(&changes.journal.output, &format!(".{}.new", changes.journal.instance));
    // A recorder that was killed may have left it.
    let _ = fs::remove_file(&new);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let file = file.with_context(|| new.display().to_string())?;
    let filled = fill(&file, &new, tracing, ring, None);
    let journal = changes.journal.clone();
    let placed = filled.and_then(|bytes| place(&file, &new, changes, journal).map(|()| bytes.unwrap_or(0)));
    if placed.is_err() {
        let _ = fs::remove_file(&new);
    }
    placed
}

/// Writes the head and copies the sub-buffers of all CPUs but the one that is in place; none if the head does not fit before that.
fn fill(
    out: &File,
    path: &Path,
    tracing: &Tracing,
    ring: &Parts,
    in_place: Option<InPlace>,
) -> anyhow::Result<Option<u64>> {
    let Some(data) = dat::write_head(out, path, tracing, &WriteOptions::default(), in_place)? else { return Ok(None) };
    for DataPosition { lane, offset, size, .. } in &data {
        let Some(part) = ring.parts.get(*lane).filter(|_| in_place.is_none_or(|place| place.lane != *lane)) else {
            continue;
        };
        let (mut from, mut to) = (ring.begin, *offset);
        let end = from + size;
        while from < end {
            let left = usize::try_from(end - from)?;
            match copy_file_range(&part.file, Some(&mut from), out, Some(&mut to), left) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).with_context(|| format!("{}: cannot be written", path.display())),
                Ok(0) => bail!("{}: {left} of its {size} bytes are gone", part.path.display()),
                Ok(_) => {}
            }
        }
    }
    Ok(Some(out.metadata().with_context(|| path.display().to_string())?.len()))
}

/// Gives the finished file the name of the output. The journal tells a restore, if the recorder is killed now, which file that is.
fn place(file: &File, new: &Path, changes: &Changes, mut journal: Journal) -> anyhow::Result<()> {
    let (output, force) = (changes.journal.output.as_path(), changes.journal.force);
    journal.finished = Some(file.metadata().with_context(|| new.display().to_string())?.ino());
    journal.replace(&changes.journals)?;
    let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    let named = || format!("{}: cannot be written", output.display());
    match renameat_with(CWD, new, CWD, output, flags) {
        Err(Errno::EXIST) => bail!("{} exists, and was not there at the start: move it away", output.display()),
        // The file system knows no such flag.
        Err(Errno::INVAL | Errno::NOSYS) if !force && !output.exists() => fs::rename(new, output).with_context(named),
        renamed => renamed.with_context(named),
    }
}
