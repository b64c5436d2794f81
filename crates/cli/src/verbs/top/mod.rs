//! Implements `lastwords top`: shows what a session records now: rates by event, how full its rings
//! are and how far back they reach, losses, and open spans.

mod reading;
mod screen;
mod terminal;
mod text;
mod watch;

use crate::control;
use crate::exit::Outcome;
use crate::moment;
use crate::say;
use crate::stop::Stop;
use crate::verbs::list;
use anyhow::{Context, bail};
use lastwords_control::{self, Handle, Summary};
use lastwords_live::{Pace, is_live_summary};
use lastwords_open::{Opened, Options, Trace};
use reading::{Reading, Sort, State};
use std::cell::RefCell;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use watch::{STEP, Watch};

/// Shortest interval.
const SHORTEST: Duration = Duration::from_millis(100);
/// Longest interval.
const LONGEST: Duration = Duration::from_secs(3600);

/// The arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "On a terminal, q ends the program, and ? shows the keys.")]
#[command(after_long_help = "\
On a terminal, the readings follow each other until q is pressed. `?` shows the keys. If the output is not a terminal, or with --once \
or --json, one reading is printed. A live session needs one interval for that.

If the session has ended, the newest interval is the last one before its newest event.

Nothing is consumed, and the session is not stopped. Overwritten events are normal for a flight recorder and are not listed as losses.")]
pub(crate) struct Args {
    /// The session's name or folder; by default, the newest live one
    #[arg(value_name = "SESSION", conflicts_with = "named")]
    session: Option<String>,

    /// The session's name or folder, as without --session
    #[arg(short = 's', long = "session", value_name = "SESSION")]
    named: Option<String>,

    /// Time between two readings: 500ms, 1s, 1min
    #[arg(long, short = 'i', value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// The order
    ///
    /// Events are listed in this order.
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = Sort::Rate)]
    sort: Sort,

    /// Print one reading and exit
    #[arg(long)]
    once: bool,

    /// Print one reading as data and exit
    ///
    /// docs/JSON.md describes it.
    #[arg(long)]
    json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = moment::length(text)?;
    match (SHORTEST..=LONGEST).contains(&interval) {
        true => Ok(interval),
        false => Err("it must be between 100ms and 1h".to_owned()),
    }
}

/// Shows the session.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let Some(folder) = choose(args.session.as_deref().or(args.named.as_deref()))? else {
        return Ok(Outcome::Negative);
    };
    let handle = Handle::open(&folder).with_context(|| folder.display().to_string())?;
    let stop = Stop::on_signals()?;
    let is_plain = args.once
        || args.json
        || !std::io::stdout().is_terminal()
        || !std::io::stdin().is_terminal();
    if !is_plain {
        return terminal::run(args, &handle, &folder, &stop);
    }
    let watch = RefCell::new(Watch::new(&handle, args.interval));
    let is_live = watch.borrow().is_live();
    let mut has_begun = false;
    // A live session is read twice or more: the later steps have the events of the interval.
    let taken = |watch: &mut Watch<'_>| match std::mem::replace(&mut has_begun, true) {
        false if is_live => {
            watch.reading();
            true
        }
        false => true,
        true => !watch.is_due(),
    };
    let result = follow(&folder, &watch, || wait_for_step(&watch, |time| stop.wait(time)), taken);
    let mut watch = watch.into_inner();
    watch.news().iter().for_each(say::note);
    result?;
    print(args, &watch.reading())
}

/// Prints one reading.
fn print(args: &Args, reading: &Reading) -> anyhow::Result<Outcome> {
    match args.json {
        true => say::json(reading, false)?,
        false => say::print(text::table(reading, args.sort)),
    }
    if reading.state == State::Destroyed {
        say::note(format_args!("{}: the session was removed while it was read", reading.folder));
        return Ok(Outcome::Negative);
    }
    Ok(Outcome::Done)
}

/// Follows the session of a folder until it has ended, `wait` returns false, or `taken` does, which
/// is called behind each step.
fn follow(
    folder: &Path,
    watch: &RefCell<Watch<'_>>,
    mut wait: impl FnMut() -> bool,
    mut taken: impl FnMut(&mut Watch<'_>) -> bool,
) -> anyhow::Result<()> {
    let options = Options::default();
    let wait = || {
        let goes_on = wait();
        watch.borrow_mut().begin_step();
        goes_on
    };
    let read = |opened: Opened| -> (Vec<Trace>, bool) {
        let mut watch = watch.borrow_mut();
        // A session that was removed cannot be read any more; what was read before is shown.
        let is_gone = opened.traces.is_empty() && !folder.exists();
        if !is_gone {
            watch.take(&opened);
        }
        let goes_on = !is_gone && taken(&mut watch);
        (opened.traces, goes_on)
    };
    watch.borrow_mut().begin_step();
    Ok(lastwords_live::follow(&[folder.to_string_lossy()], &options, Pace::Always, wait, read)?)
}

/// Waits until the next step is due. `pause` waits for a time and returns false to end.
fn wait_for_step(watch: &RefCell<Watch<'_>>, mut pause: impl FnMut(Duration) -> bool) -> bool {
    for pauses in 1u32.. {
        if !pause(STEP) {
            return false;
        }
        let watch = watch.borrow();
        // Whether its processes live is asked less often, because that reads files.
        if watch.is_due() || watch.must_step() || (pauses.is_multiple_of(8) && !watch.is_live()) {
            break;
        }
    }
    true
}

/// Returns the folder of the session that is meant: among those of a name the live one, else the
/// newest. Without a name, it returns the newest live session, or prints a list of all sessions and
/// returns none.
fn choose(word: Option<&str>) -> anyhow::Result<Option<PathBuf>> {
    let is_live = |summary: &&Summary| is_live_summary(summary);
    let Some(word) = word else {
        let summaries = list::newest_first(lastwords_control::list(None)?);
        let live: Vec<&Summary> = summaries.iter().filter(is_live).collect();
        if let [newest, _, ..] = live.as_slice() {
            say::note(format_args!(
                "{} sessions are live; this is the newest, {}",
                live.len(),
                newest.name
            ));
        }
        if live.is_empty() {
            say::print(list::table(&summaries));
            say::note("no session is live; `lastwords top SESSION` shows one that has ended");
        }
        return Ok(live.first().map(|newest| newest.folder.clone()));
    };
    if word.contains('/') {
        let folder = PathBuf::from(word);
        if !folder.is_dir() {
            bail!(
                "{word}: top shows sessions in their folders; `lastwords inspect` shows what other inputs hold"
            );
        }
        return Ok(Some(folder));
    }
    let folders = lastwords_live::folders_of(word);
    let Some(newest) = folders.first() else {
        return Err(control::no_session(word));
    };
    let live = folders.iter().find(|folder| lastwords_live::is_live(folder));
    if live.is_none() && folders.len() > 1 {
        say::note(format_args!("{} sessions are called {word}; this is the newest", folders.len()));
    }
    Ok(Some(live.unwrap_or(newest).clone()))
}
