//! Implements `lastwords start` and `stop`: switches recording on or off in a session or one of its
//! channels.

use crate::control::SessionChoice;
use crate::exit::Outcome;

/// The arguments of `start` and `stop`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionChoice,

    /// Only this channel
    #[arg(short, long, value_name = "CHANNEL")]
    channel: Option<String>,
}

/// Switches recording on or off.
pub(crate) fn run(args: &Args, on: bool) -> anyhow::Result<Outcome> {
    let session = args.session.open()?;
    let channel = args.channel.as_deref().map(|name| super::channel(&session, name)).transpose()?;
    session.set_recording(channel, on);
    Ok(Outcome::Done)
}
