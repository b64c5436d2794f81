//! Lists and tables that only grow. Values are found without a lock and stay for the life of the
//! process.

use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

const BUCKETS: usize = 1024;

/// Values, newest first.
pub(super) struct Chain<T> {
    first: AtomicPtr<Node<T>>,
}

struct Node<T> {
    value: T,
    /// The next node. It does not change after the node is published.
    next: AtomicPtr<Node<T>>,
}

impl<T: Send + Sync + 'static> Chain<T> {
    pub(super) const fn new() -> Self {
        Self { first: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Iterates over all values.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static T> {
        chain(self.first.load(Acquire))
    }

    /// Adds the value, unless another thread has added one that `is` the same first. Returns the
    /// value in the list.
    pub(super) fn add(&self, is: impl Fn(&T, &T) -> bool, value: T) -> &'static T {
        let node: &'static Node<T> =
            Box::leak(Box::new(Node { value, next: AtomicPtr::default() }));
        let mut first = self.first.load(Acquire);
        loop {
            if let Some(other) = chain(first).find(|other| is(other, &node.value)) {
                return other;
            }
            node.next.store(first, Relaxed);
            match self.first.compare_exchange(
                first,
                std::ptr::from_ref(node).cast_mut(),
                AcqRel,
                Acquire,
            ) {
                Ok(_) => return &node.value,
                Err(now) => first = now,
            }
        }
    }
}

/// Values that are found by a hash.
pub(super) struct Table<T> {
    buckets: [Chain<T>; BUCKETS],
}

impl<T: Send + Sync + 'static> Table<T> {
    pub(super) const fn new() -> Self {
        Self { buckets: [const { Chain::new() }; BUCKETS] }
    }

    #[inline]
    fn bucket(&self, hash: u64) -> &Chain<T> {
        &self.buckets[(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize]
    }

    /// Returns the value for which `is` is true, if there is one.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<&'static T> {
        self.bucket(hash).iter().find(|value| is(value))
    }

    /// Adds to the values of the hash, as [`Chain::add`] does.
    pub(super) fn add(&self, hash: u64, is: impl Fn(&T, &T) -> bool, value: T) -> &'static T {
        self.bucket(hash).add(is, value)
    }

    /// Iterates over all values.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static T> {
        self.buckets.iter().flat_map(Chain::iter)
    }
}

/// Iterates over the values from this node on.
#[inline]
fn chain<T: 'static>(first: *mut Node<T>) -> impl Iterator<Item = &'static T> {
    let mut next = first;
    std::iter::from_fn(move || {
        // SAFETY: the pointer is null, or leads to a node that was leaked and was complete before
        // it was published.
        let node: &'static Node<T> = unsafe { next.as_ref() }?;
        next = node.next.load(Relaxed);
        Some(&node.value)
    })
}
