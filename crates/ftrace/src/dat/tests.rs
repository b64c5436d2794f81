mod hostile;
mod relation;

use super::as_trace_cmd::by_trace_cmd;
use super::*;
use crate::samples::*;
use crate::text::{Options, write_trace};
use crate::{CpuRing, HeaderPage, Ring, Stats, Tracing};
use lastwords_ctf::Totals;
use lastwords_testkit::random::Random;
use lastwords_trace::evidence::{Cause, Verdict};
use std::process::Command;

/// Opens a file with the default budget of a program.
pub(super) fn open(path: &std::path::Path) -> lastwords_ctf::Result<Tracing> {
    super::open(path, &std::sync::Arc::default())
}

fn machine() -> Tracing {
    let print =
        payload(PRINT, 0, 0, 7, &[&words(&[0xffff_ffff_8100_0104])[..], b"hello\n\0"].concat());
    let first = vec![
        page(&[(1_000_000, wake(7)), (2_000_000, print)], None),
        page(&[(9_000_000, wake(0))], Some(3)),
    ];
    let second = vec![page(&[(3_000_000, wake(9))], None)];
    let extra = vec![vec![page(&[(4_000_000, wake(7))], None)], Vec::new()];
    let stats = Stats { entries: 2, overrun: 0, bytes: 64, ..Stats::default() };
    tracing(ring(vec![first, second], stats), ring(extra, stats))
}

fn text(tracing: &Tracing, array: usize) -> String {
    let mut out = Vec::new();
    write_trace(&mut out, tracing, array, &Options { no_header: true, ..Options::default() })
        .unwrap();
    String::from_utf8(out).unwrap()
}

/// Writes a file of a version.
fn write_as(
    version: u8,
    path: &std::path::Path,
    machine: &Tracing,
    options: WriteOptions,
) -> Vec<(usize, Totals)> {
    write(path, machine, &WriteOptions { version: Some(version), ..options }).unwrap()
}

/// Writes a file of the machine.
fn written(version: u8) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.dat");
    let written = write_as(version, &path, &machine(), WriteOptions::default());
    let totals = sum(&written);
    assert_eq!((totals.events, totals.packets, totals.faults), (5, 4, 0));
    assert_eq!(totals.bytes, std::fs::metadata(&path).unwrap().len());
    (folder, path)
}

fn sum(written: &[(usize, Totals)]) -> Totals {
    Totals::sum(&written.iter().map(|(_, totals)| *totals).collect::<Vec<_>>())
}

#[test]
fn a_written_file_is_read_again() {
    let machine = machine();
    for version in [6, 7] {
        let (_folder, path) = written(version);
        let read = open(&path).unwrap();
        assert_eq!(read.evidence.notes, Vec::<String>::new());
        assert_eq!(read.formats, machine.formats);
        assert_eq!((&read.comms, &read.printk_formats), (&machine.comms, &machine.printk_formats));
        assert_eq!(
            (read.cpus, read.release.as_str(), read.machine.as_str()),
            (2, "6.12.0", "x86_64")
        );
        assert_eq!(read.arrays.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["", "extra"]);
        assert_eq!(read.arrays[0].live.cpus()[0].stats.bytes, 64);
        for array in 0..2 {
            assert_eq!(text(&read, array), text(&machine, array), "version {version}");
        }
    }
}

#[test]
fn what_a_file_lacks_is_read_as_a_loss() {
    let folder = tempfile::tempdir().unwrap();
    for version in [6, 7] {
        let path = folder.path().join(format!("{version}.dat"));
        let missing = Some("the stream\nended early".to_owned());
        let options = WriteOptions { missing, ..WriteOptions::default() };
        write_as(version, &path, &machine(), options);
        let gaps = open(&path).unwrap().evidence.gaps;
        let gap = gaps
            .iter()
            .map(|gap| (gap.cause, gap.place.ends_with("the stream ended early")))
            .collect::<Vec<_>>();
        assert_eq!(gap, [(Cause::Missing, true)], "version {version}: {gaps:?}");
    }
}

