//! Sessions that are controlled: found by name or folder.

use anyhow::{Context, bail};
use lastwords::remote_control::{self, Handle, State};
use lastwords_open::{is_live, is_live_summary};
use std::path::PathBuf;

/// Which session a control verb is for, by `--session` alone: its other words are something else.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Which {
    /// The session's name or folder; where there is only one that lives, it need not be named
    #[arg(short = 's', long = "session", value_name = "SESSION")]
    session: Option<String>,
}

impl Which {
    /// A handle on it.
    pub(crate) fn open(&self) -> anyhow::Result<Handle> {
        open(self.session.as_deref())
    }
}

/// Which session a control verb is for, by either way of naming one.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Named {
    /// The session's name or folder, as with --session
    #[arg(value_name = "SESSION", conflicts_with = "session")]
    word: Option<String>,

    #[command(flatten)]
    which: Which,
}

impl Named {
    /// A handle on it.
    pub(crate) fn open(&self) -> anyhow::Result<Handle> {
        open(self.word.as_deref().or(self.which.session.as_deref()))
    }
}

/// A handle on the session of a name or folder; where none is named, on the only one that lives.
fn open(session: Option<&str>) -> anyhow::Result<Handle> {
    let folder = match session {
        Some(word) => folder(word)?,
        None => only()?,
    };
    Handle::open(&folder).with_context(|| folder.display().to_string())
}

/// The folder of a name or path; of several sessions of a name the one that lives.
pub(crate) fn folder(word: &str) -> anyhow::Result<PathBuf> {
    if word.contains('/') {
        return Ok(PathBuf::from(word));
    }
    let folders = lastwords_open::folders_of(word);
    match folders.as_slice() {
        [] => bail!("{word}: no session of that name; `lastwords list` shows the sessions there are"),
        [one] => Ok(one.clone()),
        several => {
            let live: Vec<&PathBuf> = several.iter().filter(|f| is_live(f)).collect();
            match live.as_slice() {
                [one] => Ok((*one).clone()),
                _ => bail!(
                    "{word}: {} sessions are called so; name one by its folder:\n{}",
                    several.len(),
                    lines(several)
                ),
            }
        }
    }
}

/// The only session that lives.
fn only() -> anyhow::Result<PathBuf> {
    let live: Vec<PathBuf> =
        remote_control::list(None)?.into_iter().filter(is_live_summary).map(|s| s.folder).collect();
    match live.as_slice() {
        [one] => Ok(one.clone()),
        [] => bail!("no session lives; `lastwords list` shows those that are left over: name one with --session"),
        several => bail!("{} sessions live; name one with --session:\n{}", several.len(), lines(several)),
    }
}

fn lines(folders: &[PathBuf]) -> String {
    folders.iter().map(|f| format!("  {}", f.display())).collect::<Vec<_>>().join("\n")
}

/// One word for a state.
pub(crate) fn state_word(state: State) -> &'static str {
    match state {
        State::Live => "live",
        State::LeftOver => "left-over",
        State::Finished => "finished",
        State::Unknown => "unknown",
    }
}
