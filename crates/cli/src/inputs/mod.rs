//! What the words on the command line stand for: sessions, wherever their memory is.

mod places;

use crate::control;
use crate::say;
use crate::select::Which;
use crate::table::plain;
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use lastwords::admin::Handle;
use lastwords::snapshot::SnapshotReader;
use lastwords_trace::source::Source;
use lastwords_walk::own::Session;
use lastwords_walk::{Options, Recovered};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use places::Place;

pub(crate) use places::{folders_of, sessions_dir};

/// A session that was found.
pub(crate) struct Input {
    /// What was named, or the folder that the name stands for.
    pub(crate) from: PathBuf,
    /// What that was.
    pub(crate) kind: lastwords_image::Kind,
    /// What a core says of its process.
    pub(crate) core: Option<lastwords_image::core::CoreInfo>,
    /// The session.
    pub(crate) session: Session,
}

/// Finds the sessions of all words, in order; those that `which` does not want are left out. Remarks go to stderr.
///
/// # Errors
/// A word names nothing; what it names cannot be read or holds no session; `which` wants none of them.
pub(crate) fn open(words: &[String], which: &Which) -> anyhow::Result<Vec<Input>> {
    open_places(&resolve(words, which)?, which)
}

/// Finds the sessions of all words, as [`open`] does, and runs `read` over them. Snapshots of sessions that live are marked
/// as being read for that time, so that nobody takes another over them.
///
/// # Errors
/// As for [`open`]; a snapshot is not there, or is being read by another process.
pub(crate) fn reading<T>(
    words: &[String],
    which: &Which,
    read: impl FnOnce(&[Input]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let places = resolve(words, which)?;
    let live = |place: &&Place| which.snapshot && place.shown.is_dir() && control::is_live(&place.shown);
    let handles: Vec<Handle> = places.iter().filter(live).map(|p| Handle::open(&p.shown)).collect::<Result<_, _>>()?;
    let readers: Vec<SnapshotReader<'_>> = handles.iter().map(Handle::read_snapshot).collect::<Result<_, _>>()?;
    let done = read(&open_places(&places, which)?);
    drop(readers);
    done
}

fn resolve(words: &[String], which: &Which) -> anyhow::Result<Vec<Place>> {
    let mut places = Vec::new();
    for word in words {
        places.extend(places::of_word(word)?);
    }
    if let Some(pid) = which.pid {
        places.extend(places::of_process(pid)?);
    }
    Ok(places)
}

fn open_places(places: &[Place], which: &Which) -> anyhow::Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for place in places {
        inputs.extend(open_place(place, which)?);
    }
    let names: Vec<String> = inputs.iter().map(|i| plain(&i.session.info().name)).collect();
    inputs.retain(|input| which.wants(&input.session.info().name));
    if inputs.is_empty() {
        bail!("no session is called {}; there are: {}", which.sessions.join(" or "), names.join(", "));
    }
    let without = |input: &&Input| !matches!(input.session.info().snapshot.word(), "taken" | "reading" | "swapping");
    if which.snapshot
        && let Some(input) = inputs.iter().find(without)
    {
        bail!(
            "{}: session {} holds no snapshot (its state is {}); take one while it lives: lastwords snapshot take",
            input.from.display(),
            plain(&input.session.info().name),
            input.session.info().snapshot.word()
        );
    }
    Ok(inputs)
}

/// Bytes of packets to be read of all sources, about.
pub(crate) fn bytes(sources: &[&dyn Source]) -> u64 {
    sources.iter().flat_map(|s| &s.evidence().sub_buffers).map(|s| s.content).sum()
}

fn open_place(place: &Place, which: &Which) -> anyhow::Result<Vec<Input>> {
    let found = scan(&place.open, which.snapshot)?;
    for note in &found.notes {
        say::note(plain(note));
    }
    if found.sessions.is_empty() {
        bail!("{}: {}", place.shown.display(), nothing(&found));
    }
    let Recovered { kind, core, sessions, .. } = found;
    let input = |session| Input { from: place.shown.clone(), kind, core: core.clone(), session };
    let wanted = |session: &Session| place.unique.as_deref().is_none_or(|unique| is_of(session, unique));
    let inputs: Vec<Input> = sessions.into_iter().filter(wanted).map(input).collect();
    if inputs.is_empty() {
        let there = place.open.display();
        bail!("{}: what {there} holds now is another session; give a core of its process", place.shown.display());
    }
    Ok(inputs)
}

/// Scans a file or folder for sessions, with a spinner where it takes long.
fn scan(path: &Path, snapshot: bool) -> anyhow::Result<Recovered> {
    let options = Options { snapshot };
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{msg} {bytes}/{total_bytes} {spinner}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    let (begun, terminal) = (Instant::now(), std::io::stderr().is_terminal());
    let watch = |p: lastwords_image::Progress<'_>| {
        if terminal && begun.elapsed() > Duration::from_millis(500) {
            bar.set_message(p.what.to_owned());
            bar.set_length(p.total.unwrap_or(p.done));
            bar.set_position(p.done);
        }
    };
    let found = lastwords_walk::open_with(path, &options, &lastwords_bytes::Budget::default(), &watch);
    bar.finish_and_clear();
    found.with_context(|| path.display().to_string())
}

/// The session of a folder whose name ends so.
fn is_of(session: &Session, unique: &str) -> bool {
    let uuid = session.info().uuid;
    let hexadecimal: String = uuid.iter().take(unique.len() / 2).map(|byte| format!("{byte:02x}")).collect();
    hexadecimal == unique
}

fn nothing(found: &Recovered) -> String {
    use lastwords_image::Kind;
    let remedy = match found.kind {
        Kind::Core | Kind::CompressedCore => {
            "sessions in shared-memory files are not in a core: `lastwords list` shows them; for memfd and heap sessions \
             the core filter decides: `lastwords doctor`"
        }
        Kind::Folder => "a session's folder holds its region files; `lastwords list` shows the sessions there are",
        Kind::Plain => "name a session, its folder, or a process core",
    };
    format!("no session is in this {}; {remedy}", found.kind.words())
}
