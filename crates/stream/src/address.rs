//! Addresses of receivers: TCP, vsock (between a virtual machine and its host) or a Unix socket.

use anyhow::{Context, bail};
use lastwords_open::chain;
use rustix::net::sockopt::socket_peercred;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::ffi::OsStr;
use std::fmt;
use std::io::ErrorKind;
use std::net::ToSocketAddrs as _;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// The program that receives streams.
pub(crate) const RECEIVER: &str = "lastwords receive";
/// Connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// `VMADDR_CID_ANY`, which listens for all peers.
const ANY_CID: u32 = u32::MAX;

/// The address of a receiver, written `tcp:HOST:PORT`, `vsock:CID:PORT` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A host's name or IP address, with a port: `tcp:host:7117`, `tcp:[::1]:7117`.
    Tcp(String),
    /// A context ID and a port: `vsock:2:7117` is the host of a virtual machine.
    Vsock(u32, u32),
    /// A path in the file system. Only the same user and root may connect.
    Unix(PathBuf),
}

/// The reason why an address cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// A text is no address.
    #[error("{text}: no address such as tcp:HOST:PORT, vsock:CID:PORT or unix:PATH")]
    NoAddress {
        /// The text.
        text: String,
    },
    /// The host of an address is not known.
    #[error("{why}")]
    NoHost {
        /// The address.
        address: Address,
        /// The address and the reason, one sentence.
        why: String,
    },
}

impl Address {
    /// Returns the address that the name of an output stands for; none for the name of a file. A
    /// file whose name begins like an address is named with its folder, as in `./tcp:x`.
    ///
    /// # Errors
    /// The name begins like an address, and is none.
    pub fn of_output(name: &OsStr) -> Result<Option<Self>, AddressError> {
        let is_address = ["tcp:", "vsock:", "unix:"]
            .iter()
            .any(|kind| name.as_bytes().starts_with(kind.as_bytes()));
        is_address.then(|| name.to_string_lossy().parse()).transpose()
    }

    /// Returns true if other machines of a network may reach a receiver at this address. Virtual
    /// machines reach their host by vsock alone.
    ///
    /// # Errors
    /// The host's name leads to no address.
    pub fn is_of_network(&self) -> Result<bool, AddressError> {
        let is_beyond = |address: &SockAddr| {
            address.as_socket().is_some_and(|address| !address.ip().to_canonical().is_loopback())
        };
        let no_host = |why| AddressError::NoHost { address: self.clone(), why: chain(&why) };
        let resolved = self.resolved().map_err(no_host)?;
        Ok(resolved.iter().any(|(_, _, address)| is_beyond(address)))
    }

    /// Connects to a program that listens there.
    pub(crate) fn connect(&self, program: &str) -> anyhow::Result<Socket> {
        let named =
            || format!("{self}: cannot connect; is `{program} --listen {self}` running there?");
        let mut last = None;
        for (domain, protocol, address) in self.resolved()? {
            let socket = Socket::new(domain, Type::STREAM, protocol)
                .with_context(|| format!("{self}: no socket"))?;
            let connected = match self {
                Self::Tcp(_) => socket.connect_timeout(&address, CONNECT),
                // The kernel gives up by itself, or knows at once.
                Self::Vsock(..) | Self::Unix(_) => socket.connect(&address),
            };
            match connected {
                Ok(()) => {
                    if let Self::Unix(_) = self {
                        check_peer(&socket).with_context(|| self.to_string())?;
                    }
                    self.prepare(&socket)?;
                    return Ok(socket);
                }
                Err(error) => last = Some(error),
            }
        }
        let last = last
            .unwrap_or_else(|| std::io::Error::new(ErrorKind::NotFound, "the host has no address"));
        Err(last).with_context(named)
    }

