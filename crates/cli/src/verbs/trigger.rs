//! Implements `lastwords trigger`: fires a trigger in a running program, so that what was recorded before is kept, and says
//! which events fire one.

use crate::control::{SessionChoice, SessionOption};
use crate::exit::Outcome;
use crate::say;
use crate::table::plain;
use crate::verbs::rule::Level;
use anyhow::bail;
use clap::Subcommand;
use lastwords::condition::{Action, Condition};
use lastwords_filter::Filter;
use std::sync::Arc;

/// The arguments of `trigger`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Fire a trigger: the program records an event `lastwords:trigger`, takes a snapshot if snapshots are enabled, and saves
    /// it as a session of its own, while recording goes on
    Fire(Fire),
    /// Fire a trigger at each event that matches, from now on
    Add(Add),
    /// Print the conditions on events that fire triggers
    List(SessionChoice),
    /// Remove conditions
    Remove(Remove),
}

#[derive(Debug, clap::Args)]
struct Fire {
    /// The name that the trigger's event has, at most 64 bytes
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,

    #[command(flatten)]
    which: SessionOption,
}

#[derive(Debug, clap::Args)]
struct Add {
    /// A glob over `provider:name` (`*`, `?`, `[a-z]`, `[!a-z]`) of events that are recorded; `crash:panic` is a panic
    #[arg(value_name = "EVENT", value_parser = crate::input::glob)]
    event: String,

    #[command(flatten)]
    which: SessionOption,

    /// Only events for which the expression is true, such as `status >= 500 && comm ~ "redis*"`
    #[arg(short, long, value_name = "EXPR", value_parser = crate::select::expression)]
    filter: Option<Arc<Filter>>,

    /// Only events of this level and more severe ones
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Option<Level>,

    /// Fire at each N-th event that matches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,

    /// The action of the trigger
    #[arg(long = "do", value_enum, value_name = "ACTION", default_value = "snapshot")]
    action: Do,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Do {
    /// Take a snapshot and save it
    Snapshot,
    /// Stop recording behind the event
    Stop,
}

#[derive(Debug, clap::Args)]
struct Remove {
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
    let most = lastwords::session::trigger::NAME_LEN;
    match text.len() {
        0 => Err("the name is empty".to_owned()),
        len if len > most => Err(format!("it has {len} bytes, {most} are the most")),
        _ => Ok(text.to_owned()),
    }
}

/// Runs a verb of `trigger`.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    match &args.verb {
        Verb::Fire(fire) => fire.which.open()?.fire(&fire.name)?,
        Verb::Add(add) => add_condition(add)?,
        Verb::List(session) => session.open()?.conditions().iter().for_each(|one| say::line(line(one))),
        Verb::Remove(remove) => {
            if remove.which.open()?.remove_conditions(remove.event.as_deref())? == 0 {
                bail!("there is no such condition; `lastwords trigger list` shows those there are");
            }
        }
    }
    Ok(Outcome::Done)
}

fn add_condition(add: &Add) -> anyhow::Result<()> {
    let session = add.which.open()?;
    let action = match add.action {
        Do::Snapshot => Action::Snapshot,
        Do::Stop => Action::Stop,
    };
    let filter = add.filter.as_ref().map(|filter| filter.text().to_owned());
    let condition = Condition {
        level: add.level.and_then(Level::of),
        filter,
        each: add.count,
        action,
        ..Condition::on(&add.event)
    };
    session.add_condition(&condition)?;
    let is_off = session.summary().details.is_ok_and(|details| details.snapshot == "off");
    if is_off && action == Action::Snapshot {
        say::note("snapshots are not enabled: `lastwords snapshot enable` makes triggers take them");
    }
    Ok(())
}

/// Returns a condition as the arguments of `add`.
fn line(condition: &Condition) -> String {
    let Condition { pattern, level, filter, each, action } = condition;
    let level = level.map_or_else(String::new, |level| format!(" --level {}", Level::word(level)));
    let filter = filter.as_deref().map_or_else(String::new, |filter| format!(" --filter \'{}\'", plain(filter)));
    let each = if *each > 1 { format!(" --count {each}") } else { String::new() };
    let action = if *action == Action::Stop { " --do stop" } else { "" };
    format!("{}{level}{filter}{each}{action}", plain(pattern))
}
