//! Keeps libraries loaded, because callsites and code of threads in their memory are used after the
//! program has closed them.

use std::ffi::{CStr, c_char, c_int, c_void};

/// Keeps the library that contains this address mapped for ever, as if nobody closed it. Does
/// nothing for the program itself.
pub fn library_of(address: *const c_void) {
    // SAFETY: the call involves no memory. It returns the address of the program's headers, or 0.
    let program = unsafe { libc::getauxval(libc::AT_PHDR) };
    let Some((base, path)) = object_of(address) else { return };
    if object_of(std::ptr::without_provenance(program as usize)).is_some_and(|(own, _)| own == base)
    {
        return;
    }
    // The function is looked up by its name, because the linker warns programs without shared
    // libraries not to call it. SAFETY: the argument is a C string; the symbol, if it exists, is
    // the C library's.
    let dlopen = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr()) };
    if !dlopen.is_null() {
        // SAFETY: `dlopen` has this type, and the path is a C string. The library is loaded
        // already, so no code of it runs. The handle is not closed.
        unsafe {
            let dlopen: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
                std::mem::transmute(dlopen);
            dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

/// Returns the first address and the path of the program or library that contains this address.
fn object_of(address: *const c_void) -> Option<(usize, &'static CStr)> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the argument is a `Dl_info`. If the call filled it, its path is a C string that lives
    // as long as the object.
    unsafe {
        if libc::dladdr(address, info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        (!info.dli_fname.is_null())
            .then(|| (info.dli_fbase as usize, CStr::from_ptr(info.dli_fname)))
    }
}