    /// Listens for senders. A Unix socket that a killed receiver left is replaced.
    pub(crate) fn listen(&self) -> anyhow::Result<Socket> {
        let named = || format!("{self}: cannot listen");
        let Some((domain, protocol, address)) = self.resolved()?.into_iter().next() else {
            bail!("{self}: the host has no address");
        };
        let socket = Socket::new(domain, Type::STREAM, protocol).with_context(named)?;
        match self {
            Self::Tcp(_) => socket.set_reuse_address(true).with_context(named)?,
            Self::Unix(path) => {
                let is_socket =
                    path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket());
                let is_left =
                    is_socket && self.connect(RECEIVER).is_err_and(|error| is_refused(&error));
                if is_left {
                    std::fs::remove_file(path).with_context(named)?;
                }
            }
            Self::Vsock(..) => {}
        }
        socket.bind(&address).and_then(|()| socket.listen(BACKLOG)).with_context(named)?;
        socket.set_nonblocking(true).with_context(named)?;
        Ok(socket)
    }

    /// Returns the address at which a socket listens: with the port that the kernel chose if port 0
    /// was asked for.
    pub(crate) fn bound(&self, socket: &Socket) -> Self {
        match (self, socket.local_addr().ok().and_then(|address| address.as_socket())) {
            (Self::Tcp(_), Some(bound)) => Self::Tcp(bound.to_string()),
            _ => self.clone(),
        }
    }

    /// Returns the address of the peer of a connection.
    pub(crate) fn of_peer(peer: &SockAddr) -> Self {
        match (peer.as_socket(), peer.as_vsock_address()) {
            (Some(address), _) => Self::Tcp(address.to_string()),
            (_, Some((cid, port))) => Self::Vsock(cid, port),
            _ => Self::Unix("(unnamed)".into()),
        }
    }

    /// Makes a connection ready: calls do not block, and a peer that has vanished is noticed.
    pub(crate) fn prepare(&self, socket: &Socket) -> anyhow::Result<()> {
        if let Self::Tcp(_) = self {
            // An idle connection whose peer is gone is otherwise never noticed. It is no harm if
            // the kernel refuses.
            let _ = socket.set_keepalive(true);
            let _ = socket.set_tcp_nodelay(true);
        }
        socket.set_nonblocking(true).with_context(|| self.to_string())
    }

    fn resolved(&self) -> anyhow::Result<Vec<(Domain, Option<Protocol>, SockAddr)>> {
        Ok(match self {
            Self::Tcp(host) => {
                let addresses =
                    host.to_socket_addrs().with_context(|| format!("{self}: no such host"))?;
                let with_kind = |address| {
                    (Domain::for_address(address), Some(Protocol::TCP), SockAddr::from(address))
                };
                addresses.map(with_kind).collect()
            }
            Self::Vsock(cid, port) => vec![(Domain::VSOCK, None, SockAddr::vsock(*cid, *port))],
            Self::Unix(path) => {
                let address =
                    SockAddr::unix(path).with_context(|| format!("{self}: no path of a socket"))?;
                vec![(Domain::UNIX, None, address)]
            }
        })
    }
}

fn is_refused(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Checks that the peer of a Unix socket is the same user or root.
pub(crate) fn check_peer(socket: &impl AsFd) -> anyhow::Result<()> {
    let peer = socket_peercred(socket).context("the user of the peer")?.uid;
    let own = rustix::process::geteuid();
    if peer != own && !peer.is_root() {
        bail!("the peer is of user {}, not of user {}", peer.as_raw(), own.as_raw());
    }
    Ok(())
}

/// Reads an address; none if the text is no address.
fn parse(text: &str) -> Option<Address> {
    let (kind, rest) = text.split_once(':')?;
    match kind {
        "tcp" => {
            let (host, port) = rest.rsplit_once(':')?;
            let is_bare = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
            let is_host = !host.is_empty() && !is_bare && port.parse::<u16>().is_ok();
            is_host.then(|| Address::Tcp(rest.to_owned()))
        }
        "vsock" => {
            let (cid, port) = rest.split_once(':')?;
            let cid = if cid == "any" { ANY_CID } else { cid.parse().ok()? };
            Some(Address::Vsock(cid, port.parse().ok()?))
        }
        "unix" if !rest.is_empty() => Some(Address::Unix(rest.into())),
        _ => None,
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        parse(text).ok_or_else(|| AddressError::NoAddress { text: text.to_owned() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => write!(f, "tcp:{host}"),
            Self::Vsock(ANY_CID, port) => write!(f, "vsock:any:{port}"),
            Self::Vsock(cid, port) => write!(f, "vsock:{cid}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for text in
            ["tcp:host:7117", "tcp:[::1]:7117", "vsock:2:7117", "vsock:any:7117", "unix:/run/x"]
        {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(Address::of_output(OsStr::new(text)).unwrap(), Some(address));
        }
        for text in [
            "tcp:host",
            "tcp:::1:7117",
            "tcp:host:x",
            "tcp::7",
            "vsock:2",
            "vsock:x:1",
            "unix:",
            "tcp:h:70000",
        ] {
            let error = Address::of_output(OsStr::new(text)).unwrap_err().to_string();
            assert!(error.starts_with(text) && error.contains("tcp:HOST:PORT"), "{error}");
        }
        for file in ["trace.dat", "./tcp:x:1", "/tmp/unix:x", "udp:x:1"] {
            assert_eq!(Address::of_output(OsStr::new(file)).unwrap(), None);
        }
    }
}
