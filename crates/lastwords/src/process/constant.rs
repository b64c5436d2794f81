//! Whether text is a constant of the program.

use std::ffi::{c_int, c_void};

/// Addresses that are looked for.
struct Range {
    start: u64,
    end: u64,
}

/// Whether the bytes lie in memory of the program, or of a library, that is mapped from its file and that nobody writes to.
/// Asks the loader: not for where events are recorded.
pub(crate) fn is_constant(bytes: &[u8]) -> bool {
    let start = bytes.as_ptr().addr() as u64;
    let mut range = Range { start, end: start + bytes.len() as u64 };
    // SAFETY: `holds` takes the range that is passed, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(holds), (&raw mut range).cast()) != 0 }
}

/// 1 if a segment that is not writable holds the range, which ends the search.
unsafe extern "C" fn holds(info: *mut libc::dl_phdr_info, _size: usize, range: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and, as data, the range of `is_constant`.
    let (info, range) = unsafe { (&*info, &*range.cast::<Range>()) };
    // SAFETY: the description names `dlpi_phnum` headers of a loaded module, which stays while the loader's lock is held.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let mut constants =
        headers.iter().filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0);
    let has = constants.any(|header| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        start <= range.start && range.end <= start.saturating_add(header.p_memsz)
    });
    c_int::from(has)
}

#[cfg(test)]
mod tests {
    use super::is_constant;

    #[test]
    fn constants_and_others() {
        static WRITTEN: std::sync::Mutex<[u8; 4]> = std::sync::Mutex::new(*b"data");
        assert!(is_constant(b"a constant"));
        assert!(!is_constant(String::from("heap").as_bytes()));
        assert!(!is_constant(std::hint::black_box(*b"stack").as_slice()));
        assert!(!is_constant(&*WRITTEN.lock().expect("alone")));
    }
}
