//! Making a session: memory, identity, tables, rules, streams; then its folder is published, whole.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicUsize};

use lastwords_abi::region::{HEADER_SIZE, KIND_REGISTRY, KIND_SESSION, KIND_SPANS, REGION_ALIGN};
use lastwords_abi::registry::{KIND_CONTEXT, KIND_ENV};
use lastwords_abi::session::{
    CHANNEL_PAYLOAD_SIZE, Channel, MAX_CHANNELS, MAX_THREADS, SCOPE_PROCESS, SCOPE_USER, SNAPSHOT_OFF, SNAPSHOT_READY,
    SessionInfo,
};
use lastwords_abi::spans::{SPANS_OFF, Span, SpansControl};
use lastwords_ring::backend::{
    Backend, DaxBackend, HeapBackend, HugeBackend, Mapping, MemfdBackend, PhysicalBackend, ShmBackend, flush,
    write_places,
};
use lastwords_ring::{ClockKind, StreamSpec, init, init_stream};

use super::builder::Builder;
use super::config::{ChannelConfig, Memory, Scope};
use super::error::Error;
use super::layout::{Layout, Offsets, Wish, cpus};
use super::regions::{Regions, StreamRegion};
use super::session_region::SessionRegion;
use super::shared::{STAYS, SessionShared};
use crate::process::clock;
use crate::session::dirs::{self, Base, Folder, new_uuid, unique_of};
use crate::session::processes::{self, Identity};
use crate::session::registry::{context_body, env_body};
use crate::session::retention::{self, Removed};
use crate::session::rules::{self, RuleSpec};

/// Makes the session that `builder` asks for, in a folder of `base`.
///
/// `locked`: the caller holds the lock of `base`.
pub(crate) fn create(builder: &Builder, base: Option<&Base>, locked: bool) -> Result<SessionShared, Error> {
    // First, as what is removed makes room.
    let removed = base.map(|base| retention::apply(base, &builder.name, builder.retention, locked)).unwrap_or_default();
    let uuid = new_uuid();
    let unique = unique_of(&uuid);
    let mut folder = base.map(|base| base.new_folder(&builder.name, &unique)).transpose()?;
    let made = create_in(builder, uuid, folder.as_ref())
        .and_then(|(regions, backend)| finish(regions, &*backend, folder.as_mut(), &removed));
    match made {
        Ok((regions, note)) => Ok(SessionShared {
            outside: outside(&regions, folder.as_ref()),
            regions,
            note: place_note(note, folder.as_ref()),
            folder,
            handles: AtomicUsize::new(1),
            removal: AtomicU8::new(STAYS),
            slots: OnceLock::new(),
        }),
        Err(error) => {
            // The reason that is told is the first one.
            drop(folder.map(|folder| folder.remove()));
            Err(error)
        }
    }
}

/// The note, and where the session is if that is another place than it should be.
fn place_note(note: String, folder: Option<&Folder>) -> String {
    let place = folder
        .and_then(|folder| folder.path.parent())
        .filter(|place| dirs::candidates().iter().any(|one| one == place));
    match (place, dirs::taken_by_another()) {
        (Some(place), Some(other)) if place != other => {
            format!("{note}; in {}, as {} is another user's", place.display(), other.display())
        }
        _ => note,
    }
}

/// Memory, tables and streams.
fn create_in(builder: &Builder, uuid: [u8; 16], folder: Option<&Folder>) -> Result<(Regions, Box<dyn Backend>), Error> {
    let mut backend = backend(&builder.memory, folder, &unique_of(&uuid))?;
    let reservation = builder.reservation_code(backend.persistent())?;
    let page_size = backend.page_size();
    let channels = builder.channels();
    for channel in &channels {
        channel.check(page_size != 0)?;
    }
    let (registry_len, spans) = (builder.registry_len, builder.spans);
    let snapshot = builder.snapshot;
    let wish = Wish { uuid, channels: &channels, cpus: cpus(), reservation, page_size, snapshot, registry_len, spans };
    let layout = Layout::new(&wish);
    if layout.needs > builder.size_limit {
        return Err(Error::TooLarge { needs: layout.needs, limit: builder.size_limit });
    }
    let mut mappings = backend.allocate(&layout.plans)?.into_iter();
    let missing = || Error::region("back-end", 0, "it gave fewer regions than were asked for");
    let session = mappings.next().ok_or_else(missing)?;
    let registry = mappings.next().ok_or_else(missing)?;
    let spans = if spans > 0 { Some(mappings.next().ok_or_else(missing)?) } else { None };
    let view = init_session(builder, &session, &wish, backend.kind())?;
    let mut streams = Vec::new();
    for (spec, mapping) in layout.specs.iter().zip(mappings) {
        streams.push(init_ring(mapping, spec, snapshot)?);
    }
    fill_tables(builder, &view, &wish, &layout);
    let regions = Regions::new(session, view, registry, spans, streams);
    init_others(builder, &wish, &regions);
    Ok((regions, backend))
}

