//! Parallel map over a slice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Number of threads that can run in parallel in this process.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Calls `work` with each item and its index, on at most `threads` threads; returns the results in
/// the order of the items.
pub fn map<T: Sync, R: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(usize, &T) -> R + Sync,
) -> Vec<R> {
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

/// Capacity of the channel of messages that [`map_telling`] has not delivered yet.
const UNHEARD: usize = 64;

/// Same as [`map`]. Messages that `work` sends are passed to `hear` on the calling thread.
pub fn map_telling<T: Sync, R: Send, M: Send>(
    items: &[T],
    threads: usize,
    work: impl Fn(&T, &SyncSender<M>) -> R + Sync,
    hear: impl FnMut(M),
) -> Vec<R> {
    let (teller, told) = sync_channel(UNHEARD);
    std::thread::scope(|scope| {
        let work = &work;
        let working = scope.spawn(move || map(items, threads, |_, item| work(item, &teller)));
        told.into_iter().for_each(hear);
        working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_done_once_and_in_order() {
        for threads in [0, 1, 3, 100] {
            let items: Vec<usize> = (0..50).collect();
            let made = map(&items, threads, |position, item| (position, item * 2));
            assert_eq!(
                made,
                items.iter().map(|item| (*item, item * 2)).collect::<Vec<_>>(),
                "{threads} threads"
            );
        }
        assert_eq!(map(&[], 4, |_, item: &usize| *item), Vec::<usize>::new());
    }

    #[test]
    fn all_that_is_told_is_heard() {
        let items: Vec<u64> = (0..500).collect();
        let mut heard = Vec::new();
        let made = map_telling(
            &items,
            3,
            |item, teller| teller.send(*item).map(|()| *item),
            |item| heard.push(item),
        );
        heard.sort_unstable();
        assert_eq!(heard, items);
        assert_eq!(made.into_iter().collect::<Result<Vec<_>, _>>().expect("it was heard"), items);
    }
}
