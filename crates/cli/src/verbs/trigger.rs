//! Implements `lastwords trigger`: fires a trigger in a running program, so that what was recorded
//! before is kept, and says which events fire one.

mod watch;

pub(super) use watch::execute;

use crate::control::{SessionChoice, SessionOption, note_unknown};
use crate::exit::Outcome;
use crate::moment::length_text;
use crate::say;
use crate::table::plain;
use crate::value::is_name;
use crate::verbs::level::Level;
use anyhow::bail;
use clap::Subcommand;
use lastwords::Window;
use lastwords::condition::{Action, Condition, Latency};
use lastwords_filter::Filter;
use lastwords_folders::SnapshotState;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Fire a trigger: the program keeps the moments before as a session of its own
    ///
    /// The program records an event `lastwords:trigger`, takes a snapshot if snapshots are enabled,
    /// and saves it as a session of its own, while recording goes on.
    Fire(Fire),
    /// Fire a trigger at each event that matches, from now on
    Add(Add),
    /// Print the conditions on events that fire triggers
    List(SessionChoice),
    /// Remove conditions
    Remove(Remove),
    /// Print the folder of each snapshot that triggers save, and run a command for it
    ///
    /// This begins with the next snapshot, and ends with the session. SESSION may also be the
    /// instance or the file of a `lastwords record` whose triggers take snapshots of the kernel.
    Watch(watch::Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Fire {
    /// The name of the trigger in its event, at most 64 bytes
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,

    #[command(flatten)]
    which: SessionOption,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// A glob over the names of events; `crash:panic` is a panic
    ///
    /// The glob may have `*`, `?`, `[a-z]` and `[!a-z]`. It matches the whole `provider:name`, or
    /// the part after the last colon, of events that are recorded.
    #[arg(value_name = "EVENT", value_parser = crate::value::event_glob)]
    event: String,

    #[command(flatten)]
    which: SessionOption,

    /// Only events for which EXPR is true
    ///
    /// An example is `status >= 500 && comm ~ "redis*"`.
    #[arg(short, long, value_name = "EXPR", value_parser = crate::select::expression)]
    filter: Option<Arc<Filter>>,

    /// Least severe level
    ///
    /// Only events of this level and more severe ones fire.
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Option<Level>,

    /// Fire at each N-th event that matches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::value::within(1_u32..))]
    count: u32,

    /// Fire at most N times
    ///
    /// The actions `start`, `stop`, `enable` and `disable` fire only if they change something.
    #[arg(long, value_name = "N", value_parser = crate::value::number::<u64>)]
    times: Option<u64>,

    /// Fire also at events that are not recorded
    ///
    /// Events are not recorded if they are disabled or recording is off. The actions `start`,
    /// `enable` and `disable` fire at them without this option.
    #[arg(long)]
    always: bool,

    /// The action of the trigger, such as save:DIR or stop
    ///
    /// `snapshot` takes a snapshot and saves it, `save:DIR` saves it in this folder, `stop` stops
    /// recording after the event, `start` starts it, `enable:EVENT` and `disable:EVENT` enable or
    /// disable events by a glob. `lastwords trigger watch` runs commands.
    #[arg(long = "do", value_name = "ACTION", default_value = "snapshot", value_parser = action)]
    action: Do,

    /// Save the events of this time before the trigger: 10s, 1.5ms
    ///
    /// By default, all events that the rings have are saved.
    #[arg(long, value_name = "TIME", value_parser = crate::moment::length)]
    before: Option<Duration>,

    /// Save also the events of this time after the trigger
    ///
    /// The snapshot is taken when this time has passed. By default, it is taken at once.
    #[arg(long, value_name = "TIME", value_parser = crate::moment::length)]
    after: Option<Duration>,

    /// Let at most N triggers act in any TIME, such as 1/10s
    ///
    /// The session's own limit holds too.
    #[arg(long, value_name = "N/TIME", value_parser = limit)]
    limit: Option<(u32, Duration)>,

    /// Fire at this event if it comes too late after EVENT
    ///
    /// The trigger fires at an event that matches this glob and comes later after one of EVENT
    /// than the time of --above.
    #[arg(long, value_name = "EVENT", value_parser = crate::value::event_glob, requires = "above")]
    then: Option<String>,

    /// The time above which --then fires, such as 5ms
    #[arg(long, value_name = "TIME", value_parser = crate::moment::length, requires = "then")]
    above: Option<Duration>,

    /// Match the two events by this field or context
    ///
    /// Its values must be equal. By default, the two events must be of one thread.
    #[arg(long, value_name = "FIELD", requires = "then")]
    on: Option<String>,
}

/// The action of a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Do {
    Snapshot,
    Save(PathBuf),
    Stop,
    Start,
    Enable(String),
    Disable(String),
}

fn action(text: &str) -> Result<Do, String> {
    match text.split_once(':') {
        None if text == "snapshot" => Ok(Do::Snapshot),
        None if text == "stop" => Ok(Do::Stop),
        None if text == "start" => Ok(Do::Start),
        Some(("enable", events)) => crate::value::event_glob(events).map(Do::Enable),
        Some(("disable", events)) => crate::value::event_glob(events).map(Do::Disable),
        Some(("save", folder)) if !folder.is_empty() => {
            let path =
                std::fs::canonicalize(folder).map_err(|error| format!("{folder}: {error}"))?;
            if path.is_dir() { Ok(Do::Save(path)) } else { Err(format!("{folder} is no folder")) }
        }
        Some(("exec", command)) => Err(format!(
            "a program that is recorded starts no other programs; `lastwords trigger watch SESSION --exec '{command}'` runs the command"
        )),
        _ => {
            Err("expected snapshot, save:DIR, stop, start, enable:EVENT or disable:EVENT"
                .to_owned())
        }
    }
}

