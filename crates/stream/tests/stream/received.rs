//! Streams of sessions that the tests put together byte by byte: rings of all shapes, packets that
//! are missing, dropped and cut, and receivers that were killed at any step. Each byte of the rings
//! of the folder is compared with what was sent.

use crate::support::{LIMITS, Running, copy_of, counters, described, files, frame, head, put};
use lastwords_stream::{Session, Told};
use lastwords_testkit::checksum::checksum;
use lastwords_testkit::random::Random;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// A closed sub-buffer of random bytes, by section 5.
fn sub_buffer(random: &mut Random, size: u64, number: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..size).map(|_| u8::try_from(random.below(255) + 1).unwrap()).collect();
    let content = 100 + random.below(size - 108 + 1);
    put(&mut bytes, 48, &(content * 8).to_le_bytes());
    put(&mut bytes, 64, &number.to_le_bytes());
    let sum = checksum(&bytes[..content as usize]);
    put(&mut bytes, size as usize - 8, &sum.to_le_bytes());
    bytes
}

/// A frame, and what it does to the packets that are kept.
#[derive(Clone)]
enum Does {
    Nothing,
    Keeps(u32, u64, Vec<u8>),
    Drops(u32, u64),
    /// It is a copy of this counters region.
    Counts(Vec<u8>),
}

/// A ring that is sent.
struct Ring {
    size: u64,
    first: u64,
    end: u64,
    frames: Vec<(Vec<u8>, Does)>,
}

fn ring(random: &mut Random, index: u32) -> Ring {
    let size = 128 << random.below(7);
    let begin = [0, 1, 5, 64, random.below(1 << 40)][random.below(5) as usize];
    let first = begin * size + if random.one_in(3) { random.below(size) } else { 0 };
    let mut frames = vec![(frame(9, index, &head(size, first, first)), Does::Nothing)];
    let (count, gaps) = (random.below(60), random.one_in(2));
    let mut end = first;
    let mut sent = Vec::new();
    for number in begin..begin + count {
        if gaps && random.one_in(6) {
            continue;
        }
        let mut bytes = sub_buffer(random, size, number);
        end = (number + 1) * size;
        // The last may be one that is not closed.
        if number + 1 == begin + count && random.one_in(2) {
            bytes.truncate(84 + random.below(size - 84) as usize);
            end = number * size + bytes.len() as u64;
        }
        let content = [&number.to_le_bytes()[..], &bytes].concat();
        frames.push((frame(10, index, &content), Does::Keeps(index, number, bytes)));
        sent.push(number);
        if random.one_in(8) {
            let dropped = sent[random.below(sent.len() as u64) as usize];
            frames.push((frame(11, index, &dropped.to_le_bytes()), Does::Drops(index, dropped)));
        }
    }
    Ring { size, first, end, frames }
}

/// A stream, and the rings that it is of.
struct Stream {
    frames: Vec<(Vec<u8>, Does)>,
    rings: BTreeMap<u32, (u64, u64, u64)>,
}

