//! The table of open spans in shared memory. From it, a reader lists the spans that were open at
//! death, even if the event of their opening was overwritten long ago.
//!
//! An entry is near the position that the hash of its id gives, so that entering, leaving and
//! closing find it without a list. If all entries there are in use, a new span evicts the one that
//! has been idle longest, and the eviction is counted. A span that a thread is in is never evicted,
//! unless its process is known to be dead. [`lastwords_abi::spans`] describes the protocol.

mod dead;

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use lastwords_abi::spans::{SPAN_APPENDING, SPAN_OPEN, Span, TEXT_LEN, WRITING};
use lastwords_abi::sync::AtomicU64;
use lastwords_ring::ClockKind;

pub(crate) use self::dead::look as look_for_dead;
use crate::process::{cut_len, identity};
use crate::record::encode::CUT;
use crate::record::slot::RecorderSlot;
use crate::record::takes;
use crate::session::desc::EventDesc;
use crate::session::shared::{self, SessionShared, SpansTable as Table};

/// Number of entries that may contain one id.
const PROBES: usize = 32;
/// Number of times that a thread tries to append to a text while another thread is appending to it.
const TRIES: usize = 1000;
/// The bits of an id that choose its place. Ids of `tracing-subscriber` and of our own subscriber
/// have there the slot in which the span is kept, which is used again as soon as it is free; a
/// generation is above. So a thread that opens one span after the other uses entries that its CPU
/// has in its caches.
const PLACE: u64 = (1 << 51) - 1;
/// Bytes of a text that is not cut. A longer one ends with [`CUT`].
const MOST_TEXT: usize = TEXT_LEN - CUT.len();
/// Increment for one generation in [`Span::inside`].
const GENERATION: u32 = WRITING + 1;

/// The number of the entry that a span has in a table. It is looked at before the hash: a number of
/// another table, or of an entry that was evicted since, costs time alone.
pub(crate) type Hint = u32;
/// No number is known.
pub(crate) const NO_HINT: Hint = Hint::MAX;

/// A span's level, 1 to 5, and the number of its recorder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct By {
    pub(crate) level: u8,
    pub(crate) recorder: u32,
}

impl By {
    /// Returns the value of [`Span::level`].
    #[inline]
    fn word(self) -> u32 {
        self.recorder << 8 | u32::from(self.level)
    }
}

/// Returns true if a session of this process has a table.
pub(crate) fn are_listed() -> bool {
    tables().next().is_some()
}

/// Adds an opened span to the table of every session of this process that has one. `parent` is 0 if
/// the span has none. `text` has the target, 0x1f, the name, 0x1f, and the
/// fields, in UTF-8.
///
/// `timed` is the slot in which the caller has just recorded the opening, if its channel knows the
/// time: its session need not read the clock.
///
/// `cut` is given if the text was cut: the event that has the whole values. A session that does not
/// take it counts the cut.
///
/// Returns the number of the entry.
pub(crate) fn open(
    id: u64,
    parent: u64,
    by: By,
    timed: Option<&'static RecorderSlot>,
    text: &[u8],
    cut: Option<&EventDesc>,
) -> Hint {
    let (me, mut hint) = (identity::word(), NO_HINT);
    for (session, table) in tables() {
        let recorded = timed.filter(|slot| std::ptr::eq(slot.session, session));
        let recorded = recorded.and_then(|slot| slot.channel.newest_time());
        let now = recorded.unwrap_or_else(|| session.view().clock_kind().map_or(0, ClockKind::now));
        let Some((entry, generation)) = table.claim(id, pid_of(me), now, session) else {
            table.control.dropped.fetch_add(1, Relaxed);
            continue;
        };
        // The entry belongs to this thread until `inside` marks it as complete.
        entry.parent.store(parent, Relaxed);
        entry.opened.store(now, Relaxed);
        entry.active.store(now, Relaxed);
        entry.opener.store(me, Relaxed);
        entry.entered.store(0, Relaxed);
        entry.level.store(by.word(), Relaxed);
        entry.opener_start.store(identity::process_start(), Relaxed);
        entry.text_len.store(put_text(entry, 0, text) as u32, Relaxed);
        entry.state.store(SPAN_OPEN, Relaxed);
        entry.inside.store(generation, Release);
        hint = table.number_of(entry);
        if let Some(event) = cut {
            count_cut(session, Some(event));
        }
    }
    hint
}

