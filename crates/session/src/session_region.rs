//! Reads the session region: identity, control words, clock, channels, processes.

use super::clock_area::{Clock, Sample};
use super::info::{ChannelInfo, Guard, Info, Process, SessionScope, Snapshot};
use super::layout::{ThreadTable, field, part};
use super::region::Region;
use super::window::Window;
use lastwords_abi::session::{self as abi, Channel, ClockArea, ClockSample, Control, SessionInfo};
use lastwords_abi::triggers::Triggers;
use lastwords_bytes::{Budget, Error, Reader};
use lastwords_folders::SnapshotState;
use lastwords_image::Image;
use std::mem::offset_of;

/// The contents of a session region.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionRegion {
    pub(crate) info: Info,
    /// [`Control::flip`]; none if the control page cannot be read.
    pub(crate) flip: Option<u32>,
    pub(crate) clock: Clock,
    pub(crate) threads: Option<ThreadTable>,
    /// Messages about parts that cannot be read.
    pub(crate) lost: Vec<String>,
}

/// Offsets of the parts, bytes from the start of the region.
struct Parts {
    control: u64,
    clock: u64,
    channels: u64,
    processes: u64,
    threads: ThreadTable,
}

/// Reads all parts. A part that cannot be read adds a message and does not affect the others.
pub(crate) fn read(image: &dyn Image, region: &Region, budget: &Budget) -> SessionRegion {
    let mut session = SessionRegion::default();
    let parts = match identity(region, &mut session.info) {
        Ok(parts) => parts,
        Err(error) => {
            session.lost.push(error.to_string());
            return session;
        }
    };
    session.threads = Some(parts.threads);
    let mut try_part = |outcome: Result<(), Error>, name: &str| {
        if let Err(error) = outcome {
            session.lost.push(format!("{error}: the session's {name} cannot be read"));
        }
    };
    let info = &mut session.info;
    try_part(
        control(image, region, parts.control, budget, info).map(|flip| session.flip = Some(flip)),
        "control page",
    );
    try_part(triggers(image, region, parts.control, budget, info), "window of the trigger");
    try_part(clock(image, region, parts.clock, budget).map(|clock| session.clock = clock), "clock");
    try_part(channels(image, region, parts.channels, budget, info), "channels");
    try_part(processes(image, region, &parts, budget, info), "processes");
    session
}

fn identity(region: &Region, info: &mut Info) -> Result<Parts, Error> {
    use SessionInfo as S;
    let what = region.place();
    let base = u64::from(lastwords_abi::region::HEADER_SIZE);
    let r = Reader::new(&what, &region.fixed, region.order).based(base);
    info.created_realtime = field!(r, 0, S, created_realtime, u64_at)?;
    info.created_monotonic = field!(r, 0, S, created_monotonic, u64_at)?;
    info.creator_start = field!(r, 0, S, creator_start, u64_at)?;
    info.creator_pidns = field!(r, 0, S, creator_pidns, u64_at)?;
    info.creator_pid = field!(r, 0, S, creator_pid, u32_at)?;
    info.uid = field!(r, 0, S, uid, u32_at)?;
    info.reservation = field!(r, 0, S, reservation, u32_at)?;
    info.backend = field!(r, 0, S, backend, u32_at)?;
    info.scope = SessionScope::from_number(field!(r, 0, S, scope, u32_at)?);
    info.cpus = field!(r, 0, S, cpus, u32_at)?;
    info.boot_id = field!(r, 0, S, boot_id, array_at)?;
    info.name = field!(r, 0, S, name, text_at, 64)?;
    info.hostname = field!(r, 0, S, hostname, text_at, 64)?;
    info.program = field!(r, 0, S, program, text_at, 256)?;
    let threads = usize::try_from(field!(r, 0, S, threads, u32_at)?).unwrap_or(usize::MAX);
    Ok(Parts {
        control: u64::from(field!(r, 0, S, control_off, u32_at)?),
        clock: u64::from(field!(r, 0, S, clock_off, u32_at)?),
        channels: u64::from(field!(r, 0, S, channels_off, u32_at)?),
        processes: u64::from(field!(r, 0, S, processes_off, u32_at)?),
        threads: ThreadTable { offset: u64::from(field!(r, 0, S, threads_off, u32_at)?), threads },
    })
}

