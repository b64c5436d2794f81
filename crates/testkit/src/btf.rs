//! Writes BTF (`include/uapi/linux/btf.h`).

use crate::put::Order;
use std::collections::HashMap;

/// A blob that grows type by type.
#[derive(Debug)]
pub struct Writer {
    order: Order,
    types: Vec<u8>,
    strings: Vec<u8>,
    next: u32,
    first_string: u32,
    /// The types that have a name.
    known: HashMap<String, u32>,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new(Order::Little)
    }
}

impl Writer {
    /// A blob without types.
    #[must_use]
    pub fn new(order: Order) -> Self {
        let known = HashMap::from([("void".to_owned(), 0)]);
        Self { order, types: Vec::new(), strings: vec![0], next: 1, first_string: 0, known }
    }

    /// A blob with the integers that a kernel's types begin with, and the kernel's names of them.
    #[must_use]
    pub fn of_kernel() -> Self {
        let mut own = Self::default();
        for (name, size, signed, short) in [
            ("long unsigned int", 8, false, "u64"),
            ("int", 4, true, "s32"),
            ("unsigned int", 4, false, "u32"),
            ("short unsigned int", 2, false, "u16"),
            ("unsigned char", 1, false, "u8"),
            ("char", 1, true, "s8"),
        ] {
            let id = own.int(name, size, signed);
            own.typedef(short, id);
        }
        own
    }

    /// Goes on where another blob ends: its next type number and the size of its strings.
    #[must_use]
    pub fn split(base: &Self) -> Self {
        let strings = base.strings.len() as u32;
        Self {
            order: base.order,
            types: Vec::new(),
            strings: Vec::new(),
            next: base.next,
            first_string: base.first_string + strings,
            known: base.known.clone(),
        }
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.first_string + self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    fn words(&mut self, words: &[u32]) {
        self.types.extend(words.iter().flat_map(|word| self.order.u32(*word)));
    }

    /// A type of any kind: `info` without the kind. Returns its number, as all of these do.
    pub fn kind(
        &mut self,
        kind: u32,
        info: u32,
        name: &str,
        size_or_type: u32,
        body: &[u32],
    ) -> u32 {
        if !name.is_empty() {
            self.known.insert(name.to_owned(), self.next);
        }
        let name = self.string(name);
        self.words(&[name, kind << 24 | info, size_or_type]);
        self.words(body);
        self.next += 1;
        self.next - 1
    }

    /// An integer.
    pub fn int(&mut self, name: &str, size: u32, signed: bool) -> u32 {
        self.kind(1, 0, name, size, &[(u32::from(signed) << 24) | (size * 8)])
    }

    /// A pointer to a type.
    pub fn pointer(&mut self, target: u32) -> u32 {
        self.kind(2, 0, "", target, &[])
    }

    /// An array of `count` elements.
    pub fn array(&mut self, element: u32, count: u32) -> u32 {
        self.kind(3, 0, "", 0, &[element, 1, count])
    }

    /// Another name of a type.
    pub fn typedef(&mut self, name: &str, target: u32) -> u32 {
        self.kind(8, 0, name, target, &[])
    }

    /// A structure that is declared only.
    pub fn forward(&mut self, name: &str) -> u32 {
        self.kind(7, 0, name, 0, &[])
    }

    /// A structure (4) or union (5): members as (name, type, bit offset). The flag is set: bits <<
    /// 24 may be in the offset.
    pub fn composite(
        &mut self,
        kind: u32,
        name: &str,
        size: u32,
        members: &[(&str, u32, u32)],
    ) -> u32 {
        let body: Vec<u32> = members
            .iter()
            .flat_map(|(name, id, offset)| [self.string(name), *id, *offset])
            .collect();
        self.kind(kind, 1 << 31 | members.len() as u32, name, size, &body)
    }

    /// A structure: members as (name, type, byte offset).
    pub fn structure(&mut self, name: &str, size: u32, members: &[(&str, u32, u32)]) -> u32 {
        let members: Vec<_> =
            members.iter().map(|(name, id, offset)| (*name, *id, offset * 8)).collect();
        self.composite(4, name, size, &members)
    }

    /// Structures, each as `NAME SIZE: TYPE MEMBER@OFFSET, TYPE MEMBER@OFFSET`, with the types that
    /// [`Writer::named`] takes. A line that ends with a comma goes on in the next one.
    ///
    /// # Panics
    /// It is none, or has a type that is not known.
    pub fn declare(&mut self, text: &str) {
        for line in text.replace(",\n", ",").lines() {
            let (head, members) = line.split_once(": ").expect("a structure");
            let (name, size) = head.trim().split_once(' ').expect("a name and a size");
            let members = members.split(',').map(|member| {
                let (kind, member) = member.trim().rsplit_once(' ').expect("a type");
                let (name, at) = member.split_once('@').expect("an offset");
                (name, self.named(kind), at.parse().expect("a number"))
            });
            let members: Vec<_> = members.collect();
            self.structure(name, size.parse().expect("a number"), &members);
        }
    }

    /// A type by its name, with its stars and counts of elements: `char[16]`, `bpf_map**`.
    ///
    /// # Panics
    /// No type has that name.
    pub fn named(&mut self, name: &str) -> u32 {
        if let Some(target) = name.strip_suffix('*') {
            let target = self.named(target);
            return self.pointer(target);
        }
        if let Some((element, count)) = name.strip_suffix(']').and_then(|name| name.split_once('['))
        {
            let element = self.named(element);
            return self.array(element, count.parse().expect("a number"));
        }
        *self.known.get(name).unwrap_or_else(|| panic!("no type {name}"))
    }

    /// An enumeration of signed numbers.
    pub fn enumeration(&mut self, name: &str, values: &[(&str, i32)]) -> u32 {
        let body: Vec<u32> = values
            .iter()
            .flat_map(|(name, value)| [self.string(name), value.cast_unsigned()])
            .collect();
        self.kind(6, 1 << 31 | values.len() as u32, name, 4, &body)
    }

    /// An enumeration of numbers of 64 bits.
    pub fn enumeration64(&mut self, name: &str, values: &[(&str, u64)]) -> u32 {
        let body: Vec<u32> = values
            .iter()
            .flat_map(|(name, value)| [self.string(name), *value as u32, (*value >> 32) as u32])
            .collect();
        self.kind(19, values.len() as u32, name, 8, &body)
    }

    /// The blob; with `layout`, rows of (bytes, bytes an element) by kind stand behind.
    #[must_use]
    pub fn finish(&self, layout: &[(u8, u8)]) -> Vec<u8> {
        let header = if layout.is_empty() { 24u32 } else { 32 };
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut words = vec![header, 0, types, types, strings];
        if !layout.is_empty() {
            words.extend([types + strings, layout.len() as u32 * 4]);
        }
        let mut blob = [&self.order.u16(0xeb9f)[..], &[1, 0]].concat();
        blob.extend(words.iter().flat_map(|word| self.order.u32(*word)));
        blob.extend_from_slice(&self.types);
        blob.extend_from_slice(&self.strings);
        blob.extend(layout.iter().flat_map(|(fixed, each)| [*fixed, *each, 0, 0]));
        blob
    }
}
