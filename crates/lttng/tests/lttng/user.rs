//! LTTng's user-space streams, made here byte by byte from `frontend_types.h` of lttng-ust: every
//! pattern of holes costs the holes, no field of a header kills, every cut and every flipped bit
//! leaves the undamaged packets as they were.
#![forbid(unsafe_code)]

use crate::image;
use lastwords_bytes::{Budget, ByteOrder};
use lastwords_image::unwatched;
use lastwords_lttng::Session;
use lastwords_lttng::user;
use lastwords_trace::evidence::Verdict;

/// Sub-buffers of the ring, their bytes, and where things are in the mapping.
const COUNT: usize = 4;
const SIZE: usize = 512;
const HOT: usize = 0x280;
const SLOTS: usize = 0x480;
const SETS: usize = 0x500;
const PAGES: usize = 0x600;
const DATA: usize = 0x1000;
const LENGTH: usize = DATA + (COUNT + 1) * SIZE;
const MAGIC: [u8; 16] = [
    0x17, 0x7b, 0xf1, 0x77, 0xbf, 0x17, 0x7b, 0xf1, 0x77, 0xbf, 0x17, 0x7b, 0xf1, 0x77, 0xbf, 0x17,
];

/// How a stream is made.
#[derive(Clone, Copy)]
struct Make {
    order: ByteOrder,
    word: usize,
    major: u16,
    overwrite: bool,
}

const USUAL: Make = Make { order: ByteOrder::Little, word: 8, major: 0, overwrite: true };

impl Make {
    fn put(self, bytes: &mut [u8], at: usize, len: usize, value: u64) {
        let raw = value.to_le_bytes();
        for (n, byte) in raw.iter().take(len).enumerate() {
            let place = if self.order == ByteOrder::Little { n } else { len - 1 - n };
            bytes[at + place] = *byte;
        }
    }

    /// Sub-buffers 0 to 5 were begun; 5 has 300 bytes, the others are full. The set of slot `n` is
    /// `COUNT - 1 - n`.
    fn stream(self) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH];
        let w = self.word;
        bytes[..16].copy_from_slice(&MAGIC);
        let mut put = |at: usize, len: usize, value: u64| self.put(&mut bytes, at, len, value);
        put(16, 8, LENGTH as u64);
        put(24, 2, 0x1234);
        put(26, 2, self.major.into());
        put(30, 1, w as u64);
        let offsets = [0x80, 0x98, HOT, w, SLOTS, 0, SETS, w, 5 * w, 48, 56];
        offsets.iter().enumerate().for_each(|(n, at)| put(32 + 4 * n, 4, *at as u64));
        let lengths = [w, w, w, w, w, w, 8, 8];
        lengths.iter().enumerate().for_each(|(n, len)| put(76 + n, 1, *len as u64));
        [128, w, 2 * w]
            .iter()
            .enumerate()
            .for_each(|(n, stride)| put(84 + 4 * n, 4, *stride as u64));
        put(96, 8, (COUNT * SIZE) as u64);
        put(104, 8, SIZE as u64);
        put(112, 8, COUNT as u64);
        put(120, 4, u64::from(!self.overwrite));
        put(0x80, w, (5 * SIZE + 300) as u64);
        put(0x98, w, (2 * SIZE) as u64);
        for slot in 0..COUNT {
            let number = if slot < 2 { slot + COUNT } else { slot };
            let lap = number / COUNT;
            let committed = if number == 5 { 300 } else { SIZE };
            put(HOT + 128 * slot + w, w, (lap * SIZE + committed) as u64);
            let flags =
                if self.overwrite || self.major > 0 { 5 << (4 * w + 1) | 1 << (4 * w) } else { 0 };
            put(SLOTS + w * slot, w, flags | (COUNT - 1 - slot) as u64);
            self.packet(&mut put, DATA + (COUNT - 1 - slot) * SIZE, number, committed);
        }
        for set in 0..=COUNT {
            put(SETS + 2 * w * set + w, w, (PAGES + 0x40 * set) as u64);
            put(PAGES + 0x40 * set + 5 * w, w, (DATA + SIZE * set) as u64);
        }
        bytes
    }

    fn packet(
        self,
        put: &mut impl FnMut(usize, usize, u64),
        at: usize,
        number: usize,
        committed: usize,
    ) {
        let is_open = committed < SIZE;
        let size = if is_open { u64::MAX } else { 8 * SIZE as u64 };
        let content = if is_open { u64::MAX } else { 8 * (SIZE as u64 - 12) };
        put(at, 4, 0xc1fc_1fc1);
        put(at + 4, 8, 0x0706_0504_0302_0100);
        put(at + 20, 4, 3);
        put(at + 32, 8, 1000 * number as u64);
        put(at + 40, 8, if is_open { 0 } else { 1000 * number as u64 + 900 });
        put(at + 48, 8, content);
        put(at + 56, 8, size);
        put(at + 64, 8, number as u64);
        put(at + 72, self.word, 0);
        put(at + 72 + self.word, 4, 1);
        let header = 76 + self.word;
        (header..committed).for_each(|n| put(at + n, 1, (number * 31 + n) as u64 & 0xff));
    }
}

