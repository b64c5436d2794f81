//! Reads the memory of the session that this process records.

/// Copies `len` bytes at an address that the recorder has reported as a flush of its whole memory.
pub(super) fn copy(base: usize, len: usize) -> Vec<u8> {
    // SAFETY: the back-end has just cleared these bytes of its mapping, which stays mapped for the
    // life of the process. The one thread that writes there is this one, in whose flush or between
    // whose calls this is.
    unsafe { std::slice::from_raw_parts(base as *const u8, len) }.to_vec()
}
