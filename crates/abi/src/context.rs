//! Contexts: fields that are written before each event's payload, in the order of their bits.

/// `vpid`.
pub const PID: u32 = 1;
/// `vtid`.
pub const TID: u32 = 2;
/// `procname`: the thread's name.
pub const THREAD_NAME: u32 = 4;
/// `cpu`, where the event was recorded.
pub const CPU: u32 = 8;
/// User-defined contexts follow, described by [`crate::registry::KIND_CONTEXT`] records of the
/// channel in the order of their index. All lower bits are contexts of all applications.
pub const USER: u32 = 16;

/// The value of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// An i32.
    Signed,
    /// A u32.
    Unsigned,
    /// 16 bytes of text, NUL-padded.
    Text,
}

impl Value {
    /// Bytes of the value.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Signed | Self::Unsigned => 4,
            Self::Text => 16,
        }
    }
}

/// A context of all applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its bit.
    pub bit: u32,
    /// Its name in traces and filters.
    pub name: &'static str,
    /// The kind of its value.
    pub value: Value,
}

/// The contexts of all applications, in the order of their bits.
pub const KNOWN: [Known; 4] = [
    Known { bit: PID, name: "vpid", value: Value::Signed },
    Known { bit: TID, name: "vtid", value: Value::Signed },
    Known { bit: THREAD_NAME, name: "procname", value: Value::Text },
    Known { bit: CPU, name: "cpu", value: Value::Unsigned },
];
const _: () = assert!(1 << KNOWN.len() == USER);

/// The contexts recorded with each event of a channel, in addition to the application's own:
/// `Context::TID | Context::CPU`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context(u32);

impl Context {
    /// No context.
    pub const NONE: Self = Self(0);
    /// The process id.
    pub const PID: Self = Self(PID);
    /// The thread id.
    pub const TID: Self = Self(TID);
    /// The name of the thread, 16 bytes.
    pub const THREAD_NAME: Self = Self(THREAD_NAME);
    /// The CPU.
    pub const CPU: Self = Self(CPU);
    /// All of these contexts.
    pub const ALL: Self = Self(USER - 1);

    /// Makes contexts from their bits in memory; other bits are ignored.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Returns the bits in memory.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl core::ops::BitOr for Context {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
