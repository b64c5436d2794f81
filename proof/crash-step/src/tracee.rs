//! A child under ptrace: single steps, breakpoints, signals.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use super::machine::{self, BREAKPOINT};

/// A stopped process, all its threads stopped.
#[derive(Debug)]
pub(crate) struct Tracee {
    pub(crate) pid: i32,
    memory: File,
}

/// Why a thread stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// A step was done, or a breakpoint was met.
    Trap,
    /// A new thread was made.
    Clone,
    /// A signal is about to be delivered.
    Signal(i32),
}

impl Tracee {
    /// Starts `command` traced, stopped behind its exec. It is killed when we die.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        // SAFETY: the calls between fork and exec are system calls alone.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = command.stdin(Stdio::null()).spawn().context("cannot start the child")?;
        let pid = i32::try_from(child.id()).context("its process id")?;
        let (stopped, tid) = wait(pid)?;
        ensure!(
            stopped == Stopped::Trap && tid == pid,
            "the child did not stop at its exec: {stopped:?}"
        );
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACECLONE;
        request(libc::PTRACE_SETOPTIONS, pid, 0, options as usize)?;
        let path = format!("/proc/{pid}/mem");
        let memory = File::options().read(true).write(true).open(&path).context(path)?;
        Ok(Self { pid, memory })
    }

    /// Lets all threads run until `threads` of them have stopped themselves by SIGSTOP when
    /// `is_ready` knows them; returns their ids, unordered.
    pub(crate) fn run_until_ready(
        &self,
        threads: usize,
        is_ready: impl Fn(i32) -> bool,
    ) -> Result<Vec<i32>> {
        let mut ready = Vec::new();
        request(libc::PTRACE_CONT, self.pid, 0, 0)?;
        while ready.len() < threads {
            let (stopped, tid) = wait(-1)?;
            match stopped {
                Stopped::Signal(libc::SIGSTOP) if is_ready(tid) => ready.push(tid),
                // A new thread's first stop, and its maker's.
                Stopped::Signal(libc::SIGSTOP) | Stopped::Clone => {
                    request(libc::PTRACE_CONT, tid, 0, 0)?
                }
                other => bail!("the child stopped before it was ready: {other:?}"),
            }
        }
        Ok(ready)
    }

    /// One instruction of a thread, or the entry into the handler of `signal` (0 = none).
    pub(crate) fn step(&self, tid: i32, signal: i32) -> Result<Stopped> {
        request(libc::PTRACE_SINGLESTEP, tid, 0, signal as usize)?;
        Ok(wait(tid)?.0)
    }

    /// Runs a thread until one of the `breakpoints`, and leaves its instruction pointer there.
    pub(crate) fn run_to(&self, tid: i32, breakpoints: &[u64]) -> Result<u64> {
        let mut saved = Vec::with_capacity(breakpoints.len());
        for &at in breakpoints {
            let mut bytes = [0u8; BREAKPOINT.len()];
            self.read(at, &mut bytes)?;
            saved.push(bytes);
        }
        breakpoints.iter().try_for_each(|&at| self.write(at, BREAKPOINT))?;
        request(libc::PTRACE_CONT, tid, 0, 0)?;
        let (stopped, _) = wait(tid)?;
        breakpoints.iter().zip(saved).try_for_each(|(&at, bytes)| self.write(at, &bytes))?;
        ensure!(stopped == Stopped::Trap, "the child stopped before a breakpoint: {stopped:?}");
        let at = self.ip(tid)? - machine::BEHIND;
        ensure!(breakpoints.contains(&at), "the child stopped at {at:#x}, where no breakpoint is");
        machine::set_ip(tid, at)?;
        Ok(at)
    }

    /// The instruction pointer of a stopped thread.
    pub(crate) fn ip(&self, tid: i32) -> Result<u64> {
        machine::ip(tid)
    }

    /// Reads the child's memory.
    pub(crate) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.memory
            .read_exact_at(bytes, at)
            .with_context(|| format!("cannot read the child's memory at {at:#x}"))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.memory
            .write_all_at(bytes, at)
            .with_context(|| format!("cannot write the child's memory at {at:#x}"))
    }

    /// Where the child's program is mapped, less the addresses in its file.
    pub(crate) fn bias(&self) -> Result<u64> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).context("maps")?;
        let exe = std::fs::read_link(format!("/proc/{}/exe", self.pid)).context("exe")?;
        let exe = exe.to_string_lossy();
        let line = maps
            .lines()
            .find(|l| l.ends_with(exe.as_ref()))
            .context("the program is not in its own maps")?;
        let start = line.split('-').next().unwrap_or_default();
        u64::from_str_radix(start, 16).context("an address in maps")
    }

    /// Kills the process and waits until nothing is left of it.
    pub(crate) fn kill(&self) {
        super::watch::child(0);
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        loop {
            let mut status = 0;
            // SAFETY: `status` is a place for the result.
            let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL) };
            if tid < 0 || tid == self.pid && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status))
            {
                return;
            }
        }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        self.kill();
    }
}

fn request(request: libc::c_uint, tid: i32, address: usize, data: usize) -> Result<()> {
    // SAFETY: none of the requests made here gives the kernel an address of ours.
    let done = unsafe { libc::ptrace(request, tid, address, data) };
    ensure!(
        done != -1,
        "ptrace request {request} for thread {tid}: {}",
        std::io::Error::last_os_error()
    );
    Ok(())
}

/// Waits for a thread (-1: any) to stop.
fn wait(tid: i32) -> Result<(Stopped, i32)> {
    let mut status = 0;
    // SAFETY: `status` is a place for the result.
    let tid = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
    ensure!(tid > 0, "waitpid: {}", std::io::Error::last_os_error());
    ensure!(libc::WIFSTOPPED(status), "the child is gone: status {status:#x}");
    let stopped = match (libc::WSTOPSIG(status), status >> 16) {
        (libc::SIGTRAP, libc::PTRACE_EVENT_CLONE) => Stopped::Clone,
        (libc::SIGTRAP, _) => Stopped::Trap,
        (signal, _) => Stopped::Signal(signal),
    };
    Ok((stopped, tid))
}
