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
//! Beside an id is what is known of a span that this thread has made: its site, for which the layer
//! need not ask the registry then, and its entry in the table of open spans.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

use super::domain::Domain;
use super::site::Site;
use crate::record::spans::{Hint, NO_HINT};

/// Number of spans that need no memory of the heap.
const MOST: usize = 64;

/// A span: the number of its recorder, and its id there.
type Span = (u32, u64);

/// A span that this thread has made.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) site: &'static Site,
    /// The number of its entry in the table of open spans.
    pub(super) entry: Hint,
}

/// What is known of a span, if it is one that this thread has made.
pub(super) type Known = Option<Made>;

/// Returns the number of the span's entry, if it is known.
#[inline(always)]
pub(super) fn entry_of(known: Known) -> Hint {
    known.map_or(NO_HINT, |made| made.entry)
}

/// Room for a span that the thread is in.
struct Place {
    /// The recorder of the span, as [`mark`] has it; 0 in a place that is not in use. The other
    /// members count only if this is not 0.
    mark: Cell<u64>,
    id: Cell<u64>,
    known: Cell<Known>,
}

/// Bit of a mark: the thread is in the span further outside too.
const IS_AGAIN: u64 = 1;

/// Returns the mark of the recorder's spans that are not further outside.
#[inline(always)]
const fn mark(owner: u32) -> u64 {
    (owner as u64 + 1) << 1
}

/// Returns the recorder of a mark, which is not 0.
const fn owner_of(mark: u64) -> u32 {
    (mark >> 1) as u32 - 1
}

struct Stack {
    places: [Place; MOST],
    /// Number of `places` in use.
    depth: Cell<usize>,
    /// Number of spans in [`DEEP`].
    deep: Cell<usize>,
    /// The newest span that was noted.
    newest: Cell<(Span, Known)>,
    /// True while `newest` is used. A signal handler that comes then does not use it.
    is_busy: Cell<bool>,
}

