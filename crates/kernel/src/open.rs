//! Opens the kernel in an image: reads its symbols, its types and its modules.

use crate::btf::{Btf, Types};
use crate::kallsyms::{Kallsyms, Tables, find};
use crate::memory::Memory;
use crate::modules::{self, Module};
use crate::symbols::SymbolTable;
use crate::vmcoreinfo::VmcoreInfo;
use crate::{Error, Kernel, Object, Sources};
use lastwords_bytes::Budget;
use std::sync::{Arc, Mutex, PoisonError};

/// Largest BTF blob that is accepted, bytes.
const BTF_MAX: u64 = 64 << 20;

impl Kernel {
    /// Reads symbols, types and modules. `info` has the addresses of the symbol table. If it lacks
    /// them (before Linux 6.0), the table is found by its contents.
    ///
    /// # Errors
    /// There are no symbols or no types, neither in the image nor in `sources`; or the budget is
    /// spent.
    pub fn open(
        memory: Arc<dyn Memory>,
        info: &VmcoreInfo,
        sources: Sources,
        budget: Arc<Budget>,
    ) -> Result<Self, Error> {
        let kallsyms = match (sources.symbols, Tables::from_vmcoreinfo(info)) {
            (Some(symbols), _) => symbols,
            (None, Some(tables)) => Kallsyms::read(&*memory, &tables, &budget)?,
            (None, None) => find::in_memory(&*memory, info, &budget)?,
        };
        let mut missing: Vec<Error> = kallsyms.missing().cloned().into_iter().collect();
        missing.extend(sources.missing.into_iter().map(Error::from));
        let kallsyms = Arc::new(kallsyms);
        let blob = match sources.btf {
            Some(blob) => blob,
            None => read_btf(&*memory, &kallsyms)?,
        };
        let btf = Btf::parse(blob, None, &budget).map_err(Error::Btf)?;
        let types = Arc::new(Types::new(Arc::new(btf)));
        let has_own_types = !sources.is_foreign;
        let modules: Arc<[Module]> = Arc::new([]);
        let symbols = Arc::new(SymbolTable::new(&kallsyms, &modules, &memory, &types, info));
        let module_types = Mutex::default();
        let mut kernel = Self {
            memory,
            types,
            symbols,
            modules,
            missing,
            kallsyms,
            budget,
            has_own_types,
            module_types,
        };
        let (modules, error) = modules::read::all(&kernel);
        kernel.missing.extend(error);
        kernel.modules = modules.into();
        kernel.symbols = Arc::new(SymbolTable::new(
            &kernel.kallsyms,
            &kernel.modules,
            &kernel.memory,
            &kernel.types,
            info,
        ));
        Ok(kernel)
    }

    /// Types of the kernel and of a module; none if the module has no BTF.
    #[must_use]
    pub fn module_types(&self, module: &str) -> Option<Arc<Types>> {
        let mut known = self.module_types.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(types) = known.get(module) {
            return types.clone();
        }
        let types = self.read_module_types(module).ok().flatten();
        known.insert(module.into(), types.clone());
        types
    }

    fn read_module_types(&self, module: &str) -> Result<Option<Arc<Types>>, Error> {
        if !self.has_own_types {
            return Ok(None);
        }
        let head = self.symbol("btf_modules")?;
        for entry in self.list(head, "btf_module", "list")? {
            let entry = entry?;
            if entry.pointer("module")?.text("name")? != module {
                continue;
            }
            let base = Some(Arc::clone(self.types.btf()));
            return self.parse_types(&entry.pointer("btf")?, base).map(Some);
        }
        Ok(None)
    }

    /// Types in a `struct btf`: those that came with a BPF program or map.
    ///
    /// # Errors
    /// The image lacks them, they are no BTF, or they continue the kernel's own BTF and a user
    /// provided other types for the kernel.
    pub fn types_in(&self, btf: &Object<'_>) -> Result<Arc<Types>, Error> {
        let data = btf.address("data")?;
        if self.kallsyms.find("__start_BTF") == Some(data) {
            return Ok(Arc::clone(&self.types));
        }
        // Linux 5.11 added the member.
        let base = if btf.has("base_btf") { btf.address("base_btf")? } else { 0 };
        if base != 0 && !self.has_own_types {
            let expected = "types that do not continue the kernel's own BTF";
            return Err(lastwords_bytes::Error::value("BTF", data, base, expected).into());
        }
        self.parse_types(btf, (base != 0).then(|| Arc::clone(self.types.btf())))
    }

    fn parse_types(&self, btf: &Object<'_>, base: Option<Arc<Btf>>) -> Result<Arc<Types>, Error> {
        let blob = read_blob(&*self.memory, btf.address("data")?, btf.u64("data_size")?)?;
        Ok(Arc::new(Types::new(Arc::new(Btf::parse(blob, base, &self.budget)?))))
    }
}

fn read_btf(memory: &dyn Memory, kallsyms: &Kallsyms) -> Result<Vec<u8>, Error> {
    let symbol = |name: &str| {
        kallsyms.find(name).ok_or_else(|| Error::NoSymbol(format!("{name} (give a BTF file)")))
    };
    let start = symbol("__start_BTF")?;
    read_blob(memory, start, symbol("__stop_BTF")?.saturating_sub(start))
}

fn read_blob(memory: &dyn Memory, address: u64, len: u64) -> Result<Vec<u8>, Error> {
    if len > BTF_MAX {
        return Err(lastwords_bytes::Error::value("BTF", 0, len, "a size of up to 64 MiB").into());
    }
    let mut blob = Vec::new();
    let mut left = usize::try_from(len).unwrap_or_default();
    // Read in pieces, so that no memory is allocated for missing bytes.
    while left > 0 {
        let part = left.min(1 << 20);
        let old = blob.len();
        blob.resize(old.saturating_add(part), 0);
        let at = address.wrapping_add(old as u64);
        memory.read(at, blob.get_mut(old..).unwrap_or_default()).map_err(Error::hole("BTF"))?;
        left = left.saturating_sub(part);
    }
    Ok(blob)
}
