//! Implements `lastwords enable` and `disable`: chooses by name and glob which events are recorded, while the program
//! runs.

use crate::control::SessionOption;
use crate::exit::Outcome;
use anyhow::Context;
use clap::ValueEnum;
use lastwords::rules::RuleSpec;
use lastwords_filter::Filter;
use std::sync::Arc;

/// The arguments of `enable`.
#[derive(Debug, clap::Args)]
pub(crate) struct EnableArgs {
    #[command(flatten)]
    rule: Args,

    /// Only events for which the expression is true, such as `bytes > 4096 && comm ~ "redis*"`; the application evaluates it
    /// before it records. An event that lacks a field of the expression is not recorded
    #[arg(short, long, value_name = "EXPR", value_parser = crate::select::expression)]
    filter: Option<Arc<Filter>>,
}

/// The arguments of `disable`, and those that `enable` has too.
#[derive(Debug, clap::Args)]
#[command(after_help = "The last rule that matches an event decides. `lastwords list SESSION` shows rules and events.")]
pub(crate) struct Args {
    /// Globs over `provider:name` (`*`, `?`, `[a-z]`, `[!a-z]`)
    #[arg(value_name = "EVENT", required = true, value_parser = crate::input::glob)]
    events: Vec<String>,

    #[command(flatten)]
    which: SessionOption,

    /// Only in this channel
    #[arg(short, long, value_name = "CHANNEL")]
    channel: Option<String>,

    /// Only events of this level and more severe ones
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Option<Level>,
}

/// A severity.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    /// Returns the level of the library.
    pub(crate) fn of(self) -> Option<lastwords::Level> {
        lastwords::Level::of(self as u32 + 1)
    }

    /// Returns the word of a level of the library, as the command line takes it.
    pub(crate) fn word(level: lastwords::Level) -> String {
        let own = Self::value_variants().iter().find(|own| own.of() == Some(level));
        let value = own.and_then(clap::ValueEnum::to_possible_value);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Adds rules that enable events.
pub(crate) fn enable(args: &EnableArgs) -> anyhow::Result<Outcome> {
    add(&args.rule, true, args.filter.as_deref())
}

/// Adds rules that disable events.
pub(crate) fn disable(args: &Args) -> anyhow::Result<Outcome> {
    add(args, false, None)
}

fn add(args: &Args, enable: bool, filter: Option<&Filter>) -> anyhow::Result<Outcome> {
    let session = args.which.open()?;
    let channel = args.channel.as_deref().map(|name| super::channel(&session, name)).transpose()?;
    let level = args.level.and_then(Level::of);
    for pattern in &args.events {
        let rule = RuleSpec {
            enable,
            channel,
            level,
            pattern: pattern.clone(),
            filter: filter.map(|filter| filter.text().to_owned()),
        };
        session.rule(&rule).with_context(|| format!("rule for {pattern:?}"))?;
    }
    Ok(Outcome::Done)
}
