//! Sessions: their folders and regions, rules, snapshots and processes. This layer knows nothing of callsites and events.

pub(crate) mod builder;
pub mod condition;
pub(crate) mod config;
pub mod consume;
pub(crate) mod create;
pub(crate) mod create_channel;
pub mod dead;
pub mod dirs;
pub(crate) mod ending;
pub(crate) mod environment;
mod error;
pub(crate) mod extra;
pub mod follow;
pub(crate) mod guard;
pub(crate) mod join;
pub(crate) mod latency;
pub(crate) mod layout;
pub(crate) mod listener;
pub(crate) mod liveness;
pub(crate) mod lost_memory;
pub(crate) mod orders;
pub mod processes;
pub(crate) mod rate;
pub(crate) mod regions;
pub mod registry;
pub mod remote_control;
pub(crate) mod retention;
pub(crate) mod retired;
pub mod rings;
pub(crate) mod room;
pub mod rules;
pub(crate) mod save;
pub(crate) mod session_region;
pub(crate) mod shared;
pub mod snapshot;
pub mod stream_out;
pub(crate) mod streams;
pub mod trigger;
pub(crate) mod user_context;
pub(crate) mod window;

use lastwords_ring::backend::{Mapping, discard_pages};
use lastwords_ring::flush;

pub use crate::handle::Session;
pub use builder::Builder;
pub use config::{ChannelConfig, Context, Level, Memory, Reservation, Scope};
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
pub(crate) fn wipe(regions: &regions::Regions) {
    if !regions::is_persistent(regions.view.info.backend) {
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

/// Gives memory and descriptors back to the system. Late recorders then write to private memory, which has empty rings.
pub(crate) fn give_back(session: &SessionShared) {
    let regions = &session.regions;
    // Another thread may be mapping the rings of a new channel, with descriptors that are given back here.
    if !regions.streams.seal() {
        return;
    }
    // SAFETY: the session's owner calls this, and all other use has ended. Only recorders may still run, and they need
    // no files.
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
