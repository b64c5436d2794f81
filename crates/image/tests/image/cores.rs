//! Cores as kernels, gcore and systemd-coredump leave them, written by the testkit.
#![forbid(unsafe_code)]

use lastwords_bytes::{Budget, ErrorKind, Limits};
use lastwords_image::{Hole, HoleCause, ImageKind, Opened, open, unwatched};
use lastwords_testkit::elf::{self, Segment, note};
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
        assert_eq!(core.kind, ImageKind::Core);
        assert!(core.image.is_virtual());
        let mut two = [0u8; 8192];
        core.image.read(0x1000, &mut two).expect("neighbours are read as one");
        assert_eq!((two[4095], two[4096]), (1, 2));
        let mut buf = [0u8; 4097];
        let hole = core.image.read(0x9000, &mut buf).expect_err("left out");
        assert_eq!(hole, Hole { address: 0xa000, cause: HoleCause::Excluded });
        assert_eq!(
            core.image.read(0x8fff, &mut buf).expect_err("between").cause,
            HoleCause::Unmapped
        );
    }
}

#[test]
fn every_cut_of_a_core_is_read() {
    let whole = elf::core(Order::Little, &segments());
    let mut before = 0;
    for len in 0..whole.len() {
        let core = opened(&whole[..len]);
        let held = |o: &Opened| {
            o.image.ranges().iter().filter(|r| r.hole.is_none()).map(|r| r.len).sum::<u64>()
        };
        if core.kind == ImageKind::Core {
            assert!(held(&core) >= before, "cut at {len}");
            before = held(&core);
        }
        let cut = core.image.ranges().iter().any(|r| r.hole == Some(HoleCause::Truncated));
        assert!(
            core.kind == ImageKind::Plain
                || cut
                || !core.notes.is_empty()
                || len + 4096 > whole.len(),
            "cut at {len}"
        );
    }
}

/// The core with `value`, of `N` bytes, at `offset`.
fn poked<const N: usize>(offset: usize, value: [u8; N]) -> Opened {
    let mut core = elf::core(Order::Little, &segments());
    core[offset..offset + N].copy_from_slice(&value);
    opened(&core)
}

/// The segments as [`segments`] has them.
fn is_whole(core: &Opened) -> bool {
    let mut two = [0u8; 9096];
    let read = core.image.read(0x1000, &mut two).is_ok() && (two[4095], two[9095]) == (1, 2);
    read && core.image.read(0x9000, &mut two[..4096]).is_ok() && two[0] == 3
}

#[test]
fn program_headers_are_read_where_they_stand() {
    let count = poked(56, [1, 0]);
    assert!(is_whole(&count) && count.is_damaged);
    assert!(count.notes[0].ends_with(
        "offset 0x38: found 0x1, expected 4, the number of program headers at 0x40; all are read"
    ));
    for (offset, value) in [(33, 1), (36, 1), (32, 0x41), (32, 0x78)] {
        let moved = poked(offset, [value]);
        assert!(
            is_whole(&moved) && moved.is_damaged,
            "offset {offset}: {value:#x}: {:?}",
            moved.notes
        );
        assert!(moved.notes.iter().any(|n| n.contains("offset 0x20: found")), "{:?}", moved.notes);
    }
    let entry = poked(54, [57]);
    assert!(
        is_whole(&entry)
            && entry.notes[0].contains("offset 0x36: found 0x39, expected e_phentsize 56")
    );
    assert!(is_whole(&poked(56, [0xff, 0xff])) && is_whole(&poked(56, [0, 0])));
    let sound = opened(&elf::core(Order::Little, &segments()));
    assert!(is_whole(&sound) && !sound.is_damaged && sound.notes.is_empty());
}

/// Pages to which no header leads have addresses of their own.
#[test]
fn pages_without_a_header_are_in_the_image() {
    let third = 64 + 56 * 3;
    for (offset, value) in [(third, 7), (third + 4, 9), (third + 15, 1), (third + 48, 3)] {
        let core = poked(offset, [value]);
        let orphan = core.image.ranges().iter().find(|r| r.address >= 1 << 60 && r.hole.is_none());
        let orphan = orphan.unwrap_or_else(|| panic!("offset {offset}: {:?}", core.notes));
        let mut page = [0u8; 4096];
        assert!(
            orphan.address % 4096 == 0
                && core.image.read(orphan.address, &mut page).is_ok()
                && page == [3; 4096]
        );
        assert!(
            core.notes
                .iter()
                .any(|n| n
                    .ends_with("bytes from 0x3388 to 0x5000; they are searched at that offset")),
            "{:?}",
            core.notes
        );
    }
}

