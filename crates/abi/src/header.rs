//! Event headers: 5 bits of event id, 27 bits of clock, and three extended forms.
//!
//! The first word of every event is `clock27 << 5 | tag`. On a little-endian machine `tag` is the
//! low five bits of the first byte. Fields after the word are packed, without alignment.
//!
//! | tag | after the word | what |
//! | --- | --- | --- |
//! | 0..=28 | nothing | the tag is the event id |
//! | 29 | id u16, size u32, clock u64 | full time stamp; payload size or [`NO_SIZE`] |
//! | 30 | id u16, size u32 | payload size |
//! | 31 | id u16 | an id over 28 |

/// Bits of the tag.
pub const TAG_BITS: u32 = 5;
/// Bits of the clock in the first word.
pub const CLOCK_BITS: u32 = 27;
/// Largest id that the tag itself holds.
pub const MAX_COMPACT_ID: u16 = 28;
/// Tag: id, payload size and full clock follow.
pub const TAG_FULL: u32 = 29;
/// Tag: id and payload size follow.
pub const TAG_SIZE: u32 = 30;
/// Tag: id follows.
pub const TAG_ID: u32 = 31;
/// Bytes of a header without extension.
pub const LEN_COMPACT: usize = 4;
/// Bytes of a header of [`TAG_FULL`].
pub const LEN_FULL: usize = 18;
/// Bytes of a header of [`TAG_SIZE`].
pub const LEN_SIZE: usize = 10;
/// Bytes of a header of [`TAG_ID`].
pub const LEN_ID: usize = 6;
/// The size field of a [`TAG_FULL`] header in a channel without payload sizes.
pub const NO_SIZE: u32 = u32::MAX;
