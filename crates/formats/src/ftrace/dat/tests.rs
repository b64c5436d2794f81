use std::process::Command;

use lastwords_trace::ftrace::{CpuRing, HeaderPage, Ring, Stats, Tracing};
use proptest::prelude::*;

use super::*;
use crate::ftrace::samples::*;
use crate::ftrace::text::{Options, write_trace};

fn machine() -> Tracing {
    let print = payload(PRINT, 0, 0, 7, &[&words(&[0xffff_ffff_8100_0104])[..], b"hello\n\0"].concat());
    let first = vec![page(&[(1_000_000, wake(7)), (2_000_000, print)], None), page(&[(9_000_000, wake(0))], Some(3))];
    let second = vec![page(&[(3_000_000, wake(9))], None)];
    let extra = vec![vec![page(&[(4_000_000, wake(7))], None)], Vec::new()];
    let stats = Stats { entries: 2, overrun: 0, bytes: 64, ..Stats::default() };
    tracing(ring(vec![first, second], stats), ring(extra, stats))
}

fn text(tracing: &Tracing, array: usize) -> String {
    let mut out = Vec::new();
    write_trace(&mut out, tracing, array, &Options { no_header: true, ..Options::default() }).unwrap();
    String::from_utf8(out).unwrap()
}

/// A file of the machine.
fn written(version: u8) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.dat");
    let totals = write(&path, &machine(), &WriteOptions { version: Some(version), ..WriteOptions::default() }).unwrap();
    assert_eq!((totals.events, totals.packets, totals.faults), (5, 4, 0));
    assert_eq!(totals.bytes, std::fs::metadata(&path).unwrap().len());
    (folder, path)
}

#[test]
fn what_is_written_is_read_again() {
    let machine = machine();
    for version in [6, 7] {
        let (_folder, path) = written(version);
        let read = open(&path).unwrap();
        assert_eq!(read.evidence.notes, Vec::<String>::new());
        assert_eq!(read.formats, machine.formats);
        assert_eq!((&read.comms, &read.printk_formats), (&machine.comms, &machine.printk_formats));
        assert_eq!((read.cpus, read.release.as_str(), read.machine.as_str()), (2, "6.12.0", "x86_64"));
        assert_eq!(read.arrays.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["", "extra"]);
        assert_eq!(read.arrays[0].live.cpus()[0].stats.bytes, 64);
        for array in 0..2 {
            assert_eq!(text(&read, array), text(&machine, array), "version {version}");
        }
    }
}

#[test]
fn chosen_arrays_alone_are_written() {
    let machine = machine();
    let folder = tempfile::tempdir().unwrap();
    for (version, chosen) in [(6, 0), (6, 1), (7, 0), (7, 1)] {
        let path = folder.path().join(format!("{version}-{chosen}.dat"));
        let options = WriteOptions { version: Some(version), arrays: vec![chosen], ..WriteOptions::default() };
        let totals = write(&path, &machine, &options).unwrap();
        let wanted = text(&machine, chosen);
        assert_eq!(totals.events, wanted.lines().filter(|line| !line.contains("LOST")).count() as u64);
        let read = open(&path).unwrap();
        assert_eq!(read.arrays.len(), 1 + chosen, "the top level, and the instance if it is chosen");
        let texts: Vec<String> = (0..read.arrays.len()).map(|array| text(&read, array)).collect();
        assert_eq!(texts[chosen], wanted, "version {version}");
        assert_eq!(texts.iter().filter(|text| text.is_empty()).count(), chosen, "version {version}");
        let shown = Command::new("trace-cmd").args(["report", "-i"]).arg(&path).output().expect("trace-cmd");
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let events = shown.lines().filter(|line| line.contains("] ") && !line.contains("EVENTS DROPPED")).count();
        assert_eq!(events as u64, totals.events, "trace-cmd, version {version}, array {chosen}: {shown}");
    }
}

#[test]
fn trace_cmd_reads_what_is_written() {
    for version in [6, 7] {
        let (_folder, path) = written(version);
        let shown = Command::new("trace-cmd")
            .args(["report", "-i"])
            .arg(&path)
            .output()
            .expect("trace-cmd is needed: cargo xtask setup");
        let complaints = String::from_utf8_lossy(&shown.stderr).into_owned();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        // It tells of what it cannot read, and goes on.
        assert!(!complaints.contains("libtracecmd"), "version {version}: {complaints}");
        assert_eq!(shown.matches("comm=init pid=9").count(), 4, "version {version}: {shown}");
        assert!(shown.contains("do_work: hello") && shown.contains("extra:"), "version {version}: {shown}");
        assert!(shown.contains("3 EVENTS DROPPED"), "version {version}: {shown}");
    }
}

/// An instance whose sub-buffers are larger than the top level's: each array's own size must be told.
#[test]
fn sub_buffers_of_several_sizes() {
    let large = |times: &[u64]| {
        let events: Vec<_> = times.iter().map(|time| (*time, wake(7))).collect();
        let mut bytes = page(&events, None);
        bytes.resize(65536, 0);
        bytes
    };
    let stats = Stats { entries: 2, bytes: 64, ..Stats::default() };
    let mut machine = machine();
    let rings = vec![vec![large(&[5_000_000]), large(&[6_000_000])], Vec::new()];
    machine.arrays[1].live = ring(rings, stats);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.dat");
    write(&path, &machine, &WriteOptions::default()).unwrap();
    let read = open(&path).unwrap();
    assert_eq!(read.arrays[1].live.cpus()[0].sub_buffer_size, 65536);
    assert_eq!(text(&read, 1), text(&machine, 1));
    let shown = Command::new("trace-cmd").args(["report", "-i"]).arg(&path).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.matches("comm=init pid=9").count(), 5, "{shown}");
}

