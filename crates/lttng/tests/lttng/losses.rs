//! Tests of the losses that packets of LTTng report, with the newest packet open and closed.
#![forbid(unsafe_code)]

use lastwords_bytes::{Budget, ByteOrder};
use lastwords_image::Hole;
use lastwords_lttng::{
    Counters, Domain, Loss, Metadata, Mode, Ring, Session, SetData, Shape, Slot, Stream,
};
use lastwords_trace::evidence::{Evidence, Verdict};
use std::sync::Arc;

const SIZE: u64 = 4096;
const HEADER: usize = 84;

/// Sets of pages: each a packet, its header as the tracer leaves it.
struct Sets(Vec<Vec<u8>>);

impl SetData for Sets {
    fn read(&self, set: u64, at: u64, buf: &mut [u8]) -> Result<(), Hole> {
        buf.copy_from_slice(&self.0[set as usize][at as usize..][..buf.len()]);
        Ok(())
    }

    fn data_size(&self, _: u64) -> Option<u64> {
        None
    }
}

fn packet(number: u64, is_open: bool, discarded: u64) -> Vec<u8> {
    let mut bytes = vec![0u8; SIZE as usize];
    let mut put = |at: usize, raw: &[u8]| bytes[at..at + raw.len()].copy_from_slice(raw);
    put(0, &0xc1fc_1fc1u32.to_le_bytes());
    let bits = if is_open { u64::MAX } else { SIZE * 8 };
    let end = if is_open { 0 } else { 100 * number + 90 };
    for (n, value) in [100 * number, end, bits, bits, number, discarded].into_iter().enumerate() {
        put(32 + 8 * n, &value.to_le_bytes());
    }
    bytes
}

/// A ring of two sub-buffers in discard mode: the second has `inside` bytes, or is full and
/// delivered where these are all.
fn session(inside: u64, loss: Loss) -> Session {
    let shape = Shape { order: ByteOrder::Little, word: 8 };
    let mut session = Session {
        name: "full".into(),
        domain: Domain::Kernel,
        folder: String::new(),
        created: String::new(),
        is_active: Some(true),
        uuid: [0; 16],
        shape,
        page_size: 4096,
        metadata: Metadata::default(),
        is_cut: false,
        streams: Vec::new(),
        evidence: Evidence::default(),
    };
    let full = Counters { contiguous: Some(SIZE), delivered: Some(SIZE) };
    let second = Counters {
        contiguous: Some(inside),
        delivered: Some(if inside == SIZE { SIZE } else { 0 }),
    };
    let slots = [full, second]
        .into_iter()
        .zip([0, 1])
        .map(|(counters, set)| Slot { counters, set: Some(set) });
    let ring = Ring {
        sub_buffer_size: SIZE,
        mode: Mode::Discard,
        word: 8,
        produced: SIZE + inside,
        consumed: 0,
        counter_mask: u64::MAX >> 1,
        slots: slots.collect(),
        reader: None,
        held: None,
    };
    let data = Arc::new(Sets(vec![packet(0, false, 0), packet(1, inside < SIZE, 3)]));
    let stream = Stream {
        channel: 0,
        channel_name: String::new(),
        cpu: Some(0),
        ring,
        loss,
        last_time: Some(195),
        packets: Vec::new(),
        data,
    };
    session.add(stream, &Budget::default()).expect("within the budget");
    session
}

fn discarded(session: &Session) -> Vec<u64> {
    session.streams[0].packets.iter().map(|packet| packet.header.discarded).collect()
}

#[test]
fn the_open_packet_tells_it() {
    let session = session(200, Loss { full: 10, wrap: 1, big: 0 });
    assert_eq!(discarded(&session), [0, 11]);
}

#[test]
fn a_packet_behind_the_delivered_ones_tells_it() {
    let session = session(SIZE, Loss { full: 10, ..Loss::default() });
    assert_eq!(discarded(&session), [0, 3, 10]);
    let last = session.streams[0].packets.last().expect("a packet");
    assert_eq!((last.header.sequence, last.header.begin, last.header.end), (2, 195, 195));
    assert_eq!((last.content, last.len, last.verdict), (HEADER as u64, 4096, Verdict::Open));
    let mut bytes = Vec::new();
    assert!(session.packet(0, 2, &mut bytes));
    assert_eq!(bytes[..HEADER], last.header.bytes(session.shape));
    assert!(bytes[HEADER..].iter().all(|byte| *byte == 0));
    // What was delivered stays as it was.
    assert!(session.packet(0, 1, &mut bytes));
    assert_eq!(bytes, packet(1, false, 3));
}

#[test]
fn what_the_delivered_packets_tell_is_not_told_again() {
    assert_eq!(discarded(&session(SIZE, Loss { full: 3, ..Loss::default() })), [0, 3]);
    assert_eq!(discarded(&session(SIZE, Loss::default())), [0, 3]);
}
