//! Sessions: their folders and regions, rules, snapshots and processes. This layer knows nothing of
//! callsites and events.

pub(crate) mod action;
pub mod backends;
pub(crate) mod builder;
pub(crate) mod calls;
pub(crate) mod condition;
pub mod config;
pub(crate) mod counter;
pub(crate) mod cpus;
pub mod create;
pub(crate) mod create_channel;
pub(crate) mod desc;
pub mod dirs;
pub mod ending;
pub mod environment;
mod error;
pub(crate) mod extra;
pub(crate) mod guard;
pub(crate) mod hidden;
pub(crate) mod join;
pub(crate) mod last_thread;
pub(crate) mod latency;
pub(crate) mod layout;
pub(crate) mod limits;
pub(crate) mod listener;
pub(crate) mod listener_thread;
pub mod liveness;
pub(crate) mod lost_memory;
pub(crate) mod metrics;
pub(crate) mod operations;
pub(crate) mod orders;
pub(crate) mod outcome;
pub mod processes;
pub(crate) mod rate;
pub mod region_names;
pub mod regions;
pub mod registry;
pub mod retention;
pub(crate) mod retired;
pub(crate) mod room;
pub(crate) mod rule_changes;
pub mod rules;
pub mod save;
pub mod session_region;
pub mod shared;
pub mod snapshot;
pub mod streams;
pub mod text;
pub mod trigger;
pub(crate) mod user_context;
pub mod window;

use lastwords_ring::backend::{Mapping, discard_pages};
use lastwords_ring::flush;

pub use builder::Builder;
pub use config::{ChannelConfig, Level, Memory, Reservation, Scope};
use dirs::Folder;
pub use ending::{Ended, Ending};
pub use error::Error;
pub use retention::Retention;
use shared::SessionShared;
pub use window::Window;

/// Removes the session's files, and its magic in persistent memory.
pub(crate) fn remove(session: &SessionShared) {
    // A folder that cannot be removed is listed as finished.
    drop(session.folder.as_ref().map(Folder::remove));
    wipe(&session.regions);
}

/// Removes the magic of a session in persistent memory, so that its memory can be used again.
pub fn wipe(regions: &regions::Regions) {
    if !backends::is_persistent(regions.view.info.backend) {
        return;
    }
    for mapping in regions.mappings() {
        // SAFETY: these are the first bytes of a region; readers see a region or none.
        unsafe {
            mapping.as_ptr().cast::<[u8; 16]>().write_volatile([0; 16]);
            flush::flush(mapping.as_ptr(), 16);
        }
    }
    flush::fence();
}

/// Gives memory and descriptors back to the system. Late recorders then write to private memory,
/// which has empty rings.
pub(crate) fn give_back(session: &SessionShared) {
    let regions = &session.regions;
    // Another thread may be mapping the rings of a new channel, with descriptors that are given
    // back here.
    if !regions.streams.seal() {
        return;
    }
    // SAFETY: the session's owner calls this, and all other use has ended. Only recorders may still
    // run, and they need no files.
    let detach = |mapping: &Mapping| unsafe { mapping.detach() };
    for stream in regions.streams.iter() {
        for half in [0, 1] {
            // SAFETY: `StreamRegion::give` filled the table.
            unsafe { discard_pages(stream.stream.page_table(half)) };
        }
    }
    regions.registry.forget();
    regions.mappings().for_each(detach);
    if let Some(folder) = &session.folder {
        // SAFETY: no other call for the folder is under way, for the same reason.
        unsafe { folder.give_up() }
    }
}
