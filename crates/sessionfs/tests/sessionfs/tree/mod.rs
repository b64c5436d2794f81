//! The tree over sessions of this process, without a mount.

use lastwords_testkit::text::Text as _;
use std::path::PathBuf;

use lastwords::{ChannelConfig, Session, event, mark};
use lastwords_bytes::ByteOrder;
use lastwords_control::Handle;
use lastwords_ftrace::{HeaderPage, page};
use lastwords_sessionfs::{Access, Errno, Programs, Sessions, Tree};

mod instances;
mod triggers;

const READ: Access = Access { read: true, write: false, truncate: false };
pub(crate) const WRITE: Access = Access { read: false, write: true, truncate: false };
pub(crate) const TRUNCATE: Access = Access { read: false, write: true, truncate: true };

/// A session of this process, and its tree. Every session of a process may take all its events:
/// here each enables one provider, which only its test uses.
pub(crate) struct Place {
    _dir: tempfile::TempDir,
    folder: PathBuf,
    pub(crate) tree: Tree,
    pub(crate) session: Session,
}

impl Place {
    pub(crate) fn new(name: &str, channel: ChannelConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let session = Session::builder(name)
            .dir(dir.path())
            .channel(channel)
            .events(format!("{name}:*"))
            .start();
        let session = session.expect("a session");
        let folder = session.folder().unwrap().to_owned();
        let programs = Programs { program: "/nonexistent".into(), recorder: vec![], guard: vec![] };
        let sessions =
            Sessions::new(Some(dir.path().to_owned()), &folder, programs).expect("the session");
        Self { _dir: dir, folder, tree: Tree::new(sessions), session }
    }

    pub(crate) fn read(&self, path: &str) -> String {
        String::from_utf8(self.bytes(path)).unwrap()
    }

    fn bytes(&self, path: &str) -> Vec<u8> {
        let file = self.tree.open(path, READ).unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut bytes = Vec::new();
        loop {
            match file.read(bytes.len() as u64, 1000, false, &|| false) {
                Ok(more) if more.is_empty() => return bytes,
                Ok(more) => bytes.extend(more),
                Err(Errno::AGAIN) => return bytes,
                Err(error) => panic!("{path}: {error}"),
            }
        }
    }

    /// The records in a file of all CPUs, with their types, and the events that pages say are
    /// missing: none if a number is not known.
    fn records(&self, file: &str) -> (Vec<(u16, Vec<u8>)>, Option<u64>) {
        let order = ByteOrder::NATIVE;
        let layout = HeaderPage::of_word_size(size_of::<usize>() as u8);
        let size: usize = self.read("buffer_subbuf_size_kb").trim().parse().unwrap();
        let (mut records, mut missed) = (Vec::new(), Some(0));
        for (cpu, _) in self.tree.list("per_cpu").unwrap() {
            for page in self.bytes(&format!("per_cpu/{cpu}/{file}")).chunks(size << 10) {
                let header = page::header(page, layout, order).unwrap();
                missed = header.missed.map_or(missed, |count| Some(missed? + count?));
                for event in page::Events::new(page, layout, order, header.committed) {
                    let record = page[event.unwrap().payload].to_vec();
                    records.push((u16::from_ne_bytes([record[0], record[1]]), record));
                }
            }
        }
        (records, missed)
    }

    /// The statistics of all CPUs.
    fn stats(&self) -> String {
        let cpus = self.tree.list("per_cpu").unwrap().into_iter();
        cpus.map(|(cpu, _)| self.read(&format!("per_cpu/{cpu}/stats"))).collect()
    }

    fn write(&self, path: &str, text: &str) -> Result<usize, Errno> {
        self.tree.open(path, WRITE)?.write(std::process::id(), text.as_bytes())
    }
}

fn numbers(text: &str) -> Vec<u64> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("LOST"));
    lines.map(|line| line.rsplit_once("number=").unwrap().1.parse().unwrap()).collect()
}

