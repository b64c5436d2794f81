//! Joining a session of a user, which another process made.

use std::sync::atomic::Ordering::Acquire;

use lastwords_abi::session::{
    CHANNEL_ADDED, Channel, MAX_PROCESSES, MODE_OVERWRITE, RESERVATION_WORDS, SCOPE_USER, word_of,
};

use super::regions::{Regions, look};
use super::session_region::SessionRegion;
use super::shared::{self, SessionShared};
use super::text::text;
use super::user_context::UserContext;
use super::{Builder, ChannelConfig, Error, Scope};
use crate::session::dirs::{Base, Folder};
use crate::session::liveness::{self, Identity};
use crate::session::processes;
use crate::session::registry::context_bodies;

/// Returns the folder of a user's session of this name that this process can join: it is of this
/// boot, this user and this pid namespace, and not finished.
pub(crate) fn find(base: &Base, name: &str) -> Result<Option<Folder>, Error> {
    let boot = liveness::boot_id();
    let pidns = Identity::current().pidns;
    let can_be_joined = |view: &SessionRegion| {
        let info = &view.info;
        let ours = info.scope == SCOPE_USER && info.boot_id == boot && info.creator_pidns == pidns;
        ours && view.control().finished.load(Acquire) == 0
    };
    // If the newest session can be joined, the others are not opened.
    let names = base.sessions_of(name)?;
    let mut folders = names.iter().filter_map(|candidate| base.folder(candidate).ok());
    Ok(folders.find(|folder| look(folder, can_be_joined).unwrap_or(false)))
}

/// Joins the session in a folder.
pub(crate) fn join(folder: Folder) -> Result<SessionShared, Error> {
    let regions = Regions::open(&folder)?;
    if processes::join(&regions.view.table()).is_none() {
        return Err(Error::Full {
            what: "process",
            limit: MAX_PROCESSES,
            remedy: "end a process of the session",
        });
    }
    Ok(SessionShared::new(regions, Some(folder)))
}

/// Returns the session of this process that has this folder, with one handle more. Another part of
/// this process already records in it.
pub(crate) fn ours(folder: &Folder) -> Option<&'static SessionShared> {
    let uuid = look(folder, |view| view.uuid).ok()?;
    shared::all().find(|session| session.view().uuid == uuid && session.add_handle())
}

/// Returns a note that the session was joined, and which settings differ from the requested ones.
/// The session must have the requested channels.
pub(crate) fn note(builder: &Builder, regions: &Regions) -> Result<String, Error> {
    let mut differs = Vec::new();
    for config in &builder.channels {
        let found = regions.view.channels().find(|(_, entry)| text(&entry.name) == config.name);
        let why = || format!("the session was made without channel {:?}", config.name);
        let remedy = "ask for the same channels in all programs, or for another session name";
        let missing = || Error::unsupported("a channel of a joined session", why(), remedy);
        let (_, entry) = found.ok_or_else(missing)?;
        if !is_as_asked(config, entry) {
            let (count, size) = (entry.sub_buffers, entry.sub_buffer_size);
            let mode = if entry.mode == MODE_OVERWRITE { "overwriting" } else { "discarding" };
            differs.push(format!(
                "channel {}: {count} sub-buffers of {size} bytes, {mode}",
                config.name
            ));
        }
    }
    if let Some(asked) = builder.reservation.map(|asked| asked as u32) {
        let made = regions.view.info.reservation;
        differs.extend(
            (asked != made).then(|| format!("reservation {}", word_of(&RESERVATION_WORDS, made))),
        );
    }
    let clock = regions.view.clock_kind();
    if builder.clock.is_some() && builder.clock != clock {
        differs.push(format!("clock {clock:?}"));
    }
    if !builder.events.is_empty() {
        differs.push(format!("rules (those of {} are not added)", builder.events.join(", ")));
    }
    let differs = differs.join("; ");
    Ok(if differs.is_empty() {
        "joined".to_owned()
    } else {
        format!("joined; it keeps its {differs}")
    })
}

fn is_as_asked(config: &ChannelConfig, entry: &Channel) -> bool {
    let same_size =
        (config.sub_buffers, config.sub_buffer_size) == (entry.sub_buffers, entry.sub_buffer_size);
    (same_size || !config.is_sized)
        && config.mode == entry.mode
        && config.context_bits(Scope::User) == entry.contexts
        && config.flags() == entry.flags & !CHANNEL_ADDED
}

/// Checks that this process can provide the joined session's own contexts.
pub(crate) fn check_contexts(
    regions: &Regions,
    contexts: impl Fn(&str) -> Vec<UserContext>,
) -> Result<(), Error> {
    for (id, entry) in regions.view.channels() {
        let name = text(&entry.name);
        let given = contexts(&name);
        let described = regions.registry.contexts_of(id as u16);
        if described != context_bodies(id as u16, &given).collect::<Vec<_>>() {
            let why = format!(
                "channel {name:?} has {}, this process gives {}",
                described.len(),
                given.len()
            );
            let remedy =
                "give the channel the same contexts in all programs, or another session name";
            return Err(Error::unsupported("contexts of a joined session", why, remedy));
        }
    }
    Ok(())
}
