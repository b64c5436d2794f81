//! Admits connections to a receiver: there are limits for all of them, and for each peer, so that
//! no peer keeps the others out.
//!
//! A connection waits until its stream is described; only then it takes one of the places for
//! streams. A new connection of a peer that has too many takes the place of the peer's oldest one
//! that waits.

use super::Limits;
use anyhow::{bail, ensure};
use socket2::{SockAddr, Socket};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, Shutdown};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time over which the bytes and the files of a peer are counted.
const WINDOW: Duration = Duration::from_secs(3600);
/// Most peers that are remembered.
const MOST_PEERS: usize = 4096;
/// A connection that waits keeps its place for this time, whatever else its peer does.
const YOUNG: Duration = Duration::from_secs(1);
/// How many connections may wait, for each place of a stream.
const WAITING: usize = 2;

/// Whose connection it is. Connections of a Unix socket are those of this user and of root.
///
/// ```
/// use lastwords_stream::Peer;
/// assert!(Peer::Vsock(3) != Peer::Vsock(4));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// An address; of an IPv6 address the first 64 bits, because one host has all addresses of a
    /// network.
    Ip(IpAddr),
    /// The context ID of a virtual machine.
    Vsock(u32),
    /// A process of this machine.
    Unix,
}

impl Peer {
    pub(crate) fn from_address(address: &SockAddr) -> Self {
        match (address.as_socket(), address.as_vsock_address()) {
            (Some(address), _) => match address.ip().to_canonical() {
                IpAddr::V6(ip) => {
                    Self::Ip(IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & u128::MAX << 64)))
                }
                ip => Self::Ip(ip),
            },
            (_, Some((cid, _))) => Self::Vsock(cid),
            _ => Self::Unix,
        }
    }
}

/// The share of the limits that a peer has used.
#[derive(Debug)]
struct Usage {
    connections: usize,
    bytes: u64,
    files: u64,
    /// When counting began.
    since: Instant,
}

/// A connection whose stream is not described yet.
#[derive(Debug)]
struct Waiting {
    peer: Peer,
    since: Instant,
    socket: Arc<Socket>,
    is_evicted: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    peers: BTreeMap<Peer, Usage>,
    /// By the number of the connection, so that the oldest is the first.
    waiting: BTreeMap<u64, Waiting>,
    streams: usize,
    next: u64,
}

/// The connections of a receiver.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Limits,
    state: Mutex<State>,
}

/// The place of a connection, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Ticket<'a> {
    admission: &'a Admission,
    peer: Peer,
    number: u64,
    is_stream: bool,
    /// Set by the thread that accepts, when another connection takes the place; read by the thread
    /// of the connection after its socket was shut down, which orders the two.
    is_evicted: Arc<AtomicBool>,
}

impl Admission {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Takes a connection, which waits.
    ///
    /// # Errors
    /// There are too many, of all peers or of this one.
    pub(super) fn enter(&self, peer: Peer, socket: &Arc<Socket>) -> anyhow::Result<Ticket<'_>> {
        let Limits { senders, per_peer, .. } = self.limits;
        let state = &mut *self.lock();
        let most = if peer == Peer::Unix { usize::MAX } else { per_peer };
        let now = Instant::now();
        if !state.peers.contains_key(&peer) && state.peers.len() >= MOST_PEERS {
            state.peers.retain(|_, usage| usage.connections > 0 || usage.since.elapsed() < WINDOW);
            ensure!(
                state.peers.len() < MOST_PEERS,
                "{MOST_PEERS} other peers have sent within an hour"
            );
        }
        let has = state.peers.get(&peer).map_or(0, |usage| usage.connections);
        if has >= most && !state.evict(|waiting| waiting.peer == peer) {
            bail!(
                "{has} connections of this peer are under way, and {most} are the most (--max-per-peer)"
            );
        }
        let waiting = state.waiting.len();
        if waiting >= senders.saturating_mul(WAITING).max(WAITING) && !state.evict(|_| true) {
            bail!("{waiting} connections wait, which is the most");
        }
        state.next = state.next.saturating_add(1);
        let (number, is_evicted) = (state.next, Arc::new(AtomicBool::new(false)));
        let entry = Waiting {
            peer,
            since: now,
            socket: Arc::clone(socket),
            is_evicted: Arc::clone(&is_evicted),
        };
        state.waiting.insert(number, entry);
        let usage = state.peers.entry(peer).or_insert(Usage {
            connections: 0,
            bytes: 0,
            files: 0,
            since: now,
        });
        usage.connections = usage.connections.saturating_add(1);
        Ok(Ticket { admission: self, peer, number, is_stream: false, is_evicted })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check_room(&self, most: usize) -> anyhow::Result<()> {
        let streams = self.streams;
        ensure!(
            streams < most,
            "{streams} streams are under way, and {most} are the most (--max-senders)"
        );
        Ok(())
    }

