//! When the kernel stopped.

use crate::{Error, Kernel, Object};

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// What the timekeeper said last: at the last tick before the image was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time {
    /// Nanoseconds since 1970.
    pub wall: u64,
    /// Nanoseconds since the boot, with those slept.
    pub uptime: u64,
    /// Nanoseconds since the boot by `CLOCK_MONOTONIC`: without those slept.
    pub monotonic: u64,
}

impl Kernel {
    /// Time of day and time since the boot, as the timekeeper said last.
    ///
    /// # Errors
    /// The timekeeper is not found.
    pub fn time(&self) -> Result<Time, Error> {
        let keeper = self.timekeeper()?;
        let shift = u32::try_from(keeper.u64("tkr_mono.shift")?).unwrap_or_default();
        let below = i128::from(keeper.u64("tkr_mono.xtime_nsec")?.checked_shr(shift).unwrap_or_default());
        let wall = i128::from(keeper.u64("xtime_sec")?).saturating_mul(SECOND).saturating_add(below);
        let monotonic = wall.saturating_add(span(keeper, "wall_to_monotonic")?);
        let uptime = monotonic.saturating_add(span(keeper, "monotonic_to_boot")?);
        let positive = |time: i128| u64::try_from(time.max(0)).unwrap_or(u64::MAX);
        Ok(Time { wall: positive(wall), uptime: positive(uptime), monotonic: positive(monotonic) })
    }

    /// What `sched_clock()` read at [`Kernel::time`]; none where the kernel does not tell it.
    ///
    /// Where that clock may be unstable (x86), the kernel keeps what it differs by from `CLOCK_MONOTONIC` (`kernel/sched/clock.c` of Linux
    /// 5.10 to 7.2). Where it is made of a counter (arm64), the counter's reading at that time is known (`kernel/time/sched_clock.c`).
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
        let scaled =
            u128::from(cycles).saturating_mul(number("mult")?.into()).checked_shr(number("shift")?.try_into().ok()?)?;
        number("epoch_ns")?.checked_add(u64::try_from(scaled).ok()?)
    }

    fn timekeeper(&self) -> Result<Object<'_>, Error> {
        // An array of one clock and others from 6.17 on, one structure before; without a name before 6.13.
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

/// Nanoseconds of a `struct timespec64`.
fn span(object: Object<'_>, path: &str) -> Result<i128, Error> {
    let time = object.at(path)?;
    Ok(i128::from(time.i64("tv_sec")?).saturating_mul(SECOND).saturating_add(time.i64("tv_nsec")?.into()))
}
