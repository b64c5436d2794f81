//! Creates a session: memory, identity, tables, rules, streams. Its folder is published when
//! everything is complete.

use std::mem::offset_of;
use std::sync::atomic::Ordering::{Relaxed, Release};

use lastwords_abi::region::{KIND_COUNTERS, KIND_REGISTRY, KIND_SESSION, KIND_SPANS, REGION_ALIGN};
use lastwords_abi::registry::{ENV_SLEPT, KIND_CONTEXT, KIND_ENV};
use lastwords_abi::session::{
    BACKEND_SHM, Channel, Control, MAX_CHANNELS, MAX_THREADS, SCOPE_PROCESS, SCOPE_USER,
    SNAPSHOT_OFF, SNAPSHOT_READY, SessionInfo,
};
use lastwords_abi::spans::{SPANS_OFF, Span, SpansControl};
use lastwords_ring::backend::{Mapping, write_places};
use lastwords_ring::init::{init_stream, write_region};
use lastwords_ring::{ClockKind, StreamSpec, flush};
use rustix::process::geteuid;

use super::backends::is_persistent;
use super::layout::{Layout, Shape, counters_info};
use super::limits;
use super::regions::{Regions, StreamRegion};
use super::session_region::SessionRegion;
use super::shared::SessionShared;
use super::streams::Streams;
use super::{Builder, ChannelConfig, Error, Scope};
use crate::process::{clock, cut};
use crate::session::condition;
use crate::session::dirs::{self, Base, Folder, new_uuid};
use crate::session::liveness::{self, Identity};
use crate::session::processes;
use crate::session::rate;
use crate::session::registry::{Registry, context_bodies, env_body};
use crate::session::retention::{self, Retention};
use crate::session::room;
use crate::session::rules::{self, Line, RuleSpec};
use lastwords_folders::{ControlGroup, unique_of};

/// Creates the session that `builder` requests, in a folder of `base`. Also returns notes for
/// people.
///
/// `locked`: the caller holds the lock of `base`.
pub fn create(
    builder: &mut Builder,
    base: Option<&Base>,
    locked: bool,
) -> Result<(SessionShared, String), Error> {
    // The rate is measured before retention removes the session that shows it.
    if builder.seconds.is_some() && builder.rate.is_none() {
        builder.rate = base.and_then(|base| rate::measured(base, &builder.name));
    }
    // Retention runs before the memory is allocated, because the removed sessions make room.
    let path = base.map(|base| base.path.as_path());
    let room = room::look(path);
    let kept = room.retention(builder.retention);
    let apply = |kept| {
        base.map(|base| retention::apply(base, &builder.name, kept, locked)).unwrap_or_default()
    };
    let mut removed = apply(kept);
    if room.is_short(builder) && removed.sessions == 0 && kept != Retention::ALL {
        removed = apply(Retention { bytes: 0, ..kept });
    }
    let room = if removed.sessions > 0 { room::look(path) } else { room };
    let fitted = room.fit(builder)?;
    let uuid = new_uuid();
    let mut folder =
        base.map(|base| base.new_folder(&builder.name, &unique_of(&uuid))).transpose()?;
    let made = create_in(builder, uuid, folder.as_ref()).and_then(|(regions, note)| {
        regions.view.control().removed.store(removed.sessions, Relaxed);
        publish(&regions, folder.as_mut())?;
        Ok((regions, note))
    });
    // The error that is reported is the first one.
    let (regions, note) = made.inspect_err(|_| drop(folder.as_ref().map(Folder::remove)))?;
    let notes = [note]
        .into_iter()
        .chain(fitted)
        .chain(removed.notes())
        .chain(folder.as_ref().and_then(place_note));
    let note = notes.collect::<Vec<_>>().join("; ");
    Ok((SessionShared::new(regions, folder), note))
}

/// Returns a note about the place of the session, if it is not the usual one.
fn place_note(folder: &Folder) -> Option<String> {
    let place =
        folder.path.parent().filter(|place| dirs::candidates().iter().any(|one| one == place))?;
    let other = dirs::taken_by_another().filter(|other| place != other)?;
    Some(format!("in {}, as {} is another user's", place.display(), other.display()))
}

