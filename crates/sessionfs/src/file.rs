//! Reads and writes the files of the tree, except `trace`, `trace_pipe` and `trace_marker`.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use lastwords::ClockKind;
use lastwords::snapshot::Rings;
use lastwords_control::ChannelSummary;
use lastwords_ctf::Version;
use lastwords_ctf::read::unwatched;
use lastwords_folders::SnapshotState;
use lastwords_ftrace::format_file;
use lastwords_open::Trace;
use lastwords_render::events;
use lastwords_trace::evidence::Cause;
use rustix::io::Errno;

use crate::buffer::{Buffer, read_trace};
use crate::catalog::Catalog;
use crate::control::{self, Which};
use crate::error_log::Refusal;
use crate::kernel_line::Names;
use crate::mutex::guard;
use crate::path::{File, Subject};
use crate::restriction::{self, List};
use crate::view::{Part, View};
use crate::{filter, format, number, raw, readme, text, trigger};

/// Returns the content of a file.
pub(crate) fn read(buffer: &Buffer, file: File, of: &Subject) -> Result<String, Errno> {
    Ok(match file {
        File::AvailableEvents => control::available(&*buffer.catalog()?),
        File::AvailableTracers | File::CurrentTracer => "nop\n".to_owned(),
        File::BufferPercent => format!("{}\n", buffer.percent.load(Relaxed)),
        File::BufferSize => format!("{}\n", ring_size(&buffer.channels()?) >> 10),
        File::BufferSubBufSize => format!("{}\n", buffer.page_size.load(Relaxed) >> 10),
        File::BufferTotalSize => format!("{}\n", total_size(buffer)? >> 10),
        File::CpuMask => restriction::cpu_mask_text(buffer)?,
        File::Enable => control::enabled(buffer, which(of))?,
        File::ErrorLog => buffer.errors.text(),
        File::Filter => match of {
            Subject::Event(..) => event(buffer, of, |event| filter::text(buffer, event))??,
            _ => filter::PROVIDER_FILTER.to_owned(),
        },
        File::Format => event(buffer, of, format::text)?.ok_or(Errno::OVERFLOW)?,
        File::HeaderEvent => format_file::HEADER_EVENT.to_owned(),
        File::HeaderPage => format_file::write_header_page(raw::HEADER, page_size(buffer)),
        File::Id => event(buffer, of, |event| event.kind.id.map(|id| format!("{id}\n")))?
            .ok_or(Errno::OVERFLOW)?,
        File::OptionEventFork => flag(false),
        File::OptionMarkers => flag(buffer.markers.load(Relaxed)),
        File::OptionOverwrite => flag(overwrites(&buffer.channels()?)),
        File::Readme => readme::TEXT.to_owned(),
        File::SavedCmdlines => lines_of(&cmdlines(buffer)?),
        File::SavedCmdlinesSize => format!("{}\n", cmdlines(buffer)?.len()),
        File::SavedTgids => lines_of(&tgids(buffer)?),
        File::SetEvent => control::set_event_text(buffer)?,
        File::SetEventNotracePid => restriction::text(buffer, List::Never)?,
        File::SetEventPid => restriction::text(buffer, List::Only)?,
        File::Snapshot => snapshot_text(buffer, cpu(of))?,
        File::SnapshotEnabled => flag(buffer.details()?.snapshot != SnapshotState::Off),
        File::Stats => stats(buffer, cpu(of))?,
        File::TraceClock => format!("[{}]\n", clock_word(buffer)),
        File::TraceOptions => {
            let no = |on: bool| if on { "" } else { "no" };
            let (markers, overwrite) =
                (buffer.markers.load(Relaxed), overwrites(&buffer.channels()?));
            format!("noevent-fork\n{}markers\n{}overwrite\n", no(markers), no(overwrite))
        }
        File::TracingOn => flag(buffer.is_recording()?),
        File::Trigger => event(buffer, of, |event| trigger::text(buffer, event))??,
        File::FreeBuffer | File::Trace | File::TraceMarker | File::TraceMarkerRaw => {
            return Err(Errno::INVAL);
        }
        File::SnapshotPipe
        | File::SnapshotRaw
        | File::TracePipe
        | File::TracePipeRaw
        | File::Unread => {
            return Err(Errno::INVAL);
        }
    })
}