/// Notes that this thread has entered the span, which it was not in before.
#[inline]
pub(crate) fn enter(id: u64, hint: Hint) {
    let me = identity::word();
    each_entry(id, me, hint, |entry| {
        if count(entry, id, |inside| inside + 1) {
            entry.entered.store(me, Relaxed);
        }
    });
}

/// Notes that this thread has left the span.
#[inline]
pub(crate) fn leave(id: u64, hint: Hint) {
    let me = identity::word();
    each_entry(id, me, hint, |entry| {
        // If another thread enters in between, its name is lost, but it is counted.
        if entry.entered.load(Relaxed) == me {
            entry.entered.store(0, Relaxed);
        }
        entry.active.store(0, Relaxed);
        count(entry, id, |inside| inside.saturating_sub(1));
    });
}

/// Adds fields to the text of an open span. If they find no room, a session counts that unless it
/// takes `event`, which has them too.
pub(crate) fn append(id: u64, text: &[u8], event: Option<&EventDesc>) {
    for (session, table) in tables() {
        let Some(entry) = table.find(id, identity::word(), NO_HINT) else { continue };
        // An entry that threads are in cannot be evicted.
        if !count(entry, id, |inside| inside + 1) {
            continue;
        }
        let lock =
            || entry.state.compare_exchange(SPAN_OPEN, SPAN_APPENDING, AcqRel, Relaxed).is_ok();
        // The loop is bounded, because a signal handler may have interrupted the thread for which
        // it waits.
        let wait = std::hint::spin_loop;
        if (0..TRIES).any(|_| lock() || (wait(), false).1) {
            let mut at = entry.text_len.load(Relaxed) as usize;
            if has_fields(entry, at) {
                at = put_text(entry, at, b" ");
            }
            // The length is stored after the bytes, so a reader never reads text that is not there.
            let end = put_text(entry, at, text);
            entry.text_len.store(end as u32, Release);
            entry.state.store(SPAN_OPEN, Release);
            if end < at + text.len() || end > MOST_TEXT {
                count_cut(session, event);
            }
        } else {
            table.control.skipped.fetch_add(1, Relaxed);
        }
        entry.active.store(0, Relaxed);
        count(entry, id, |inside| inside.saturating_sub(1));
    }
}

/// Counts a text that was cut, unless the session takes the event.
#[cold]
fn count_cut(session: &SessionShared, event: Option<&EventDesc>) {
    if !event.is_some_and(|event| takes::is_taken_in(session, event)) {
        session.regions.registry.count_cut(1);
    }
}

/// Reads the text of an open span of this process: `read` gets its words, and its length in bytes.
/// Returns what `read` returns; none if the span is in no table.
#[inline]
pub(crate) fn read_text<T>(
    id: u64,
    hint: Hint,
    read: impl FnOnce(&[AtomicU64], usize) -> T,
) -> Option<T> {
    let me = identity::word();
    let entry = tables().find_map(|(_, table)| table.find(id, me, hint))?;
    let before = entry.inside.load(Acquire);
    let len = (entry.text_len.load(Acquire) as usize).min(TEXT_LEN);
    let read = read(&entry.text, len);
    fence(Acquire);
    let is_same = before & WRITING != WRITING
        && next_generation(before) == next_generation(entry.inside.load(Relaxed));
    is_same.then_some(read)
}

/// Counts a span that is in no table because there is no memory to keep it.
pub(crate) fn count_dropped() {
    tables().for_each(|(_, table)| _ = table.control.dropped.fetch_add(1, Relaxed));
}

/// Removes the span from the tables.
#[inline]
pub(crate) fn close(id: u64, hint: Hint) {
    each_entry(id, identity::word(), hint, |entry| _ = free(entry, id));
}

/// Frees the entry, if it still belongs to the span: a thread that never left does not keep it in
/// use. Returns false if it does not.
#[inline]
fn free(entry: &Span, id: u64) -> bool {
    let is_freed = update(entry, id, |inside| inside | WRITING);
    if is_freed {
        entry.state.store(0, Relaxed);
        entry.id.store(0, Release);
    }
    is_freed
}

/// Removes the recorder's open spans from the tables, and counts them: nobody will say when they are
/// closed.
pub(crate) fn abandon(recorder: u32) {
    let (me, of_recorder) = (identity::word(), By { level: 0, recorder }.word());
    for (_, table) in tables() {
        let is_its = |entry: &&Span| entry.level.load(Relaxed) & !0xff == of_recorder;
        for entry in table.entries.iter().filter(is_its) {
            let id = entry.id.load(Acquire);
            if id != 0 && is_of(entry, id, me) && free(entry, id) {
                table.control.abandoned.fetch_add(1, Relaxed);
            }
        }
    }
}

