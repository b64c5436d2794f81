//! Implements `lastwords enable` and `disable`: chooses by name and glob which events are recorded,
//! while the program runs.

use crate::control::{SessionOption, note_unknown};
use crate::exit::Outcome;
use crate::say;
use crate::verbs::level::Level;
use anyhow::Context;
use lastwords::rules::RuleSpec;
use lastwords_control::Handle;
use lastwords_filter::Filter;
use std::sync::Arc;

/// The arguments of `enable`.
#[derive(Debug, clap::Args)]
pub(crate) struct EnableArgs {
    #[command(flatten)]
    rule: Args,

    /// Only events for which EXPR is true
    ///
    /// An example is `bytes > 4096 && comm ~ "redis*"`. The application evaluates the expression
    /// before it records. An event that lacks a field of the expression is not recorded.
    #[arg(short, long, value_name = "EXPR", value_parser = crate::select::expression)]
    filter: Option<Arc<Filter>>,

    /// Record the events in this channel, in place of all others
    #[arg(long, value_name = "CHANNEL", conflicts_with_all = ["channel", "also"])]
    to: Option<String>,

    /// Record the events in this channel too
    ///
    /// The channels that record them already go on.
    #[arg(long, value_name = "CHANNEL", conflicts_with = "channel")]
    also: Option<String>,
}

/// The arguments of `disable`, and those that `enable` has too.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The last rule that matches an event decides. `lastwords list SESSION` shows rules and events."
)]
pub(crate) struct Args {
    /// Globs over the names of events
    ///
    /// A glob may have `*`, `?`, `[a-z]` and `[!a-z]`. It matches the whole `provider:name`, or
    /// the part after the last colon.
    #[arg(value_name = "EVENT", required = true, value_parser = crate::value::glob)]
    events: Vec<String>,

    #[command(flatten)]
    which: SessionOption,

    /// Only in this channel
    #[arg(short, long, value_name = "CHANNEL")]
    channel: Option<String>,

    /// Least severe level
    ///
    /// The rule is for events of this level and more severe ones.
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Option<Level>,
}

/// Adds rules that enable events.
pub(crate) fn enable(args: &EnableArgs) -> anyhow::Result<Outcome> {
    check_order("enable", &args.rule)?;
    let session = args.rule.which.open()?;
    let channel = args.to.as_ref().or(args.also.as_ref()).or(args.rule.channel.as_ref());
    let channel = channel.map(|name| super::channel(&session, name)).transpose()?;
    let filter = args.filter.as_ref().map(|filter| filter.text().to_owned());
    let spec = RuleSpec {
        channel,
        filter,
        level: args.rule.level.and_then(Level::of_library),
        ..RuleSpec::enable("")
    };
    add(&session, &args.rule.events, &spec)?;
    note_unknown(&session, &args.rule.events, args.filter.as_deref());
    let details = session.summary().details.map_err(anyhow::Error::msg)?;
    if args.to.is_some() {
        // The events are in this channel already, so that none is missing from both.
        for other in details.channels.iter().filter(|other| Some(other.id) != channel) {
            add(&session, &args.rule.events, &RuleSpec::disable("").in_channel(other.id))?;
        }
    }
    let is_limit =
        |rule: &&RuleSpec| rule.enable && rule.channel == channel && rule.level.is_some();
    if let Some(limit) = details
        .rules
        .iter()
        .rev()
        .find(is_limit)
        .filter(|_| channel.is_some())
        .and_then(|rule| rule.level)
        && spec.level.is_none()
    {
        say::note(format_args!(
            "the channel keeps to its level: it takes events up to {}",
            Level::word(limit)
        ));
    }
    Ok(Outcome::Done)
}

/// Adds rules that disable events.
pub(crate) fn disable(args: &Args) -> anyhow::Result<Outcome> {
    check_order("disable", args)?;
    let session = args.which.open()?;
    let channel = args.channel.as_deref().map(|name| super::channel(&session, name)).transpose()?;
    let spec = RuleSpec {
        channel,
        level: args.level.and_then(Level::of_library),
        ..RuleSpec::disable("")
    };
    add(&session, &args.events, &spec)?;
    note_unknown(&session, &args.events, None);
    Ok(Outcome::Done)
}

/// Refuses the name of a session in the place of an event, as in `enable SESSION EVENT`: it would
/// match nothing.
fn check_order(verb: &str, args: &Args) -> anyhow::Result<()> {
    let is_session = |word: &&String| {
        crate::value::is_name(word) && !lastwords_live::folders_of(word).is_empty()
    };
    let Some(name) = args.events.iter().find(is_session).filter(|_| args.events.len() > 1) else {
        return Ok(());
    };
    let others = args
        .events
        .iter()
        .filter(|word| *word != name)
        .map(|word| format!("'{word}'"))
        .collect::<Vec<_>>();
    anyhow::bail!(
        "{name} is the name of a session. Write: lastwords {verb} {} --session {name} (for an event of this name: '*:{name}')",
        others.join(" ")
    );
}

/// Adds a rule like `spec` for each glob. Rules compare the whole `provider:name`; a glob without a
/// colon may also match the part after the last colon.
fn add(session: &Handle, events: &[String], spec: &RuleSpec) -> anyhow::Result<()> {
    for word in events {
        let is_whole = word.contains(':') || word == "*";
        let part = (!is_whole).then(|| format!("*:{word}"));
        let whole = (!crate::value::is_name(word)).then(|| word.clone());
        for pattern in whole.into_iter().chain(part) {
            let rule = RuleSpec { pattern, ..spec.clone() };
            session.rule(&rule).with_context(|| format!("rule for {word:?}"))?;
        }
    }
    Ok(())
}
