//! Writes a BTF blob: types in the order of their numbers, and strings.

use super::{Btf, Types};
use lastwords_bytes::{Budget, ByteOrder, Error};
use std::collections::HashMap;
use std::sync::Arc;

/// Magic of a blob, and length of its header in bytes (`include/uapi/linux/btf.h`).
const MAGIC: u16 = 0xeb9f;
const HEADER: u32 = 24;

/// The first words of every type.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Head {
    /// String offset of the name; 0 without a name.
    pub(crate) name: u32,
    pub(crate) kind: u8,
    pub(crate) flag: bool,
    /// Number of members or enumerators.
    pub(crate) count: usize,
    /// Depending on the kind: size in bytes, or the number of the type that this type refers to.
    pub(crate) size_or_type: u32,
}

/// A blob under construction. Type numbers and string offsets continue those of `base`.
pub(crate) struct Blob {
    base: Option<Arc<Btf>>,
    order: ByteOrder,
    first: u32,
    first_string: u32,
    /// Types in the order in which they were written.
    bytes: Vec<u8>,
    /// Range in `bytes` of each type, in the order of their numbers.
    places: Vec<std::ops::Range<usize>>,
    strings: Vec<u8>,
    known: HashMap<Box<[u8]>, u32>,
}

impl Blob {
    pub(crate) fn new(base: Option<Arc<Btf>>, order: ByteOrder) -> Self {
        let first = base.as_ref().map_or(1, |base| base.end());
        let first_string = base.as_ref().map_or(0, |base| base.string_end());
        let (bytes, places, known) = (Vec::new(), Vec::new(), HashMap::new());
        Self { base, order, first, first_string, bytes, places, strings: vec![0], known }
    }

    /// Number of bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len().saturating_add(self.strings.len())
    }

    /// Reserves the number of a type that [`Self::write`] will write.
    pub(crate) fn reserve(&mut self) -> u32 {
        let id = self.first.saturating_add(number(self.places.len() as u64));
        self.places.push(0..0);
        id
    }

    /// Writes the type whose number was reserved.
    pub(crate) fn write(&mut self, id: u32, head: Head, body: &[u32]) {
        let begin = self.bytes.len();
        let info = u32::from(head.flag) << 31
            | u32::from(head.kind) << 24
            | number(head.count as u64) & 0xff_ffff;
        for word in [head.name, info, head.size_or_type].iter().chain(body) {
            let word = self.word(*word);
            self.bytes.extend(word);
        }
        let end = self.bytes.len();
        if let Some(place) =
            id.checked_sub(self.first).and_then(|index| self.places.get_mut(index as usize))
        {
            *place = begin..end;
        }
    }

    /// Adds a type; returns its number.
    pub(crate) fn add(&mut self, head: Head, body: &[u32]) -> u32 {
        let id = self.reserve();
        self.write(id, head, body);
        id
    }

    /// Returns the offset of a string; adds the string if it is new.
    pub(crate) fn string(&mut self, text: &[u8]) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(at) = self.known.get(text) {
            return *at;
        }
        let at = self.first_string.saturating_add(number(self.strings.len() as u64));
        self.strings.extend(text);
        self.strings.push(0);
        self.known.insert(text.into(), at);
        at
    }

    /// Encodes the blob.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let lens = (number(self.bytes.len() as u64), number(self.strings.len() as u64));
        let mut blob = Vec::with_capacity(self.len().saturating_add(HEADER as usize));
        blob.extend(self.order.little(MAGIC.to_le_bytes()));
        // Version 1, no flags.
        blob.extend([1, 0]);
        for word in [HEADER, 0, lens.0, lens.0, lens.1] {
            blob.extend(self.word(word));
        }
        for place in &self.places {
            blob.extend(self.bytes.get(place.clone()).unwrap_or_default());
        }
        blob.extend(&self.strings);
        blob
    }

    /// Parses the blob: the types of the base and its own.
    ///
    /// # Errors
    /// There are too many types.
    pub(crate) fn types(self, budget: &Budget) -> Result<Types, Error> {
        Ok(Types::new(Arc::new(Btf::parse(self.bytes(), self.base, budget)?)))
    }

    fn word(&self, value: u32) -> [u8; 4] {
        self.order.little(value.to_le_bytes())
    }
}

/// Converts a number to 32 bits, saturating.
pub(crate) fn number(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