fn backend(memory: &Memory, folder: Option<&Folder>, unique: &str) -> Result<Box<dyn Backend>, Error> {
    let in_folder = || {
        let folder = folder.ok_or_else(|| Error::Unsupported {
            what: "back-end",
            why: "it needs the session's folder".to_owned(),
            remedy: "use another back-end",
        })?;
        let fd = folder.fd()?.try_clone_to_owned().map_err(|error| Error::io("dup", &folder.path, error))?;
        Ok::<_, Error>((fd, folder.path.display().to_string()))
    };
    Ok(match memory {
        Memory::Heap => Box::new(HeapBackend),
        Memory::Memfd => Box::new(MemfdBackend),
        Memory::Shm => {
            let (fd, path) = in_folder()?;
            Box::new(ShmBackend::new(fd, path))
        }
        Memory::Huge => {
            let (fd, path) = in_folder()?;
            Box::new(HugeBackend::new(fd, path, format!("lastwords-{unique}")))
        }
        Memory::Dax { path, reuse } => Box::new(DaxBackend::new(path.display().to_string()).reuse(*reuse)),
        Memory::Physical { path, offset, len, reuse } => {
            Box::new(PhysicalBackend::new(path.display().to_string(), *offset, *len).reuse(*reuse))
        }
    })
}

/// Writes header and identity of the session region.
fn init_session(builder: &Builder, mapping: &Mapping, wish: &Wish<'_>, backend: u32) -> Result<SessionRegion, Error> {
    let me = Identity::current();
    let offsets = Offsets::new();
    // SAFETY: geteuid has no way to fail.
    let uid = unsafe { libc::geteuid() };
    let info = SessionInfo {
        created_realtime: ClockKind::Realtime.now(),
        created_monotonic: ClockKind::Monotonic.now(),
        creator_start: me.start,
        creator_pidns: me.pidns,
        creator_pid: me.pid,
        uid,
        reservation: wish.reservation,
        backend,
        scope: if builder.scope == Scope::User { SCOPE_USER } else { SCOPE_PROCESS },
        cpus: wish.cpus,
        control_off: offsets.control,
        clock_off: offsets.clock,
        channels_off: offsets.channels,
        processes_off: offsets.processes,
        threads_off: offsets.threads,
        threads: MAX_THREADS as u32,
        boot_id: processes::boot_id(),
        name: padded(&builder.name),
        hostname: padded(std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim()),
        program: program(),
    };
    let header = init::region_header(KIND_SESSION, mapping.len(), wish.uuid, 0, init::bytes_of(&info));
    // SAFETY: the region is ours, zeroed, aligned and longer than both.
    unsafe {
        mapping.as_ptr().add(HEADER_SIZE as usize).cast::<SessionInfo>().write(info);
        init::write_header(mapping.as_ptr(), &header);
    }
    SessionRegion::of(mapping)
}

/// Text in a field, cut at the end.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0u8; N];
    let end = (0..=text.len().min(N - 1)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    field[..end].copy_from_slice(&text.as_bytes()[..end]);
    field
}

/// Path of this program, cut at the front.
fn program() -> [u8; 256] {
    let path = std::fs::read_link("/proc/self/exe").map(|path| path.display().to_string()).unwrap_or_default();
    let start = (path.len().saturating_sub(255)..=path.len()).find(|at| path.is_char_boundary(*at)).unwrap_or(0);
    padded(&path[start..])
}

/// Makes a stream of a region; pages are allocated where its data is paged.
fn init_ring(mapping: Mapping, spec: &StreamSpec, snapshot: bool) -> Result<StreamRegion, Error> {
    // SAFETY: the back-end gave `region_len` zeroed, page-aligned, writable bytes, and nobody records yet.
    unsafe { init_stream(mapping.as_ptr(), spec) };
    if spec.page_size != 0 {
        let pages = (spec.half_size() / u64::from(spec.page_size)) as usize;
        for half in 0..if snapshot { 2 } else { 1 } {
            mapping.fill_pages(spec.data_range(half).start, pages, spec.page_size)?;
        }
    }
    StreamRegion::of(mapping, &spec.session)
}