/// Follows a write to a file.
pub(crate) fn write(buffer: &Buffer, file: File, of: &Subject, bytes: &[u8]) -> Result<(), Errno> {
    match file {
        // Truncation clears these files when they are opened; what is written is ignored.
        File::Trace | File::FreeBuffer => Ok(()),
        File::ErrorLog => {
            buffer.errors.clear();
            Ok(())
        }
        File::SetEvent => control::set_event(buffer, bytes),
        File::SetEventNotracePid => restriction::add(buffer, List::Never, bytes),
        File::SetEventPid => restriction::add(buffer, List::Only, bytes),
        File::TracingOn => {
            let on = number::written(bytes)? != 0;
            buffer.set_recording(on)
        }
        File::Enable => match number::written(bytes)? {
            on @ (0 | 1) => control::enable(buffer, which(of), on == 1, bytes),
            _ => Err(Errno::INVAL),
        },
        File::Snapshot | File::SnapshotEnabled | File::Trigger if buffer.view != View::Start => {
            let why =
                "the session has it for all its channels: write into the file of the top level";
            Err(buffer.refuse(Errno::OPNOTSUPP, bytes, &Refusal::new("instance", why)))
        }
        File::Snapshot => set_snapshot(buffer, cpu(of), bytes),
        File::SnapshotEnabled => {
            let done = match number::written(bytes)? {
                0 => buffer.handle.disable_snapshots(),
                1 => buffer.handle.enable_snapshots().map(drop),
                _ => return Err(Errno::INVAL),
            };
            done.map_err(|error| buffer.failed("snapshot_enabled", bytes, &error))
        }
        File::Filter => {
            let catalog = buffer.catalog()?;
            let events: Vec<_> = match of {
                Subject::Event(provider, name) => {
                    catalog.event(provider, name).into_iter().collect()
                }
                Subject::Provider(provider) => catalog.events(Some(provider)).collect(),
                _ => Vec::new(),
            };
            filter::set(buffer, &events, bytes)
        }
        File::Trigger => event(buffer, of, |event| trigger::set(buffer, event, bytes))?,
        File::OptionEventFork | File::OptionMarkers | File::OptionOverwrite => {
            let name = match file {
                File::OptionEventFork => "event-fork",
                File::OptionMarkers => "markers",
                _ => "overwrite",
            };
            match number::written(bytes)? {
                on @ (0 | 1) => set_option(buffer, name, on == 1, bytes),
                _ => Err(Errno::INVAL),
            }
        }
        File::TraceOptions => {
            String::from_utf8_lossy(bytes).split_whitespace().try_for_each(|word| {
                let (name, on) = word.strip_prefix("no").map_or((word, true), |name| (name, false));
                set_option(buffer, name, on, bytes)
            })
        }
        File::BufferPercent => match number::written(bytes)? {
            percent @ 0..=100 => {
                buffer.percent.store(percent, Relaxed);
                Ok(())
            }
            _ => Err(Errno::INVAL),
        },
        File::BufferSubBufSize => set_page_size(buffer, bytes),
        File::CpuMask => restriction::set_cpu_mask(buffer, bytes),
        _ => write_fixed(buffer, file, of, bytes),
    }
}

