//! `lastwords start` and `stop`: a session, or one of its channels, records or rests.

use crate::control::Named;
use crate::exit::Outcome;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: Named,

    /// Only this channel
    #[arg(short, long, value_name = "CHANNEL")]
    channel: Option<String>,
}

/// Switches recording.
pub(crate) fn run(args: &Args, on: bool) -> anyhow::Result<Outcome> {
    let session = args.session.open()?;
    let channel = args.channel.as_deref().map(|name| super::channel(&session, name)).transpose()?;
    session.set_recording(channel, on);
    Ok(Outcome::Done)
}
