//! The rows of the table.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::bench::{self, APP, Bench, LATE, Session};
use crate::memory::{self, At};

/// A surrounding: its name, and what must be so in it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) check: fn(&Bench, &Path) -> Result<()>,
    /// CI runs it.
    pub(crate) quick: bool,
}

/// Sessions of one name that stay after deaths, besides one that died since.
const KEPT: usize = 5;

/// Begins a container: process numbers begin at 1.
const CONTAINER: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
/// A container of a user without rights.
const OF_A_USER: &[&str] =
    &["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"];
/// The first process of a container cannot send itself SIGKILL.
const DIES: &[&str] = &["", "abort"];
/// Begins without /proc.
const WITHOUT_PROC: &[&str] =
    &["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"];
/// The sessions cannot be written to.
const READ_ONLY: &[&str] = &[
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount --bind \"$LASTWORDS_DIR\" \"$LASTWORDS_DIR\" && mount -o remount,bind,ro \"$LASTWORDS_DIR\" && exec \"$@\"",
    "sh",
];

/// A row that CI runs.
const fn quick(name: &'static str, check: fn(&Bench, &Path) -> Result<()>) -> Row {
    Row { name, check, quick: true }
}

/// A row of the whole table alone.
const fn slow(name: &'static str, check: fn(&Bench, &Path) -> Result<()>) -> Row {
    Row { name, check, quick: false }
}

pub(crate) const ROWS: &[Row] = &[
    quick("nothing unusual", |b, dir| lives_and_dies(b, dir, &[], "")),
    slow("12 deaths", |b, dir| deaths(b, dir, &[], 12)),
    quick("12 deaths in containers", |b, dir| deaths(b, dir, CONTAINER, 12)),
    slow("180 deaths in containers", |b, dir| deaths(b, dir, CONTAINER, 180)),
    slow("12 deaths in containers of a user", |b, dir| deaths(b, dir, OF_A_USER, 12)),
    slow("40 deaths in containers at once", at_once),
    quick("a container", |b, dir| lives_and_dies(b, dir, CONTAINER, "")),
    slow("a container of a user", |b, dir| lives_and_dies(b, dir, OF_A_USER, "")),
    quick("a container after another", reused),
    quick("read in another container", read_elsewhere),
    quick("read where nothing can be written", read_only),
    quick("no /proc", |b, dir| lives_and_dies(b, dir, WITHOUT_PROC, "")),
    slow("12 deaths without /proc", |b, dir| deaths(b, dir, WITHOUT_PROC, 12)),
    quick("chroot", |b, dir| lives_and_dies(b, dir, &[], "chroot")),
    quick("closefrom", |b, dir| lives_and_dies(b, dir, &[], "closefrom")),
    quick("the main thread ends first", |b, dir| lives_and_dies(b, dir, &[], "thread")),
    quick("a fork whose parent dies first", |b, dir| lives_and_dies(b, dir, &[], "fork")),
    quick("exec", exec),
    slow("vfork", |b, dir| shares_memory(b, dir, APP, "vfork")),
    slow("vfork, the recorder loaded late", |b, dir| shares_memory(b, dir, LATE, "vfork")),
    slow("clone with the same memory", |b, dir| shares_memory(b, dir, APP, "clone")),
    slow("a crash loop", crash_loop),
    quick("a limit of 8 MB", |b, dir| memory::limit(b, dir, At::Max, 8)),
    slow("a limit of 16 MB", |b, dir| memory::limit(b, dir, At::Max, 16)),
    quick("a limit of 24 MB", |b, dir| memory::limit(b, dir, At::Max, 24)),
    slow("a limit of 64 MB", |b, dir| memory::limit(b, dir, At::Max, 64)),
    quick("a limit of 24 MB above the group", |b, dir| memory::limit(b, dir, At::Above, 24)),
    quick("a limit of 24 MB is lowered", |b, dir| memory::lowered(b, dir, At::Max, 24, NOW)),
    quick("a limit of 512 MB is lowered", |b, dir| memory::lowered(b, dir, At::Max, 512, SEEN)),
    slow("a limit of 64 MB above is lowered", |b, dir| {
        memory::lowered(b, dir, At::Above, 64, SEEN)
    }),
    quick("128 CPUs", memory::many_cpus),
    slow("a limit of 24 MB on another folder", memory::limit_inside),
];

/// The rows that need control groups of version 2.
pub(crate) const OF_VERSION_2: &[Row] = &[
    quick("memory.high of 16 MB", |b, dir| memory::limit(b, dir, At::High, 16)),
    quick("memory.high of 64 MB", |b, dir| memory::limit(b, dir, At::High, 64)),
];