/// Creates memory, tables and streams. Returns the regions, and the back-end's choice for people.
fn create_in(
    builder: &Builder,
    uuid: [u8; 16],
    folder: Option<&Folder>,
) -> Result<(Regions, String), Error> {
    let layout = Layout::new(builder, uuid)?;
    let place = folder.map(Folder::for_ring).transpose()?;
    let unique = format!("lastwords-{}", unique_of(&uuid));
    let (mappings, note) = builder.memory.allocate(place, &unique, &layout.plans)?;
    let mut mappings = mappings.into_iter();
    let missing = || Error::region("back-end", 0, "it gave fewer regions than were asked for");
    let session = mappings.next().ok_or_else(missing)?;
    let registry = mappings.next().ok_or_else(missing)?;
    let spans = (builder.spans > 0).then(|| mappings.next().ok_or_else(missing)).transpose()?;
    let counters = counters_info(builder);
    let counters = counters.map(|_| mappings.next().ok_or_else(missing)).transpose()?;
    let view = init_session(builder, session, &layout)?;
    let rings = layout.specs.iter().zip(mappings);
    let rings =
        rings.map(|(spec, mapping)| init_ring(mapping, spec, builder.snapshot, layout.grows));
    let streams = rings.collect::<Result<Vec<_>, _>>()?;
    if let Some(ring) = streams.first().filter(|_| layout.grows) {
        // The rings are allocated later, so that a lack of room is found here and not then.
        ring.mapping
            .check_room(layout.needs(builder.snapshot).saturating_sub(layout.first_needs()))?;
    }
    fill_tables(builder, &view, &layout)?;
    let streams = Streams::new(streams);
    let regions =
        Regions { registry: Registry::new(registry, &view), view, spans, counters, streams };
    init_others(builder, &layout, &regions);
    regions.registry.append(KIND_ENV, &env_body("backend", &note));
    Ok((regions, note))
}

/// Writes header and identity of the session region.
fn init_session(
    builder: &Builder,
    mapping: Mapping,
    layout: &Layout,
) -> Result<SessionRegion, Error> {
    let me = Identity::current();
    let info = SessionInfo {
        created_realtime: ClockKind::Realtime.now(),
        created_monotonic: ClockKind::Monotonic.now(),
        creator_start: me.start,
        creator_pidns: me.pidns,
        creator_pid: me.pid,
        uid: geteuid().as_raw(),
        reservation: layout.reservation,
        backend: builder.memory.kind(),
        scope: if builder.scope == Scope::User { SCOPE_USER } else { SCOPE_PROCESS },
        cpus: layout.cpus,
        control_off: offset_of!(Shape, control) as u32,
        clock_off: offset_of!(Shape, clock) as u32,
        channels_off: offset_of!(Shape, channels) as u32,
        processes_off: offset_of!(Shape, processes) as u32,
        threads_off: offset_of!(Shape, threads) as u32,
        threads: MAX_THREADS as u32,
        boot_id: liveness::boot_id(),
        name: padded(&builder.name),
        hostname: padded(
            std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim(),
        ),
        program: program(),
    };
    // SAFETY: mappings are page-aligned, and no region is smaller than a page. Nobody else sees
    // this one yet.
    unsafe {
        let control = mapping.as_ptr().add(offset_of!(Shape, control));
        let write = |field: usize, area: usize| control.add(field).cast::<u32>().write(area as u32);
        write(offset_of!(Control, rules.filters_off), offset_of!(Shape, filters));
        write(offset_of!(Control, rules.triggers_off), offset_of!(Shape, triggers));
        write(offset_of!(Control, rules.conditions_off), offset_of!(Shape, conditions));
        write(offset_of!(Control, guards_off), offset_of!(Shape, guards));
        write_region(mapping.as_ptr(), KIND_SESSION, mapping.len(), layout.uuid, 0, info);
    }
    SessionRegion::new(mapping)
}

/// Returns text for a field, cut at the end.
pub(crate) fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0u8; N];
    let text = cut(text, N - 1).as_bytes();
    field[..text.len()].copy_from_slice(text);
    field
}

/// Returns the path of this program, cut at the front.
fn program() -> [u8; 256] {
    let path = std::fs::read_link("/proc/self/exe")
        .map(|path| path.display().to_string())
        .unwrap_or_default();
    let start = (path.len().saturating_sub(255)..=path.len())
        .find(|at| path.is_char_boundary(*at))
        .unwrap_or(0);
    padded(&path[start..])
}

/// Initialises a region as a stream. If its data is paged, pages are allocated. `grows`: the data
/// gets its memory when it is first used.
fn init_ring(
    mapping: Mapping,
    spec: &StreamSpec,
    snapshot: bool,
    grows: bool,
) -> Result<StreamRegion, Error> {
    // SAFETY: the back-end gave `region_len` zeroed, page-aligned, writable bytes, and nobody
    // records yet.
    unsafe { init_stream(mapping.as_ptr(), spec) };
    let ring = StreamRegion::new(mapping, &spec.session)?;
    ring.begin(grows);
    if spec.page_size != 0 {
        (0..if snapshot { 2 } else { 1 }).try_for_each(|half| ring.give(half))?;
    } else if grows && snapshot {
        ring.give(1)?;
    }
    Ok(ring)
}

