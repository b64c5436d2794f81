//! Finds the time at which the kernel stopped.

use crate::{Error, Kernel, Object};

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// The timekeeper's values at the last tick before the image was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// Wall time, nanoseconds since 1970.
    pub wall: u64,
    /// Nanoseconds since boot, including suspend.
    pub uptime: u64,
    /// Nanoseconds since boot by `CLOCK_MONOTONIC`, without suspend.
    pub monotonic: u64,
}

impl Kernel {
    /// Returns wall time and time since boot, from the timekeeper's last update.
    ///
    /// # Errors
    /// The timekeeper cannot be found.
    pub fn time(&self) -> Result<Time, Error> {
        let keeper = self.timekeeper()?;
        let shift = u32::try_from(keeper.u64("tkr_mono.shift")?).unwrap_or_default();
        let below =
            i128::from(keeper.u64("tkr_mono.xtime_nsec")?.checked_shr(shift).unwrap_or_default());
        let wall =
            i128::from(keeper.u64("xtime_sec")?).saturating_mul(SECOND).saturating_add(below);
        let monotonic = wall.saturating_add(span(keeper, "wall_to_monotonic")?);
        let uptime = monotonic.saturating_add(span(keeper, "monotonic_to_boot")?);
        let positive = |time: i128| u64::try_from(time.max(0)).unwrap_or(u64::MAX);
        Ok(Time { wall: positive(wall), uptime: positive(uptime), monotonic: positive(monotonic) })
    }

    /// Value of `sched_clock()` at [`Kernel::time`]; none if the kernel's memory does not contain
    /// it.
    ///
    /// On machines where that clock may be unstable (x86), the kernel stores its difference to
    /// `CLOCK_MONOTONIC` (`kernel/sched/clock.c` of Linux 5.10 to 7.2). On machines where the clock
    /// is computed from a counter (arm64), the counter's reading at that time is known
    /// (`kernel/time/sched_clock.c`).
    #[must_use]
    pub fn sched_clock(&self) -> Option<u64> {
        let monotonic = self.time().ok()?.monotonic;
        if let Ok(difference) = self.number("__gtod_offset", 8) {
            let offset = self.number("__sched_clock_offset", 8).ok()?;
            return Some(monotonic.wrapping_add(difference).wrapping_sub(offset));
        }
        let counter = self.timekeeper().ok()?.u64("tkr_mono.cycle_last").ok()?;
        let data = self.object("clock_data", self.symbol("cd").ok()?).ok()?;
        let data = data.element("read_data", 0).ok()?;
        let number = |path: &str| data.u64(path).ok();
        let cycles = counter.wrapping_sub(number("epoch_cyc")?) & number("sched_clock_mask")?;
        let scaled = u128::from(cycles)
            .saturating_mul(number("mult")?.into())
            .checked_shr(number("shift")?.try_into().ok()?)?;
        number("epoch_ns")?.checked_add(u64::try_from(scaled).ok()?)
    }

    fn timekeeper(&self) -> Result<Object<'_>, Error> {
        // From Linux 6.17 on it is in an array of clocks; before, in one structure, which had no
        // type name before 6.13.
        for symbol in ["timekeeper_data", "tk_core"] {
            let Some(place) = self.kallsyms().find(symbol) else { continue };
            if let Ok(data) = self.object("tk_data", place) {
                return data.at("timekeeper");
            }
            if let Some(type_id) = self.types.unnamed(&["seq", "timekeeper"]) {
                return Object::new(&*self.memory, &self.types, type_id, place).at("timekeeper");
            }
        }
        Err(Error::NoSymbol("tk_core".into()))
    }
}

/// Nanoseconds in a `struct timespec64`.
fn span(object: Object<'_>, path: &str) -> Result<i128, Error> {
    let time = object.at(path)?;
    Ok(i128::from(time.i64("tv_sec")?)
        .saturating_mul(SECOND)
        .saturating_add(time.i64("tv_nsec")?.into()))
}
