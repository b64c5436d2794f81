//! Field classes of CTF 2.

use super::{Object, Wrong, attributes, extensions, list, location, map, number, text};
use crate::program::MAX_ALIGNMENT;
use lastwords_bytes::{Budget, ByteOrder, low_u8};
use lastwords_trace::class::MAX_DEPTH;
use lastwords_trace::class::{
    Array, Bits, Blob, Encoding, Field, FieldClass, Float, Integer, Labels, Length, Mapping,
    Optional, Range, Role, Scope, Struct, Text, Variant, VariantOption,
};
use serde_json::Value;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Makes field classes; knows the aliases.
#[derive(Debug)]
pub(super) struct Builder<'b> {
    aliases: HashMap<String, Rc<Value>>,
    /// Pays for the bytes of the model.
    budget: &'b Budget,
    is_spent: Cell<bool>,
    depth: usize,
    scope: Option<Scope>,
    /// The members from the root of the scope to the structure that is being made.
    names: Vec<String>,
}

/// Values that a selector can have.
const ANY: RangeInclusive<i128> = i64::MIN as i128..=u64::MAX as i128;
/// Returns approximately how many bytes a value takes in a model.
fn weight(value: &Value) -> u64 {
    let inside: u64 = match value {
        Value::String(text) => text.len() as u64,
        Value::Array(values) => values.iter().map(weight).fold(0, u64::saturating_add),
        Value::Object(object) => {
            let weights =
                object.iter().map(|(key, value)| weight(value).saturating_add(key.len() as u64));
            weights.fold(0, u64::saturating_add)
        }
        _ => 0,
    };
    inside.saturating_add(48)
}

impl<'b> Builder<'b> {
    pub(super) fn new(budget: &'b Budget) -> Self {
        Self {
            aliases: HashMap::new(),
            budget,
            is_spent: Cell::new(false),
            depth: 0,
            scope: None,
            names: Vec::new(),
        }
    }

    fn spend(&self, bytes: u64) -> Result<(), Wrong> {
        self.budget.bytes("the field classes of these metadata", bytes).map_err(|error| {
            self.is_spent.set(true);
            error.to_string()
        })
    }

    /// Returns true if the budget could not pay for a class: nothing more can be made.
    pub(super) fn is_spent(&self) -> bool {
        self.is_spent.get()
    }

    pub(super) fn alias(&mut self, name: &str, class: &Value) -> Result<(), Wrong> {
        // An alias may refer only to an earlier one, so that no chain of aliases is a loop.
        if let Value::String(other) = class
            && !self.aliases.contains_key(other)
        {
            return Err(format!("field class alias {other:?}: there is none before"));
        }
        match self.aliases.insert(name.to_owned(), Rc::new(class.clone())) {
            Some(_) => Err(format!("a second field class alias {name:?}")),
            None => Ok(()),
        }
    }

    pub(super) fn root(&mut self, class: &Value, scope: Scope) -> Result<Struct, Wrong> {
        (self.scope, self.depth) = (Some(scope), 0);
        self.names.clear();
        match self.class(class)? {
            FieldClass::Struct(of) => Ok(of),
            _ => Err("expected a structure".into()),
        }
    }