/// The recorder need not see a change: a small session got all its memory at the start.
const NOW: Duration = Duration::ZERO;
/// It has seen a change by then.
const SEEN: Duration = Duration::from_millis(2500);

/// The readers of a session.
const READERS: &[(&str, &[&str])] =
    &[("beside", &[]), ("in a container", CONTAINER), ("without /proc", WITHOUT_PROC)];

/// The application stays and is live; it is killed and is dead; it ends well, and that is known.
fn lives_and_dies(bench: &Bench, dir: &Path, wrapper: &[&str], how: &str) -> Result<()> {
    let jail = bench.place("jail")?;
    let jail = jail.display().to_string();
    let mut staying = bench.stay(dir, wrapper, &[how, "sleep", &jail])?;
    for (name, reader) in READERS {
        let session = bench.only(dir, reader)?;
        ensure!(session.is_live(), "read {name} while it lives: {session:?}");
    }
    staying.kill()?;
    for (name, reader) in READERS {
        let session = bench.only(dir, reader)?;
        ensure!(session.is_killed(), "read {name} after its death: {session:?}");
    }
    bench.run(dir, wrapper, &[how, "exit", &jail])?;
    if how == "fork" {
        // The child goes on when the application has ended, and ends well. The application itself
        // has called `_exit`, so it died in the session.
        bench::wait(|| newest(bench, dir).is_ok_and(|session| !session.is_live()))?;
        let last = newest(bench, dir)?;
        ensure!(last.is_killed(), "after the child's good end: {last:?}");
    } else {
        let last = newest(bench, dir)?;
        ensure!(last.has_ended(), "after a good end: {last:?}");
    }
    bench.run(dir, wrapper, &[how, "abort", &jail])?;
    std::fs::remove_dir_all(jail)?;
    Ok(())
}

fn newest(bench: &Bench, dir: &Path) -> Result<Session> {
    bench.sessions(dir, &[])?.pop().context("no session")
}

/// All sessions must be dead, and no more than promised.
fn kept(bench: &Bench, dir: &Path) -> Result<Vec<Session>> {
    let sessions = bench.sessions(dir, &[])?;
    ensure!(sessions.len() <= KEPT + 1, "{} sessions are kept", sessions.len());
    if let Some(session) = sessions.iter().find(|session| !session.is_killed()) {
        bail!("not known as killed: {session:?}");
    }
    Ok(sessions)
}

fn deaths(bench: &Bench, dir: &Path, wrapper: &[&str], count: usize) -> Result<()> {
    for _ in 0..count {
        bench.run(dir, wrapper, DIES)?;
    }
    ensure!(kept(bench, dir)?.len() >= KEPT.min(count), "too few sessions are kept");
    Ok(())
}

/// Sessions that die at once may be more than promised, until the next start.
fn at_once(bench: &Bench, dir: &Path) -> Result<()> {
    bench.run_at_once(40, dir, CONTAINER, DIES)?;
    bench.run(dir, CONTAINER, DIES)?;
    kept(bench, dir).map(drop)
}

/// A container's first process dies; the next container's first process has its number, and often
/// its namespace has the same inode.
fn reused(bench: &Bench, dir: &Path) -> Result<()> {
    for round in 0..5 {
        bench.run(dir, CONTAINER, DIES)?;
        let mut staying = bench.stay(dir, CONTAINER, &["", "sleep"])?;
        let sessions = bench.sessions(dir, &[])?;
        let live: Vec<&Session> = sessions.iter().filter(|session| session.is_live()).collect();
        ensure!(live.len() == 1, "round {round}: {} sessions are live: {live:?}", live.len());
        let (last, dead) = sessions.split_last().context("no session")?;
        ensure!(last.is_live(), "round {round}: the newest is not live: {last:?}");
        if let Some(session) = dead.iter().find(|session| !session.is_killed()) {
            bail!("round {round}: not known as killed: {session:?}");
        }
        staying.kill()?;
    }
    Ok(())
}

