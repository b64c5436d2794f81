//! Creates a channel in a session that records, from any process of its user.
//!
//! The steps, under the session's lock for that
//! ([`lastwords_abi::session::Control::channels_lock`]):
//!
//! 1. What cannot be done is refused. Nothing is written before.
//! 2. What an earlier creator left that died in these steps is removed.
//! 3. The streams are written under names that no reader looks for, `.new-stream-NNNN`, with the
//!    memory that rings have at the start.
//! 4. The channel's first rules are written. Recorders do not use them yet.
//! 5. Under the snapshot lock, the files get their names, and the entry of the channel is filled.
//!    The store of its `state` publishes the channel. A snapshot is taken before or after that.
//! 6. The processes of the session are notified. Each maps the streams ([`Regions::attach`]) and
//!    makes its callsites record there. Until then it counts the events that the rules send to the
//!    channel in the entry's `unattached`.
//!
//! A creator that dies in between leaves no channel, or a whole one.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::compiler_fence;
use std::time::{Duration, Instant};

use lastwords_abi::session::{
    BACKEND_SHM, BACKEND_WORDS, CHANNEL_ADDED, Control, MAX_CHANNELS, SCOPE_USER, SNAPSHOT_OFF,
    word_of,
};
use lastwords_ring::StreamSpec;
use lastwords_ring::backend::Plan;
use lastwords_ring::init::init_added_stream;

use super::create::padded;
use super::dirs::Folder;
use super::layout::{ChannelPlace, stream_plan};
use super::liveness::{self, Life};
use super::region_names::{stream_name, stream_of_file, unfinished_stream_name};
use super::regions::{Regions, StreamRegion};
use super::rule_changes;
use super::rules::RuleSpec;
use super::session_region::locked;
use super::text::text;
use super::{ChannelConfig, Error, Memory, Scope, processes, snapshot, streams};

/// The name of the request in messages that refuse it.
const WHAT: &str = "a channel in a session that records";
/// The way that works everywhere.
const AT_START: &str = "configure the channel where the session is started";
/// How long a creator waits for another one.
const PATIENCE: Duration = Duration::from_secs(10);

impl Regions {
    /// Creates a channel while the session records. Returns its id.
    ///
    /// A channel with a filter takes the events for which the expression is true, whatever the
    /// session's other rules say. A channel with a level ([`ChannelConfig::max_level`]) takes such
    /// events as the session's rules enable. Without both, the channel takes nothing. Later rules
    /// change that.
    ///
    /// # Errors
    /// `Exists` if the session has a channel of this name. `Unsupported` if the session's memory is
    /// not shared-memory files, if it has ended, or if a process of an older version records in it.
    /// `Full` if the session has 32 channels or 64 rules. `Backend` if the file system has no room.
    /// Nothing has changed then.
    pub fn create_channel(
        &self,
        folder: &Folder,
        config: &ChannelConfig,
        filter: Option<&str>,
    ) -> Result<u32, Error> {
        check(self, config)?;
        let control = self.view.control();
        let begun = Instant::now();
        loop {
            let create = || create(self, folder, config, filter);
            match locked(&control.channels_lock, &control.namespaces, create) {
                Ok(created) => {
                    let created = created?;
                    self.view.announce();
                    return Ok(created);
                }
                Err(_) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(2))
                }
                Err(owner) => {
                    return Err(Error::Busy { what: "the session's table of channels", owner });
                }
            }
        }
    }
}

/// Refuses what no lock is needed to refuse.
fn check(regions: &Regions, config: &ChannelConfig) -> Result<(), Error> {
    config.check()?;
    let view = &regions.view;
    if view.info.backend != BACKEND_SHM {
        let why = format!(
            "the session's memory is {}, which cannot grow",
            word_of(&BACKEND_WORDS, view.info.backend)
        );
        return Err(Error::unsupported(WHAT, why, AT_START));
    }
    if !config.user_contexts.is_empty() {
        let why = "other processes of the session cannot provide the application's own contexts";
        return Err(Error::unsupported(WHAT, why, AT_START));
    }
    let is_live = view.table().judged().any(|(_, (life, _))| life != Life::Dead);
    let is_of_boot = !liveness::is_other_boot(&view.info.boot_id, &liveness::boot_id());
    if view.control().finished.load(Acquire) == 1 || !is_of_boot || !is_live {
        let why = format!("session {} has ended", view.name());
        return Err(Error::unsupported(WHAT, why, "name a session that records, or start it anew"));
    }
    Ok(())
}

/// Creates the channel. The caller holds the lock.
fn create(
    regions: &Regions,
    folder: &Folder,
    config: &ChannelConfig,
    filter: Option<&str>,
) -> Result<u32, Error> {
    let view = &regions.view;
    if view.channels().any(|(_, entry)| text(&entry.name) == config.name) {
        return Err(Error::Exists { what: "channel", name: config.name.clone() });
    }
    if let Some(pid) = processes::without_channels(view.table()) {
        let why = format!(
            "process {pid} records there with an older version, which would not see the channel"
        );
        return Err(Error::unsupported(
            WHAT,
            why,
            "start that process anew with this version, or configure the channel at the start",
        ));
    }
    let full = Error::Full {
        what: "channel",
        limit: MAX_CHANNELS,
        remedy: "send the events to a channel that exists",
    };
    let id = view.free_channel().ok_or(full)?;
    let place = ChannelPlace {
        uuid: view.uuid,
        channel: id,
        first_stream: streams::count(view),
        cpus: view.info.cpus,
        reservation: view.info.reservation,
        page_size: 0,
    };
    let specs = place.specs(config)?;
    let (before, behind) = first_rules(id, config, filter);
    regions.attach(Some(folder))?;
    remove_leftovers(regions, folder, &place)?;
    let made = make_streams(regions, folder, &specs).and_then(|streams| {
        rule_changes::begin_channel(view, id, &before, &behind)?;
        snapshot::locked(regions, |control| {
            publish(regions, folder, (config, &place), &streams, control)
        })
    });
    if let Err(error) = made {
        // The next creator removes what cannot be removed now.
        drop(remove_leftovers(regions, folder, &place));
        drop(rule_changes::begin_channel(view, id, &[], &[]));
        return Err(error);
    }
    Ok(id)
}

