//! `lastwords start` and `stop`: a session, or one of its channels, records or rests.

use crate::control;
use crate::exit::Outcome;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session's name or folder; where there is only one that lives, it need not be named
    #[arg(value_name = "SESSION")]
    session: Option<String>,

    /// Only this channel
    #[arg(short, long, value_name = "CHANNEL")]
    channel: Option<String>,
}

/// Switches recording.
pub(crate) fn run(args: &Args, on: bool) -> anyhow::Result<Outcome> {
    let session = control::open(args.session.as_deref())?;
    let channel = args.channel.as_deref().map(|name| super::channel(&session, name)).transpose()?;
    session.set_recording(channel, on);
    Ok(Outcome::Done)
}