fn sessions(bytes: Vec<u8>) -> Vec<Session> {
    user::image(&image(&bytes), &Budget::default(), &unwatched).expect("within the budget").sessions
}

/// Number and content of each packet.
fn packets(session: &Session) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    let mut bytes = Vec::new();
    for (index, stream) in session.streams.iter().enumerate() {
        for (n, packet) in stream.packets.iter().enumerate() {
            assert!(session.packet(index, n, &mut bytes), "packet {n}");
            assert!(packet.content <= packet.len && packet.len == bytes.len() as u64);
            let header = session.shape.len();
            found.push((packet.header.sequence, bytes[header..packet.content as usize].to_vec()));
        }
    }
    found
}

fn all(bytes: Vec<u8>) -> Vec<(u64, Vec<u8>)> {
    sessions(bytes).iter().flat_map(packets).collect()
}

fn payload(number: usize, word: usize, end: usize) -> Vec<u8> {
    (76 + word..end).map(|n| (number * 31 + n) as u8).collect()
}

#[test]
fn every_make_gives_what_was_written() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for word in [4, 8] {
            for (major, overwrite) in [(0, true), (0, false), (1, true), (1, false)] {
                let found = all(Make { order, word, major, overwrite }.stream());
                let end = |number| if number == 5 { 300 } else { SIZE - 12 };
                let expected: Vec<_> =
                    (2..6).map(|n| (n as u64, payload(n, word, end(n)))).collect();
                assert!(found == expected, "{order:?} {word} {major} {overwrite}");
            }
        }
    }
}

#[test]
fn the_open_packet_has_a_header() {
    let sessions = sessions(USUAL.stream());
    let stream = &sessions[0].streams[0];
    let last = stream.packets.last().expect("packets");
    assert_eq!((last.verdict, last.content, last.header.content_bits), (Verdict::Open, 300, 2400));
    assert_eq!(
        (stream.channel, stream.cpu, last.header.begin, last.header.end),
        (3, Some(1), 5000, 5000)
    );
    assert!(stream.packets[..3].iter().all(|packet| packet.is_as_delivered));
}

/// Every pattern of sub-buffers that were never committed, or whose magic is gone with their UUID.
#[test]
fn holes_cost_themselves() {
    let whole = all(USUAL.stream());
    for pattern in 0..1usize << COUNT {
        for torn in [false, true] {
            let mut bytes = USUAL.stream();
            for number in (2..6).filter(|n| pattern >> (n - 2) & 1 == 1) {
                let slot = number % COUNT;
                if torn {
                    bytes[DATA + (COUNT - 1 - slot) * SIZE..][..20].fill(0xaa);
                } else {
                    let lap = number / COUNT * SIZE;
                    USUAL.put(&mut bytes, HOT + 128 * slot + 8, 8, lap as u64);
                }
            }
            let left: Vec<_> =
                whole.iter().filter(|p| pattern >> (p.0 - 2) & 1 == 0).cloned().collect();
            assert!(all(bytes) == left, "pattern {pattern:#b}, torn {torn}");
        }
    }
}

