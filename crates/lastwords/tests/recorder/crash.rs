//! Tests what is recorded when a process dies of a signal or a panic, and that it dies as it would
//! have done without us.

use lastwords_testkit::text::Text as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use crate::common::child_dir;
use crate::support;
use crate::support::{child, lines};
use lastwords::{ChannelConfig, Session, crash, event};

fn begin(dir: &Path) -> Session {
    let channel = ChannelConfig::new("main").contexts(lastwords::Context::NONE);
    let session = Session::builder("crash").dir(dir).channel(channel).start().expect("a session");
    crash::install_signal_handlers(&crash::FATAL).expect("handlers");
    crash::install_panic_hook();
    event!(test, "alive");
    session
}

/// Returns the only line with this beginning.
fn one(folder: &Path, start: &str) -> String {
    let shown = lines(folder);
    assert_eq!(shown[0], "test:alive");
    let found: Vec<&String> = shown.iter().filter(|line| line.starts_with(start)).collect();
    assert_eq!(found.len(), 1, "{shown:?}");
    found[0].clone()
}

/// Returns the addresses of the backtrace in a line.
fn frames(line: &str) -> Vec<u64> {
    let list = line.rsplit_once('[').expect("a backtrace").1.trim_end_matches(']');
    list.split(' ')
        .map(|a| u64::from_str_radix(a.trim_start_matches("0x"), 16).expect("an address"))
        .collect()
}

#[inline(never)]
fn fault(address: usize) {
    let address = std::hint::black_box(address);
    // SAFETY: this is not sound on purpose, because the process must die of it.
    unsafe { std::ptr::with_exposed_provenance_mut::<u8>(address).write_volatile(1) };
}

#[test]
fn segv() {
    alone!();
    let ended = ended!(dir, {
        let _session = begin(&dir);
        fault(0x40)
    });
    assert_eq!(ended.status.signal(), Some(libc::SIGSEGV));
    let line = one(&ended.folder, "crash:signal");
    line.has("signal=SIGSEGV code=1 address=0x40 pid=");
    line.has(" thread=crash::segv pc=0x");
    let frames = frames(&line);
    assert!(frames.len() >= 3, "{line}");
    let pc = line.split(" pc=0x").nth(1).and_then(|rest| rest.split(' ').next()).expect("a pc");
    assert_eq!(frames[0], u64::from_str_radix(pc, 16).expect("hex"));
    // Every address is in a module that the registry names.
    let modules: Vec<(u64, u64, String)> = support::records(&ended.folder)
        .iter()
        .filter(|(kind, _)| *kind == 3)
        .map(|(_, body)| {
            let word =
                |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().expect("eight bytes"));
            let path_at = 30 + usize::from(u16::from_ne_bytes([body[28], body[29]])) + 2;
            (word(12), word(20), String::from_utf8_lossy(&body[path_at..]).into_owned())
        })
        .collect();
    let module_of = |pc: &u64| modules.iter().find(|(start, end, _)| (start..end).contains(&pc));
    assert!(frames.iter().all(|pc| module_of(pc).is_some()), "{line} {modules:x?}");
    let own = std::env::current_exe().expect("a path");
    assert_eq!(
        module_of(&frames[0]).map(|module| module.2.as_str()),
        own.to_str(),
        "this program faulted"
    );
}

#[test]
fn abort_in_a_thread() {
    alone!();
    let ended = ended!(dir, {
        let _session = begin(&dir);
        let thread =
            std::thread::Builder::new().name("doomed".into()).spawn(|| std::process::abort());
        drop(thread.map(std::thread::JoinHandle::join));
    });
    assert_eq!(ended.status.signal(), Some(libc::SIGABRT));
    let line = one(&ended.folder, "crash:signal");
    line.has("signal=SIGABRT").has(" thread=doomed ");
    assert!(frames(&line).len() >= 3, "{line}");
}

#[test]
fn signals_that_are_sent() {
    alone!();
    // SIGSEGV and SIGBUS are left out: the standard library's handlers catch the first one that is
    // sent and do nothing.
    const SIGNALS: [i32; 2] = [libc::SIGILL, libc::SIGFPE];
    if let Some(dir) = child_dir() {
        let _session = begin(&dir);
        let which: usize = std::fs::read_to_string(dir.join("which"))
            .expect("a number")
            .parse()
            .expect("a number");
        // SAFETY: the call involves no memory.
        unsafe { libc::raise(SIGNALS[which]) };
        return;
    }
    for (which, signal) in SIGNALS.iter().enumerate() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("which"), which.to_string()).expect("written");
        let (status, folder) = child("signals_that_are_sent", dir.path());
        assert_eq!(status.signal(), Some(*signal));
        assert!(one(&folder, "crash:signal").contains(["SIGILL", "SIGFPE"][which]));
    }
}

#[inline(never)]
#[allow(unconditional_recursion, reason = "meant")]
fn deeper(n: u64) -> u64 {
    let room = std::hint::black_box([n; 64]);
    deeper(n + 1) + room[3]
}

#[test]
fn stack_overflow() {
    alone!();
    let ended = ended!(dir, {
        let _session = begin(&dir);
        let small = std::thread::Builder::new().stack_size(256 << 10).spawn(|| deeper(0));
        drop(small.map(std::thread::JoinHandle::join));
    });
    // The standard library's handler was installed before. It prints "stack overflow" and aborts.
    assert!(ended.status.signal().is_some(), "{}", ended.status);
    let shown = lines(&ended.folder);
    let segv = shown.iter().find(|line| line.contains("signal=SIGSEGV")).expect("the fault");
    assert!(frames(segv).len() > 10, "{segv}");
}