#[test]
fn what_there_is_and_what_not() {
    let place = Place::new("there", ChannelConfig::new("main"));
    event!(there, "one", number = 1u32);
    mark!("a/b {number}", number = 2u32);
    let names = |path: &str| -> Vec<String> {
        place.tree.list(path).unwrap().into_iter().map(|(name, _)| name).collect()
    };
    assert!(["instances", "trace"].iter().all(|name| names("").contains(&(*name).to_owned())));
    assert_eq!(names("events/there"), ["enable", "filter", "one"]);
    assert_eq!(names("instances"), [""; 0]);
    for path in
        names("").iter().filter(|name| place.tree.entry(name).is_ok_and(|entry| !entry.is_folder))
    {
        let entry = place.tree.entry(path).unwrap();
        assert_eq!(place.tree.open(path, READ).is_ok(), entry.mode & 0o400 != 0, "{path}");
        assert_eq!(place.tree.open(path, WRITE).is_ok(), entry.mode & 0o200 != 0, "{path}");
    }
    for path in ["nothing", "events/there/two", "instances/x"] {
        assert_eq!(place.tree.entry(path), Err(Errno::NOENT), "{path}");
    }
    assert_eq!(place.tree.list("trace").unwrap_err(), Errno::NOTDIR);
    assert_eq!(place.tree.open("events", READ).unwrap_err(), Errno::ISDIR);
    assert_eq!(place.tree.open("trace_pipe", WRITE).unwrap_err(), Errno::INVAL);
    assert_eq!(
        (place.tree.make_folder("x"), place.tree.make_folder("instances/a/b")),
        (Err(Errno::PERM), Err(Errno::PERM))
    );
    assert_eq!(place.tree.make_folder("instances/there"), Err(Errno::EXIST));
    assert_eq!(place.tree.make_folder("instances/a name"), Err(Errno::INVAL));
    place.read("error_log").has("] mkdir: error: ");
    assert_eq!(place.tree.remove_folder("instances/there"), Err(Errno::NOENT));
}

#[test]
fn trace_is_read_again_and_trace_pipe_once() {
    let place = Place::new("once", ChannelConfig::new("main"));
    (0..1000u64).for_each(|number| event!(once, "tick", number = number));
    let all: Vec<u64> = (0..1000).collect();
    assert_eq!(
        (numbers(&place.read("trace")), numbers(&place.read("trace"))),
        (all.clone(), all.clone())
    );
    let file = place.tree.open("trace", READ).unwrap();
    let first = file.read(0, 5000, true, &|| false).unwrap();
    assert_eq!(file.read(1234, 100, true, &|| false).unwrap(), first[1234..1334]);
    assert_eq!(file.read(1 << 30, 100, true, &|| false).unwrap(), b"");
    // Two readers share the events; what the first leaves, the second has.
    let (one, two) = (
        place.tree.open("trace_pipe", READ).unwrap(),
        place.tree.open("trace_pipe", READ).unwrap(),
    );
    let begin = one.read(0, 10_000, true, &|| false).unwrap();
    let mut rest = two.read(0, 5, true, &|| false).unwrap();
    assert_eq!(rest.len(), 5, "a part of a line");
    rest.extend(place.read("trace_pipe").bytes());
    let text = String::from_utf8([begin, rest].concat()).unwrap();
    assert_eq!(numbers(&text), all);
    assert_eq!(numbers(&place.read("trace")), [0u64; 0]);
    assert_eq!(two.read(0, 100, true, &|| true), Err(Errno::INTR));
    assert_eq!(two.read(0, 100, false, &|| false), Err(Errno::AGAIN));
    place.write("tracing_on", "0\n").unwrap();
    assert_eq!(
        two.read(0, 100, true, &|| false),
        Ok(vec![]),
        "the end, for a reader that has had something"
    );
    assert_eq!(
        place.tree.open("trace_pipe", READ).unwrap().read(0, 100, false, &|| false),
        Err(Errno::AGAIN)
    );
}

