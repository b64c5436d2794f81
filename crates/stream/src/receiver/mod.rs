//! The receiving end: a thread for each sender, and limits for each.

mod admission;
mod connection;
mod refusals;

use crate::address::{Address, check_peer};
use crate::error::{Error, Result};
use crate::folder;
use crate::io::{self, Wait};
use crate::spool::{self, Finished, Saved, Spool};
pub use admission::Peer;
use admission::{Admission, Ticket};
use anyhow::{Context, bail};
use connection::Connection;
pub use refusals::Refusals;
use rustix::event::PollFlags;
use serde::Serialize;
use socket2::{SockAddr, Socket};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long the receiver rests if the kernel cannot give it another connection.
const REST: Duration = Duration::from_millis(200);
/// The longest time between two looks at whether the receiver has to end.
pub(crate) const TICK: Duration = Duration::from_secs(60);

/// Why a stream that is found in the folder has ended early.
const LEFT: &str = "its receiver was killed, or could not save it";

/// Limits for senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of one stream. A finished stream takes its size twice for a moment: the spool,
    /// and the file that is made of it.
    pub size: u64,
    /// Most streams at a time.
    pub senders: usize,
    /// The longest time without a byte of a sender.
    pub silence: Duration,
    /// The longest time until a sender has said who it is. For the description that follows, it
    /// has six times as much, and a second more for each 64 KiB of it.
    pub head: Duration,
    /// Most connections of a peer at a time: of an IP address, of an IPv6 network of 64 bits, or
    /// of a virtual machine. Senders at a Unix socket have no limits of a peer.
    pub per_peer: usize,
    /// Most bytes of a peer within an hour.
    pub peer_bytes: u64,
    /// Most files of a peer within an hour.
    pub peer_files: u64,
    /// Listen at addresses too that other machines of a network can reach.
    pub trusts_network: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            size: 4 << 30,
            senders: 64,
            silence: Duration::from_secs(60),
            head: Duration::from_secs(10),
            per_peer: 16,
            peer_bytes: 32 << 30,
            peer_files: 16_384,
            trusts_network: false,
        }
    }
}

/// The messages of a receiver while it works.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Told {
    /// It listens.
    Listening {
        /// The address, with the port that the kernel chose.
        address: String,
    },
    /// A stream has begun.
    Started {
        /// Address of the sender.
        peer: String,
        /// Name of the sender's machine, as the sender gives it.
        host: String,
        /// The file that the stream is written into while it comes.
        spool: PathBuf,
    },
    /// A stream is saved.
    Saved(Finished),
    /// A stream of a session is saved.
    SavedSession(folder::Session),
    /// A stream is over, and had no events. Nothing is left of it.
    Empty {
        /// Address of the sender.
        peer: String,
        /// Why it is over.
        why: String,
    },
    /// A sender was refused before its stream began.
    Refused {
        /// Address of the sender.
        peer: String,
        /// Why.
        why: String,
    },
    /// A stream cannot be saved. What arrived is kept.
    Failed {
        /// The file that has what arrived.
        spool: PathBuf,
        /// Why.
        why: String,
    },
}

/// Receives streams into a folder.
#[derive(Debug)]
pub struct Receiver {
    listener: Socket,
    address: Address,
    folder: PathBuf,
    limits: Limits,
}

impl Receiver {
    /// Makes the folder, if it does not exist, and listens.
    ///
    /// # Errors
    /// Other users may write into the folder, the address cannot be used, or other machines can
    /// reach it and [`Limits::trusts_network`] is not set.
    pub fn new(address: &Address, folder: &Path, limits: Limits) -> Result<Self> {
        if !limits.trusts_network && address.is_of_network()? {
            return Err(Error::Network { address: address.clone() });
        }
        check_folder(folder).map_err(|why| Error::folder(folder, &why))?;
        let listener = address.listen().map_err(|why| Error::listen(address, &why))?;
        Ok(Self { address: address.bound(&listener), listener, folder: folder.to_owned(), limits })
    }

