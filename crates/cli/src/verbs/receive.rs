//! Implements `receive`: takes the streams of `record -o ADDRESS` from many hosts, each into a
//! trace.dat file or a session folder.

use crate::exit::Outcome;
use crate::progress::human_bytes;
use crate::say;
use crate::verbs::record;
use anyhow::Context;
use lastwords_stream::spool::Finished;
use lastwords_stream::{Address, Limits, Receiver, Session, Told};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The arguments of `receive`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Ctrl-C ends the receiver. Nothing is encrypted, and everybody who can connect can send."
)]
#[command(after_long_help = "\
When a stream ends, it becomes a file or folder in DIR. The stream of a kernel becomes HOST-TIME.dat, which `report` and trace-cmd read. The \
stream of a session becomes a folder HOST-TIME-UUID, which all commands read. A stream ends early if its sender dies or a limit is reached. \
The part that came is saved then, and the file says so. If a receiver is killed, the next receiver saves what it left in DIR. Ctrl-C and \
SIGTERM end the receiver, which saves the part that came of each stream.

Nothing is encrypted. Everybody who can connect to a TCP port or a vsock can send a stream, up to the limits. Only this user and root can \
send to unix:PATH. An address that other machines can reach is refused without --trust-network. docs/STREAM.md describes the form of a \
stream, and how to send one through ssh or WireGuard.

A peer is an IP address, an IPv6 network of 64 bits, or a virtual machine. Each has limits of its own, so that no peer keeps the others out. \
All streams that come through one ssh tunnel or one router have the same peer: raise --max-per-peer for these.

With --json, each line of stdout is an object (docs/JSON.md).")]
pub(crate) struct Args {
    /// Where to listen
    ///
    /// ADDRESS is tcp:HOST:PORT, vsock:any:PORT or unix:PATH. tcp:0.0.0.0:7117 listens on every
    /// network, and needs --trust-network.
    #[arg(long, value_name = "ADDRESS", default_value = "tcp:127.0.0.1:7117")]
    listen: Address,

    /// Listen where other machines can connect
    ///
    /// Streams are neither encrypted nor signed: everybody in the network can send, and everybody
    /// on the way can read and change what is sent. Where the network is not trusted, listen at
    /// the default address and let ssh (`ssh -R 7117:127.0.0.1:7117 HOST`) or WireGuard carry the
    /// streams.
    #[arg(long)]
    trust_network: bool,

    /// The folder for the files
    ///
    /// It is made if it does not exist. It is refused if other users can write into it.
    #[arg(short, long, value_name = "DIR")]
    dir: PathBuf,

    /// The size of the largest stream
    ///
    /// For a moment at its end, a stream takes twice its size.
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = record::bytes)]
    max_size: u64,

    /// The most streams at a time
    #[arg(long, value_name = "NUMBER", default_value_t = 64, value_parser = crate::value::within(1_u16..))]
    max_senders: u16,

    /// The most connections of a peer at a time
    ///
    /// A new connection takes the place of the peer's oldest one whose stream is not described
    /// yet.
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = crate::value::within(1_u16..))]
    max_per_peer: u16,

    /// The most that a peer may send within an hour
    #[arg(long, value_name = "BYTES", default_value = "32G", value_parser = record::bytes)]
    max_peer_bytes: u64,

    /// The most files made for a peer within an hour
    ///
    /// A stream makes one, and that of a session one more for each of its rings.
    #[arg(long, value_name = "NUMBER", default_value_t = 16_384, value_parser = crate::value::within(1_u32..))]
    max_peer_files: u32,

    /// The time in which a sender must say who it is
    ///
    /// For the description of its events it has six times as much, and a second more for each 64
    /// KiB.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = crate::value::within(1_u32..=86_400))]
    head_timeout: u32,

    /// End a stream if nothing comes for this time
    ///
    /// A sender without events sends a sign of life every 5 seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = crate::value::within(1_u32..=86_400))]
    timeout: u32,

    /// Print JSON, a line for each thing that happens
    #[arg(long)]
    json: bool,

    /// Exit with status 3 if a stream ended early or lost events
    #[arg(long)]
    strict: bool,
}

/// A line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    #[serde(flatten)]
    told: &'a Told,
}

/// The errors so far. The threads of streams write them, and they are read when the threads have
/// ended.
#[derive(Default)]
struct Wrong {
    failed: AtomicBool,
    lost: AtomicBool,
}

