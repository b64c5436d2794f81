//! A kernel's virtual memory, translated with its own page tables.

use crate::memory::Memory;
use crate::paging::{Error, Mapping, PageTables};
use crate::vmcoreinfo::VmcoreInfo;
use lastwords_bytes::ByteOrder;
use lastwords_image::vmcore::Machine;
use lastwords_image::{Cache, Hole, Image, front, read_parts};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of pages whose translation is cached.
const PAGES: usize = 1 << 13;

/// The kernel's virtual memory: physical memory and page tables.
pub struct VirtualMemory {
    physical: Arc<dyn Image>,
    tables: PageTables,
    machine: Machine,
    /// Mappings of pages, by the address of the page.
    known: Mutex<Cache<Mapping>>,
}

impl std::fmt::Debug for VirtualMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VirtualMemory")
            .field("physical", &self.physical.name())
            .field("machine", &self.machine)
            .finish_non_exhaustive()
    }
}

impl VirtualMemory {
    /// Creates the memory of the kernel that `info` describes, in `physical`, an image of physical
    /// memory.
    ///
    /// # Errors
    /// VMCOREINFO lacks the page tables' address, or has a value that no machine has.
    pub fn new(
        physical: Arc<dyn Image>,
        info: &VmcoreInfo,
        machine: Machine,
    ) -> Result<Self, Error> {
        let tables = PageTables::new(info, machine)?;
        Ok(Self { physical, tables, machine, known: Mutex::new(Cache::new(PAGES)) })
    }

    /// The underlying physical memory.
    #[must_use]
    pub fn physical(&self) -> &Arc<dyn Image> {
        &self.physical
    }

    /// The machine of the kernel.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Number of levels of the kernel's page tables.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.tables.levels()
    }

    /// Translates `address` to a physical address and the number of bytes left in its page.
    ///
    /// # Errors
    /// The kernel maps nothing there, or the image lacks a page table.
    pub fn translate(&self, address: u64) -> Result<Mapping, Hole> {
        // Page sizes are powers of two.
        let within = address & self.tables.page_size().saturating_sub(1);
        let page = address.saturating_sub(within);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).find(page);
        let mapping = match known {
            Some(mapping) => mapping,
            None => {
                let mapping = self
                    .tables
                    .translate(&*self.physical, page)
                    .map_err(|hole| Hole { address, cause: hole.cause })?;
                self.known.lock().unwrap_or_else(PoisonError::into_inner).keep(page, mapping);
                mapping
            }
        };
        Ok(Mapping {
            physical: mapping.physical.saturating_add(within),
            left: mapping.left.saturating_sub(within),
        })
    }
}

impl Memory for VirtualMemory {
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        read_parts(address, buf, |at, rest| {
            let Mapping { physical, left } = self.translate(at)?;
            let part = front(rest, left);
            self.physical.read(physical, part).map_err(|hole| Hole {
                address: at.saturating_add(hole.address.saturating_sub(physical)),
                cause: hole.cause,
            })?;
            Ok(part.len())
        })
    }

    fn byte_order(&self) -> ByteOrder {
        ByteOrder::Little
    }

    fn word_size(&self) -> u8 {
        8
    }

    fn page_size(&self) -> u64 {
        self.tables.page_size()
    }
}