    fn class(&mut self, value: &Value) -> Result<FieldClass, Wrong> {
        self.depth = self.depth.saturating_add(1);
        if self.depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH}"));
        }
        self.spend((size_of::<Field>() as u64).saturating_mul(2))?;
        let class = match value {
            Value::String(name) => {
                let class = self.aliases.get(name).map(Rc::clone);
                self.class(
                    &*class.ok_or_else(|| format!("field class alias {name:?}: there is none"))?,
                )
            }
            Value::Object(object) => self.object(object),
            other => Err(format!("found {other}, expected a field class")),
        }?;
        self.depth = self.depth.saturating_sub(1);
        Ok(class)
    }

    fn object(&mut self, object: &Object) -> Result<FieldClass, Wrong> {
        let kind = text(object, "type")?.ok_or("field class: expected a `type`")?;
        let kept = ["attributes", "mappings", "flags", "media-type"]
            .iter()
            .filter_map(|key| object.get(*key));
        self.spend(kept.map(weight).sum())?;
        extensions(object)?;
        let attributes = attributes(object)?;
        Ok(match kind {
            "fixed-length-bit-array" => FieldClass::BitArray(bits(object)?),
            "fixed-length-bit-map" => {
                let bits = bits(object)?;
                let flags =
                    mappings(object, "flags", &(0..=i128::from(bits.length).saturating_sub(1)))?;
                if flags.is_empty() {
                    return Err("flags: expected one at least".into());
                }
                FieldClass::BitMap(bits, flags)
            }
            "fixed-length-boolean" => FieldClass::Bool(bits(object)?),
            "fixed-length-unsigned-integer" => {
                FieldClass::Integer(integer(object, bits(object)?, false)?)
            }
            "fixed-length-signed-integer" => {
                FieldClass::Integer(integer(object, bits(object)?, true)?)
            }
            "variable-length-unsigned-integer" => {
                FieldClass::Variable(integer(object, leb128(), false)?)
            }
            "variable-length-signed-integer" => {
                FieldClass::Variable(integer(object, leb128(), true)?)
            }
            "fixed-length-floating-point-number" => {
                FieldClass::Float(Float { bits: bits(object)?, attributes })
            }
            "null-terminated-string" => {
                FieldClass::Text(Text { length: None, encoding: encoding(object)?, attributes })
            }
            "static-length-string" | "dynamic-length-string" => {
                let length = Some(self.length(object, kind)?);
                FieldClass::Text(Text { length, encoding: encoding(object)?, attributes })
            }
            "static-length-blob" | "dynamic-length-blob" => {
                let media_type =
                    text(object, "media-type")?.unwrap_or("application/octet-stream").to_owned();
                let is_uuid = roles(object)?.contains(&Role::TraceUuid);
                let length = self.length(object, kind)?;
                if is_uuid && length != Length::Fixed(16) {
                    return Err("a UUID has a length of 16 bytes".into());
                }
                FieldClass::Blob(Blob { length, media_type, is_uuid, attributes })
            }
            "structure" => FieldClass::Struct(self.structure(object, attributes)?),
            "static-length-array" | "dynamic-length-array" => FieldClass::Array(Box::new(Array {
                length: self.length(object, kind)?,
                element: self.class(
                    object.get("element-field-class").ok_or("expected an `element-field-class`")?,
                )?,
                alignment: alignment(object, "minimum-alignment")?,
                is_uuid: roles(object)?.contains(&Role::TraceUuid),
                attributes,
            })),
            "optional" => self.optional(object, attributes)?,
            "variant" => self.variant(object, attributes)?,
            other => return Err(format!("unknown field class `{other}`")),
        })
    }

    fn location(&self, object: &Object, key: &str) -> Result<lastwords_trace::class::Path, Wrong> {
        // The last name is that of the field itself. An element or option has no name of its own.
        let inside = self.names.len().saturating_sub(1);
        let names = self.names.get(..inside).unwrap_or_default();
        location(object.get(key), self.scope.unwrap_or(Scope::Payload), names, key)
    }

    fn length(&self, object: &Object, kind: &str) -> Result<Length, Wrong> {
        if kind.starts_with("static") {
            return Ok(Length::Fixed(number(object, "length")?.ok_or("expected a `length`")?));
        }
        self.location(object, "length-field-location").map(Length::Of)
    }

    fn structure(&mut self, object: &Object, attributes_of: String) -> Result<Struct, Wrong> {
        let mut of = Struct {
            alignment: alignment(object, "minimum-alignment")?,
            fields: Vec::new(),
            attributes: attributes_of,
        };
        let members = list(object, "member-classes")?;
        let mut names = HashSet::new();
        for member in members.into_iter().flatten() {
            let member = member.as_object().ok_or("member class: expected an object")?;
            let name = text(member, "name")?.ok_or("member class: expected a `name`")?.to_owned();
            // Each member of this structure keeps the names above it for a while.
            let above: u64 =
                self.names.iter().map(|name| name.len() as u64 / 64).fold(0, u64::saturating_add);
            self.spend(above.saturating_add(name.len() as u64))?;
            if !names.insert(name.clone()) {
                return Err(format!("a second member {name:?}"));
            }
            let class = member
                .get("field-class")
                .ok_or_else(|| format!("{name}: expected a `field-class`"))?;
            self.names.push(name.clone());
            let class = self.class(class).map_err(|what| format!("{name}: {what}"))?;
            self.names.pop();
            of.fields.push(Field { name, class, attributes: attributes(member)? });
        }
        Ok(of)
    }

    fn optional(&mut self, object: &Object, attributes: String) -> Result<FieldClass, Wrong> {
        let ranges = match object.get("selector-field-ranges") {
            None => None,
            Some(ranges_of) => Some(ranges(ranges_of, &ANY)?),
        };
        Ok(FieldClass::Optional(Box::new(Optional {
            selector: self.location(object, "selector-field-location")?,
            ranges,
            class: self
                .class(object.get("field-class").ok_or("optional: expected a `field-class`")?)?,
            attributes,
        })))
    }

    fn variant(&mut self, object: &Object, attributes_of: String) -> Result<FieldClass, Wrong> {
        let selector = self.location(object, "selector-field-location")?;
        let (mut options, mut taken): (Vec<_>, Vec<Range>) = Default::default();
        for option in list(object, "options")?.into_iter().flatten() {
            let option = option.as_object().ok_or("option: expected an object")?;
            let value = option
                .get("selector-field-ranges")
                .ok_or("option: expected `selector-field-ranges`")?;
            let ranges = ranges(value, &ANY)?;
            taken.extend(&ranges);
            let class =
                self.class(option.get("field-class").ok_or("option: expected a `field-class`")?)?;
            let name = text(option, "name")?.unwrap_or_default().to_owned();
            options.push(VariantOption { name, ranges, class, attributes: attributes(option)? });
        }
        if options.is_empty() {
            return Err("variant: expected options".into());
        }
        taken.sort();
        if let Some((one, _)) =
            taken.iter().zip(taken.iter().skip(1)).find(|(one, next)| next.lower <= one.upper)
        {
            return Err(format!("variant: two options for the value {}", one.upper));
        }
        Ok(FieldClass::Variant(Box::new(Variant { selector, options, attributes: attributes_of })))
    }
}