/// A description that cannot be read is a loss and not only a remark, because events cannot be
/// decoded without their formats.
#[test]
fn a_damaged_description_is_a_loss() {
    let (_folder, path) = written(7);
    let whole = std::fs::read(&path).unwrap();
    for id in id::HEADER_INFO..=id::COMMAND_LINES {
        let mut bytes = whole.clone();
        // The section that the option points to has its own id in its header.
        let option = [&id.to_le_bytes()[..], &8u32.to_le_bytes()].concat();
        let at = bytes.windows(6).position(|window| window == option).unwrap() + 6;
        let section = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        bytes[section] ^= 0x80;
        std::fs::write(&path, bytes).unwrap();
        let read = open(&path).unwrap();
        let [gap] = read.evidence.gaps.as_slice() else { panic!("{:?}", read.evidence) };
        assert!(
            gap.cause == Cause::Damaged && gap.place.starts_with(path.to_str().unwrap()),
            "{gap:?}"
        );
        assert!(read.evidence.has_losses());
    }
}

/// Tests `trace-cmd record --date`, the offset of the clock to the real time.
#[test]
fn the_date_is_kept_and_is_that_of_trace_cmd() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("date.dat");
    let machine = Tracing { real_time: Some(1_795_505_501_419_089_000), ..machine() };
    for version in [6, 7] {
        let _ = std::fs::remove_file(&path);
        write_as(version, &path, &machine, WriteOptions::default());
        assert_eq!(open(&path).unwrap().real_time, machine.real_time);
        let shown = by_trace_cmd(&path);
        // The first event is 1 ms after the clock's beginning.
        assert!(shown.contains(" 1795505501.420089: "), "version {version}: {shown}");
    }
    let mut options = options::FileOptions::default();
    for (text, date) in [("0x10\0", Some(16_000)), ("0xffffffffffffffff\0", None), ("soon\0", None)]
    {
        options.read(id::DATE, text.as_bytes(), lastwords_bytes::ByteOrder::Little, false).unwrap();
        assert_eq!(options.real_time, date, "{text}");
    }
}

#[test]
fn chosen_arrays_alone_are_written() {
    let machine = machine();
    let folder = tempfile::tempdir().unwrap();
    for (version, chosen) in [(6, 0), (6, 1), (7, 0), (7, 1)] {
        let path = folder.path().join(format!("{version}-{chosen}.dat"));
        let options = WriteOptions { arrays: vec![chosen], ..WriteOptions::default() };
        let totals = sum(&write_as(version, &path, &machine, options));
        let wanted = text(&machine, chosen);
        assert_eq!(
            totals.events,
            wanted.lines().filter(|line| !line.contains("LOST")).count() as u64
        );
        let read = open(&path).unwrap();
        assert_eq!(
            read.arrays.len(),
            1 + chosen,
            "the top level, and the instance if it is chosen"
        );
        let texts: Vec<String> = (0..read.arrays.len()).map(|array| text(&read, array)).collect();
        assert_eq!(texts[chosen], wanted, "version {version}");
        assert_eq!(
            texts.iter().filter(|text| text.is_empty()).count(),
            chosen,
            "version {version}"
        );
        let shown = by_trace_cmd(&path);
        let events = shown
            .lines()
            .filter(|line| line.contains("] ") && !line.contains("EVENTS DROPPED"))
            .count();
        assert_eq!(
            events as u64, totals.events,
            "trace-cmd, version {version}, array {chosen}: {shown}"
        );
    }
}

#[test]
fn trace_cmd_reads_a_written_file() {
    for version in [6, 7] {
        let (_folder, path) = written(version);
        let shown = Command::new("trace-cmd")
            .args(["report", "-i"])
            .arg(&path)
            .output()
            .expect("trace-cmd is needed: cargo xtask setup");
        let complaints = String::from_utf8_lossy(&shown.stderr).into_owned();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        // The reader reports the unreadable part and continues.
        assert!(!complaints.contains("libtracecmd"), "version {version}: {complaints}");
        assert_eq!(shown.matches("comm=init pid=9").count(), 4, "version {version}: {shown}");
        assert!(
            shown.contains("do_work: hello") && shown.contains("extra:"),
            "version {version}: {shown}"
        );
        assert!(shown.contains("3 EVENTS DROPPED"), "version {version}: {shown}");
    }
}

