//! A kernel in an image.

use crate::btf::Types;
use crate::kallsyms::Kallsyms;
use crate::memory::Memory;
use crate::modules::Module;
use crate::notes::{self, NOTES_MAX};
use crate::symbols::SymbolTable;
use crate::{Error, List, Object};
use lastwords_bytes::Budget;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// Most CPUs that are accepted (`CONFIG_NR_CPUS` is at most 8,192).
const CPUS_MAX: u64 = 1 << 16;
/// The kernel's sets of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// CPUs that may ever be plugged in; they have per-CPU memory.
    Possible,
    /// CPUs that are plugged in.
    Present,
    /// CPUs that are running.
    Online,
}

/// The fields that `uname` prints.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Uname {
    /// `-s`.
    pub system: String,
    /// `-n`.
    pub node: String,
    /// `-r`.
    pub release: String,
    /// `-v`.
    pub version: String,
    /// `-m`.
    pub machine: String,
}

/// A kernel in an image: its memory, its symbols, its types.
pub struct Kernel {
    /// Memory at the kernel's addresses.
    pub memory: Arc<dyn Memory>,
    /// The kernel's types.
    pub types: Arc<Types>,
    /// Symbols of the kernel and of its modules.
    pub symbols: Arc<SymbolTable>,
    /// The modules that were loaded, newest first.
    pub modules: Arc<[Module]>,
    /// Errors about parts that could not be read.
    pub missing: Vec<Error>,
    pub(crate) kallsyms: Arc<Kallsyms>,
    pub(crate) budget: Arc<Budget>,
    /// True if the types are from the kernel's own BTF, which its modules' BTF continues.
    pub(crate) has_own_types: bool,
    pub(crate) module_types: Mutex<HashMap<String, Option<Arc<Types>>>>,
}

impl Kernel {
    /// The kernel's own symbols.
    #[must_use]
    pub fn kallsyms(&self) -> &Kallsyms {
        &self.kallsyms
    }

    /// The budget for reading untrusted bytes.
    #[must_use]
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Address of the kernel's first symbol with this name.
    ///
    /// # Errors
    /// There is no such symbol.
    pub fn symbol(&self, name: &str) -> Result<u64, Error> {
        self.kallsyms.find(name).ok_or_else(|| Error::NoSymbol(name.into()))
    }

