//! A cache of names for addresses.

use lastwords_bytes::low_u32;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::{Mapped, Parameter, Symbol, Symbols, Tracing};

use super::number;
use super::siphash::siphash;

/// The form in which an address is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Show {
    /// `name`, as the function tracer prints it; `0x%08lx` for an address without symbol.
    Bare,
    /// `name [module]`, `%ps`.
    Plain,
    /// `name+0x1/0x20 [module]`, `%pS`.
    Offset,
    /// The same for the preceding address, `%pB`.
    Backtrace,
}

/// Size limit of the buffer of names. When it is exceeded, all names are discarded.
const ROOM: usize = 8 << 20;
/// Limit of the number of cached texts. When it is reached, all texts are discarded.
const TEXTS: usize = 1 << 14;

type Texts = HashMap<u64, Option<Arc<[u8]>>, BuildHasherDefault<AddressHasher>>;

/// A cache of names for addresses, and the key that hides pointers.
pub struct Names {
    symbols: Arc<dyn Symbols>,
    printk: std::collections::BTreeMap<u64, String>,
    known: HashMap<(u64, Show), (u32, u32), BuildHasherDefault<AddressHasher>>,
    room: Vec<u8>,
    /// Texts of the kernel's memory by address; `None` for addresses without text.
    texts: RefCell<Texts>,
    /// Parameters of functions, by address.
    parameters: HashMap<u64, Option<Arc<[Parameter]>>, BuildHasherDefault<AddressHasher>>,
    /// Files by process and address.
    mapped: HashMap<(u32, u64), Mapped>,
    key: Option<[u64; 2]>,
    word_size: u8,
    /// The name that was searched last, and its address.
    found: Option<(&'static str, Option<u64>)>,
}

impl Names {
    /// Makes the names of a machine. `hash`: pointers are hashed with the machine's key, if the key
    /// is known.
    #[must_use]
    pub fn new(tracing: &Tracing, hash: bool) -> Self {
        Self {
            symbols: Arc::clone(&tracing.symbols),
            printk: tracing.printk_formats.clone(),
            known: HashMap::default(),
            room: Vec::new(),
            texts: RefCell::default(),
            parameters: HashMap::default(),
            mapped: HashMap::new(),
            key: tracing.pointer_key.filter(|_| hash),
            word_size: tracing.word_size,
            found: None,
        }
    }

    /// Appends the name of an address.
    pub fn show(&mut self, out: &mut Vec<u8>, address: u64, show: Show) {
        if let Some((begin, end)) = self.known.get(&(address, show)) {
            out.extend_from_slice(
                self.room.get(*begin as usize..*end as usize).unwrap_or_default(),
            );
            return;
        }
        if self.room.len() > ROOM {
            self.room.clear();
            self.known.clear();
        }
        let begin = self.room.len();
        look_up(&mut self.room, &*self.symbols, address, show);
        self.known
            .insert((address, show), (low_u32(begin as u64), low_u32(self.room.len() as u64)));
        out.extend_from_slice(self.room.get(begin..).unwrap_or_default());
    }

    /// Returns the address of the kernel's symbol with this name. It searches all symbols once.
    pub(crate) fn address_of(&mut self, name: &'static str) -> Option<u64> {
        if let Some((_, address)) = self.found.filter(|(known, _)| *known == name) {
            return address;
        }
        let mut address = None;
        self.symbols.each(&mut |row| {
            if row.name == name && row.module.is_none() {
                address = address.or(Some(row.address));
            }
        });
        self.found = Some((name, address));
        address
    }

    /// Returns true if the address has a symbol.
    #[must_use]
    pub fn has(&self, address: u64) -> bool {
        self.symbols.at(address).is_some()
    }

    /// Returns the parameters of the function that contains an address.
    pub fn parameters(&mut self, function: u64) -> Option<Arc<[Parameter]>> {
        if let Some(known) = self.parameters.get(&function) {
            return known.clone();
        }
        if self.parameters.len() >= TEXTS {
            self.parameters.clear();
        }
        let symbol = self.symbols.at(function);
        let found = symbol.and_then(|symbol| self.symbols.parameters(&symbol.name)).map(Arc::from);
        self.parameters.insert(function, found.clone());
        found
    }

    /// Returns the text at an address of the kernel: a format of `trace_printk`, a
    /// `tracepoint_string`, or the text in the kernel's image.
    #[must_use]
    pub fn text_at(&self, address: u64) -> Option<Arc<[u8]>> {
        let mut texts = self.texts.borrow_mut();
        if let Some(known) = texts.get(&address) {
            return known.clone();
        }
        if texts.len() >= TEXTS {
            texts.clear();
        }
        let found: Option<Arc<[u8]>> = match self.printk.get(&address) {
            Some(text) => Some(text.as_bytes().into()),
            None => self.symbols.text_at(address).map(Arc::from),
        };
        texts.insert(address, found.clone());
        found
    }

    /// Returns the file that a process has mapped at an address.
    pub(crate) fn mapped(&mut self, process: u32, address: u64) -> Mapped {
        if self.mapped.len() >= TEXTS {
            self.mapped.clear();
        }
        let symbols = &self.symbols;
        self.mapped
            .entry((process, address))
            .or_insert_with(|| symbols.mapped(process, address))
            .clone()
    }

    /// Returns the value that `%p` shows for a pointer: hashed if there is a key, otherwise
    /// unchanged. Null and error pointers are never hidden.
    #[must_use]
    pub fn hidden(&self, pointer: u64) -> u64 {
        let top = if self.word_size == 8 { u64::MAX } else { u64::from(u32::MAX) };
        let is_error = pointer >= top.saturating_sub(4094);
        match self.key {
            Some(key) if pointer != 0 && !is_error => siphash(key, pointer) & 0xffff_ffff,
            _ => pointer,
        }
    }
}

fn look_up(out: &mut Vec<u8>, symbols: &dyn Symbols, address: u64, show: Show) {
    let before = u64::from(show == Show::Backtrace);
    let Some(symbol) = symbols.at(address.wrapping_sub(before)) else {
        out.extend_from_slice(b"0x");
        if show == Show::Bare {
            let spec = number::Spec { width: 8, zero: true, ..Default::default() };
            return number::number(out, spec, address, false, 16, false);
        }
        return number::hex(out, address);
    };
    let Symbol { name, offset, size, module } = symbol;
    out.extend_from_slice(name.as_bytes());
    // An address in a module without symbols: its base and the distance from there are shown in
    // every form.
    let is_base = name.starts_with("0x");
    if is_base || matches!(show, Show::Offset | Show::Backtrace) {
        out.extend_from_slice(b"+0x");
        number::hex(out, offset.wrapping_add(before));
        out.extend_from_slice(b"/0x");
        number::hex(out, size);
    }
    if let Some(module) = module.filter(|_| show != Show::Bare) {
        out.extend_from_slice(b" [");
        out.extend_from_slice(module.as_bytes());
        out.push(b']');
    }
}

/// A fast hasher for keys that are addresses.
#[derive(Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.write_u64(u64::from(*b)));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value.cast_unsigned() as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }
}
