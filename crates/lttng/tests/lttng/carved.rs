//! A packet that was being written, in memory where nothing leads to its ring: commit counters tell
//! where it ends.
#![forbid(unsafe_code)]

use crate::image;
use lastwords_bytes::Budget;
use lastwords_image::unwatched;
use lastwords_lttng::{Domain, Proof, Session, carve};
use lastwords_trace::evidence::Verdict;

/// Where the kernel's map of all memory begins.
const MAP: u64 = 0xffff_8880_0000_0000;
/// Bytes of the packet that were written, header included.
const WRITTEN: u64 = 5000;

/// The packet number 5 of a ring of two sub-buffers of 8 KiB: its pages are the fourth and the
/// sixth. `counters`: rows of those that are in memory, of this ring and of others.
fn carved(counters: &[[(u64, u64); 2]]) -> Session {
    let mut bytes = vec![0u8; 16 << 12];
    let mut put = |at: usize, raw: &[u8]| bytes[at..at + raw.len()].copy_from_slice(raw);
    put(0x4000, &0xc1fc_1fc1u32.to_le_bytes());
    put(0x4004, &[7; 16]);
    for (n, value) in [0, 1000, 0, u64::MAX, u64::MAX, 5, 0].into_iter().enumerate() {
        put(0x4018 + 8 * n, &u64::to_le_bytes(value));
    }
    for (n, word) in [MAP + 0x4000, 4, MAP + 0x6000, 6].into_iter().enumerate() {
        put(0x2100 + 8 * n, &u64::to_le_bytes(word));
    }
    for (n, rows) in counters.iter().enumerate() {
        for (at, word) in rows.iter().flat_map(|row| [row.0, row.1]).enumerate() {
            put(0x3000 + 0x100 * n + 8 * at, &word.to_le_bytes());
        }
    }
    let mut sessions =
        carve(&image(&bytes), &Budget::default(), &unwatched).expect("within the budget");
    assert_eq!(sessions.len(), 1);
    sessions.remove(0)
}

/// Two laps of both sub-buffers, then the first one once more, then so much of the second.
fn rows(written: u64) -> [(u64, u64); 2] {
    [(0x6000, 0x6000), (0x4000 + written, 0x4000 + written)]
}

/// Events decode up to where they were written, and there alone.
fn decode(bytes: &[u8], _: bool) -> Proof {
    let fault = (bytes.len() as u64 != WRITTEN).then(|| "no event".to_owned());
    let good = if fault.is_some() { 84 } else { WRITTEN };
    Proof { events: 9, last: Some(1234), good, fault, zeros: Vec::new() }
}

fn ends_as_written(session: &Session) {
    let packet = &session.streams[0].packets[0];
    assert_eq!((packet.content, packet.len, packet.verdict), (WRITTEN, 0x2000, Verdict::Open));
    assert_eq!((packet.header.content_bits, packet.header.packet_bits), (WRITTEN * 8, 0x2000 * 8));
    let row = &session.evidence.sub_buffers[0];
    assert_eq!((row.content, row.verdict), (WRITTEN, Verdict::Open));
    assert!(row.why.contains("commit counters"), "{}", row.why);
}

#[test]
fn counters_of_the_ring_end_an_open_packet() {
    let mut session = carved(&[rows(WRITTEN)]);
    assert_eq!(session.domain, Domain::Kernel);
    session.prove(&mut decode);
    ends_as_written(&session);
    assert_eq!(session.streams[0].packets[0].header.end, 1234);
    // Without a description of the events, too.
    let mut session = carved(&[rows(WRITTEN)]);
    session.forget_doubtful();
    ends_as_written(&session);
}

#[test]
fn of_several_counters_those_count_where_an_event_ends() {
    let mut session = carved(&[rows(6000), rows(WRITTEN), rows(0x2000)]);
    session.prove(&mut decode);
    ends_as_written(&session);
    // Nobody can tell which are its own.
    let mut session = carved(&[rows(6000), rows(WRITTEN)]);
    session.forget_doubtful();
    assert!(session.streams[0].packets.is_empty());
}

#[test]
fn without_counters_events_count_as_far_as_they_decode() {
    let mut session = carved(&[]);
    session.prove(&mut decode);
    let packet = &session.streams[0].packets[0];
    assert_eq!((packet.content, packet.verdict), (84, Verdict::Open));
    let mut session = carved(&[]);
    session.forget_doubtful();
    assert!(session.streams[0].packets.is_empty());
}