#[test]
fn losses_are_told_where_the_events_are_read() {
    let place = Place::new("lossy", ChannelConfig::new("main").sub_buffers(2, 4096).discard());
    (0..10_000u64).for_each(|number| event!(lossy, "tick", number = number));
    let text = place.read("trace");
    let kept = numbers(&text);
    text.has(&format!("entries-in-buffer/entries-written: {}/10000 ", kept.len()));
    assert!(
        text.lines().any(|line| line.starts_with('#') && line.contains("discarded")),
        "{}",
        &text[..800]
    );
    // A CPU's header counts the events of that CPU.
    let mut written = 0;
    for (cpu, _) in place.tree.list("per_cpu").unwrap() {
        let text = place.read(&format!("per_cpu/{cpu}/trace"));
        let counts = text.split_once("entries-written: ").unwrap().1.split(' ').next().unwrap();
        let (there, all) = counts.split_once('/').unwrap();
        assert_eq!(there.parse(), Ok(numbers(&text).len()));
        written += all.parse::<u64>().unwrap();
    }
    assert_eq!(written, 10_000);
    let pipe = place.read("trace_pipe");
    assert_eq!(numbers(&pipe), kept);
    let lost = |line: &str| line.split_once("[LOST ")?.1.split(' ').next()?.parse::<usize>().ok();
    assert_eq!(pipe.lines().filter_map(lost).sum::<usize>() + kept.len(), 10_000, "{pipe}");
    let stats = place.stats();
    let dropped = stats
        .lines()
        .filter_map(|line| line.strip_prefix("dropped events: ")?.parse::<usize>().ok());
    assert_eq!(dropped.sum::<usize>() + kept.len(), 10_000, "{stats}");
}

#[test]
fn what_was_overwritten_is_not_known() {
    let place = Place::new("over", ChannelConfig::new("main").sub_buffers(2, 4096));
    event!(over, "tick", number = 0u64);
    place.read("trace").has("entries-in-buffer/entries-written: 1/1 ");
    (0..10_000u64).for_each(|number| event!(over, "tick", number = number));
    let text = place.read("trace");
    text.has(&format!("entries-in-buffer/entries-written: {}/? ", numbers(&text).len()));
    assert_eq!(numbers(&place.read("trace_pipe")), numbers(&text));
    (0..10_000u64).for_each(|number| event!(over, "tick", number = number));
    let stats = place.stats();
    stats.has("overrun: ?\n");
    let pipe = place.read("trace_pipe");
    pipe.has("[LOST ? EVENTS] channel main: overwritten-unread, ");
    assert_eq!(numbers(&pipe).last(), Some(&9999));
}

#[test]
fn a_session_that_another_consumes_is_busy() {
    let place = Place::new("busy", ChannelConfig::new("main"));
    event!(busy, "tick", number = 1u64);
    let handle = Handle::open(&place.folder).unwrap();
    let consumer = handle.consume_live().unwrap();
    let file = place.tree.open("trace_pipe", READ).unwrap();
    assert_eq!(file.read(0, 100, true, &|| false), Err(Errno::BUSY));
    drop(consumer);
    assert_eq!(
        numbers(&String::from_utf8(file.read(0, 1000, true, &|| false).unwrap()).unwrap()),
        [1]
    );
    assert_eq!(
        (place.write("snapshot", "1"), place.write("snapshot", "x")),
        (Ok(1), Err(Errno::INVAL))
    );
    let reader = handle.read_snapshot().unwrap();
    assert_eq!(place.write("snapshot", "1"), Err(Errno::BUSY));
    assert_eq!(place.write("snapshot", "0"), Err(Errno::BUSY));
    drop(reader);
    assert_eq!(place.write("snapshot", "0"), Ok(1));
}