/// Prints arrays of `__u8` that are addresses, and names of unknown value, in events of random
/// values. The text must be that of trace-cmd.
#[test]
fn addresses_and_unknown_names_are_those_of_trace_cmd() {
    let fields = "__u8 saddr[4]:8:4:0, __u8 daddr[4]:12:4:0, __u8 six[16]:16:16:0, \
                  __u32 state:32:4:0, int last:36:4:1";
    let print = concat!(
        "\"%pI4 to %pI4 %pI6c state=%s flags=%s last=%d\", REC->saddr, REC->daddr, REC->six, ",
        "__print_symbolic(REC->state, { UNKNOWN_ONE, \"one\" }, { 2, \"two\" }, { 3, \"three\" }), ",
        "__print_flags(REC->state, \"|\", { UNKNOWN_BIT, \"bit\" }, { 1, \"A\" }, { 2, \"B\" }), REC->last"
    );
    let (id, found) = format("tcp", 400, "tcp_state", fields, print);
    let mut random = Random(7);
    let events: Vec<_> = (0..60u64)
        .map(|number| {
            let mut rest = Vec::new();
            for at in 0..24 {
                let is_zero = number % 3 == 0 || (number % 3 == 1 && at % 3 > 0);
                rest.push(if is_zero { 0 } else { random.bits() as u8 });
            }
            // For the value 0, trace-cmd prints the unknown name; the kernel prints no name.
            rest.extend(((number % 7 + 1) as u32).to_le_bytes());
            rest.extend((number as u32).to_le_bytes());
            (1_000_000 + 1000 * number, payload(id, 0, 0, 7, &rest))
        })
        .collect();
    let mut machine = alone(vec![vec![page(&events, None)]], Stats::default());
    machine.formats.insert(id, found);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.dat");
    write(&path, &machine, &WriteOptions::default()).unwrap();
    let messages = |text: &str| -> Vec<String> {
        text.lines()
            .filter_map(|line| Some(line.split_once("tcp_state:")?.1.trim().to_owned()))
            .collect()
    };
    let ours = messages(&text(&open(&path).unwrap(), 0));
    assert_eq!(ours.len(), 60);
    assert_eq!(ours, messages(&by_trace_cmd(&path)));
    assert!(ours[0].starts_with("0.0.0.0 to 0.0.0.0 :: state=0x1 flags=A last=0"), "{}", ours[0]);
}

/// The sub-buffers of an instance are larger than those of the top level, so each array's own size
/// must be in the file.
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
    let shown = by_trace_cmd(&path);
    assert_eq!(shown.matches("comm=init pid=9").count(), 5, "{shown}");
}

#[test]
fn no_other_version_is_written_and_no_file_replaced() {
    let (_folder, path) = written(6);
    assert!(write(&path, &machine(), &WriteOptions::default()).is_err());
    assert!(
        write(
            &path.with_extension("new"),
            &machine(),
            &WriteOptions { version: Some(5), ..WriteOptions::default() }
        )
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
        let source = reader::Source::open(&path, &std::sync::Arc::default()).unwrap();
        let chunks =
            chunks::Chunks::read(&source, chunks::Algorithm::Zstd, 4096, (0, file.len() as u64)).0;
        let size = page.len() as u32;
        let ring = ring::FileRing {
            cpus: vec![CpuRing {
                cpu: 0,
                sub_buffers: 1,
                sub_buffer_size: size,
                stats: Stats::default(),
            }],
            data: vec![ring::Data { offset: 0, size: size.into(), chunks: Some(chunks) }],
            source,
            header_page: HeaderPage::of_word_size(8),
            algorithm: chunks::Algorithm::Zstd,
            unpacked: std::sync::Mutex::default(),
            faults: std::sync::Mutex::default(),
            missed: std::sync::Mutex::default(),
            correction: None,
            inexact: std::sync::Mutex::default(),
        };
        let rows = ring.checked().sub_buffers;
        let why =
            format!("the {} bytes at 0xc cannot be uncompressed to {size} bytes", packed.len());
        assert_eq!(
            rows.iter().map(|row| row.why.as_str()).collect::<Vec<_>>(),
            if damaged { vec![why.as_str()] } else { vec![] }
        );
    }
}

