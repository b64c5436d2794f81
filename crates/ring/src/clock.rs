//! The session's clock, which recorders read for each event.

use lastwords_abi::session as abi;

/// The clock of a session. All kinds are monotonic except `Realtime`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ClockKind {
    /// The x86 time stamp counter. It is used only if it is invariant and synchronised.
    Tsc = abi::CLOCK_TSC,
    /// The aarch64 virtual counter.
    Cntvct = abi::CLOCK_CNTVCT,
    /// CLOCK_MONOTONIC, in nanoseconds.
    Monotonic = abi::CLOCK_MONOTONIC,
    /// CLOCK_MONOTONIC_RAW, in nanoseconds.
    MonotonicRaw = abi::CLOCK_MONOTONIC_RAW,
    /// CLOCK_BOOTTIME, in nanoseconds.
    Boottime = abi::CLOCK_BOOTTIME,
    /// CLOCK_REALTIME, in nanoseconds. It may step back; events then carry the last reading.
    Realtime = abi::CLOCK_REALTIME,
}

impl ClockKind {
    /// Returns the clock with this code, a value of [`abi::ClockArea::kind`], if this machine can
    /// read it.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Self> {
        let all = [
            Self::Tsc,
            Self::Cntvct,
            Self::Monotonic,
            Self::MonotonicRaw,
            Self::Boottime,
            Self::Realtime,
        ];
        all.into_iter().find(|kind| *kind as u32 == code).filter(|kind| match kind {
            Self::Tsc => cfg!(target_arch = "x86_64"),
            Self::Cntvct => cfg!(target_arch = "aarch64"),
            _ => true,
        })
    }

    /// Reads the clock, in ticks. The reading is not ordered against the loads and stores around
    /// it.
    #[inline]
    #[must_use]
    pub fn now(self) -> u64 {
        #[cfg(loom)]
        return crate::model::tick();
        #[cfg(not(loom))]
        match self {
            Self::Tsc | Self::Cntvct => counter(),
            Self::Monotonic => posix(libc::CLOCK_MONOTONIC),
            Self::MonotonicRaw => posix(libc::CLOCK_MONOTONIC_RAW),
            Self::Boottime => posix(libc::CLOCK_BOOTTIME),
            Self::Realtime => posix(libc::CLOCK_REALTIME),
        }
    }

    /// Reads the clock after earlier loads are done, for buffers that several CPUs write.
    #[inline]
    #[must_use]
    pub fn now_ordered(self) -> u64 {
        if matches!(self, Self::Tsc | Self::Cntvct) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: LFENCE has no operands and is part of the x86_64 baseline (SSE2).
            unsafe {
                core::arch::x86_64::_mm_lfence();
            }
            #[cfg(target_arch = "aarch64")]
            // SAFETY: ISB has no operands and no effect but ordering.
            unsafe {
                core::arch::asm!("isb", options(nostack, preserves_flags));
            }
        }
        self.now()
    }
}

/// Reads the CPU's counter, in ticks.
#[inline]
#[must_use]
pub fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC is part of the baseline; a kernel that forbids it to user space is not one
    // where `Tsc` is chosen.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // This is not `nomem`: the compiler must not move the reading before the load of the
        // position in front of it. Otherwise an event could get an older time than an event that
        // came between. The CPU may reorder them, but not across an interrupt or a signal. SAFETY:
        // reading CNTVCT_EL0 is allowed to user space on Linux and touches no memory.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags));
        }
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    posix(libc::CLOCK_MONOTONIC)
}

#[inline]
fn posix(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is valid memory for the result; the call cannot fail for these clocks.
    unsafe {
        libc::clock_gettime(clock, &raw mut t);
    }
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}