#[test]
fn rules_are_read_back() {
    let place = Place::new("rules", ChannelConfig::new("main"));
    event!(rules, "one", number = 1u64);
    event!(rules, "two [x]*", number = 2u64);
    let enables =
        || ["events/rules/one/enable", "events/rules/two [x]*/enable"].map(|path| place.read(path));
    assert_eq!(enables(), ["1\n", "1\n"]);
    place.write("events/rules/two [x]*/enable", "0").unwrap();
    assert_eq!(enables(), ["1\n", "0\n"]);
    assert_eq!(
        (place.read("set_event"), place.read("events/rules/enable")),
        ("rules:one\n".into(), "X\n".into())
    );
    drop(place.tree.open("set_event", TRUNCATE).unwrap());
    assert_eq!(enables(), ["0\n", "0\n"]);
    place.write("set_event", "one rules:two*").unwrap();
    assert_eq!(enables(), ["1\n", "1\n"]);
    assert_eq!(place.write("set_event", "!one nobody"), Err(Errno::INVAL));
    assert_eq!(enables(), ["0\n", "1\n"], "the words before the wrong one are followed");
    // The list of rules has room for 64, and says so when it is full.
    let results: Vec<_> =
        (0..70).map(|n| place.write("set_event", &format!("rules:[o{n}]ne"))).collect();
    assert!(results.contains(&Err(Errno::NOSPC)));
    place.read("error_log").has("no room for another rule: 64 is the most");
    assert_eq!(place.write("events/enable", "1"), Ok(1), "which drops all others");
    drop(place.tree.open("trace", TRUNCATE).unwrap());
    // Other tests of this process record at the same time, and all their events are enabled now.
    place.read("trace").lacks("rules:one").lacks("rules:two");
}

/// Runs `record` on each CPU that this thread may use; their numbers.
fn on_each_cpu(record: impl Fn(u32)) -> Vec<u32> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let all = sched_getaffinity(None).unwrap();
    let cpus: Vec<u32> = (0..1024).filter(|cpu| all.is_set(*cpu)).map(|cpu| cpu as u32).collect();
    for cpu in &cpus {
        let mut one = CpuSet::new();
        one.set(*cpu as usize);
        sched_setaffinity(None, &one).unwrap();
        record(*cpu);
    }
    sched_setaffinity(None, &all).unwrap();
    cpus
}

#[test]
fn a_cpu_has_its_events_and_is_cleared_alone() {
    let place = Place::new("percpu", ChannelConfig::new("main"));
    let record = || on_each_cpu(|cpu| event!(percpu, "tick", number = u64::from(cpu)));
    let cpus = record();
    for cpu in &cpus {
        assert_eq!(numbers(&place.read(&format!("per_cpu/cpu{cpu}/trace"))), [u64::from(*cpu)]);
    }
    let first = format!("per_cpu/cpu{}", cpus[0]);
    drop(place.tree.open(&format!("{first}/trace"), TRUNCATE).unwrap());
    let rest: Vec<u64> = cpus[1..].iter().map(|cpu| u64::from(*cpu)).collect();
    assert_eq!(numbers(&place.read("trace")), rest);
    // A snapshot of one CPU leaves the others live.
    record();
    place.write(&format!("{first}/snapshot"), "1").unwrap();
    assert_eq!(numbers(&place.read("snapshot")), [u64::from(cpus[0])]);
    assert_eq!(numbers(&place.read(&format!("{first}/snapshot"))), [u64::from(cpus[0])]);
    assert_eq!(numbers(&place.read("trace")), [rest.clone(), rest].concat());
    assert_eq!(place.write(&format!("{first}/snapshot"), "0"), Err(Errno::INVAL));
    assert_eq!(place.tree.entry("per_cpu/cpu9999"), Err(Errno::NOENT));
}

/// The number in a record that has one field, of 8 bytes, after the 8 bytes of the common fields.
fn number_in(record: &[u8]) -> u64 {
    u64::from_ne_bytes(record[8..16].try_into().unwrap())
}