    /// Saves what a killed receiver has left in the folder, then receives until the other end of
    /// `ended` is closed. Streams that are under way are then saved as far as they came.
    ///
    /// # Errors
    /// The folder cannot be read, or no connection can be accepted.
    pub fn run(&self, ended: BorrowedFd<'_>, tell: &(dyn Fn(Told) + Sync)) -> Result<()> {
        let refusals = Refusals::default();
        let tell = &|told: Told| refusals.admit(told).into_iter().for_each(tell);
        for left in spool::left(&self.folder)? {
            let path = left.path().to_owned();
            tell(saved(left.finish(Some(LEFT)), path, LEFT, &|| "an earlier receiver".to_owned()));
        }
        tell(Told::Listening { address: self.address.to_string() });
        let admission = Admission::new(self.limits);
        let result: anyhow::Result<()> = std::thread::scope(|scope| {
            loop {
                match io::wait(self.listener.as_fd(), PollFlags::IN, Some(ended), TICK)? {
                    Wait::Ended => return Ok(()),
                    Wait::Late => continue,
                    Wait::Ready => {}
                }
                let Some((socket, address)) = accept(&self.listener, &self.address)? else {
                    continue;
                };
                let (socket, peer) = (Arc::new(socket), shown(&address));
                let refused = |why: String| tell(Told::Refused { peer: peer.clone(), why });
                let ticket = match self.admit(&admission, &socket, &address) {
                    Ok(ticket) => ticket,
                    Err(error) => {
                        connection::refuse(&socket, &format!("{error:#}"));
                        refused(format!("{error:#}"));
                        continue;
                    }
                };
                let (folder, limits, of) = (&self.folder, self.limits, peer.clone());
                let work = move || {
                    let is_of_kernel = false;
                    Connection { socket: &socket, peer: of, folder, limits, ended, is_of_kernel }
                        .run(ticket, tell);
                };
                if let Err(error) =
                    std::thread::Builder::new().name("stream".to_owned()).spawn_scoped(scope, work)
                {
                    refused(format!("no thread: {error}"));
                }
            }
        });
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
        result.map_err(|why| Error::listen(&self.address, &why))
    }

    fn admit<'a>(
        &self,
        admission: &'a Admission,
        socket: &Arc<Socket>,
        address: &SockAddr,
    ) -> anyhow::Result<Ticket<'a>> {
        self.address.prepare(socket)?;
        if let Address::Unix(_) = self.address {
            check_peer(socket)?;
        }
        admission.enter(Peer::from_address(address), socket)
    }
}

/// Accepts a connection; none if the peer has gone or the kernel has no more for this process.
pub(crate) fn accept(
    listener: &Socket,
    address: &Address,
) -> anyhow::Result<Option<(Socket, SockAddr)>> {
    match listener.accept() {
        Ok(accepted) => Ok(Some(accepted)),
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {
                Ok(None)
            }
            // No file descriptor or no memory is left until another stream ends.
            _ if matches!(error.raw_os_error(), Some(12 | 23 | 24 | 105)) => {
                std::thread::sleep(REST);
                Ok(None)
            }
            _ => Err(error).with_context(|| format!("{address}: cannot accept a connection")),
        },
    }
}

/// Receives one stream of a kernel over a connection into a spool in a folder, until it ends or the
/// other end of `ended` is closed. `begun` gets the path of the spool. Returns the spool, and why the
/// stream ended early.
///
/// # Errors
/// The peer sends no stream, or the spool cannot be made.
pub(crate) fn receive_one(
    socket: Socket,
    peer: String,
    folder: &Path,
    limits: Limits,
    ended: BorrowedFd<'_>,
    begun: &dyn Fn(&Path),
) -> anyhow::Result<(Spool, Option<String>)> {
    let (admission, socket) = (Admission::new(limits), Arc::new(socket));
    // The connection was asked for, so that no limit of a peer is needed.
    let ticket = admission.enter(Peer::Unix, &socket)?;
    let is_of_kernel = true;
    Connection { socket: &socket, peer, folder, limits, ended, is_of_kernel }.receive(ticket, begun)
}

/// Returns what is told of a stream that is over.
fn saved(
    finished: Result<Option<Saved>>,
    spool: PathBuf,
    why: &str,
    peer: &dyn Fn() -> String,
) -> Told {
    match finished {
        Ok(Some(Saved::Kernel(finished))) => Told::Saved(finished),
        Ok(Some(Saved::Session(session))) => Told::SavedSession(session),
        Ok(None) => Told::Empty { peer: peer(), why: why.to_owned() },
        Err(error) => Told::Failed { spool, why: error.to_string() },
    }
}

fn shown(peer: &SockAddr) -> String {
    match Address::of_peer(peer) {
        Address::Unix(_) => "unix".to_owned(),
        peer => peer.to_string(),
    }
}

/// Makes the folder, or checks that only this user may write into it.
fn check_folder(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("{shown}: cannot be made"));
        }
        _ => {}
    }
    let meta = folder.symlink_metadata().with_context(|| shown.to_string())?;
    if !meta.is_dir() {
        bail!("{shown}: this is no folder");
    }
    let own = rustix::process::geteuid().as_raw();
    if meta.uid() != own || meta.mode() & 0o022 != 0 {
        bail!(
            "{shown}: it is of user {} with mode {:o}, so that other users could change what is received: name a folder that \
             only user {own} may write, or one that does not exist yet",
            meta.uid(),
            meta.mode() & 0o7777
        );
    }
    Ok(())
}
