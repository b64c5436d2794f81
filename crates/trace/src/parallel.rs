//! Work on several things at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many threads the machine runs at a time for us.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What `work` makes of each item and its position, in the order of the items, on at most so many threads.
pub fn map<T: Sync, R: Send>(items: &[T], threads: usize, work: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let run = || {
        loop {
            let position = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(position) else { break };
            let made = work(position, item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((position, made));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            scope.spawn(run);
        }
        run();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(position, _)| *position);
    done.into_iter().map(|(_, made)| made).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_done_once_and_in_order() {
        for threads in [0, 1, 3, 100] {
            let items: Vec<usize> = (0..50).collect();
            let made = map(&items, threads, |position, item| (position, item * 2));
            assert_eq!(made, items.iter().map(|item| (*item, item * 2)).collect::<Vec<_>>(), "{threads} threads");
        }
        assert_eq!(map(&[], 4, |_, item: &usize| *item), Vec::<usize>::new());
    }
}
