//! Tests of counters and histograms: the numbers in the session's memory are the sums of what
//! threads, processes and forked children added, also after a kill.

use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use crate::common::{
    child_dir, end_of, folder, fork, kill_self, only_session, spawn, wait, with_main,
};
use lastwords::{Builder, Counter, Histogram, Scope, counter, histogram};
use lastwords_testkit::checksum::checksum;
use lastwords_testkit::counters::{self, Numbers};
use lastwords_testkit::layout::counters as l;
use lastwords_testkit::put::Order;

fn builder(name: &str, dir: &Path) -> Builder {
    with_main(name, dir).counters(8).histograms(2)
}

/// The numbers of a session's tables, every entry of which has a name.
fn read(folder: &Path) -> Numbers {
    let file = std::fs::read(folder.join("counters")).expect("the table");
    let found = counters::read(&file, Order::Little).expect("sound tables");
    assert_eq!(found.unnamed, 0);
    found
}

#[test]
fn numbers_are_sums_of_what_was_added() {
    alone!(in dir);
    static SAME: Counter = Counter::with_labels("requests", &[("code", "200")]);
    let add = |n: u64| {
        counter!("plain");
        counter!("bytes", n * 10);
        counter!("requests", code = "200");
        SAME.add(2);
        counter!("typed", 3, r#type = "x", path = "/");
        histogram!("sizes", n);
        histogram!("sizes", n + 100);
    };
    // Nothing is counted without a session, nor in one without tables.
    add(1);
    let without = with_main("none", dir.path()).start();
    let without = without.expect("a session");
    add(1);
    assert!(!folder(&without).join("counters").exists());
    let session = builder("sums", dir.path()).start().expect("a session");
    (1..=4).for_each(add);
    let found = read(&folder(&session));
    let counters =
        [("bytes", 100), ("plain", 4), ("requests|code|200", 12), ("typed|type|x|path|/", 12)];
    let named = |(name, value): (&str, u64)| (name.to_owned(), value);
    assert_eq!(found.counters, counters.into_iter().map(named).collect());
    // 101 to 103 are in the bucket of 96 to 103, 104 is in the next.
    let buckets = vec![(1, 1), (2, 1), (3, 1), (4, 1), (96, 3), (104, 1)];
    assert_eq!(found.histograms["sizes"], (buckets, 10 + 410, 8));
    assert_eq!((found.lost, found.used), ([0, 0], [4, 1]));
    // A stopped session counts, one that has ended does not.
    let old = folder(&session);
    drop(session);
    add(1);
    assert_eq!(read(&old), found);
    let again = builder("sums", dir.path()).start().expect("a session");
    add(7);
    assert_eq!(read(&folder(&again)).counters["bytes"], 70);
    assert_eq!(read(&old), found);
}

#[test]
fn several_sessions_have_all_numbers_and_a_full_table_counts_what_it_lacks() {
    alone!(in dir);
    let first = builder("first", dir.path()).start().expect("a session");
    let add = || {
        counter!("a");
        counter!("b", 5);
        histogram!("h1", 3);
        histogram!("h2", u64::MAX);
        histogram!("h3", 4);
    };
    add();
    let second = builder("second", dir.path()).counters(1).start().expect("a session");
    add();
    add();
    let (one, two) = (read(&folder(&first)), read(&folder(&second)));
    assert_eq!((one.counters["a"], one.counters["b"], one.lost), (3, 15, [0, 3]));
    assert_eq!((two.counters["a"], two.counters.len(), two.lost), (2, 1, [2, 2]));
    assert_eq!(two.histograms["h2"], (vec![(15 << 60, 2)], u64::MAX.wrapping_mul(2), 2));
    drop(second);
    add();
    assert_eq!(read(&folder(&first)).counters["b"], 20);
}

/// Adds in four threads. Returns what was added.
fn add_much(rounds: u64) -> (u64, u64) {
    static HERE: Counter = Counter::new("everywhere");
    static SIZES: Histogram = Histogram::new("sizes");
    std::thread::scope(|scope| {
        for thread in 1..=4 {
            scope.spawn(move || {
                for n in 0..rounds {
                    HERE.add(thread);
                    SIZES.record(n);
                }
            });
        }
    });
    (10 * rounds, 4 * rounds)
}

#[test]
fn child_adds() {
    let Some(dir) = child_dir() else { return };
    let _session = builder("shared", &dir).scope(Scope::User).start().expect("it joins");
    add_much(5000);
    kill_self();
}

#[test]
fn threads_and_killed_processes_add_to_the_same_numbers() {
    alone!(in dir);
    let builder = builder("shared", dir.path()).histograms(8).scope(Scope::User);
    let session = builder.start().expect("a session");
    let children: Vec<_> = (0..3).map(|_| spawn("child_adds", dir.path(), &[])).collect();
    let (sum, count) = add_much(5000);
    for mut child in children {
        assert!(!child.wait().expect("it ends").success());
    }
    let found = read(&only_session(dir.path()));
    assert_eq!(found.counters["everywhere"], 4 * sum);
    let (buckets, _, whole) = &found.histograms["sizes"];
    assert_eq!((*whole, found.lost), (4 * count, [0, 0]));
    assert_eq!(buckets.iter().map(|(_, values)| values).sum::<u64>(), 4 * count);
    drop(session);
}

#[test]
fn child_forks() {
    let Some(dir) = child_dir() else { return };
    let _session = builder("forks", &dir).start().expect("a session");
    counter!("before");
    let add = || (0..1000).for_each(|_| counter!("both"));
    let child = fork(|| {
        add();
        counter!("child", 7);
        kill_self()
    });
    add();
    wait(child);
    kill_self();
}

#[test]
fn a_forked_child_adds_to_the_numbers_of_its_parent() {
    alone!(in dir);
    let status = end_of("child_forks", dir.path(), &[]);
    assert!(!status.success());
    let found = read(&only_session(dir.path()));
    let value = |name: &str| found.counters[name];
    assert_eq!((value("before"), value("both"), value("child")), (1, 2000, 7));
}

#[test]
fn child_starts() {
    let Some(dir) = child_dir() else { return };
    // SAFETY: no other thread of this process uses the environment.
    unsafe { std::env::set_var("LASTWORDS_DIR", &dir) };
    lastwords::start("usual");
    counter!("usual", 3);
    histogram!("usual", 3);
    kill_self();
}

#[test]
fn a_session_of_one_call_has_room() {
    alone!(in dir);
    end_of("child_starts", dir.path(), &[]);
    let found = read(&only_session(dir.path()));
    assert_eq!(found.counters["usual"], 3);
    assert_eq!(found.histograms["usual"], (vec![(3, 1)], 3, 1));
}

/// What a child that is stepped says: increments begun, and increments that have returned.
#[repr(C)]
struct Said {
    begun: AtomicU64,
    done: AtomicU64,
}

/// Values of the histogram, one for each increment.
fn value(n: u64) -> u64 {
    n * n
}

/// Increments after the first, which enters the names in the tables.
const STEPPED: u64 = 6;

/// Steps a child through its increments, one instruction after the other. What is in shared memory
/// at a step is what a kill at this step leaves: of each increment all or nothing, and of each value
/// what the order of its three additions allows.
#[test]
fn a_kill_at_each_instruction_loses_at_most_the_increment_in_flight() {
    alone!(in dir);
    let session = builder("stepped", dir.path()).listen(false).start().expect("a session");
    let folder = folder(&session);
    let table = std::fs::File::open(folder.join("counters")).expect("the table");
    let len = table.metadata().expect("its size").len() as usize;
    let map = |len: usize, protection: i32, flags: i32, file: i32| {
        // SAFETY: new mappings, which stay.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED | flags, file, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        at
    };
    let page = map(4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_ANONYMOUS, -1);
    // SAFETY: the page is zeroed and large enough, and is used through atomics.
    let said = unsafe { &*page.cast::<Said>() };
    let table = map(len, libc::PROT_READ, 0, table.as_raw_fd()).cast::<u8>();
    let nothing = std::ptr::null_mut::<libc::c_void>();
    let child = fork(|| {
        // SAFETY: the calls involve no memory.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, nothing, nothing);
            libc::raise(libc::SIGSTOP);
        }
        for n in 1..=STEPPED {
            said.begun.store(n, SeqCst);
            counter!("stepped");
            histogram!("stepped", value(n));
            said.done.store(n, SeqCst);
        }
        kill_self()
    });
    let (mut steps, mut changes, mut in_flight, mut last) = (0u64, 0u64, 0u64, [0; 2]);
    let (mut before, mut now) = (Vec::new(), vec![0; len]);
    loop {
        let status = wait(child);
        if libc::WIFSIGNALED(status) {
            break;
        }
        assert!(libc::WIFSTOPPED(status), "{status:#x}");
        // SAFETY: the mapping has so many bytes, and the child, which writes them, is stopped.
        unsafe { std::ptr::copy_nonoverlapping(table, now.as_mut_ptr(), len) };
        let numbers = [said.begun.load(SeqCst), said.done.load(SeqCst)];
        // Most instructions change nothing.
        if before != now || last != numbers {
            in_flight += u64::from(judge_step(&now, numbers, steps));
            (last, changes) = (numbers, changes + 1);
            before.clone_from(&now);
        }
        steps += 1;
        // SAFETY: the child is stopped.
        let stepped = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, nothing, nothing) };
        assert_eq!(stepped, 0, "{}", std::io::Error::last_os_error());
    }
    assert_eq!(said.done.load(SeqCst), STEPPED);
    // Each addition was a step of its own: begun, counter, bucket, sum, count, done.
    let seen = format!("{steps} steps, {changes} changes, {in_flight} in flight");
    assert!(changes >= 6 * STEPPED && in_flight == 2 * STEPPED, "{seen}");
    drop(session);
}

