//! Notes the modules mapped in this process in the sessions' registries, so that readers can name
//! addresses later.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lastwords_abi::registry::KIND_MODULE;

use crate::process::loaded::{self, Object};
use crate::session::registry::body_of;
use crate::session::shared;

/// True if new sessions need the modules.
static WANTED: AtomicBool = AtomicBool::new(false);
/// Session (by number), pid and load address of the modules that were already noted.
static NOTED: Mutex<BTreeSet<(u64, u32, u64)>> = Mutex::new(BTreeSet::new());

/// Notes the modules that were loaded since the last time (`dlopen`), for all sessions of this
/// process.
pub fn refresh_modules() {
    WANTED.store(true, Relaxed);
    note_modules();
}

/// Notes the modules if they are wanted; called when sessions begin.
pub(crate) fn note_modules() {
    if !WANTED.load(Relaxed) {
        return;
    }
    let Ok(mut noted) = NOTED.try_lock() else { return };
    noted.retain(|(session, ..)| shared::all().any(|open| open.number == *session));
    let pid = std::process::id();
    let mut modules = Vec::new();
    loaded::any(|object| {
        modules.extend(module(pid, object));
        false
    });
    for session in shared::all() {
        for (base, body) in &modules {
            let key = (session.number, pid, *base);
            if !noted.contains(&key) && session.regions.registry.append(KIND_MODULE, body) {
                noted.insert(key);
            }
        }
    }
}

/// Returns the load address of an object and the body of its record in the registry; `None` for one
/// without code.
fn module(pid: u32, (info, headers): Object<'_>) -> Option<(u64, Vec<u8>)> {
    let (mut start, mut end, mut id) = (u64::MAX, 0, &[][..]);
    for header in headers {
        let at = loaded::address_of(info, header);
        if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0 {
            start = start.min(at);
            end = end.max(at.saturating_add(header.p_memsz));
        } else if header.p_type == libc::PT_NOTE && id.is_empty() {
            // SAFETY: a note segment of a loaded module is mapped and readable for its size in
            // memory.
            let notes =
                unsafe { std::slice::from_raw_parts(at as *const u8, header.p_memsz as usize) };
            id = build_id(notes).unwrap_or_default();
        }
    }
    let body = body_of(|body| {
        body.u32(pid)
            .u64(info.dlpi_addr)
            .u64(start)
            .u64(end)
            .u16(id.len() as u16)
            .bytes(id)
            .str(&path_of(info));
    });
    (end != 0).then_some((info.dlpi_addr, body))
}

fn path_of(info: &libc::dl_phdr_info) -> String {
    // SAFETY: the pointer is not null, and the loader's names end with a NUL.
    let name = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
    match name.filter(|name| !name.is_empty()) {
        Some(name) => name.to_string_lossy().into_owned(),
        // This is the program itself.
        None => std::env::current_exe()
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default(),
    }
}

/// Returns the descriptor of the note `GNU`, type 3 (`NT_GNU_BUILD_ID`).
fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    let word = |at: usize, notes: &[u8]| Some(u32::from_ne_bytes(*notes.get(at..)?.first_chunk()?));
    loop {
        let (name_len, desc_len, kind) = (word(0, notes)?, word(4, notes)?, word(8, notes)?);
        let desc_at = 12 + (name_len as usize).checked_next_multiple_of(4)?;
        let desc = notes.get(desc_at..desc_at.checked_add(desc_len as usize)?)?;
        if kind == 3 && notes.get(12..16)? == b"GNU\0" && name_len == 4 {
            return Some(desc);
        }
        notes = notes.get(desc_at + (desc_len as usize).checked_next_multiple_of(4)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_found_behind_another_note() {
        let mut notes = Vec::new();
        for (kind, desc) in [(1u32, &[1u8, 2, 3][..]), (3, &[9; 20][..])] {
            notes.extend_from_slice(&4u32.to_ne_bytes());
            notes.extend_from_slice(&(desc.len() as u32).to_ne_bytes());
            notes.extend_from_slice(&kind.to_ne_bytes());
            notes.extend_from_slice(b"GNU\0");
            notes.extend_from_slice(desc);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes), Some(&[9u8; 20][..]));
        for cut in 0..notes.len() {
            build_id(&notes[..cut]);
        }
    }
}
