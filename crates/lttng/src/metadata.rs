//! The metadata of an LTTng session: the description of its events.

use lastwords_ctf::metadata::HOLE;

/// First byte of each JSON text in CTF 2 metadata.
const SEPARATOR: u8 = 0x1e;
/// First bytes of metadata in the memory of an LTTng daemon.
const BEGINNINGS: [&[u8]; 2] = [b"/* CTF 1.8 */", b"\x1e{\"type\":\"preamble\""];
/// First bytes of the kernel tracer's metadata cache, up to 2.14, and later if CTF 1.8 was
/// requested.
pub(super) const BEGINNING_OF_CACHE: &[u8] =
    b"typealias integer { size = 8; align = 8; signed = false; } := uint8_t;";

/// The metadata of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The metadata without packet headers: TSDL text of CTF 1.8, or the JSON text sequence of CTF
    /// 2.
    pub text: Vec<u8>,
    /// True if the end may be missing: the tracer was appending, or the image lacks a part.
    pub is_partial: bool,
}

impl Metadata {
    /// Parses a metadata file: plain text, or packets of text. Where packets are missing, the text
    /// has a hole.
    #[must_use]
    pub fn of_file(file: &[u8]) -> Self {
        match lastwords_ctf::metadata::unpack(file) {
            Some(packets) => Self { is_partial: !packets.missing.is_empty(), text: packets.text },
            None => Self { text: file.to_vec(), is_partial: false },
        }
    }

    /// True if the metadata are CTF 2: a sequence of JSON texts, each after a record separator.
    #[must_use]
    pub fn is_ctf2(&self) -> bool {
        self.text.first() == Some(&SEPARATOR)
    }

    /// True if the text begins as metadata do, in either version; the rest may be damaged.
    #[must_use]
    pub fn is_likely(&self) -> bool {
        self.is_ctf2() || self.is_partial || self.text.starts_with(b"/* CTF")
    }

    /// True if the metadata name this UUID.
    #[must_use]
    pub fn names(&self, uuid: &[u8; 16]) -> bool {
        let hexadecimal: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let part = |from: usize, to: usize| hexadecimal.get(from..to).unwrap_or_default();
        let dashed = [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-");
        let numbers: Vec<String> = uuid.iter().map(u8::to_string).collect();
        let array = format!("[{}]", numbers.join(","));
        // JSON may have white space between the numbers.
        let plain: Vec<u8> = self
            .text
            .iter()
            .copied()
            .filter(|byte| !byte.is_ascii_whitespace())
            .take(1 << 16)
            .collect();
        contains(&self.text, dashed.as_bytes()) || contains(&plain, array.as_bytes())
    }

    /// Value of a text property of the trace, such as `trace_name` or `hostname`.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<String> {
        let head = self.text.get(..self.text.len().min(1 << 16))?;
        let head = String::from_utf8_lossy(head);
        let (_, behind) = head.split_once(name)?;
        let value = behind.trim_start_matches(['"', ' ', ':', '=']);
        value.split_once('"').map(|(value, _)| value.to_owned()).filter(|value| !value.is_empty())
    }

    /// Number of channels described, that is, of stream classes.
    #[must_use]
    pub fn channels(&self) -> usize {
        let begins: &[u8] = if self.is_ctf2() { b"\"data-stream-class\"" } else { b"\nstream {" };
        self.text.windows(begins.len()).filter(|window| *window == begins).count()
    }

    /// Appends bytes from memory, up to the first byte that is no text or up to the start of other
    /// metadata. Returns true if the text ends there.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> bool {
        // The start of other metadata may cross the end of the text appended before.
        let from = self.text.len().saturating_sub(BEGINNING_MAX).max(1);
        let len = bytes.iter().position(|byte| !is_text(*byte)).unwrap_or(bytes.len());
        self.text.extend_from_slice(bytes.get(..len).unwrap_or_default());
        let other = beginning(&self.text, from);
        self.text.truncate(other.unwrap_or(self.text.len()));
        other.is_some() || len < bytes.len()
    }

    /// Cuts partial metadata after the last complete declaration; returns a note if bytes are
    /// removed.
    pub fn cut(&mut self) -> Option<String> {
        // Declarations behind a hole are found when the text is parsed.
        if !self.is_partial || self.text.contains(&HOLE) {
            return None;
        }
        let whole = if self.is_ctf2() {
            whole_fragments(&self.text)
        } else {
            whole_declarations(&self.text)
        };
        let gone = self.text.len().saturating_sub(whole);
        self.text.truncate(whole);
        (gone > 0)
            .then(|| format!("the last {gone} bytes of the metadata are no whole declaration"))
    }
}

/// Offset of the first start of metadata in `bytes`, searching from `from`.
pub(crate) fn beginning(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let begins = |at: &usize| {
        rest.get(*at..).is_some_and(|rest| BEGINNINGS.iter().any(|begin| rest.starts_with(begin)))
    };
    (0..rest.len()).find(begins).map(|at| from.saturating_add(at))
}

/// Length of the longest start of metadata, bytes.
pub(crate) const BEGINNING_MAX: usize = 20;

/// True if the byte can be part of metadata.
pub(crate) fn is_text(byte: u8) -> bool {
    byte == SEPARATOR || byte >= 0x20 || matches!(byte, b'\n' | b'\t' | b'\r')
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    // The properties are near the start of the metadata.
    let head = text.get(..text.len().min(1 << 16)).unwrap_or_default();
    head.windows(part.len().max(1)).any(|window| window == part)
}

