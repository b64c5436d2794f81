//! `kernel.core_pipe_limit`: how many helpers the kernel waits for. With 0 it waits for none, so
//! that a process whose core fits into a pipe (64 KiB) may be gone before its helper has begun, and
//! nobody knows any more where its core goes.

use anyhow::Context;
use std::fs;

/// The kernel's file.
pub(crate) const PIPE_LIMIT: &str = "/proc/sys/kernel/core_pipe_limit";
/// The limit that `install` sets. While so many helpers run, the kernel drops the cores of further
/// processes. So the limit is above the number of processes that a storm of crashes ends at once,
/// and above what a user who holds up helpers can use up for others.
pub(crate) const WANTED_LIMIT: u32 = 1024;

pub(super) fn read() -> anyhow::Result<u32> {
    let text = fs::read_to_string(PIPE_LIMIT).context(PIPE_LIMIT)?;
    text.trim().parse().with_context(|| format!("{PIPE_LIMIT} is `{}`", text.trim()))
}

pub(super) fn write(limit: u32) -> anyhow::Result<()> {
    fs::write(PIPE_LIMIT, format!("{limit}\n")).context(PIPE_LIMIT)
}

/// Writes the previous limit, if nobody else has changed it meanwhile.
pub(super) fn restore(previous: u32) -> anyhow::Result<()> {
    if read()? == WANTED_LIMIT { write(previous) } else { Ok(()) }
}