/// Each field with edge values, and each pair of fields of the description.
#[test]
fn no_field_kills() {
    let mut fields: Vec<(usize, usize)> =
        vec![(0, 8), (16, 8), (24, 2), (26, 2), (28, 2), (30, 1), (31, 1)];
    fields.extend((0..11).map(|n| (32 + 4 * n, 4)));
    fields.extend((0..8).map(|n| (76 + n, 1)));
    fields.extend((0..3).map(|n| (84 + 4 * n, 4)));
    fields.extend([(96, 8), (104, 8), (112, 8), (120, 4), (0x80, 8), (0x98, 8)]);
    for slot in 0..COUNT {
        fields.extend([
            (HOT + 128 * slot + 8, 8),
            (SLOTS + 8 * slot, 8),
            (SETS + 16 * slot + 8, 8),
        ]);
        fields.push((PAGES + 0x40 * slot + 40, 8));
        let header = [0, 4, 20, 24, 32, 40, 48, 56, 64, 72, 80];
        fields.extend(
            header
                .iter()
                .map(|at| (DATA + SIZE * slot + at, if [0, 20, 80].contains(at) { 4 } else { 8 })),
        );
    }
    let edges: [u64; 12] = [
        0,
        1,
        2,
        7,
        255,
        4096,
        u64::MAX,
        u64::MAX - 1,
        u64::MAX >> 1,
        1 << 31,
        1 << 32,
        (1 << 20) + 1,
    ];
    let mut mutants = 0;
    for (n, field) in fields.iter().enumerate() {
        for edge in edges {
            let mut bytes = USUAL.stream();
            USUAL.put(&mut bytes, field.0, field.1, edge);
            let _ = all(bytes.clone());
            mutants += 1;
            for other in fields[n + 1..].iter().take(24) {
                let mut both = bytes.clone();
                USUAL.put(&mut both, other.0, other.1, edges[mutants % edges.len()]);
                let _ = all(both);
                mutants += 1;
            }
        }
    }
    assert!(mutants > 20_000, "{mutants} mutants");
}

#[test]
fn metadata_that_begin_again_and_again_cost_no_more_than_their_size() {
    let mut bytes = USUAL.stream();
    bytes.resize(1 << 16, 0);
    bytes.extend(b"/* CTF 1.8 */".repeat(1 << 18));
    let whole =
        "/* CTF 1.8 */\n\ntrace {\n\tuuid = \"00010203-0405-0607-0001-020304050607\";\n};\n";
    bytes.extend(whole.as_bytes());
    bytes.push(0);
    // Nanoseconds of this thread on a CPU, so that other work does not count.
    let on_cpu = || -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("its times");
        text.split(' ').next().and_then(|time| time.parse().ok()).expect("a number")
    };
    let begun = on_cpu();
    let image = image(&bytes);
    let texts = user::texts(&image, &Budget::default()).expect("within the budget");
    assert!(texts.iter().map(|text| text.text.len()).sum::<usize>() < 4 << 20);
    assert_eq!(texts.last().map(|text| text.text.as_slice()), Some(whole.as_bytes()));
    let found = user::image(&image, &Budget::default(), &unwatched).expect("within the budget");
    assert_eq!(found.sessions.len(), 1);
    let took = on_cpu() - begun;
    assert!(took < 10_000_000_000, "{took} ns");
}

/// A cut file has no packet that a longer one does not have.
#[test]
fn cut_anywhere() {
    let whole = all(USUAL.stream());
    let mut before = 0;
    for len in 0..=LENGTH {
        let found = all(USUAL.stream()[..len].to_vec());
        assert!(found.iter().all(|packet| whole.contains(packet)), "cut at {len}");
        assert!(found.len() >= before, "cut at {len}");
        before = found.len();
    }
    assert_eq!(before, whole.len());
}

