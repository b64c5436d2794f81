//! Receivers that get streams which the tests put together byte by byte, as docs/STREAM.md has
//! them: whole, cut, damaged, too large, too many, and silent. Nothing here uses the sender of the
//! crate.

use crate::support::{BEGIN, LIMITS, Running, files, frame};
use lastwords_bytes::Budget;
use lastwords_ftrace::dat;
use lastwords_ftrace::page;
use lastwords_open::Bundle;
use lastwords_stream::spool::Finished;
use lastwords_stream::{Address, Limits, Receiver, Told};
use lastwords_testkit::random::{Random, setting};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 4096;

/// A description with one event, of `id` 7 and a `u32` field.
fn description() -> Vec<u8> {
    let tree = tempfile::tempdir().unwrap();
    let event = tree.path().join("events/test/number");
    std::fs::create_dir_all(&event).unwrap();
    let field = |text: &str, offset: u32, size: u32| {
        format!("\tfield:{text};\toffset:{offset};\tsize:{size};\tsigned:0;\n")
    };
    let format = format!(
        "name: number\nID: 7\nformat:\n{}{}{}{}\n{}\nprint fmt: \"%u\", REC->n\n",
        field("unsigned short common_type", 0, 2),
        field("unsigned char common_flags", 2, 1),
        field("unsigned char common_preempt_count", 3, 1),
        field("int common_pid", 4, 4),
        field("u32 n", 8, 4),
    );
    std::fs::write(event.join("format"), format).unwrap();
    std::fs::write(tree.path().join("uname"), "Linux far 6.1.0 #1 SMP x86_64 GNU/Linux\n").unwrap();
    Bundle::of_tree(tree.path()).unwrap().write_to(Vec::new(), 1).unwrap()
}

/// A sub-buffer with three events of the numbers from `first` on.
fn sub_buffer(first: u32) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    bytes[..8].copy_from_slice(&(1_000_000 + u64::from(first)).to_le_bytes());
    bytes[8..16].copy_from_slice(&(3u64 * 16).to_le_bytes());
    for number in 0..3u32 {
        let at = 16 + number as usize * 16;
        // A data event of 12 bytes, one tick after the one before.
        bytes[at..at + 4].copy_from_slice(&(3u32 | 1 << 5).to_le_bytes());
        bytes[at + 4..at + 6].copy_from_slice(&7u16.to_le_bytes());
        bytes[at + 8..at + 12].copy_from_slice(&1u32.to_le_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&(first + number).to_le_bytes());
    }
    bytes
}

