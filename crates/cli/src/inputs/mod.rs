//! What the words on the command line stand for: sessions, wherever their memory is.

mod consume;
mod places;
mod twice;

use crate::control;
use crate::exit::{Outcome, chain};
use crate::progress::spinning;
use crate::say;
use crate::select::Which;
use crate::table::plain;
use anyhow::{Context, bail};
use lastwords::Ended;
use lastwords::remote_control::Handle;
use lastwords_ctf::Version;
use lastwords_ctf::read::Trace;
use lastwords_trace::source::Source;
use lastwords_walk::own::{Session, Upto};
use lastwords_walk::{Options, Recovered};
use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use places::{Candidate, Place};

pub(crate) use consume::{Written, consuming};
pub(crate) use places::{folders_of, sessions_dir};

/// A session that was found.
pub(crate) struct Input {
    /// What was named, or the folder that the name stands for.
    pub(crate) from: PathBuf,
    /// What that was.
    pub(crate) kind: lastwords_image::Kind,
    /// What a core says of its process.
    pub(crate) core: Option<lastwords_image::core::CoreInfo>,
    /// How and when it ended, where it is in its own folder and nobody records in it any more.
    pub(crate) ended: Option<Ended>,
    /// The session.
    pub(crate) session: Arc<Session>,
}

impl Input {
    /// The trace that is written of it, with the names that metadata of a version have.
    pub(crate) fn trace(&self, version: Version) -> anyhow::Result<Trace> {
        Ok(lastwords_ctf::read::session(&self.session, &self.from, version)?)
    }
}

/// What was found of all that was asked for.
#[derive(Default)]
pub(crate) struct Found {
    /// Sessions, in the order of the words.
    pub(crate) inputs: Vec<Input>,
    /// What cannot be had besides, which was said on stderr.
    pub(crate) lacking: Lacking,
}

/// What of that which was asked for cannot be had, the least first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lacking {
    /// Nothing but what has nothing to recover and was not named.
    #[default]
    Nothing,
    /// A session in a folder of sessions: that is a loss.
    Beside,
    /// What was named.
    Named,
}

impl Lacking {
    /// How a verb ends that did what it could with the rest; `losses`: the rest has losses.
    pub(crate) fn outcome(self, strict: bool, losses: bool) -> Outcome {
        match self {
            _ if strict && (losses || self > Self::Nothing) => Outcome::Losses,
            Self::Named => Outcome::Negative,
            Self::Nothing | Self::Beside => Outcome::Done,
        }
    }

    /// Says why something cannot be had.
    fn tell(self, error: &anyhow::Error) {
        match self {
            Self::Nothing => say::note(format_args!("passed over: {}", chain(error))),
            Self::Beside | Self::Named => say::error(chain(error)),
        }
    }
}

/// Refuses words that name what cannot be read at positions.
pub(crate) fn check(words: &[String]) -> anyhow::Result<()> {
    let is_stream =
        |path: &Path| std::fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo() || m.file_type().is_socket());
    match words.iter().find(|word| is_stream(Path::new(word))) {
        Some(word) => bail!("{word}: a pipe, in which no place can be looked up; write it into a file and name that"),
        None => Ok(()),
    }
}

/// Raises the number of files that this program may open to what the system allows: a folder of sessions has thousands of streams.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it is refused, the files beyond the limit are reported as missing.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Finds the sessions of all words, in order; those that `which` does not want are left out. Remarks go to stderr, what
/// cannot be had among them.
///
/// # Errors
/// Nothing can be had of what the words name; `which` wants none of it.
pub(crate) fn open(words: &[String], which: &Which) -> anyhow::Result<Found> {
    open_all(resolve(words, which)?, which, &whole)
}

/// All of a place is read.
fn whole(_: &Place, open: &Open<'_>) -> anyhow::Result<Opened> {
    open(None)
}

