//! The crate `backbeat`: a ring for each CPU, in the process's own memory. It has fixed-size events
//! only, so the string of payload B is an array there.

use std::time::{Duration, Instant};

use backbeat::Event;
use backbeat::recorder::{Clock, Recorder};
use zerocopy::{Immutable, IntoBytes};

use crate::Result;
use crate::job::{Job, RING_BYTES, Sample, each_a, each_b};
use crate::machine::ticks;

#[derive(Event, IntoBytes, Immutable)]
#[event(namespace = "lastwords::bench")]
#[repr(C)]
struct A {
    value: u64,
    number: u32,
    _pad: [u8; 4],
}

#[derive(Event, IntoBytes, Immutable)]
#[event(namespace = "lastwords::bench")]
#[repr(C)]
struct B {
    value: u64,
    number: u32,
    text: [u8; 16],
    _pad: [u8; 4],
}

/// The time stamp counter as the nanoseconds that backbeat's clocks return: one multiplication, no
/// division.
struct Tsc {
    start: u64,
    /// Nanoseconds a tick, times 2 to the power of 32.
    scale: u64,
}

impl Tsc {
    /// Counts the ticks of 20 ms.
    fn calibrate() -> Self {
        let (clock, start) = (Instant::now(), ticks());
        std::thread::sleep(Duration::from_millis(20));
        let (time, end) = (clock.elapsed(), ticks());
        let scale = (time.as_nanos() << 32) / u128::from(end.wrapping_sub(start).max(1));
        Self { start, scale: u64::try_from(scale).unwrap_or(u64::MAX) }
    }
}

impl Clock for Tsc {
    #[inline(always)]
    fn now_nanos(&self) -> u64 {
        let elapsed = ticks().wrapping_sub(self.start);
        ((u128::from(elapsed) * u128::from(self.scale)) >> 32) as u64
    }
}

/// With the clock it comes with.
pub(super) fn plain(job: &Job) -> Result<Sample> {
    record(job, &recorder(true)?)
}

/// With the time stamp counter as its clock.
pub(super) fn with_tsc(job: &Job) -> Result<Sample> {
    record(job, &recorder(true)?.with_clock(Tsc::calibrate()))
}

/// Not enabled.
pub(super) fn disabled(job: &Job) -> Result<Sample> {
    record(job, &recorder(false)?)
}

fn recorder(enabled: bool) -> Result<Recorder> {
    let recorder = Recorder::new(std::thread::available_parallelism()?.get(), RING_BYTES);
    recorder.set_enabled(enabled);
    Ok(recorder)
}

fn record<C: Clock>(job: &Job, recorder: &Recorder<C>) -> Result<Sample> {
    job.run(
        |events| {
            each_a(events, |number, value| recorder.record(&A { value, number, _pad: [0; 4] }))
        },
        |events| {
            each_b(events, |number, value, text| {
                let text = *text.as_bytes().first_chunk().unwrap_or(&[0; 16]);
                recorder.record(&B { value, number, text, _pad: [0; 4] });
            });
        },
    )
}
