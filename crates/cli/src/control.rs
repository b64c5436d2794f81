//! Finds the session that a control verb is for, by its name or its folder.

use crate::input::Input;
use crate::say;
use crate::table::plain;
use crate::traces::Traces;
use anyhow::{Context, bail};
use lastwords_control::{self, Handle, State, Summary};
use lastwords_ctf::Version;
use lastwords_filter::{Filter, Name};
use lastwords_live::{did_you_mean, is_live, is_live_summary};
use lastwords_render::filter::{self, BUILT_IN, unknown_events};
use std::path::PathBuf;

/// The session of a control verb, given by `--session` alone, because the verb's other words have
/// another meaning.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SessionOption {
    /// The session's name or folder
    ///
    /// The option may be left out if only one session is live.
    #[arg(short = 's', long = "session", value_name = "SESSION")]
    session: Option<String>,
}

impl SessionOption {
    /// Returns a handle on the session.
    pub(crate) fn open(&self) -> anyhow::Result<Handle> {
        open(self.session.as_deref())
    }
}

/// The session of a control verb, given as a word or by `--session`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SessionChoice {
    /// The session's name or folder, as with --session
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    word: Option<String>,

    #[command(flatten)]
    which: SessionOption,
}

impl SessionChoice {
    /// Returns the name or folder that was given.
    pub(crate) fn word(&self) -> Option<&str> {
        self.word.as_deref().or(self.which.session.as_deref())
    }

    /// Returns a handle on the session.
    pub(crate) fn open(&self) -> anyhow::Result<Handle> {
        open(self.word())
    }
}

/// Prints a note for each glob over names that matches no event of the session so far, and for each
/// field of the filter that no event has so far: rules are for later events too.
pub(crate) fn note_unknown(session: &Handle, globs: &[String], filter: Option<&Filter>) {
    let Summary { folder, name, .. } = session.summary();
    let described = |traces: Traces| traces.packets(Version::V2);
    let Ok(described) = Input::of_session(&folder.to_string_lossy(), false).find(described) else {
        return;
    };
    let name = plain(&name);
    for (glob, near) in unknown_events(globs, &described, &[]) {
        let near = match near.is_empty() {
            true => String::new(),
            false => format!("; did you mean {}?", plain(&near.join(", "))),
        };
        let glob = plain(glob);
        say::note(format_args!("no event of session {name} is called {glob} so far{near}"));
    }
    let names = filter.iter().flat_map(|filter| filter.names());
    // The application knows these values of every event.
    let is_known =
        |name: &str| BUILT_IN.contains(&name) || ["vpid", "vtid", "procname"].contains(&name);
    for field in names.filter_map(Name::plain).filter(|field| !is_known(field)) {
        if Filter::parse(field).is_ok_and(|field| filter::check(&field, &described, &[]).is_err()) {
            say::note(format_args!(
                "no event of session {name} has a field {} so far",
                plain(field)
            ));
        }
    }
}

/// Opens the session with a name or folder. Without one, it opens the only live session.
fn open(session: Option<&str>) -> anyhow::Result<Handle> {
    let folder = match session {
        Some(word) => folder(word)?,
        None => only()?,
    };
    Handle::open(&folder).with_context(|| folder.display().to_string())
}

/// Returns the folder of a name or path. If several sessions have the name, it returns the live
/// one.
pub(crate) fn folder(word: &str) -> anyhow::Result<PathBuf> {
    if word.contains('/') {
        return Ok(PathBuf::from(word));
    }
    let folders = lastwords_live::folders_of(word);
    match folders.as_slice() {
        [] => Err(no_session(word)),
        [one] => Ok(one.clone()),
        several => {
            let live: Vec<&PathBuf> = several.iter().filter(|f| is_live(f)).collect();
            match live.as_slice() {
                [one] => Ok((*one).clone()),
                _ => bail!(
                    "{} sessions are called {word}; name one by its folder: {}",
                    several.len(),
                    names(several)
                ),
            }
        }
    }
}

/// Returns the folder of a name or path, for a verb that changes nothing. If several sessions have
/// the name, it returns the newest, as readers do, and prints a note.
pub(crate) fn newest_folder(word: &str) -> anyhow::Result<PathBuf> {
    if word.contains('/') {
        return Ok(PathBuf::from(word));
    }
    let folders = lastwords_live::folders_of(word);
    let newest = folders.first().ok_or_else(|| no_session(word))?;
    if folders.len() > 1 {
        let (count, word) = (folders.len(), plain(word));
        let newest = plain(&newest.display().to_string());
        say::note(format_args!("{count} sessions are called {word}; this is the newest: {newest}"));
    }
    Ok(newest.clone())
}

/// Returns the error for a name that no session has.
pub(crate) fn no_session(word: &str) -> anyhow::Error {
    let near = did_you_mean(word);
    anyhow::anyhow!(
        "{word}: no session of that name{near}; `lastwords list` shows the sessions there are"
    )
}

/// Returns the folder of the only live session.
fn only() -> anyhow::Result<PathBuf> {
    let live: Vec<PathBuf> = lastwords_control::list(None)?
        .into_iter()
        .filter(is_live_summary)
        .map(|s| s.folder)
        .collect();
    match live.as_slice() {
        [one] => Ok(one.clone()),
        [] => bail!("no session lives; `lastwords list` shows those that have ended"),
        several => {
            bail!("{} sessions live; name one with --session: {}", several.len(), names(several))
        }
    }
}

fn names(folders: &[PathBuf]) -> String {
    folders.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns one word for a state.
pub(crate) fn state_word(state: State) -> &'static str {
    match state {
        State::Live => "live",
        State::LeftOver => "left-over",
        State::Finished => "finished",
        State::Unknown => "unknown",
        State::Copied => "copied",
    }
}
