//! Writing a blob: types in the order of their numbers, and strings.

use super::{Btf, Types};
use lastwords_bytes::{Budget, ByteOrder, Error};
use std::collections::HashMap;
use std::sync::Arc;

/// Magic of a blob, and the bytes of its header (`include/uapi/linux/btf.h`).
const MAGIC: u16 = 0xeb9f;
const HEADER: u32 = 24;

/// What every type begins with.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Head {
    /// Offset of its name; 0 for none.
    pub(crate) name: u32,
    pub(crate) kind: u8,
    pub(crate) flag: bool,
    /// Members, enumerators.
    pub(crate) count: usize,
    /// Bytes, or the number of the type that it refers to: by kind.
    pub(crate) size_or_type: u32,
}

/// A blob in the making. Numbers and string offsets go on where the base's end.
pub(crate) struct Blob {
    base: Option<Arc<Btf>>,
    order: ByteOrder,
    first: u32,
    first_string: u32,
    /// Types in the order in which they were written.
    bytes: Vec<u8>,
    /// Where in `bytes` each type lies, in the order of their numbers.
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

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len().saturating_add(self.strings.len())
    }

    /// The number of a type that [`Self::write`] will be given for.
    pub(crate) fn reserve(&mut self) -> u32 {
        let id = self.first.saturating_add(number(self.places.len() as u64));
        self.places.push(0..0);
        id
    }

    /// Writes the type of a number that was reserved.
    pub(crate) fn write(&mut self, id: u32, head: Head, body: &[u32]) {
        let begin = self.bytes.len();
        let info = u32::from(head.flag) << 31 | u32::from(head.kind) << 24 | number(head.count as u64) & 0xff_ffff;
        for word in [head.name, info, head.size_or_type].iter().chain(body) {
            let word = self.word(*word);
            self.bytes.extend(word);
        }
        let end = self.bytes.len();
        if let Some(place) = id.checked_sub(self.first).and_then(|index| self.places.get_mut(index as usize)) {
            *place = begin..end;
        }
    }

    /// Adds a type; its number.
    pub(crate) fn add(&mut self, head: Head, body: &[u32]) -> u32 {
        let id = self.reserve();
        self.write(id, head, body);
        id
    }

    /// Offset of a text.
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

    /// The bytes of it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let lens = (number(self.bytes.len() as u64), number(self.strings.len() as u64));
        let mut blob = Vec::with_capacity(self.len().saturating_add(HEADER as usize));
        blob.extend(match self.order {
            ByteOrder::Little => MAGIC.to_le_bytes(),
            ByteOrder::Big => MAGIC.to_be_bytes(),
        });
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

    /// Types of the base and of it.
    ///
    /// # Errors
    /// There are too many of them.
    pub(crate) fn types(self, budget: &Budget) -> Result<Types, Error> {
        Ok(Types::new(Arc::new(Btf::parse(self.bytes(), self.base, budget)?)))
    }

    fn word(&self, value: u32) -> [u8; 4] {
        match self.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }
}

/// A number as the blob has it.
pub(crate) fn number(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
