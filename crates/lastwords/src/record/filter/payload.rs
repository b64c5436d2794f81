//! Reads values from an encoded payload, which may be in pieces.

use lastwords_filter::Value;

use super::bind::Place;
use crate::session::desc::{FieldDesc, FieldType};

/// A value is there, but its text is not in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unclear;

/// The pieces of a payload, in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Payload<'a>(pub(super) &'a [&'a [u8]]);

impl<'a> Payload<'a> {
    /// Returns the value at a place among these fields; none if a sequence has no such element.
    pub(super) fn value(
        self,
        fields: &[FieldDesc],
        place: &Place,
    ) -> Result<Option<Value<'a>>, Unclear> {
        let mut at = place.at;
        let mut has =
            Present { payload: self, next: optional(fields.get(..place.from).unwrap_or_default()) };
        for field in fields.get(place.from..place.field).unwrap_or_default() {
            let Some(ty) = has.field(&field.ty) else { continue };
            let Some(after) = self.after(at, ty) else { return Ok(None) };
            at = after;
        }
        let ty = fields.get(place.field).and_then(|field| has.field(&field.ty)).copied();
        match (ty, place.element) {
            (Some(FieldType::Array { element, .. }), Some(index)) => {
                self.element(at, index, element)
            }
            (Some(FieldType::Sequence(element)), Some(index)) => self.counted(at, index, element),
            (Some(FieldType::Bytes), Some(index)) => {
                self.counted(at, index, &FieldType::Unsigned { bytes: 1, base: 16 })
            }
            (Some(ty), None) => self.scalar_or_text(at, &ty),
            _ => Ok(None),
        }
    }

    /// Returns an element of the sequence at an offset.
    fn counted(
        self,
        at: usize,
        index: u32,
        element: &FieldType,
    ) -> Result<Option<Value<'a>>, Unclear> {
        match self.count(at) {
            Some(count) if index < count => self.element(at + 4, index, element),
            _ => Ok(None),
        }
    }

    fn element(
        self,
        at: usize,
        index: u32,
        element: &FieldType,
    ) -> Result<Option<Value<'a>>, Unclear> {
        let offset = (index as usize).checked_mul(element.fixed_size().unwrap_or(0));
        offset
            .and_then(|offset| at.checked_add(offset))
            .map_or(Ok(None), |at| self.scalar_or_text(at, element))
    }

    /// Returns the number, truth, label or text at an offset.
    pub(super) fn scalar_or_text(
        self,
        at: usize,
        ty: &FieldType,
    ) -> Result<Option<Value<'a>>, Unclear> {
        Ok(match *ty {
            FieldType::Unsigned { bytes, .. } => self.unsigned(at, bytes).map(Value::Unsigned),
            FieldType::Signed { bytes, .. } => self.signed(at, bytes).map(Value::Signed),
            FieldType::Float { bytes: 4 } => {
                self.unsigned(at, 4).map(|bits| Value::Float(f32::from_bits(bits as u32).into()))
            }
            FieldType::Float { .. } => {
                self.unsigned(at, 8).map(|bits| Value::Float(f64::from_bits(bits)))
            }
            FieldType::Bool => self.unsigned(at, 1).map(|value| Value::Bool(value != 0)),
            FieldType::Enum { bytes, signed, labels } => {
                let value = if signed {
                    self.signed(at, bytes)
                } else {
                    self.unsigned(at, bytes).map(u64::cast_signed)
                };
                value.map(|value| {
                    let label = labels
                        .iter()
                        .find(|(number, _)| *number == value)
                        .map(|(_, label)| label.as_bytes());
                    let number = if signed { value.into() } else { value.cast_unsigned().into() };
                    Value::Enum { number, label }
                })
            }
            FieldType::String => Some(Value::Text(self.text(at, None)?)),
            FieldType::Text { bytes } => Some(Value::Text(self.text(at, Some(bytes as usize))?)),
            FieldType::Sequence(_)
            | FieldType::Array { .. }
            | FieldType::Bytes
            | FieldType::Optional(_) => None,
        })
    }

    /// Returns the offset behind the field at an offset.
    fn after(self, at: usize, ty: &FieldType) -> Option<usize> {
        let size = match ty {
            FieldType::String => self.bytes_from(at).position(|byte| byte == 0)? + 1,
            FieldType::Sequence(element) => {
                4 + (self.count(at)? as usize).checked_mul(element.fixed_size()?)?
            }
            FieldType::Bytes => 4 + self.count(at)? as usize,
            _ => ty.fixed_size()?,
        };
        at.checked_add(size)
    }

    fn count(self, at: usize) -> Option<u32> {
        self.unsigned(at, 4).map(|count| count as u32)
    }

    fn unsigned(self, at: usize, bytes: u8) -> Option<u64> {
        let mut word = [0; 8];
        let place = match cfg!(target_endian = "little") {
            true => word.get_mut(..usize::from(bytes))?,
            false => word.get_mut(8usize.checked_sub(bytes.into())?..)?,
        };
        match self.piece(at) {
            // The value is in one piece.
            Some(piece) if piece.len() >= place.len() => {
                place.copy_from_slice(&piece[..place.len()])
            }
            _ => {
                let mut rest = self.bytes_from(at);
                for byte in place {
                    *byte = rest.next()?;
                }
            }
        }
        Some(u64::from_ne_bytes(word))
    }

    fn signed(self, at: usize, bytes: u8) -> Option<i64> {
        let unused = 64 - 8 * u32::from(bytes.clamp(1, 8));
        self.unsigned(at, bytes).map(|value| (value << unused).cast_signed() >> unused)
    }

    /// Returns the text at an offset, up to its NUL: one of at most `most` bytes, or one that has a
    /// NUL.
    fn text(self, at: usize, most: Option<usize>) -> Result<&'a [u8], Unclear> {
        let piece = self.piece(at).unwrap_or_default();
        let piece = &piece[..most.unwrap_or(piece.len()).min(piece.len())];
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            return Ok(&piece[..end]);
        }
        let is_whole =
            most == Some(piece.len()) || self.bytes_from(at + piece.len()).next() == Some(0);
        if is_whole { Ok(piece) } else { Err(Unclear) }
    }

    /// Returns the rest of the piece that has this offset; none behind the end.
    fn piece(self, mut at: usize) -> Option<&'a [u8]> {
        for piece in self.0 {
            match at.checked_sub(piece.len()) {
                Some(rest) => at = rest,
                None => return piece.get(at..),
            }
        }
        None
    }

    fn bytes_from(self, at: usize) -> impl Iterator<Item = u8> {
        let mut skip = at;
        self.0.iter().flat_map(move |piece| {
            let from = skip.min(piece.len());
            skip -= from;
            piece[from..].iter().copied()
        })
    }
}

