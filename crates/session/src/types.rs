//! Decodes field types in registry records.

use lastwords_abi::registry::field as abi;
use lastwords_bytes::{Budget, Error, Reader};
use lastwords_trace::schema::FieldClass;

/// Reads a u16 length and that many bytes.
pub(crate) fn bytes<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Error> {
    let len = r.u16()?;
    r.take(usize::from(len))
}

/// Reads a u16 length and that many bytes of text; invalid UTF-8 is replaced.
pub(crate) fn text(r: &mut Reader<'_>) -> Result<String, Error> {
    Ok(String::from_utf8_lossy(bytes(r)?).into_owned())
}

/// Reads the type of a field.
pub(crate) fn class(r: &mut Reader<'_>, budget: &Budget) -> Result<FieldClass, Error> {
    nested(r, budget, 0)
}

fn nested(r: &mut Reader<'_>, budget: &Budget, depth: u64) -> Result<FieldClass, Error> {
    budget.depth(r.what(), depth)?;
    budget.steps(r.what(), 1)?;
    let kind = r.u8()?;
    Ok(match kind {
        abi::UNSIGNED | abi::SIGNED => integer(r, kind == abi::SIGNED)?,
        abi::FLOAT => match r.u8()? {
            size @ (4 | 8) => FieldClass::Float { size },
            other => return Err(r.unexpected(u64::from(other), "a float of 4 or 8 bytes")),
        },
        abi::BOOL => FieldClass::Bool,
        abi::STRING => FieldClass::String,
        abi::SEQUENCE => FieldClass::Sequence(Box::new(scalar(r, budget, depth)?)),
        abi::ARRAY => {
            let count = r.u32()?;
            FieldClass::Array { count, element: Box::new(scalar(r, budget, depth)?) }
        }
        abi::ENUM => enumeration(r, budget)?,
        abi::TEXT => FieldClass::Text { size: r.u32()? },
        abi::BYTES => FieldClass::Bytes,
        abi::OPTIONAL => FieldClass::Optional(Box::new(optional(r, budget, depth)?)),
        other => return Err(r.unexpected(u64::from(other), "a field type from 1 to 11")),
    })
}

fn scalar(r: &mut Reader<'_>, budget: &Budget, depth: u64) -> Result<FieldClass, Error> {
    let element = nested(r, budget, depth.saturating_add(1))?;
    if element.is_scalar() {
        Ok(element)
    } else {
        Err(r.unexpected(depth, "elements of a scalar type"))
    }
}

fn optional(r: &mut Reader<'_>, budget: &Budget, depth: u64) -> Result<FieldClass, Error> {
    let class = nested(r, budget, depth.saturating_add(1))?;
    let is_allowed =
        class.is_scalar() || matches!(class, FieldClass::String | FieldClass::Text { .. });
    if is_allowed { Ok(class) } else { Err(r.unexpected(depth, "an optional number or text")) }
}

fn integer(r: &mut Reader<'_>, signed: bool) -> Result<FieldClass, Error> {
    let (size, base) = (r.u8()?, r.u8()?);
    if !matches!(size, 1 | 2 | 4 | 8) {
        return Err(r.unexpected(u64::from(size), "an integer of 1, 2, 4 or 8 bytes"));
    }
    let base = if base == 16 { 16 } else { 10 };
    Ok(FieldClass::Integer { size, signed, base })
}

fn enumeration(r: &mut Reader<'_>, budget: &Budget) -> Result<FieldClass, Error> {
    let container = r.u8()?;
    if container != abi::UNSIGNED && container != abi::SIGNED {
        return Err(r.unexpected(u64::from(container), "the integer type of an enumeration"));
    }
    let FieldClass::Integer { size, signed, .. } = integer(r, container == abi::SIGNED)? else {
        return Err(r.unexpected(u64::from(container), "an integer"));
    };
    let count = r.u16()?;
    budget.steps(r.what(), u64::from(count))?;
    let labels = (0..count).map(|_| Ok((r.i64()?, text(r)?))).collect::<Result<Vec<_>, Error>>()?;
    Ok(FieldClass::Enum { size, signed, labels })
}