pub(super) fn limit(text: &str) -> Result<(u32, Duration), String> {
    let parsed = text.split_once('/').and_then(|(most, period)| Some((most.parse().ok()?, period)));
    let (most, period) = parsed.ok_or("expected a number and a time, such as 1/10s")?;
    let period = crate::moment::length(period)?;
    if most == 0 || period.is_zero() {
        Err("it lets nothing pass".to_owned())
    } else {
        Ok((most, period))
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Remove {
    /// The glob of the conditions, as `list` prints it
    #[arg(value_name = "EVENT", required_unless_present = "all", conflicts_with = "all")]
    event: Option<String>,

    /// Remove all conditions
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    which: SessionOption,
}

fn name(text: &str) -> Result<String, String> {
    let most = lastwords::internals::trigger::NAME_LEN;
    match text.len() {
        0 => Err("the name is empty".to_owned()),
        len if len > most => Err(format!("it has {len} bytes, {most} are the most")),
        _ => Ok(text.to_owned()),
    }
}

/// Runs a verb of `trigger`.
pub(crate) fn run(verb: &Verb) -> anyhow::Result<Outcome> {
    match verb {
        Verb::Fire(fire) => fire.which.open()?.fire(&fire.name)?,
        Verb::Add(add) => add_condition(add)?,
        Verb::List(session) => {
            session.open()?.conditions().iter().for_each(|one| say::line(line(one)))
        }
        Verb::Remove(remove) => {
            let session = remove.which.open()?;
            let mut removed = session.remove_conditions(remove.event.as_deref())?;
            if let Some(event) = remove.event.as_deref().filter(|_| removed == 0) {
                // `add` made `*:name` of a name alone.
                removed = session.remove_conditions(Some(&format!("*:{event}")))?;
            }
            match &remove.event {
                Some(event) if removed == 0 => {
                    bail!(
                        "no condition is called {event}; `lastwords trigger list` shows those there are"
                    )
                }
                None if removed == 0 => bail!("the session has no condition"),
                _ => {}
            }
        }
        Verb::Watch(args) => return watch::run(args),
    }
    Ok(Outcome::Done)
}

fn add_condition(add: &Add) -> anyhow::Result<()> {
    let session = add.which.open()?;
    let window = Window { before: add.before, after: add.after.unwrap_or_default() };
    let latency = add.then.clone().zip(add.above);
    let condition = Condition::on(&add.event);
    let condition = match &add.action {
        Do::Snapshot => condition,
        Do::Save(folder) => condition.save_in(folder),
        Do::Stop => condition.and_stop(),
        Do::Start => condition.and_start(),
        Do::Enable(events) => condition.and_enable(events),
        Do::Disable(events) => condition.and_disable(events),
    };
    let condition = Condition {
        times: add.times,
        always: add.always || condition.always,
        level: add.level.and_then(Level::of_library),
        filter: add.filter.as_ref().map(|filter| filter.text().to_owned()),
        each: add.count,
        window: (add.before.is_some() || add.after.is_some()).then_some(window),
        limit: add.limit,
        latency: latency.map(|(then, above)| Latency { then, above, on: add.on.clone() }),
        ..condition
    };
    session.add_condition(&condition)?;
    // The events of crash handlers are described when they first occur.
    let globs = [Some(&add.event), add.then.as_ref()].into_iter().flatten();
    let as_given = |glob: &String| {
        glob.strip_prefix("*:").filter(|name| is_name(name)).unwrap_or(glob).to_owned()
    };
    let globs: Vec<String> =
        globs.filter(|glob| !glob.starts_with("crash:")).map(as_given).collect();
    note_unknown(&session, &globs, add.filter.as_deref());
    let is_off =
        session.summary().details.is_ok_and(|details| details.snapshot == SnapshotState::Off);
    if is_off && condition.action == Action::Snapshot {
        say::note(
            "snapshots are not enabled: `lastwords snapshot enable` makes triggers take them",
        );
    }
    Ok(())
}

/// Returns a condition as the arguments of `add`.
fn line(condition: &Condition) -> String {
    let Condition {
        pattern,
        level,
        filter,
        each,
        action,
        events,
        times,
        always,
        window,
        limit,
        folder,
        latency,
    } = condition;
    let mut line = plain(pattern);
    let mut add = |name: &str, value: String| line.push_str(&format!(" --{name} {value}"));
    let quoted = |text: &str| format!("'{}'", plain(text));
    level.iter().for_each(|level| add("level", Level::word(*level)));
    filter.iter().for_each(|filter| add("filter", quoted(filter)));
    if let Some(Latency { then, above, on }) = latency {
        add("then", plain(then));
        add("above", length_text(*above));
        on.iter().for_each(|on| add("on", quoted(on)));
    }
    if *each > 1 {
        add("count", each.to_string());
    }
    times.iter().for_each(|times| add("times", times.to_string()));
    if let Some(Window { before, after }) = window {
        before.iter().for_each(|before| add("before", length_text(*before)));
        add("after", length_text(*after));
    }
    limit
        .iter()
        .for_each(|(most, period)| add("limit", format!("{most}/{}", length_text(*period))));
    folder.iter().for_each(|folder| add("do", quoted(&format!("save:{}", folder.display()))));
    let events = events.as_deref().unwrap_or_default();
    match action {
        Action::Snapshot => {}
        Action::Stop => add("do", "stop".to_owned()),
        Action::Start => add("do", "start".to_owned()),
        Action::Enable => add("do", quoted(&format!("enable:{events}"))),
        Action::Disable => add("do", quoted(&format!("disable:{events}"))),
    }
    let is_told = *always && matches!(action, Action::Snapshot | Action::Stop);
    if is_told { format!("{line} --always") } else { line }
}