    /// Ends the oldest of these connections that wait, unless it is young. Returns true if one was
    /// ended.
    fn evict(&mut self, is_it: impl Fn(&Waiting) -> bool) -> bool {
        let oldest =
            self.waiting.iter().find(|(_, waiting)| is_it(waiting)).map(|(number, _)| *number);
        let Some(number) = oldest else { return false };
        if self.waiting.get(&number).is_none_or(|waiting| waiting.since.elapsed() < YOUNG) {
            return false;
        }
        let Some(waiting) = self.waiting.remove(&number) else { return false };
        self.forget(waiting.peer);
        waiting.is_evicted.store(true, Relaxed);
        // Its thread reads no more, and can still answer why.
        let _ = waiting.socket.shutdown(Shutdown::Read);
        true
    }

    /// One connection of a peer fewer.
    fn forget(&mut self, peer: Peer) {
        if let Some(usage) = self.peers.get_mut(&peer) {
            usage.connections = usage.connections.saturating_sub(1);
            if usage.connections == 0 && usage.since.elapsed() >= WINDOW {
                self.peers.remove(&peer);
            }
        }
    }
}

impl Ticket<'_> {
    /// The stream is described, and takes one of the places for streams.
    ///
    /// # Errors
    /// All are taken, or another connection has taken the place of this one.
    pub(super) fn described(&mut self) -> anyhow::Result<()> {
        if self.is_stream {
            return Ok(());
        }
        let state = &mut *self.admission.lock();
        self.check()?;
        state.check_room(self.admission.limits.senders)?;
        state.waiting.remove(&self.number);
        state.streams = state.streams.saturating_add(1);
        self.is_stream = true;
        Ok(())
    }

    /// # Errors
    /// All places for streams are taken.
    pub(super) fn check_room(&self) -> anyhow::Result<()> {
        self.admission.lock().check_room(self.admission.limits.senders)
    }

    /// Returns true if the connection still waits.
    pub(super) fn is_waiting(&self) -> bool {
        !self.is_stream
    }

    /// # Errors
    /// Another connection has taken the place of this one.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.is_evicted.load(Relaxed),
            "another connection of its peer has taken its place"
        );
        Ok(())
    }

    /// Counts bytes and files that are written for the peer.
    ///
    /// # Errors
    /// They are more than one peer may have within an hour.
    pub(super) fn spend(&self, bytes: u64, files: u64) -> anyhow::Result<()> {
        let Limits { peer_bytes, peer_files, .. } = self.admission.limits;
        let state = &mut *self.admission.lock();
        let Some(usage) = state.peers.get_mut(&self.peer).filter(|_| self.peer != Peer::Unix)
        else {
            return Ok(());
        };
        if usage.since.elapsed() >= WINDOW {
            (usage.bytes, usage.files, usage.since) = (0, 0, Instant::now());
        }
        usage.bytes = usage.bytes.saturating_add(bytes);
        usage.files = usage.files.saturating_add(files);
        let (bytes, files) = (usage.bytes, usage.files);
        ensure!(
            bytes <= peer_bytes,
            "the peer has sent more than {peer_bytes} bytes within an hour (--max-peer-bytes)"
        );
        ensure!(
            files <= peer_files,
            "the peer has sent more than {peer_files} files within an hour (--max-peer-files)"
        );
        Ok(())
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let state = &mut *self.admission.lock();
        if self.is_stream {
            state.streams = state.streams.saturating_sub(1);
        } else if state.waiting.remove(&self.number).is_none() {
            // Whoever took its place has subtracted it.
            return;
        }
        state.forget(self.peer);
    }
}
