//! A table that only grows: found in without a lock, what is in it stays for the life of the process.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

const BUCKETS: usize = 1024;

pub(super) struct Table<T> {
    buckets: [AtomicPtr<Node<T>>; BUCKETS],
}

struct Node<T> {
    value: T,
    /// Next of the bucket; fixed when the node is published.
    next: AtomicPtr<Node<T>>,
}

impl<T: Send + Sync + 'static> Table<T> {
    pub(super) const fn new() -> Self {
        Self { buckets: [const { AtomicPtr::new(std::ptr::null_mut()) }; BUCKETS] }
    }

    fn bucket(&self, hash: u64) -> &AtomicPtr<Node<T>> {
        &self.buckets[(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize]
    }

    /// The value that `is` knows, if it is there.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&'static T> {
        chain(self.bucket(hash).load(Acquire)).find(|value| is(value))
    }

    /// Puts the value in, unless another thread was faster, whose value it is then.
    pub(super) fn add(&self, hash: u64, is: impl Fn(&T) -> bool, value: T) -> &'static T {
        let bucket = self.bucket(hash);
        let node: &'static Node<T> = Box::leak(Box::new(Node { value, next: AtomicPtr::default() }));
        let mut first = bucket.load(Acquire);
        loop {
            if let Some(other) = chain(first).find(|value| is(value)) {
                return other;
            }
            node.next.store(first, Relaxed);
            match bucket.compare_exchange(first, std::ptr::from_ref(node).cast_mut(), AcqRel, Acquire) {
                Ok(_) => return &node.value,
                Err(now) => first = now,
            }
        }
    }

    /// All values.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static T> {
        self.buckets.iter().flat_map(|bucket| chain(bucket.load(Acquire)))
    }
}

/// The values from this node on.
#[inline]
fn chain<T: 'static>(first: *mut Node<T>) -> impl Iterator<Item = &'static T> {
    let mut next = first;
    std::iter::from_fn(move || {
        // SAFETY: null, or a node that was leaked, and whole before it was published.
        let node: &'static Node<T> = unsafe { next.as_ref() }?;
        next = node.next.load(Relaxed);
        Some(&node.value)
    })
}
