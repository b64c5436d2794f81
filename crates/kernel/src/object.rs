//! Reads structures in the image by the names of their members.

use crate::Error;
use crate::btf::{Member, MemberKind, TypeId, Types};
use crate::memory::Memory;
use lastwords_bytes::ByteOrder;

/// Most bytes of a member that are read at once.
const BYTES_MAX: u64 = 1 << 20;

/// A typed location in the kernel's memory.
///
/// A path names a member: `reader_page`, `array_buffer.buffer`, `mem[1].base`; the empty path is
/// the object itself. Offsets of members are cached, so a loop over many objects costs little more
/// than its reads.
#[derive(Clone, Copy)]
pub struct Object<'k> {
    memory: &'k dyn Memory,
    types: &'k Types,
    type_id: TypeId,
    place: u64,
}

impl std::fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {:#x}", self.type_name(), self.place)
    }
}

impl<'k> Object<'k> {
    /// Creates an object of type `type_id` at address `place`.
    #[must_use]
    pub fn new(memory: &'k dyn Memory, types: &'k Types, type_id: TypeId, place: u64) -> Self {
        Self { memory, types, type_id, place }
    }

    /// Address of the object.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.place
    }

    /// Type of the object.
    #[must_use]
    pub fn type_id(&self) -> TypeId {
        self.type_id
    }

    /// Name of the object's type.
    #[must_use]
    pub fn type_name(&self) -> String {
        self.types.name(self.type_id)
    }

    /// Size of the object, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.types.size(self.type_id)
    }

    /// The object of the same type `bytes` further on.
    #[must_use]
    pub fn moved(&self, bytes: u64) -> Self {
        Self { place: self.place.wrapping_add(bytes), ..*self }
    }

    /// The object of another type at the same address.
    ///
    /// # Errors
    /// No type has that name.
    pub fn cast(&self, type_name: &str) -> Result<Self, Error> {
        Ok(Self { type_id: self.types.id(type_name)?, ..*self })
    }

    /// The structure `type_name` that contains this object as its member `path`.
    ///
    /// # Errors
    /// There is no such structure or member.
    pub fn container(&self, type_name: &str, path: &str) -> Result<Self, Error> {
        let outer = self.cast(type_name)?;
        let offset = outer.member(path)?.offset;
        Ok(Self { place: self.place.wrapping_sub(offset), ..outer })
    }

    /// Location and kind of a member.
    ///
    /// # Errors
    /// There is no such member.
    pub fn member(&self, path: &str) -> Result<Member, Error> {
        self.types.member_of(self.type_id, path)
    }

    /// True if the object has such a member.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.member(path).is_ok()
    }

    /// The member as an object: an embedded structure, an array.
    ///
    /// # Errors
    /// There is no such member.
    pub fn at(&self, path: &str) -> Result<Self, Error> {
        let member = self.member(path)?;
        Ok(Self { type_id: member.type_id, place: self.place.wrapping_add(member.offset), ..*self })
    }

    /// A member's number, without sign extension; also a pointer's value or a bit field.
    ///
    /// # Errors
    /// There is no such member, it is no number, or the image lacks it.
    pub fn u64(&self, path: &str) -> Result<u64, Error> {
        let member = self.member(path)?;
        let place = self.place.wrapping_add(member.offset);
        let at = |hole| self.hole(path, hole);
        if let Some((bit, bits)) = member.bits {
            return self.bits(place, bit, bits).map_err(at);
        }
        // Types such as atomic_t and kref are structures that contain only a number.
        let size = match member.kind {
            MemberKind::Number { .. } | MemberKind::Pointer => member.size,
            MemberKind::Structure if matches!(member.size, 1 | 2 | 4 | 8) => member.size,
            _ => return Err(self.shape(path, "a number")),
        };
        let size = usize::try_from(size).ok().filter(|size| matches!(size, 1 | 2 | 4 | 8));
        self.memory
            .number(place, size.ok_or_else(|| self.shape(path, "a number of 1 to 8 bytes"))?)
            .map_err(at)
    }

    /// A member's number, without sign extension, in a smaller type.
    ///
    /// # Errors
    /// Same as [`Object::u64`]; the number does not fit.
    pub fn fit<T: TryFrom<u64>>(&self, path: &str) -> Result<T, Error> {
        T::try_from(self.u64(path)?).map_err(|_| self.shape(path, "a smaller number"))
    }

    /// A member's number, with sign extension.
    ///
    /// # Errors
    /// Same as [`Object::u64`].
    pub fn i64(&self, path: &str) -> Result<i64, Error> {
        let member = self.member(path)?;
        let bits = member.bits.map_or(member.size.saturating_mul(8), |(_, bits)| bits.into());
        let shift = 64u32.saturating_sub(u32::try_from(bits).unwrap_or(64));
        let value = self.u64(path)?;
        Ok(value.wrapping_shl(shift).cast_signed().wrapping_shr(shift))
    }

    /// True if a member is not 0.
    ///
    /// # Errors
    /// Same as [`Object::u64`].
    pub fn bool(&self, path: &str) -> Result<bool, Error> {
        Ok(self.u64(path)? != 0)
    }

    /// Value of a pointer; 0 is NULL.
    ///
    /// # Errors
    /// Same as [`Object::u64`].
    pub fn address(&self, path: &str) -> Result<u64, Error> {
        self.u64(path)
    }

    /// The object that a pointer points to.
    ///
    /// # Errors
    /// There is no such member, it is no pointer to a known type, it is NULL, or the image lacks
    /// it.
    pub fn pointer(&self, path: &str) -> Result<Self, Error> {
        self.pointer_or_null(path)?
            .ok_or_else(|| Error::Null { structure: self.type_name(), member: path.into() })
    }

    /// The object that a pointer points to; none if the pointer is NULL.
    ///
    /// # Errors
    /// Same as [`Object::pointer`], except for NULL.
    pub fn pointer_or_null(&self, path: &str) -> Result<Option<Self>, Error> {
        let member = self.member(path)?;
        if member.kind != MemberKind::Pointer {
            return Err(self.shape(path, "a pointer"));
        }
        let target = self
            .types
            .target(member.type_id)
            .ok_or_else(|| self.shape(path, "a pointer to a known type"))?;
        let place = self.address(path)?;
        Ok((place != 0).then_some(Self { type_id: target, place, ..*self }))
    }

    /// Element number `index` of an array, or of the array that a pointer points to.
    ///
    /// # Errors
    /// There is no such member, it is neither, `index` is past the array's end, or the image lacks
    /// the pointer.
    pub fn element(&self, path: &str, index: u64) -> Result<Self, Error> {
        let member = self.member(path)?;
        let target =
            self.types.target(member.type_id).ok_or_else(|| self.shape(path, "an array"))?;
        let base = match member.kind {
            MemberKind::Array { count, .. } if count == 0 || index < count => {
                self.place.wrapping_add(member.offset)
            }
            MemberKind::Pointer => self.pointer(path)?.place,
            _ => return Err(self.shape(path, "an array that long")),
        };
        let place = base.wrapping_add(index.wrapping_mul(self.types.size(target)));
        Ok(Self { type_id: target, place, ..*self })
    }

    /// Number of elements of an array; 0 for a flexible array.
    ///
    /// # Errors
    /// There is no such member, or it is no array.
    pub fn count(&self, path: &str) -> Result<u64, Error> {
        match self.member(path)?.kind {
            MemberKind::Array { count, .. } => Ok(count),
            _ => Err(self.shape(path, "an array")),
        }
    }

    /// Text of an array of characters, or of the characters that a pointer points to; empty for
    /// NULL.
    ///
    /// # Errors
    /// There is no such member, it is neither, or the image lacks it.
    pub fn text(&self, path: &str) -> Result<String, Error> {
        let member = self.member(path)?;
        let (place, most) = match member.kind {
            MemberKind::Array { count, element_size: 1 } => {
                (self.place.wrapping_add(member.offset), if count == 0 { BYTES_MAX } else { count })
            }
            MemberKind::Pointer => match self.address(path)? {
                0 => return Ok(String::new()),
                place => (place, BYTES_MAX),
            },
            _ => return Err(self.shape(path, "text")),
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.memory.text(place, most).map_err(|hole| self.hole(path, hole))
    }

    /// The bytes of a member.
    ///
    /// # Errors
    /// There is no such member, it is larger than 1 MiB, or the image lacks it.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, Error> {
        let member = self.member(path)?;
        let size =
            usize::try_from(member.size.min(BYTES_MAX.saturating_add(1))).unwrap_or(usize::MAX);
        if size as u64 > BYTES_MAX {
            return Err(self.shape(path, "of less than a mebibyte"));
        }
        let mut bytes = vec![0; size];
        let place = self.place.wrapping_add(member.offset);
        self.memory.read(place, &mut bytes).map_err(|hole| self.hole(path, hole))?;
        Ok(bytes)
    }

    fn bits(&self, place: u64, bit: u8, bits: u8) -> Result<u64, lastwords_image::Hole> {
        let span = u32::from(bit).saturating_add(bits.into());
        let len = span.div_ceil(8).min(16) as usize;
        let mut raw = [0u8; 16];
        self.memory.read(place, raw.get_mut(..len).unwrap_or_default())?;
        let value = match self.memory.byte_order() {
            ByteOrder::Little => u128::from_le_bytes(raw) >> bit,
            ByteOrder::Big => u128::from_be_bytes(raw).wrapping_shr(128u32.saturating_sub(span)),
        };
        let mask = u64::MAX.wrapping_shr(64u32.saturating_sub(bits.into()));
        Ok(u64::try_from(value & u128::from(mask)).unwrap_or(mask))
    }

    #[cold]
    fn hole(&self, path: &str, hole: lastwords_image::Hole) -> Error {
        Error::Hole {
            what: format!("{} of struct {} at {:#x}", path, self.type_name(), self.place),
            hole,
        }
    }

    #[cold]
    fn shape(&self, path: &str, expected: &'static str) -> Error {
        Error::Shape { structure: self.type_name(), member: path.into(), expected }
    }
}
