//! Encodes protocol buffers: <https://protobuf.dev/programming-guides/encoding/>.

use lastwords_bytes::low_u8;

/// The bytes of a message.
#[derive(Debug, Default)]
pub(super) struct Message {
    bytes: Vec<u8>,
}

/// Appends a base-128 number.
#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_u8(value) | 0x80);
        value >>= 7;
    }
    out.push(low_u8(value));
}

/// Appends a field of bytes: a message, text or octets.
#[inline]
pub(super) fn put_message(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

impl Message {
    /// Returns the encoded bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends fields that are encoded already.
    pub(super) fn append(&mut self, fields: &[u8]) {
        self.bytes.extend_from_slice(fields);
    }

    /// Appends an unsigned number or a boolean.
    #[inline]
    pub(super) fn number(&mut self, field: u32, value: u64) {
        put_varint(&mut self.bytes, u64::from(field) << 3);
        put_varint(&mut self.bytes, value);
    }

    /// Appends a signed number (`int32`, `int64`).
    #[inline]
    pub(super) fn signed(&mut self, field: u32, value: i64) {
        self.number(field, value.cast_unsigned());
    }

    /// Appends a `double`.
    pub(super) fn double(&mut self, field: u32, value: f64) {
        put_varint(&mut self.bytes, u64::from(field) << 3 | 1);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends bytes.
    #[inline]
    pub(super) fn octets(&mut self, field: u32, bytes: &[u8]) {
        put_message(&mut self.bytes, field, bytes);
    }

    /// Appends text. Bytes that are not UTF-8 become U+FFFD.
    #[inline]
    pub(super) fn text(&mut self, field: u32, text: &[u8]) {
        match std::str::from_utf8(text) {
            Ok(_) => self.octets(field, text),
            Err(_) => self.octets(field, String::from_utf8_lossy(text).as_bytes()),
        }
    }

    /// Appends another message.
    #[inline]
    pub(super) fn message(&mut self, field: u32, message: &Self) {
        self.octets(field, &message.bytes);
    }

    /// Appends a new message that `fill` writes.
    pub(super) fn nested(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.message(field, &inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_the_examples_of_the_encoding_guide() {
        let mut message = Message::default();
        message.number(1, 150);
        message.text(2, b"testing");
        message.nested(3, |inner| inner.number(1, 150));
        message.signed(4, -2);
        let mut expected = vec![0x08, 0x96, 0x01, 0x12, 0x07];
        expected.extend(b"testing");
        expected.extend([0x1a, 0x03, 0x08, 0x96, 0x01, 0x20, 0xfe]);
        expected.extend([0xff; 8]);
        expected.push(0x01);
        assert_eq!(message.bytes(), expected);
    }

    #[test]
    fn encodes_text_as_utf_8() {
        let mut message = Message::default();
        message.text(1, b"a\xff");
        assert_eq!(message.bytes(), b"\x0a\x04a\xef\xbf\xbd");
    }
}
