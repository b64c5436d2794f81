//! The settings of a session and of its channels.

use lastwords_abi::context::{Context, PID, TID, USER};
use lastwords_abi::registry::level;
use lastwords_abi::session as abi;
pub use lastwords_ring::backend::Backend as Memory;
use lastwords_ring::init::Misfit;

use super::error::Error;
use super::user_context::{MAX_LEN, UserContext};

/// The processes that record in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scope {
    /// One process and its forked children.
    #[default]
    Process,
    /// All processes of a user that start a session of the same name in the same folder.
    User,
}

/// The algorithm that reserves space in a ring.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// Restartable sequences: one store publishes the whole event.
    Rseq = abi::RESERVATION_RSEQ,
    /// Compare-and-swap and commit counters. At most 510 threads of all processes of the session
    /// can record. Events of other threads are counted as lost until one of these threads ends and
    /// another takes its place.
    Lockless = abi::RESERVATION_LOCKLESS,
    /// A lock with signals blocked. A dead owner cannot keep the lock.
    Locked = abi::RESERVATION_LOCKED,
}

/// Severity of an event, the most severe first.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Error.
    Error = level::ERROR,
    /// Warning.
    Warn = level::WARN,
    /// Information.
    Info = level::INFO,
    /// Debug.
    Debug = level::DEBUG,
    /// Trace.
    Trace = level::TRACE,
}

impl Level {
    /// Returns the level of a number, from 1 for errors to 5; the least severe for greater numbers,
    /// none for 0.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        let levels = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
        Some(levels[(number.checked_sub(1)? as usize).min(levels.len() - 1)])
    }
}

/// Defines functions that take a value, change it and return it: `name(it, argument: Type) =>
/// change of it`.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($it:ident $(, $argument:ident: $ty:ty)*) => $change:expr;)*) => { $(
        $(#[$doc])*
        pub fn $name(mut self $(, $argument: $ty)*) -> Self {
            let $it = &mut self;
            $change;
            self
        }
    )* };
}
pub(crate) use setters;

/// A channel: rings of one geometry, one for each CPU.
#[derive(Debug, Clone)]
#[must_use]
pub struct ChannelConfig {
    pub(crate) name: String,
    pub(crate) sub_buffers: u32,
    pub(crate) sub_buffer_size: u64,
    pub(crate) mode: u32,
    pub(crate) contexts: Option<Context>,
    pub(crate) payload_size: bool,
    pub(crate) full_headers: bool,
    pub(crate) max_level: Option<Level>,
    pub(crate) user_contexts: Vec<UserContext>,
    /// The size of the rings was chosen, and is kept.
    pub(crate) is_sized: bool,
}

