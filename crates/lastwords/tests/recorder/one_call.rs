//! Tests `lastwords::start` in programs as people have them: what becomes of their subscriber,
//! logger, panic hook and signal handlers, and what is known of their death.
#![cfg(feature = "tracing")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use crate::common::{kill_self, only_session, test_of_this_module};
use crate::support::channel_lines;
use lastwords::{Ending, event};
use tracing::{error, info, info_span};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

/// Name of the variable that says what a child does.
const HOW: &str = "LASTWORDS_TEST_HOW";
/// What stderr says of a program whose subscriber lacks the layer.
const ADD: &str = "lastwords: `tracing` is not recorded; add the layer to the program's subscriber";

/// A child that has ended.
struct Died {
    status: ExitStatus,
    stdout: String,
    stderr: String,
    /// The events of the channel `main`.
    lines: Vec<String>,
    how: Ending,
    panics: u32,
}

/// Runs a test of this module, until it ends, as a program that records in `dir`.
fn run_in(dir: &Path, name: &str, how: &str) -> (ExitStatus, String, String) {
    let child = test_of_this_module(name)
        .env("LASTWORDS_DIR", dir)
        .env(HOW, how)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .expect("the child starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (child.status, text(child.stdout), text(child.stderr))
}

fn run(name: &str, how: &str) -> Died {
    let dir = tempfile::tempdir().expect("a folder");
    let (status, stdout, stderr) = run_in(dir.path(), name, how);
    let folder = only_session(dir.path());
    let found = lastwords_control::list(Some(dir.path())).expect("the folder is listed");
    let details = found[0].details.as_ref().expect("readable");
    // The default context of the channel is the thread's id.
    let main = channel_lines(&folder, 4).into_iter().filter(|(channel, ..)| *channel == 0);
    let lines = main.map(|(_, _, line)| line).collect();
    let how = details.ended.expect("it ended").how;
    Died { status, stdout, stderr, lines, how, panics: details.panics }
}

fn how() -> Option<String> {
    std::env::var(HOW).ok()
}

/// Makes the layer of `fmt`.
fn plain<S: tracing::Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    fmt::layer().without_time().with_ansi(false)
}

/// A program that logs, and is killed in a span.
#[test]
fn child_logs() {
    let Some(how) = how() else { return };
    if how == "fmt, start" || how == "fmt, start, init" {
        fmt().without_time().with_ansi(false).init();
    }
    if how == "layers, start" {
        registry().with(plain()).with(lastwords::layer()).init();
    }
    lastwords::start("shop");
    match how.as_str() {
        "start, fmt" => fmt().without_time().with_ansi(false).init(),
        "start, layers" => registry().with(lastwords::layer()).with(plain()).init(),
        "start, fmt with the layer" => {
            fmt().without_time().with_ansi(false).finish().with(lastwords::layer()).init();
        }
        "start, a filter of fmt" => {
            let shown = plain().with_filter(EnvFilter::new("error"));
            registry().with(shown).with(lastwords::layer()).init();
        }
        "start, a filter of all" => {
            registry().with(EnvFilter::new("error")).with(plain()).with(lastwords::layer()).init();
        }
        "start, init" => lastwords::layer::init().expect("the program has no subscriber"),
        "fmt, start, init" => {
            let error = lastwords::layer::init().expect_err("fmt is there").to_string();
            assert!(error.contains(".with(lastwords::layer())"), "{error}");
        }
        _ => (),
    }
    let _order = info_span!("order", id = 7).entered();
    info!("charging");
    error!("declined");
    event!(shop, "paid", cents = 1999u32);
    kill_self();
}

#[test]
fn programs_that_log() {
    alone!();
    // What is recorded, whether fmt shows an event of level INFO, and whether stderr says what to
    // write.
    let (all, errors, own) = (["charging", "declined", "paid"], ["declined", "paid"], ["paid"]);
    let cases: [(&str, &[&str], Option<bool>, bool); 10] = [
        ("start", &all, None, false),
        ("start, init", &all, None, false),
        ("fmt, start", &own, Some(true), true),
        ("fmt, start, init", &own, Some(true), true),
        ("start, fmt", &own, Some(true), true),
        ("layers, start", &all, Some(true), false),
        ("start, layers", &all, Some(true), false),
        ("start, fmt with the layer", &all, Some(true), false),
        ("start, a filter of fmt", &all, Some(false), false),
        ("start, a filter of all", &errors, Some(false), false),
    ];
    for (how, recorded, shows_info, is_advised) in cases {
        let died = run("child_logs", how);
        let said = format!("{how}: {}\n{}\n{:#?}", died.stdout, died.stderr, died.lines);
        assert_eq!(
            (died.status.signal(), died.how),
            (Some(libc::SIGKILL), Ending::Killed),
            "{said}"
        );
        for event in all {
            let found = died.lines.iter().find(|line| line.contains(event));
            assert_eq!(found.is_some(), recorded.contains(&event), "{event}: {said}");
            // Without the layer the span is not known.
            let in_span = found.is_none_or(|line| line.contains("::order{id=7}\" span_id="));
            assert!(in_span || recorded != all, "{event}: {said}");
        }
        let shown = |event| died.stdout.contains(event);
        assert_eq!(
            (shown("charging"), shown("declined")),
            (shows_info == Some(true), shows_info.is_some()),
            "{said}"
        );
        assert_eq!(died.stderr.matches(ADD).count(), usize::from(is_advised), "{said}");
    }
}