/// The loss report names the position at which a page's events end before its committed size.
#[test]
fn zeroed_bytes_are_losses() {
    let marks =
        |bytes: &[u8], first: &[u8]| bytes.windows(first.len()).position(|part| part == first);
    for version in [6, 7] {
        let (folder, path) = written(version);
        let account = open(&path).unwrap().arrays[0].live.checked();
        assert!(account.sub_buffers.is_empty(), "version {version}: {account:?}");
        // The page's header counts the events that were overwritten before trace-cmd had read them.
        assert!(
            account.gaps.iter().all(|gap| gap.cause == Cause::Unread),
            "version {version}: {account:?}"
        );
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
            let rows: Vec<_> =
                read.arrays.iter().flat_map(|array| array.live.evidence().sub_buffers).collect();
            assert!(lines < 6 && rows.len() == 1, "version {version}: {lines} lines, {rows:?}");
            let why = &rows[0].why;
            assert!(why.ends_with("bytes of events are lost"), "{why}");
            let written =
                write(&folder.path().join(format!("{place}.dat")), &read, &WriteOptions::default())
                    .unwrap();
            assert_eq!(sum(&written).faults, 1);
            // The fault is in the array whose sub-buffer has no valid verdict.
            for (position, totals) in &written {
                let ring = &read.arrays[*position].live;
                let counts =
                    ring.cpus().iter().enumerate().map(|(lane, cpu)| (lane, cpu.sub_buffers));
                let all =
                    counts.flat_map(|(lane, count)| (0..count).map(move |index| (lane, index)));
                let is_bad = |&(lane, index): &(usize, usize)| {
                    !matches!(
                        ring.sub_buffer(lane, index, &mut Vec::new()).verdict,
                        Verdict::Committed | Verdict::Open
                    )
                };
                assert_eq!(totals.faults, all.filter(is_bad).count() as u64, "array {position}");
            }
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
            open(&cut).map(|read| {
                (0..read.arrays.len()).map(|a| text(&read, a).lines().count()).sum::<usize>()
            })
        };
        let mut last = 0;
        for length in (0..whole.len()).step_by(509) {
            let found = events(&whole[..length]).unwrap_or(0);
            assert!(
                found >= last,
                "version {version}: {found} lines of {length} bytes, {last} of fewer"
            );
            last = found;
        }
        assert_eq!(events(&whole).unwrap(), 6);
    }
}

