//! The spans that this thread is in, the innermost last. They are kept as ids in thread-local storage without a
//! destructor.

use std::cell::Cell;

/// Largest number of spans that are remembered. A thread that is deeper inside sees the innermost of these.
const MOST: usize = 64;

struct Stack {
    ids: [Cell<u64>; MOST],
    /// Number of spans entered, including those beyond [`MOST`].
    depth: Cell<usize>,
}

thread_local! {
    static STACK: Stack = const { Stack { ids: [const { Cell::new(0) }; MOST], depth: Cell::new(0) } };
}

/// Returns the innermost span, or 0.
#[inline]
pub(super) fn top() -> u64 {
    STACK.with(|stack| match stack.depth.get() {
        0 => 0,
        depth => stack.ids[depth.min(MOST) - 1].get(),
    })
}

pub(super) fn push(id: u64) {
    STACK.with(|stack| {
        let depth = stack.depth.get();
        if let Some(place) = stack.ids.get(depth) {
            place.set(id);
        }
        stack.depth.set(depth + 1);
    });
}

/// Leaves the span, which nearly always is the innermost.
pub(super) fn pop(id: u64) {
    STACK.with(|stack| {
        let depth = stack.depth.get();
        let known = depth.min(MOST);
        if depth > MOST {
            stack.depth.set(depth - 1);
            return;
        }
        let Some(at) = (0..known).rev().find(|at| stack.ids[*at].get() == id) else { return };
        for place in at..known - 1 {
            stack.ids[place].set(stack.ids[place + 1].get());
        }
        stack.depth.set(depth - 1);
    });
}

/// Returns true if this thread is in the span, which it may have entered more than once.
pub(super) fn contains(id: u64) -> bool {
    STACK.with(|stack| stack.ids[..stack.depth.get().min(MOST)].iter().any(|known| known.get() == id))
}
