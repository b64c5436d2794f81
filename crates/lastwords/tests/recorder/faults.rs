//! Every system call of a session's life fails in turn. The result must be an error or success,
//! never a panic, a signal or left-over files.
//!
//! A forked child runs the life of a session. Its parent steps it from one system call to the next
//! and makes the n-th of those that can fail return an error.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::{Path, PathBuf};

use crate::common::{fork, plain, record, wait};
use lastwords::{Memory, Session};

/// Offsets in `struct user` (sys/user.h) of the registers that are used, x86_64.
const RAX: usize = 10 * 8;
const R8: usize = 9 * 8;
const ORIG_RAX: usize = 15 * 8;

/// The exit status of a child that was successful.
const DONE: i32 = 0;
const REFUSED_AT_START: i32 = 3;
const REFUSED_LATER: i32 = 4;

/// Returns the error of a call that must fail; none for other calls.
fn error_of(call: i64, interrupt: bool) -> Option<i32> {
    let interruptible =
        matches!(call, libc::SYS_openat | libc::SYS_ftruncate | libc::SYS_fallocate);
    if interrupt {
        return interruptible.then_some(libc::EINTR);
    }
    match call {
        libc::SYS_openat | libc::SYS_open => Some(libc::EMFILE),
        libc::SYS_ftruncate | libc::SYS_fallocate | libc::SYS_mkdirat | libc::SYS_mkdir => {
            Some(libc::ENOSPC)
        }
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_rename => Some(libc::ENOSPC),
        libc::SYS_mmap | libc::SYS_memfd_create | libc::SYS_madvise | libc::SYS_mremap => {
            Some(libc::ENOMEM)
        }
        libc::SYS_fstat | libc::SYS_newfstatat | libc::SYS_statx | libc::SYS_flock => {
            Some(libc::EIO)
        }
        libc::SYS_write | libc::SYS_read | libc::SYS_readlink | libc::SYS_getdents64 => {
            Some(libc::EIO)
        }
        libc::SYS_fcntl | libc::SYS_getrandom | libc::SYS_membarrier => Some(libc::EPERM),
        libc::SYS_sched_setaffinity | libc::SYS_sched_getaffinity => Some(libc::EPERM),
        _ => None,
    }
}

/// Runs the whole life of a session. Returns the child's exit status.
fn life(dir: &Path, memory: Memory) -> i32 {
    let builder = Session::builder("fault")
        .dir(dir)
        .channel(plain("main").sub_buffers(2, 4096))
        .listen(false)
        .backend(memory);
    let Ok(session) = builder.start() else { return REFUSED_AT_START };
    record(0..10);
    let later = session.enable_snapshots().is_err()
        | session.snapshot(lastwords::snapshot::Rings::All).is_err()
        | session.disable("x:*").is_err()
        | session.disable_snapshots().is_err();
    record(10..20);
    session.remove();
    if later { REFUSED_LATER } else { DONE }
}

/// Forks a child that stops before it runs `life`.
fn fork_stopped(dir: &Path, memory: &Memory) -> i32 {
    fork(|| {
        // SAFETY: the calls involve no memory.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
        life(dir, memory.clone())
    })
}

fn peek(pid: i32, offset: usize) -> i64 {
    // SAFETY: the child is stopped; the offset is that of a register.
    unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, pid, offset, 0) }
}

fn poke(pid: i32, offset: usize, value: i64) {
    // SAFETY: the child is stopped and belongs to this test; the offset is that of a register.
    unsafe { libc::ptrace(libc::PTRACE_POKEUSER, pid, offset, value) };
}

/// Runs the child and makes the `nth` of the calls that can fail return an error. Returns the
/// child's exit status (or minus its signal), and the call that failed.
fn run(dir: &Path, memory: &Memory, nth: u32, interrupt: bool) -> (i32, Option<i64>) {
    let pid = fork_stopped(dir, memory);
    wait(pid);
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    // SAFETY: the child is stopped.
    unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) };
    let (mut seen, mut failed, mut inside, mut pending) = (0, None, false, None);
    loop {
        // SAFETY: the child is stopped.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, 0) };
        let status = wait(pid);
        if libc::WIFEXITED(status) {
            return (libc::WEXITSTATUS(status), failed);
        }
        if libc::WIFSIGNALED(status) {
            return (-libc::WTERMSIG(status), failed);
        }
        if libc::WSTOPSIG(status) != libc::SIGTRAP | 0x80 {
            // A signal appears as a stop with its number. It must kill the child here, so that it
            // is not missed. SAFETY: the child belongs to this test.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            wait(pid);
            return (-libc::WSTOPSIG(status), failed);
        }
        inside = !inside;
        if !inside {
            if let Some(error) = pending.take() {
                poke(pid, RAX, -i64::from(error));
            }
            continue;
        }
        let call = peek(pid, ORIG_RAX);
        // Memory of the heap does not belong to the session: its failure aborts a Rust program by
        // design.
        let heap = call == libc::SYS_mmap && peek(pid, R8) as i32 == -1;
        if let Some(error) = error_of(call, interrupt).filter(|_| !heap) {
            seen += 1;
            if seen == nth {
                failed = Some(call);
                pending = Some(error);
                poke(pid, ORIG_RAX, -1);
            }
        }
    }
}

fn back_ends(dir: &Path) -> Vec<Memory> {
    let physical = dir.join("physical");
    std::fs::write(&physical, vec![0u8; 8 << 20]).expect("a file");
    vec![
        Memory::Shm,
        Memory::Memfd,
        Memory::Huge,
        Memory::Heap,
        Memory::Dax { path: dir.join("dax"), reuse: true },
        Memory::Physical { path: physical, offset: 0, len: 8 << 20, reuse: true },
    ]
}

fn left_overs(base: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(base) else { return Vec::new() };
    entries.map_while(Result::ok).map(|entry| entry.path()).collect()
}

/// With `LASTWORDS_SAMPLE`, each third call.
#[test]
fn each_call_fails_in_turn() {
    alone!(in dir);
    let step = if std::env::var_os("LASTWORDS_SAMPLE").is_some() { 3 } else { 1 };
    let mut failures = 0;
    for memory in back_ends(dir.path()) {
        let base = dir.path().join("base");
        for nth in (1..).step_by(step) {
            let (ended, failed) = run(&base, &memory, nth, false);
            let what = format!("{memory:?}, call {nth} ({failed:?})");
            assert!([DONE, REFUSED_AT_START, REFUSED_LATER].contains(&ended), "{what}: {ended}");
            // The clean-up itself may be what failed. If a process cannot find its own pid
            // namespace, it does not count as the session's owner, and leaves its folder.
            let cleaning = ended == DONE
                && matches!(
                    failed,
                    Some(libc::SYS_getdents64 | libc::SYS_openat | libc::SYS_newfstatat)
                );
            let left = left_overs(&base);
            assert!(cleaning || left.is_empty(), "{what}: {left:?}");
            drop(std::fs::remove_dir_all(&base));
            if failed.is_none() {
                assert_eq!(ended, DONE, "{what}: nothing failed");
                break;
            }
            failures += 1;
        }
    }
    assert!(failures > 200 / step, "{failures} calls were made to fail");
}

#[test]
fn interrupted_calls_are_repeated() {
    alone!(in dir);
    let base = dir.path().join("base");
    for nth in 1.. {
        let (ended, failed) = run(&base, &Memory::Shm, nth, true);
        assert_eq!(ended, DONE, "call {nth} ({failed:?})");
        assert!(left_overs(&base).is_empty());
        if failed.is_none() {
            break;
        }
    }
}