extern "C" fn own_handler(_: libc::c_int) {
    event!(test, "own handler");
    // SAFETY: the call ends the process.
    unsafe { libc::_exit(42) };
}

#[test]
fn the_previous_handler_is_called() {
    alone!();
    let ended = ended!(dir, {
        die_by(libc::SIGFPE, own_handler, 0, &dir);
    });
    assert_eq!(ended.status.code(), Some(42));
    one(&ended.folder, "crash:signal").has("SIGFPE");
    assert_eq!(lines(&ended.folder).last().map(String::as_str), Some("test:own handler"));
}

/// Installs this handler with these flags, begins a session, and raises the signal.
fn die_by(
    signal: libc::c_int,
    handler: extern "C" fn(libc::c_int),
    flags: libc::c_int,
    dir: &Path,
) {
    // SAFETY: zeroes are an action; the handler has the type for an action without SA_SIGINFO.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = flags;
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
    let _session = begin(dir);
    // SAFETY: the call involves no memory.
    unsafe { libc::raise(signal) };
}

/// Needs more room than the alternate stacks that the standard library gives to threads.
extern "C" fn large_handler(_: libc::c_int) {
    let room = std::hint::black_box([7u8; 64 << 10]);
    // SAFETY: the call ends the process.
    unsafe { libc::_exit(i32::from(room[room.len() / 2])) };
}

/// A handler that was installed for the thread's own stack runs there.
#[test]
fn the_previous_handler_has_the_stack_that_it_expects() {
    alone!();
    if let Some(dir) = child_dir() {
        let which = std::fs::read_to_string(dir.join("which")).expect("a number");
        die_by(which.parse().expect("a number"), large_handler, 0, &dir);
    }
    for signal in crash::FATAL {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("which"), signal.to_string()).expect("written");
        let (status, folder) =
            child("the_previous_handler_has_the_stack_that_it_expects", dir.path());
        assert_eq!(status.code(), Some(7), "signal {signal}: {status}");
        one(&folder, "crash:signal");
    }
}

extern "C" fn returning_handler(_: libc::c_int) {
    event!(test, "own handler");
}

/// A handler that was to be called once is called once, and then the process dies of the signal.
#[test]
fn a_handler_for_one_signal_is_called_once() {
    alone!();
    let ended = ended!(dir, {
        die_by(libc::SIGFPE, returning_handler, libc::SA_RESETHAND, &dir);
        // SAFETY: the call involves no memory.
        unsafe { libc::raise(libc::SIGFPE) };
    });
    assert_eq!(ended.status.signal(), Some(libc::SIGFPE), "{}", ended.status);
    one(&ended.folder, "crash:signal");
    one(&ended.folder, "test:own handler");
}

#[test]
fn a_call_to_nowhere() {
    alone!();
    let ended = ended!(dir, {
        let _session = begin(&dir);
        // SAFETY: this is not sound on purpose, because the process must die of it.
        let nowhere: extern "C" fn() =
            unsafe { std::mem::transmute(std::hint::black_box(0x10usize)) };
        nowhere()
    });
    assert_eq!(ended.status.signal(), Some(libc::SIGSEGV));
    let line = one(&ended.folder, "crash:signal");
    line.has(" pc=0x10 ");
    // The caller is found by the return address that the call pushed.
    assert!(frames(&line).len() >= 2, "{line}");
}

#[test]
fn a_panic_that_kills() {
    alone!();
    let ended = ended!(dir, {
        let _session = begin(&dir);
        let n = std::hint::black_box(7);
        panic!("the number is {n}");
    });
    assert_eq!(ended.status.code(), Some(101));
    let line = one(&ended.folder, "crash:panic");
    line.starts("crash:panic message=\"the number is 7\" location=\"");
    line.has("crash.rs:").has(" thread=\"crash::a_panic_that_kills\" ");
    assert!(frames(&line).len() >= 3, "{line}");
}

/// Uses channels from one that has room for the whole panic to one that has room for little more
/// than the name.
#[test]
fn a_panic_with_a_very_long_message() {
    alone!();
    const SIZES: [u64; 4] = [1 << 20, 16 << 10, 1024, 512];
    let message = "è".repeat(100_000);
    let ended = ended!(dir, {
        let channel = |size: &u64| {
            ChannelConfig::new(format!("of_{size}"))
                .contexts(lastwords::Context::ALL)
                .sub_buffers(4, *size)
        };
        let builder = Session::builder("crash").dir(&dir);
        let _session = SIZES
            .iter()
            .fold(builder, |b, size| b.channel(channel(size)))
            .start()
            .expect("a session");
        crash::install_panic_hook();
        panic!("{message}");
    });
    let lines = support::channel_lines(&ended.folder, 28);
    let mut kept: Vec<(u32, usize)> =
        lines.iter().map(|(channel, _, line)| (*channel, line.matches('è').count())).collect();
    kept.sort_unstable();
    assert_eq!(kept.len(), SIZES.len(), "{kept:?}");
    assert!(kept[0] == (0, 100_000) && kept[1].1 > 7_000 && kept[2].1 > 100, "{kept:?}");
    for (channel, _, line) in &lines {
        line.starts("crash:panic message=\"").has("crash.rs:");
        assert!(!frames(line).is_empty(), "{line}");
        let told = format!("({} bytes were cut off)\"", 200_000 - 2 * kept[*channel as usize].1);
        assert_eq!(line.contains(&told), *channel > 0, "{line}");
    }
}

#[test]
fn other_signals_are_refused() {
    alone!();
    let error = crash::install_signal_handlers(&[libc::SIGTERM]).expect_err("refused");
    assert!(error.to_string().contains("15"), "{error}");
}