/// Finds the sessions of all words, as [`open`] does, and runs `read` over them. Snapshots of sessions that live are marked
/// as being read for that time, so that nobody takes another over them.
///
/// # Errors
/// As for [`open`]; a snapshot is being read by another process.
pub(crate) fn reading<T>(
    words: &[String],
    which: &Which,
    read: impl FnOnce(&Found) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let candidates = resolve(words, which)?;
    let places = candidates.iter().filter_map(|candidate| candidate.place.as_ref().ok());
    let live = |place: &&Place| which.snapshot && place.shown.is_dir() && control::is_live(&place.shown);
    let handles: Vec<Handle> = places.filter(live).map(|p| Handle::open(&p.shown)).collect::<Result<_, _>>()?;
    let mut readers = Vec::new();
    for handle in &handles {
        match handle.read_snapshot() {
            Ok(reader) => readers.push(reader),
            // There is none: that is said of each session below.
            Err(lastwords::Error::Snapshot { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let found = open_all(candidates, which, &whole)?;
    if !which.snapshot {
        found.inputs.iter().filter(|input| holds_snapshot(input)).for_each(tell_snapshot);
    }
    let done = read(&found);
    drop(readers);
    done
}

/// The places of all words, each once.
fn resolve(words: &[String], which: &Which) -> anyhow::Result<Vec<Candidate>> {
    allow_many_files();
    let mut all: Vec<Candidate> = words.iter().flat_map(|word| places::of_word(word)).collect();
    if let Some(pid) = which.pid {
        all.extend(places::of_process(pid)?);
    }
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut known = HashMap::new();
    for candidate in all {
        let key = candidate.place.as_ref().ok().map(Place::key);
        let at = key.map_or(candidates.len(), |key| *known.entry(key).or_insert(candidates.len()));
        match candidates.get_mut(at) {
            Some(before) => before.is_named |= candidate.is_named,
            None => candidates.push(candidate),
        }
    }
    Ok(candidates)
}

/// The sessions of a place.
type Opened = Vec<anyhow::Result<Input>>;
/// Opens a place, of which all is read or what a consumer wants.
type Open<'a> = dyn Fn(Option<Upto<'_>>) -> anyhow::Result<Opened> + 'a;

/// `open_with`: opens a place, as far as it is to be read.
fn open_all(
    candidates: Vec<Candidate>,
    which: &Which,
    open_with: &dyn Fn(&Place, &Open<'_>) -> anyhow::Result<Opened>,
) -> anyhow::Result<Found> {
    let (mut inputs, mut unwanted, mut lacks) = (Vec::new(), Vec::new(), Vec::new());
    for Candidate { place, is_named } in candidates {
        let opened = place.and_then(|place| open_with(&place, &|upto| open_place(&place, which, upto)));
        let opened = opened.unwrap_or_else(|error| vec![Err(error)]);
        for input in opened {
            match input {
                Ok(input) if which.wants(&input.session.info().name) => inputs.push(input),
                Ok(input) => unwanted.push(plain(&input.session.info().name)),
                Err(error) if is_named => lacks.push((Lacking::Named, error)),
                Err(error) if error.is::<places::Nothing>() => lacks.push((Lacking::Nothing, error)),
                Err(error) => lacks.push((Lacking::Beside, error)),
            }
        }
    }
    // Where nothing is left, the worst of them is the error.
    let last = lacks.iter().enumerate().max_by_key(|(at, (lacking, _))| (*lacking, std::cmp::Reverse(*at)));
    let last = last.map(|(at, _)| at).filter(|_| inputs.is_empty() && unwanted.is_empty());
    let error = last.map(|at| lacks.remove(at).1);
    lacks.iter().for_each(|(lacking, error)| lacking.tell(error));
    if let Some(error) = error {
        return Err(error);
    }
    if inputs.is_empty() {
        bail!("no session is called {}; there are: {}", which.sessions.join(" or "), unwanted.join(", "));
    }
    let lacking = lacks.iter().map(|(lacking, _)| *lacking).max().unwrap_or_default();
    Ok(Found { inputs: twice::settle(inputs), lacking })
}

/// Bytes of packets to be read of all sources, about.
pub(crate) fn bytes(sources: &[&dyn Source]) -> u64 {
    sources.iter().flat_map(|s| &s.evidence().sub_buffers).map(|s| s.content).sum()
}

/// The sessions of a place; those that cannot be shown as `which` wants are errors.
fn open_place(place: &Place, which: &Which, upto: Option<Upto<'_>>) -> anyhow::Result<Opened> {
    let summary =
        Some(&place.shown).filter(|shown| shown.is_dir()).and_then(|shown| Some(Handle::open(shown).ok()?.summary()));
    let live = upto.is_none() && summary.as_ref().is_some_and(control::is_live_summary);
    let details = summary.and_then(|summary| summary.details.ok());
    let found = scan(&place.open, &Options { snapshot: which.snapshot, upto, live })?;
    for note in &found.notes {
        say::note(plain(note));
    }
    if found.sessions.is_empty() {
        bail!("{}: {}", place.shown.display(), nothing(&found));
    }
    let Recovered { kind, core, sessions, .. } = found;
    let input = |session: Session| {
        let of_it = details.as_ref().filter(|details| details.uuid == session.info().uuid);
        let (from, ended) = (place.shown.clone(), of_it.and_then(|details| details.ended));
        with_snapshot(Input { from, kind, core: core.clone(), ended, session: Arc::new(session) }, which)
    };
    let wanted = |session: &Session| place.unique.as_deref().is_none_or(|unique| is_of(session, unique));
    let inputs: Vec<_> = sessions.into_iter().filter(wanted).map(input).collect();
    if inputs.is_empty() {
        let there = place.open.display();
        bail!("{}: what {there} holds now is another session; give a core of its process", place.shown.display());
    }
    Ok(inputs)
}

fn holds_snapshot(input: &Input) -> bool {
    matches!(input.session.info().snapshot.word(), "taken" | "reading")
}

/// What was recorded before the snapshot was taken is not in the live rings any more.
fn tell_snapshot(input: &Input) {
    let name = plain(&input.session.info().name);
    say::note(format_args!(
        "session {name} holds a snapshot, of what was recorded before: --snapshot has it in place of this"
    ));
}

/// The session, if it holds a snapshot where that is wanted.
fn with_snapshot(input: Input, which: &Which) -> anyhow::Result<Input> {
    let info = input.session.info();
    let state = info.snapshot.word();
    if which.snapshot && which.wants(&info.name) && !(holds_snapshot(&input) || state == "swapping") {
        return Err(places::Nothing::of(format!(
            "{}: session {} holds no snapshot (its state is {state}); take one while it lives: lastwords snapshot take",
            input.from.display(),
            plain(&info.name),
        )));
    }
    Ok(input)
}

/// Scans a file or folder for sessions, with a spinner where it takes long.
fn scan(path: &Path, options: &Options<'_>) -> anyhow::Result<Recovered> {
    let budget = lastwords_bytes::Budget::default();
    let found = spinning(|watch| lastwords_walk::open_with(path, options, &budget, watch));
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
        Kind::Core | Kind::CompressedCore if found.is_damaged => {
            "it is cut or damaged (see the notes): what it lacks is in a whole copy of it, or in the session's folder"
        }
        Kind::Core | Kind::CompressedCore => {
            "sessions in shared-memory files are not in a core: `lastwords list` shows them; for memfd and heap sessions \
             the core filter decides: `lastwords doctor`"
        }
        Kind::Folder => "a session's folder holds its region files; `lastwords list` shows the sessions there are",
        Kind::Process => "`lastwords list` shows the sessions there are",
        Kind::Plain => "name a session, its folder, or a process core",
    };
    format!("no session is in this {}; {remedy}", found.kind.words())
}
