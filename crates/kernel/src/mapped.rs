//! The files that processes have mapped (`mm/mmap.c`, `lib/maple_tree.c`, `fs/d_path.c`).

use crate::{Error, Kernel, Object};
use lastwords_bytes::Error as BytesError;

/// Most mappings of a process that are looked at, in kernels before 6.1.
const MAPPINGS_MAX: usize = 1 << 17;
/// Most levels of a tree of mappings.
const LEVELS_MAX: u32 = 16;
/// Most folders and mounts of a path.
const PARTS_MAX: usize = 1 << 12;
/// Bits of an entry that are not the address of its node (`MAPLE_NODE_MASK`).
const NODE_BITS: u64 = 255;
/// The kind of a node with gaps (`maple_arange_64`), in bits 3 to 6 of its entry, and that of a
/// leaf.
const WITH_GAPS: u64 = 3;
const LEAF: u64 = 1;

/// A place in a file that a process has mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// The file's path, as `/proc/PID/maps` has it.
    pub path: String,
    /// Bytes from the begin of the mapping.
    pub offset: u64,
}

impl Kernel {
    /// Returns the address of the memory (`struct mm_struct`) of a task; none if it has ended or
    /// runs in the kernel only.
    ///
    /// # Errors
    /// The image lacks the task.
    pub fn user_memory(&self, task: u64) -> Result<Option<u64>, Error> {
        let task = self.object("task_struct", task)?;
        let is_of_kernel = task.u64("flags")? & crate::tasks::KERNEL_THREAD != 0;
        Ok(Some(task.address("mm")?).filter(|mm| *mm != 0 && !is_of_kernel))
    }

    /// Returns the file in the mapping that contains `address`, or else in the next one above it,
    /// as the kernel's `find_vma` does. `memory` is from [`Self::user_memory`]. Returns none if
    /// there is no such mapping, or if it has no file.
    ///
    /// # Errors
    /// The image lacks a part of the tables or of the path, or the path is one that only the
    /// kernel's own functions know.
    pub fn mapped(&self, memory: u64, address: u64) -> Result<Option<Mapped>, Error> {
        let memory = self.object("mm_struct", memory)?;
        let Some(mapping) = self.mapping(memory, address)? else { return Ok(None) };
        let Some(file) = mapping.pointer_or_null("vm_file")? else { return Ok(None) };
        let offset = address.wrapping_sub(mapping.u64("vm_start")?);
        Ok(Some(Mapped { path: self.path(file)?, offset }))
    }

