//! The program and the libraries that are loaded, as the loader lists them. This asks the loader,
//! so it must not be used where events are recorded.

use std::ffi::{c_int, c_void};

/// A loaded program or library, and its program headers.
pub(crate) type Object<'a> = (&'a libc::dl_phdr_info, &'a [libc::Elf64_Phdr]);

type Look<'a> = &'a mut dyn FnMut(Object<'_>) -> bool;

/// Passes each loaded object to `look` until that returns true. Returns true if it did.
pub(crate) fn any(mut look: impl FnMut(Object<'_>) -> bool) -> bool {
    let mut look: Look<'_> = &mut look;
    // SAFETY: `each` expects a `Look`, which is passed here and outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut look).cast()) != 0 }
}

unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _size: usize, look: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description and, as data, the `Look` of `any`. The
    // description names `dlpi_phnum` headers of a loaded object, which stays while the loader's
    // lock is held.
    let (info, headers, look) = unsafe {
        let info = &*info;
        (
            info,
            std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
            &mut *look.cast::<Look<'_>>(),
        )
    };
    c_int::from(look((info, headers)))
}

/// Returns the address of the segment in memory.
pub(crate) fn address_of(info: &libc::dl_phdr_info, header: &libc::Elf64_Phdr) -> u64 {
    info.dlpi_addr.wrapping_add(header.p_vaddr)
}