/// Follows a write to a file whose value is fixed.
fn write_fixed(buffer: &Buffer, file: File, of: &Subject, bytes: &[u8]) -> Result<(), Errno> {
    match file {
        // [`new_size`] looks for another size of the rings of all CPUs.
        File::BufferSize => {
            let is_same = cpu(of).is_none()
                || number::written(bytes)? == ring_size(&buffer.channels()?) >> 10;
            fixed(
                buffer,
                bytes,
                is_same,
                "all CPUs have rings of one size: buffer_size_kb of the session",
            )
        }
        File::SavedCmdlinesSize => {
            let is_same = number::written(bytes)? == cmdlines(buffer)?.len() as u64;
            fixed(buffer, bytes, is_same, "a session has the names of all threads that it knows")
        }
        File::TraceClock => {
            let is_same = clock_word(buffer) == String::from_utf8_lossy(bytes).trim();
            let refusal = Refusal::new(
                "trace_clock",
                "a session keeps its clock: Builder::clock at the start",
            );
            if is_same { Ok(()) } else { Err(buffer.refuse(Errno::INVAL, bytes, &refusal)) }
        }
        File::CurrentTracer => match String::from_utf8_lossy(bytes).trim() {
            "nop" => Ok(()),
            _ => {
                let refusal = Refusal::new(
                    "current_tracer",
                    "applications have events only: the tracer is nop",
                );
                Err(buffer.refuse(Errno::INVAL, bytes, &refusal))
            }
        },
        _ => Err(Errno::INVAL),
    }
}

/// Returns the new size of a CPU's rings in bytes, if a write asks for one for all CPUs.
pub(crate) fn new_size(
    buffer: &Buffer,
    file: File,
    of: &Subject,
    bytes: &[u8],
) -> Result<Option<u64>, Errno> {
    if (file, of) != (File::BufferSize, &Subject::Session) {
        return Ok(None);
    }
    let size = number::written(bytes)?
        .checked_mul(1 << 10)
        .filter(|size| *size != 0)
        .ok_or(Errno::INVAL)?;
    let now = ring_size(&buffer.channels()?);
    Ok(Some(size).filter(|size| *size != now))
}

