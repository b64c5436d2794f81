//! Event formats: the contents of `events/SYSTEM/NAME/format` and `events/header_page`.

/// The layout of a sub-buffer's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderPage {
    /// Bytes of the `commit` word, which is at offset 8, after the time stamp.
    pub commit_size: u8,
    /// Offset of the events.
    pub data_offset: u32,
}

impl HeaderPage {
    /// Returns the layout of a machine whose `long` has this many bytes.
    #[must_use]
    pub const fn of_word_size(word_size: u8) -> Self {
        Self { commit_size: word_size, data_offset: 8u32.saturating_add(word_size as u32) }
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
    /// Common fields first, then the event's own, as the `format` file lists them.
    pub fields: Vec<Field>,
    /// The text after `print fmt: `.
    pub print_format: String,
    /// The `system.event` to which an event probe is attached. The kernel prints it, although no
    /// `format` file has it.
    pub probed: Option<String>,
}

impl Format {
    /// Returns true for an event that a program has registered (CONFIG_USER_EVENTS). The kernel
    /// prints such an event by its fields, whatever its print format is
    /// (`user_event_print_trace`). It takes events that are longer than their fields.
    ///
    /// A probe whose group has the same name is not such an event.
    #[must_use]
    pub fn is_user_event(&self) -> bool {
        let is_of_probe = |field: &Field| matches!(&*field.name, "__probe_ip" | "__probe_func");
        matches!(&*self.system, "user_events" | "user_events_multi")
            && self.probed.is_none()
            && !self.fields.iter().any(is_of_probe)
    }
}

/// One field of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The declaration, as the `format` file has it: `char comm[16]`, `__data_loc char[] name`,
    /// `pid_t prev_pid`.
    pub declaration: String,
    /// Name of the field, such as `comm`.
    pub name: String,
    /// Offset in the event's payload.
    pub offset: u32,
    /// Size in bytes. For a `__data_loc` field it is the size of the locator; 0 for a field that
    /// extends to the end.
    pub size: u32,
    /// The field has a signed type.
    pub is_signed: bool,
    /// The field is one of those that all events have.
    pub is_common: bool,
}

impl Field {
    /// Returns the fields that each event of the kernel's tracer begins with.
    ///
    /// ```
    /// # use lastwords_ftrace::Field;
    /// assert_eq!(Field::common()[3].declaration, "int common_pid");
    /// ```
    #[must_use]
    pub fn common() -> Vec<Self> {
        let field = |kind: &str, name: &str, offset, size, is_signed| Self {
            declaration: format!("{kind} {name}"),
            name: name.to_owned(),
            offset,
            size,
            is_signed,
            is_common: true,
        };
        vec![
            field("unsigned short", "common_type", 0, 2, false),
            field("unsigned char", "common_flags", 2, 1, false),
            field("unsigned char", "common_preempt_count", 3, 1, false),
            field("int", "common_pid", 4, 4, true),
        ]
    }
}

/// Returns a name that formats can have: letters, digits and `_`, no digit first, and no word of C
/// that types begin with.
///
/// ```
/// # use lastwords_ftrace::identifier;
/// assert_eq!(identifier("http::get"), "http__get");
/// assert_eq!(identifier("struct"), "struct_");
/// ```
#[must_use]
pub fn identifier(name: &str) -> String {
    const WORDS: [&str; 8] =
        ["unsigned", "signed", "const", "struct", "union", "enum", "volatile", "REC"];
    let mut clean = lastwords_ctf::names::identifier(name);
    if clean.starts_with(|c: char| c.is_ascii_digit()) || clean.is_empty() {
        clean.insert(0, '_');
    }
    if WORDS.contains(&clean.as_str()) {
        clean.push('_');
    }
    clean
}