/// A logger that shows all records.
struct Shown;

impl log::Log for Shown {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        println!("{}: {}", record.level(), record.args());
    }
    fn flush(&self) {}
}

/// A program with a logger and without a subscriber. Its spans come from a scoped one.
#[test]
fn child_has_a_logger() {
    let Some(how) = how() else { return };
    let own = || {
        log::set_logger(&Shown).expect("the first logger");
        log::set_max_level(log::LevelFilter::Info);
    };
    match how.as_str() {
        "logger, start" => {
            own();
            lastwords::start("shop");
            let error = lastwords::layer::init().expect_err("there is a logger").to_string();
            assert!(error.contains("lastwords::layer::init_logger(LOGGER)"), "{error}");
            lastwords::layer::init_logger(Shown).expect_err("there is a logger");
        }
        "start, logger" => {
            lastwords::start("shop");
            own();
        }
        _ => {
            lastwords::start("shop");
            lastwords::layer::init_logger(Shown).expect("the first logger");
        }
    }
    log::warn!(target: "shop::till", "{} coins left", std::hint::black_box(3));
    log::info!("open");
    // Nobody takes the place of a subscriber where events of `tracing` may go to the logger.
    info!("of tracing");
    assert!(!tracing::dispatcher::has_been_set());
    let registry = tracing::Dispatch::new(registry().with(lastwords::layer()));
    tracing::dispatcher::with_default(&registry, || {
        let _order = info_span!("order", id = 8).entered();
        log::info!("in a span");
    });
    kill_self();
}

#[test]
fn programs_with_a_logger() {
    alone!();
    for (how, is_advised) in
        [("logger, start", true), ("start, logger", true), ("start, init_logger", false)]
    {
        let died = run("child_has_a_logger", how);
        let said = format!("{how}: {}\n{}\n{:#?}", died.stdout, died.stderr, died.lines);
        for shown in ["WARN: 3 coins left", "INFO: open", "INFO: in a span"] {
            assert!(died.stdout.contains(shown), "{said}");
        }
        let advice = "lastwords: records of `log` are not recorded; install";
        assert_eq!(died.stderr.matches(advice).count(), usize::from(is_advised), "{said}");
        let records: Vec<&String> =
            died.lines.iter().filter(|line| !line.starts_with("span:")).collect();
        if is_advised {
            assert!(records.is_empty(), "{said}");
            continue;
        }
        assert_eq!(records.len(), 3, "{said}");
        assert!(records[0].starts_with("shop::till:one_call.rs:"), "{said}");
        assert!(records[0].contains(" message=\"3 coins left\""), "{said}");
        assert!(records[1].starts_with("recorder::one_call:open"), "{said}");
        let span = "recorder::one_call:in a span span=\"recorder::one_call::order{id=8}\" span_id=";
        assert!(records[2].starts_with(span), "{said}");
    }
}