/// Receives.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (ended, wakes) = UnixStream::pair().context("a pair of sockets")?;
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        pipe::register(signal, wakes.try_clone()?).context("a handler of signals")?;
    }
    let limits = Limits {
        size: args.max_size,
        senders: args.max_senders.into(),
        silence: Duration::from_secs(args.timeout.into()),
        head: Duration::from_secs(args.head_timeout.into()),
        per_peer: args.max_per_peer.into(),
        peer_bytes: args.max_peer_bytes,
        peer_files: args.max_peer_files.into(),
        trusts_network: args.trust_network,
    };
    let receiver = Receiver::new(&args.listen, &args.dir, limits)?;
    let wrong = Wrong::default();
    receiver.run(ended.as_fd(), &|told| {
        wrong.note(&told);
        tell(&told, args.json);
    })?;
    Ok(match (wrong.failed.into_inner(), args.strict && wrong.lost.into_inner()) {
        (true, _) => Outcome::Negative,
        (false, true) => Outcome::Losses,
        (false, false) => Outcome::Done,
    })
}

impl Wrong {
    fn note(&self, told: &Told) {
        match told {
            Told::Failed { .. } => self.failed.store(true, Relaxed),
            Told::Saved(finished) if finished.lost != Some(0) => self.lost.store(true, Relaxed),
            Told::SavedSession(session)
                if session.lost_sub_buffers > 0 || session.lost_events != Some(0) =>
            {
                self.lost.store(true, Relaxed);
            }
            Told::Empty { .. }
            | Told::Saved(_)
            | Told::SavedSession(_)
            | Told::Listening { .. }
            | Told::Started { .. }
            | Told::Refused { .. } => {}
        }
    }
}

/// Prints what has happened: lines on stdout for what is saved, notes on stderr for the rest.
fn tell(told: &Told, json: bool) {
    if json {
        let line = Line { schema: "lastwords.receive.v1", told };
        return say::json(&line, true).unwrap_or_else(say::error);
    }
    match told {
        Told::Listening { address } => {
            say::note(format_args!("listening at {address}; Ctrl-C ends it"))
        }
        Told::Started { peer, host, spool } => {
            say::note(format_args!("{peer}: {host} sends, into {}", spool.display()))
        }
        Told::Saved(finished) => tell_saved(finished),
        Told::SavedSession(session) => tell_session(session),
        Told::Empty { peer, why } => {
            say::note(format_args!("{peer}: the stream ended without events: {why}"))
        }
        Told::Refused { peer, why } => say::note(format_args!("{peer}: refused: {why}")),
        Told::Failed { why, .. } => say::error(why),
    }
}

fn tell_session(saved: &Session) {
    let Session {
        path,
        host,
        session,
        bytes,
        sub_buffers,
        lost_sub_buffers,
        lost_events,
        ended_early,
    } = saved;
    let lost = match (lost_sub_buffers, lost_events) {
        (0, Some(0)) => "nothing lost".to_owned(),
        (lost, Some(events)) => format!("{lost} sub-buffers and {events} events lost"),
        (_, None) => "what was lost at the end is not known".to_owned(),
    };
    let size = human_bytes(*bytes);
    say::line(format_args!(
        "{}: session {session} of {host}, {sub_buffers} sub-buffers, {size}; {lost}",
        path.display()
    ));
    if let Some(why) = ended_early {
        say::warning(format_args!("{}: the stream ended early: {why}", path.display()));
    }
}

fn tell_saved(finished: &Finished) {
    let Finished { path, host, bytes, events, cpus, lost, ended_early, is_related, losses } =
        finished;
    let lost = match lost {
        Some(0) => "nothing lost".to_owned(),
        Some(lost) => format!("{lost} events lost"),
        None => "what was lost at the end is not known".to_owned(),
    };
    say::line(format_args!(
        "{}: {events} events of {cpus} CPUs of {host}, {}; {lost}",
        path.display(),
        human_bytes(*bytes)
    ));
    if *is_related {
        say::note(format_args!(
            "{}: of a guest; it has the relation of its clock to the host's",
            path.display()
        ));
    }
    for loss in losses {
        say::warning(format_args!("CPU {}: {} events {}", loss.cpu, loss.events, loss.cause));
    }
    if let Some(why) = ended_early {
        say::warning(format_args!("{}: the stream ended early: {why}", path.display()));
    }
}