#[test]
fn pages_tell_their_losses() {
    let place = Place::new("lossyraw", ChannelConfig::new("main").sub_buffers(2, 4096).discard());
    (0..10_000u64).for_each(|number| event!(lossyraw, "tick", number = number));
    let kept = numbers(&place.read("trace"));
    let (records, missed) = place.records("trace_pipe_raw");
    let mut found: Vec<u64> = records.iter().map(|(_, record)| number_in(record)).collect();
    found.sort_unstable();
    assert_eq!(found, kept);
    assert_eq!(missed, Some(10_000 - kept.len() as u64));
    assert_eq!(numbers(&place.read("trace_pipe")), [0u64; 0], "each event is returned once");
    let text = "x".repeat(6000);
    event!(lossyraw, "large", text = text.as_str());
    event!(lossyraw, "tick", number = 1u64);
    let (records, missed) = place.records("trace_pipe_raw");
    assert_eq!(
        (records.len(), missed),
        (1, Some(1)),
        "a record of 6000 bytes is on no page of 4096"
    );
}

#[test]
fn pages_of_a_snapshot_are_read_again() {
    let place = Place::new("snapraw", ChannelConfig::new("main").sub_buffers(4, 1 << 16));
    assert_eq!(place.records("snapshot_raw"), (vec![], Some(0)));
    (0..300u64).for_each(|number| event!(snapraw, "tick", number = number));
    let text = "x".repeat(6000);
    event!(snapraw, "large", text = text.as_str());
    place.write("snapshot", "1").unwrap();
    event!(snapraw, "tick", number = 300u64);
    for (size, large) in [("4", 0), ("8", 1), ("7", 1)] {
        place.write("buffer_subbuf_size_kb", size).unwrap();
        let (records, missed) = place.records("snapshot_raw");
        assert_eq!((records.len(), missed), (300 + large, Some(1 - large as u64)));
    }
    place.read("events/header_page").ends("field: char data;\toffset:16;\tsize:8176;\tsigned:0;\n");
    for wrong in ["0", "129", "x", "18014398509481984"] {
        assert_eq!(place.write("buffer_subbuf_size_kb", wrong), Err(Errno::INVAL), "{wrong}");
    }
    let (records, _) = place.records("trace_pipe_raw");
    assert_eq!(records.iter().map(|(_, record)| number_in(record)).collect::<Vec<_>>(), [300]);
}

#[test]
fn a_reader_who_waits_waits_until_the_ring_is_full_enough() {
    let place = Place::new("percent", ChannelConfig::new("main").sub_buffers(4, 4096));
    let record = |count: u64| {
        on_each_cpu(|_| (0..count).for_each(|number| event!(percent, "tick", number = number)))
    };
    let first = format!("per_cpu/cpu{}/trace_pipe_raw", record(20)[0]);
    assert_eq!(
        (place.read("buffer_percent"), place.write("buffer_percent", "50\n")),
        ("0\n".into(), Ok(3))
    );
    for wrong in ["101", "-1", "x", "0x10"] {
        assert_eq!(place.write("buffer_percent", wrong), Err(Errno::INVAL), "{wrong}");
    }
    assert_eq!(place.read("buffer_percent"), "50\n");
    let file = place.tree.open(&first, READ).unwrap();
    let looks = std::cell::Cell::new(0);
    let read = |waits| {
        looks.set(0);
        file.read(0, 4096, waits, &|| looks.replace(looks.get() + 1) > 3)
    };
    assert_eq!(read(true), Err(Errno::INTR), "20 records of 16 bytes are less than half of 16 KiB");
    record(600);
    let pages =
        std::iter::from_fn(|| read(true).ok()).inspect(|page| assert_eq!(page.len(), 4096)).count();
    assert!(pages >= 3, "what is there is read to its end: {pages} pages");
    record(20);
    assert_eq!(read(true), Err(Errno::INTR));
    assert_eq!(
        read(false).map(|page| page.len()),
        Ok(4096),
        "a reader who does not wait has what is there"
    );
    record(20);
    place.write("buffer_percent", "0").unwrap();
    assert_eq!(read(true).map(|page| page.len()), Ok(4096));
}