/// A folder of two channels of metadata, each with a stream on two CPUs; `change` is made to it
/// before it is read.
fn folder(change: impl Fn(&std::path::Path)) -> user::Sessions {
    let dir = tempfile::tempdir().expect("a folder");
    for (file, cpu) in [("one_0", 0), ("one_1", 1), ("two_0", 0), ("two_1", 1)] {
        let mut bytes = USUAL.stream();
        (0..COUNT).for_each(|set| USUAL.put(&mut bytes, DATA + SIZE * set + 84 - 4, 4, cpu));
        std::fs::write(dir.path().join(file), bytes).expect("written");
    }
    std::fs::write(dir.path().join("metadata"), "trace {\n};\n\nstream {\n};\n\nstream {\n};\n")
        .expect("written");
    change(dir.path());
    user::folder(dir.path(), &Budget::default()).expect("a folder")
}

/// Streams and losses of a folder's one session, without the folder's name.
fn losses(change: impl Fn(&std::path::Path)) -> (usize, Vec<String>) {
    let mut found = folder(change);
    let session = found.sessions.pop().expect("a session");
    let lost = session.evidence.gaps.iter().filter(|gap| gap.cause.is_loss());
    let place = |place: &str| place.rsplit_once('/').map_or(place, |(_, rest)| rest).to_owned();
    (session.streams.len(), lost.map(|gap| place(&gap.place)).collect())
}

#[test]
fn streams_that_the_others_imply_are_lost_where_they_are_not_there() {
    let cut = |file: &str, len: u64| {
        let file = file.to_owned();
        move |dir: &std::path::Path| {
            let file = std::fs::File::options().write(true).open(dir.join(&file)).expect("open");
            file.set_len(len).expect("cut");
        }
    };
    assert_eq!(losses(|_| {}), (4, vec![]));
    let say = |words: &str| vec![words.to_owned()];
    let whole = format!("{LENGTH}");
    let gone = |dir: &std::path::Path| std::fs::remove_file(dir.join("one_1")).expect("removed");
    assert_eq!(losses(gone), (3, say(&format!("one_1: no such file; {whole} bytes are needed"))));
    let nested = |dir: &std::path::Path| {
        gone(dir);
        std::fs::create_dir(dir.join("one_1")).expect("made");
    };
    assert_eq!(
        losses(nested),
        (3, say(&format!("one_1: a folder, no regular file; {whole} bytes are needed")))
    );
    let tiny = losses(cut("one_1", 10));
    assert_eq!(
        tiny,
        (
            3,
            say(&format!(
                "one_1: the file has 10 bytes, which are no stream's; {whole} bytes are needed"
            ))
        )
    );
    let read = format!(
        "one_1: offset 0x80: 0 bytes are left, expected the write position of a mapping of {whole} bytes"
    );
    assert_eq!(losses(cut("one_1", 0x80)), (3, say(&format!("{read}; the file has 128 bytes"))));
    let channel = |dir: &std::path::Path| {
        gone(dir);
        std::fs::remove_file(dir.join("one_0")).expect("removed");
    };
    assert_eq!(losses(channel).1.len(), 1, "the channel");
    // What is left of a CPU tells of it.
    let all = |dir: &std::path::Path| {
        gone(dir);
        cut("two_1", 10)(dir);
    };
    assert_eq!(losses(all).1.len(), 2, "both of CPU 1");
    let other = |dir: &std::path::Path| {
        let mut bytes = USUAL.stream();
        (0..=COUNT).for_each(|set| bytes[DATA + SIZE * set + 4] = 0x77);
        std::fs::write(dir.join("one_1"), bytes).expect("written");
    };
    assert_eq!(losses(other), (3, say("one_1: a stream of another trace")));
}