extern "C" fn later_handler(signal: libc::c_int) {
    event!(shop, "later handler");
    // SAFETY: the previous action was stored before this handler was installed; the kernel's
    // arguments are not used by a handler that gets none.
    unsafe {
        let previous = *std::ptr::addr_of!(PREVIOUS);
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            std::mem::transmute(previous.sa_sigaction);
        let (mut info, mut context): (libc::siginfo_t, libc::ucontext_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        info.si_signo = signal;
        handler(signal, &raw mut info, (&raw mut context).cast());
    }
}

static mut PREVIOUS: libc::sigaction =
    // SAFETY: all-zero is a valid sigaction.
    unsafe { std::mem::zeroed() };

#[inline(never)]
fn fault() {
    let nowhere = std::ptr::with_exposed_provenance_mut::<u8>(std::hint::black_box(0x40));
    // SAFETY: this is not sound on purpose, because the process must die of it.
    unsafe { nowhere.write_volatile(1) };
}

/// Imitates Rust's runtime around a `main` that panics: in a forked child, this thread is the main
/// one.
fn main_that_panics() -> ! {
    // SAFETY: the child is a process of one thread; the parent waits for it and leaves.
    unsafe {
        match libc::fork() {
            0 => {
                lastwords::start("shop");
                event!(shop, "alive");
                drop(std::panic::catch_unwind(|| panic!("main")));
                libc::exit(101)
            }
            pid => {
                libc::waitpid(pid, std::ptr::null_mut(), 0);
                libc::_exit(0)
            }
        }
    }
}

/// A program that dies in many ways.
#[test]
fn child_dies() {
    let Some(how) = how() else { return };
    if how == "main panics" {
        main_that_panics();
    }
    std::panic::set_hook(Box::new(|info| eprintln!("earlier hook: {info}")));
    let session = lastwords::start("shop");
    event!(shop, "alive");
    match how.as_str() {
        "SIGSEGV" => fault(),
        "abort" => std::process::abort(),
        "SIGTERM" => {
            // SAFETY: the call involves no memory.
            unsafe { libc::raise(libc::SIGTERM) };
        }
        "exit" => std::process::exit(3),
        "_exit" => {
            // SAFETY: the process ends here.
            unsafe { libc::_exit(3) }
        }
        "a later handler" => {
            // SAFETY: no other thread uses the static, and the handler has the type that the
            // call requires.
            unsafe {
                libc::sigaction(libc::SIGFPE, std::ptr::null(), &raw mut PREVIOUS);
                let handler: extern "C" fn(libc::c_int) = later_handler;
                libc::signal(libc::SIGFPE, handler as libc::sighandler_t);
                libc::raise(libc::SIGFPE);
            }
        }
        "a task panics" => {
            let previous = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                eprintln!("later hook");
                previous(info);
            }));
            drop(std::thread::spawn(|| panic!("a task")).join());
            event!(shop, "survived");
            std::process::exit(0);
        }
        "started twice" => {
            assert!(std::ptr::eq(lastwords::start("another"), session));
            event!(shop, "in the first");
            kill_self();
        }
        other => assert_eq!(other, "kill -9"),
    }
    kill_self();
}

#[test]
fn the_cause_of_a_death_is_recorded_or_unknown() {
    alone!();
    let signal = |number: i32| Ending::Signal(Some(number as u8));
    let known = |status| if cfg!(target_env = "gnu") { Some(status) } else { None };
    let cases = [
        ("kill -9", Ending::Killed, 0, Some(libc::SIGKILL), ""),
        ("started twice", Ending::Killed, 0, Some(libc::SIGKILL), "shop:in the first"),
        // Nobody handles these: what ended the process is not known.
        ("SIGTERM", Ending::Killed, 0, Some(libc::SIGTERM), ""),
        ("_exit", Ending::Killed, 0, None, ""),
        ("exit", Ending::Exit(known(3)), 0, None, ""),
        ("SIGSEGV", signal(libc::SIGSEGV), 0, Some(libc::SIGSEGV), "crash:signal signal=SIGSEGV"),
        ("abort", signal(libc::SIGABRT), 0, Some(libc::SIGABRT), "crash:signal signal=SIGABRT"),
        (
            "a later handler",
            signal(libc::SIGFPE),
            0,
            Some(libc::SIGFPE),
            "crash:signal signal=SIGFPE",
        ),
        ("a task panics", Ending::Exit(known(0)), 1, None, "crash:panic message=\"a task\""),
        ("main panics", Ending::Panic, 1, None, "crash:panic message=\"main\""),
    ];
    for (how, ending, panics, by, last) in cases {
        let died = run("child_dies", how);
        let said = format!("{how}: {}\n{:#?}", died.stderr, died.lines);
        assert_eq!((died.how, died.panics, died.status.signal()), (ending, panics, by), "{said}");
        assert_eq!(died.lines[0], "shop:alive", "{said}");
        assert!(died.lines.iter().any(|line| line.starts_with(last)), "{said}");
        let is_task = how == "a task panics";
        assert_eq!(died.stderr.contains("earlier hook: panicked at"), is_task, "{said}");
        assert_eq!(died.stderr.contains("later hook"), is_task, "{said}");
        assert_eq!(died.lines.iter().any(|line| line == "shop:survived"), is_task, "{said}");
        let is_later = how == "a later handler";
        assert_eq!(died.lines.iter().any(|line| line == "shop:later handler"), is_later, "{said}");
        assert!(!died.stderr.contains("lastwords: "), "{said}");
    }
}

/// A program whose sessions have no place goes on.
#[test]
fn child_has_no_folder() {
    if how().is_none() {
        return;
    }
    let session = lastwords::start("shop");
    assert!(session.problem().is_some() && std::ptr::eq(lastwords::start("shop"), session));
    event!(shop, "nowhere");
    info!("nowhere");
    std::process::exit(7);
}

#[test]
fn a_program_without_a_folder_for_sessions_goes_on() {
    alone!(in dir);
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    let (status, _, stderr) = run_in(&file, "child_has_no_folder", "any");
    assert_eq!(status.code(), Some(7), "{stderr}");
    let said: Vec<&str> = stderr.lines().filter(|line| line.starts_with("lastwords: ")).collect();
    assert_eq!(said.len(), 1, "{stderr}");
    assert!(said[0].starts_with("lastwords: shop is not recorded: "), "{stderr}");
    assert!(said[0].contains(&file.display().to_string()), "{stderr}");
}