    fn mapping<'k>(
        &'k self,
        memory: Object<'k>,
        address: u64,
    ) -> Result<Option<Object<'k>>, Error> {
        if !memory.has("mm_mt") {
            // Linux before 6.1 has a list by rising address.
            let mut next = Some(memory.pointer("mmap")?);
            for _ in 0..MAPPINGS_MAX {
                let Some(mapping) = next else { return Ok(None) };
                self.budget().steps("mm_struct", 1)?;
                match mapping.u64("vm_end")? {
                    0 => {
                        return Err(BytesError::value(
                            "vm_area_struct",
                            mapping.place(),
                            0,
                            "the end of a mapping",
                        )
                        .into());
                    }
                    end if end > address => return Ok(Some(mapping)),
                    _ => next = mapping.pointer_or_null("vm_next")?,
                }
            }
            return Err(BytesError::value(
                "mm_struct",
                memory.place(),
                0,
                "the end of the list of mappings",
            )
            .into());
        }
        let root = memory.address("mm_mt.ma_root")?;
        if !is_node(root) {
            return Err(
                BytesError::value("mm_struct", memory.place(), root, "a tree of mappings").into()
            );
        }
        let Some(place) = self.entry(root, u64::MAX, address, LEVELS_MAX)? else { return Ok(None) };
        let mapping = self.object("vm_area_struct", place)?;
        let end = mapping.u64("vm_end")?;
        // Memory that reads as zero is no mapping without a file.
        if end <= address {
            return Err(BytesError::value(
                "vm_area_struct",
                place,
                end,
                "an end above the address",
            )
            .into());
        }
        Ok(Some(mapping))
    }

    /// Returns the first entry of a node for `address` or above. `last`: the last address that the
    /// node is for.
    fn entry(&self, node: u64, last: u64, address: u64, levels: u32) -> Result<Option<u64>, Error> {
        let place = node & !NODE_BITS;
        let damaged = |what| Error::from(BytesError::value("maple_node", place, node, what));
        let kind = node >> 3 & 15;
        let (name, is_leaf) = match kind {
            LEAF => ("maple_range_64", true),
            2 => ("maple_range_64", false),
            WITH_GAPS => ("maple_arange_64", false),
            _ => return Err(damaged("a kind of node of a tree of mappings")),
        };
        let levels =
            levels.checked_sub(1).ok_or_else(|| damaged("a node in a tree of 16 levels"))?;
        let object = self.object(name, place)?;
        // The root has the address of the tree there. Memory that reads as zero has none.
        if object.address("parent")? == 0 {
            return Err(damaged("a node with a parent"));
        }
        let (slots, pivots) = (object.count("slot")?, object.count("pivot")?);
        let word = u64::from(self.memory.word_size());
        let at = |path, index: u64| {
            let place = object.at(path)?.place().wrapping_add(index.wrapping_mul(word));
            self.memory.pointer(place).map_err(Error::hole(name))
        };
        for index in 0..slots {
            self.budget().steps("maple_node", 1)?;
            let pivot = if index < pivots { at("pivot", index)? } else { 0 };
            // The last slot has no pivot, or one that is zero.
            let is_last = index >= pivots || pivot >= last || (pivot == 0 && index > 0);
            if is_last || pivot >= address {
                let entry = at("slot", index)?;
                let found = if is_leaf || entry == 0 {
                    // Small values are the tree's own.
                    Some(entry).filter(|entry| *entry > 4096 && entry & 3 == 0)
                } else {
                    self.entry(entry, if is_last { last } else { pivot }, address, levels)?
                };
                if found.is_some() || is_last {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    /// Returns the path of a file, from the root of the first process on.
    fn path(&self, file: Object<'_>) -> Result<String, Error> {
        let root = self.variable("init_task", "task_struct")?.pointer("fs")?;
        let root = (root.address("root.dentry")?, root.address("root.mnt")?);
        let mut dentry = file.pointer("f_path.dentry")?;
        let mounted = file.pointer("f_path.mnt")?;
        let mut mount = mounted.container("mount", "mnt")?;
        if let Some(operations) = dentry.pointer_or_null("d_op")?
            && operations.address("d_dname")? != 0
        {
            return Err(BytesError::value(
                "dentry",
                dentry.place(),
                0,
                "a name that no function makes",
            )
            .into());
        }
        let is_unlinked =
            dentry.address("d_hash.pprev")? == 0 && dentry.address("d_parent")? != dentry.place();
        let mut parts = Vec::new();
        for _ in 0..PARTS_MAX {
            self.budget().steps("dentry", 1)?;
            let inside = mount.at("mnt")?;
            if (dentry.place(), inside.place()) == root {
                break;
            }
            if dentry.place() == inside.address("mnt_root")? {
                let above = mount.pointer("mnt_parent")?;
                if above.place() == mount.place() {
                    break;
                }
                (dentry, mount) = (mount.pointer("mnt_mountpoint")?, above);
                continue;
            }
            let parent = dentry.pointer("d_parent")?;
            if parent.place() == dentry.place() {
                break;
            }
            let length = usize::try_from(dentry.u64("d_name.len")?)
                .ok()
                .filter(|length| (1..=255).contains(length));
            let length = length
                .ok_or_else(|| BytesError::value("dentry", dentry.place(), 0, "a name's length"))?;
            let name = self.memory.text(dentry.address("d_name.name")?, length);
            parts.push(name.map_err(Error::hole("dentry"))?);
            dentry = parent;
        }
        parts.reverse();
        let deleted = if is_unlinked { " (deleted)" } else { "" };
        Ok(format!("/{}{deleted}", parts.join("/")))
    }
}

/// Returns true if an entry is a node (`xa_is_node`).
fn is_node(entry: u64) -> bool {
    entry & 3 == 2 && entry > 4096
}