/// Changes the number of threads that are in the span. Returns false if the entry no longer belongs
/// to the span.
fn count(entry: &Span, id: u64, change: impl Fn(u32) -> u32) -> bool {
    update(entry, id, |inside| inside & !WRITING | change(inside & WRITING).min(WRITING - 1))
}

/// Changes `inside`. Returns false if the entry no longer belongs to the span.
fn update(entry: &Span, id: u64, change: impl Fn(u32) -> u32) -> bool {
    // If the exchange succeeds, the id was still valid, because it changes only together with the
    // generation.
    let is_span = |inside| inside & WRITING != WRITING && entry.id.load(Acquire) == id;
    let changed = |inside| is_span(inside).then(|| change(inside));
    entry.inside.fetch_update(AcqRel, Acquire, changed).is_ok()
}

#[inline]
fn each_entry(id: u64, me: u64, hint: Hint, act: impl Fn(&Span)) {
    tables().filter_map(|(_, table)| table.find(id, me, hint)).for_each(act);
}

/// Returns the process id in the word of a thread.
#[inline]
fn pid_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// Returns true if the text, of this length, has a field: more than the target, 0x1f, the name and
/// 0x1f.
fn has_fields(entry: &Span, len: usize) -> bool {
    let bytes = entry.text.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).take(len);
    let mut separators = bytes.enumerate().filter(|(_, byte)| *byte == 0x1f);
    separators.nth(1).is_some_and(|(at, _)| at + 1 < len)
}

/// Writes the bytes at offset `at`, and returns the new end of the text. Text that does not fit is
/// cut at a character, and the cut is marked once. Only the caller writes the entry's text
/// meanwhile.
#[inline(always)]
fn put_text(entry: &Span, at: usize, bytes: &[u8]) -> usize {
    // The text was cut already, here or before it came here.
    if at > MOST_TEXT || (at == MOST_TEXT && ends_with_mark(entry, at)) {
        return at;
    }
    let most = MOST_TEXT - at;
    if bytes.len() > most { put_cut(entry, at, bytes, most) } else { put_bytes(entry, at, bytes) }
}

/// Writes as much of the bytes as there is room for, and the mark of the cut.
#[cold]
#[inline(never)]
fn put_cut(entry: &Span, at: usize, bytes: &[u8], most: usize) -> usize {
    let end = put_bytes(entry, at, &bytes[..cut_len(bytes, most)]);
    put_bytes(entry, end, CUT.as_bytes())
}

/// Returns true if the text before this offset ends with the mark of a cut.
fn ends_with_mark(entry: &Span, end: usize) -> bool {
    let byte = |at: usize| entry.text[at / 8].load(Relaxed).to_ne_bytes()[at % 8];
    (end - CUT.len()..end).map(byte).eq(CUT.bytes())
}

/// Writes bytes for which there is room, in whole words, and returns the end of the text.
#[inline(always)]
fn put_bytes(entry: &Span, at: usize, bytes: &[u8]) -> usize {
    let (word, inside) = (at / 8, at % 8);
    let (first, rest) = bytes.split_at(bytes.len().min((8 - inside) % 8));
    if !first.is_empty() {
        let mut merged = entry.text[word].load(Relaxed).to_ne_bytes();
        merged[inside..inside + first.len()].copy_from_slice(first);
        entry.text[word].store(u64::from_ne_bytes(merged), Relaxed);
    }
    let (whole, last) = rest.as_chunks();
    let mut words = entry.text[at.div_ceil(8)..].iter();
    for (bytes, word) in whole.iter().zip(&mut words) {
        word.store(u64::from_ne_bytes(*bytes), Relaxed);
    }
    if let Some(word) = words.next().filter(|_| !last.is_empty()) {
        word.store(padded(bytes, last), Relaxed);
    }
    at + bytes.len()
}

#[inline]
fn tables() -> impl Iterator<Item = (&'static SessionShared, Table)> {
    shared::all().filter_map(|session| Some((session, session.spans?)))
}