thread_local! {
    static STACK: Stack = const {
        let places = [const { Place { mark: Cell::new(0), id: Cell::new(0), known: Cell::new(None) } }; MOST];
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
    STACK.with(|stack| if stack.is_empty() { 0 } else { stack.top_known(owner).0 })
}

/// Returns what [`top`] does, and what is known of the span.
#[inline]
pub(super) fn top_known(owner: u32) -> (u64, Known) {
    STACK.with(|stack| if stack.is_empty() { (0, None) } else { stack.top_known(owner) })
}

/// Returns the recorder and the id of the innermost span of all recorders, and what is known of it.
/// A recorder that was taken out of the program is not told when its spans are left.
pub(super) fn innermost() -> Option<(u32, u64, Known)> {
    STACK.with(|stack| {
        if stack.deep.get() > 0
            && let Some((owner, id)) = deep_top(|owner| !Domain::is_gone(owner))
        {
            return Some((owner, id, None));
        }
        let is_top = |place: &&Place| {
            let mark = place.mark.get();
            mark != 0 && mark & IS_AGAIN == 0 && !Domain::is_gone(owner_of(mark))
        };
        let place = stack.places[..stack.depth.get().min(MOST)].iter().rfind(is_top)?;
        Some((owner_of(place.mark.get()), place.id.get(), place.known.get()))
    })
}

/// Returns true if this thread is in a span of any recorder.
#[inline]
pub(super) fn is_in_any() -> bool {
    STACK.with(|stack| stack.depth.get() > 0)
}

/// Notes a new span, until this thread notes another one. The ids of the recorder must be such that
/// no other thread gives one that this thread has given.
#[inline]
pub(super) fn note(owner: u32, id: u64, made: Made) {
    STACK.with(|stack| {
        stack.with_newest(|newest| newest.set(((owner, id), Some(made))));
    });
}

/// Returns what is known of the span, if it was the newest that this thread noted.
#[inline]
pub(super) fn noted(owner: u32, id: u64) -> Known {
    STACK.with(|stack| stack.noted((owner, id)))
}

/// Enters the span. Returns the number of its entry, if that is known; none if this thread was in
/// the span already.
#[inline]
pub(super) fn push(owner: u32, id: u64) -> Option<Hint> {
    STACK.with(|stack| stack.push((owner, id)))
}

/// Leaves the span, which nearly always is the innermost. Returns the number of its entry, if that
/// is known; none if this thread was not in the span, or still is.
#[inline]
pub(super) fn pop(owner: u32, id: u64) -> Option<Hint> {
    STACK.with(|stack| stack.pop((owner, id)))
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
    fn write(&self, id: u64, known: Known, mark: u64) {
        self.mark.set(0);
        keep_order();
        self.id.set(id);
        self.known.set(known);
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
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.depth.get() == 0 && self.deep.get() == 0
    }

    /// Returns the recorder's innermost span, and what is known of it.
    #[inline(always)]
    fn top_known(&self, owner: u32) -> (u64, Known) {
        let is_top = |place: &&Place| place.mark.get() == mark(owner);
        let used = &self.places[..self.depth.get().min(MOST)];
        // Nearly always it is the last.
        match used.last().filter(is_top).filter(|_| self.deep.get() == 0) {
            Some(place) => (place.id.get(), place.known.get()),
            None => self.top_further_outside(owner),
        }
    }

    #[inline(never)]
    fn top_further_outside(&self, owner: u32) -> (u64, Known) {
        if self.deep.get() > 0
            && let Some((_, id)) = deep_top(|of| of == owner)
        {
            return (id, None);
        }
        let used = &self.places[..self.depth.get().min(MOST)];
        let top = used.iter().rfind(|place| place.mark.get() == mark(owner));
        top.map_or((0, None), |place| (place.id.get(), place.known.get()))
    }

    /// Does what [`push`] does. It is not inlined: the library function that finds the thread's
    /// variable would not be inlined with it.
    #[inline(never)]
    fn push(&self, span: Span) -> Option<Hint> {
        let is_again = self.find(span).is_some();
        if self.depth.get() == MOST {
            return push_deep(self, span, is_again).then_some(NO_HINT);
        }
        let known = self.noted(span);
        self.enter(span, is_again, known);
        (!is_again).then_some(entry_of(known))
    }

    /// Does what [`pop`] does.
    #[inline(never)]
    fn pop(&self, span: Span) -> Option<Hint> {
        if self.deep.get() > 0
            && let Some(is_out) = pop_deep(self, span)
        {
            return is_out.then_some(NO_HINT);
        }
        if let Some(place) = self.simple_top(span) {
            let known = place.known.get();
            self.drop_last();
            return Some(entry_of(known));
        }
        let at = self.find(span)?;
        let is_again = self.places[at].mark.get() & IS_AGAIN != 0;
        self.remove(at);
        if self.deep.get() > 0 {
            move_up(self);
        }
        (!is_again).then_some(NO_HINT)
    }

    /// Puts the span into the next place, which is free.
    #[inline]
    fn enter(&self, (owner, id): Span, is_again: bool, known: Known) {
        let at = self.depth.get();
        self.depth.set(at + 1);
        keep_order();
        self.places[at].write(id, known, mark(owner) | u64::from(is_again));
    }

    /// Frees the last place.
    #[inline]
    fn drop_last(&self) {
        let last = self.depth.get() - 1;
        self.places[last].mark.set(0);
        keep_order();
        self.depth.set(last);
    }

    /// Returns the place of the span, if it is the innermost, and the thread is in it once.
    #[inline]
    fn simple_top(&self, (owner, id): Span) -> Option<&Place> {
        let last = self.depth.get().checked_sub(1).and_then(|last| self.places.get(last));
        last.filter(|place| {
            self.deep.get() == 0 && place.mark.get() == mark(owner) && place.id.get() == id
        })
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
            place.write(next.id.get(), next.known.get(), next.mark.get());
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
        let (newest, known) = self.with_newest(Cell::get)?;
        known.filter(|_| newest == span)
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
    use lastwords_testkit::random::Random;

    use super::*;

    fn push(owner: u32, id: u64) -> bool {
        super::push(owner, id).is_some()
    }

    fn pop(owner: u32, id: u64) -> bool {
        super::pop(owner, id).is_some()
    }

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

    /// The span that was noted last is known, unless the note is being used. What is known of a span
    /// when it is entered is known until it is left.
    #[test]
    fn a_note_counts_for_its_span_alone() {
        use crate::layer::site::tests::any;
        let [one, other] = [5, 6].map(|entry| Made { site: any(), entry });
        let is = |known: Known, made: Made| {
            known.is_some_and(|known| {
                std::ptr::eq(known.site, made.site) && known.entry == made.entry
            })
        };
        note(3, 7, one);
        assert!(is(noted(3, 7), one));
        assert!(noted(3, 8).is_none() && noted(4, 7).is_none());
        assert!(push(3, 7) && is(top_known(3).1, one));
        note(3, 8, other);
        assert!(noted(3, 7).is_none() && is(top_known(3).1, one));
        STACK.with(|stack| stack.is_busy.set(true));
        note(3, 9, one);
        assert!(noted(3, 8).is_none() && push(3, 8) && top_known(3).1.is_none() && pop(3, 8));
        STACK.with(|stack| stack.is_busy.set(false));
        assert!(noted(3, 9).is_none() && is(noted(3, 8), other));
        assert_eq!(super::pop(3, 7), Some(one.entry));
    }

    /// Random steps of two recorders with the same ids, beside a list that only does what the words
    /// say: which span is innermost, whether the thread is in it.
    #[test]
    fn a_plain_list_says_the_same() {
        let mut list: Vec<(Span, bool)> = Vec::new();
        let mut random = Random(1);
        for step in 0..20_000 {
            let span = (random.below(2) as u32, 1 + random.below(75));
            // The stack grows beyond what needs no memory and shrinks again, over and over.
            if random.below(16) < if step / 500 % 2 == 0 { 11 } else { 5 } {
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