/// Fills in the session's state; returns the flip word.
fn control(
    image: &dyn Image,
    region: &Region,
    at: u64,
    budget: &Budget,
    info: &mut Info,
) -> Result<u32, Error> {
    // The rules that follow the control words are not needed.
    let bytes = part(image, region, at, offset_of!(Control, rules), budget)?;
    let what = region.place();
    let r = Reader::new(&what, &bytes, region.order).based(at);
    info.recording = field!(r, 0, Control, recording, u32_at)? != 0;
    info.creates_channel = field!(r, 0, Control, channels_lock, u64_at)? != 0;
    info.ending = field!(r, 0, Control, ending, u32_at)?;
    // A received copy of a session that may have gone on is finished, so that nobody joins it.
    info.finished =
        field!(r, 0, Control, finished, u32_at)? != 0 && info.ending & 0xff != abi::ENDING_UNSEEN;
    info.metrics_room =
        [field!(r, 0, Control, counters, u32_at)?, field!(r, 0, Control, histograms, u32_at)?];
    info.snapshot = Snapshot {
        state: SnapshotState::from_number(field!(r, 0, Control, snapshot, u32_at)?),
        taken: field!(r, 0, Control, snapshots, u32_at)?,
        clock: field!(r, 0, Control, snapshot_clock, u64_at)?,
        reader: field!(r, 0, Control, snapshot_reader, u64_at)?,
        locked: field!(r, 0, Control, snapshot_lock, u64_at)? != 0,
        of: field!(r, 0, Control, snapshot_stream, u32_at)?,
    };
    field!(r, 0, Control, flip, u32_at)
}

/// Fills in the window of the trigger of which the session is the saved snapshot, and the number of
/// triggers that were limited.
fn triggers(
    image: &dyn Image,
    region: &Region,
    control: u64,
    budget: &Budget,
    info: &mut Info,
) -> Result<(), Error> {
    let what = region.place();
    let place = control.saturating_add(offset_of!(Control, rules.triggers_off) as u64);
    let bytes = part(image, region, place, size_of::<u32>(), budget)?;
    let at = u64::from(Reader::new(&what, &bytes, region.order).based(place).u32_at(0)?);
    // A damaged region may have none.
    if at == 0 || at.saturating_add(size_of::<Triggers>() as u64) > region.size {
        return Ok(());
    }
    let bytes = part(image, region, at, size_of::<Triggers>(), budget)?;
    let r = Reader::new(&what, &bytes, region.order).based(at);
    info.limited_triggers = field!(r, 0, Triggers, limited, u32_at)?;
    if field!(r, 0, Triggers, is_cut, u32_at)? == 1 {
        let end = field!(r, 0, Triggers, window_end, u64_at)?;
        info.window = Some(Window {
            begin: field!(r, 0, Triggers, window_begin, u64_at)?,
            end: if end == 0 { u64::MAX } else { end },
            from: field!(r, 0, Triggers, window_from, u64_at)?,
        });
    }
    Ok(())
}

fn clock(image: &dyn Image, region: &Region, at: u64, budget: &Budget) -> Result<Clock, Error> {
    let bytes = part(image, region, at, size_of::<ClockArea>(), budget)?;
    let what = region.place();
    let r = Reader::new(&what, &bytes, region.order).based(at);
    let mut clock = Clock {
        kind: field!(r, 0, ClockArea, kind, u32_at)?,
        newest: field!(r, 0, ClockArea, newest, u32_at)?,
        frequency: field!(r, 0, ClockArea, frequency, u64_at)?,
        samples: [Sample::default(); 3],
    };
    for (i, sample) in clock.samples.iter_mut().enumerate() {
        let base = offset_of!(ClockArea, samples)
            .saturating_add(i.saturating_mul(size_of::<ClockSample>()));
        *sample = Sample {
            clock: field!(r, base, ClockSample, clock, u64_at)?,
            monotonic: field!(r, base, ClockSample, monotonic, u64_at)?,
            realtime: field!(r, base, ClockSample, realtime, u64_at)?,
            width: field!(r, base, ClockSample, width, u64_at)?,
        };
    }
    Ok(clock)
}

