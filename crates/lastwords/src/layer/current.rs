//! The spans that this thread is in, the innermost last, of all recorders: spans of different
//! recorders may have the same id, and a recorder sees its own alone. They are kept as ids in
//! thread-local storage without a destructor. If a thread is in more spans than the array holds,
//! the rest are on the heap until the thread ends.
//!
//! Signal handlers of the thread enter and leave spans too. A handler leaves what it has entered,
//! so the depth is the same after it. A place is taken before it is written, and the mark that
//! makes its span visible is stored last: a handler that comes in between uses the places
//! behind, and does not see half of a span. Where a span is moved, its old place keeps it until the
//! new one is marked.
//!
//! Beside an id is the span's site, if it is known. So the layer need not ask the registry for a
//! span that this thread has made and entered.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

use super::site::Site;

/// Number of spans that need no memory of the heap.
const MOST: usize = 64;

/// A span: the number of its recorder, and its id there.
type Span = (u32, u64);

/// A site, if it is known.
type Known = Option<&'static Site>;

/// Room for a span that the thread is in.
struct Place {
    /// The recorder of the span, as [`mark`] has it; 0 in a place that is not in use. The other
    /// members count only if this is not 0.
    mark: Cell<u64>,
    id: Cell<u64>,
    site: Cell<Known>,
}

/// Bit of a mark: the thread is in the span further outside too.
const IS_AGAIN: u64 = 1;

/// Returns the mark of the recorder's spans that are not further outside.
#[inline(always)]
const fn mark(owner: u32) -> u64 {
    (owner as u64 + 1) << 1
}

struct Stack {
    places: [Place; MOST],
    /// Number of `places` in use.
    depth: Cell<usize>,
    /// Number of spans in [`DEEP`].
    deep: Cell<usize>,
    /// The newest span whose site was noted.
    newest: Cell<(Span, Known)>,
    /// True while `newest` is used. A signal handler that comes then does not use it.
    is_busy: Cell<bool>,
}

