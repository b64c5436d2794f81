//! The spans that this thread is in, the innermost last, of all recorders: spans of different recorders may have the same id, and a
//! recorder sees its own alone. They are kept as ids in thread-local storage without a destructor. If a thread is in more spans than the array holds, the rest are on the heap until the thread ends.

use std::cell::{Cell, RefCell};

/// Number of spans that need no memory of the heap.
const MOST: usize = 64;

/// A span: the number of its recorder, and its id there.
type Span = (u32, u64);

struct Stack {
    ids: [Cell<u64>; MOST],
    /// The recorders of `ids`.
    owners: [Cell<u32>; MOST],
    /// A bit for each of `ids` that is further outside too.
    again: Cell<u64>,
    /// Number of `ids` in use.
    depth: Cell<usize>,
    /// Number of spans in [`DEEP`].
    deep: Cell<usize>,
}

thread_local! {
    static STACK: Stack = const {
        let (ids, owners) = ([const { Cell::new(0) }; MOST], [const { Cell::new(0) }; MOST]);
        Stack { ids, owners, again: Cell::new(0), depth: Cell::new(0), deep: Cell::new(0) }
    };
    /// The spans inside of those in [`STACK`], and whether each of them is further outside too. When the thread ends, this may be
    /// gone before the other. Spans that are entered then are not remembered.
    static DEEP: RefCell<Vec<(Span, bool)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the id of the recorder's innermost span, or 0. A span that is entered again is not inside of those that were entered meanwhile, as with
/// `tracing-subscriber`.
#[inline]
pub(super) fn top(owner: u32) -> u64 {
    STACK.with(|stack| {
        if stack.deep.get() > 0 {
            return deep_top(owner).unwrap_or_else(|| stack.top(owner));
        }
        stack.top(owner)
    })
}

/// Enters the span. Returns true if this thread was not in it.
pub(super) fn push(owner: u32, id: u64) -> bool {
    STACK.with(|stack| {
        let depth = stack.depth.get();
        let is_again = stack.find((owner, id)).is_some();
        if depth == MOST {
            return push_deep(stack, (owner, id), is_again);
        }
        stack.set(depth, (owner, id));
        stack.again.set(stack.again.get() | u64::from(is_again) << depth);
        stack.depth.set(depth + 1);
        !is_again
    })
}

/// Leaves the span, which nearly always is the innermost. Returns true if this thread was in it, and no longer is.
pub(super) fn pop(owner: u32, id: u64) -> bool {
    let span = (owner, id);
    STACK.with(|stack| {
        if stack.deep.get() > 0
            && let Some(is_out) = pop_deep(stack, span)
        {
            return is_out;
        }
        if stack.is_simple_top(span) {
            stack.depth.set(stack.depth.get() - 1);
            return true;
        }
        let Some(at) = stack.find(span) else { return false };
        let is_again = stack.again.get() >> at & 1 != 0;
        stack.remove(at);
        if stack.deep.get() > 0 {
            move_up(stack);
        }
        !is_again
    })
}

impl Stack {
    #[inline]
    fn top(&self, owner: u32) -> u64 {
        let depth = self.depth.get();
        let is_top = |at: &usize| self.owners[*at].get() == owner && self.again.get() >> at & 1 == 0;
        (0..depth).rev().find(is_top).map_or(0, |at| self.ids[at].get())
    }

    #[inline]
    fn at(&self, at: usize) -> Span {
        (self.owners[at].get(), self.ids[at].get())
    }

    #[inline]
    fn set(&self, at: usize, (owner, id): Span) {
        self.owners[at].set(owner);
        self.ids[at].set(id);
    }

    /// Returns true if the span is the innermost, the thread is in it once, and in no span a second time.
    #[inline]
    fn is_simple_top(&self, span: Span) -> bool {
        let last = self.depth.get().checked_sub(1);
        self.again.get() == 0 && self.deep.get() == 0 && last.is_some_and(|last| self.at(last) == span)
    }

    /// Returns where the span is, innermost first.
    #[inline]
    fn find(&self, span: Span) -> Option<usize> {
        (0..self.depth.get()).rev().find(|at| self.at(*at) == span)
    }

    #[inline]
    fn remove(&self, at: usize) {
        let last = self.depth.get() - 1;
        for place in at..last {
            self.set(place, self.at(place + 1));
        }
        let (again, before) = (self.again.get(), (1 << at) - 1);
        self.again.set(again & before | again >> 1 & !before);
        self.depth.set(last);
    }
}

#[cold]
#[inline(never)]
fn deep_top(owner: u32) -> Option<u64> {
    let is_top = |((of, _), is_again): &&(Span, bool)| *of == owner && !is_again;
    DEEP.try_with(|deep| Some(deep.try_borrow().ok()?.iter().rev().find(is_top)?.0.1)).ok()?
}

#[cold]
#[inline(never)]
fn push_deep(stack: &Stack, span: Span, is_again: bool) -> bool {
    let push = |deep: &RefCell<Vec<(Span, bool)>>| {
        let mut deep = deep.try_borrow_mut().ok()?;
        let is_again = is_again || deep.iter().any(|(known, _)| *known == span);
        deep.push((span, is_again));
        stack.deep.set(deep.len());
        Some(!is_again)
    };
    DEEP.try_with(push).ok().flatten().unwrap_or(false)
}

/// Leaves the span if it is among the deepest. Returns whether this thread is out of it.
#[cold]
#[inline(never)]
fn pop_deep(stack: &Stack, span: Span) -> Option<bool> {
    let pop = |deep: &RefCell<Vec<(Span, bool)>>| {
        let mut deep = deep.try_borrow_mut().ok()?;
        let at = deep.iter().rposition(|(known, _)| *known == span)?;
        let (_, is_again) = deep.remove(at);
        stack.deep.set(deep.len());
        Some(!is_again)
    };
    DEEP.try_with(pop).ok().flatten()
}

/// Moves the outermost of the deep spans to where one has been left.
#[cold]
#[inline(never)]
fn move_up(stack: &Stack) {
    let up = |deep: &RefCell<Vec<(Span, bool)>>| {
        let Ok(mut deep) = deep.try_borrow_mut() else { return };
        if !deep.is_empty() {
            let (span, is_again) = deep.remove(0);
            stack.deep.set(deep.len());
            let depth = stack.depth.get();
            stack.set(depth, span);
            stack.again.set(stack.again.get() | u64::from(is_again) << depth);
            stack.depth.set(depth + 1);
        }
    };
    // Late in a thread's end they are gone.
    let _ = DEEP.try_with(up);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random steps of two recorders with the same ids, beside a list that only does what the words say: which span is innermost,
    /// whether the thread is in it.
    #[test]
    fn a_plain_list_says_the_same() {
        let mut list: Vec<(Span, bool)> = Vec::new();
        let mut random = 1u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let span = ((random >> 50) as u32 % 2, 1 + (random >> 33) % 75);
            // The stack grows beyond what needs no memory and shrinks again, over and over.
            if random >> 60 < if step / 500 % 2 == 0 { 11 } else { 5 } {
                let is_again = list.iter().any(|(known, _)| *known == span);
                list.push((span, is_again));
                assert_eq!(push(span.0, span.1), !is_again, "step {step}");
            } else {
                let at = list.iter().rposition(|(known, _)| *known == span);
                let is_out = at.is_some_and(|at| !list.remove(at).1);
                assert_eq!(pop(span.0, span.1), is_out, "step {step}");
            }
            let is_top = |((of, _), is_again): &&(Span, bool)| *of == span.0 && !is_again;
            let innermost = list.iter().rev().find(is_top).map_or(0, |((_, id), _)| *id);
            assert_eq!(top(span.0), innermost, "step {step}, {} deep", list.len());
        }
        assert!(list.len() < 20_000 && STACK.with(|stack| stack.depth.get() + stack.deep.get()) == list.len());
    }
}
