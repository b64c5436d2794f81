//! The session's clock: its kind, its frequency, and its relation to CLOCK_MONOTONIC and wall time.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lastwords_abi::session::{ClockArea, ClockSample};
use lastwords_ring::{ClockKind, flush};

const SECOND: u64 = 1_000_000_000;
/// Duration for which the counter is measured against CLOCK_MONOTONIC if the machine does not
/// report its frequency, in nanoseconds.
const MEASURE: u64 = 2_000_000;
/// Number of readings. The one with the shortest duration is used.
const TRIES: usize = 5;
/// A refresh that has taken longer than this belongs to a dead thread. The unit is nanoseconds.
const REFRESHER_DEAD: u64 = 2 * SECOND;

/// Returns the best clock of this machine: the CPU's counter if all CPUs agree on it and sleep does
/// not stop it, otherwise CLOCK_MONOTONIC.
#[must_use]
pub fn best() -> ClockKind {
    #[cfg(target_arch = "x86_64")]
    if tsc_is_sound() {
        return ClockKind::Tsc;
    }
    if cfg!(target_arch = "aarch64") { ClockKind::Cntvct } else { ClockKind::Monotonic }
}

/// Returns true if the TSC is invariant, and the kernel trusts it enough to keep time by it.
#[cfg(target_arch = "x86_64")]
fn tsc_is_sound() -> bool {
    use core::arch::x86_64::__cpuid;
    let invariant =
        __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0;
    let current =
        std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    match current.as_deref().map(str::trim) {
        Ok("tsc") => true,
        // The guest's host guarantees the counter. Other clock sources ("hpet", "acpi_pm") mean
        // that the kernel rejected the counter.
        Ok("kvm-clock" | "hyperv_clocksource_tsc_page") | Err(_) => invariant,
        Ok(_) => false,
    }
}

/// Returns the counter's frequency as the machine reports it, in ticks for each second. On x86_64
/// this is CPUID 0x15 (crystal and ratio), or the hypervisor's 0x4000_0010 (kHz); 0x16 is a nominal
/// figure and not used.
fn machine_frequency() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::__cpuid;
        if __cpuid(0).eax >= 0x15 {
            let leaf = __cpuid(0x15);
            if leaf.eax != 0 && leaf.ebx != 0 && leaf.ecx != 0 {
                return Some(u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax));
            }
        }
        let in_guest = __cpuid(1).ecx & (1 << 31) != 0;
        let khz =
            (in_guest && __cpuid(0x4000_0000).eax >= 0x4000_0010).then(|| __cpuid(0x4000_0010).eax);
        khz.filter(|khz| *khz > 100_000).map(|khz| u64::from(khz) * 1000)
    }
    #[cfg(target_arch = "aarch64")]
    {
        let hz: u64;
        // SAFETY: Linux lets user space read the counter's frequency.
        unsafe {
            core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags))
        };
        (hz > 0).then_some(hz)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    None
}

/// Counts ticks between two readings of CLOCK_MONOTONIC.
fn measure(kind: ClockKind) -> u64 {
    let first = read(kind);
    let mut last = first;
    while last.monotonic.wrapping_sub(first.monotonic) < MEASURE {
        core::hint::spin_loop();
        last = read(kind);
    }
    let ticks = u128::from(last.clock.wrapping_sub(first.clock));
    let ns = u128::from(last.monotonic.wrapping_sub(first.monotonic)).max(1);
    u64::try_from(ticks * u128::from(SECOND) / ns).unwrap_or(SECOND).max(1)
}

/// The three clocks read together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) clock: u64,
    pub(crate) monotonic: u64,
    pub(crate) realtime: u64,
    pub(crate) width: u64,
}

/// Returns the best of a few readings: that in which the two readings of CLOCK_MONOTONIC around the
/// reading of the session's clock are closest.
pub(crate) fn read(kind: ClockKind) -> Reading {
    let mut best = Reading { clock: 0, monotonic: 0, realtime: 0, width: u64::MAX };
    for _ in 0..TRIES {
        let before = ClockKind::Monotonic.now();
        let clock = kind.now_ordered();
        let realtime = ClockKind::Realtime.now();
        let after = ClockKind::Monotonic.now();
        let width = after.wrapping_sub(before);
        if width < best.width {
            best = Reading { clock, monotonic: before + width / 2, realtime, width };
        }
    }
    best
}

/// Fills the area of a new session.
pub(crate) fn init(area: &ClockArea, kind: ClockKind) {
    area.kind.store(kind as u32, Relaxed);
    let frequency = match kind {
        ClockKind::Tsc | ClockKind::Cntvct => machine_frequency().unwrap_or_else(|| measure(kind)),
        _ => SECOND,
    };
    area.frequency.store(frequency, Relaxed);
    let reading = read(kind);
    store(&area.samples[0], &reading);
    store(&area.samples[1], &reading);
    area.newest.store(1, Release);
}

/// Takes a new sample when the newest is older than half a second. Async-signal-safe. The function
/// waits for no lock, and makes no system call if the clocks are read through the vDSO.
pub(crate) fn refresh(area: &ClockArea) {
    refresh_and(area, |_| ());
}

/// Does what [`refresh`] does in persistent memory: the sample is persistent before the word that
/// names it can be.
pub(crate) fn refresh_persistent(area: &ClockArea) {
    refresh_and(area, |written| {
        // SAFETY: the bytes are of the area, which is mapped.
        unsafe { flush::flush(written.cast(), written.len()) };
        flush::fence();
    });
}

/// Takes a new sample. Calls `keep` with the place of each part that was written, the sample first.
fn refresh_and(area: &ClockArea, keep: impl Fn(*const [u8])) {
    let Some(kind) = ClockKind::from_code(area.kind.load(Relaxed)) else { return };
    let newest = area.newest.load(Acquire);
    let other = if newest == 1 { 2 } else { 1 };
    let Some(sample) = area.samples.get(newest as usize) else { return };
    let age = kind.now().wrapping_sub(sample.clock.load(Relaxed));
    if age < area.frequency.load(Relaxed) / 2 {
        return;
    }
    let now = ClockKind::Monotonic.now().max(1);
    let holder = area.busy.load(Relaxed);
    if holder != 0 && now.wrapping_sub(holder) < REFRESHER_DEAD {
        return;
    }
    if area.busy.compare_exchange(holder, now, Acquire, Relaxed).is_ok() {
        let sample = &area.samples[other];
        store(sample, &read(kind));
        keep(bytes_at(sample));
        area.newest.store(other as u32, Release);
        keep(bytes_at(&area.newest));
        let _ = area.busy.compare_exchange(now, 0, Release, Relaxed);
    }
}

/// Returns the place of a value.
fn bytes_at<T>(value: &T) -> *const [u8] {
    core::ptr::slice_from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>())
}

fn store(sample: &ClockSample, reading: &Reading) {
    sample.clock.store(reading.clock, Relaxed);
    sample.monotonic.store(reading.monotonic, Relaxed);
    sample.realtime.store(reading.realtime, Relaxed);
    sample.width.store(reading.width, Relaxed);
}
