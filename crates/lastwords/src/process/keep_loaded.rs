//! Libraries that stay: what is in the memory of one, callsites and code of threads, is reached after it was closed.

use std::ffi::{CStr, c_char, c_int, c_void};

/// Keeps the library that has this address mapped for ever, as if nobody closed it. Nothing is done for the program itself.
pub fn library_of(address: *const c_void) {
    // SAFETY: takes nothing; the address of the program's headers, or 0.
    let program = unsafe { libc::getauxval(libc::AT_PHDR) };
    let Some((base, path)) = object_of(address) else { return };
    if object_of(std::ptr::without_provenance(program as usize)).is_some_and(|(own, _)| own == base) {
        return;
    }
    // By its name: programs without shared libraries are told by the linker that they should not call it.
    // SAFETY: a C string; the symbol, where there is one, is the C library's.
    let dlopen = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr()) };
    if !dlopen.is_null() {
        // SAFETY: `dlopen` has this type, and the path is a C string. The library is there already: nothing is run. The handle
        // is not given back.
        unsafe {
            let dlopen: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void = std::mem::transmute(dlopen);
            dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

/// First address and path of the program or library that has this address.
fn object_of(address: *const c_void) -> Option<(usize, &'static CStr)> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the place is a `Dl_info`; where it was filled, its path is a C string that lives as long as the object.
    unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        (!info.dli_fname.is_null()).then(|| (info.dli_fbase as usize, CStr::from_ptr(info.dli_fname)))
    }
}
