//! Cores as kernels, gcore and systemd-coredump leave them, written by the testkit.
#![forbid(unsafe_code)]

use lastwords_bytes::{Budget, Kind as ErrorKind, Limits};
use lastwords_image::{Hole, HoleCause, Kind, Opened, open, unwatched};
use lastwords_testkit::elf::{self, Segment};
use lastwords_testkit::put::Order;

fn opened(bytes: &[u8]) -> Opened {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    open(file.path(), &Budget::default(), &unwatched).expect("readable")
}

fn segments() -> Vec<Segment> {
    let left_out = Segment { address: 0x9000, bytes: vec![3; 4096], memory: 3 * 4096 };
    vec![Segment::new(0x1000, &[1; 4096]), Segment::new(0x2000, &[2; 5000]), left_out]
}

#[test]
fn segments_holes_and_byte_orders() {
    for order in [Order::Little, Order::Big] {
        let core = opened(&elf::core(order, &segments()));
        assert_eq!(core.kind, Kind::Core);
        assert!(core.image.is_virtual());
        let mut two = [0u8; 8192];
        core.image.read(0x1000, &mut two).expect("neighbours are read as one");
        assert_eq!((two[4095], two[4096]), (1, 2));
        let mut buf = [0u8; 4097];
        let hole = core.image.read(0x9000, &mut buf).expect_err("left out");
        assert_eq!(hole, Hole { address: 0xa000, cause: HoleCause::Excluded });
        assert_eq!(core.image.read(0x8fff, &mut buf).expect_err("between").cause, HoleCause::Unmapped);
    }
}

#[test]
fn every_cut_of_a_core_is_read() {
    let whole = elf::core(Order::Little, &segments());
    let mut before = 0;
    for len in 0..whole.len() {
        let core = opened(&whole[..len]);
        let held = |o: &Opened| o.image.ranges().iter().filter(|r| r.hole.is_none()).map(|r| r.len).sum::<u64>();
        if core.kind == Kind::Core {
            assert!(held(&core) >= before, "cut at {len}");
            before = held(&core);
        }
        let cut = core.image.ranges().iter().any(|r| r.hole == Some(HoleCause::Truncated));
        assert!(core.kind == Kind::Plain || cut || !core.notes.is_empty() || len + 4096 > whole.len(), "cut at {len}");
    }
}

#[test]
fn a_compressed_core_is_the_same_core() {
    let core = elf::core(Order::Little, &segments());
    let packed = elf::zstd(&core);
    let found = opened(&packed);
    assert_eq!(found.kind, Kind::CompressedCore);
    assert_eq!(found.image.ranges().len(), opened(&core).image.ranges().len());
    let cut = opened(&packed[..packed.len() - 100]);
    assert!(cut.notes.iter().any(|n| n.contains("decompression stops")), "{:?}", cut.notes);
}

#[test]
fn what_a_zstd_file_may_become_is_bounded() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), elf::zstd(&vec![0u8; 1 << 20])).expect("written");
    let budget = Budget::new(Limits { bytes: 1 << 16, ..Limits::default() });
    let error = open(file.path(), &budget, &unwatched).expect_err("more than the budget");
    assert_eq!(error.kind, ErrorKind::Budget);
}

/// One note: name, type, body.
fn note(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    out.extend(5u32.to_le_bytes());
    out.extend((body.len() as u32).to_le_bytes());
    out.extend(kind.to_le_bytes());
    out.extend(b"CORE\0\0\0\0");
    out.extend(body);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// A core of no memory, with these notes in place of the testkit's one.
fn with_notes(notes: &[u8]) -> Vec<u8> {
    let mut core = elf::core(Order::Little, &[]);
    let at = core.len().next_multiple_of(8);
    core.resize(at, 0);
    core[64 + 8..64 + 16].copy_from_slice(&(at as u64).to_le_bytes());
    core[64 + 32..64 + 40].copy_from_slice(&(notes.len() as u64).to_le_bytes());
    core.extend(notes);
    core
}

#[test]
fn notes_tell_who_died_of_what() {
    let mut notes = Vec::new();
    let mut status = vec![0u8; 336];
    status[12] = 11;
    status[32..36].copy_from_slice(&4243i32.to_le_bytes());
    note(&mut notes, 1, &status);
    let mut process = vec![0u8; 136];
    process[16..20].copy_from_slice(&1000u32.to_le_bytes());
    process[24..28].copy_from_slice(&4242i32.to_le_bytes());
    process[40..44].copy_from_slice(b"prog");
    process[56..66].copy_from_slice(b"prog --arg");
    note(&mut notes, 3, &process);
    let mut signal = vec![0u8; 128];
    (signal[0], signal[8], signal[16]) = (11, 1, 0x34);
    note(&mut notes, 0x5349_4749, &signal);
    let mut files: Vec<u8> = [1u64, 4096, 0x1000, 0x3000, 2].iter().flat_map(|w| w.to_le_bytes()).collect();
    files.extend(b"/usr/bin/prog\0");
    note(&mut notes, 0x4649_4c45, &files);
    let core = opened(&with_notes(&notes)).core.expect("a core");
    assert_eq!((core.pid, core.uid, core.threads.as_slice()), (Some(4242), Some(1000), [4243].as_slice()));
    assert_eq!((core.comm.as_str(), core.args.as_str()), ("prog", "prog --arg"));
    assert_eq!((core.signal, core.code, core.address), (Some(11), Some(1), Some(0x34)));
    let file = &core.files[0];
    assert_eq!((file.start, file.end, file.offset, file.path.as_str()), (0x1000, 0x3000, 8192, "/usr/bin/prog"));
}

#[test]
fn hostile_notes_are_told_of() {
    let mut notes = Vec::new();
    let files: Vec<u8> = [u64::MAX, 4096].iter().flat_map(|w| w.to_le_bytes()).collect();
    note(&mut notes, 0x4649_4c45, &files);
    notes.extend([0xff; 12]);
    let core = opened(&with_notes(&notes));
    assert_eq!(core.notes.len(), 2, "{:?}", core.notes);
    assert!(core.core.expect("a core").files.is_empty());
}

#[test]
fn folders_take_regular_files_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a"), [7u8; 10]).expect("written");
    std::os::unix::fs::symlink("a", folder.path().join("b")).expect("linked");
    std::fs::create_dir(folder.path().join("c")).expect("made");
    let found = open(folder.path(), &Budget::default(), &unwatched).expect("readable");
    assert_eq!(found.kind, Kind::Folder);
    assert_eq!(found.image.ranges().len(), 1);
    let link = folder.path().join("b");
    assert_eq!(found.notes, [format!("{}: a symbolic link, no regular file; it is not read", link.display())]);
    assert!(open(&folder.path().join("nothing"), &Budget::default(), &unwatched).is_err());
    let fifo = folder.path().join("f");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let error = open(&fifo, &Budget::default(), &unwatched).expect_err("a FIFO").to_string();
    assert!(error.ends_with("/f: a FIFO, no regular file: it cannot be read at places"), "{error}");
    assert!(open(std::path::Path::new("/dev/tty"), &Budget::default(), &unwatched).is_err());
}