impl Table {
    /// Returns the place of the first entry that may contain the process's span.
    #[inline]
    fn place(&self, id: u64, pid: u32) -> usize {
        // Processes give the same ids: small numbers, one for each span that they have at a time.
        let hash = (id & PLACE ^ u64::from(pid) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        // The hash is scaled to the size of the table. This avoids a division when a span is
        // entered.
        ((hash * self.entries.len() as u64) >> 32) as usize
    }

    /// Iterates over the entries that may contain the process's span.
    fn probe(&self, id: u64, pid: u32) -> impl Iterator<Item = &'static Span> + use<> {
        let (entries, len, from) = (self.entries, self.entries.len(), self.place(id, pid));
        let at = move |step: usize| if from + step < len { from + step } else { from + step - len };
        (0..PROBES.min(len)).filter_map(move |step| entries.get(at(step)))
    }

    /// Returns the number of an entry of this table.
    #[inline]
    fn number_of(&self, entry: &Span) -> Hint {
        let offset = std::ptr::from_ref(entry).addr() - self.entries.as_ptr().addr();
        (offset / size_of::<Span>()) as Hint
    }

    /// Returns the entry of the span of this process. Without a hint, it nearly always is the first
    /// that may contain the span. `me` is this thread's word.
    #[inline]
    fn find(&self, id: u64, me: u64, hint: Hint) -> Option<&'static Span> {
        let at = if hint == NO_HINT { self.place(id, pid_of(me)) } else { hint as usize };
        let found = self.entries.get(at).filter(|entry| is_of(entry, id, me));
        found.or_else(|| self.find_elsewhere(id, me))
    }

    #[cold]
    #[inline(never)]
    fn find_elsewhere(&self, id: u64, me: u64) -> Option<&'static Span> {
        self.probe(id, pid_of(me)).find(|entry| is_of(entry, id, me))
    }

    /// Returns an entry for the id, marked as being written, and the value of `inside` for when it
    /// is complete. The entry is a free one, otherwise the one that has been idle longest.
    fn claim(
        &self,
        id: u64,
        pid: u32,
        now: u64,
        session: &SessionShared,
    ) -> Option<(&'static Span, u32)> {
        let first = self.entries.get(self.place(id, pid)).filter(|entry| take(entry, id));
        let found = first.or_else(|| self.take_behind(id, pid));
        let Some(entry) = found else { return self.evict(id, pid, now, session) };
        let generation = next_generation(entry.inside.load(Relaxed));
        entry.inside.store(generation | WRITING, Relaxed);
        // A reader that sees a part of the following stores also sees that the entry is being
        // written.
        fence(Release);
        Some((entry, generation))
    }

    #[cold]
    #[inline(never)]
    fn take_behind(&self, id: u64, pid: u32) -> Option<&'static Span> {
        self.probe(id, pid).skip(1).find(|entry| take(entry, id))
    }

    #[cold]
    #[inline(never)]
    fn evict(
        &self,
        id: u64,
        pid: u32,
        now: u64,
        session: &SessionShared,
    ) -> Option<(&'static Span, u32)> {
        // Entries that other threads take meanwhile are skipped, because there are more.
        for _ in 0..PROBES {
            let (entry, inside) = self.idle_longest(id, now, pid, session)?;
            let writing = next_generation(inside) | WRITING;
            if entry.inside.compare_exchange(inside, writing, AcqRel, Relaxed).is_ok() {
                fence(Release);
                entry.state.store(0, Relaxed);
                entry.id.store(id, Relaxed);
                self.control.evicted.fetch_add(1, Relaxed);
                return Some((entry, writing & !WRITING));
            }
        }
        None
    }

    /// Returns the entry to evict and its `inside`: the one that has been idle longest, among those
    /// that no thread is in or whose process is dead.
    fn idle_longest(
        &self,
        id: u64,
        now: u64,
        pid: u32,
        session: &SessionShared,
    ) -> Option<(&'static Span, u32)> {
        let candidates = self.probe(id, pid).filter_map(|entry| {
            let inside = entry.inside.load(Acquire);
            let threads = inside & WRITING;
            if entry.state.load(Acquire) == 0 || threads == WRITING {
                return None;
            }
            if threads != 0 {
                let opener = (entry.opener.load(Relaxed) >> 32) as u32;
                // This process cannot interpret process ids of other namespaces.
                if opener == pid || session.view().is_foreign() {
                    return None;
                }
                if !dead::is_known(opener, entry.opener_start.load(Relaxed)) {
                    dead::suspected();
                    return None;
                }
            }
            // The entry was used since the last look, or was taken just now, so it is not idle.
            let _ = entry.active.compare_exchange(0, now, Relaxed, Relaxed);
            Some(((entry.active.load(Relaxed), entry.opened.load(Relaxed)), entry, inside))
        });
        candidates
            .min_by_key(|(idle_since, ..)| *idle_since)
            .map(|(_, entry, inside)| (entry, inside))
    }
}