/// The recorder writes the table of each buffer after the data of the buffer before it. Tables
/// before the end of a truncated file are read.
#[test]
fn a_truncated_file_is_read_to_its_end_and_the_rest_reported() {
    let (_folder, path) = written(7);
    let mut bytes = std::fs::read(&path).unwrap();
    // This is a section of options with the offset of the next one. A buffer lies between them,
    // which only the next section would describe.
    let first =
        bytes.windows(8).position(|window| window == b"7\0\0\x08\0\x10\0\0").unwrap() + 8 + 6;
    let options = u64::from_le_bytes(bytes[first..first + 8].try_into().unwrap()) as usize;
    let size = u64::from_le_bytes(bytes[options + 8..options + 16].try_into().unwrap()) as usize;
    let (buffer, next) = (bytes.len() as u64, bytes.len() as u64 + 16 + 5000);
    bytes[options + 16 + size - 8..options + 16 + size].copy_from_slice(&next.to_le_bytes());
    bytes.extend(
        [&id::BUFFER.to_le_bytes()[..], &[0; 6], &5000u64.to_le_bytes(), &[7; 3000]].concat(),
    );
    std::fs::write(&path, &bytes).unwrap();
    let read = open(&path).unwrap();
    assert_eq!((0..2).map(|array| text(&read, array).lines().count()).sum::<usize>(), 6);
    let gaps: Vec<_> =
        read.evidence.gaps.iter().map(|gap| (gap.bytes, gap.place.as_str())).collect();
    let lost = format!(
        "3000 of 5000 bytes of a buffer at offset {buffer:#x}: no option describes its CPUs"
    );
    assert!(
        gaps.len() == 2 && gaps[0].1.contains(&format!("the options at offset {next:#x}")),
        "{gaps:?}"
    );
    assert!(gaps[1].0 == Some(3000) && gaps[1].1.ends_with(&lost), "{gaps:?}");

    // Version 6: the table of an instance lies beyond the end.
    let (_folder, path) = written(6);
    let mut bytes = std::fs::read(&path).unwrap();
    let option = bytes.windows(6).position(|window| window == b"extra\0").unwrap() - 8;
    bytes[option..option + 8].copy_from_slice(&buffer.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let read = open(&path).unwrap();
    assert_eq!((read.arrays.len(), text(&read, 0).lines().count()), (1, 5));
    assert!(
        read.evidence.gaps[0].place.contains("all of instance extra: trace.dat: offset"),
        "{:?}",
        read.evidence
    );

    // An option that cannot be read loses its content.
    let mut options = options::FileOptions::default();
    options.read_or_lose(id::CPU_COUNT, &[1], lastwords_bytes::ByteOrder::Little, true);
    assert!(options.faults[0].starts_with("the option of id 8: "), "{:?}", options.faults);
}

/// Clocks come from the option, the buffers and the tables of version 6. Times must be those of
/// trace-cmd, in the machine's clock if trace-cmd knows no other clock.
#[test]
fn clocks_are_those_that_trace_cmd_goes_by() {
    let own = format!("lastwords {}", env!("CARGO_PKG_VERSION"));
    for version in [6, 7] {
        for (chosen, buffer_clock) in [
            ("x86-tsc", "local  "),
            ("counter", "local  "),
            ("mono", "local"),
            ("perf", "perf"),
            ("x86-tsc", "x86-tsc"),
        ] {
            let mut machine = machine();
            machine.arrays.truncate(1);
            machine.arrays[0].clock = super::clock(chosen);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("trace.dat");
            write_as(version, &path, &machine, WriteOptions::default());
            // This is what trace-cmd writes: its own version, and `local` for a buffer whose clock
            // it did not set.
            let mut bytes = std::fs::read(&path).unwrap();
            let mut replace = |from: &str, to: &str| {
                while let Some(at) =
                    bytes.windows(from.len()).position(|part| part == from.as_bytes())
                {
                    bytes[at..at + from.len()].copy_from_slice(&to.as_bytes()[..from.len()]);
                }
            };
            replace(&own, "trace-cmd version 3.3.1 and more");
            if version == 7 && chosen != buffer_clock && chosen.len() == buffer_clock.len() {
                replace(&format!("\0{chosen}\0"), &format!("\0{buffer_clock}\0"));
            }
            std::fs::write(&path, bytes).unwrap();
            let read = open(&path).unwrap();
            assert_eq!(read.arrays[0].clock_name(), chosen, "version {version}, {buffer_clock}");
            let is_plain = matches!(chosen, "x86-tsc" | "counter");
            assert_eq!(read.arrays[0].is_in_ns(), !is_plain);
            let times = |text: &str| -> Vec<String> {
                let time =
                    |line: &str| Some(line.split_once(": ")?.0.rsplit(' ').next()?.to_owned());
                text.lines().filter(|line| line.contains("wake:")).filter_map(time).collect()
            };
            let ours = times(&text(&read, 0));
            assert_eq!(ours.len(), 3);
            assert_eq!(
                ours,
                times(&by_trace_cmd(&path)),
                "version {version}, {chosen}, {buffer_clock}"
            );
        }
    }
}