impl Stream {
    fn new(random: &mut Random) -> Self {
        let plain = |bytes: Vec<u8>| (bytes, Does::Nothing);
        let described = described();
        let mut frames: Vec<_> = described.iter().cloned().map(plain).collect();
        let mut rings: BTreeMap<u32, Ring> = BTreeMap::new();
        // A receiver keeps at most 64 files open.
        let count = if random.one_in(10) { 120 } else { 1 + random.below(4) };
        for _ in 0..count {
            let index = random.below(300) as u32;
            rings.insert(index, ring(random, index));
        }
        let shapes =
            rings.iter().map(|(index, ring)| (*index, (ring.size, ring.first, ring.end))).collect();
        let mut left: Vec<_> = rings.values().map(|ring| ring.frames.clone().into_iter()).collect();
        while !left.is_empty() {
            let at = random.below(left.len() as u64) as usize;
            match left[at].next() {
                Some(next) => frames.push(next),
                None => drop(left.remove(at)),
            }
        }
        frames.extend(
            rings
                .iter()
                .map(|(i, ring)| plain(frame(9, *i, &head(ring.size, ring.first, ring.end)))),
        );
        for number in 0..random.below(4) {
            let region = counters(number);
            let content = copy_of(&region);
            let at = 4 + random.below(frames.len() as u64 - 3) as usize;
            frames.insert(at, (frame(13, 0, &content), Does::Counts(region)));
        }
        frames.push(plain(described[2].clone()));
        frames.push(plain(frame(6, 0, br#"{"cpus":[],"bytes":0}"#)));
        Self { frames, rings: shapes }
    }

    fn bytes(&self) -> Vec<u8> {
        self.frames.iter().flat_map(|(bytes, _)| bytes.clone()).collect()
    }

    /// Returns a random length of the stream that has at least the session and its regions.
    fn cut(&self, random: &mut Random) -> usize {
        let described = self.described();
        described + random.below((self.bytes().len() - described) as u64) as usize
    }

    /// Returns the bytes of the frames up to the regions of the session.
    fn described(&self) -> usize {
        self.frames[..4].iter().map(|(bytes, _)| bytes.len()).sum()
    }

    /// Returns the packets that a receiver must keep of the first `length` bytes.
    fn kept(&self, length: usize) -> BTreeMap<(u32, u64), Vec<u8>> {
        let (mut kept, mut end) = (BTreeMap::new(), 0);
        for (bytes, does) in &self.frames {
            end += bytes.len();
            match does {
                _ if end > length => break,
                Does::Nothing | Does::Counts(_) => {}
                Does::Keeps(index, number, bytes) => {
                    _ = kept.insert((*index, *number), bytes.clone())
                }
                Does::Drops(index, number) => _ = kept.remove(&(*index, *number)),
            }
        }
        if length < self.bytes().len() {
            // Without a checksum, nothing proves a packet.
            kept.retain(|(index, _), bytes| bytes.len() as u64 == self.rings[index].0);
        }
        kept
    }

    /// Returns the newest counters region in the first `length` bytes.
    fn counted(&self, length: usize) -> Option<&Vec<u8>> {
        let (mut counted, mut end) = (None, 0);
        for (bytes, does) in &self.frames {
            end += bytes.len();
            match does {
                _ if end > length => break,
                Does::Counts(region) => counted = Some(region),
                _ => {}
            }
        }
        counted
    }

    /// Compares the folder with what must be kept of the first `length` bytes.
    fn check(&self, session: &Session, length: usize) {
        let kept = self.kept(length);
        let is_complete = length == self.bytes().len();
        assert_eq!(session.ended_early.is_none(), is_complete, "{session:?}");
        assert_eq!(session.sub_buffers, kept.len() as u64);
        assert_eq!(session.bytes, kept.values().map(|bytes| bytes.len() as u64).sum::<u64>());
        let mut lost = 0;
        let mut end = 0;
        let begun = |(bytes, _): &&(Vec<u8>, Does)| {
            end += bytes.len();
            end <= length
        };
        let begun: Vec<u32> = self
            .frames
            .iter()
            .take_while(begun)
            .filter(|(bytes, _)| bytes[..4] == 9u32.to_le_bytes())
            .map(|(bytes, _)| u32::from_le_bytes(bytes[4..8].try_into().unwrap()))
            .collect();
        for (index, (size, first, ring_end)) in &self.rings {
            let path = session.path.join(format!("stream-{index:04}"));
            if !begun.contains(index) {
                assert!(!path.exists(), "{}", path.display());
                continue;
            }
            let of: BTreeMap<u64, &Vec<u8>> = kept
                .iter()
                .filter(|((i, _), _)| i == index)
                .map(|((_, number), bytes)| (*number, bytes))
                .collect();
            let last = of
                .iter()
                .next_back()
                .map_or(*first, |(number, bytes)| number * size + bytes.len() as u64);
            // The second head tells the end.
            let told = begun.iter().filter(|begun| *begun == index).count() > 1;
            let end = if told { last.max(*ring_end) } else { last };
            lost += (end.div_ceil(*size)).saturating_sub(first / size) - of.len() as u64;
            check_ring(&fs::read(&path).unwrap(), *size, end, &of);
        }
        assert_eq!(session.lost_sub_buffers, lost, "{session:?}");
        let names = files(&session.path);
        let others =
            names.iter().filter(|name| !name.starts_with("stream-") || name.contains("raw"));
        let counted = self.counted(length);
        let is_there = [counted.is_some(), !is_complete, true, true].into_iter().zip([
            "counters",
            "ended-early",
            "registry",
            "session",
        ]);
        let expected = is_there.filter(|(is_there, _)| *is_there).map(|(_, name)| name);
        assert_eq!(others.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        let has = counted.map(|_| fs::read(session.path.join("counters")).unwrap());
        assert!(has.as_ref() == counted, "the newest copy");
    }
}

/// Compares each byte of a ring's region.
fn check_ring(bytes: &[u8], size: u64, end: u64, packets: &BTreeMap<u64, &Vec<u8>>) {
    assert_eq!(word(bytes, 32), bytes.len() as u64);
    assert_eq!(word(bytes, 112), checksum(&[&bytes[..112], &bytes[128..192]].concat()));
    assert!(word(bytes, 384) >= end && word(bytes, 128 + 16) == size);
    let count = u64::from(u32::from_le_bytes(bytes[152..156].try_into().unwrap()));
    let table =
        |at: usize, length: u64| word(bytes, at) as usize..(word(bytes, at) + length) as usize;
    let parts = [
        table(160, count * 64),
        table(168, count * 64),
        table(176, count * size),
        table(184, count * size),
    ];
    for (i, part) in parts.iter().enumerate() {
        assert!(part.start >= 768 && part.end <= bytes.len() && part.start % 64 == 0, "{parts:?}");
        assert!(
            parts[..i].iter().all(|other| other.end <= part.start || part.end <= other.start),
            "{parts:?}"
        );
    }
    let mut data = vec![0; (count * size) as usize];
    for (number, packet) in packets {
        let place = (number % count * size) as usize;
        assert!(
            data[place..place + packet.len()].iter().all(|byte| *byte == 0),
            "two packets at {place}"
        );
        put(&mut data, place, packet);
    }
    assert!(bytes[parts[2].clone()] == data, "{count} sub-buffers of {size} bytes");
    assert!(bytes[768..parts[2].start].iter().chain(&bytes[parts[2].end..]).all(|byte| *byte == 0));
}

fn session(told: Told) -> Session {
    match told {
        Told::SavedSession(session) => session,
        other => panic!("{other:?}"),
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for name in files(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// Starts a receiver in a folder with one spool, and checks what it makes of it.
fn finish(folder: &Path, stream: &Stream, length: usize) -> Session {
    let mut running = Running::new(folder, LIMITS);
    let made = session(running.left.remove(0));
    drop(running.stop());
    stream.check(&made, length);
    assert_eq!(files(folder), [made.path.file_name().unwrap().to_str().unwrap()]);
    made
}

#[test]
fn each_packet_that_counts_is_in_its_place_and_nothing_else() {
    for seed in 0..60 {
        let random = &mut Random(seed);
        let stream = Stream::new(random);
        let bytes = stream.bytes();
        let length = if random.one_in(2) { bytes.len() } else { stream.cut(random) };
        let folder = tempfile::tempdir().unwrap();
        let running = Running::new(folder.path(), LIMITS);
        running.send(&bytes[..length]);
        let made = session(running.over());
        stream.check(&made, length);
        assert_eq!(
            files(folder.path()),
            [made.path.file_name().unwrap().to_str().unwrap()],
            "seed {seed}"
        );
        drop(running.stop());
    }
}

#[test]
fn what_a_killed_receiver_left_is_finished_from_any_step() {
    for seed in 100..130 {
        let random = &mut Random(seed);
        let stream = Stream::new(random);
        let bytes = stream.bytes();
        let (described, cut) = (stream.described(), stream.cut(random));
        // Up to the end of a frame, so that it is known when the receiver has it.
        let mut length = described;
        length += stream.frames[4..]
            .iter()
            .map(|(bytes, _)| bytes.len())
            .scan(described, |end, length| {
                *end += length;
                (*end <= cut).then_some(length)
            })
            .sum::<usize>();
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let running = Running::new(&at("first"), LIMITS);
        let mut socket = running.connect();
        socket.write_all(&bytes[..length]).unwrap();
        wait_for_all(&at("first"), &stream, length, &mut socket);
        // A receiver that is killed now leaves these files.
        copy(&at("first"), &at("left"));
        drop(socket);
        session(running.over());
        drop(running.stop());
        copy(&at("left"), &at("done"));
        let done = finish(&at("done"), &stream, length).path;
        // It was killed after it had finished the folder, and before it removed the spool.
        let spool = files(&at("left")).into_iter().find(|name| name.ends_with(".stream")).unwrap();
        fs::copy(at("left").join(&spool), at("done").join(&spool)).unwrap();
        finish(&at("done"), &stream, length);
        // It was killed while it made the regions.
        let rings = at("left").join(spool.replace(".stream", ".rings"));
        fs::create_dir_all(&rings).unwrap();
        for name in files(&rings).into_iter().filter(|name| name.starts_with("raw-")) {
            if random.one_in(2) {
                let region = name.replace("raw-", "stream-");
                fs::copy(done.join(&region), rings.join(&region)).unwrap();
                fs::remove_file(rings.join(&name)).unwrap();
            } else if random.one_in(2) {
                fs::write(rings.join(name.replace("raw-", "stream-")), b"half").unwrap();
            }
        }
        fs::write(rings.join("session"), b"half").unwrap();
        fs::write(rings.join("counters.new"), b"half").unwrap();
        finish(&at("left"), &stream, length);
    }
}

/// Waits until the receiver has all of the first `length` bytes, and no part of another frame.
fn wait_for_all(folder: &Path, stream: &Stream, length: usize, socket: &mut std::net::TcpStream) {
    let (mut end, mut spooled, mut packets) = (0, 0, 0u64);
    for (bytes, does) in &stream.frames {
        end += bytes.len();
        if end > length {
            break;
        }
        let is_packet = matches!(does, Does::Keeps(..));
        // In place of a packet's bytes, the spool has their number, and nothing of counters.
        spooled += match does {
            Does::Keeps(..) => 32,
            Does::Counts(_) => 0,
            _ => bytes.len() as u64,
        };
        packets += u64::from(is_packet);
    }
    // The first answer has no bytes, and each other one a number.
    socket.read_exact(&mut vec![0; 16 + packets as usize * 24]).unwrap();
    let spool = || files(folder).into_iter().find(|name| name.ends_with(".stream")).unwrap();
    let spool = folder.join(spool());
    let copy = spool.with_extension("rings").join("counters");
    let has_copy = || fs::read(&copy).ok().as_ref() == stream.counted(length);
    while fs::metadata(&spool).unwrap().len() != spooled || !has_copy() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