/// A file that ends inside the sets of pages: what it has of them is taken, by what the packets say
/// of themselves.
#[test]
fn a_cut_file_gives_the_packets_before_the_cut() {
    let at = |len: u64| {
        let found = folder(|dir| {
            let file = std::fs::File::options().write(true).open(dir.join("one_1")).expect("open");
            file.set_len(len).expect("cut");
        });
        let session = found.sessions.into_iter().next().expect("a session");
        let stream = session
            .streams
            .iter()
            .position(|s| (s.channel_name.as_str(), s.cpu) == ("one", Some(1)));
        let numbers = stream.map(|n| {
            session.streams[n].packets.iter().map(|p| p.header.sequence).collect::<Vec<_>>()
        });
        let gap = session.evidence.gaps.iter().find(|gap| gap.cause.is_loss()).cloned();
        (numbers.unwrap_or_default(), gap.expect("a loss"))
    };
    let (numbers, gap) = at((DATA + 2 * SIZE) as u64);
    assert_eq!((numbers, gap.bytes), (vec![2, 3], Some((3 * SIZE) as u64)));
    assert_eq!(gap.place, format!("the file has {} of {LENGTH} bytes", DATA + 2 * SIZE));
    let (numbers, gap) = at(DATA as u64);
    assert!(numbers.is_empty() && gap.place.starts_with("one_1: the file has 4096 of"), "{gap:?}");
}

/// A stream without packets is said to be one, and is a loss where something was written in it.
#[test]
fn streams_without_packets_are_told() {
    let with = |produced: u64| {
        folder(move |dir| {
            let mut bytes = USUAL.stream();
            bytes[DATA..].fill(0);
            USUAL.put(&mut bytes, 0x80, 8, produced);
            std::fs::write(dir.join("two_1"), bytes).expect("written");
        })
    };
    let idle = with(0).sessions.pop().expect("a session").evidence;
    assert!(
        !idle.has_losses() && idle.notes.contains(&"nothing was recorded in two_1".to_owned()),
        "{idle:?}"
    );
    assert!(with(300).sessions.pop().expect("a session").evidence.has_losses());
}

/// Nobody waits for a writer of a FIFO.
#[test]
fn a_fifo_is_not_opened() {
    let found = folder(|dir| {
        for file in ["metadata", "one_1"] {
            std::fs::remove_file(dir.join(file)).expect("removed");
            let made = std::process::Command::new("mkfifo").arg(dir.join(file)).status();
            assert!(made.expect("mkfifo").success());
        }
    });
    assert!(
        found.notes[0].ends_with("/metadata: a FIFO, no regular file; it is not read"),
        "{:?}",
        found.notes
    );
    let lost: Vec<_> =
        found.sessions[0].evidence.gaps.iter().filter(|gap| gap.cause.is_loss()).collect();
    assert!(
        lost[0].place.contains("/one_1: a FIFO, no regular file; 6656 bytes are needed"),
        "{lost:?}"
    );
}

/// A flipped bit in one packet's header leaves the others as they are, and nothing wrong goes
/// unsaid.
#[test]
fn bits_flipped_in_headers() {
    let whole = all(USUAL.stream());
    for slot in 0..COUNT {
        let number = if slot < 2 { slot + COUNT } else { slot } as u64;
        for bit in 0..84 * 8 {
            let mut bytes = USUAL.stream();
            bytes[DATA + (COUNT - 1 - slot) * SIZE + bit / 8] ^= 1 << (bit % 8);
            let sessions = sessions(bytes);
            let found: Vec<_> = sessions.iter().flat_map(packets).collect();
            for packet in whole.iter().filter(|packet| packet.0 != number) {
                // A time that reaches into its neighbour's cannot be told from a neighbour's that
                // reaches into it.
                let is_time = (32 * 8..48 * 8).contains(&bit);
                assert!(
                    is_time || found.contains(packet),
                    "slot {slot}, bit {bit}, packet {}",
                    packet.0
                );
            }
        }
    }
}