/// Judges the tables at a step. Returns true if a value was in flight.
fn judge_step(file: &[u8], [begun, done]: [u64; 2], step: u64) -> bool {
    let word = |at: usize| u64::from_ne_bytes(file[at..at + 8].try_into().expect("eight bytes"));
    let counter = l::ENTRIES_AT;
    let histogram = l::ENTRIES_AT + 8 * l::ENTRY_LEN;
    for at in [counter, histogram] {
        let named = checksum(&file[at + l::KIND_AT..at + l::COUNT_AT]);
        let check = word(at + l::CHECK_AT);
        assert!(check == 0 || check == named, "step {step}: a name without its checksum");
        assert!(check != 0 || word(at + l::VALUE_AT) == 0, "step {step}: a value without a name");
    }
    let counted = word(counter + l::VALUE_AT);
    assert!((done..=begun).contains(&counted), "step {step}: {counted}, {done} to {begun}");
    let buckets: u64 = (0..l::BUCKETS).map(|n| word(histogram + l::BUCKETS_AT + 8 * n)).sum();
    let (count, sum) = (word(histogram + l::COUNT_AT), word(histogram + l::VALUE_AT));
    let sum_of = |values: u64| (1..=values).map(value).sum::<u64>();
    assert!(
        done <= count && count <= buckets && buckets <= begun,
        "step {step}: {count}, {buckets}"
    );
    assert!(sum == sum_of(count) || sum == sum_of(buckets), "step {step}: {sum}");
    buckets > count
}