/// Neither container knows the other's numbers.
fn read_elsewhere(bench: &Bench, dir: &Path) -> Result<()> {
    let mut staying = bench.stay(dir, CONTAINER, &["", "sleep"])?;
    let session = bench.only(dir, CONTAINER)?;
    ensure!(session.is_live(), "while it lives: {session:?}");
    // A start in another container must not take a living session for an ended one.
    for _ in 0..8 {
        bench.run(dir, CONTAINER, DIES)?;
    }
    let is_there = bench
        .sessions(dir, CONTAINER)?
        .iter()
        .any(|other| other.uuid == session.uuid && other.is_live());
    ensure!(is_there, "the living session is gone, or not live");
    staying.kill()?;
    let sessions = bench.sessions(dir, CONTAINER)?;
    let dead =
        sessions.iter().find(|other| other.uuid == session.uuid).context("the session is gone")?;
    ensure!(dead.is_killed(), "after its death: {dead:?}");
    Ok(())
}

/// Readers without the right to write know as much.
fn read_only(bench: &Bench, dir: &Path) -> Result<()> {
    let mut staying = bench.stay(dir, &[], &["", "sleep"])?;
    let session = bench.only(dir, READ_ONLY)?;
    ensure!(session.is_live(), "while it lives: {session:?}");
    staying.kill()?;
    let session = bench.only(dir, READ_ONLY)?;
    ensure!(session.is_killed(), "after its death: {session:?}");
    Ok(())
}

/// The recorder is gone after `exec`; the process is not.
fn exec(bench: &Bench, dir: &Path) -> Result<()> {
    let mut staying = bench.stay(dir, &[], &["exec", "sleep"])?;
    let comm = format!("/proc/{}/comm", staying.pid);
    bench::wait(|| std::fs::read_to_string(&comm).is_ok_and(|name| name.trim() == "sleep"))?;
    let session = bench.only(dir, &[])?;
    ensure!(!session.is_live(), "after exec: {session:?}");
    staying.kill()?;
    bench.run(dir, &[], &["exec", "exit"])
}

/// Each event is there once, or is counted as lost; a child of `vfork` or `clone` shares all
/// memory.
fn shares_memory(bench: &Bench, dir: &Path, app: &str, how: &str) -> Result<()> {
    bench.run_as(app, dir, &[], &[how, "kill"])?;
    let session = bench.only(dir, &[])?;
    let to = bench.place("recovered")?;
    let mut command = std::process::Command::new(&bench.lastwords);
    rig::run_quietly(
        command.arg("recover").arg(&session.folder).arg("-o").arg(&to).args(["--to", "json"]),
    )?;
    let path = std::fs::read_dir(&to)?.flatten().next().context("nothing was recovered")?.path();
    let text = std::fs::read_to_string(path)?;
    std::fs::remove_dir_all(to)?;
    let mut command = std::process::Command::new(&bench.lastwords);
    let inspected = rig::run_quietly(command.arg("inspect").arg(&session.folder).arg("--json"))?;
    let inspected: serde_json::Value = serde_json::from_str(&inspected)?;
    let streams = inspected["sessions"][0]["streams"].as_array().cloned().unwrap_or_default();
    let lost = |stream: &serde_json::Value| {
        stream["lost"]
            .as_object()
            .map_or(0, |lost| lost.values().filter_map(serde_json::Value::as_u64).sum::<u64>())
    };
    let lost: u64 = streams.iter().map(lost).sum();
    for name in ["app:step", "app:beside", "app:vforked"] {
        let mut seen = BTreeSet::new();
        for line in text.lines().filter(|line| line.contains(&format!("\"event\":\"{name}\""))) {
            let number: u64 = serde_json::from_str::<serde_json::Value>(line)?["fields"]["n"]
                .as_u64()
                .context("n")?;
            ensure!(seen.insert(number), "{name} {number} is there twice");
        }
        let missing = seen.last().map_or(0, |last| last + 1 - seen.len() as u64);
        ensure!(
            missing <= lost,
            "{name}: {missing} events are missing, {lost} are counted as lost"
        );
        ensure!(!seen.is_empty(), "no {name}");
    }
    Ok(())
}

/// The first death of a burst matters most, and the newest.
fn crash_loop(bench: &Bench, dir: &Path) -> Result<()> {
    let mut first = None;
    for death in 0..14 {
        bench.run(dir, &[], &["", "abort"])?;
        let sessions = bench.sessions(dir, &[])?;
        let newest = sessions.last().context("no session")?.uuid.clone();
        let first = first.get_or_insert_with(|| newest.clone());
        ensure!(
            sessions.iter().any(|session| session.uuid == *first),
            "death {death}: the first is gone"
        );
        ensure!(sessions.len() <= KEPT + 1, "death {death}: {} sessions are kept", sessions.len());
        std::thread::sleep(Duration::from_millis(800));
    }
    Ok(())
}
