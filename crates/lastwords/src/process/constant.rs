//! Detects text that is a constant of the program.

use super::loaded;

/// Returns true if the bytes are in memory of the program, or of a library, that is mapped from its file and that
/// nobody writes to. It asks the loader, so it must not be called where events are recorded.
pub(crate) fn is_constant(bytes: &[u8]) -> bool {
    let begin = bytes.as_ptr().addr() as u64;
    let end = begin + bytes.len() as u64;
    loaded::any(|(info, headers)| {
        let mut constants = headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W == 0);
        constants.any(|header| {
            let start = loaded::address_of(info, header);
            start <= begin && end <= start.saturating_add(header.p_memsz)
        })
    })
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