/// The frames of a stream of `host` with `count` sub-buffers for each of the CPUs 0 and 2.
fn frames(host: &str, count: u32) -> Vec<Vec<u8>> {
    let hello = format!(r#"{{"host":"{host}","instance":"x"}}"#);
    let settings = r#"{"is_big_endian":false,"page_size":4096,"sub_buffer_size":4096,"cpus":[0,1,2],"clock":"mono",
        "clock_in_ns":true,"tracer":"nop","real_time":1700000000000000000}"#;
    let mut frames = vec![
        [BEGIN.to_vec(), frame(1, 0, hello.as_bytes())].concat(),
        frame(2, 0, settings.as_bytes()),
        frame(3, 0, &description()),
    ];
    for number in 0..count {
        frames.push(frame(4, 0, &sub_buffer(number * 3)));
        frames.push(frame(5, 0, &[]));
        frames.push(frame(
            4,
            2,
            &[sub_buffer(1_000_000 + number * 6), sub_buffer(1_000_003 + number * 6)].concat(),
        ));
    }
    let cpu = |cpu: u32, read: u32, overrun: u32| {
        format!(
            r#"{{"cpu":{cpu},"entries":0,"overrun":{overrun},"commit_overrun":0,"dropped":0,"read":{read}}}"#
        )
    };
    let bytes = count as usize * 3 * PAGE;
    let cpus = [cpu(0, count * 3, 5), cpu(1, 0, 0), cpu(2, count * 6, 0)].join(",");
    let end = format!(r#"{{"cpus":[{cpus}],"bytes":{bytes}}}"#);
    // Nothing has changed of the description.
    frames.push(frame(3, 0, &Bundle::default().write_to(Vec::new(), 1).unwrap()));
    frames.push(frame(6, 0, end.as_bytes()));
    frames
}

/// The numbers of the events that a file has, by CPU.
fn numbers(path: &Path) -> BTreeMap<u32, Vec<u32>> {
    let tracing = dat::open(path, &Arc::new(Budget::default())).unwrap();
    let mut all = BTreeMap::new();
    for array in &tracing.arrays {
        for (lane, cpu) in array.live.cpus().iter().enumerate() {
            let mut bytes = Vec::new();
            for index in 0..cpu.sub_buffers {
                let info = array.live.sub_buffer(lane, index, &mut bytes);
                let events = page::Events::new(
                    &bytes,
                    tracing.header_page,
                    tracing.byte_order,
                    info.committed,
                );
                let number = |event: page::Event| {
                    let data = &bytes[event.payload];
                    u32::from_le_bytes(data[8..12].try_into().unwrap())
                };
                all.entry(cpu.cpu).or_insert_with(Vec::new).extend(events.flatten().map(number));
            }
        }
    }
    all.retain(|_, numbers| !numbers.is_empty());
    all
}

fn missing(path: &Path) -> Vec<String> {
    let tracing = dat::open(path, &Arc::new(Budget::default())).unwrap();
    tracing.evidence.gaps.into_iter().map(|gap| gap.place).collect()
}

fn saved(told: Told) -> Finished {
    match told {
        Told::Saved(finished) => finished,
        other => panic!("{other:?}"),
    }
}

#[test]
fn streams_of_three_hosts_at_once_become_a_file_each() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let running = Running::new(folder.path(), LIMITS);
    // All three are under way before the first ends.
    let streams: Vec<_> = (0..3).map(|host| frames(&format!("host{host}"), 4 + host)).collect();
    let mut sockets: Vec<_> = streams.iter().map(|_| running.connect()).collect();
    for round in 0..streams[2].len() {
        for (socket, frames) in sockets.iter_mut().zip(&streams) {
            if let Some(frame) = frames.get(round) {
                socket.write_all(frame).unwrap();
            }
        }
    }
    for socket in &mut sockets {
        let mut answers = Vec::new();
        socket.read_to_end(&mut answers).unwrap();
        assert_eq!(answers[..16], frame(16, 0, &[]));
        assert_eq!(u32::from_le_bytes(answers[16..20].try_into().unwrap()), 18, "received");
    }
    let mut all: Vec<_> = (0..3).map(|_| saved(running.over())).collect();
    all.sort_by(|a, b| a.host.cmp(&b.host));
    for (host, finished) in (0u32..).zip(&all) {
        let count = 4 + host;
        assert_eq!(
            (finished.events, finished.lost, &finished.ended_early),
            (u64::from(count) * 9, Some(5), &None)
        );
        let expected = BTreeMap::from([
            (0, (0..count * 3).collect::<Vec<u32>>()),
            (2, (1_000_000..1_000_000 + count * 6).collect()),
        ]);
        assert_eq!(numbers(&finished.path), expected);
        assert_eq!(missing(&finished.path), Vec::<String>::new());
        let described = dat::open(&finished.path, &Arc::new(Budget::default())).unwrap().formats;
        assert_eq!(described[&7].name, "number", "changes leave what they do not name");
        assert_eq!(std::fs::metadata(&finished.path).unwrap().mode() & 0o777, 0o600);
    }
    assert_eq!(files(folder.path()).len(), 3, "no spool is left");
}