fn channels(
    image: &dyn Image,
    region: &Region,
    at: u64,
    budget: &Budget,
    info: &mut Info,
) -> Result<(), Error> {
    let len = abi::MAX_CHANNELS.saturating_mul(size_of::<Channel>());
    let bytes = part(image, region, at, len, budget)?;
    let what = region.place();
    let r = Reader::new(&what, &bytes, region.order).based(at);
    for id in 0..abi::MAX_CHANNELS {
        let base = id.saturating_mul(size_of::<Channel>());
        let state = field!(r, base, Channel, state, u32_at)?;
        let sub_buffers = field!(r, base, Channel, sub_buffers, u32_at)?;
        if state == 0 && sub_buffers == 0 {
            continue;
        }
        info.channels.push(ChannelInfo {
            id: u32::try_from(id).unwrap_or(u32::MAX),
            name: field!(r, base, Channel, name, text_at, 64)?,
            alive: state == 1,
            recording: field!(r, base, Channel, recording, u32_at)? != 0,
            mode: field!(r, base, Channel, mode, u32_at)?,
            flags: field!(r, base, Channel, flags, u32_at)?,
            contexts: field!(r, base, Channel, contexts, u32_at)?,
            sub_buffer_size: field!(r, base, Channel, sub_buffer_size, u64_at)?,
            sub_buffers,
            first_stream: field!(r, base, Channel, first_stream, u32_at)?,
            streams: field!(r, base, Channel, streams, u32_at)?,
            is_added: field!(r, base, Channel, flags, u32_at)? & abi::CHANNEL_ADDED != 0,
            snapshots: field!(r, base, Channel, snapshots, u32_at)?,
            unattached: field!(r, base, Channel, unattached, u64_at)?,
        });
    }
    Ok(())
}

fn processes(
    image: &dyn Image,
    region: &Region,
    parts: &Parts,
    budget: &Budget,
    info: &mut Info,
) -> Result<(), Error> {
    use abi::Process as Shape;
    // Guards that cannot be read say nothing.
    let guards = Guards::read(image, region, parts.control, budget).unwrap_or_default();
    info.inode = guards.inode;
    let at = parts.processes;
    let bytes =
        part(image, region, at, abi::MAX_PROCESSES.saturating_mul(size_of::<Shape>()), budget)?;
    let what = region.place();
    let r = Reader::new(&what, &bytes, region.order).based(at);
    for entry in 0..abi::MAX_PROCESSES {
        let base = entry.saturating_mul(size_of::<Shape>());
        let pid = field!(r, base, Shape, pid, u32_at)?;
        if pid != 0 {
            let start = field!(r, base, Shape, start, u64_at)?;
            let (pidns, guard) =
                (field!(r, base, Shape, pidns, u64_at)?, guards.guard(entry, pid, start));
            info.processes.push(Process { pid, start, pidns, guard });
        }
    }
    Ok(())
}

/// The guards of the processes, by their index, and the inode of the file that has them.
#[derive(Default)]
struct Guards {
    inode: u64,
    /// Key and word of each.
    entries: Vec<(u64, u32)>,
}

impl Guards {
    /// Reads them. Sessions of versions before 1.3 have none.
    fn read(
        image: &dyn Image,
        region: &Region,
        control: u64,
        budget: &Budget,
    ) -> Result<Self, Error> {
        use abi::Guard as Shape;
        let what = region.place();
        let place = control.saturating_add(offset_of!(Control, guards_off) as u64);
        let bytes = part(image, region, place, size_of::<u32>(), budget)?;
        let at = u64::from(Reader::new(&what, &bytes, region.order).based(place).u32_at(0)?);
        let size = size_of::<abi::Guards>();
        if at == 0 || at.saturating_add(size as u64) > region.size {
            return Ok(Self::default());
        }
        let bytes = part(image, region, at, size, budget)?;
        let r = Reader::new(&what, &bytes, region.order).based(at);
        let entry = |index: usize| {
            let own = index.saturating_mul(size_of::<Shape>());
            let base = offset_of!(abi::Guards, entries).saturating_add(own);
            Ok((field!(r, base, Shape, key, u64_at)?, field!(r, base, Shape, word, u32_at)?))
        };
        let entries = (0..abi::MAX_PROCESSES).map(entry).collect::<Result<_, Error>>()?;
        Ok(Self { inode: field!(r, 0, abi::Guards, inode, u64_at)?, entries })
    }

    /// Returns what the guard of a process says.
    fn guard(&self, entry: usize, pid: u32, start: u64) -> Guard {
        let own = self.entries.get(entry);
        let own = own.filter(|(key, _)| *key == abi::features_word(0, pid, start));
        own.map(|(_, word)| Guard::from_word(*word)).unwrap_or_default()
    }
}