    /// The object of type `type_name` at an address.
    ///
    /// # Errors
    /// There is no such type.
    pub fn object(&self, type_name: &str, address: u64) -> Result<Object<'_>, Error> {
        Ok(Object::new(&*self.memory, &self.types, self.types.id(type_name)?, address))
    }

    /// The variable `name` of type `type_name`.
    ///
    /// # Errors
    /// There is no such symbol or type.
    pub fn variable(&self, name: &str, type_name: &str) -> Result<Object<'_>, Error> {
        self.object(type_name, self.symbol(name)?)
    }

    /// The number in variable `name`, of `size` bytes.
    ///
    /// # Errors
    /// There is no such symbol, or the image lacks the variable.
    pub fn number(&self, name: &str, size: usize) -> Result<u64, Error> {
        self.memory.number(self.symbol(name)?, size).map_err(Error::hole(name))
    }

    /// The pointer in variable `name`.
    ///
    /// # Errors
    /// There is no such symbol, or the image lacks the variable.
    pub fn pointer(&self, name: &str) -> Result<u64, Error> {
        self.number(name, self.memory.word_size().into())
    }

    /// The text at an address, up to its NUL.
    ///
    /// # Errors
    /// The image lacks the text.
    pub fn text(&self, address: u64) -> Result<String, Error> {
        self.memory.text(address, usize::MAX).map_err(Error::hole("text"))
    }

    /// Address of a CPU's copy of the per-CPU variable whose symbol is at `address`.
    ///
    /// # Errors
    /// The image lacks the CPU's offset.
    pub fn per_cpu(&self, address: u64, cpu: u32) -> Result<u64, Error> {
        // Kernels without SMP have no offsets.
        let Some(offsets) = self.kallsyms.find("__per_cpu_offset") else { return Ok(address) };
        let word = u64::from(self.memory.word_size());
        let place = offsets.wrapping_add(word.wrapping_mul(cpu.into()));
        let offset = self.memory.pointer(place).map_err(Error::hole("__per_cpu_offset"))?;
        Ok(address.wrapping_add(offset))
    }

    /// The CPUs of a set, in increasing order; empty if the image lacks the set. Where it lacks
    /// that of the possible CPUs, all below `nr_cpu_ids` are possible.
    #[must_use]
    pub fn cpus(&self, mask: Mask) -> Vec<u32> {
        let names = match mask {
            Mask::Possible => ["__cpu_possible_mask", "cpu_possible_mask"],
            Mask::Present => ["__cpu_present_mask", "cpu_present_mask"],
            Mask::Online => ["__cpu_online_mask", "cpu_online_mask"],
        };
        let place = names.iter().find_map(|name| self.kallsyms.find(name));
        let cpus = place.map(|place| self.mask(place)).unwrap_or_default();
        if cpus.is_empty() && mask == Mask::Possible {
            let ids = self.number("nr_cpu_ids", 4).unwrap_or_default().min(CPUS_MAX);
            return (0..u32::try_from(ids).unwrap_or_default()).collect();
        }
        cpus
    }

    /// The CPUs in the `struct cpumask` at an address; empty if the image lacks a part of it.
    #[must_use]
    pub fn mask(&self, place: u64) -> Vec<u32> {
        let word = u64::from(self.memory.word_size());
        let bits = u32::from(self.memory.word_size()).saturating_mul(8);
        let known = self.types.size_of("cpumask").unwrap_or(word).saturating_mul(8);
        // Zero is of a page that reads as zero.
        let ids = self.number("nr_cpu_ids", 4).ok().filter(|ids| *ids > 0).unwrap_or(known);
        let count = u32::try_from(known.min(ids).min(CPUS_MAX)).unwrap_or(u32::MAX);
        let mut cpus = Vec::new();
        for first in (0..count).step_by(bits as usize) {
            let Ok(set) = self.memory.pointer(place.wrapping_add(u64::from(first >> 3))) else {
                return Vec::new();
            };
            let set_bits = (0..bits).filter(|bit| set.wrapping_shr(*bit) & 1 != 0);
            cpus.extend(set_bits.map(|bit| first.wrapping_add(bit)).filter(|cpu| *cpu < count));
        }
        cpus
    }

    /// Addresses of the entries of the list whose `struct list_head` is at `head`; an entry has its
    /// links at offset `offset`.
    #[must_use]
    pub fn list_at(&self, head: u64, offset: u64) -> List<'_> {
        List::new(&*self.memory, &self.budget, head, offset)
    }

    /// Entries of the list whose head is at `head`: structures that are linked by the member
    /// `path`.
    ///
    /// # Errors
    /// There is no such structure or member. If the list cannot be followed, an entry is an error
    /// and the list ends.
    pub fn list<'k>(
        &'k self,
        head: u64,
        type_name: &str,
        path: &str,
    ) -> Result<impl Iterator<Item = Result<Object<'k>, Error>> + 'k, Error> {
        let type_id = self.types.id(type_name)?;
        let offset = self.types.member_of(type_id, path)?.offset;
        let object = move |place| Object::new(&*self.memory, &self.types, type_id, place);
        Ok(self.list_at(head, offset).map(move |entry| entry.map(object)))
    }

    /// Entries of a list, as [`Kernel::list`] finds them. If the list has a hole, the entries after
    /// it are found from the list's end, and the hole's error is returned, too.
    ///
    /// # Errors
    /// There is no such structure or member.
    pub fn entries<'k>(
        &'k self,
        head: u64,
        type_name: &str,
        path: &str,
    ) -> Result<(Vec<Object<'k>>, Option<Error>), Error> {
        let mut found = Vec::new();
        for entry in self.list(head, type_name, path)? {
            match entry {
                Ok(entry) => found.push(entry),
                Err(error) => {
                    let after = self.backwards(head, type_name, path, &found)?;
                    found.extend(after);
                    return Ok((found, Some(error)));
                }
            }
        }
        Ok((found, None))
    }

    /// Reads the entries from the end of a list back to a hole or to one that is known.
    fn backwards<'k>(
        &'k self,
        head: u64,
        type_name: &str,
        path: &str,
        known: &[Object<'k>],
    ) -> Result<Vec<Object<'k>>, Error> {
        let mut seen: HashSet<u64> = known.iter().map(Object::place).collect();
        let mut found = Vec::new();
        let mut at = self.object("list_head", head)?.address("prev");
        while let Ok(place) = at {
            let entry = self.object("list_head", place)?;
            at = entry.address("prev");
            let entry = entry.container(type_name, path)?;
            // Zero is of a page that reads as zero.
            if place == head || !matches!(at, Ok(1..)) || !seen.insert(entry.place()) {
                break;
            }
            found.push(entry);
        }
        Ok(found)
    }

    /// The fields that `uname` printed in the first namespace.
    ///
    /// # Errors
    /// The image lacks them.
    pub fn uname(&self) -> Result<Uname, Error> {
        let name = self.variable("init_uts_ns", "uts_namespace")?.at("name")?;
        Ok(Uname {
            system: name.text("sysname")?,
            node: name.text("nodename")?,
            release: name.text("release")?,
            version: name.text("version")?,
            machine: name.text("machine")?,
        })
    }

    /// The build id of the kernel, in hexadecimal. None if the kernel has none or the image lacks
    /// it.
    #[must_use]
    pub fn build_id(&self) -> Option<String> {
        let read = || -> Result<Vec<u8>, Error> {
            let begin = self.symbol("__start_notes")?;
            let len = self.symbol("__stop_notes")?.saturating_sub(begin).min(NOTES_MAX);
            let mut notes = vec![0; usize::try_from(len).unwrap_or_default()];
            self.memory.read(begin, &mut notes).map_err(Error::hole("notes"))?;
            Ok(notes)
        };
        notes::build_id(&read().ok()?, self.memory.byte_order())
    }
}
