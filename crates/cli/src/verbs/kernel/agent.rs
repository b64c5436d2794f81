//! Implements `kernel agent`: records this guest for its host.

use crate::exit::Outcome;
use crate::say;
use anyhow::{Context, bail};
use lastwords_render::missing::count;
use lastwords_stream::Address;
use lastwords_tracefs::agent::{Agent, AgentNews};
use lastwords_tracefs::journal::RecordingState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The address by default. Only the host and, where the host forwards it, other guests reach it.
const VSOCK: &str = "vsock:any:7118";
/// The device of guests and hosts that have vsock.
const DEVICE: &str = "/dev/vsock";

/// The arguments of `kernel agent`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing is encrypted, and everybody who can connect can record this machine: bind it to a private address."
)]
#[command(after_long_help = "\
The agent runs in a guest, as root. The host names it with `lastwords record -A NAME@ADDRESS` and says which events, filters, tracer, \
functions, threads and CPUs to record. The agent takes no command, path, trigger or probe from the host. It records in an instance of its \
own, sends the events to the host while it records, and leaves the tracer as it was found: also if the host says nothing for 30 seconds. \
It records for one host at a time. Ctrl-C ends the agent and its recording.

TCP has neither authentication nor encryption: everybody who can connect can record this machine, and everybody on the way can read what \
is recorded. Listen at a private address that the host alone reaches. An address that other machines can reach is refused without \
--trust-network.")]
pub(super) struct Args {
    /// Where to listen: vsock:any:PORT, tcp:HOST:PORT
    ///
    /// By default, it is vsock:any:7118 if this machine has vsock. Without vsock, an address must be
    /// given.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,

    /// Listen where other machines can connect
    ///
    /// There is no authentication: everybody who can connect can record this machine.
    #[arg(long)]
    trust_network: bool,
}

/// Records for hosts until a signal comes.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let address = match &args.listen {
        Some(address) => address.clone(),
        None if Path::new(DEVICE).exists() => VSOCK.parse()?,
        None => bail!(
            "{DEVICE}: this machine has no vsock: name a private address with --listen tcp:HOST:PORT"
        ),
    };
    // What cannot work is said before a host asks.
    lastwords_open::tracefs_folder()?;
    let (ended, wakes) = UnixStream::pair().context("a pair of sockets")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        pipe::register(signal, wakes.try_clone()?).context("a handler of signals")?;
    }
    let journals = lastwords_control::dirs::make_base()?;
    for journal in lastwords_tracefs::journal::list(&journals)? {
        if journal.state(&journals) == RecordingState::Killed {
            say::warning(format_args!(
                "instance {}: its recorder was killed, and the instance may still record: run `lastwords restore`",
                journal.instance
            ));
        }
    }
    let agent = Agent::new(&address, args.trust_network, journals)?;
    say::note(format_args!("listening at {}; Ctrl-C ends it", agent.address()));
    agent.run(ended.as_fd(), &tell)?;
    Ok(Outcome::Done)
}

fn tell(news: AgentNews) {
    match news {
        AgentNews::Recording { peer, instance } => {
            say::note(format_args!("{peer}: recording in the instance {instance}"));
        }
        AgentNews::Sent { peer, events, lost } => {
            let lost = if lost == 0 { "nothing lost".to_owned() } else { format!("{lost} lost") };
            say::note(format_args!("{peer}: sent {}, {lost}", count(events, "event")));
        }
        AgentNews::Failed { peer, why } => say::warning(format_args!("{peer}: {why}")),
    }
}
