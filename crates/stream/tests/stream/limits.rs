//! Peers that want more than their share: connections that are held, heads, gaps, bytes; and a
//! receiver that no peer keeps from the others.

use crate::support::{self, LIMITS, LONG, Running, files, frame};
use lastwords_stream::{Address, Limits, Receiver, Told};
use lastwords_testkit::text::Text as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The begin of a session's stream, with its regions.
fn described() -> Vec<u8> {
    support::described().concat()
}

fn hello() -> Vec<u8> {
    support::described().swap_remove(0)
}

/// The begin of a ring's region.
fn head(size: u64) -> Vec<u8> {
    support::head(size, 0, 0)
}

fn packet(ring: u32, number: u64, bytes: &[u8]) -> Vec<u8> {
    frame(10, ring, &[&number.to_le_bytes()[..], bytes].concat())
}

fn end() -> Vec<u8> {
    frame(6, 0, br#"{"cpus":[],"bytes":0}"#)
}

/// Reads until the receiver closes the connection.
fn answers(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = socket.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn why(told: Told) -> String {
    match told {
        Told::Refused { why, .. } | Told::Empty { why, .. } => why,
        Told::SavedSession(session) => session.ended_early.unwrap_or_default(),
        other => panic!("{other:?}"),
    }
}

/// Each of many connections says who it is and then that it lives, for ever. A sender with a stream
/// is taken all the same.
#[test]
fn held_connections_keep_no_stream_out() {
    let (_folder, _, running) =
        Running::in_new_folder(Limits { senders: 4, per_peer: 4, ..LIMITS });
    let held: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut socket = running.connect();
            let _ = socket.write_all(&[hello(), frame(5, 0, &[])].concat());
            socket
        })
        .collect();
    // Four wait, and the others were refused.
    let refused: Vec<String> = (0..16).map(|_| why(running.over())).collect();
    let is_right = |why: &String| why.contains("--max-per-peer") || why.contains("taken its place");
    assert!(refused.iter().all(is_right), "{refused:?}");
    // Once they are old, a stream takes the place of the oldest.
    let begun = Instant::now();
    let saved = loop {
        let answer =
            String::from_utf8_lossy(&running.send(&[described(), end()].concat())).into_owned();
        if !answer.contains("--max-per-peer") {
            break answer;
        }
        assert!(begun.elapsed() < LONG, "{answer}");
    };
    saved.has(r#"{"bytes":0}"#);
    drop(held);
}

#[test]
fn a_sender_that_does_not_say_who_it_is_or_what_it_sends_is_refused() {
    let head = Duration::from_millis(500);
    let (_folder, target, running) = Running::in_new_folder(Limits { head, ..LIMITS });
    let mut silent = running.connect();
    answers(&mut silent).has("--head-timeout");
    why(running.over()).has("--head-timeout");
    // It drips, so that the time without a byte is never up.
    let mut dripping = running.connect();
    dripping.write_all(&hello()).unwrap();
    dripping.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut said = Vec::new();
    let begun = Instant::now();
    while !String::from_utf8_lossy(&said).contains("--head-timeout") {
        assert!(begun.elapsed() < LONG);
        let _ = dripping.write_all(&frame(5, 0, &[]));
        let mut some = [0; 4096];
        if let Ok(read) = dripping.read(&mut some) {
            said.extend_from_slice(&some[..read]);
        }
    }
    why(running.over()).has("--head-timeout");
    // A stream that is described has no deadline.
    let mut alive = running.connect();
    alive.write_all(&described()).unwrap();
    std::thread::sleep(head * 8);
    alive.write_all(&end()).unwrap();
    answers(&mut alive).has(r#"{"bytes":0}"#);
    drop(running.stop());
    assert!(files(&target).iter().all(|name| !name.ends_with(".stream")));
}

#[test]
fn a_peer_has_so_many_files_and_bytes() {
    let (_folder, target, running) = Running::in_new_folder(Limits { peer_files: 10, ..LIMITS });
    let heads: Vec<u8> = (0..1000).flat_map(|ring| frame(9, ring, &head(128))).collect();
    let said = running.send(&[described(), heads, end()].concat());
    String::from_utf8_lossy(&said).has("--max-peer-files");
    let Told::SavedSession(session) = running.over() else { panic!("what came is saved") };
    assert_eq!(files(&session.path).iter().filter(|name| name.starts_with("stream-")).count(), 9);
    // The next stream of the peer gets none.
    String::from_utf8_lossy(&running.send(&described())).has("--max-peer-files");
    why(running.over()).has("--max-peer-files");
    drop(running.stop());
    let running = Running::new(&target, Limits { peer_bytes: 50_000, ..LIMITS });
    let packets: Vec<u8> = (0..1000).flat_map(|number| packet(0, number, &[7; 4096])).collect();
    let said = running.send(&[described(), frame(9, 0, &head(4096)), packets, end()].concat());
    String::from_utf8_lossy(&said).has("--max-peer-bytes");
    why(running.over()).has("--max-peer-bytes");
    drop(running.stop());
    assert!(stored(&target) < 400_000, "{}", stored(&target));
}

/// The bytes that a folder takes on disk.
fn stored(folder: &Path) -> u64 {
    let of = |name: String| {
        let path = folder.join(name);
        if path.is_dir() { stored(&path) } else { path.metadata().unwrap().blocks() * 512 }
    };
    files(folder).into_iter().map(of).sum()
}

#[test]
fn a_packet_after_a_shorter_one_ends_the_stream() {
    let (_folder, _, running) = Running::in_new_folder(LIMITS);
    let packets: Vec<u8> = (0..100).flat_map(|number| packet(0, number, &[7])).collect();
    let said = running.send(&[described(), frame(9, 0, &head(128)), packets, end()].concat());
    String::from_utf8_lossy(&said).has("after one that is shorter");
    why(running.over()).has("after one that is shorter");
}

#[test]
fn an_address_that_other_machines_reach_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("in");
    for text in ["tcp:0.0.0.0:0", "tcp:[::]:0", "tcp:192.0.2.1:0", "tcp:[::ffff:192.0.2.1]:0"] {
        let address: Address = text.parse().unwrap();
        format!("{:#}", Receiver::new(&address, &target, LIMITS).unwrap_err())
            .has("--trust-network")
            .has("ssh")
            .has("WireGuard");
        assert!(!target.exists());
    }
    let unix = format!("unix:{}", folder.path().join("socket").display());
    for (text, trusts_network) in [
        ("tcp:127.0.0.1:0", false),
        ("tcp:localhost:0", false),
        (unix.as_str(), false),
        ("tcp:0.0.0.0:0", true),
    ] {
        let address: Address = text.parse().unwrap();
        Receiver::new(&address, &target, Limits { trusts_network, ..LIMITS }).unwrap();
    }
}

/// The folder is on a file system without room: nothing is left of a stream that could not even
/// begin, and nothing half made of one that cannot be saved.
#[test]
fn a_failed_write_leaves_nothing_half_made() {
    let (_folder, target, running) = Running::in_new_folder(LIMITS);
    let mut socket = running.connect();
    socket
        .write_all(&[described(), frame(9, 0, &head(4096)), packet(0, 0, &[7; 4096])].concat())
        .unwrap();
    let Told::Started { spool, .. } = running.next() else { panic!("it starts") };
    socket.read_exact(&mut [0; 16 + 24]).unwrap();
    // The file of the end cannot be written: a folder has its name.
    let rings = spool.with_extension("rings");
    std::fs::create_dir(rings.join("registry")).unwrap();
    drop(socket);
    assert!(matches!(running.over(), Told::Failed { .. }));
    drop(running.stop());
    assert_eq!(files(&rings), ["raw-0000", "registry"]);
    // The next receiver saves it.
    std::fs::remove_dir(rings.join("registry")).unwrap();
    let mut next = Running::new(&target, LIMITS);
    assert!(matches!(next.left.remove(0), Told::SavedSession(_)));
    drop(next.stop());
    assert_eq!(files(&target).len(), 1);
}