thread_local! {
    static STACK: Stack = const {
        let places = [const { Place { mark: Cell::new(0), id: Cell::new(0), site: Cell::new(None) } }; MOST];
        let newest = Cell::new(((0, 0), None));
        Stack { places, depth: Cell::new(0), deep: Cell::new(0), newest, is_busy: Cell::new(false) }
    };
    /// The spans inside of those in [`STACK`], and whether each of them is further outside too. When the thread ends, this may be
    /// gone before the other. Spans that are entered then are not remembered.
    static DEEP: RefCell<Vec<(Span, bool)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the id of the recorder's innermost span, or 0. A span that is entered again is not
/// inside of those that were entered meanwhile, as with `tracing-subscriber`.
#[inline]
pub(super) fn top(owner: u32) -> u64 {
    top_known(owner).0
}

/// Returns what [`top`] does, and the site of the span.
#[inline]
pub(super) fn top_known(owner: u32) -> (u64, Known) {
    STACK.with(|stack| {
        if stack.deep.get() > 0
            && let Some((_, id)) = deep_top(|of| of == owner)
        {
            return (id, None);
        }
        stack.top(owner).map_or((0, None), |place| (place.id.get(), place.site.get()))
    })
}

/// Returns the recorder and the id of the innermost span of all recorders, and its site.
pub(super) fn innermost() -> Option<(u32, u64, Known)> {
    STACK.with(|stack| {
        if stack.deep.get() > 0
            && let Some((owner, id)) = deep_top(|_| true)
        {
            return Some((owner, id, None));
        }
        let is_top = |place: &&Place| place.mark.get() != 0 && place.mark.get() & IS_AGAIN == 0;
        let place = stack.places[..stack.depth.get().min(MOST)].iter().rfind(is_top)?;
        Some(((place.mark.get() >> 1) as u32 - 1, place.id.get(), place.site.get()))
    })
}

/// Returns true if this thread is in a span of any recorder.
#[inline]
pub(super) fn is_in_any() -> bool {
    STACK.with(|stack| stack.depth.get() > 0)
}

/// Notes the site of a new span, until this thread notes another one. The ids of the recorder must
/// be such that no other thread gives one that this thread has given.
#[inline]
pub(super) fn note(owner: u32, id: u64, site: &'static Site) {
    STACK.with(|stack| {
        stack.with_newest(|newest| newest.set(((owner, id), Some(site))));
    });
}

/// Returns the site of the span, if it was the newest that this thread noted.
#[inline]
pub(super) fn noted(owner: u32, id: u64) -> Known {
    STACK.with(|stack| stack.noted((owner, id)))
}

/// Enters the span. Returns true if this thread was not in it.
#[inline]
pub(super) fn push(owner: u32, id: u64) -> bool {
    STACK.with(|stack| {
        let depth = stack.depth.get();
        let is_again = stack.find((owner, id)).is_some();
        if depth == MOST {
            return push_deep(stack, (owner, id), is_again);
        }
        stack.enter((owner, id), is_again, stack.noted((owner, id)));
        !is_again
    })
}

/// Leaves the span, which nearly always is the innermost. Returns true if this thread was in it,
/// and no longer is.
#[inline]
pub(super) fn pop(owner: u32, id: u64) -> bool {
    let span = (owner, id);
    STACK.with(|stack| {
        if stack.deep.get() > 0
            && let Some(is_out) = pop_deep(stack, span)
        {
            return is_out;
        }
        if stack.is_simple_top(span) {
            stack.drop_last();
            return true;
        }
        let Some(at) = stack.find(span) else { return false };
        let is_again = stack.places[at].mark.get() & IS_AGAIN != 0;
        stack.remove(at);
        if stack.deep.get() > 0 {
            move_up(stack);
        }
        !is_again
    })
}

/// Keeps the stores before it in front of those after it, for signal handlers of this thread.
#[inline(always)]
fn keep_order() {
    compiler_fence(SeqCst);
    #[cfg(test)]
    tests::interrupt();
}

impl Place {
    /// Writes a span into this place, which is taken. A place without a mark has no span, whatever
    /// is written there.
    #[inline(always)]
    fn write(&self, id: u64, site: Known, mark: u64) {
        self.mark.set(0);
        keep_order();
        self.id.set(id);
        self.site.set(site);
        keep_order();
        self.mark.set(mark);
    }

    /// Returns true if the span is here.
    #[inline]
    fn has(&self, (owner, id): Span) -> bool {
        self.mark.get() & !IS_AGAIN == mark(owner) && self.id.get() == id
    }
}

impl Stack {
    /// Returns the place of the recorder's innermost span.
    #[inline]
    fn top(&self, owner: u32) -> Option<&Place> {
        self.places[..self.depth.get().min(MOST)]
            .iter()
            .rfind(|place| place.mark.get() == mark(owner))
    }

    /// Puts the span into the next place, which is free.
    #[inline]
    fn enter(&self, (owner, id): Span, is_again: bool, site: Known) {
        let at = self.depth.get();
        self.depth.set(at + 1);
        keep_order();
        self.places[at].write(id, site, mark(owner) | u64::from(is_again));
    }

    /// Frees the last place.
    #[inline]
    fn drop_last(&self) {
        let last = self.depth.get() - 1;
        self.places[last].mark.set(0);
        keep_order();
        self.depth.set(last);
    }

    /// Returns true if the span is the innermost, and the thread is in it once.
    #[inline]
    fn is_simple_top(&self, (owner, id): Span) -> bool {
        let last = self.depth.get().checked_sub(1).and_then(|last| self.places.get(last));
        self.deep.get() == 0
            && last.is_some_and(|place| place.mark.get() == mark(owner) && place.id.get() == id)
    }

    /// Returns where the span is, innermost first.
    #[inline]
    fn find(&self, span: Span) -> Option<usize> {
        self.places[..self.depth.get().min(MOST)].iter().rposition(|place| place.has(span))
    }

    /// Moves the spans behind a place by one place, so that the span there is gone. No span is in
    /// no place meanwhile.
    #[inline]
    fn remove(&self, at: usize) {
        let last = self.depth.get() - 1;
        for (place, next) in self.places[at..last].iter().zip(&self.places[at + 1..]) {
            place.write(next.id.get(), next.site.get(), next.mark.get());
            keep_order();
        }
        self.drop_last();
    }

    /// Calls `act` with the newest span, unless the thread was interrupted while it used that.
    #[inline]
    fn with_newest<T>(&self, act: impl FnOnce(&Cell<(Span, Known)>) -> T) -> Option<T> {
        if self.is_busy.get() {
            return None;
        }
        self.is_busy.set(true);
        keep_order();
        let done = act(&self.newest);
        keep_order();
        self.is_busy.set(false);
        Some(done)
    }

    #[inline]
    fn noted(&self, span: Span) -> Known {
        let (newest, site) = self.with_newest(Cell::get)?;
        site.filter(|_| newest == span)
    }
}

#[cold]
#[inline(never)]
fn deep_top(is_owner: impl Fn(u32) -> bool) -> Option<Span> {
    let is_top = |((of, _), is_again): &&(Span, bool)| is_owner(*of) && !is_again;
    DEEP.try_with(|deep| Some(deep.try_borrow().ok()?.iter().rev().find(is_top)?.0)).ok()?
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
            stack.enter(span, is_again, None);
        }
    };
    // Late in a thread's end they are gone.
    let _ = DEEP.try_with(up);
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// Called by [`keep_order`], as a signal handler that comes there.
        static HANDLER: Cell<Option<fn()>> = const { Cell::new(None) };
        /// Values that the handler may find: the innermost spans of the recorders 3 and 4, and the number of times that it came.
        static MAY_BE: RefCell<(Vec<(u64, u64)>, u32)> = const { RefCell::new((Vec::new(), 0)) };
    }

    /// A signal handler of the test does not interrupt itself.
    pub(super) fn interrupt() {
        if let Some(handler) = HANDLER.take() {
            handler();
            HANDLER.set(Some(handler));
        }
    }

    /// Enters and leaves spans of both recorders, also one that the thread may be in.
    fn handler() {
        MAY_BE.with_borrow_mut(|(may_be, count)| {
            let found = (top(3), top(4));
            assert!(may_be.contains(&found), "{found:?} is none of {may_be:?}");
            for (owner, id) in [(4, 90), (3, 90), (4, 7), (3, 8)] {
                let (before, is_new) = (top(owner), push(owner, id));
                assert_eq!(top(owner), if is_new { id } else { before });
                assert_eq!(pop(owner, id), is_new);
            }
            assert_eq!((top(3), top(4)), found, "what a handler leaves");
            *count += 1;
        });
    }

    /// Takes the step. The handler, which comes wherever stores of it are ordered, finds the spans
    /// as they were before or after it.
    fn interrupted(step: impl Fn(), before: (u64, u64), after: (u64, u64)) {
        MAY_BE.set((vec![before, after], 0));
        HANDLER.set(Some(handler));
        step();
        HANDLER.set(None);
        assert!(MAY_BE.with_borrow(|(_, count)| *count) >= 1 && (top(3), top(4)) == after);
    }

    /// Spans of two recorders, entered and left in and out of order, with a signal handler after
    /// each store that another waits for.
    #[test]
    fn what_interrupts_finds_no_half_of_a_span() {
        // Places keep what was in them: here spans of the other recorder.
        (0..8).for_each(|id| assert!(push(4, 100 + id)));
        (0..8).rev().for_each(|id| assert!(pop(4, 100 + id)));
        interrupted(|| assert!(push(3, 7)), (0, 0), (7, 0));
        interrupted(|| assert!(push(4, 7)), (7, 0), (7, 7));
        interrupted(|| assert!(push(3, 8)), (7, 7), (8, 7));
        interrupted(|| assert!(!push(3, 7)), (8, 7), (8, 7));
        interrupted(|| assert!(push(4, 9)), (8, 7), (8, 9));
        // The outermost is left first, and the others move.
        interrupted(|| assert!(!pop(3, 7)), (8, 9), (8, 9));
        interrupted(|| assert!(pop(3, 7)), (8, 9), (8, 9));
        interrupted(|| assert!(pop(4, 7)), (8, 9), (8, 9));
        interrupted(|| assert!(pop(3, 8)), (8, 9), (0, 9));
        interrupted(|| assert!(pop(4, 9)), (0, 9), (0, 0));
    }

    /// The site that was noted last is known, unless it is being used.
    #[test]
    fn a_note_counts_for_its_span_alone() {
        use crate::layer::site::tests::any;
        let (one, other) = (any(), any());
        note(3, 7, one);
        assert!(noted(3, 7).is_some_and(|site| std::ptr::eq(site, one)));
        assert!(noted(3, 8).is_none() && noted(4, 7).is_none());
        assert!(push(3, 7) && top_known(3).1.is_some());
        note(3, 8, other);
        assert!(
            noted(3, 7).is_none() && top_known(3).1.is_some_and(|site| std::ptr::eq(site, one))
        );
        STACK.with(|stack| stack.is_busy.set(true));
        note(3, 9, one);
        assert!(noted(3, 8).is_none() && push(3, 8) && top_known(3).1.is_none() && pop(3, 8));
        STACK.with(|stack| stack.is_busy.set(false));
        assert!(noted(3, 9).is_none() && noted(3, 8).is_some_and(|site| std::ptr::eq(site, other)));
        assert!(pop(3, 7));
    }

    /// Random steps of two recorders with the same ids, beside a list that only does what the words
    /// say: which span is innermost, whether the thread is in it.
    #[test]
    fn a_plain_list_says_the_same() {
        let mut list: Vec<(Span, bool)> = Vec::new();
        let mut random = 1u64;
        for step in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
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
        assert!(
            list.len() < 20_000
                && STACK.with(|stack| stack.depth.get() + stack.deep.get()) == list.len()
        );
    }
}