/// Length of the complete JSON texts, bytes.
fn whole_fragments(text: &[u8]) -> usize {
    let last = text.iter().rposition(|byte| *byte == SEPARATOR).unwrap_or(0);
    let fragment = text.get(last..).unwrap_or_default();
    // Each text is an object, so it is complete when its last brace is closed.
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (at, byte) in fragment.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => depth = depth.saturating_add(1),
            b'}' if !quoted => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    let end = last.saturating_add(at).saturating_add(1);
                    return end.saturating_add(usize::from(
                        fragment.get(at.saturating_add(1)) == Some(&b'\n'),
                    ));
                }
            }
            _ => {}
        }
    }
    last
}

/// Length of the complete TSDL declarations, bytes: up to the last semicolon outside of braces,
/// strings and comments.
fn whole_declarations(text: &[u8]) -> usize {
    let (mut depth, mut whole, mut at) = (0usize, 0usize, 0usize);
    let skip = |from: usize, end: &[u8]| {
        let rest = text.get(from..).unwrap_or_default();
        let found = rest.windows(end.len()).position(|window| window == end);
        found.map_or(text.len(), |n| from.saturating_add(n).saturating_add(end.len()))
    };
    while let Some(byte) = text.get(at) {
        let next = at.saturating_add(1);
        at = match byte {
            b'"' => string_end(text, next),
            b'/' if text.get(next) == Some(&b'*') => skip(next.saturating_add(1), b"*/"),
            b'/' if text.get(next) == Some(&b'/') => skip(next, b"\n"),
            b'{' => {
                depth = depth.saturating_add(1);
                next
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                next
            }
            b';' if depth == 0 => {
                whole = next;
                next
            }
            _ => next,
        };
    }
    whole.saturating_add(usize::from(text.get(whole) == Some(&b'\n')))
}

/// Offset after the closing quote of the string whose first byte is at `at`.
fn string_end(text: &[u8], at: usize) -> usize {
    let mut at = at;
    while let Some(byte) = text.get(at) {
        at = at.saturating_add(if *byte == b'\\' { 2 } else { 1 });
        if *byte == b'"' {
            break;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> String {
        let mut metadata = Metadata { text: text.as_bytes().to_vec(), is_partial: true };
        metadata.cut();
        String::from_utf8(metadata.text).expect("text")
    }

    #[test]
    fn a_text_is_cut_behind_its_last_declaration() {
        assert_eq!(cut("trace { a; };\nevent { name = \"};\"; fields"), "trace { a; };\n");
        assert_eq!(cut("trace { a; };\n/* }; */ event {"), "trace { a; };\n");
        assert_eq!(cut("typealias a := b;\n\nevent { x = \"\\\"};"), "typealias a := b;\n");
        assert_eq!(cut("trac"), "");
    }

    #[test]
    fn each_class_of_streams_is_a_channel() {
        let channels =
            |text: &str| Metadata { text: text.as_bytes().to_vec(), is_partial: false }.channels();
        assert_eq!(
            channels(
                "trace {\n\tx;\n};\n\nstream {\n\tid = 0;\n};\n\nevent {\n};\n\nstream {\n\tid = 1;\n};\n"
            ),
            2
        );
        assert_eq!(
            channels(
                "\x1e{\"type\":\"data-stream-class\",\"id\":0}\n\x1e{\"type\":\"event-record-class\"}"
            ),
            1
        );
    }

    #[test]
    fn a_sequence_is_cut_behind_its_last_object() {
        assert_eq!(
            cut("\x1e{\"a\":1}\n\x1e{\"b\":{\"c\":\"}\"}}\n"),
            "\x1e{\"a\":1}\n\x1e{\"b\":{\"c\":\"}\"}}\n"
        );
        assert_eq!(cut("\x1e{\"a\":1}\n\x1e{\"b\":{\"c\":\"}}\""), "\x1e{\"a\":1}\n");
    }

    #[test]
    fn packets_are_taken_apart() {
        const HEADER: usize = 37;
        let mut file = vec![];
        for text in [b"trace {", b" a; };"] as [&[u8]; 2] {
            file.extend(0x75d1_1d57u32.to_le_bytes());
            file.extend([0; 20]);
            file.extend(((HEADER + text.len()) as u32 * 8).to_le_bytes());
            file.extend((64u32 * 8).to_le_bytes());
            file.extend([0, 0, 0, 1, 8]);
            file.extend(text);
            file.resize(file.len().next_multiple_of(64), 0);
        }
        assert_eq!(
            Metadata::of_file(&file),
            Metadata { text: b"trace { a; };".to_vec(), is_partial: false }
        );
        let cut = Metadata::of_file(&file[..100]);
        assert_eq!(cut, Metadata { text: b"trace {\x1a".to_vec(), is_partial: true });
    }

    #[test]
    fn who_it_is_of() {
        let text = b"trace { uuid = \"01020304-0506-0708-090a-0b0c0d0e0f10\"; }; env { trace_name = \"crash\"; };";
        let metadata = Metadata { text: text.to_vec(), is_partial: false };
        let uuid = std::array::from_fn(|n| n as u8 + 1);
        assert!(metadata.names(&uuid) && !metadata.names(&[0; 16]));
        assert_eq!(
            (metadata.property("trace_name").as_deref(), metadata.channels()),
            (Some("crash"), 0)
        );
        let text =
            b"\x1e{\"type\":\"preamble\",\"uuid\":[1, 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}"
                .to_vec();
        assert!(Metadata { text, is_partial: false }.names(&uuid));
    }
}