/// Returns the bits of a variable-length integer.
fn leb128() -> Bits {
    Bits { length: 64, alignment: 8, order: ByteOrder::Little, reversed: false }
}

fn alignment(object: &Object, key: &str) -> Result<u64, Wrong> {
    let bits = number(object, key)?.unwrap_or(1);
    if bits.is_power_of_two() && bits <= MAX_ALIGNMENT {
        Ok(bits)
    } else {
        Err(format!("{key} {bits}: expected a power of two up to {MAX_ALIGNMENT}"))
    }
}

fn bits(object: &Object) -> Result<Bits, Wrong> {
    let length =
        number(object, "length")?.and_then(|bits| u8::try_from(bits).ok()).filter(|bits| *bits > 0);
    let order = match text(object, "byte-order")? {
        Some("little-endian") => ByteOrder::Little,
        Some("big-endian") => ByteOrder::Big,
        Some(other) => {
            return Err(format!("byte-order {other:?}: expected little-endian or big-endian"));
        }
        None => return Err("expected a `byte-order`".into()),
    };
    let natural = if order == ByteOrder::Little { "first-to-last" } else { "last-to-first" };
    let reversed = match text(object, "bit-order")? {
        None => false,
        Some(word @ ("first-to-last" | "last-to-first")) => word != natural,
        Some(word) => {
            return Err(format!("bit-order {word:?}: expected first-to-last or last-to-first"));
        }
    };
    let alignment = u16::try_from(alignment(object, "alignment")?).unwrap_or(1);
    Ok(Bits { length: length.ok_or("length: expected 1 to 64 bits")?, alignment, order, reversed })
}

