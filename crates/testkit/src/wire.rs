//! A reader of protocol buffers, for judges of Perfetto traces.

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire<'a> {
    /// A variable-length integer.
    Number(u64),
    /// Eight bytes, little-endian.
    Fixed(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    /// Returns the message or text.
    ///
    /// # Panics
    /// The field is a number.
    pub fn bytes(self) -> &'a [u8] {
        let Self::Bytes(bytes) = self else { panic!("{self:?} is no message") };
        bytes
    }

    /// Returns the integer.
    ///
    /// # Panics
    /// The field is none.
    pub fn number(self) -> u64 {
        let Self::Number(number) = self else { panic!("{self:?} is no integer") };
        number
    }

    /// Returns the text.
    ///
    /// # Panics
    /// The field is none, or not in UTF-8.
    pub fn text(self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("text")
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or("a number without an end")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("a number of more than ten bytes".into())
}

/// Returns the fields of a message with their numbers, in their order.
///
/// # Errors
/// The bytes are no message, or have a field of four bytes, which Perfetto does not use.
pub fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Wire<'_>)>, String> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let wire = match key & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => {
                let (part, rest) = bytes.split_first_chunk().ok_or("a field beyond its message")?;
                bytes = rest;
                Wire::Fixed(u64::from_le_bytes(*part))
            }
            2 => {
                let len = varint(&mut bytes)? as usize;
                let (part, rest) =
                    bytes.split_at_checked(len).ok_or("a message beyond its parent")?;
                bytes = rest;
                Wire::Bytes(part)
            }
            other => return Err(format!("wire type {other}")),
        };
        fields.push((key >> 3, wire));
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_types() {
        let bytes = [8, 0xac, 2, 0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0x1a, 2, b'a', b'b'];
        let expected = [(1, Wire::Number(300)), (2, Wire::Fixed(1)), (3, Wire::Bytes(b"ab"))];
        assert_eq!(fields(&bytes).unwrap(), expected);
        for len in [1, 2, 5, 13, 15] {
            assert!(fields(&bytes[..len]).is_err(), "{len}");
        }
    }
}