/// gdb puts segments behind the headers, wherever these end: pages of programs show where pages
/// begin.
#[test]
fn pages_may_begin_anywhere_in_the_file() {
    let mut core = elf::core(Order::Little, &[]);
    core.resize(0x698, 0);
    let mut program = vec![9u8; 4096];
    program[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    core.extend([vec![1; 4096], program, vec![2; 4096]].concat());
    for kind in [4, 2] {
        core[16] = kind;
        let image = opened(&core).image;
        let range = image.ranges().iter().find(|r| r.offset % 4096 == 0x698);
        let range = range.unwrap_or_else(|| panic!("{kind}: {:?}", image.ranges())).clone();
        let mut byte = [0u8];
        for (offset, value) in [(0x698, 1), (0x2697, 9), (0x2698, 2)] {
            image.read(range.address + offset - range.offset, &mut byte).expect("there");
            assert!(byte == [value] && range.address % 4096 == 0);
        }
    }
}

#[test]
fn a_cut_core_says_how_much_is_there() {
    let whole = elf::core(Order::Little, &segments());
    let cut = opened(&whole[..0x1800]);
    let words = format!(
        "the file ends at 6144 of {} bytes ({:.0} %): 3 segments are cut or missing, the first at address 0x1000",
        whole.len(),
        (6144.0 / whole.len() as f64 * 100.0).floor()
    );
    assert!(
        cut.is_damaged && cut.notes.len() == 1 && cut.notes[0].ends_with(&words),
        "{:?}",
        cut.notes
    );
}

#[test]
fn a_compressed_core_is_the_same_core() {
    let core = elf::core(Order::Little, &segments());
    let packed = elf::zstd(&core);
    let found = opened(&packed);
    assert_eq!(found.kind, ImageKind::CompressedCore);
    assert_eq!(found.image.ranges().len(), opened(&core).image.ranges().len());
    let cut = opened(&packed[..packed.len() - 100]);
    assert!(cut.notes.iter().any(|n| n.contains("decompression stops")), "{:?}", cut.notes);
}

#[test]
fn what_a_zstd_file_may_become_is_bounded() {
    // Zeroes are not written, and count less than other bytes.
    for (byte, bytes) in [(7u8, 1u64 << 20), (0, 1 << 13)] {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), elf::zstd(&vec![byte; 1 << 20])).expect("written");
        let budget = Budget::new(Limits { bytes, ..Limits::default() });
        let error = open(file.path(), &budget, &unwatched).expect_err("more than the budget");
        assert_eq!(error.kind, ErrorKind::Budget);
    }
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
    notes.extend(note("CORE", 1, &status));
    let mut process = vec![0u8; 136];
    process[16..20].copy_from_slice(&1000u32.to_le_bytes());
    process[24..28].copy_from_slice(&4242i32.to_le_bytes());
    process[40..44].copy_from_slice(b"prog");
    process[56..66].copy_from_slice(b"prog --arg");
    notes.extend(note("CORE", 3, &process));
    let mut signal = vec![0u8; 128];
    (signal[0], signal[8], signal[16]) = (11, 1, 0x34);
    notes.extend(note("CORE", 0x5349_4749, &signal));
    let mut files: Vec<u8> =
        [1u64, 4096, 0x1000, 0x3000, 2].iter().flat_map(|w| w.to_le_bytes()).collect();
    files.extend(b"/usr/bin/prog\0");
    notes.extend(note("CORE", 0x4649_4c45, &files));
    let core = opened(&with_notes(&notes)).core.expect("a core");
    assert_eq!(
        (core.pid, core.uid, core.threads.as_slice()),
        (Some(4242), Some(1000), [4243].as_slice())
    );
    assert_eq!((core.comm.as_str(), core.args.as_str()), ("prog", "prog --arg"));
    assert_eq!((core.signal, core.code, core.address), (Some(11), Some(1), Some(0x34)));
    let file = &core.files[0];
    assert_eq!(
        (file.start, file.end, file.offset, file.path.as_str()),
        (0x1000, 0x3000, 8192, "/usr/bin/prog")
    );
}

#[test]
fn hostile_notes_are_told_of() {
    let mut notes = Vec::new();
    let files: Vec<u8> = [u64::MAX, 4096].iter().flat_map(|w| w.to_le_bytes()).collect();
    notes.extend(note("CORE", 0x4649_4c45, &files));
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
    assert_eq!(found.kind, ImageKind::Folder);
    assert_eq!(found.image.ranges().len(), 1);
    let link = folder.path().join("b");
    assert_eq!(
        found.notes,
        [format!("{}: a symbolic link, no regular file; it is not read", link.display())]
    );
    assert!(open(&folder.path().join("nothing"), &Budget::default(), &unwatched).is_err());
    let fifo = folder.path().join("f");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let error = open(&fifo, &Budget::default(), &unwatched).expect_err("a FIFO").to_string();
    assert!(error.ends_with("/f: a FIFO, no regular file: it cannot be read at places"), "{error}");
    assert!(open(std::path::Path::new("/dev/tty"), &Budget::default(), &unwatched).is_err());
}
