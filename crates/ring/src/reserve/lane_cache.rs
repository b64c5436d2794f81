//! Caches the lane in which a thread recorded last, in thread-local storage.

#[cfg(any(not(target_arch = "x86_64"), loom))]
pub(super) use self::general::{get, set};
#[cfg(all(target_arch = "x86_64", not(loom)))]
pub(super) use self::x86_64::{get, set};

/// Makes this thread forget its lane.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(loom, miri))))]
pub(crate) fn forget() {
    set(None);
}

/// This uses the initial-exec model: one load in a program, two in a library, and never a call.
/// `std::thread_local!` in code that may become a library calls `__tls_get_addr`. Values in
/// registers must be saved around that call, even if the linker removes the call.
#[cfg(all(target_arch = "x86_64", not(loom)))]
mod x86_64 {
    use core::arch::{asm, global_asm};

    use crate::reserve::lane::Lane;

    // The symbol is hidden, so it belongs to this program or library alone. It is weak, so there is
    // one even if the program contains the crate twice.
    global_asm!(
        ".pushsection .tbss.lastwords_ring_last_lane, \"awT\", @nobits",
        ".weak lastwords_ring_last_lane",
        ".hidden lastwords_ring_last_lane",
        ".type lastwords_ring_last_lane, @object",
        ".size lastwords_ring_last_lane, 8",
        ".balign 8",
        "lastwords_ring_last_lane: .zero 8",
        ".popsection",
    );

    #[inline(always)]
    pub(crate) fn get() -> Option<&'static Lane> {
        let lane: *const Lane;
        // SAFETY: the variable belongs to this thread, has 8 bytes, is zero at first, and only
        // `set` writes it. Reading it changes nothing. A lane that was set lives for ever.
        unsafe {
            asm!(
                "mov {lane}, qword ptr [rip + lastwords_ring_last_lane@GOTTPOFF]",
                "mov {lane}, qword ptr fs:[{lane}]",
                lane = out(reg) lane,
                options(nostack, readonly, preserves_flags),
            );
            lane.as_ref()
        }
    }

    pub(crate) fn set(lane: Option<&'static Lane>) {
        // SAFETY: the variable is the one of `get`. It is one store, so a signal handler sees
        // either the old lane or the new one.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + lastwords_ring_last_lane@GOTTPOFF]",
                "mov qword ptr fs:[{at}], {lane}",
                at = out(reg) _,
                lane = in(reg) lane.map_or(core::ptr::null(), core::ptr::from_ref),
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(any(not(target_arch = "x86_64"), loom))]
mod general {
    use core::cell::Cell;

    use crate::reserve::lane::Lane;
    use crate::thread_cells::thread_cells;

    thread_cells! {
        LAST: Cell<Option<&'static Lane>> = Cell::new(None);
    }

    #[inline(always)]
    pub(crate) fn get() -> Option<&'static Lane> {
        LAST.with(Cell::get)
    }

    pub(crate) fn set(lane: Option<&'static Lane>) {
        LAST.with(|last| last.set(lane));
    }
}