/// Returns the first rules of a channel: those that come before the session's other rules, and
/// those that come behind them.
fn first_rules(
    id: u32,
    config: &ChannelConfig,
    filter: Option<&str>,
) -> (Vec<RuleSpec>, Vec<RuleSpec>) {
    let all = RuleSpec { level: config.max_level, ..RuleSpec::enable("*").in_channel(id) };
    match (filter, config.max_level) {
        (Some(filter), _) => (Vec::new(), vec![all.with_filter(filter)]),
        (None, Some(_)) => (vec![all], Vec::new()),
        (None, None) => (Vec::new(), vec![RuleSpec::disable("*").in_channel(id)]),
    }
}

/// Removes what a creator left that did not publish its channel: the free entry of the table, which
/// must not name streams any more, and then the files of these streams.
fn remove_leftovers(regions: &Regions, folder: &Folder, place: &ChannelPlace) -> Result<(), Error> {
    let entry = regions.view.channel_ptr(place.channel as usize);
    // SAFETY: the entry is in the table and free, and only the holder of the lock writes free
    // entries.
    unsafe { (&raw mut (*entry).sub_buffers).write_volatile(0) };
    compiler_fence(Release);
    let is_leftover = |name: &String| {
        stream_of_file(name)
            .is_some_and(|(index, is_unfinished)| is_unfinished || index >= place.first_stream)
    };
    let names =
        folder.entries(folder.fd()?)?.filter_map(|entry| entry.file_name().into_string().ok());
    for name in names.filter(is_leftover) {
        folder.remove_file(&name)?;
    }
    Ok(())
}

/// Makes the streams under their unfinished names, with memory for their first half, and for the
/// spare if there are snapshots. In a session whose rings grow, they grow too.
fn make_streams(
    regions: &Regions,
    folder: &Folder,
    specs: &[StreamSpec],
) -> Result<Vec<StreamRegion>, Error> {
    let has_spares = regions.view.control().snapshot.load(Acquire) != SNAPSHOT_OFF;
    let grows =
        Memory::Shm.grows() && regions.streams.iter().next().is_some_and(StreamRegion::grows);
    let plan = |spec: &StreamSpec| {
        stream_plan(spec, unfinished_stream_name(spec.index), has_spares, grows)
    };
    let plans: Vec<Plan> = specs.iter().map(plan).collect();
    let (mappings, _) = Memory::Shm.allocate(Some(folder.for_ring()?), "", &plans)?;
    if let Some(mapping) = mappings.first().filter(|_| grows) {
        mapping.check_room(
            specs.iter().map(StreamSpec::half_size).sum::<u64>() * if has_spares { 2 } else { 1 },
        )?;
    }
    let made = mappings.into_iter().zip(specs).map(|(mapping, spec)| {
        // SAFETY: the back-end gave `region_len` zeroed, page-aligned, writable bytes, and nobody
        // records yet.
        unsafe { init_added_stream(mapping.as_ptr(), spec) };
        let ring = StreamRegion::new(mapping, &spec.session)?;
        ring.begin(grows);
        Ok(ring)
    });
    made.collect()
}

/// Gives the files their names and publishes the channel. The caller holds the snapshot lock too.
fn publish(
    regions: &Regions,
    folder: &Folder,
    (config, place): (&ChannelConfig, &ChannelPlace),
    streams: &[StreamRegion],
    control: &Control,
) -> Result<(), Error> {
    let view = &regions.view;
    for (index, ring) in (place.first_stream..).zip(streams) {
        if control.snapshot.load(Acquire) != SNAPSHOT_OFF {
            // Snapshots may have been enabled since the memory was allocated. What has memory keeps
            // it.
            ring.give(1)?;
        }
        // The first half is the live one, whichever that is in other streams.
        ring.stream.control().flip.store(control.flip.load(Acquire) & 1, Release);
        folder.rename_file(&unfinished_stream_name(index), &stream_name(index))?;
    }
    let scope = if view.info.scope == SCOPE_USER { Scope::User } else { Scope::Process };
    let entry = view.channel_ptr(place.channel as usize);
    // SAFETY: the entry is in the table and free: only the holder of the lock writes it, and others
    // look at `state` alone.
    unsafe {
        (*entry).recording.store(1, Relaxed);
        (*entry).next_id.store(0, Relaxed);
        (*entry).unattached.store(0, Relaxed);
        (*entry).told.store(0, Relaxed);
        (&raw mut (*entry).mode).write(config.mode);
        (&raw mut (*entry).flags).write(CHANNEL_ADDED | config.flags());
        (&raw mut (*entry).contexts).write(config.context_bits(scope));
        (&raw mut (*entry).first_stream).write(place.first_stream);
        (&raw mut (*entry).streams).write(streams.len() as u32);
        (&raw mut (*entry).sub_buffer_size).write(config.sub_buffer_size);
        (&raw mut (*entry).name).write(padded(&config.name));
        (&raw mut (*entry).snapshots).write(control.snapshots.load(Relaxed));
        // A reader takes an entry without sub-buffers for a free one, whatever else is in it.
        compiler_fence(Release);
        (&raw mut (*entry).sub_buffers).write_volatile(config.sub_buffers);
        (*entry).state.store(1, Release);
    }
    Ok(())
}