/// Fills channels, rules, clock and this process, then switches recording on.
fn fill_tables(builder: &Builder, view: &SessionRegion, layout: &Layout) -> Result<(), Error> {
    for (id, channel) in layout.channels.iter().enumerate().take(MAX_CHANNELS) {
        let streams = || layout.specs.iter().filter(|spec| spec.channel == id as u32);
        let entry = Channel {
            state: 0.into(),
            recording: 1.into(),
            next_id: 0.into(),
            mode: channel.mode,
            flags: channel.flags(),
            contexts: channel.context_bits(builder.scope),
            first_stream: streams().map(|spec| spec.index).min().unwrap_or(0),
            streams: streams().count() as u32,
            sub_buffer_size: channel.sub_buffer_size,
            sub_buffers: channel.sub_buffers,
            snapshots: 0,
            unattached: 0.into(),
            name: padded(&channel.name),
            told: 0.into(),
        };
        // SAFETY: the entry is inside the table, which nobody else sees yet.
        let entry = unsafe {
            let place = view.channel_ptr(id);
            place.write(entry);
            &*place
        };
        entry.state.store(1, Release);
    }
    let rules =
        first_rules(builder, layout).iter().map(Line::new).collect::<Result<Vec<_>, _>>()?;
    rules::write(view.rules(), &rules)?;
    limits::init(view, builder.triggers);
    condition::init(view, &builder.conditions)?;
    clock::init(view.clock(), builder.clock.unwrap_or_else(clock::best));
    view.note_place();
    processes::join(&view.table());
    let control = view.control();
    let state = if builder.snapshot { SNAPSHOT_READY } else { SNAPSHOT_OFF };
    control.snapshot.store(state, Relaxed);
    control.persist.store(layout.persist as u32, Relaxed);
    if let Some(info) = counters_info(builder) {
        control.counters.store(info.counters, Relaxed);
        control.histograms.store(info.histograms, Relaxed);
    }
    control.recording.store(1, Release);
    Ok(())
}

/// Returns the first rules: the levels of the channels, which remain valid whatever rules follow,
/// then the requested events, if any.
fn first_rules(builder: &Builder, layout: &Layout) -> Vec<RuleSpec> {
    let level = |(id, channel): (usize, &ChannelConfig)| {
        channel.max_level.map(|level| RuleSpec::enable("*").in_channel(id as u32).up_to(level))
    };
    let mut first: Vec<RuleSpec> = layout.channels.iter().enumerate().filter_map(level).collect();
    if !builder.events.is_empty() {
        first.push(RuleSpec::disable("*"));
        first.extend(builder.events.iter().map(RuleSpec::enable));
    }
    first.extend(builder.rules.iter().cloned());
    first
}

/// Initialises registry, spans and counters.
fn init_others(builder: &Builder, layout: &Layout, regions: &Regions) {
    regions.registry.init();
    for (key, value) in &builder.env {
        regions.registry.append(KIND_ENV, &env_body(key, value));
    }
    let slept = ClockKind::Boottime.now().saturating_sub(ClockKind::Monotonic.now());
    if slept >= 1_000_000 {
        regions.registry.append(KIND_ENV, &env_body(ENV_SLEPT, &slept.to_string()));
    }
    if let Some(group) = ControlGroup::own().filter(|_| builder.scope == Scope::Process) {
        regions.registry.append(KIND_ENV, &env_body(ControlGroup::PROPERTY, &group.to_string()));
    }
    for (id, channel) in layout.channels.iter().enumerate() {
        for body in context_bodies(id as u16, &channel.user_contexts) {
            regions.registry.append(KIND_CONTEXT, &body);
        }
    }
    let registry = &regions.registry.mapping;
    // SAFETY: the reasons of `init_session` apply.
    unsafe {
        write_region(registry.as_ptr(), KIND_REGISTRY, registry.len(), layout.uuid, 0, [0; 0])
    };
    if let Some(spans) = &regions.spans {
        let control =
            spans.as_ptr().wrapping_add(lastwords_abi::spans::CONTROL_OFF).cast::<SpansControl>();
        let capacity = (spans.len() as usize - SPANS_OFF) / size_of::<Span>();
        // SAFETY: the address is inside the region and aligned, and nobody else sees it yet.
        unsafe {
            (&raw mut (*control).capacity).write(capacity as u32);
            write_region(spans.as_ptr(), KIND_SPANS, spans.len(), layout.uuid, 0, [0; 0]);
        }
    }
    if let Some((counters, info)) = regions.counters.as_ref().zip(counters_info(builder)) {
        let len = counters.len();
        // SAFETY: the reasons of `init_session` apply.
        unsafe { write_region(counters.as_ptr(), KIND_COUNTERS, len, layout.uuid, 0, info) };
    }
}

/// Flushes the regions, lists their locations and publishes the folder.
fn publish(regions: &Regions, folder: Option<&mut Folder>) -> Result<(), Error> {
    if is_persistent(regions.view.info.backend) {
        for mapping in regions.mappings() {
            // SAFETY: the bytes belong to the mapping. The back-end has flushed the rest when it
            // was zeroed.
            unsafe {
                flush::flush(mapping.as_ptr(), (mapping.len()).min(REGION_ALIGN * 64) as usize)
            };
        }
        flush::fence();
    }
    if let Some(folder) = folder {
        if regions.view.info.backend != BACKEND_SHM {
            write_places(folder.for_ring()?, regions.mappings())?;
        }
        folder.publish()?;
    }
    Ok(())
}