#[test]
fn no_other_version_is_written_and_no_file_replaced() {
    let (_folder, path) = written(6);
    assert!(write(&path, &machine(), &WriteOptions::default()).is_err());
    assert!(
        write(&path.with_extension("new"), &machine(), &WriteOptions { version: Some(5), ..WriteOptions::default() })
            .is_err()
    );
}

#[test]
fn compressed_pieces_that_are_damaged_are_losses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pieces");
    let page = page(&[(1_000_000, wake(7))], None);
    let packed = zstd::bulk::compress(&page, 3).unwrap();
    let lengths = [1, packed.len() as u32, page.len() as u32].map(u32::to_le_bytes).concat();
    for damaged in [false, true] {
        let mut file = [&lengths[..], &packed].concat();
        if damaged {
            file[12..24].fill(0);
        }
        std::fs::write(&path, &file).unwrap();
        let source = reader::Source::open(&path).unwrap();
        let chunks = chunks::Chunks::read(&source, 0, file.len() as u64).0;
        let size = page.len() as u32;
        let ring = ring::FileRing {
            cpus: vec![CpuRing { cpu: 0, sub_buffers: 1, sub_buffer_size: size, stats: Stats::default() }],
            data: vec![ring::Data { offset: 0, size: size.into(), chunks: Some(chunks) }],
            source,
            header_page: HeaderPage::of_word_size(8),
            algorithm: chunks::Algorithm::Zstd,
            unpacked: std::sync::Mutex::default(),
            wrong: std::sync::Mutex::default(),
        };
        let rows = ring.checked().sub_buffers;
        let why = format!("the {} bytes at 0xc cannot be uncompressed to {size} bytes", packed.len());
        assert_eq!(
            rows.iter().map(|row| row.why.as_str()).collect::<Vec<_>>(),
            if damaged { vec![why.as_str()] } else { vec![] }
        );
    }
}

/// Where a page's events end before what is committed is told with what is lost.
#[test]
fn zeroed_bytes_are_losses() {
    let marks = |bytes: &[u8], first: &[u8]| bytes.windows(first.len()).position(|part| part == first);
    for version in [6, 7] {
        let (folder, path) = written(version);
        assert!(!open(&path).unwrap().arrays[0].live.checked().has_losses(), "version {version}");
        let whole = std::fs::read(&path).unwrap();
        let zeroed = folder.path().join("zeroed.dat");
        // The second event of the first page, then the page's header.
        let page = marks(&whole, &1_000_000u64.to_le_bytes()).expect("a page");
        for (place, len) in [(page + 16 + 4 + wake(7).len(), 64), (page, 16)] {
            let mut bytes = whole.clone();
            bytes[place..place + len].fill(0);
            std::fs::write(&zeroed, &bytes).unwrap();
            let read = open(&zeroed).unwrap();
            let lines: usize = (0..2).map(|array| text(&read, array).lines().count()).sum();
            let rows: Vec<_> = read.arrays.iter().flat_map(|array| array.live.evidence().sub_buffers).collect();
            assert!(lines < 6 && rows.len() == 1, "version {version}: {lines} lines, {rows:?}");
            let why = &rows[0].why;
            assert!(why.ends_with("bytes of events are lost"), "{why}");
            let totals = write(&folder.path().join(format!("{place}.dat")), &read, &WriteOptions::default()).unwrap();
            assert_eq!(totals.faults, 1);
        }
    }
}

#[test]
fn a_file_cut_off_anywhere_is_an_error_or_a_part() {
    for version in [6, 7] {
        let (folder, path) = written(version);
        let whole = std::fs::read(&path).unwrap();
        let events = |bytes: &[u8]| {
            let cut = folder.path().join("cut.dat");
            std::fs::write(&cut, bytes).unwrap();
            open(&cut).map(|read| (0..read.arrays.len()).map(|a| text(&read, a).lines().count()).sum::<usize>())
        };
        let mut last = 0;
        for length in (0..whole.len()).step_by(509) {
            let found = events(&whole[..length]).unwrap_or(0);
            assert!(found >= last, "version {version}: {found} lines of {length} bytes, {last} of fewer");
            last = found;
        }
        assert_eq!(events(&whole).unwrap(), 6);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damaged_files_neither_panic_nor_hang(version in 6u8..8, at in any::<prop::sample::Index>(), with in proptest::collection::vec(any::<u8>(), 1..16)) {
        let (folder, path) = written(version);
        let mut bytes = std::fs::read(&path).unwrap();
        // Descriptions stand before the data; what is damaged there matters.
        let at = at.index(bytes.len().min(8192));
        let end = (at + with.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&with[..end - at]);
        let damaged = folder.path().join("damaged.dat");
        std::fs::write(&damaged, &bytes).unwrap();
        if let Ok(read) = open(&damaged) {
            for array in 0..read.arrays.len() {
                let _ = write_trace(&mut Vec::new(), &read, array, &Options { last: Some(10), ..Options::default() });
            }
        }
    }
}
