//! Helpers of the tests of the recovery side.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

pub(crate) mod image;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use cap::Cap;
use lastwords_testkit::ring::{Event, Ring};
use lastwords_testkit::session::Session;
use lastwords_trace::evidence::Verdict;

pub(crate) use image::{Bytes, Found, Key, Sub, found_as, late_differs, walk, walk_bytes};

/// No test allocates more than this at a time: an allocation beyond it aborts.
pub(crate) const MEMORY: usize = 256 << 20;

#[global_allocator]
static ALLOCATOR: Cap<std::alloc::System> = Cap::new(std::alloc::System, MEMORY);

/// Ends the process when one case takes too long, and says which. Only one test at a time has one:
/// these tests use all CPUs and much memory, and would slow each other's cases.
pub(crate) struct Watchdog {
    case: Arc<AtomicU64>,
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Watchdog {
    /// `name` is the test's.
    pub(crate) fn new(name: &'static str, limit: Duration) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let case = Arc::new(AtomicU64::new(0));
        let seen = Arc::downgrade(&case);
        std::thread::spawn(move || {
            let (mut last, mut since) = (0, Instant::now());
            while let Some(case) = seen.upgrade() {
                let now = case.load(Relaxed);
                drop(case);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > limit {
                    eprintln!(
                        "{name}: case {} runs for more than {limit:?}",
                        now.saturating_sub(1)
                    );
                    std::process::exit(101);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Self { case, _alone: alone }
    }

    /// The next case begins.
    pub(crate) fn case(&self, n: u64) {
        self.case.store(n + 1, Relaxed);
    }
}

/// Runs `body` on each of `cases`, on two threads; the numbers of the cases and the results, in
/// order. With `LASTWORDS_SAMPLE`, a number, only the first, the last, and one in so many cases in
/// between is run: others each day.
pub(crate) fn parallel<T: Send>(cases: u64, body: impl Fn(u64) -> T + Sync) -> Vec<(u64, T)> {
    let given = std::env::var("LASTWORDS_SAMPLE").ok().and_then(|number| number.parse().ok());
    let of = given.unwrap_or(1u64).max(1);
    let seconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let day = seconds / 86_400;
    let is_run = |n: u64| n % of == day % of || n == 0 || n + 1 == cases;
    let next = AtomicU64::new(0);
    let work = || {
        let mut mine = Vec::new();
        loop {
            let n = next.fetch_add(1, Relaxed);
            if n >= cases {
                return mine;
            }
            if is_run(n) {
                mine.push((n, body(n)));
            }
        }
    };
    let mut all: Vec<(u64, T)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().expect("a case failed; see above")).collect()
    });
    all.sort_by_key(|(n, _)| *n);
    all
}

/// The true contents of sub-buffers.
pub(crate) type Truth = BTreeMap<Key, (Verdict, Vec<Event>)>;

/// The truth of one half of each stream of a synthetic session, in the form of what is found.
pub(crate) fn truth(session: &Session, half: impl Fn(&Ring) -> usize) -> Truth {
    let mut all = BTreeMap::new();
    for ring in &session.rings {
        for sub in ring.truth(half(ring)) {
            let events = sub.events.into_iter().map(|(_, e)| e).collect();
            all.insert((u64::from(ring.spec.index), sub.number), (found_as(sub.expect), events));
        }
    }
    all
}
