//! A receiver on a thread of this process, and frames that are put together byte by byte.
// Each test program uses a part of it.
#![allow(dead_code)]

use lastwords_stream::{Address, Limits, Receiver, Told};
use lastwords_testkit::counters::Metrics;
use lastwords_testkit::session::Session;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Longer than any machine takes.
pub(crate) const LONG: Duration = Duration::from_secs(120);
pub(crate) const LIMITS: Limits = Limits {
    size: 1 << 30,
    senders: 16,
    silence: LONG,
    head: LONG,
    per_peer: 16,
    peer_bytes: u64::MAX,
    peer_files: u64::MAX,
    trusts_network: false,
};

/// A receiver on a thread of this process.
pub(crate) struct Running {
    pub(crate) address: String,
    pub(crate) told: mpsc::Receiver<Told>,
    /// The messages that the receiver gave before it listened. They are about streams that an
    /// earlier receiver has left.
    pub(crate) left: Vec<Told>,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn new(folder: &Path, limits: Limits) -> Self {
        let address: Address = "tcp:127.0.0.1:0".parse().unwrap();
        let receiver = Receiver::new(&address, folder, limits).unwrap();
        let (tell, told) = mpsc::channel();
        let (ended, stop) = UnixStream::pair().unwrap();
        let run = move || receiver.run(ended.as_fd(), &|what| tell.send(what).unwrap()).unwrap();
        let thread = Some(std::thread::spawn(run));
        let mut running =
            Self { address: String::new(), told, left: Vec::new(), stop: Some(stop), thread };
        running.address = loop {
            match running.next() {
                Told::Listening { address } => {
                    break address.strip_prefix("tcp:").unwrap().to_owned();
                }
                told => running.left.push(told),
            }
        };
        running
    }

    pub(crate) fn next(&self) -> Told {
        self.told.recv_timeout(LONG).expect("the receiver tells something")
    }

    /// The next that is told of a stream that is over.
    pub(crate) fn over(&self) -> Told {
        loop {
            match self.next() {
                Told::Started { .. } | Told::Listening { .. } => {}
                told => return told,
            }
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Starts a receiver in the folder `in` of a new one, which is returned, too.
    pub(crate) fn in_new_folder(limits: Limits) -> (tempfile::TempDir, PathBuf, Self) {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("in");
        let running = Self::new(&target, limits);
        (folder, target, running)
    }

    /// Sends bytes, ends the connection, and returns the answers.
    pub(crate) fn send(&self, bytes: &[u8]) -> Vec<u8> {
        let mut socket = self.connect();
        // The receiver may close before it has all.
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(Shutdown::Write);
        let mut answers = Vec::new();
        let _ = socket.read_to_end(&mut answers);
        answers
    }

    pub(crate) fn stop(mut self) -> mpsc::Receiver<Told> {
        self.end();
        let (_, none) = mpsc::channel();
        std::mem::replace(&mut self.told, none)
    }

    fn end(&mut self) {
        drop(self.stop.take());
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for Running {
    /// A receiver that is not stopped before is stopped at the end of the test.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

/// A frame.
pub(crate) fn frame(kind: u32, cpu: u32, content: &[u8]) -> Vec<u8> {
    let length = content.len() as u64;
    [&kind.to_le_bytes()[..], &cpu.to_le_bytes(), &length.to_le_bytes(), content].concat()
}

/// The names of the files in a folder.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The begin of each stream.
pub(crate) const BEGIN: &[u8; 16] = b"LWSTREAM\x03\0\0\0\0\0\0\0";

/// The begin of a session's stream, in parts: the sender, the session, and its two regions. By its
/// region, the session has counters.
pub(crate) fn described() -> Vec<Vec<u8>> {
    let mut region = vec![0x5a; 4096];
    put(&mut region, 24, &0x0102_0304u32.to_le_bytes());
    put(&mut region, 32, &4096u64.to_le_bytes());
    put(&mut region, 128 + 56, &1024u32.to_le_bytes());
    put(&mut region, 1024 + 112, &[8, 0, 0, 0, 2, 0, 0, 0]);
    let part = |kind: u32| frame(8, kind, &[&0u64.to_le_bytes()[..], &region].concat());
    let hello = frame(1, 0, br#"{"host":"far","instance":"app"}"#);
    let session = frame(7, 0, br#"{"uuid":"000102030405060708090a0b0c0d0e0f","name":"app"}"#);
    vec![[BEGIN.to_vec(), hello].concat(), session, part(1), part(2)]
}

/// The begin of a ring's region, by docs/ABI.md, sections 1 and 7.
pub(crate) fn head(size: u64, first: u64, end: u64) -> Vec<u8> {
    let mut bytes = vec![0; 768];
    put(&mut bytes, 0, b"\x89LASTWORDS\r\n\x1a\n\0\0");
    put(&mut bytes, 24, &0x0102_0304u32.to_le_bytes());
    put(&mut bytes, 60, &64u32.to_le_bytes());
    put(&mut bytes, 128 + 16, &size.to_le_bytes());
    for (at, value) in [(0, end), (8, end), (64, first)] {
        put(&mut bytes, 384 + at, &value.to_le_bytes());
    }
    bytes
}

/// Writes bytes at an offset.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// The counters region of the session that [`described`] begins, in which a counter has this value.
pub(crate) fn counters(value: u64) -> Vec<u8> {
    let mut session = Session::new("app", 1);
    session.uuid = std::array::from_fn(|n| n as u8);
    session.metrics = Some(Metrics {
        room: [8, 2],
        counters: vec![("requests".to_owned(), value)],
        histograms: vec![("latency".to_owned(), vec![value, 7])],
        lost: [0, 0],
    });
    let mut regions = session.image().regions.into_iter();
    regions.find(|region| region.name == "counters").unwrap().bytes
}

/// The content of a frame with a copy of a counters region: its begin, and each line of its tables
/// that is not zero.
pub(crate) fn copy_of(region: &[u8]) -> Vec<u8> {
    let lines = region.chunks(64).enumerate().skip(4).map(|(n, line)| (n * 64, line));
    let lines = lines.filter(|(_, line)| line.iter().any(|byte| *byte != 0));
    [(0, &region[..256])].into_iter().chain(lines).flat_map(|(at, bytes)| part(at, bytes)).collect()
}

/// A part of a copy.
pub(crate) fn part(at: usize, bytes: &[u8]) -> Vec<u8> {
    let words = [at, bytes.len()].map(|word| (word as u64).to_le_bytes());
    [&words.concat()[..], bytes].concat()
}