/// Follows the opening of a file for writing with truncation.
pub(crate) fn truncate(buffer: &Buffer, file: File, of: &Subject) -> Result<(), Errno> {
    match file {
        File::Trace => {
            let cleared = buffer.handle.clear_rings(rings(cpu(of)), &buffer.part(None)?.channels);
            guard(&buffer.pipe).clear(cpu(of));
            cleared.map_err(|error| buffer.failed("trace", b"", &error))
        }
        File::SetEvent => control::clear(buffer),
        File::SetEventNotracePid => restriction::clear(buffer, List::Never),
        File::SetEventPid => restriction::clear(buffer, List::Only),
        File::ErrorLog => {
            buffer.errors.clear();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Clears the session's rings, as closing `free_buffer` does.
pub(crate) fn free(buffer: &Buffer) {
    let _ = truncate(buffer, File::Trace, &Subject::Session);
}

/// Accepts a write that changes nothing, and refuses any other.
fn fixed(buffer: &Buffer, bytes: &[u8], is_same: bool, why: &str) -> Result<(), Errno> {
    if is_same {
        Ok(())
    } else {
        Err(buffer.refuse(Errno::OPNOTSUPP, bytes, &Refusal::new("session", why)))
    }
}

/// Returns the size of the pages of `trace_pipe_raw`.
fn page_size(buffer: &Buffer) -> u32 {
    u32::try_from(buffer.page_size.load(Relaxed)).unwrap_or(u32::MAX)
}

/// Sets the size of the pages of `trace_pipe_raw` for files that are opened from now on: a power of
/// two of pages of memory, rounded up as in the kernel.
fn set_page_size(buffer: &Buffer, bytes: &[u8]) -> Result<(), Errno> {
    let size =
        usize::try_from(number::written(bytes)?).ok().and_then(|size| size.checked_mul(1 << 10));
    let Some(size) = size.filter(|size| (1..=raw::MOST_PAGE_SIZE).contains(size)) else {
        let why = format!("a page of trace_pipe_raw has 1 to {} KiB", raw::MOST_PAGE_SIZE >> 10);
        return Err(buffer.refuse(
            Errno::INVAL,
            bytes,
            &Refusal::new("buffer_subbuf_size_kb", why),
        ));
    };
    buffer.page_size.store(size.max(raw::least_page_size()).next_power_of_two(), Relaxed);
    Ok(())
}

fn set_option(buffer: &Buffer, name: &str, on: bool, bytes: &[u8]) -> Result<(), Errno> {
    match name {
        "markers" => {
            buffer.markers.store(on, Relaxed);
            Ok(())
        }
        "event-fork" => {
            let why =
                "no recorder knows which thread has started another: write the ids of the threads";
            fixed(buffer, bytes, !on, why)
        }
        "overwrite" => {
            let why = "a channel keeps its mode: ChannelConfig::overwrite or discard at the start";
            fixed(buffer, bytes, overwrites(&buffer.channels()?) == on, why)
        }
        _ => Err(Errno::INVAL),
    }
}

fn set_snapshot(buffer: &Buffer, cpu: Option<u32>, bytes: &[u8]) -> Result<(), Errno> {
    let failed = |error| buffer.failed("snapshot", bytes, &error);
    let state = buffer.details()?.snapshot;
    let number = number::written(bytes)?;
    if number != 1 && cpu.is_none() {
        // The snapshot that a trigger has saved stays where it is, but is not shown any more.
        let newest = buffer.handle.saved_snapshot().map_or(0, |(number, _)| number);
        buffer.cleared_snapshot.store(newest, Relaxed);
    }
    match (number, cpu) {
        (0, None) => buffer.handle.disable_snapshots().map_err(failed),
        (1, _) => {
            buffer.handle.enable_snapshots().map_err(failed)?;
            buffer.handle.snapshot(rings(cpu)).map(drop).map_err(failed)
        }
        (_, Some(_)) => {
            let why = "only the main snapshot file frees and clears";
            Err(buffer.refuse(Errno::INVAL, bytes, &Refusal::new("snapshot", why)))
        }
        (_, None) if state.is_there() => {
            buffer.handle.read_snapshot().map_err(failed)?.release();
            Ok(())
        }
        _ => Ok(()),
    }
}

fn snapshot_text(buffer: &Buffer, cpu: Option<u32>) -> Result<String, Errno> {
    let (cpus, names, part) =
        (buffer.catalog()?.cpus.len(), Names::read(buffer)?, buffer.part(cpu)?);
    let mut out = Vec::new();
    let write = |trace: &Trace| text::write(trace, &part, cpus, &names, &mut out);
    let written = match buffer.details()?.snapshot {
        SnapshotState::Off => return Ok(text::snapshot_help(false, cpu)),
        SnapshotState::Ready => match buffer.handle.saved_snapshot() {
            Some((number, folder)) if number != buffer.cleared_snapshot.load(Relaxed) => {
                read_trace(&folder, false, write)?.ok_or(Errno::NODATA)?
            }
            _ => return Ok(text::snapshot_help(true, cpu)),
        },
        _ => buffer.with_trace(true, write)?,
    };
    let count = written.map_err(|_| Errno::IO)?;
    Ok(match count {
        0 => text::snapshot_help(true, cpu),
        _ => String::from_utf8_lossy(&out).into_owned(),
    })
}

fn rings(cpu: Option<u32>) -> Rings {
    cpu.map_or(Rings::All, Rings::Cpu)
}

fn cpu(of: &Subject) -> Option<u32> {
    if let Subject::Cpu(cpu) = of { Some(*cpu) } else { None }
}

fn which(of: &Subject) -> Which<'_> {
    match of {
        Subject::Provider(provider) => Which::Provider(provider),
        Subject::Event(provider, event) => Which::Event(provider, event),
        _ => Which::All,
    }
}

fn event<T>(
    buffer: &Buffer,
    of: &Subject,
    use_it: impl Fn(&crate::catalog::Event) -> T,
) -> Result<T, Errno> {
    let Subject::Event(provider, name) = of else { return Err(Errno::NOENT) };
    buffer.catalog()?.event(provider, name).map(use_it).ok_or(Errno::NOENT)
}

fn flag(on: bool) -> String {
    format!("{}\n", u8::from(on))
}

/// Returns the size of a CPU's rings in which the session records, in bytes.
pub(crate) fn ring_size(channels: &[ChannelSummary]) -> u64 {
    let is_on = channels.iter().any(|channel| channel.recording);
    channels.iter().filter(|channel| channel.recording || !is_on).map(size_of_ring).sum()
}

fn size_of_ring(channel: &ChannelSummary) -> u64 {
    u64::from(channel.sub_buffers).saturating_mul(channel.sub_buffer_size)
}

/// Returns the bytes of all rings.
fn total_size(buffer: &Buffer) -> Result<u64, Errno> {
    let of =
        |channel: &ChannelSummary| size_of_ring(channel).saturating_mul(u64::from(channel.streams));
    Ok(buffer.channels()?.iter().map(of).sum())
}

fn overwrites(channels: &[ChannelSummary]) -> bool {
    channels.iter().all(|channel| channel.overwrites)
}

/// Returns the kernel's word for the session's clock. The CPU's counter is `local`, the kernel's
/// word for its fastest clock.
fn clock_word(buffer: &Buffer) -> &'static str {
    match buffer.handle.clock() {
        Some(ClockKind::Monotonic) => "mono",
        Some(ClockKind::MonotonicRaw) => "mono_raw",
        Some(ClockKind::Boottime) => "boot",
        Some(ClockKind::Realtime) => "realtime",
        _ => "local",
    }
}

/// Returns the names of threads by id.
fn cmdlines(buffer: &Buffer) -> Result<BTreeMap<i64, String>, Errno> {
    let described = |trace: &Trace| Catalog::new(trace, &mut guard(&buffer.kinds));
    let mut names = Names::read(buffer)?.all();
    names.extend(buffer.with_trace(false, described)?.threads);
    Ok(names)
}

/// Returns the processes of threads: those that live, and of a session of one program all that it
/// knows.
fn tgids(buffer: &Buffer) -> Result<BTreeMap<i64, String>, Errno> {
    let details = buffer.details()?;
    let mut found = BTreeMap::new();
    if let ([process], false) = (&details.processes[..], details.is_users) {
        found.extend(cmdlines(buffer)?.into_keys().map(|tid| (tid, process.pid.to_string())));
    }
    // The ids of processes that have ended may be those of others now.
    for pid in
        details.processes.into_iter().filter(|_| !buffer.is_over()).map(|process| process.pid)
    {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let tids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
        found.extend(tids.map(|tid: i64| (tid, pid.to_string())));
    }
    Ok(found)
}

fn lines_of(of_threads: &BTreeMap<i64, String>) -> String {
    of_threads.iter().map(|(tid, text)| format!("{tid} {}\n", text.replace('\n', " "))).collect()
}

/// Returns the text of `stats`. How many events were overwritten is not known once there are some
/// (`?`).
fn stats(buffer: &Buffer, cpu: Option<u32>) -> Result<String, Errno> {
    let part = buffer.part(cpu)?;
    buffer.with_trace(false, |trace| stats_of(trace, &part))?.ok_or(Errno::IO)
}

fn stats_of(trace: &Trace, part: &Part) -> Option<String> {
    let (packets, selection, cpu) =
        ([trace.packets(Version::V2)?.ok()?], part.selection(), part.cpu);
    let mut entries = 0u64;
    events::each(&packets, &selection, &unwatched, &mut |_, _| entries += 1, &mut |_| {});
    let info = trace.session()?.session.info();
    let streams = || {
        info.streams.iter().filter(|stream| {
            stream.cpu == cpu
                && (part.channels.is_empty() || part.channels.contains(&stream.channel))
        })
    };
    let (bytes, lost): (u64, u64) = (
        streams().map(|stream| stream.held).sum(),
        streams().map(|stream| stream.lost_events()).sum(),
    );
    let account = part.account(trace.account());
    let is_own =
        |stream: usize| account.streams.get(stream).is_some_and(|stream| stream.cpu == cpu);
    let is_overwritten = account.evidence.gaps.iter().any(|gap| {
        matches!(gap.cause, Cause::Overwritten | Cause::Unread) && gap.stream.is_some_and(is_own)
    });
    let overrun = if is_overwritten { "?" } else { "0" };
    Some(format!(
        "entries: {entries}\noverrun: {overrun}\ncommit overrun: 0\nbytes: {bytes}\ndropped events: {lost}\n"
    ))
}
