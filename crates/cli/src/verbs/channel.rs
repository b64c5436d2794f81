//! Implements `lastwords channel`: creates a channel while the session records.

use crate::control::SessionOption;
use crate::exit::Outcome;
use crate::progress::human_bytes;
use crate::say;
use crate::verbs::level::Level;
use anyhow::Context;
use clap::{Subcommand, ValueEnum};
use lastwords::ChannelConfig;
use lastwords_filter::Filter;
use std::sync::Arc;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Create a channel: rings of their own size and mode
    ///
    /// The rings exist in all processes of the session. `enable --to` and `enable --also` send
    /// events there.
    Create(Create),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Create {
    /// The channel's name: 1 to 47 letters, digits, `.`, `_`, `-`
    #[arg(value_name = "CHANNEL")]
    name: String,

    #[command(flatten)]
    which: SessionOption,

    /// The most bytes of the rings of all CPUs together
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = super::record::bytes)]
    size: u64,

    /// The bytes of a sub-buffer
    ///
    /// The number is a power of two; by default, it is an eighth of a ring.
    #[arg(long, value_name = "BYTES", value_parser = super::record::bytes)]
    subbuf_size: Option<u64>,

    /// A full ring
    ///
    /// It overwrites its oldest events, or discards new ones.
    #[arg(long, value_enum, value_name = "MODE", default_value = "overwrite")]
    mode: Mode,

    /// Take all events for which EXPR is true
    ///
    /// This begins at once, whatever the session's rules say. Without the option, the channel
    /// takes nothing until `enable` sends events there.
    #[arg(short, long, value_name = "EXPR", value_parser = crate::select::expression)]
    filter: Option<Arc<Filter>>,

    /// Least severe level
    ///
    /// The channel takes only events of this level and more severe ones, whatever rules follow.
    /// Without a filter, it takes those that the session's rules enable.
    #[arg(long, value_enum, value_name = "LEVEL")]
    level: Option<Level>,
}

/// The behaviour of a ring that is full.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// The newest events overwrite the oldest
    Overwrite,
    /// New events are discarded and counted
    Discard,
}

/// Runs a verb of `channel`.
pub(crate) fn run(verb: &Verb) -> anyhow::Result<Outcome> {
    let Verb::Create(create) = verb;
    let session = create.which.open()?;
    let mut config = ChannelConfig::new(&*create.name);
    config = match create.mode {
        Mode::Overwrite => config.overwrite(),
        Mode::Discard => config.discard(),
    };
    config =
        create.level.and_then(Level::of_library).into_iter().fold(config, ChannelConfig::max_level);
    config = config.sized(create.size, create.subbuf_size, session.rings_of_channel());
    let filter = create.filter.as_ref().map(|filter| filter.text());
    session
        .create_channel(&config, filter)
        .with_context(|| format!("channel {:?}", create.name))?;
    let details = session.summary().details.map_err(anyhow::Error::msg)?;
    if let Some(made) = details.channels.iter().find(|channel| channel.name == create.name) {
        let (count, size) = (made.sub_buffers, human_bytes(made.sub_buffer_size));
        say::line(format_args!(
            "channel {}: {} rings of {count} sub-buffers of {size}",
            made.name, made.streams
        ));
    }
    Ok(Outcome::Done)
}
