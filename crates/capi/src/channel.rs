//! The configuration of a channel.

use std::ffi::c_char;

use lastwords::{ChannelConfig, Context, Level};

use crate::args::{Growing, text};
use crate::context::{self, lw_context};
use crate::error::Outcome;

#[repr(C)]
pub(crate) struct lw_channel {
    name: *const c_char,
    sub_buffer_size: u64,
    sub_buffers: u32,
    contexts: u32,
    max_level: u32,
    discard: u32,
    payload_size: u32,
    user_context_count: u32,
    user_contexts: *const lw_context,
    full_headers: u32,
    reserved: u32,
}

// SAFETY: the fields are pointers and numbers without padding, which may all be zero.
unsafe impl Growing for lw_channel {}

/// # Safety
/// The name is null or ends with a NUL. `channel.user_contexts` has as many contexts as its count.
pub(crate) unsafe fn config(channel: &lw_channel) -> Outcome<ChannelConfig> {
    // SAFETY: the caller guarantees the name.
    let name = unsafe { text(channel.name, "the channel's name") }?;
    let mut config = ChannelConfig::new(name).payload_size(channel.payload_size != 0);
    config = config.full_headers(channel.full_headers != 0);
    config = match (channel.sub_buffers, channel.sub_buffer_size) {
        (0, 0) => config,
        (0, size) => config.sub_buffers(8, size),
        (count, 0) => config.sub_buffers(count, 128 << 10),
        (count, size) => config.sub_buffers(count, size),
    };
    if channel.contexts != 0 {
        config = config.contexts(Context::from_bits(channel.contexts));
    }
    config =
        Level::from_number(channel.max_level).into_iter().fold(config, ChannelConfig::max_level);
    if channel.discard != 0 {
        config = config.discard();
    }
    // SAFETY: the caller guarantees the contexts.
    let contexts = unsafe { context::all(channel.user_contexts, channel.user_context_count) }?;
    Ok(contexts.into_iter().fold(config, ChannelConfig::context))
}
