//! Takes all rights from the part that reads a dying process's memory. What it reads was written by
//! the process, which may belong to somebody who wants to harm. The part keeps the files that it
//! got, and can read, compute and answer.
//!
//! First it becomes a user who owns nothing. Then, where the kernel has them, Landlock forbids it
//! all files, sockets and signals, and seccomp all system calls but those that it needs.

use anyhow::Context;
use landlock::{ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, Scope};
use rustix::fs::{Gid, Uid};
use rustix::process::{
    Resource, Rlimit, Signal, geteuid, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// The user `nobody`.
const NOBODY: u32 = 65534;
/// Seconds of CPU time.
const MOST_CPU: u64 = 20;

/// Takes all rights from this process, which has one thread.
///
/// # Errors
/// It stays root. Landlock and seccomp may be missing: then it is only `nobody`.
pub(super) fn enter() -> anyhow::Result<()> {
    // If a limit cannot be set, the work is the same.
    for (resource, most) in [(Resource::Cpu, MOST_CPU), (Resource::Fsize, 0)] {
        let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
    if geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        set_thread_groups(&[]).context("no groups")?;
        set_thread_res_gid(gid, gid, gid).context("the group nobody")?;
        set_thread_res_uid(uid, uid, uid).context("the user nobody")?;
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .context("no capabilities")?;
    set_no_new_privs(true).context("no new rights")?;
    // The kernel forgets this signal when the user changes, so that it is set after that.
    set_parent_process_death_signal(Some(Signal::KILL)).context("the end of the parent")?;
    // Kernels may be without either of both.
    let _ = forbid_files();
    let _ = forbid_calls();
    Ok(())
}

/// Forbids all files that are not open, all connections, and signals to others, as far as the
/// kernel can.
fn forbid_files() -> anyhow::Result<()> {
    let newest = ABI::V6;
    let rules = Ruleset::default()
        .handle_access(AccessFs::from_all(newest))?
        .handle_access(AccessNet::from_all(newest))?
        .scope(Scope::from_all(newest))?;
    rules.create()?.restrict_self()?;
    Ok(())
}

/// The filter is made for 64-bit machines, whose system calls have these names.
#[cfg(not(target_pointer_width = "64"))]
fn forbid_calls() -> anyhow::Result<()> {
    Ok(())
}

/// Forbids all system calls but those of a computation that reads open files and answers. A
/// forbidden call gives EPERM.
#[cfg(target_pointer_width = "64")]
fn forbid_calls() -> anyhow::Result<()> {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
    let calls = [
        libc::SYS_read,
        libc::SYS_pread64,
        libc::SYS_readv,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_sendto,
        libc::SYS_recvfrom,
        libc::SYS_lseek,
        libc::SYS_fstat,
        libc::SYS_fstatfs,
        libc::SYS_close,
        libc::SYS_dup,
        libc::SYS_fcntl,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_sched_getaffinity,
        libc::SYS_clock_gettime,
        libc::SYS_getrandom,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_restart_syscall,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    let rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter: BpfProgram =
        SeccompFilter::new(rules, refused, SeccompAction::Allow, machine)?.try_into()?;
    seccompiler::apply_filter(&filter)?;
    Ok(())
}
