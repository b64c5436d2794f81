//! Counts how much of a kernel's rings was read. Each opened ring is watched, and a callback can
//! receive the progress.

use lastwords_ftrace::{CpuRing, Latency, Ring, SubBufferInfo, Tracing};
use lastwords_trace::evidence::Evidence;
use std::sync::{Arc, Mutex, PoisonError};

/// Receives from watched rings which sub-buffers are read, and passes the progress to a callback.
#[derive(Default)]
pub struct Meter(Mutex<Option<Work>>);

/// The work whose progress is shown.
struct Work {
    callback: Box<dyn FnMut(u64) + Send>,
    done: u64,
    rings: Vec<Reading>,
}

/// A ring, with a flag for each sub-buffer by CPU and index, because a writer may read a sub-buffer
/// twice.
struct Reading {
    ring: Arc<dyn Ring>,
    read: Vec<Vec<bool>>,
}

impl Reading {
    fn new(ring: Arc<dyn Ring>) -> Self {
        let read = ring.cpus().iter().map(|cpu| vec![false; cpu.sub_buffers]).collect();
        Self { ring, read }
    }
}

/// A guard: the callback receives progress until the guard is dropped.
pub struct Shown<'a>(&'a Meter);

impl Meter {
    /// Watches all rings of a tracer.
    pub(crate) fn new(tracing: &mut Tracing) -> Arc<Self> {
        let meter = Arc::new(Self::default());
        let watched = |ring: &Arc<dyn Ring>| -> Arc<dyn Ring> {
            Arc::new(Watched { ring: Arc::clone(ring), meter: Arc::clone(&meter) })
        };
        for array in &mut tracing.arrays {
            array.live = watched(&array.live);
            array.snapshot = array.snapshot.as_ref().map(watched);
        }
        meter
    }

    /// Begins work on rings. `begin` receives the total number of bytes, and returns the callback
    /// for the bytes that were read.
    pub fn show<'a>(
        &self,
        rings: impl Iterator<Item = &'a Arc<dyn Ring>>,
        begin: impl FnOnce(u64) -> Box<dyn FnMut(u64) + Send>,
    ) -> Shown<'_> {
        let rings: Vec<Arc<dyn Ring>> = rings.cloned().collect();
        let size =
            |cpu: &CpuRing| (cpu.sub_buffers as u64).saturating_mul(u64::from(cpu.sub_buffer_size));
        let total =
            rings.iter().flat_map(|ring| ring.cpus()).map(size).fold(0, u64::saturating_add);
        let (callback, rings) = (begin(total), rings.into_iter().map(Reading::new).collect());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Work { callback, done: 0, rings });
        Shown(self)
    }

    /// Counts a sub-buffer that was read. The ring is identified by its CPUs.
    fn count(&self, cpus: &[CpuRing], cpu: usize, index: usize) {
        let mut work = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Work { callback, done, rings }) = &mut *work else { return };
        let reading = rings.iter_mut().find(|reading| std::ptr::eq(reading.ring.cpus(), cpus));
        let seen = reading
            .and_then(|reading| reading.read.get_mut(cpu)?.get_mut(index))
            .filter(|seen| !**seen);
        if let (Some(seen), Some(cpu)) = (seen, cpus.get(cpu)) {
            *seen = true;
            *done = done.saturating_add(u64::from(cpu.sub_buffer_size));
            callback(*done);
        }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A ring that reports its reads to a meter.
struct Watched {
    ring: Arc<dyn Ring>,
    meter: Arc<Meter>,
}

impl Ring for Watched {
    fn cpus(&self) -> &[CpuRing] {
        self.ring.cpus()
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        let info = self.ring.sub_buffer(cpu, index, bytes);
        self.meter.count(self.ring.cpus(), cpu, index);
        info
    }

    fn evidence(&self) -> Evidence {
        self.ring.evidence()
    }

    fn checked(&self) -> Evidence {
        self.ring.checked()
    }

    fn time_start(&self) -> u64 {
        self.ring.time_start()
    }

    fn latency(&self) -> Latency {
        self.ring.latency()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_ftrace::{Array, Stats};
    use lastwords_trace::evidence::Verdict;

    struct Two([CpuRing; 2]);

    impl Ring for Two {
        fn cpus(&self) -> &[CpuRing] {
            &self.0
        }

        fn sub_buffer(&self, _: usize, _: usize, _: &mut Vec<u8>) -> SubBufferInfo {
            SubBufferInfo { committed: 0, consumed: 0, missed: None, verdict: Verdict::Committed }
        }

        fn evidence(&self) -> Evidence {
            Evidence::default()
        }
    }

    #[test]
    fn a_sub_buffer_counts_once_and_only_while_it_is_shown() {
        let cpu =
            |cpu| CpuRing { cpu, sub_buffers: 3, sub_buffer_size: 4096, stats: Stats::default() };
        let ring = || -> Arc<dyn Ring> { Arc::new(Two([cpu(0), cpu(1)])) };
        let array = Array { snapshot: Some(ring()), ..Array::unknown("", ring()) };
        let meter = Arc::new(Meter::default());
        let watched =
            |ring: &Arc<dyn Ring>| Watched { ring: Arc::clone(ring), meter: Arc::clone(&meter) };
        let (live, spare) =
            (watched(&array.live), array.snapshot.as_ref().map(watched).expect("a spare"));
        let done = || meter.0.lock().unwrap().as_ref().map(|work| work.done);
        let read =
            |ring: &Watched, cpu, index| ring.sub_buffer(cpu, index, &mut Vec::new()).verdict;
        read(&live, 0, 0);
        assert_eq!(done(), None);
        let shown = meter.show(std::iter::once(&array.live), |_| Box::new(|_| {}));
        for (cpu, index) in [(0, 0), (0, 1), (0, 0), (1, 2), (1, 3), (2, 0)] {
            read(&live, cpu, index);
        }
        read(&spare, 0, 0);
        assert_eq!(done(), Some(3 * 4096));
        drop(shown);
        assert_eq!(done(), None);
    }
}
