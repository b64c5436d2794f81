//! A program that records many events and dies.

use anyhow::Result;
use lastwords::{ChannelConfig, Session, event};
use std::path::Path;

/// Records events of three kinds into a session in a folder, and dies.
pub(crate) fn record(folder: &Path, events: u64) -> Result<()> {
    const SUB_BUFFER: u64 = 1 << 20;
    let room = u32::try_from(events.saturating_mul(128) / SUB_BUFFER)?.max(4);
    let _session = Session::builder("figures")
        .dir(folder)
        .channel(ChannelConfig::new("main").sub_buffers(room.next_power_of_two(), SUB_BUFFER))
        .start()?;
    for number in 0..events {
        match number % 3 {
            0 => event!(app, "read", fd = number % 64, count = 4096_u64, ret = number as i64 % 100),
            1 => event!(app, "message", number, message = "request served"),
            _ => event!(app, "wake", comm = "kworker/u16:3", tid = number % 40_000, prio = 120_i32),
        }
    }
    std::process::abort()
}
