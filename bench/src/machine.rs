//! The parts of the machine that safe Rust does not reach: its time stamp counter, and the limits
//! of the optimiser.
#![allow(unsafe_code)]

/// The same number, of which the compiler knows nothing afterwards. Unlike `std::hint::black_box`
/// it stays in its register: what is disabled costs a fraction of a nanosecond, and a detour by way
/// of the stack would show.
#[inline(always)]
pub(crate) fn opaque(value: u64) -> u64 {
    let mut value = value;
    // SAFETY: the template is empty; the value goes in and comes out in one register.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags))
    };
    value
}

/// The time stamp counter, not ordered with what stands around it.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86_64 processor has the instruction; Linux leaves it to user space.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: Linux lets user space read the virtual counter.
        unsafe {
            core::arch::asm!("mrs {0}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags))
        };
        ticks
    }
}

/// Makes the compiler store the value before what follows.
#[inline(always)]
pub(crate) fn stored<T>(value: &mut T) {
    // SAFETY: the template is empty. The compiler must assume that it reads the memory behind the
    // pointer.
    unsafe {
        core::arch::asm!("/* {0} */", in(reg) std::ptr::from_mut(value), options(nostack, preserves_flags))
    };
}