impl ChannelConfig {
    /// Makes a channel with 8 sub-buffers of 128 KiB for each CPU, in which the newest events
    /// overwrite the oldest, and with the thread id in each event. The sub-buffers are fewer and
    /// smaller where all rings would take more than their
    /// budget ([`Builder::channel`](super::Builder::channel)), unless
    /// [`ChannelConfig::sub_buffers`] chooses them.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            sub_buffers: 8,
            sub_buffer_size: 128 << 10,
            mode: abi::MODE_OVERWRITE,
            contexts: None,
            payload_size: false,
            full_headers: false,
            max_level: None,
            user_contexts: Vec::new(),
            is_sized: false,
        }
    }

    /// Makes the channel `errors`: 4 sub-buffers of 16 KiB for events of level warn and error only,
    /// or fewer and smaller ones as in [`ChannelConfig::new`]. No flood of other events can evict
    /// them.
    pub fn errors() -> Self {
        let errors = Self::new("errors").sub_buffers(4, 16 << 10).max_level(Level::Warn);
        Self { is_sized: false, ..errors }
    }

    setters! {
        /// Sets `count` sub-buffers of `size` bytes for each CPU. Both must be powers of two.
        sub_buffers(it, count: u32, size: u64) => {
            (it.sub_buffers, it.sub_buffer_size) = (count, size);
            it.is_sized = true;
        };

        /// Lets the newest events overwrite the oldest: a flight recorder.
        overwrite(it) => it.mode = abi::MODE_OVERWRITE;

        /// Discards and counts events that find no room.
        discard(it) => it.mode = abi::MODE_DISCARD;

        /// Chooses the contexts that are recorded with each event. Default: the thread id, and the process id in sessions of a user.
        contexts(it, contexts: Context) => it.contexts = Some(contexts);

        /// Adds the size of its payload to every event header.
        payload_size(it, on: bool) => it.payload_size = on;

        /// Gives every event a header of 18 bytes with its id and whole time stamp, in place of 4 bytes most often. Each event can then be
        /// read whatever happened to those before it.
        full_headers(it, on: bool) => it.full_headers = on;

        /// Takes only events of this level and more severe ones.
        max_level(it, level: Level) => it.max_level = Some(level);

        /// Adds a context of the application's own to each event, after the contexts added before.
        context(it, context: UserContext) => it.user_contexts.push(context);
    }

    /// Sizes the channel so that `rings` rings together take at most `bytes`, but for a least size:
    /// sub-buffers of `sub_buffer` bytes, or else as many sub-buffers as before, of 4096 bytes or
    /// more.
    pub fn sized(mut self, bytes: u64, sub_buffer: Option<u64>, rings: u64) -> Self {
        let ring = bytes / rings.max(1);
        match sub_buffer {
            Some(size) => {
                let count = (ring / size.max(1)).clamp(2, 1 << 20);
                self.sub_buffers(1 << count.ilog2(), size)
            }
            None => {
                let each = ring / u64::from(self.sub_buffers.max(1));
                self.sub_buffer_size = (1 << each.max(1).ilog2()).clamp(4096, 1 << 30);
                self.is_sized = true;
                self
            }
        }
    }

    /// Returns the `CHANNEL_` flags of [`abi`] that it asks for.
    pub(crate) fn flags(&self) -> u32 {
        let flag = |on: bool, flag: u32| if on { flag } else { 0 };
        flag(self.payload_size, abi::CHANNEL_PAYLOAD_SIZE)
            | flag(self.full_headers, abi::CHANNEL_FULL_HEADERS)
    }

    /// Returns the bytes of a ring.
    pub(crate) fn ring_size(&self) -> u64 {
        u64::from(self.sub_buffers).saturating_mul(self.sub_buffer_size)
    }

    /// Makes the sub-buffers fewer and smaller until a ring has at most `bytes`, or 2 sub-buffers
    /// of 4096 bytes. Sub-buffers stay large enough for texts of some kilobytes as long as there
    /// can be 4 of them.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        const USEFUL: u64 = 16 << 10;
        while self.ring_size() > bytes {
            match (self.sub_buffers, self.sub_buffer_size) {
                (_, size) if size > USEFUL => self.sub_buffer_size /= 2,
                (count, _) if count > 4 => self.sub_buffers /= 2,
                (_, size) if size > 4096 => self.sub_buffer_size /= 2,
                (count, _) if count > 2 => self.sub_buffers /= 2,
                _ => return,
            }
        }
    }

    /// Returns the bits of the contexts, including the bit for the application's own if there are
    /// any.
    pub(crate) fn context_bits(&self, scope: Scope) -> u32 {
        let default = if scope == Scope::User { PID | TID } else { TID };
        let user = if self.user_contexts.is_empty() { 0 } else { USER };
        self.contexts.map_or(default, |contexts| contexts.bits()) | user
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name(&self.name)?;
        let contexts: usize = self.user_contexts.iter().map(|context| context.size).sum();
        if contexts > MAX_LEN {
            let rule = "the application's own contexts take at most 192 bytes";
            return Err(self.misfit(("contexts", contexts as u64, rule)));
        }
        Ok(())
    }

    pub(crate) fn misfit(&self, (field, value, rule): Misfit) -> Error {
        Error::Geometry { channel: self.name.clone(), field, value, rule }
    }
}

/// Checks a name, because names of sessions and channels become names of files, and words of
/// command lines.
pub fn check_name(name: &str) -> Result<(), Error> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let why = match name.as_bytes() {
        _ if !(1..=47).contains(&name.len()) => "its length is out of range",
        _ if !name.bytes().all(is_allowed) => "it holds a character that is not allowed",
        [first, ..] if !first.is_ascii_alphanumeric() => "its first character is not allowed",
        _ => return Ok(()),
    };
    Err(Error::Name { name: name.to_owned(), why })
}
