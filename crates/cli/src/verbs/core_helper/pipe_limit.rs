//! `kernel.core_pipe_limit`: how many helpers the kernel waits for. With 0 it waits for none, so that a process whose core
//! fits into a pipe (64 KiB) may be gone before its helper has begun, and nobody knows any more where its core goes.

use anyhow::Context;
use std::fs;

/// The kernel's file.
pub(crate) const PIPE_LIMIT: &str = "/proc/sys/kernel/core_pipe_limit";
/// The limit that `install` sets: as many processes as the kernel can have (`PID_MAX_LIMIT`). When more helpers run than the limit says, the kernel
/// writes no core of a further process that crashes, so a small limit loses the cores of a storm of crashes.
pub(super) const WANTED: u32 = 4 << 20;

pub(super) fn read() -> anyhow::Result<u32> {
    let text = fs::read_to_string(PIPE_LIMIT).context(PIPE_LIMIT)?;
    text.trim().parse().with_context(|| format!("{PIPE_LIMIT} is `{}`", text.trim()))
}

pub(super) fn write(limit: u32) -> anyhow::Result<()> {
    fs::write(PIPE_LIMIT, format!("{limit}\n")).context(PIPE_LIMIT)
}

/// Writes the previous limit, if nobody else has changed it meanwhile.
pub(super) fn restore(previous: u32) -> anyhow::Result<()> {
    if read()? == WANTED { write(previous) } else { Ok(()) }
}