/// Returns the last bytes of a text, fewer than eight, as a word in memory order, with zeros behind
/// them.
#[inline]
fn padded(text: &[u8], last: &[u8]) -> u64 {
    // A load of bytes that were stored one after the other just before waits until they are in the
    // cache.
    if let Some(end) = text.last_chunk() {
        return (u64::from_le_bytes(*end) >> (64 - 8 * last.len())).to_le();
    }
    let mut bytes = [0; 8];
    bytes[..last.len()].copy_from_slice(last);
    u64::from_ne_bytes(bytes)
}

/// Returns true if the entry is of the span of this process. Ids of spans are small numbers that
/// many processes use, so the opener is compared too.
#[inline]
fn is_of(entry: &Span, id: u64, me: u64) -> bool {
    entry.id.load(Acquire) == id
        && pid_of(entry.opener.load(Relaxed)) == pid_of(me)
        && entry.state.load(Acquire) != 0
}

/// Takes the entry for the id if it is free.
#[inline]
fn take(entry: &Span, id: u64) -> bool {
    entry.id.load(Relaxed) == 0 && entry.id.compare_exchange(0, id, AcqRel, Relaxed).is_ok()
}

/// Returns the generation after that of `inside`, with no thread in it.
fn next_generation(inside: u32) -> u32 {
    (inside & !WRITING).wrapping_add(GENERATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free() -> Span {
        // SAFETY: an entry has only integers, for which all-zero bytes are valid.
        unsafe { std::mem::zeroed() }
    }

    fn text(entry: &Span) -> String {
        let bytes: Vec<u8> =
            entry.text.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        String::from_utf8(bytes[..entry.text_len.load(Relaxed) as usize].to_vec())
            .expect("cut at a character")
    }

    #[test]
    fn text_that_is_added_is_whole_and_a_cut_is_marked_once() {
        let pieces = ["x", "seven b", "eight by", "aé€", "a longer piece of text, é"];
        for piece in &pieces[if cfg!(miri) { 4.. } else { 0.. }] {
            let (entry, mut whole) = (free(), String::new());
            for _ in 0..TEXT_LEN {
                let at = entry.text_len.load(Relaxed) as usize;
                entry.text_len.store(put_text(&entry, at, piece.as_bytes()) as u32, Relaxed);
                whole.push_str(piece);
                let shown = text(&entry);
                match shown.strip_suffix(CUT) {
                    Some(cut) => assert!(
                        whole.starts_with(cut) && cut.len() > TEXT_LEN - 2 * CUT.len(),
                        "{shown}"
                    ),
                    None => assert_eq!(shown, whole),
                }
            }
            assert!(text(&entry).ends_with(CUT));
        }
    }

    #[test]
    fn text_that_was_cut_before_it_came_is_not_marked_again() {
        use crate::record::encode::Formatted;
        for last in ["x", "é", "€", "😀"] {
            for len in if cfg!(miri) { TEXT_LEN - 8 } else { 0 }..TEXT_LEN + 2 {
                let whole = "x".repeat(len) + last + last;
                let mut first = Formatted::<TEXT_LEN>::empty();
                first.push(whole.as_bytes());
                let entry = free();
                let end = put_text(&entry, 0, first.as_bytes());
                entry.text_len.store(put_text(&entry, end, b"more") as u32, Relaxed);
                let shown = text(&entry);
                let begin = shown.strip_suffix(CUT).unwrap_or(&shown);
                assert!((whole + "more").starts_with(begin), "{shown}");
            }
        }
    }

    #[test]
    fn who_is_inside_is_counted_for_the_span_alone() {
        let entry = free();
        entry.id.store(7, Relaxed);
        entry.inside.store(3 * GENERATION, Relaxed);
        assert!(count(&entry, 7, |inside| inside + 1) && count(&entry, 7, |inside| inside + 1));
        assert!(!count(&entry, 8, |inside| inside + 1), "another span");
        assert_eq!(entry.inside.load(Relaxed), 3 * GENERATION + 2);
        assert!(count(&entry, 7, |inside| inside - 1));
        entry.inside.store((3 * GENERATION) | WRITING, Relaxed);
        assert!(!count(&entry, 7, |inside| inside - 1), "it is being written");
        assert_eq!(next_generation(u32::MAX), 0);
    }
}
