//! Streams of LTTng's user-space tracer, made here from `frontend_types.h` of lttng-ust.

use crate::support::Place;

const COUNT: usize = 4;
const SIZE: usize = 512;
const SLOTS: usize = 0x480;
const SETS: usize = 0x500;
const PAGES: usize = 0x600;
const DATA: usize = 0x1000;
/// Bytes before the first event of a packet.
const HEAD: usize = 84;

/// Of packets without events.
const METADATA: &str = "/* CTF 1.8 */\n\
    typealias integer { size = 8; align = 8; signed = false; } := uint8_t;\n\
    typealias integer { size = 32; align = 8; signed = false; } := uint32_t;\n\
    typealias integer { size = 64; align = 8; signed = false; } := uint64_t;\n\
    trace { major = 1; minor = 8; uuid = \"00010203-0405-0607-0000-000000000000\"; byte_order = le;\n\
    packet.header := struct { uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; uint64_t stream_instance_id; }; };\n\
    stream { id = 3; packet.context := struct { uint64_t timestamp_begin; uint64_t timestamp_end; uint64_t content_size;\n\
    uint64_t packet_size; uint64_t packet_seq_num; uint64_t events_discarded; uint32_t cpu_id; };\n\
    event.header := struct { uint32_t id; }; };\n\
    event { name = \"steps:step\"; id = 0; stream_id = 3; fields := struct { uint32_t n; }; };\n";

/// A ring of four sub-buffers, all of them full, none lost.
fn stream() -> Vec<u8> {
    let mut bytes = vec![0; DATA + (COUNT + 1) * SIZE];
    let length = bytes.len() as u64;
    let mut put = |at: usize, len: usize, value: u64| bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    for (n, byte) in [0x17u64, 0x7b, 0xf1, 0x77, 0xbf].iter().cycle().take(16).enumerate() {
        put(n, 1, *byte);
    }
    put(16, 8, length);
    put(24, 2, 0x1234);
    put(30, 1, 8);
    let offsets = [0x80, 0x98, 0x280, 8, SLOTS, 0, SETS, 8, 40, 48, 56];
    offsets.iter().enumerate().for_each(|(n, at)| put(32 + 4 * n, 4, *at as u64));
    (0..8).for_each(|n| put(76 + n, 1, 8));
    [128, 8, 16].iter().enumerate().for_each(|(n, stride)| put(84 + 4 * n, 4, *stride));
    [COUNT * SIZE, SIZE, COUNT, 1].iter().enumerate().for_each(|(n, word)| put(96 + 8 * n, 8, *word as u64));
    put(0x80, 8, (COUNT * SIZE) as u64);
    for slot in 0..COUNT {
        put(0x280 + 128 * slot + 8, 8, SIZE as u64);
        put(SLOTS + 8 * slot, 8, slot as u64);
        let at = DATA + slot * SIZE;
        put(at, 4, 0xc1fc_1fc1);
        put(at + 4, 8, 0x0706_0504_0302_0100);
        put(at + 20, 4, 3);
        let context = [1000 * slot, 1000 * slot + 900, 8 * HEAD, 8 * SIZE, slot, 0, 1];
        context.iter().enumerate().for_each(|(n, word)| put(at + 32 + 8 * n, if n == 6 { 4 } else { 8 }, *word as u64));
    }
    for set in 0..=COUNT {
        put(SETS + 16 * set + 8, 8, (PAGES + 0x40 * set) as u64);
        put(PAGES + 0x40 * set + 40, 8, (DATA + SIZE * set) as u64);
    }
    bytes
}

#[test]
fn report_and_recover_call_the_same_a_loss() {
    let place = Place::new();
    std::fs::create_dir(place.at("shm")).unwrap();
    std::fs::write(place.at("shm/metadata"), METADATA).unwrap();
    for (damaged, expected) in [(false, 0), (true, 3)] {
        let mut bytes = stream();
        if damaged {
            bytes[DATA + SIZE] ^= 0xff;
        }
        std::fs::write(place.at("shm/steps_0"), bytes).unwrap();
        let out = format!("out-{damaged}");
        for args in [&["recover", "shm", "--strict", "-o", &out][..], &["report", "shm", "--strict"]] {
            let ran = place.run(args);
            assert_eq!(ran.status, expected, "{args:?}: {}", ran.err);
            assert_eq!(ran.err.contains("packet 1 is invalid"), damaged, "{args:?}: {}", ran.err);
        }
        assert_eq!(place.run(&["report", "shm"]).status, 0);
    }
}