/// Wherever a stream is cut, the events of all whole sub-buffers before the cut are kept, and the
/// file says that the stream ended early.
#[test]
fn a_stream_that_is_cut_is_kept_up_to_the_cut() {
    let (_folder, target, running) = Running::in_new_folder(LIMITS);
    let frames = frames("far", 3);
    let whole = frames.concat();
    let (mut cuts, mut at) = (vec![0, 7], 0);
    for frame in &frames {
        let room = frame.len();
        cuts.extend(
            [at + 1, at + 15.min(room - 1), at + room / 2, at + room - 1]
                .into_iter()
                .filter(|cut| *cut > at),
        );
        at += room;
    }
    cuts.dedup();
    for cut in cuts {
        // The naive reader: whole sub-buffers of frames that lie before the cut.
        let (mut expected, mut at): (BTreeMap<u32, Vec<u32>>, _) = (BTreeMap::new(), 0);
        for frame in &frames {
            let cpu = u32::from_le_bytes(frame[4..8].try_into().unwrap());
            let has = cut.saturating_sub(at + 16).min(frame.len() - 16);
            if frame[..4] == 4u32.to_le_bytes() && has >= PAGE {
                for sub_buffer in frame[16..16 + has - has % PAGE].chunks(PAGE) {
                    let first = u32::from_le_bytes(sub_buffer[28..32].try_into().unwrap());
                    expected.entry(cpu).or_default().extend(first..first + 3);
                }
            }
            at += frame.len();
        }
        running.send(&whole[..cut]);
        match running.over() {
            Told::Saved(finished) => {
                assert_eq!(numbers(&finished.path), expected, "cut at {cut}");
                let why = finished.ended_early.expect("it ended early");
                let place = format!("{}: the stream ended early: {why}", finished.path.display());
                assert_eq!(missing(&finished.path), [place]);
                assert_eq!(
                    (finished.lost, finished.events),
                    (None, expected.values().flatten().count() as u64)
                );
            }
            Told::Empty { .. } | Told::Refused { .. } => {
                assert!(expected.is_empty(), "cut at {cut}")
            }
            other => panic!("cut at {cut}: {other:?}"),
        }
        assert!(files(&target).iter().all(|name| name.ends_with(".dat")), "{:?}", files(&target));
    }
}