/// Channels, rules, clock, this process; then recording is on.
fn fill_tables(builder: &Builder, view: &SessionRegion, wish: &Wish<'_>, layout: &Layout) {
    for (id, channel) in wish.channels.iter().enumerate().take(MAX_CHANNELS) {
        let (first_stream, streams) = layout.of_channel[id];
        let entry = Channel {
            state: 0.into(),
            recording: 1.into(),
            next_id: 0.into(),
            mode: channel.mode,
            flags: if channel.payload_size { CHANNEL_PAYLOAD_SIZE } else { 0 },
            contexts: channel.context_bits(builder.scope),
            first_stream,
            streams,
            sub_buffer_size: channel.sub_buffer_size,
            sub_buffers: channel.sub_buffers,
            reserved: 0,
            reserved2: 0,
            name: padded(&channel.name),
        };
        // SAFETY: inside the table, which nobody else sees yet.
        let entry = unsafe {
            let place = view.channel_ptr(id);
            place.write(entry);
            &*place
        };
        entry.state.store(1, Release);
    }
    rules::write(&view.control().rules, &first_rules(builder, wish));
    clock::init(view.clock(), builder.clock.unwrap_or_else(clock::best));
    processes::join(view.processes());
    let control = view.control();
    let state = if builder.snapshot { SNAPSHOT_READY } else { SNAPSHOT_OFF };
    control.snapshot.store(state, Relaxed);
    control.recording.store(1, Release);
}

/// The levels of the channels, which hold whatever comes behind them; then the events that were asked for, if any were.
fn first_rules(builder: &Builder, wish: &Wish<'_>) -> Vec<RuleSpec> {
    let level = |(id, channel): (usize, &ChannelConfig)| {
        channel.max_level.map(|level| RuleSpec::enable("*").in_channel(id as u32).up_to(level))
    };
    let mut first: Vec<RuleSpec> = wish.channels.iter().enumerate().filter_map(level).collect();
    if !builder.events.is_empty() {
        first.push(RuleSpec::disable("*"));
        first.extend(builder.events.iter().map(RuleSpec::enable));
    }
    first.extend(builder.rules.iter().cloned());
    first
}

/// Registry and spans.
fn init_others(builder: &Builder, wish: &Wish<'_>, regions: &Regions) {
    regions.registry.init();
    for (key, value) in &builder.env {
        regions.registry.append(KIND_ENV, &env_body(key, value));
    }
    for (id, channel) in wish.channels.iter().enumerate() {
        for (index, context) in channel.user_contexts.iter().enumerate() {
            let body = context_body(id as u16, index as u16, context.name(), &context.ty());
            regions.registry.append(KIND_CONTEXT, &body);
        }
    }
    let header = |mapping: &Mapping, kind| init::region_header(kind, mapping.len(), wish.uuid, 0, &[]);
    let registry = &regions.registry_mapping;
    // SAFETY: the region is ours and aligned.
    unsafe { init::write_header(registry.as_ptr(), &header(registry, KIND_REGISTRY)) };
    if let Some(spans) = &regions.spans {
        let control = spans.as_ptr().wrapping_add(lastwords_abi::spans::CONTROL_OFF).cast::<SpansControl>();
        let capacity = (spans.len() as usize - SPANS_OFF) / size_of::<Span>();
        // SAFETY: inside the region, aligned, and nobody else sees it yet.
        unsafe {
            (&raw mut (*control).capacity).write(capacity as u32);
            init::write_header(spans.as_ptr(), &header(spans, KIND_SPANS));
        }
    }
}

/// Notes what was chosen, flushes, says where the regions are and publishes the folder.
fn finish(
    regions: Regions,
    backend: &dyn Backend,
    folder: Option<&mut Folder>,
    removed: &Removed,
) -> Result<(Regions, String), Error> {
    let mut note = backend.note();
    regions.registry.append(KIND_ENV, &env_body("backend", &note));
    regions.view.control().removed.store(removed.sessions, Relaxed);
    let removed = removed.note();
    if !removed.is_empty() {
        note = if note.is_empty() { removed } else { format!("{note}; {removed}") };
    }
    if backend.persistent() {
        for mapping in regions.mappings() {
            // SAFETY: the mapping's own bytes. What lies behind was flushed by the back-end when it was zeroed.
            unsafe { flush::flush(mapping.as_ptr(), (mapping.len()).min(REGION_ALIGN * 64) as usize) };
        }
        flush::fence();
    }
    if let Some(folder) = folder {
        publish(folder, &regions, backend.in_folder())?;
    }
    Ok((regions, note))
}

fn publish(folder: &mut Folder, regions: &Regions, in_folder: bool) -> Result<(), Error> {
    if !in_folder {
        let mappings: Vec<&Mapping> = regions.mappings().collect();
        write_places(folder.fd()?, &folder.path.display().to_string(), &mappings)?;
    }
    folder.publish()
}

/// The file of a hugetlbfs, which lies outside the folder and is the session's own.
fn outside(regions: &Regions, folder: Option<&Folder>) -> Option<PathBuf> {
    let (path, _) = regions.session.place()?;
    let own = regions.view.info.backend == lastwords_abi::session::BACKEND_HUGE;
    let path = PathBuf::from(path);
    (own && !folder.is_some_and(|folder| path.starts_with(&folder.path))).then_some(path)
}
