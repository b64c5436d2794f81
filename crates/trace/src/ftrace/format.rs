//! Event formats: what `events/SYSTEM/NAME/format` and `events/header_page` tell.

/// How a sub-buffer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderPage {
    /// Bytes of the `commit` word, at offset 8 behind the time stamp.
    pub commit_size: u8,
    /// Where the events begin.
    pub data_offset: u32,
}

impl HeaderPage {
    /// Of a machine whose `long` has so many bytes.
    #[must_use]
    pub fn of_word_size(word_size: u8) -> Self {
        Self { commit_size: word_size, data_offset: 8 + u32::from(word_size) }
    }
}

/// An event's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// The number that events of this kind begin with (`common_type`).
    pub id: u16,
    /// System: `sched`, `ftrace`, ….
    pub system: String,
    /// Name: `sched_switch`, ….
    pub name: String,
    /// Common fields first, then its own, as the `format` file lists them.
    pub fields: Vec<Field>,
    /// The text behind `print fmt: `.
    pub print_format: String,
    /// `system.event` that an event probe stands on: the kernel prints it, though no `format` file has it.
    pub probed: Option<String>,
}

/// One field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The declaration, as the `format` file has it: `char comm[16]`, `__data_loc char[] name`, `pid_t prev_pid`.
    pub declaration: String,
    /// Its name, `comm`.
    pub name: String,
    /// Where it lies in the event's payload.
    pub offset: u32,
    /// Its bytes; of a `__data_loc` field those of the locator; 0 for what extends to the end.
    pub size: u32,
    /// It is of a signed type.
    pub is_signed: bool,
    /// One of the fields that all events have.
    pub is_common: bool,
}