fn integer(object: &Object, bits: Bits, signed: bool) -> Result<Integer, Wrong> {
    let base = match number(object, "preferred-display-base")? {
        None => 10,
        Some(base @ (2 | 8 | 10 | 16)) => low_u8(base),
        Some(base) => {
            return Err(format!("preferred-display-base {base}: expected 2, 8, 10 or 16"));
        }
    };
    let mut integer = Integer::new(bits, signed, base);
    integer.mappings = mappings(object, "mappings", &all_of(signed))?;
    integer.roles = roles(object)?;
    if integer.has(Role::Magic) && bits.length != 32 {
        return Err(format!("a magic number of {} bits: expected 32", bits.length));
    }
    integer.attributes = attributes(object)?;
    if signed && !integer.roles.is_empty() {
        return Err("roles: only an unsigned integer has such".into());
    }
    Ok(integer)
}

fn roles(object: &Object) -> Result<Vec<Role>, Wrong> {
    list(object, "roles")?
        .into_iter()
        .flatten()
        .map(|role| role.as_str().and_then(role_of).ok_or_else(|| format!("unknown role {role}")))
        .collect()
}

fn role_of(name: &str) -> Option<Role> {
    Some(match name {
        "packet-magic-number" => Role::Magic,
        "metadata-stream-uuid" => Role::TraceUuid,
        "data-stream-class-id" => Role::StreamClassId,
        "data-stream-id" => Role::StreamId,
        "packet-total-length" => Role::PacketLength,
        "packet-content-length" => Role::ContentLength,
        "default-clock-timestamp" => Role::Clock,
        "packet-end-default-clock-timestamp" => Role::PacketEnd,
        "discarded-event-record-counter-snapshot" => Role::Discarded,
        "packet-sequence-number" => Role::Sequence,
        "event-record-class-id" => Role::EventClassId,
        _ => return None,
    })
}

fn encoding(object: &Object) -> Result<Encoding, Wrong> {
    Ok(match text(object, "encoding")? {
        None | Some("utf-8") => Encoding::Utf8,
        Some("utf-16be") => Encoding::Utf16Be,
        Some("utf-16le") => Encoding::Utf16Le,
        Some("utf-32be") => Encoding::Utf32Be,
        Some("utf-32le") => Encoding::Utf32Le,
        Some(other) => {
            return Err(format!(
                "encoding {other:?}: expected utf-8, utf-16be, utf-16le, utf-32be or utf-32le"
            ));
        }
    })
}

/// Returns the range of all values of an integer.
fn all_of(signed: bool) -> RangeInclusive<i128> {
    if signed { i64::MIN.into()..=i64::MAX.into() } else { 0..=u64::MAX.into() }
}

/// Reads labels and their ranges, which must be within `bounds`, and sorts them.
fn mappings(object: &Object, key: &str, bounds: &RangeInclusive<i128>) -> Result<Labels, Wrong> {
    let mut mappings: Vec<Mapping> = map(object, key)?
        .into_iter()
        .flatten()
        .map(|(label, value)| Ok(Mapping { label: label.clone(), ranges: ranges(value, bounds)? }))
        .collect::<Result<_, Wrong>>()?;
    mappings.sort_by(|a, b| a.label.cmp(&b.label));
    Ok(mappings.into())
}

/// Reads ranges within `bounds`. There must be at least one.
fn ranges(value: &Value, bounds: &RangeInclusive<i128>) -> Result<Vec<Range>, Wrong> {
    let bound = |value: &Value| {
        value
            .as_u64()
            .map(i128::from)
            .or_else(|| value.as_i64().map(i128::from))
            .filter(|bound| bounds.contains(bound))
            .ok_or_else(|| {
                format!("range bound {value}: expected {} to {}", bounds.start(), bounds.end())
            })
    };
    let list = value.as_array().filter(|list| !list.is_empty()).ok_or("expected ranges")?;
    list.iter()
        .map(|range| match range {
            Value::Array(pair) => match pair.as_slice() {
                [lower, upper] => {
                    let range = Range { lower: bound(lower)?, upper: bound(upper)? };
                    if range.lower > range.upper {
                        Err("an empty range".to_owned())
                    } else {
                        Ok(range)
                    }
                }
                _ => Err("range: expected two bounds".to_owned()),
            },
            other => Err(format!("range {other}: expected two bounds")),
        })
        .collect()
}