/// Returns the number of optional fields.
fn optional(fields: &[FieldDesc]) -> usize {
    fields.iter().filter(|field| matches!(field.ty, FieldType::Optional(_))).count()
}

/// Looks up which fields an event has, one after the other.
struct Present<'a> {
    payload: Payload<'a>,
    /// The bit of the next optional field.
    next: usize,
}

impl Present<'_> {
    /// Returns the type of the next field's value; none if the event lacks the field.
    fn field<'t>(&mut self, ty: &'t FieldType) -> Option<&'t FieldType> {
        let FieldType::Optional(inner) = ty else { return Some(ty) };
        let at = self.next;
        self.next += 1;
        let bits = self.payload.unsigned(at / 8, 1)?;
        let place = if cfg!(target_endian = "little") { at % 8 } else { 7 - at % 8 };
        (bits >> place & 1 != 0).then_some(*inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[FieldDesc] = &[
        FieldDesc { name: "number", ty: FieldType::Signed { bytes: 2, base: 10 } },
        FieldDesc { name: "text", ty: FieldType::String },
        FieldDesc {
            name: "list",
            ty: FieldType::Sequence(&FieldType::Unsigned { bytes: 4, base: 10 }),
        },
        FieldDesc { name: "last", ty: FieldType::Bool },
    ];

    fn place(field: usize, element: Option<u32>) -> Place {
        Place { from: field.min(1), at: if field == 0 { 0 } else { 2 }, field, element }
    }

    #[test]
    fn values_are_read_across_pieces() {
        let mut bytes = (-2i16).to_ne_bytes().to_vec();
        bytes.extend(b"text\0");
        for number in [3u32, 7, 8, 9] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.push(1);
        for cut in 0..=bytes.len() {
            let pieces = [&bytes[..cut], &bytes[cut..]];
            let value = |place| Payload(&pieces).value(FIELDS, &place);
            assert_eq!(value(place(0, None)), Ok(Some(Value::Signed(-2))), "{cut}");
            let is_cut = (3..6).contains(&cut);
            let text = if is_cut { Err(Unclear) } else { Ok(Some(Value::Text(b"text"))) };
            assert_eq!(value(place(1, None)), text, "{cut}");
            assert_eq!(value(place(2, Some(2))), Ok(Some(Value::Unsigned(9))), "{cut}");
            assert_eq!(value(place(2, Some(3))), Ok(None), "{cut}");
            assert_eq!(value(place(3, None)), Ok(Some(Value::Bool(true))), "{cut}");
        }
    }

    /// Fields that the event lacks have no value, and the others are found behind them.
    #[test]
    fn optional_fields_are_found_by_their_bits() {
        const NUMBER: FieldType = FieldType::Unsigned { bytes: 2, base: 10 };
        let field = |at: u32| FieldDesc {
            name: "x",
            ty: if at == 3 { FieldType::String } else { FieldType::Optional(&NUMBER) },
        };
        let fields: Vec<FieldDesc> = (0..12).map(field).collect();
        for present in (0..1u32 << 11).step_by(if cfg!(miri) { 331 } else { 1 }) {
            let (mut bits, mut values, mut optional) = ([0u8; 2], Vec::new(), 0);
            let mut expected = Vec::new();
            for at in 0..12u16 {
                if at == 3 {
                    values.extend(b"text\0");
                    expected.push(Some(Value::Text(b"text")));
                    continue;
                }
                let is_present = present >> optional & 1 != 0;
                let place =
                    if cfg!(target_endian = "little") { optional % 8 } else { 7 - optional % 8 };
                bits[optional / 8] |= u8::from(is_present) << place;
                optional += 1;
                if is_present {
                    values.extend((at * 100).to_ne_bytes());
                }
                expected.push(is_present.then_some(Value::Unsigned(u64::from(at) * 100)));
            }
            let bytes = [&bits[..], &values].concat();
            for (at, expected) in expected.into_iter().enumerate() {
                let place = Place { from: 0, at: 2, field: at, element: None };
                assert_eq!(
                    Payload(&[&bytes]).value(&fields, &place),
                    Ok(expected),
                    "{present:b}, field {at}"
                );
            }
        }
    }
}