/// Random damage ends the stream with a reason, and costs neither the receiver nor other streams.
#[test]
fn mutants_cost_themselves_alone() {
    let (_folder, target, running) = Running::in_new_folder(LIMITS);
    let frames = frames("far", 2);
    let whole = frames.concat();
    let (seed, count) = (setting("LASTWORDS_SEED", 1), setting("LASTWORDS_MUTANTS", 300));
    for seed in seed..seed + count {
        let mut random = Random(seed);
        let mut random = |below| random.index(below);
        let mut bytes = whole.clone();
        for _ in 0..1 + random(3) {
            // The headers are few bytes, so that half of the damage is put there.
            let frame = random(frames.len());
            let begin: usize = frames[..frame].iter().map(Vec::len).sum();
            let at = if random(2) == 0 {
                begin + random(frames[frame].len().min(48))
            } else {
                random(bytes.len())
            };
            let at = at.min(bytes.len() - 1);
            match random(5) {
                0 => bytes[at] ^= 1 << random(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random(5)],
                2 => bytes.truncate(at + 1),
                3 => _ = bytes.remove(at),
                _ => bytes.insert(at, random(256) as u8),
            }
        }
        running.send(&bytes);
        match running.over() {
            // No event is invented; damage inside a sub-buffer may change its events.
            Told::Saved(finished) => assert!(finished.events <= 1000, "seed {seed}: {finished:?}"),
            Told::Failed { spool, why } => {
                assert!(why.contains(&spool.display().to_string()), "seed {seed}: {why}");
                assert!(spool.is_file(), "seed {seed}: what arrived is kept");
            }
            Told::Empty { why, .. } | Told::Refused { why, .. } => {
                assert!(!why.is_empty(), "seed {seed}")
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    running.send(&whole);
    let finished = saved(running.over());
    assert_eq!((finished.events, finished.ended_early), (18, None));
    drop(running.stop());
    // Another receiver tries what is kept once more, and works.
    let again = Running::new(&target, LIMITS);
    again.send(&whole);
    loop {
        if let Told::Saved(Finished { events: 18, ended_early: None, .. }) = again.over() {
            break;
        }
    }
}

#[test]
fn what_no_stream_has_is_refused_with_the_reason() {
    let (_folder, _, running) = Running::in_new_folder(LIMITS);
    let whole = frames("far", 1);
    let begin = whole[..3].concat();
    let with = |frame: Vec<u8>| [begin.clone(), frame].concat();
    let mut other = whole.concat();
    other[8] = 9;
    let long = |kind: u32, cpu: u32, length: u64| {
        [&kind.to_le_bytes()[..], &cpu.to_le_bytes(), &length.to_le_bytes()].concat()
    };
    let settings = |from: &str, to: &str| {
        let text = String::from_utf8(whole[1][16..].to_vec()).unwrap();
        assert!(text.contains(from));
        [whole[0].clone(), frame(2, 0, text.replace(from, to).as_bytes())].concat()
    };
    let session = frame(7, 0, br#"{"uuid":"000102030405060708090a0b0c0d0e0f","name":"x"}"#);
    let in_session = |frame: Vec<u8>| [whole[0].clone(), session.clone(), frame].concat();
    let long_name = format!(r#"{{"host":"{}","instance":"x"}}"#, "x".repeat(256));
    for (bytes, why) in [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "does not begin like a stream"),
        (other, "another version"),
        (with(frame(99, 0, &[])), "kind 99"),
        (with(long(4, 0, u64::MAX)), "is the most"),
        (with(long(3, 0, u64::MAX)), "is the most"),
        (with(frame(4, 7, &sub_buffer(0))), "CPU 7"),
        (with(frame(4, 0, &[0; 100])), "each of which has 4096"),
        (with(frame(4, 0, &[])), "0 bytes of sub-buffers"),
        (with(frame(16, 0, &[])), "of receivers"),
        (with(frame(1, 0, b"{}")), "Hello"),
        (with(whole[1].clone()), "second frame Settings"),
        (with([frame(3, 0, &[]), frame(3, 0, &[])].concat()), "more than 2"),
        ([BEGIN.to_vec(), frame(1, 0, long_name.as_bytes())].concat(), "255 bytes"),
        ([whole[0].clone(), frame(4, 0, &sub_buffer(0))].concat(), "before Settings"),
        ([whole[0].clone(), frame(6, 0, b"{}")].concat(), "before Description"),
        ([whole[0].clone(), frame(2, 0, b"{}")].concat(), "Settings"),
        ([whole[0].clone(), frame(10, 0, &[0; 92])].concat(), "before Session"),
        (
            [
                whole[0].clone(),
                frame(7, 0, br#"{"uuid":"../../../../../../../../../etc/x","name":"x"}"#),
            ]
            .concat(),
            "no UUID",
        ),
        (in_session(session.clone()), "second frame Session"),
        (in_session(whole[1].clone()), "in the stream of a session"),
        (in_session(frame(4, 0, &sub_buffer(0))), "before Settings"),
        (in_session(frame(10, 0, &[0; 92])), "before its Head"),
        (in_session(frame(9, 0, &[0; 768])), "not the begin of a region"),
        (in_session(frame(9, 0, &[0; 767])), "767 bytes"),
        (in_session(frame(8, 3, &[0; 9])), "the region 3"),
        (in_session(frame(8, 1, &[0xff; 9])), "is the most"),
        (
            [whole[0].clone(), whole[1].clone(), session.clone()].concat(),
            "in the stream of a kernel",
        ),
        (settings("[0,1,2]", "[2,1]"), "CPUs"),
        (settings("[0,1,2]", "[0,4000000000]"), "CPU 4000000000"),
        (settings(":4096,\"cpus", ":4095,\"cpus"), "sub-buffers of 4095"),
        (settings("mono", "\\u001b[2J"), "clock"),
    ] {
        let answers = running.send(&bytes);
        let said = String::from_utf8_lossy(&answers).into_owned();
        let told = match running.over() {
            Told::Refused { why, .. } | Told::Empty { why, .. } => why,
            other => panic!("{why}: {other:?}"),
        };
        assert!(told.contains(why) && said.contains(&told), "{why}: told {told:?}, said {said:?}");
    }
}

#[test]
fn limits_end_a_stream_and_keep_what_came() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("in");
    let whole = frames("far", 50);
    let head: usize = whole[..3].iter().map(Vec::len).sum();
    let size = (head + 10 * (3 * PAGE + 32)) as u64;
    let running = Running::new(&target, Limits { size, senders: 1, ..LIMITS });
    let answers = running.send(&whole.concat());
    assert!(String::from_utf8_lossy(&answers).contains("--max-size"), "the sender is told");
    let finished = saved(running.over());
    assert!(finished.ended_early.as_ref().unwrap().contains("--max-size"), "{finished:?}");
    let numbers = numbers(&finished.path);
    assert_eq!(numbers[&0], (0..30).collect::<Vec<_>>());
    assert_eq!(numbers[&2], (1_000_000..1_000_060).collect::<Vec<_>>());
    // One stream at a time.
    let mut first = running.connect();
    first.write_all(&whole[..5].concat()).unwrap();
    let Told::Started { spool, .. } = running.next() else { panic!("it starts") };
    // It has its place once the receiver has a frame after the description.
    while std::fs::metadata(&spool).unwrap().len() <= head as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let answers = running.send(&whole.concat());
    assert!(String::from_utf8_lossy(&answers).contains("--max-senders"));
    assert!(matches!(running.next(), Told::Refused { .. }));
    // A receiver that is stopped saves what has come. It has seen all of it, or the sender is told
    // that it was stopped.
    let told = running.stop();
    let finished = saved(told.iter().next().unwrap());
    assert!(finished.ended_early.as_ref().unwrap().contains("was stopped"), "{finished:?}");
    // A sender that says nothing.
    let running = Running::new(&target, Limits { silence: Duration::from_millis(200), ..LIMITS });
    let mut silent = running.connect();
    silent.write_all(&whole[..6].concat()).unwrap();
    let finished = saved(running.over());
    assert!(finished.ended_early.as_ref().unwrap().contains("--timeout"), "{finished:?}");
    let idle = running.connect();
    assert!(matches!(running.over(), Told::Refused { why, .. } if why.contains("--timeout")));
    drop((silent, idle));
}

/// Another user who may write into the folder could change what is received.
#[test]
fn folders_of_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let address: Address = "tcp:127.0.0.1:0".parse().unwrap();
    let open = folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for (name, why) in [
        ("open", "other users"),
        ("link", "no folder"),
        ("file", "no folder"),
        ("no/such", "cannot be made"),
    ] {
        let error = Receiver::new(&address, &folder.path().join(name), LIMITS).unwrap_err();
        assert!(format!("{error:#}").contains(why), "{error:#}");
    }
}

/// The next receiver saves the files of a killed one, whichever of its writes was the last. A spool
/// that a receiver still writes is not touched.
#[test]
fn what_a_killed_receiver_left_is_saved_by_the_next() {
    let (_folder, target, running) = Running::in_new_folder(LIMITS);
    let whole = frames("far", 2);
    let mut alive = running.connect();
    alive.write_all(&whole[..4].concat()).unwrap();
    let Told::Started { spool, .. } = running.next() else { panic!("it starts") };
    let bytes = whole.concat();
    let begin: usize = whole[..4].iter().map(Vec::len).sum();
    let cuts = [0, 10, 16, 40, begin - PAGE, begin, begin + 17, bytes.len() - 1];
    // It was killed after it made the file, and before it removed the spool.
    std::fs::write(target.join("old7.dat"), "").unwrap();
    for (number, cut) in cuts.into_iter().enumerate() {
        std::fs::write(target.join(format!("old{number}.stream")), &bytes[..cut]).unwrap();
    }
    let next = Running::new(&target, LIMITS);
    let mut events = Vec::new();
    for told in &next.left {
        match told {
            Told::Saved(finished) => {
                assert_eq!(
                    finished.ended_early.as_deref(),
                    Some("its receiver was killed, or could not save it")
                );
                events.push(finished.events);
            }
            Told::Empty { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(events, [3, 3, 18], "by the cuts");
    drop(next.stop());
    let left =
        files(&target).into_iter().filter(|name| name.ends_with(".stream")).collect::<Vec<_>>();
    assert_eq!(left, [spool.file_name().unwrap().to_str().unwrap()]);
    alive.write_all(&whole[4..].concat()).unwrap();
    assert_eq!(saved(running.over()).events, 18);
}