fn generic<T: lastwords::Field>(number: T) {
    event!(kinds, "one", number = number);
}

#[test]
fn kinds_of_one_name_have_folders_and_numbers_of_their_own() {
    let place = Place::new("kinds", ChannelConfig::new("main"));
    generic(1u8);
    generic(2u64);
    generic(3i32);
    let names: Vec<String> =
        place.tree.list("events/kinds").unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["enable", "filter", "one", "one~2", "one~3"]);
    assert_eq!(place.read("available_events"), "kinds:one\n");
    let (records, _) = place.records("trace_pipe_raw");
    let fields = [
        "u8 number;\toffset:8;\tsize:1",
        "u64 number;\toffset:8;\tsize:8",
        "s32 number;\toffset:8;\tsize:4",
    ];
    for ((id, record), (folder, field)) in
        records.iter().zip(["one", "one~2", "one~3"].into_iter().zip(fields))
    {
        assert_eq!(place.read(&format!("events/kinds/{folder}/id")), format!("{id}\n"));
        let format = place.read(&format!("events/kinds/{folder}/format"));
        format.has(&format!("\nID: {id}\n")).has(field);
        assert_eq!(record.len() % 4, 0);
    }
    assert_eq!(records.iter().map(|(_, record)| record[8]).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_snapshot_is_consumed_by_its_pipe() {
    let place = Place::new("snappipe", ChannelConfig::new("main"));
    assert_eq!(place.read("snapshot_enabled"), "0\n");
    let file = place.tree.open("snapshot_pipe", READ).unwrap();
    assert_eq!(file.read(0, 100, false, &|| false), Err(Errno::AGAIN), "there is no snapshot");
    place.write("snapshot_enabled", "1").unwrap();
    assert_eq!(place.read("snapshot_enabled"), "1\n");
    place.read("snapshot").has("# * Snapshot is allocated *\n");
    (0..100u64).for_each(|number| event!(snappipe, "tick", number = number));
    place.write("snapshot", "1").unwrap();
    event!(snappipe, "tick", number = 100u64);
    let all: Vec<u64> = (0..100).collect();
    assert_eq!(numbers(&place.read("snapshot")), all);
    let begin = file.read(0, 1000, true, &|| false).unwrap();
    let text = String::from_utf8(begin).unwrap() + &place.read("snapshot_pipe");
    assert_eq!(numbers(&text), all);
    assert_eq!(file.read(0, 100, true, &|| false), Ok(vec![]), "the end of the snapshot");
    assert!(
        place.read("snapshot").contains("# * Snapshot is allocated *\n"),
        "nothing is left of it"
    );
    assert_eq!(numbers(&place.read("trace_pipe")), [100]);
    place.write("snapshot_enabled", "0").unwrap();
    place.read("snapshot").has("# * Snapshot is freed *\n");
    assert_eq!(place.write("snapshot_enabled", "2"), Err(Errno::INVAL));
}

#[test]
fn threads_have_names_and_processes() {
    let place = Place::new("threads", ChannelConfig::new("main"));
    event!(threads, "one", number = 1u64);
    let (pid, tid) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero());
    let tgids = place.read("saved_tgids");
    for id in [pid.to_string(), tid.to_string()] {
        assert!(tgids.lines().any(|line| line == format!("{id} {pid}")), "{tgids}");
    }
    let size = place.read("saved_cmdlines_size");
    assert!(size.trim().parse::<u32>().is_ok_and(|size| size > 0), "{size}");
    assert_eq!(place.write("saved_cmdlines_size", "9999"), Err(Errno::OPNOTSUPP));
}
